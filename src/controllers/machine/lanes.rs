//! Slots for passes that call the cloud or empty a Node. Creations cannot keep deletions waiting, nor the other way round;
//! what needs no such call (health) needs no slot.
//!
//! A pass that finds no slot ends; its Machine stands in line and is woken when it has one. So waiting costs a key, not
//! a pass.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use super::Action;
use crate::runtime::{cache::Key, queue::Queue};

/// One lane for what makes VMs, one for what removes them.
pub struct Lanes {
    slots: usize,
    create: Mutex<Lane>,
    delete: Mutex<Lane>,
    queue: Arc<Queue<Key>>,
}

#[derive(Debug)]
struct Lane {
    free: usize,
    holders: HashSet<Key>,
    line: VecDeque<Key>,
    /// Who stands in line; whoever is gone is still in `line`, and passed over.
    waiting: HashSet<Key>,
}

impl Lanes {
    /// So many slots in each lane, at least one; `queue` wakes those whose turn it is.
    pub fn new(slots: usize, queue: Arc<Queue<Key>>) -> Self {
        let slots = slots.max(1);
        let lane = || {
            Mutex::new(Lane { free: slots, holders: HashSet::new(), line: VecDeque::new(), waiting: HashSet::new() })
        };
        Self { slots, create: lane(), delete: lane(), queue }
    }

    /// Slots of all lanes.
    pub fn slots(&self) -> usize {
        self.slots.saturating_mul(2)
    }

    /// Whether the pass over a Machine may carry out an action now. If not, its Machine stands in line from now on.
    pub(super) fn admits(&self, key: &Key, action: &Action) -> bool {
        let lane = match action {
            Action::AskVm | Action::CreateVm | Action::InitializeVm => &self.create,
            Action::DeleteVm | Action::ListPods { .. } | Action::EvictPod(_) | Action::DeletePod(_) => &self.delete,
            _ => return true,
        };
        lane.lock().enter(key)
    }

    /// The pass over a Machine is over: whoever is next has its slots.
    pub(super) fn leave(&self, key: &Key) {
        for lane in [&self.create, &self.delete] {
            let next = lane.lock().leave(key);
            next.into_iter().for_each(|next| self.queue.add(next));
        }
    }

    /// A Machine is gone, and no pass over it will come.
    pub fn forget(&self, key: &Key) {
        for lane in [&self.create, &self.delete] {
            lane.lock().waiting.remove(key);
        }
        self.leave(key);
    }
}

impl Lane {
    fn enter(&mut self, key: &Key) -> bool {
        if self.holders.contains(key) {
            return true;
        }
        if self.free > 0 {
            self.free -= 1;
            self.holders.insert(key.clone());
            return true;
        }
        if self.waiting.insert(key.clone()) {
            self.line.push_back(key.clone());
        }
        false
    }

    fn leave(&mut self, key: &Key) -> Option<Key> {
        if !self.holders.remove(key) {
            return None;
        }
        let next = loop {
            match self.line.pop_front() {
                Some(next) if !self.waiting.remove(&next) => {}
                next => break next,
            }
        };
        match &next {
            Some(next) => drop(self.holders.insert(next.clone())),
            None => self.free += 1,
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{FutureExt, StreamExt};

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    fn woken(lanes: &Lanes) -> Vec<String> {
        let mut keys = Box::pin(lanes.queue.stream().map(|(key, _)| key.name));
        std::iter::from_fn(|| keys.next().now_or_never().flatten()).collect()
    }

    #[tokio::test]
    async fn who_finds_no_slot_is_woken_when_it_has_one_in_the_order_of_the_line() {
        let lanes = Lanes::new(1, Queue::new("test", Duration::ZERO));
        assert!(lanes.admits(&key("a"), &Action::AskVm));
        assert!(lanes.admits(&key("a"), &Action::CreateVm), "it has its slot until the pass ends");
        assert!(!lanes.admits(&key("b"), &Action::AskVm));
        assert!(!lanes.admits(&key("c"), &Action::AskVm));
        assert!(!lanes.admits(&key("b"), &Action::AskVm), "asking twice does not change the order");
        assert!(lanes.admits(&key("d"), &Action::DeleteVm), "the other lane is free");
        assert!(lanes.admits(&key("d"), &Action::ReadSecret), "this needs no slot");
        lanes.leave(&key("b"));
        assert!(woken(&lanes).is_empty(), "who waits has nothing to give back");
        lanes.leave(&key("a"));
        assert_eq!(woken(&lanes), ["b"]);
        assert!(!lanes.admits(&key("a"), &Action::AskVm), "the slot is for b");
        assert!(lanes.admits(&key("b"), &Action::AskVm));
        lanes.leave(&key("b"));
        assert_eq!(woken(&lanes), ["c"]);
    }

    #[tokio::test]
    async fn a_machine_that_goes_while_it_waits_or_works_keeps_nobody_waiting() {
        let lanes = Lanes::new(1, Queue::new("test", Duration::ZERO));
        assert!(lanes.admits(&key("a"), &Action::AskVm));
        for waiting in ["b", "c"] {
            assert!(!lanes.admits(&key(waiting), &Action::AskVm));
        }
        lanes.forget(&key("b"));
        lanes.forget(&key("a"));
        assert_eq!(woken(&lanes), ["c"]);
        lanes.forget(&key("c"));
        assert!(lanes.admits(&key("d"), &Action::AskVm));
    }
}
