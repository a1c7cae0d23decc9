//! Slots for reconciles that call the cloud or drain a Node. Creations and deletions cannot block each other, and one
//! account (provider and credentials) cannot block another. A reconcile without such a call (health) needs no slot.
//!
//! A reconcile that finds no free slot ends. Its Machine is queued and reconciled again when it gets a slot, so waiting
//! costs a key, not a task.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::controllers::machine::Action;
use crate::{
    driver::Account,
    runtime::{cache::Key, queue::Queue},
};

/// Accounts with slots of their own in each lane. Further accounts share the slots of one more, which bounds the number
/// of calls that hang.
const MOST_LINES: usize = 32;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// Creating a VM, including the calls before it.
    Create,
    /// Draining a Node and deleting a VM, including the calls before.
    Delete,
}

impl Lane {
    /// The lane of an action; `None` if it needs no slot.
    pub(super) fn of(action: &Action, is_terminating: bool) -> Option<Self> {
        match action {
            Action::CreateVm | Action::InitializeVm => Some(Self::Create),
            // A deletion must not wait behind creations, so neither must its status call.
            Action::GetVmStatus => Some(if is_terminating { Self::Delete } else { Self::Create }),
            Action::DeleteVm
            | Action::ListPods { .. }
            | Action::ReadVolumes(_)
            | Action::DetachVolumes { .. }
            | Action::EvictPod(_)
            | Action::DeletePod(_) => Some(Self::Delete),
            _ => None,
        }
    }
}

/// The slots of one cell: one queue for each account and lane in use.
pub(crate) struct Lanes {
    slots: usize,
    state: Mutex<State>,
    queue: Arc<Queue<Key>>,
}

type Place = (Account, Lane);

#[derive(Debug, Default)]
struct State {
    lines: BTreeMap<Place, Line>,
    /// Where a key holds a slot or waits for one.
    places: HashMap<Key, Vec<Place>>,
}

/// Machines wait only while no slot is free.
#[derive(Debug, Default)]
struct Line {
    holders: HashSet<Key>,
    order: VecDeque<Key>,
    /// Machines that wait. One that was forgotten remains in `order` and is skipped.
    waiting: HashSet<Key>,
}

impl Lanes {
    /// `slots` slots for each account in each lane, at least one. Machines that get a slot are added to `queue`.
    pub fn new(slots: usize, queue: Arc<Queue<Key>>) -> Self {
        Self { slots: slots.max(1), state: Mutex::default(), queue }
    }

    /// How many slots can be held at a time, over all accounts.
    pub fn slots(&self) -> usize {
        // Each lane has one more queue, for the accounts beyond `ACCOUNTS`.
        self.slots.saturating_mul(MOST_LINES + 2)
    }

    /// Whether the reconcile of a Machine may continue in a lane now. If not, the Machine is queued for a slot.
    /// A slot is held until [`Lanes::leave`].
    pub(super) fn admits(&self, key: &Key, account: &Account, lane: Lane) -> bool {
        self.state.lock().enter(key, account, lane, self.slots)
    }

    /// The reconcile of a Machine ended: the next Machines get its slots.
    pub(super) fn leave(&self, key: &Key) {
        let next = self.state.lock().leave(key);
        next.into_iter().for_each(|next| self.queue.add(next));
    }

    /// A Machine was deleted or cannot be decoded, so it does not need the slot it waits for.
    pub fn forget(&self, key: &Key) {
        self.state.lock().stop_waiting(key);
        self.leave(key);
    }
}

impl State {
    fn enter(&mut self, key: &Key, account: &Account, lane: Lane, slots: usize) -> bool {
        if self.holds(key, lane) {
            return true;
        }
        let place = self.place_of(account, lane);
        let has_slot = self.lines.entry(place.clone()).or_default().enter(key, slots);
        let places = self.places.entry(key.clone()).or_default();
        if !places.contains(&place) {
            places.push(place);
        }
        has_slot
    }

    fn holds(&self, key: &Key, lane: Lane) -> bool {
        let places = self.places.get(key).into_iter().flatten().filter(|place| place.1 == lane);
        places.filter_map(|place| self.lines.get(place)).any(|line| line.holders.contains(key))
    }

    fn place_of(&self, account: &Account, lane: Lane) -> Place {
        let own = (account.clone(), lane);
        if self.lines.contains_key(&own) || self.lines.len() < MOST_LINES { own } else { (Account::default(), lane) }
    }

    fn leave(&mut self, key: &Key) -> Vec<Key> {
        let Some(mut places) = self.places.remove(key) else { return Vec::new() };
        let mut next = Vec::new();
        places.retain(|place| {
            let Some(line) = self.lines.get_mut(place) else { return false };
            next.extend(line.leave(key));
            let waits = line.waiting.contains(key);
            if line.holders.is_empty() {
                self.lines.remove(place);
            }
            waits
        });
        if !places.is_empty() {
            self.places.insert(key.clone(), places);
        }
        next
    }

    fn stop_waiting(&mut self, key: &Key) {
        for place in self.places.get(key).into_iter().flatten() {
            if let Some(line) = self.lines.get_mut(place) {
                line.waiting.remove(key);
            }
        }
    }
}

impl Line {
    fn enter(&mut self, key: &Key, slots: usize) -> bool {
        if self.holders.len() < slots {
            return self.holders.insert(key.clone());
        }
        if self.waiting.insert(key.clone()) {
            self.order.push_back(key.clone());
        }
        false
    }

    fn leave(&mut self, key: &Key) -> Option<Key> {
        if !self.holders.remove(key) {
            return None;
        }
        while let Some(next) = self.order.pop_front() {
            if self.waiting.remove(&next) {
                self.holders.insert(next.clone());
                return Some(next);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::{api::machine::MachineClass, runtime::queue::Pacing};

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    fn account(provider: &str) -> Account {
        Account::of(&MachineClass { provider: provider.to_owned(), ..MachineClass::default() })
    }

    fn lanes(slots: usize) -> Lanes {
        Lanes::new(slots, Queue::new("test", Pacing::default()))
    }

    fn admits(lanes: &Lanes, name: &str, action: &Action) -> bool {
        Lane::of(action, false).is_none_or(|lane| lanes.admits(&key(name), &account("aws"), lane))
    }

    fn woken(lanes: &Lanes) -> Vec<String> {
        std::iter::from_fn(|| lanes.queue.take().now_or_never().map(|(key, _)| key.name)).collect()
    }

    #[tokio::test]
    async fn who_finds_no_slot_is_woken_when_it_has_one_in_the_order_of_the_line() {
        let lanes = lanes(1);
        assert!(admits(&lanes, "a", &Action::GetVmStatus));
        assert!(admits(&lanes, "a", &Action::CreateVm), "it has its slot until the reconcile ends");
        assert!(!admits(&lanes, "b", &Action::GetVmStatus));
        assert!(!admits(&lanes, "c", &Action::GetVmStatus));
        assert!(!admits(&lanes, "b", &Action::GetVmStatus), "asking twice does not change the order");
        assert!(admits(&lanes, "d", &Action::DeleteVm), "the other lane is free");
        assert!(admits(&lanes, "d", &Action::ReadSecret), "this needs no slot");
        lanes.leave(&key("b"));
        assert!(woken(&lanes).is_empty(), "who waits has nothing to give back");
        lanes.leave(&key("a"));
        assert_eq!(woken(&lanes), ["b"]);
        assert!(!admits(&lanes, "a", &Action::GetVmStatus), "the slot is for b");
        assert!(admits(&lanes, "b", &Action::GetVmStatus));
        lanes.leave(&key("b"));
        assert_eq!(woken(&lanes), ["c"]);
    }

    #[tokio::test]
    async fn a_machine_that_goes_while_it_waits_or_works_keeps_nobody_waiting() {
        let lanes = lanes(1);
        assert!(admits(&lanes, "a", &Action::GetVmStatus));
        for waiting in ["b", "c"] {
            assert!(!admits(&lanes, waiting, &Action::GetVmStatus));
        }
        lanes.forget(&key("b"));
        lanes.forget(&key("a"));
        assert_eq!(woken(&lanes), ["c"]);
        lanes.forget(&key("c"));
        assert!(admits(&lanes, "d", &Action::GetVmStatus));
    }

    #[tokio::test]
    async fn a_slow_account_does_not_hold_up_another() {
        let lanes = lanes(2);
        for name in ["a", "b", "c", "d"] {
            let is_in_time = ["a", "b"].contains(&name);
            assert_eq!(lanes.admits(&key(name), &account("slow"), Lane::Create), is_in_time, "{name}");
        }
        assert!(lanes.admits(&key("e"), &account("other"), Lane::Create));
        lanes.leave(&key("e"));
        assert!(woken(&lanes).is_empty(), "a slot of one account is of no use to another");
        lanes.leave(&key("a"));
        assert_eq!(woken(&lanes), ["c"]);
    }

    #[rstest]
    #[case(Action::GetVmStatus, true, Some(Lane::Delete))]
    #[case(Action::GetVmStatus, false, Some(Lane::Create))]
    #[case(Action::CreateVm, false, Some(Lane::Create))]
    #[case(Action::InitializeVm, false, Some(Lane::Create))]
    #[case(Action::DeleteVm, true, Some(Lane::Delete))]
    #[case(Action::DeleteVm, false, Some(Lane::Delete))]
    #[case(Action::ListPods { node: "n".into() }, true, Some(Lane::Delete))]
    #[case(Action::ReadSecret, true, None)]
    fn a_deletion_takes_no_slot_of_creations(
        #[case] action: Action,
        #[case] is_terminating: bool,
        #[case] expected: Option<Lane>,
    ) {
        assert_eq!(Lane::of(&action, is_terminating), expected);
    }

    #[tokio::test]
    async fn a_machine_whose_class_changes_while_it_waits_leaves_no_slot_behind() {
        let lanes = lanes(1);
        for (name, provider) in [("a", "old"), ("b", "new")] {
            assert!(lanes.admits(&key(name), &account(provider), Lane::Create));
        }
        assert!(!lanes.admits(&key("m"), &account("old"), Lane::Create));
        lanes.leave(&key("a"));
        assert_eq!(woken(&lanes), ["m"]);
        assert!(lanes.admits(&key("m"), &account("new"), Lane::Create), "it has a slot of this lane already");
        lanes.leave(&key("m"));
        lanes.leave(&key("b"));
        assert!(lanes.state.lock().lines.is_empty());
    }

    #[tokio::test]
    async fn accounts_beyond_the_bound_share_slots_and_idle_ones_are_not_kept() {
        let lanes = lanes(1);
        let name = |number: usize| format!("account-{number}");
        for number in 0..MOST_LINES + 2 {
            let is_admitted = lanes.admits(&key(&name(number)), &account(&name(number)), Lane::Create);
            assert_eq!(is_admitted, number <= MOST_LINES, "{number}");
        }
        assert_eq!(lanes.state.lock().lines.len(), MOST_LINES + 1);
        (0..MOST_LINES + 2).for_each(|number| lanes.leave(&key(&name(number))));
        assert_eq!(woken(&lanes), [name(MOST_LINES + 1)]);
        lanes.leave(&key(&name(MOST_LINES + 1)));
        let state = lanes.state.lock();
        assert!(state.lines.is_empty() && state.places.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Event {
        Ask(u8, u8, bool),
        Leave(u8),
        Forget(u8),
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..12_u8, 0..3_u8, any::<bool>()).prop_map(|(key, account, create)| Event::Ask(key, account, create)),
            3 => (0..12_u8).prop_map(Event::Leave),
            1 => (0..12_u8).prop_map(Event::Forget),
        ]
    }

    proptest! {
        #[test]
        fn no_line_is_overfull_nobody_waits_beside_a_free_slot_and_in_the_end_nothing_is_left(
            events in proptest::collection::vec(any_event(), 0..200),
        ) {
            let lanes = lanes(2);
            let name = |number: u8| key(&number.to_string());
            let lane = |create| if create { Lane::Create } else { Lane::Delete };
            for event in events {
                match event {
                    Event::Ask(key, of, create) => {
                        lanes.admits(&name(key), &account(&of.to_string()), lane(create));
                    }
                    Event::Leave(key) => lanes.leave(&name(key)),
                    Event::Forget(key) => lanes.forget(&name(key)),
                }
                for line in lanes.state.lock().lines.values() {
                    prop_assert!(!line.holders.is_empty() && line.holders.len() <= 2);
                    prop_assert!(line.waiting.is_empty() || line.holders.len() == 2);
                }
            }
            // Each turn that somebody gets leads to a reconcile, which leaves.
            for _ in 0..12 {
                (0..12).for_each(|key| lanes.leave(&name(key)));
            }
            let state = lanes.state.lock();
            prop_assert!(state.lines.is_empty() && state.places.is_empty(), "{state:?}");
        }
    }
}
