//! Decodes large lists on a thread that no other task of the runtime needs.
//!
//! kube-rs decodes a list where it has read the last bytes of its body, in one go. The body notes that it is large and yields
//! once; the next poll of the stream, with the decoding in it, then gives its other tasks away.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures::Stream;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

/// Bytes of a list from which on it is large: its decoding takes some milliseconds.
pub(super) const LARGE: u64 = 1 << 20;

/// Shows that a large list is being read.
#[derive(Clone, Default)]
pub(super) struct LargeList(Arc<AtomicBool>);

impl LargeList {
    /// Notes that a body has so many bytes so far. True if the reader has to yield, so that its stream is polled.
    pub(super) fn is_news(&self, bytes: u64) -> bool {
        bytes >= LARGE && !self.0.swap(true, Ordering::AcqRel)
    }

    /// The stream that reads it.
    pub(super) fn follow<S>(&self, events: S) -> OffRuntime<S> {
        OffRuntime { events: Box::pin(events), large: self.clone() }
    }
}

/// A stream that is polled off the runtime while a large list is being read.
pub(super) struct OffRuntime<S> {
    events: Pin<Box<S>>,
    large: LargeList,
}

impl<S: Stream> Stream for OffRuntime<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let is_large = self.large.0.load(Ordering::Acquire);
        // A runtime with one thread, as tests have, has no other for its tasks.
        let has_threads = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if !is_large || !has_threads() {
            return self.events.as_mut().poll_next(cx);
        }
        let event = block_in_place(|| self.events.as_mut().poll_next(cx));
        if event.is_ready() {
            self.large.0.store(false, Ordering::Release);
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use futures::{StreamExt, stream};

    use super::*;

    /// Much longer than another task needs.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// The decoding waits for another task, which the only thread of the runtime has to run.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_while_a_large_list_is_decoded() {
        let (sender, receiver) = mpsc::channel();
        let work = async move {
            let large = LargeList::default();
            assert!(!large.is_news(LARGE - 1) && large.is_news(LARGE) && !large.is_news(LARGE + 1));
            tokio::spawn(async move { sender.send("ran") });
            let mut events = large.follow(stream::once(async move { receiver.recv_timeout(PATIENCE) }).boxed());
            let event = events.next().await.unwrap();
            (event, large.is_news(LARGE))
        };
        assert_eq!(tokio::spawn(work).await.unwrap(), (Ok("ran"), true));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_decodes_it_as_well() {
        let large = LargeList::default();
        assert!(large.is_news(LARGE));
        assert_eq!(large.follow(stream::iter([1])).next().await, Some(1));
    }
}
