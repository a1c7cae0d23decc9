//! Polls API objects that no cache covers, such as Leases of other managers: at start-up, on request and periodically.

use std::{future::Future, sync::Arc, time::Duration};

use super::{
    cell::Builder,
    queue::{Pacing, Queue},
    worker::{Handler, ReconcileError, Requeue},
};

/// How often to look.
const PERIOD: Duration = Duration::from_secs(30);
/// The period after a failed poll: other reconciles may wait for its result.
const RETRY: Duration = Duration::from_secs(5);

/// The read that a poller repeats.
pub(crate) trait Look: Send + Sync + 'static {
    /// Name of its queue in metrics.
    const NAME: &'static str;

    /// Polls, and stores the result.
    fn look(&self) -> impl Future<Output = Seen> + Send;

    /// Drops the result, which may be old on a standby.
    fn forget(&self);
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An answer.
    Answer,
    /// The result is valid for this time, after which it may change without any write.
    AnswerFor(Duration),
    /// Nothing.
    Failure,
}

impl Seen {
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
pub(crate) struct Looks(Arc<Queue<&'static str>>);

impl Looks {
    /// Looks as soon as possible.
    pub fn ask(&self) {
        self.0.add(ALL);
    }
}

/// There is one key.
const ALL: &str = "all";

struct Looking<L>(Arc<L>);

impl<L: Look> Handler for Looking<L> {
    type Key = &'static str;

    async fn handle(&self, _: &&'static str) -> Result<Requeue, ReconcileError> {
        Ok(Requeue::After(self.0.look().await.pause()))
    }
}

/// Looks while this process leads the role of the kind that registers.
pub(crate) fn register<L: Look>(builder: &mut Builder<'_>, look: L) -> Looks {
    let look = Arc::new(look);
    let looks = Looks(Queue::new(L::NAME, Pacing::default()));
    builder.workers(Looking(Arc::clone(&look)), &looks.0, 1);
    let first = looks.clone();
    builder.on_start(move || {
        look.forget();
        first.ask();
    });
    looks
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use rstest::rstest;

    use super::*;

    struct Told(Mutex<Seen>);

    impl Look for Told {
        const NAME: &'static str = "told";

        async fn look(&self) -> Seen {
            *self.0.lock()
        }

        fn forget(&self) {}
    }

    #[rstest]
    #[case::an_answer(Seen::Answer, 30)]
    #[case::a_lease_that_may_expire(Seen::AnswerFor(Duration::from_secs(15)), 15)]
    #[case::a_lease_that_is_valid_for_long(Seen::AnswerFor(Duration::from_secs(120)), 30)]
    #[case::nothing(Seen::Failure, 5)]
    #[tokio::test]
    async fn the_next_look_is_when_the_answer_may_be_another_one(#[case] seen: Seen, #[case] seconds: u64) {
        let looking = Looking(Arc::new(Told(Mutex::new(seen))));
        assert_eq!(looking.handle(&ALL).await.unwrap(), Requeue::After(Duration::from_secs(seconds)));
    }
}
