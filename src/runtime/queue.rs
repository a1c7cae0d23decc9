//! Wake-ups: which objects to reconcile, each key at most once at a time and not more often than an interval.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    fmt::Debug,
    hash::Hash,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::Stream;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::metrics::{self, Working};

/// Bounded by the number of keys: a key that waits already is not added again.
///
/// The first wake-up of a key passes at once; later ones are gathered until the interval since the last one is over,
/// so a burst of changes below one object costs two reconciles, not hundreds.
#[derive(Debug)]
pub struct Queue<T> {
    name: &'static str,
    interval: Duration,
    state: Mutex<State<T>>,
    wake: Notify,
    meter: OnceLock<metrics::Queue>,
}

#[derive(Debug)]
struct State<T> {
    ready: VecDeque<T>,
    delayed: BTreeMap<(Instant, u64), T>,
    keys: HashMap<T, Seen>,
    /// Longer intervals of keys whose passes cost much.
    pauses: HashMap<T, Duration>,
    sequence: u64,
}

/// A pass is followed by a pause of so many times what its planning took.
const PAUSE_PER_COST: u32 = 100;

#[derive(Debug)]
enum Seen {
    WaitingSince(Instant),
    Passed(Instant),
}

impl<T: Clone + Eq + Hash + Debug + Send + 'static> Queue<T> {
    /// A queue for a controller of this name.
    pub fn new(name: &'static str, interval: Duration) -> Arc<Self> {
        Arc::new(Self {
            name,
            interval,
            state: Mutex::new(State {
                ready: VecDeque::new(),
                delayed: BTreeMap::new(),
                keys: HashMap::new(),
                pauses: HashMap::new(),
                sequence: 0,
            }),
            wake: Notify::new(),
            meter: OnceLock::new(),
        })
    }

    /// Name for metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Measures from now on; a second call changes nothing.
    pub fn measure(&self, metrics: &metrics::Metrics) {
        let _ = self.meter.set(metrics.queue(self.name));
    }

    /// Asks for a reconcile of this key.
    pub fn add(&self, key: T) {
        {
            let mut state = self.state.lock();
            let now = Instant::now();
            let interval = state.pauses.get(&key).copied().unwrap_or(self.interval);
            let due = match state.keys.entry(key.clone()) {
                Entry::Occupied(mut seen) => match *seen.get() {
                    Seen::WaitingSince(_) => return,
                    Seen::Passed(at) => {
                        seen.insert(Seen::WaitingSince(now));
                        at + interval
                    }
                },
                Entry::Vacant(seen) => {
                    seen.insert(Seen::WaitingSince(now));
                    now
                }
            };
            if let Some(meter) = self.meter.get() {
                meter.added();
            }
            if due <= now {
                state.ready.push_back(key);
            } else {
                state.sequence += 1;
                let position = (due, state.sequence);
                state.delayed.insert(position, key);
            }
        }
        self.wake.notify_one();
    }

    /// Notes what planning for a key took, so that its next pass waits in proportion: a pass over many machines costs more,
    /// and its share of a processor stays the same.
    pub fn charge(&self, key: &T, cost: Duration) {
        let pause = cost.saturating_mul(PAUSE_PER_COST);
        let pauses = &mut self.state.lock().pauses;
        if pause > self.interval {
            pauses.insert(key.clone(), pause);
        } else {
            pauses.remove(key);
        }
    }

    /// Drops a key whose object is gone, also if it waits.
    pub fn forget(&self, key: &T) {
        let mut state = self.state.lock();
        state.pauses.remove(key);
        if let (Some(Seen::WaitingSince(_)), Some(meter)) = (state.keys.remove(key), self.meter.get()) {
            meter.dropped();
        }
    }

    fn pop(&self) -> Result<(T, Option<Working>), Option<Instant>> {
        let mut state = self.state.lock();
        let now = Instant::now();
        while let Some(entry) = state.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            state.ready.push_back(key);
        }
        while let Some(key) = state.ready.pop_front() {
            // Those that were forgotten wait no more.
            if let Some(Seen::WaitingSince(since)) = state.keys.get(&key) {
                let waited = now.duration_since(*since);
                state.keys.insert(key.clone(), Seen::Passed(now));
                return Ok((key, self.meter.get().map(|meter| meter.taken(waited))));
            }
        }
        Err(state.delayed.first_key_value().map(|((due, _), _)| *due))
    }

    /// The keys as they fall due, each with the meter of the work it begins; for one reader.
    pub fn stream(self: &Arc<Self>) -> impl Stream<Item = (T, Option<Working>)> + Send + use<T> {
        futures::stream::unfold(Arc::clone(self), |queue| async move {
            loop {
                match queue.pop() {
                    Ok(item) => return Some((item, queue)),
                    Err(Some(due)) => {
                        tokio::select! {
                            () = tokio::time::sleep_until(due) => {}
                            () = queue.wake.notified() => {}
                        }
                    }
                    Err(None) => queue.wake.notified().await,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    #[tokio::test(start_paused = true)]
    async fn a_burst_costs_two_passes() {
        let queue = Queue::new("test", Duration::from_millis(50));
        let mut stream = Box::pin(queue.stream().map(|(key, _)| key));
        let start = Instant::now();
        queue.add("a");
        assert_eq!(stream.next().await, Some("a"));
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            queue.add("a");
        }
        assert_eq!(stream.next().await, Some("a"));
        assert!(start.elapsed() >= Duration::from_millis(50));
        let quiet = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
        assert!(quiet.is_err(), "a hundred wake-ups are one pass");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_costs_much_comes_less_often() {
        let queue = Queue::new("test", Duration::from_millis(50));
        let mut stream = Box::pin(queue.stream().map(|(key, _)| key));
        queue.add("a");
        assert_eq!(stream.next().await, Some("a"));
        queue.charge(&"a", Duration::from_millis(40));
        let start = Instant::now();
        queue.add("a");
        assert_eq!(stream.next().await, Some("a"));
        assert!(start.elapsed() >= Duration::from_secs(4), "100 times 40 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_key_leaves_nothing_behind() {
        let queue = Queue::new("test", Duration::from_secs(10));
        let mut stream = Box::pin(queue.stream().map(|(key, _)| key));
        queue.add("a");
        queue.forget(&"a");
        queue.add("b");
        assert_eq!(stream.next().await, Some("b"));
        queue.add("b");
        queue.forget(&"b");
        let quiet = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
        assert!(quiet.is_err(), "nothing waits");
        assert!(queue.state.lock().keys.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_key_does_not_hold_back_others() {
        let queue = Queue::new("test", Duration::from_secs(10));
        let mut stream = Box::pin(queue.stream().map(|(key, _)| key));
        queue.add("a");
        assert_eq!(stream.next().await, Some("a"));
        queue.add("a");
        queue.add("b");
        assert_eq!(stream.next().await, Some("b"));
        assert_eq!(stream.next().await, Some("a"));
    }
}
