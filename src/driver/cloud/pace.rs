//! Work that a cloud carries out after its answer, without a slot of the driver that is held meanwhile.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{Code, DriverError};

/// How often the driver polls work of the cloud.
#[derive(Clone, Copy, Debug)]
pub struct PollTiming {
    /// The shortest pause between two polls.
    pub first: Duration,
    /// The longest pause between two polls.
    pub longest: Duration,
    /// The work takes longer: it is an error.
    pub total: Duration,
}

impl Default for PollTiming {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first: seconds(1), longest: seconds(10), total: seconds(300) }
    }
}

impl PollTiming {
    /// The pause before the next look at work that was begun so long ago: half of that time.
    pub fn pause(&self, running: Duration) -> Duration {
        (running / 2).max(self.first).min(self.longest)
    }
}

/// Polls until the work is done, and returns its result. `since` is the time when it began, `what` names it in errors. If
/// `may_pause` is true, the call ends after one poll, and a later call continues.
///
/// # Errors
/// `look` failed; the call pauses; [`Code::DeadlineExceeded`] if the work takes too long.
pub async fn until_done<T, F: Future<Output = Result<Option<T>, DriverError>>>(
    pace: &PollTiming,
    since: Instant,
    may_pause: bool,
    what: &str,
    mut look: impl FnMut() -> F,
) -> Result<T, DriverError> {
    loop {
        if let Some(done) = look().await? {
            return Ok(done);
        }
        let pause = pace.pause(since.elapsed());
        if since.elapsed() + pause > pace.total {
            let text = format!("{what} is not done after {} s", since.elapsed().as_secs());
            return Err(DriverError::new(Code::DeadlineExceeded, text));
        }
        if may_pause {
            return Err(DriverError::not_done(format!("{what} is not done yet"), pause));
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    const PACE: PollTiming =
        PollTiming { first: Duration::from_secs(1), longest: Duration::from_secs(10), total: Duration::from_secs(60) };

    /// Follows work that is done at the poll with this number; also returns the number of polls and the time.
    async fn follow(done_at: u32, may_pause: bool) -> (Result<u32, DriverError>, u32, Duration) {
        let (since, mut looks) = (Instant::now(), 0);
        let result = until_done(&PACE, since, may_pause, "deletion of VM x", || {
            looks += 1;
            ready(Ok((looks >= done_at).then_some(looks)))
        })
        .await;
        (result, looks, since.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_with_the_time() {
        let (done, looks, time) = follow(6, false).await;
        assert_eq!((done, looks), (Ok(6), 6));
        // Pauses of 1, 1, 1, 1.5 and 2.25 s.
        assert!((6750..6760).contains(&time.as_millis()), "{time:?}");
        assert_eq!(PACE.pause(Duration::from_secs(100)), PACE.longest);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_may_pause_ends_after_one_look() {
        let (paused, looks, time) = follow(2, true).await;
        let error = paused.unwrap_err();
        assert_eq!((error.call_again_in, looks, time), (Some(PACE.first), 1, Duration::ZERO));
        assert_eq!(error.message, "deletion of VM x is not done yet");
    }

    #[tokio::test(start_paused = true)]
    async fn work_without_an_end_is_an_error() {
        let (error, _, time) = follow(u32::MAX, false).await;
        assert_eq!(error.unwrap_err().code, Code::DeadlineExceeded);
        assert!(time <= PACE.total && time + PACE.longest > PACE.total, "{time:?}");
    }
}
