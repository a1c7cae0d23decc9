//! Shows whether the threads of the controllers still run tasks. The endpoints have a thread for themselves, so they would answer
//! although nothing else does.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// Pause between two signs of life.
const PERIOD: Duration = Duration::from_secs(1);
/// Without a sign of life for so long, the process should be restarted. Work that takes a few seconds is no reason.
const LIMIT: Duration = Duration::from_secs(60);

/// The last sign of life of the controllers. Clones share it.
#[derive(Clone, Debug)]
pub struct ControllerActivity(Arc<Mutex<Instant>>);

impl Default for ControllerActivity {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl ControllerActivity {
    /// Records signs of life of the current runtime, until the result is dropped.
    pub fn record(&self) -> AbortOnDropHandle<()> {
        let last = Arc::clone(&self.0);
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                *last.lock() = Instant::now();
                sleep(PERIOD).await;
            }
        }))
    }

    /// The time without a sign of life, if it is too long.
    pub fn stalled(&self) -> Option<Duration> {
        Some(self.0.lock().elapsed()).filter(|silence| *silence > LIMIT)
    }
}

#[cfg(any(test, feature = "testing"))]
impl ControllerActivity {
    /// An activity with a last sign of life so long ago.
    pub fn silent_for(silence: Duration) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(now.checked_sub(silence).unwrap_or(now))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_runtime_that_runs_tasks_is_active_again() {
        let activity = ControllerActivity::silent_for(LIMIT + PERIOD);
        assert!(activity.stalled().is_some());
        let _recording = activity.record();
        while activity.stalled().is_some() {
            tokio::task::yield_now().await;
        }
    }
}
