//! Tasks of vCenter, which go on after their request was answered.

use futures::FutureExt;
use mcm_driver::{
    DriverError,
    cloud::{CloudFailure, LruCache, PollTiming, until_done},
};
use tokio::time::Instant;

use super::{
    calls::{Api, TaskState},
    soap::Ref,
};

/// Most tasks that are remembered. Those of more are found by what they did.
const MOST: usize = 10_000;

/// A task that was begun.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub task: Ref,
    since: Instant,
}

/// The result of a task: the object that it made, or why it failed.
pub(crate) type Ended = Result<Option<Ref>, CloudFailure>;

/// Tasks that were begun, by what they are for, so that a later call can follow them.
pub(crate) struct Tasks(LruCache<String, Begun>);

impl Default for Tasks {
    fn default() -> Self {
        Self(LruCache::new(MOST))
    }
}

impl Tasks {
    pub(crate) fn get(&self, key: &str) -> Option<Begun> {
        self.0.get_or(&key.to_owned(), || Err(())).ok()
    }

    pub(crate) fn remember(&self, key: &str, task: Ref) -> Begun {
        let begun = Begun::now(task);
        self.0.forget(&key.to_owned());
        self.0.get_or(&key.to_owned(), || Ok::<_, ()>(begun.clone())).unwrap_or(begun)
    }

    /// Follows a task to its end, and removes it then. With `may_pause` the call may end before.
    pub(crate) async fn follow(
        &self,
        api: &Api,
        key: &str,
        begun: &Begun,
        pace: &PollTiming,
        may_pause: bool,
        what: &str,
    ) -> Result<Ended, DriverError> {
        let ended = begun.ended(api, pace, may_pause, what).await;
        let is_over = begun.since.elapsed() + pace.longest > pace.total;
        if ended.is_ok() || is_over {
            self.0.forget(&key.to_owned());
        }
        ended
    }
}

impl Begun {
    pub(crate) fn now(task: Ref) -> Self {
        Self { task, since: Instant::now() }
    }

    /// The result of the task.
    ///
    /// # Errors
    /// It cannot be looked at, or it takes too long; that of a pause.
    pub(crate) async fn ended(
        &self,
        api: &Api,
        pace: &PollTiming,
        may_pause: bool,
        what: &str,
    ) -> Result<Ended, DriverError> {
        let (begun, api, what) = (self.clone(), api.clone(), format!("the {what}"));
        let look = {
            let what = what.clone();
            move || begun.clone().look(api.clone(), what.clone()).boxed()
        };
        until_done(pace, self.since, may_pause, &what, look).await
    }

    async fn look(self, api: Api, what: String) -> Result<Option<Ended>, DriverError> {
        match api.task(&self.task).await {
            Ok(TaskState::Running) => Ok(None),
            Ok(TaskState::Done(made)) => Ok(Some(Ok(made))),
            Ok(TaskState::Failed(failure)) => Ok(Some(Err(failure))),
            // vCenter removes tasks some time after they ended.
            Err(failure) if failure.is("ManagedObjectNotFound") => {
                Ok(Some(Err(CloudFailure::Broken("vCenter does not have its task any more".to_owned()))))
            }
            Err(failure) => Err(api.error(&failure, &format!("a look at {what}"))),
        }
    }
}
