//! Slots for reconciles that call the cloud or drain a Node. Creations, drains and deletions cannot block each other, and one
//! account (provider and credentials) cannot block another. A reconcile without such a call (health) needs no slot.
//!
//! A reconcile that finds no free slot ends. Its Machine is queued and reconciled again when it gets a slot, so waiting
//! costs a key, not a task.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::machine::Action;
use mcm_driver::CloudAccount;
use mcm_runtime::{cache::Key, queue::WorkQueue};

/// Lines of an account in a lane that have more than one slot, which bounds the number of calls that hang. Each further line has
/// one slot: an endpoint that does not answer holds up its own account only.
const MOST_WIDE_LINES: usize = 32;

/// Lines of an account in a lane. Further ones share a line of each lane.
const MOST_LINES: usize = 1000;

/// How many lanes there are.
const LANES: usize = 4;

/// Checks of one account at a time. They share a call to the cloud, whose pages have as many VMs.
const CHECKS: usize = 1000;

/// The purpose of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SlotPurpose {
    /// Creating a VM, including the calls before it.
    Create,
    /// Draining a Node. Evictions wait for their rate, for longer than a cloud takes to delete a VM.
    Drain,
    /// Deleting a VM, including the calls before.
    Delete,
    /// The periodic check of a VM, which nothing else must wait for.
    Check,
}

impl SlotPurpose {
    /// The lane of an action; `None` if it needs no slot. A look at the VM needs one of the lane for which it is looked at: a
    /// deletion must not wait behind creations, and neither behind checks.
    pub(super) fn for_action(action: &Action, look: Self) -> Option<Self> {
        match action {
            Action::CreateVm | Action::InitializeVm => Some(Self::Create),
            Action::GetVmStatus => Some(look),
            Action::ListPods { .. }
            | Action::ReadVolumes(_)
            | Action::DetachVolumes { .. }
            | Action::EvictPod(_)
            | Action::DeletePod(_) => Some(Self::Drain),
            Action::DeleteVm => Some(Self::Delete),
            _ => None,
        }
    }
}

/// The slots of one cell: one queue for each account and lane in use.
pub(crate) struct ReconcileSlots {
    slots: usize,
    state: Mutex<SlotTable>,
    queue: Arc<WorkQueue<Key>>,
}

type SlotQueueKey = (CloudAccount, SlotPurpose);

#[derive(Debug, Default)]
struct SlotTable {
    /// Of a wide line.
    slots: usize,
    lines: BTreeMap<SlotQueueKey, SlotQueue>,
    /// Lines of accounts with more than one holder.
    wide: usize,
    /// Where a key holds a slot or waits for one.
    places: HashMap<Key, Vec<SlotQueueKey>>,
}

/// Machines wait only while no slot is free.
#[derive(Debug, Default)]
struct SlotQueue {
    holders: HashSet<Key>,
    order: VecDeque<Key>,
    /// Machines that wait. One that was forgotten remains in `order` and is skipped.
    waiting: HashSet<Key>,
}

impl ReconcileSlots {
    /// `slots` slots for each account in each lane, at least one. Machines that get a slot are added to `queue`.
    pub fn new(slots: usize, queue: Arc<WorkQueue<Key>>) -> Self {
        let slots = slots.max(1);
        Self { slots, state: Mutex::new(SlotTable { slots, ..SlotTable::default() }), queue }
    }

    /// How many slots can be held at a time, over all accounts.
    pub fn slots(&self) -> usize {
        // Each lane has one more line, for the accounts beyond `MOST_LINES`. Checks of several accounts share their number.
        self.slots.saturating_mul(MOST_WIDE_LINES + LANES).saturating_add(MOST_LINES).saturating_add(CHECKS)
    }

    /// Begins the reconcile of a Machine, which may have been given a slot before.
    pub(in super::super) fn visit(self: &Arc<Self>, key: &Key) -> SlotGuard {
        SlotGuard { lanes: Arc::clone(self), key: key.clone(), waits: false }
    }

    /// The next Machines get the slots of this one.
    fn leave(&self, key: &Key) {
        let next = self.state.lock().leave(key);
        self.wake(next);
    }

    fn wake(&self, machines: Vec<Key>) {
        machines.into_iter().for_each(|machine| self.queue.add(machine));
    }

    /// A Machine was deleted or cannot be decoded, so it does not need the slot it waits for.
    pub fn forget(&self, key: &Key) {
        self.state.lock().stop_waiting(key);
        self.leave(key);
    }
}

/// The reconcile of a Machine. All slots of the Machine are returned when it ends, whether or not it requested them.
pub(crate) struct SlotGuard {
    lanes: Arc<ReconcileSlots>,
    key: Key,
    /// The Machine is in line. A slot that it gets from now on is for its next reconcile.
    waits: bool,
}

impl SlotGuard {
    /// The reconcile may continue in a lane now. If not, it has to end: the Machine is queued for a slot, and
    /// returns the slots that it has.
    pub(super) fn admits(&mut self, account: &CloudAccount, lane: SlotPurpose) -> bool {
        let mut state = self.lanes.state.lock();
        if state.enter(&self.key, account, lane) {
            return true;
        }
        self.waits = true;
        let next = state.leave(&self.key);
        drop(state);
        self.lanes.wake(next);
        false
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if !self.waits {
            self.lanes.leave(&self.key);
        }
    }
}

impl SlotTable {
    fn enter(&mut self, key: &Key, account: &CloudAccount, lane: SlotPurpose) -> bool {
        if self.holds(key, lane) {
            return true;
        }
        let place = self.place_of(account, lane);
        let is_first = self.lines.get(&place).is_none_or(|line| line.waiting.is_empty());
        let has_slot = is_first && self.has_free_slot(&place);
        if has_slot {
            self.hold(&place, key);
        } else {
            self.lines.entry(place.clone()).or_default().wait(key);
        }
        let places = self.places.entry(key.clone()).or_default();
        if !places.contains(&place) {
            places.push(place);
        }
        has_slot
    }

    /// Another Machine may have a slot of the line.
    fn has_free_slot(&self, place: &SlotQueueKey) -> bool {
        let slots = if place.1 == SlotPurpose::Check { self.slots.max(CHECKS) } else { self.slots };
        match self.lines.get(place).map_or(0, |line| line.holders.len()) {
            0 => true,
            held if held >= slots => false,
            1 => is_shared(place) || self.wide < MOST_WIDE_LINES,
            _ => true,
        }
    }

    fn hold(&mut self, place: &SlotQueueKey, key: &Key) {
        let line = self.lines.entry(place.clone()).or_default();
        line.holders.insert(key.clone());
        self.wide += usize::from(line.holders.len() == 2 && !is_shared(place));
    }

    /// The Machine returns its slot; `false` if it has none.
    fn release(&mut self, place: &SlotQueueKey, key: &Key) -> bool {
        let Some(line) = self.lines.get_mut(place) else { return false };
        let is_holder = line.holders.remove(key);
        self.wide -= usize::from(is_holder && line.holders.len() == 1 && !is_shared(place));
        is_holder
    }

    /// Gives the free slots of a line to the first Machines that wait in it. Returns these.
    fn fill(&mut self, place: &SlotQueueKey) -> Vec<Key> {
        let mut next = Vec::new();
        while self.has_free_slot(place)
            && let Some(key) = self.lines.get_mut(place).and_then(SlotQueue::first)
        {
            self.hold(place, &key);
            next.push(key);
        }
        next
    }

    /// Fills the longest line, while another line may become wide.
    fn widen(&mut self) -> Vec<Key> {
        let mut next = Vec::new();
        while self.wide < MOST_WIDE_LINES {
            let waiting =
                self.lines.iter().filter(|(place, line)| !line.waiting.is_empty() && self.has_free_slot(place));
            let Some(longest) = waiting.max_by_key(|(_, line)| line.waiting.len()).map(|(place, _)| place.clone())
            else {
                break;
            };
            next.extend(self.fill(&longest));
        }
        next
    }

    fn holds(&self, key: &Key, lane: SlotPurpose) -> bool {
        let places = self.places.get(key).into_iter().flatten().filter(|place| place.1 == lane);
        places.filter_map(|place| self.lines.get(place)).any(|line| line.holders.contains(key))
    }

    fn place_of(&self, account: &CloudAccount, lane: SlotPurpose) -> SlotQueueKey {
        let own = (account.clone(), lane);
        if self.lines.contains_key(&own) || self.lines.len() < MOST_LINES {
            own
        } else {
            (CloudAccount::default(), lane)
        }
    }

    fn leave(&mut self, key: &Key) -> Vec<Key> {
        let Some(mut places) = self.places.remove(key) else { return Vec::new() };
        let mut next = Vec::new();
        let was_full = self.wide >= MOST_WIDE_LINES;
        places.retain(|place| {
            if self.release(place, key) {
                next.extend(self.fill(place));
            }
            let Some(line) = self.lines.get(place) else { return false };
            let waits = line.waiting.contains(key);
            if line.holders.is_empty() {
                self.lines.remove(place);
            }
            waits
        });
        if !places.is_empty() {
            self.places.insert(key.clone(), places);
        }
        if was_full {
            next.extend(self.widen());
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

impl SlotQueue {
    fn wait(&mut self, key: &Key) {
        if self.waiting.insert(key.clone()) {
            self.order.push_back(key.clone());
        }
    }

    /// Takes the first Machine that waits.
    fn first(&mut self) -> Option<Key> {
        while let Some(next) = self.order.pop_front() {
            if self.waiting.remove(&next) {
                return Some(next);
            }
        }
        None
    }
}

/// The line of a lane for the accounts beyond the bound.
fn is_shared(place: &SlotQueueKey) -> bool {
    place.0 == CloudAccount::default()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use mcm_api::machine::MachineClass;
    use mcm_runtime::queue::QueuePacing;

    fn key(name: &str) -> Key {
        Key::new("n", name)
    }

    fn account(provider: &str) -> CloudAccount {
        CloudAccount::from_class(&MachineClass { provider: provider.to_owned(), ..MachineClass::default() })
    }

    /// Lanes, and the reconciles that go on.
    struct Reconciles {
        lanes: Arc<ReconcileSlots>,
        visits: HashMap<Key, SlotGuard>,
    }

    impl Reconciles {
        fn with_slots(slots: usize) -> Self {
            let lanes = Arc::new(ReconcileSlots::new(slots, WorkQueue::new("test", QueuePacing::default())));
            Self { lanes, visits: HashMap::new() }
        }

        /// Begins the reconcile of a Machine, unless it is under way.
        fn begin(&mut self, name: &str) -> &mut SlotGuard {
            self.visits.entry(key(name)).or_insert_with(|| self.lanes.visit(&key(name)))
        }

        /// The reconcile of a Machine may continue. If not, it ends.
        fn enters(&mut self, name: &str, account: &CloudAccount, lane: SlotPurpose) -> bool {
            let is_admitted = self.begin(name).admits(account, lane);
            if !is_admitted {
                self.end(name);
            }
            is_admitted
        }

        fn admits(&mut self, name: &str, action: &Action) -> bool {
            self.begin(name);
            SlotPurpose::for_action(action, SlotPurpose::Create)
                .is_none_or(|lane| self.enters(name, &account("aws"), lane))
        }

        fn end(&mut self, name: &str) {
            self.visits.remove(&key(name));
        }

        fn woken_first(&self) -> Option<String> {
            let (key, _) = self.lanes.queue.take().now_or_never()?;
            self.lanes.queue.done(&key, None);
            Some(key.name)
        }

        fn woken(&self) -> Vec<String> {
            std::iter::from_fn(|| self.woken_first()).collect()
        }
    }

    #[tokio::test]
    async fn who_finds_no_slot_is_woken_when_it_has_one_in_the_order_of_the_line() {
        let mut all = Reconciles::with_slots(1);
        assert!(all.admits("a", &Action::GetVmStatus));
        assert!(all.admits("a", &Action::CreateVm), "it has its slot until the reconcile ends");
        assert!(!all.admits("b", &Action::GetVmStatus));
        assert!(!all.admits("c", &Action::GetVmStatus));
        assert!(!all.admits("b", &Action::GetVmStatus), "asking twice does not change the order");
        assert!(all.admits("d", &Action::DeleteVm), "the other lane is free");
        assert!(all.admits("d", &Action::ReadSecret), "this needs no slot");
        assert!(all.woken().is_empty(), "who waits has nothing to give back");
        all.end("a");
        assert_eq!(all.woken(), ["b"]);
        assert!(!all.admits("a", &Action::GetVmStatus), "the slot is for b");
        assert!(all.admits("b", &Action::GetVmStatus));
        all.end("b");
        assert_eq!(all.woken(), ["c"]);
    }

    #[tokio::test]
    async fn a_machine_deleted_while_it_waits_or_works_frees_its_slot() {
        let mut all = Reconciles::with_slots(1);
        assert!(all.admits("a", &Action::GetVmStatus));
        for waiting in ["b", "c"] {
            assert!(!all.admits(waiting, &Action::GetVmStatus));
        }
        all.lanes.forget(&key("b"));
        all.lanes.forget(&key("a"));
        assert_eq!(all.woken(), ["c"]);
        all.lanes.forget(&key("c"));
        assert!(all.admits("d", &Action::GetVmStatus));
    }

    #[tokio::test]
    async fn a_slot_that_its_machine_does_not_ask_for_is_given_on() {
        let mut all = Reconciles::with_slots(1);
        assert!(all.admits("a", &Action::GetVmStatus));
        for waiting in ["b", "c"] {
            assert!(!all.admits(waiting, &Action::GetVmStatus));
        }
        all.end("a");
        assert_eq!(all.woken(), ["b"]);
        assert!(all.admits("b", &Action::ReadSecret));
        all.end("b");
        assert_eq!(all.woken(), ["c"]);
    }

    #[tokio::test]
    async fn a_slot_of_one_lane_is_given_on_while_its_machine_waits_for_another() {
        let mut all = Reconciles::with_slots(1);
        assert!(all.admits("a", &Action::GetVmStatus));
        assert!(all.admits("d", &Action::DeleteVm));
        for waiting in ["b", "c"] {
            assert!(!all.admits(waiting, &Action::GetVmStatus));
        }
        all.end("a");
        assert_eq!(all.woken(), ["b"]);
        assert!(!all.admits("b", &Action::DeleteVm), "it is being deleted by now");
        assert_eq!(all.woken(), ["c"]);
    }

    #[tokio::test]
    async fn a_slow_account_does_not_hold_up_another() {
        let mut all = Reconciles::with_slots(2);
        for name in ["a", "b", "c", "d"] {
            let is_in_time = ["a", "b"].contains(&name);
            assert_eq!(all.enters(name, &account("slow"), SlotPurpose::Create), is_in_time, "{name}");
        }
        assert!(all.enters("e", &account("other"), SlotPurpose::Create));
        all.end("e");
        assert!(all.woken().is_empty(), "a slot of one account is of no use to another");
        all.end("a");
        assert_eq!(all.woken(), ["c"]);
    }

    #[rstest]
    #[case(Action::GetVmStatus, SlotPurpose::Delete, Some(SlotPurpose::Delete))]
    #[case(Action::GetVmStatus, SlotPurpose::Create, Some(SlotPurpose::Create))]
    #[case(Action::GetVmStatus, SlotPurpose::Check, Some(SlotPurpose::Check))]
    #[case(Action::CreateVm, SlotPurpose::Create, Some(SlotPurpose::Create))]
    #[case(Action::InitializeVm, SlotPurpose::Create, Some(SlotPurpose::Create))]
    #[case(Action::DeleteVm, SlotPurpose::Delete, Some(SlotPurpose::Delete))]
    #[case(Action::DeleteVm, SlotPurpose::Create, Some(SlotPurpose::Delete))]
    #[case(Action::ListPods { node: "n".into() }, SlotPurpose::Delete, Some(SlotPurpose::Drain))]
    #[case(Action::DetachVolumes { node: "n".into() }, SlotPurpose::Delete, Some(SlotPurpose::Drain))]
    #[case(Action::ReadSecret, SlotPurpose::Delete, None)]
    fn creations_drains_and_deletions_have_slots_of_their_own(
        #[case] action: Action,
        #[case] look: SlotPurpose,
        #[case] expected: Option<SlotPurpose>,
    ) {
        assert_eq!(SlotPurpose::for_action(&action, look), expected);
    }

    #[tokio::test]
    async fn checks_of_an_account_run_together_and_no_creation_waits_for_them() {
        let mut all = Reconciles::with_slots(1);
        let names: Vec<String> = (0..=CHECKS).map(|number| format!("m-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            assert_eq!(all.enters(name, &account("aws"), SlotPurpose::Check), number < CHECKS, "{number}");
        }
        assert!(all.enters("new", &account("aws"), SlotPurpose::Create));
    }

    #[tokio::test]
    async fn a_machine_whose_class_changes_while_it_waits_leaves_no_slot_behind() {
        let mut all = Reconciles::with_slots(1);
        for (name, provider) in [("a", "old"), ("b", "new")] {
            assert!(all.enters(name, &account(provider), SlotPurpose::Create));
        }
        assert!(!all.enters("m", &account("old"), SlotPurpose::Create));
        all.end("a");
        assert_eq!(all.woken(), ["m"]);
        assert!(all.enters("m", &account("new"), SlotPurpose::Create), "it has a slot of this lane already");
        all.end("m");
        all.end("b");
        assert!(all.lanes.state.lock().lines.is_empty());
    }

    #[tokio::test]
    async fn accounts_beyond_the_bound_share_slots_and_idle_ones_are_not_kept() {
        let mut all = Reconciles::with_slots(1);
        let name = |number: usize| format!("account-{number}");
        for number in 0..MOST_LINES + 2 {
            let is_admitted = all.enters(&name(number), &account(&name(number)), SlotPurpose::Create);
            assert_eq!(is_admitted, number <= MOST_LINES, "{number}");
        }
        assert_eq!(all.lanes.state.lock().lines.len(), MOST_LINES + 1);
        (0..=MOST_LINES).for_each(|number| all.end(&name(number)));
        assert_eq!(all.woken(), [name(MOST_LINES + 1)]);
        all.begin(&name(MOST_LINES + 1));
        all.end(&name(MOST_LINES + 1));
        let state = all.lanes.state.lock();
        assert!(state.lines.is_empty() && state.places.is_empty());
    }

    #[tokio::test]
    async fn an_account_that_hangs_beyond_the_wide_lines_holds_up_no_other() {
        const ACCOUNTS: usize = MOST_WIDE_LINES + 8;
        let mut all = Reconciles::with_slots(2);
        let name = |account: usize, number: usize| format!("{account}-{number}");
        let account_of = |number: usize| account(&format!("account-{number}"));
        // Every account is busy, and none answers.
        for number in 0..ACCOUNTS {
            for machine in 0..3 {
                let is_admitted = all.enters(&name(number, machine), &account_of(number), SlotPurpose::Create);
                let slots = if number < MOST_WIDE_LINES { 2 } else { 1 };
                assert_eq!(is_admitted, machine < slots, "machine {machine} of account {number}");
            }
        }
        assert!(all.enters("new", &account("new"), SlotPurpose::Create), "an account that answers");
        // Two accounts answer. The first line that becomes narrow makes room for another wide one.
        all.end(&name(0, 0));
        assert_eq!(all.woken(), [name(0, 2)], "its own machines come first");
        all.begin(&name(0, 2));
        all.end(&name(0, 2));
        let woken = all.woken();
        assert_eq!(woken.len(), 1, "{woken:?}");
        assert!(
            woken[0].ends_with("-1") && !woken[0].starts_with("0-"),
            "a narrow line has a second slot now: {woken:?}"
        );
    }

    #[derive(Clone, Debug)]
    enum Event {
        Ask(u8, u8, bool),
        /// A reconcile begins, without a request for a slot.
        Begin(u8),
        End(u8),
        Forget(u8),
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..12_u8, 0..3_u8, any::<bool>()).prop_map(|(key, account, create)| Event::Ask(key, account, create)),
            2 => (0..12_u8).prop_map(Event::Begin),
            4 => (0..12_u8).prop_map(Event::End),
            1 => (0..12_u8).prop_map(Event::Forget),
        ]
    }

    proptest! {
        #[test]
        fn lanes_respect_their_bounds_use_free_slots_and_end_empty(
            events in proptest::collection::vec(any_event(), 0..200),
        ) {
            let mut all = Reconciles::with_slots(2);
            for event in events {
                match event {
                    Event::Ask(key, of, create) => {
                        let lane = if create { SlotPurpose::Create } else { SlotPurpose::Delete };
                        all.enters(&key.to_string(), &account(&of.to_string()), lane);
                    }
                    Event::Begin(key) => drop(all.begin(&key.to_string())),
                    Event::End(key) => all.end(&key.to_string()),
                    Event::Forget(name) => all.lanes.forget(&key(&name.to_string())),
                }
                let state = all.lanes.state.lock();
                let wide = state.lines.iter().filter(|(place, line)| line.holders.len() > 1 && !is_shared(place));
                prop_assert_eq!(state.wide, wide.count());
                for line in state.lines.values() {
                    prop_assert!(!line.holders.is_empty() && line.holders.len() <= 2);
                    prop_assert!(line.waiting.is_empty() || line.holders.len() == 2);
                }
            }
            // Each Machine that is woken is reconciled, and needs no slot by now.
            all.visits.clear();
            while let Some(name) = all.woken_first() {
                all.begin(&name);
                all.end(&name);
            }
            let state = all.lanes.state.lock();
            prop_assert!(state.lines.is_empty() && state.places.is_empty(), "{state:?}");
        }
    }
}
