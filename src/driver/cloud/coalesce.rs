//! Look-ups that wait at the same time share one request.
//!
//! A look-up joins a request that has not been sent yet, but not one under way, whose answer may be older than the
//! question. It joins the latter only where answers do not age.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;

/// Joins look-ups with the same key `K` for a short time and sends the names `N` that they look for in one request.
pub struct LookupCoalescer<K, T: Clone, N = String> {
    window: Duration,
    /// Answers do not age.
    is_of_facts: bool,
    waiting: Arc<Mutex<HashMap<K, PendingRequest<T, N>>>>,
    numbers: AtomicU64,
}

/// A request that has not been sent.
struct PendingRequest<T: Clone, N> {
    number: u64,
    names: Arc<Mutex<BTreeSet<N>>>,
    /// Cannot be upgraded once all waiters are dropped.
    answer: WeakShared<BoxFuture<'static, T>>,
}

impl<K, T, N> LookupCoalescer<K, T, N>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
    N: Ord + Send + 'static,
{
    /// Look-ups wait for others for `window`.
    pub fn new(window: Duration) -> Self {
        Self { window, is_of_facts: false, waiting: Arc::default(), numbers: AtomicU64::new(0) }
    }

    /// Look-ups of facts that never change and are named by the key alone: they do not wait, and join a request until its answer
    /// is there.
    pub fn of_facts() -> Self {
        Self { is_of_facts: true, ..Self::new(Duration::ZERO) }
    }

    /// The answer of a request that is sent after this call and includes `name`.
    pub async fn look_up<F>(&self, key: K, name: N, send: impl FnOnce(BTreeSet<N>) -> F + Send + 'static) -> T
    where
        F: Future<Output = T> + Send,
    {
        self.join(key, name, send).await
    }

    fn join<F>(
        &self,
        key: K,
        name: N,
        send: impl FnOnce(BTreeSet<N>) -> F + Send + 'static,
    ) -> Shared<BoxFuture<'static, T>>
    where
        F: Future<Output = T> + Send,
    {
        let mut waiting = self.waiting.lock();
        if let Some(other) = waiting.get(&key)
            && let Some(answer) = other.answer.upgrade()
        {
            other.names.lock().insert(name);
            return answer;
        }
        let number = self.numbers.fetch_add(1, Relaxed);
        let names = Arc::new(Mutex::new(BTreeSet::from([name])));
        let answer = {
            let (key, names) = (key.clone(), Arc::clone(&names));
            let (window, is_of_facts, all) = (self.window, self.is_of_facts, Arc::clone(&self.waiting));
            let close = move || {
                let mut all = all.lock();
                // Later look-ups need another request.
                if all.get(&key).is_some_and(|waiting| waiting.number == number) {
                    all.remove(&key);
                }
                std::mem::take(&mut *names.lock())
            };
            async move {
                if is_of_facts {
                    let answer = send(BTreeSet::new()).await;
                    close();
                    return answer;
                }
                tokio::time::sleep(window).await;
                send(close()).await
            }
            .boxed()
            .shared()
        };
        waiting.retain(|_, other| other.answer.upgrade().is_some());
        if let Some(weak) = answer.downgrade() {
            waiting.insert(key, PendingRequest { number, names, answer: weak });
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::atomic::AtomicUsize;

    const WINDOW: Duration = Duration::from_millis(100);

    struct Server {
        sent: Arc<Mutex<Vec<Vec<String>>>>,
        coalescer: LookupCoalescer<&'static str, usize>,
    }

    impl Server {
        fn new() -> Self {
            Self { sent: Arc::default(), coalescer: LookupCoalescer::new(WINDOW) }
        }

        /// Returns the number of requests before this one, after a second.
        async fn ask(&self, key: &'static str, name: &str) -> usize {
            let sent = Arc::clone(&self.sent);
            let send = move |names: BTreeSet<String>| async move {
                let number = {
                    let mut sent = sent.lock();
                    sent.push(names.into_iter().collect());
                    sent.len() - 1
                };
                tokio::time::sleep(Duration::from_secs(1)).await;
                number
            };
            self.coalescer.look_up(key, name.to_owned(), send).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_together_share_a_request_per_key() {
        let server = Server::new();
        let answers = join_all([("x", "a"), ("x", "b"), ("y", "c"), ("x", "b")].map(|(k, n)| server.ask(k, n))).await;
        assert_eq!([answers[0], answers[0], answers[0]], [answers[1], answers[3], answers[0]]);
        let mut sent = server.sent.lock().clone();
        sent.sort();
        assert_eq!(sent, [vec!["a", "b"], vec!["c"]]);
        assert!(server.coalescer.waiting.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn look_ups_of_constant_data_share_one_request() {
        let server = Server { coalescer: LookupCoalescer::of_facts(), ..Server::new() };
        let late = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            server.ask("x", "b").await
        };
        assert_eq!(tokio::join!(server.ask("x", "a"), late), (0, 0));
        assert_eq!(server.ask("x", "c").await, 1, "who asks keeps the answer");
        assert!(server.coalescer.waiting.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_never_older_than_the_question() {
        let server = Server::new();
        let late = async {
            tokio::time::sleep(WINDOW + Duration::from_millis(1)).await;
            server.ask("x", "b").await
        };
        let (first, second) = tokio::join!(server.ask("x", "a"), late);
        assert_eq!((first, second), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_remain_get_the_answer_when_the_first_gives_up() {
        let server = Server::new();
        let impatient = tokio::time::timeout(WINDOW / 2, server.ask("x", "a"));
        let (gone, answer) = tokio::join!(impatient, server.ask("x", "b"));
        gone.unwrap_err();
        assert_eq!(answer, 0);
        assert_eq!(*server.sent.lock(), [["a", "b"]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_is_neither_sent_nor_joined() {
        let server = Server::new();
        tokio::time::timeout(WINDOW / 2, server.ask("x", "a")).await.unwrap_err();
        assert_eq!(server.ask("x", "b").await, 0);
        assert_eq!(*server.sent.lock(), [["b"]]);
    }

    #[tokio::test(start_paused = true)]
    async fn five_hundred_look_ups_are_one_request() {
        let server = Server::new();
        let most = AtomicUsize::new(0);
        let names: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        join_all(names.iter().map(|name| async {
            most.fetch_add(server.ask("x", name).await, Relaxed);
        }))
        .await;
        assert_eq!((server.sent.lock().len(), most.load(Relaxed)), (1, 0));
    }
}
