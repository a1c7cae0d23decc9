//! The work queue, with the contract of client-go's: a key waits at most once, it is never reconciled twice at the same
//! time, and a change during its reconcile leads to another one.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    hash::Hash,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::metrics::{self, ReconcileTimer};

/// Minimum time between two reconciles of one key.
///
/// The first change leads to a reconcile immediately. Further changes are gathered until the interval since the start
/// of the last reconcile has passed, so a burst of changes below one object costs two reconciles, not hundreds.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePacing {
    /// The interval.
    pub gather: Duration,
    /// The interval as a multiple of the duration of the last plan, if that is longer. So plans that lead to nothing use a
    /// constant share of a CPU, however many machines they cover.
    pub per_cost: u32,
}

impl QueuePacing {
    /// For kinds that plan over all objects they own, whose changes come in bursts. With a higher multiple large rollouts wait
    /// for plans, with a lower one they cost more CPU (docs/benchmark.md).
    pub const OF_OWNERS: Self = Self { gather: Duration::from_millis(50), per_cost: 40 };
}

/// The turns of keys that share a resource, such as a target cluster: a slow one must not hold all workers.
#[derive(Debug)]
pub struct QueueTurns<T> {
    /// Keys of a group that are reconciled at the same time, at most.
    pub most: usize,
    /// The group of a key, by a hash: groups of equal hash share their turns.
    pub group: fn(&T) -> u64,
}

/// Upper bound of the pause after an expensive plan, because a throttled or suspended process measures too much.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Keys that are handled between two removals of idle keys, at least.
const SWEEP: usize = 256;

/// The keys of one controller.
#[derive(Debug)]
pub struct WorkQueue<T> {
    name: &'static str,
    pacing: QueuePacing,
    turns: Option<QueueTurns<T>>,
    state: Mutex<QueueState<T>>,
    changed: Notify,
    meter: OnceLock<metrics::QueueMeter>,
}

#[derive(Debug)]
struct QueueState<T> {
    /// By their sequence number.
    ready: BTreeMap<u64, T>,
    /// Ready keys whose group has no turn left, by group and sequence number.
    held: BTreeMap<(u64, u64), T>,
    /// How many keys of each group are in flight.
    in_flight: HashMap<u64, usize>,
    delayed: BTreeMap<(Instant, u64), T>,
    keys: HashMap<T, QueueEntry>,
    sequence: u64,
    /// Keys that were handled since idle ones were dropped.
    done: usize,
}

#[derive(Debug, Default)]
struct QueueEntry {
    place: QueuePlace,
    taken_at: Option<Instant>,
    pause: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
enum QueuePlace {
    #[default]
    Idle,
    Ready {
        since: Instant,
        position: u64,
    },
    Delayed {
        position: (Instant, u64),
    },
    InFlight {
        again: Option<QueueUrgency>,
        is_forgotten: bool,
    },
}

/// When a key that changed is reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum QueueUrgency {
    /// After the interval of its [`Pacing`].
    Paced,
    /// As soon as a worker is free.
    Now,
    #[cfg(test)]
    At(Instant),
}

impl<T: Clone + Eq + Hash + Debug> WorkQueue<T> {
    /// An empty queue; `name` labels its metrics.
    pub fn new(name: &'static str, pacing: QueuePacing) -> Arc<Self> {
        Self::with_turns(name, pacing, None)
    }

    /// An empty queue whose groups of keys take turns.
    pub fn with_turns(name: &'static str, pacing: QueuePacing, turns: Option<QueueTurns<T>>) -> Arc<Self> {
        Arc::new(Self {
            name,
            pacing,
            turns,
            state: Mutex::new(QueueState {
                ready: BTreeMap::new(),
                held: BTreeMap::new(),
                in_flight: HashMap::new(),
                delayed: BTreeMap::new(),
                keys: HashMap::new(),
                sequence: 0,
                done: 0,
            }),
            changed: Notify::new(),
            meter: OnceLock::new(),
        })
    }

    /// Name for metrics and logs.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Starts to export metrics, when the workers start: keys that are ready wait from now on. A second call has no effect.
    pub fn measure(&self, metrics: &metrics::MetricsRegistry) {
        let mut state = self.state.lock();
        let meter = metrics.queue(self.name);
        if self.meter.set(meter.clone()).is_err() {
            return;
        }
        let now = Instant::now();
        for entry in state.keys.values_mut() {
            if let QueuePlace::Ready { since, .. } = &mut entry.place {
                *since = now;
                meter.added();
            }
        }
    }

    /// Enqueues a key.
    pub fn add(&self, key: T) {
        self.schedule(key, QueueUrgency::Paced);
    }

    /// Enqueues a key without pacing: the desired state changed, and writes in flight may be wrong.
    pub fn add_now(&self, key: T) {
        self.schedule(key, QueueUrgency::Now);
    }

    /// Enqueues a key at a time, unless it is due earlier anyway.
    #[cfg(test)]
    fn add_at(&self, key: T, at: Instant) {
        self.schedule(key, QueueUrgency::At(at));
    }

    fn schedule(&self, key: T, haste: QueueUrgency) {
        {
            let mut state = self.state.lock();
            let now = Instant::now();
            let entry = state.keys.entry(key.clone()).or_default();
            entry.place = match entry.place {
                QueuePlace::Ready { .. } => return,
                QueuePlace::InFlight { again, is_forgotten } => {
                    entry.place = QueuePlace::InFlight { again: again.max(Some(haste)), is_forgotten };
                    return;
                }
                place @ (QueuePlace::Idle | QueuePlace::Delayed { .. }) => place,
            };
            let due = entry.due(haste, self.pacing, now);
            state.place(key, due, now, self.meter.get());
        }
        self.changed.notify_one();
    }

    /// Waits for the next key that is due. No other worker gets it until [`Queue::done`].
    pub async fn take(&self) -> (T, Option<ReconcileTimer>) {
        loop {
            match self.next() {
                Ok(taken) => return taken,
                Err(Some(due)) => {
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
                Err(None) => self.changed.notified().await,
            }
        }
    }

    fn next(&self) -> Result<(T, Option<ReconcileTimer>), Option<Instant>> {
        let mut state = self.state.lock();
        let (now, meter) = (Instant::now(), self.meter.get());
        while let Some(entry) = state.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let key = entry.remove();
            state.make_ready(key, now, meter);
        }
        while let Some((position, key)) = state.ready.pop_first() {
            if let Some(turns) = &self.turns
                && !state.take_turn(turns, position, &key)
            {
                continue;
            }
            let Some(entry) = state.keys.get_mut(&key) else { continue };
            let QueuePlace::Ready { since, .. } = entry.place else { continue };
            entry.place = QueuePlace::InFlight { again: None, is_forgotten: false };
            entry.taken_at = Some(now);
            return Ok((key, meter.map(|meter| meter.taken(now.duration_since(since)))));
        }
        Err(state.delayed.first_key_value().map(|((due, _), _)| *due))
    }

    /// The reconcile of a key ended. It is requeued after a change, or else at `requeue_at`.
    pub fn done(&self, key: &T, requeue_at: Option<Instant>) {
        {
            let mut state = self.state.lock();
            let now = Instant::now();
            let Some(entry) = state.keys.get_mut(key) else { return };
            let QueuePlace::InFlight { again, is_forgotten } = entry.place else { return };
            entry.place = QueuePlace::Idle;
            let turn_ends = self.turns.as_ref().map(|turns| (turns.group)(key));
            let due = match again {
                Some(haste) => Some(entry.due(haste, self.pacing, now)),
                None => requeue_at.filter(|_| !is_forgotten),
            };
            match due {
                Some(due) => state.place(key.clone(), due, now, self.meter.get()),
                None if is_forgotten || self.pacing.gather.is_zero() && entry.pause.is_zero() => {
                    state.keys.remove(key);
                }
                None => {}
            }
            turn_ends.into_iter().for_each(|group| state.return_turn(group));
            state.drop_idle(now);
        }
        self.changed.notify_one();
    }

    /// The reconcile of a key failed and will be retried.
    pub fn retried(&self) {
        self.meter.get().into_iter().for_each(metrics::QueueMeter::retried);
    }

    /// The plan of a key was wrong; `reason` labels the metric.
    pub fn flawed(&self, reason: &'static str) {
        self.meter.get().into_iter().for_each(|meter| meter.flawed(reason));
    }

    /// Records the duration of the last plan of a key; see [`Pacing::per_cost`].
    pub fn charge(&self, key: &T, cost: Duration) {
        let pause = cost.saturating_mul(self.pacing.per_cost).min(LONGEST_PAUSE);
        if let Some(entry) = self.state.lock().keys.get_mut(key) {
            entry.pause = if pause > self.pacing.gather { pause } else { Duration::ZERO };
        }
    }

    /// Drops a key whose object was deleted.
    pub fn forget(&self, key: &T) {
        let mut state = self.state.lock();
        let Some(entry) = state.keys.get_mut(key) else { return };
        match entry.place {
            QueuePlace::InFlight { .. } => {
                entry.place = QueuePlace::InFlight { again: None, is_forgotten: true };
                return;
            }
            QueuePlace::Ready { position, .. } => {
                state.ready.remove(&position);
                if let Some(turns) = &self.turns {
                    state.held.remove(&((turns.group)(key), position));
                }
                self.meter.get().into_iter().for_each(metrics::QueueMeter::dropped);
            }
            QueuePlace::Delayed { position } => drop(state.delayed.remove(&position)),
            QueuePlace::Idle => {}
        }
        state.keys.remove(key);
    }
}

impl<T: Clone + Eq + Hash> QueueState<T> {
    /// Schedules a key that is neither ready nor in flight. A delayed key moves only to an earlier time.
    fn place(&mut self, key: T, due: Instant, now: Instant, meter: Option<&metrics::QueueMeter>) {
        if let Some(QueueEntry { place: QueuePlace::Delayed { position }, .. }) = self.keys.get(&key) {
            if position.0 <= due {
                return;
            }
            self.delayed.remove(&position.clone());
        }
        if due <= now {
            return self.make_ready(key, now, meter);
        }
        self.sequence += 1;
        let position = (due, self.sequence);
        if let Some(entry) = self.keys.get_mut(&key) {
            entry.place = QueuePlace::Delayed { position };
        }
        self.delayed.insert(position, key);
    }

    fn make_ready(&mut self, key: T, since: Instant, meter: Option<&metrics::QueueMeter>) {
        if let Some(entry) = self.keys.get_mut(&key) {
            self.sequence += 1;
            entry.place = QueuePlace::Ready { since, position: self.sequence };
            self.ready.insert(self.sequence, key);
            meter.into_iter().for_each(metrics::QueueMeter::added);
        }
    }

    /// The key begins if its group has a turn. If not, it waits for one.
    fn take_turn(&mut self, turns: &QueueTurns<T>, position: u64, key: &T) -> bool {
        let group = (turns.group)(key);
        let taken = self.in_flight.entry(group).or_default();
        let is_free = *taken < turns.most;
        if is_free {
            *taken += 1;
        } else {
            self.held.insert((group, position), key.clone());
        }
        is_free
    }

    /// The first key of the group that waits gets its place in front of later ones again.
    fn return_turn(&mut self, group: u64) {
        if let Some(taken) = self.in_flight.get_mut(&group) {
            *taken -= 1;
            if *taken == 0 {
                self.in_flight.remove(&group);
            }
        }
        let first = self.held.range((group, 0)..=(group, u64::MAX)).next().map(|(place, _)| *place);
        if let Some((place, key)) = first.and_then(|place| Some((place, self.held.remove(&place)?))) {
            self.ready.insert(place.1, key);
        }
    }

    /// Drops keys whose interval is over, which equal new keys. Not at each call: it reads all of them.
    fn drop_idle(&mut self, now: Instant) {
        self.done += 1;
        if self.done < SWEEP.max(self.keys.len()) {
            return;
        }
        self.done = 0;
        let is_over = |entry: &QueueEntry| entry.taken_at.is_none_or(|at| now.duration_since(at) > LONGEST_PAUSE);
        self.keys.retain(|_, entry| !matches!(entry.place, QueuePlace::Idle) || !is_over(entry));
    }
}

/// The keys of a cell that ends wait no more.
impl<T> Drop for WorkQueue<T> {
    fn drop(&mut self) {
        if let Some(meter) = self.meter.get() {
            let state = self.state.get_mut();
            state.ready.values().chain(state.held.values()).for_each(|_| meter.dropped());
        }
    }
}

impl QueueEntry {
    /// The time of the next reconcile after a change.
    fn due(&self, haste: QueueUrgency, pacing: QueuePacing, now: Instant) -> Instant {
        match haste {
            QueueUrgency::Paced => self.taken_at.map_or(now, |taken_at| taken_at + pacing.gather.max(self.pause)),
            QueueUrgency::Now => now,
            #[cfg(test)]
            QueueUrgency::At(at) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const GATHER: Duration = Duration::from_millis(50);

    fn queue(gather: Duration) -> Arc<WorkQueue<&'static str>> {
        WorkQueue::new("test", QueuePacing { gather, ..QueuePacing::OF_OWNERS })
    }

    fn now(queue: &WorkQueue<&'static str>) -> Option<&'static str> {
        queue.take().now_or_never().map(|(key, _)| key)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_keys_come_in_the_order_they_were_added() {
        let (queue, metrics) = (queue(Duration::ZERO), metrics::MetricsRegistry::new());
        queue.measure(&metrics);
        for key in ["b", "a", "b"] {
            queue.add(key);
        }
        assert!(metrics.render().contains("mcm_workqueue_depth{name=\"test\"} 2\n"), "{}", metrics.render());
        assert_eq!((now(&queue), now(&queue), now(&queue)), (Some("b"), Some("a"), None));
    }

    /// The group of a key is its first character.
    fn in_turns(most: usize) -> Arc<WorkQueue<&'static str>> {
        let group = |key: &&'static str| u64::from(key.as_bytes()[0]);
        WorkQueue::with_turns("test", QueuePacing::default(), Some(QueueTurns { most, group }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_whose_keys_hang_leaves_workers_to_the_others() {
        let (queue, metrics) = (in_turns(2), metrics::MetricsRegistry::new());
        queue.measure(&metrics);
        for key in ["a1", "a2", "a3", "a4", "b1"] {
            queue.add(key);
        }
        let taken = [now(&queue), now(&queue), now(&queue), now(&queue)];
        assert_eq!(taken, [Some("a1"), Some("a2"), Some("b1"), None]);
        assert_eq!(depth(&metrics), "mcm_workqueue_depth{name=\"test\"} 2", "those that wait for a turn are ready");
        queue.add("b2");
        queue.done(&"a1", None);
        assert_eq!(
            [now(&queue), now(&queue), now(&queue)],
            [Some("a3"), Some("b2"), None],
            "in the order they were added"
        );
        queue.forget(&"a4");
        for key in ["a2", "a3", "b1", "b2"] {
            queue.done(&key, None);
        }
        assert_eq!((now(&queue), depth(&metrics).as_str()), (None, "mcm_workqueue_depth{name=\"test\"} 0"));
        let state = queue.state.lock();
        assert!(state.held.is_empty() && state.in_flight.is_empty() && state.keys.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_changes_in_its_turn_waits_for_another_turn() {
        let queue = in_turns(1);
        queue.add("a1");
        assert_eq!(now(&queue), Some("a1"));
        queue.add("a2");
        queue.add("a1");
        assert_eq!(now(&queue), None);
        queue.done(&"a1", None);
        assert_eq!((now(&queue), now(&queue)), (Some("a2"), None));
        queue.done(&"a2", None);
        assert_eq!(now(&queue), Some("a1"));
    }

    fn depth(metrics: &metrics::MetricsRegistry) -> String {
        let text = metrics.render();
        text.lines().find(|line| line.starts_with("mcm_workqueue_depth{")).unwrap_or_default().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_dropped_counts_no_more() {
        let metrics = metrics::MetricsRegistry::new();
        for _ in 0..3 {
            let queue = queue(Duration::ZERO);
            queue.measure(&metrics);
            ["a", "b", "c"].into_iter().for_each(|key| queue.add(key));
            assert_eq!(now(&queue), Some("a"));
        }
        assert_eq!(depth(&metrics), "mcm_workqueue_depth{name=\"test\"} 0", "no queue is left");
    }

    #[tokio::test(start_paused = true)]
    async fn the_keys_of_a_standby_wait_from_when_its_workers_start() {
        let (queue, metrics) = (queue(Duration::ZERO), metrics::MetricsRegistry::new());
        ["a", "b"].into_iter().for_each(|key| queue.add(key));
        queue.forget(&"b");
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(depth(&metrics), "", "a standby has no depth");
        queue.measure(&metrics);
        queue.measure(&metrics);
        assert_eq!(depth(&metrics), "mcm_workqueue_depth{name=\"test\"} 1");
        assert_eq!(now(&queue), Some("a"));
        let text = metrics.render();
        assert!(text.contains("mcm_workqueue_queue_duration_seconds_sum{name=\"test\"} 0\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_rest_are_dropped_in_time() {
        let queue = WorkQueue::new("test", QueuePacing { gather: GATHER, ..QueuePacing::OF_OWNERS });
        let handle = |key: usize| {
            queue.add(key);
            let taken = queue.take().now_or_never().unwrap().0;
            queue.done(&taken, None);
        };
        (0..SWEEP - 1).for_each(handle);
        assert_eq!(queue.state.lock().keys.len(), SWEEP - 1);
        tokio::time::advance(LONGEST_PAUSE * 2).await;
        (SWEEP..2 * SWEEP).for_each(handle);
        assert!(queue.state.lock().keys.len() <= SWEEP, "{}", queue.state.lock().keys.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_in_flight_is_given_to_nobody_else_and_a_change_meanwhile_brings_it_again() {
        let queue = queue(Duration::ZERO);
        queue.add("a");
        assert_eq!(now(&queue), Some("a"));
        queue.add("a");
        assert_eq!(now(&queue), None, "it is in flight");
        queue.done(&"a", None);
        assert_eq!(now(&queue), Some("a"));
        queue.done(&"a", None);
        assert_eq!(now(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_waits_gets_a_changed_key_as_soon_as_its_reconcile_ends() {
        let queue = queue(Duration::ZERO);
        queue.add("a");
        assert_eq!(now(&queue), Some("a"));
        queue.add("a");
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.take().await.0 }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.done(&"a", None);
        let took = tokio::time::timeout(Duration::from_secs(1), waiting).await;
        assert_eq!(took.unwrap().unwrap(), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_gathered_for_an_interval_after_the_last_reconcile_began() {
        let queue = queue(GATHER);
        let start = Instant::now();
        queue.add("a");
        assert_eq!(queue.take().await.0, "a");
        queue.done(&"a", None);
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.take().await.0, "a");
        assert_eq!(start.elapsed(), GATHER);
        queue.done(&"a", None);
        tokio::time::advance(GATHER).await;
        queue.add("a");
        assert_eq!(now(&queue), Some("a"), "the interval is over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_requeue_comes_at_its_time_and_a_change_comes_sooner() {
        let queue = queue(Duration::ZERO);
        let start = Instant::now();
        queue.add("a");
        assert_eq!(queue.take().await.0, "a");
        queue.done(&"a", Some(start + Duration::from_secs(60)));
        queue.add_at("a", start + Duration::from_secs(90));
        assert_eq!(queue.take().await.0, "a");
        assert_eq!(start.elapsed(), Duration::from_secs(60), "a later time changes nothing");
        queue.done(&"a", Some(start + Duration::from_secs(3600)));
        queue.add("a");
        assert_eq!(now(&queue), Some("a"));
        queue.done(&"a", None);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(now(&queue), None, "the requeue of the reconcile before is void");
    }

    #[tokio::test(start_paused = true)]
    async fn two_keys_due_at_the_same_time_both_come() {
        let queue = queue(Duration::ZERO);
        let due = Instant::now() + GATHER;
        queue.add_at("a", due);
        queue.add_at("b", due);
        assert_eq!((queue.take().await.0, queue.take().await.0), ("a", "b"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_after_an_expensive_plan_is_in_proportion_and_bounded() {
        let queue = queue(GATHER);
        for (cost, pause) in [(4, 160), (10, 400), (600_000, 2_000), (0, 50)] {
            let start = Instant::now();
            queue.add("a");
            assert_eq!(queue.take().await.0, "a");
            queue.charge(&"a", Duration::from_millis(cost));
            queue.add("a");
            queue.done(&"a", None);
            assert_eq!(queue.take().await.0, "a");
            assert_eq!(start.elapsed(), Duration::from_millis(pause), "after {cost} ms");
            queue.charge(&"a", Duration::ZERO);
            queue.done(&"a", None);
            tokio::time::advance(GATHER).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_now_waits_for_no_pause_wherever_it_is() {
        let queue = queue(GATHER);
        let start = Instant::now();
        queue.add("a");
        assert_eq!(queue.take().await.0, "a");
        queue.charge(&"a", Duration::from_secs(1));
        queue.add_now("a");
        queue.add("a");
        queue.done(&"a", None);
        assert_eq!(now(&queue), Some("a"), "it was in flight");
        queue.done(&"a", None);
        queue.add("a");
        assert_eq!(now(&queue), None);
        queue.add_now("a");
        assert_eq!(now(&queue), Some("a"), "it was delayed");
        queue.done(&"a", None);
        queue.add_now("a");
        assert_eq!((now(&queue), start.elapsed()), (Some("a"), Duration::ZERO), "it was idle");
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_key_is_never_returned() {
        let queue = queue(Duration::ZERO);
        for key in ["ready", "in flight", "delayed"] {
            queue.add_at(key, Instant::now());
        }
        queue.forget(&"ready");
        assert_eq!(now(&queue), Some("in flight"));
        queue.add("in flight");
        queue.forget(&"in flight");
        queue.done(&"in flight", Some(Instant::now()));
        assert_eq!(now(&queue), Some("delayed"));
        queue.done(&"delayed", Some(Instant::now() + GATHER));
        queue.forget(&"delayed");
        tokio::time::advance(GATHER * 2).await;
        assert_eq!(now(&queue), None);
        let state = queue.state.lock();
        assert!(state.keys.is_empty() && state.ready.is_empty() && state.delayed.is_empty(), "{state:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_object_with_a_forgotten_name_is_reported() {
        let queue = queue(Duration::ZERO);
        queue.add("a");
        queue.forget(&"a");
        queue.add("a");
        assert_eq!((now(&queue), now(&queue)), (Some("a"), None));
        queue.forget(&"a");
        queue.add("a");
        queue.done(&"a", None);
        assert_eq!(now(&queue), Some("a"), "it came back while the reconcile of its predecessor ended");
    }
}
