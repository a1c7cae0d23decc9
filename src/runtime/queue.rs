//! Wake-ups: which objects to reconcile, each key at most once at a time and not more often than an interval.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry},
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::Stream;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

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
    adds: AtomicU64,
}

#[derive(Debug)]
struct State<T> {
    ready: VecDeque<T>,
    delayed: BTreeMap<(Instant, u64), T>,
    keys: HashMap<T, Seen>,
    sequence: u64,
}

#[derive(Debug)]
enum Seen {
    Waiting,
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
                sequence: 0,
            }),
            wake: Notify::new(),
            adds: AtomicU64::new(0),
        })
    }

    /// Name for metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many keys wait.
    pub fn depth(&self) -> usize {
        let state = self.state.lock();
        state.ready.len() + state.delayed.len()
    }

    /// How many wake-ups were asked for.
    pub fn adds(&self) -> u64 {
        self.adds.load(Ordering::Relaxed)
    }

    /// Asks for a reconcile of this key.
    pub fn add(&self, key: T) {
        self.adds.fetch_add(1, Ordering::Relaxed);
        {
            let mut state = self.state.lock();
            let now = Instant::now();
            let due = match state.keys.entry(key.clone()) {
                Entry::Occupied(mut seen) => match *seen.get() {
                    Seen::Waiting => return,
                    Seen::Passed(at) => {
                        seen.insert(Seen::Waiting);
                        at + self.interval
                    }
                },
                Entry::Vacant(seen) => {
                    seen.insert(Seen::Waiting);
                    now
                }
            };
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

    /// Drops what is remembered of a key whose object is gone.
    pub fn forget(&self, key: &T) {
        let mut state = self.state.lock();
        if let Some(Seen::Passed(_)) = state.keys.get(key) {
            state.keys.remove(key);
        }
    }

    fn pop(&self) -> Result<T, Option<Instant>> {
        let mut state = self.state.lock();
        let now = Instant::now();
        while let Some(entry) = state.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            state.ready.push_back(key);
        }
        match state.ready.pop_front() {
            Some(key) => {
                state.keys.insert(key.clone(), Seen::Passed(now));
                Ok(key)
            }
            None => Err(state.delayed.first_key_value().map(|((due, _), _)| *due)),
        }
    }

    /// The keys as they fall due; for one reader.
    pub fn stream(self: &Arc<Self>) -> impl Stream<Item = T> + Send + use<T> {
        futures::stream::unfold(Arc::clone(self), |queue| async move {
            loop {
                match queue.pop() {
                    Ok(key) => return Some((key, queue)),
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
        let mut stream = Box::pin(queue.stream());
        let start = Instant::now();
        queue.add("a");
        assert_eq!(stream.next().await, Some("a"));
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            queue.add("a");
        }
        assert_eq!(queue.depth(), 1);
        assert_eq!(stream.next().await, Some("a"));
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_key_does_not_hold_back_others() {
        let queue = Queue::new("test", Duration::from_secs(10));
        let mut stream = Box::pin(queue.stream());
        queue.add("a");
        assert_eq!(stream.next().await, Some("a"));
        queue.add("a");
        queue.add("b");
        assert_eq!(stream.next().await, Some("b"));
        assert_eq!(stream.next().await, Some("a"));
    }
}
