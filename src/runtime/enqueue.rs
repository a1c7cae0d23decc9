//! Watch handlers as pure functions: from what is cached and an event to the keys that are reconciled again.

use std::{
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Weak},
};

use super::queue::WorkQueue;

/// Makes handlers that add keys to a queue. The functions get a context, such as the caches of a kind. Handlers do not keep it: it
/// may own what calls them.
pub struct EnqueueMapper<C, K> {
    context: Weak<C>,
    add: Arc<dyn Fn(K) + Send + Sync>,
}

impl<C, K> EnqueueMapper<C, K>
where
    C: Send + Sync + 'static,
    K: Clone + Eq + Hash + Debug + Send + Sync + 'static,
{
    /// For a queue and a context.
    pub fn new(context: &Arc<C>, queue: &Arc<WorkQueue<K>>) -> Self {
        let queue = Arc::clone(queue);
        Self::to(context, move |key| queue.add(key))
    }

    /// For something else that takes keys.
    pub fn to(context: &Arc<C>, add: impl Fn(K) + Send + Sync + 'static) -> Self {
        Self { context: Arc::downgrade(context), add: Arc::new(add) }
    }

    /// The same, with a call for each key before it is added.
    pub fn after(&self, hook: impl Fn(&K) + Send + Sync + 'static) -> Self {
        let add = Arc::clone(&self.add);
        let add = move |key: K| {
            hook(&key);
            add(key);
        };
        Self { context: Weak::clone(&self.context), add: Arc::new(add) }
    }

    /// A handler of an event without content.
    pub fn all(&self, keys: fn(&C) -> Vec<K>) -> impl Fn() + Send + Sync + use<C, K> {
        let handler = self.clone();
        move || handler.add_all(keys)
    }

    /// A handler of an event, such as a change of an object.
    pub fn on<E: 'static>(&self, keys: fn(&C, &E) -> Vec<K>) -> impl Fn(&E) + Send + Sync + use<C, K, E> {
        let handler = self.clone();
        move |event: &E| handler.add_all(|context| keys(context, event))
    }

    /// A handler of an event in a target.
    pub fn within<T: 'static, E: 'static>(
        &self,
        keys: fn(&C, &T, &E) -> Vec<K>,
    ) -> impl Fn(&T, &E) + Send + Sync + use<C, K, T, E> {
        let handler = self.clone();
        move |target: &T, event: &E| handler.add_all(|context| keys(context, target, event))
    }

    fn add_all(&self, keys: impl FnOnce(&C) -> Vec<K>) {
        let Some(context) = self.context.upgrade() else { return };
        keys(&context).into_iter().for_each(|key| (self.add)(key));
    }
}

impl<C, K> Clone for EnqueueMapper<C, K> {
    fn clone(&self) -> Self {
        Self { context: Weak::clone(&self.context), add: Arc::clone(&self.add) }
    }
}

/// The key of an event that is a key.
pub fn itself<C, K: Clone>(_: &C, key: &K) -> Vec<K> {
    vec![key.clone()]
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use parking_lot::Mutex;

    use super::*;
    use crate::queue::QueuePacing;

    fn from(first: &u32, count: &u32) -> Vec<u32> {
        (*first..*first + count).collect()
    }

    #[tokio::test]
    async fn the_keys_of_an_event_are_added_after_the_hook() {
        let queue = WorkQueue::new("test", QueuePacing::default());
        let context = Arc::new(3);
        let enqueue = EnqueueMapper::new(&context, &queue);
        let seen = Arc::<Mutex<Vec<u32>>>::default();
        let hooked = Arc::clone(&seen);
        enqueue.after(move |key| hooked.lock().push(*key)).on(from)(&2);
        enqueue.all(|first| vec![first + 4])();
        enqueue.within(|first, target: &u32, event: &u32| vec![first + target + event])(&10, &20);
        assert_eq!(*seen.lock(), [3, 4]);
        for expected in [3, 4, 7, 33] {
            assert_eq!(queue.take().await.0, expected);
        }
        drop(context);
        enqueue.all(|first| vec![*first])();
        assert!(queue.take().now_or_never().is_none(), "a handler does nothing once its context is gone");
    }
}
