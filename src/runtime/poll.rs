//! Polls API objects that no cache covers, such as Leases of other managers: at start-up, on request and periodically.

use std::{future::Future, sync::Arc, time::Duration};

use super::{
    cell::CellBuilder,
    queue::{QueuePacing, WorkQueue},
    worker::{KeyReconciler, ReconcileError, RequeueTime},
};

/// Period of polls.
const PERIOD: Duration = Duration::from_secs(30);
/// The period after a failed poll: other reconciles may wait for its result.
const RETRY: Duration = Duration::from_secs(5);

/// The read that a poller repeats.
pub trait PollTask: Send + Sync + 'static {
    /// Name of its queue in metrics.
    const NAME: &'static str;

    /// Polls, and stores the result.
    fn poll(&self) -> impl Future<Output = PollResult> + Send;

    /// Drops the result, which may be old on a standby.
    fn forget(&self);
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollResult {
    /// An answer.
    Answer,
    /// The result is valid for this time, after which it may change without any write.
    AnswerFor(Duration),
    /// Nothing.
    Failure,
}

impl PollResult {
    /// The pause before the next poll.
    fn pause(self) -> Duration {
        match self {
            Self::Answer => PERIOD,
            Self::AnswerFor(time) => time.min(PERIOD),
            Self::Failure => RETRY,
        }
    }
}

/// Requests polls.
#[derive(Clone)]
pub struct PollTrigger(Arc<WorkQueue<&'static str>>);

impl PollTrigger {
    /// Polls as soon as possible.
    pub fn request(&self) {
        self.0.add(ALL);
    }
}

/// There is one key.
const ALL: &str = "all";

struct PollHandler<P>(Arc<P>);

impl<P: PollTask> KeyReconciler for PollHandler<P> {
    type Key = &'static str;

    async fn handle(&self, _: &&'static str) -> Result<RequeueTime, ReconcileError> {
        Ok(RequeueTime::After(self.0.poll().await.pause()))
    }
}

/// Polls while this process leads the role of the kind that registers.
pub fn register<P: PollTask>(builder: &mut CellBuilder<'_>, poll: P) -> PollTrigger {
    let poll = Arc::new(poll);
    let poller = PollTrigger(WorkQueue::new(P::NAME, QueuePacing::default()));
    builder.workers(PollHandler(Arc::clone(&poll)), &poller.0, 1);
    let first = poller.clone();
    builder.on_start(move || {
        poll.forget();
        first.request();
    });
    poller
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use rstest::rstest;

    use super::*;

    struct Told(Mutex<PollResult>);

    impl PollTask for Told {
        const NAME: &'static str = "told";

        async fn poll(&self) -> PollResult {
            *self.0.lock()
        }

        fn forget(&self) {}
    }

    #[rstest]
    #[case::an_answer(PollResult::Answer, 30)]
    #[case::a_lease_that_may_expire(PollResult::AnswerFor(Duration::from_secs(15)), 15)]
    #[case::a_lease_that_is_valid_for_long(PollResult::AnswerFor(Duration::from_secs(120)), 30)]
    #[case::nothing(PollResult::Failure, 5)]
    #[tokio::test]
    async fn the_next_poll_is_when_the_answer_may_change(#[case] result: PollResult, #[case] seconds: u64) {
        let polling = PollHandler(Arc::new(Told(Mutex::new(result))));
        assert_eq!(polling.handle(&ALL).await.unwrap(), RequeueTime::After(Duration::from_secs(seconds)));
    }
}
