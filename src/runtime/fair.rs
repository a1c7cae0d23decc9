//! Distributes one rate among keys in turn, so that a key with many requests does not delay others.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::limiter::{RequestRate, TokenBucket};

/// A token bucket that serves keys in turn, and the waiters of one key in order.
#[derive(Debug)]
pub struct FairBucket {
    /// `None` without a limit.
    bucket: Option<TokenBucket>,
    waiting: Mutex<FairWaiters>,
}

#[derive(Debug, Default)]
struct FairWaiters {
    /// Keys with waiters, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    waiters: HashMap<Arc<str>, VecDeque<oneshot::Sender<()>>>,
    is_served: bool,
}

impl FairBucket {
    /// A full bucket.
    pub fn new(rate: RequestRate) -> Arc<Self> {
        Arc::new(Self { bucket: TokenBucket::new(rate), waiting: Mutex::default() })
    }

    /// Waits for a token and takes it. A waiter that is dropped takes none.
    pub async fn take(self: &Arc<Self>, key: &str) {
        if self.bucket.is_none() {
            return;
        }
        let (send, turn) = oneshot::channel();
        let is_served = self.waiting.lock().add(key, send);
        if !is_served {
            let own = Arc::clone(self);
            tokio::spawn(async move { own.serve().await });
        }
        // The other end is dropped only with the runtime.
        drop(turn.await);
    }

    /// Hands out tokens until the last waiter is served.
    async fn serve(&self) {
        let Some(bucket) = &self.bucket else { return };
        loop {
            bucket.take().await;
            // Waiters that gave up are skipped.
            loop {
                let Some(waiter) = self.waiting.lock().next() else { return };
                if waiter.send(()).is_ok() {
                    break;
                }
            }
        }
    }
}

impl FairWaiters {
    /// Adds a waiter. True if a task already hands out tokens.
    fn add(&mut self, key: &str, waiter: oneshot::Sender<()>) -> bool {
        let line = match self.waiters.get_mut(key) {
            Some(line) => line,
            None => {
                let key: Arc<str> = key.into();
                self.turns.push_back(Arc::clone(&key));
                self.waiters.entry(key).or_default()
            }
        };
        line.push_back(waiter);
        std::mem::replace(&mut self.is_served, true)
    }

    /// The first waiter of the next key.
    fn next(&mut self) -> Option<oneshot::Sender<()>> {
        while let Some(key) = self.turns.pop_front() {
            let Some(line) = self.waiters.get_mut(&key) else { continue };
            let waiter = line.pop_front();
            if line.is_empty() {
                self.waiters.remove(&key);
            } else {
                self.turns.push_back(key);
            }
            if waiter.is_some() {
                return waiter;
            }
        }
        self.is_served = false;
        None
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::Instant;

    use super::*;

    const ONE_A_SECOND: RequestRate = RequestRate { qps: 1.0, burst: 1 };

    #[tokio::test(start_paused = true)]
    async fn a_key_with_one_request_does_not_wait_for_one_with_many() {
        let bucket = FairBucket::new(ONE_A_SECOND);
        let began = Instant::now();
        let take = async |key: &'static str| {
            bucket.take(key).await;
            (key, began.elapsed().as_secs())
        };
        let many = join_all((0..50).map(|_| take("many")));
        let (_, few) = tokio::join!(many, join_all([take("few"), take("few")]));
        assert_eq!(few, [("few", 1), ("few", 3)], "every second token is theirs");
        assert_eq!(began.elapsed().as_secs(), 51, "and all together keep the rate");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_also_after_a_pause() {
        let bucket = FairBucket::new(RequestRate { qps: 1.0, burst: 3 });
        for _ in 0..2 {
            let began = Instant::now();
            join_all((0..4).map(|_| bucket.take("a"))).await;
            assert_eq!(began.elapsed().as_secs(), 1);
            tokio::time::sleep(std::time::Duration::from_secs(100)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_waiter_costs_no_token() {
        let bucket = FairBucket::new(ONE_A_SECOND);
        bucket.take("a").await;
        let began = Instant::now();
        let gone: Vec<_> = (0..9)
            .map(|_| {
                let bucket = Arc::clone(&bucket);
                tokio::spawn(async move { bucket.take("gone").await })
            })
            .collect();
        tokio::task::yield_now().await;
        gone.iter().for_each(tokio::task::JoinHandle::abort);
        join_all(gone).await;
        bucket.take("b").await;
        assert_eq!(began.elapsed().as_secs(), 1);
    }

    #[tokio::test]
    async fn without_a_rate_no_request_waits() {
        let bucket = FairBucket::new(RequestRate { qps: 0.0, burst: 0 });
        join_all((0..1000).map(|_| bucket.take("a"))).await;
    }
}
