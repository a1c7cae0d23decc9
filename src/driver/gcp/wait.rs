//! Operations that Google carries out after its answer.

use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, sleep};

use super::{calls::Compute, errors::operation_failed, request_id::spent, running::Begun};
use crate::driver::{DriverError, MachineRequest, code::Code};

/// How long an operation is waited for: first pause between two looks, longest pause, all together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub first: Duration,
    pub longest: Duration,
    pub total: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { first: seconds(1), longest: seconds(5), total: seconds(300) }
    }
}

impl Pace {
    /// The pause before the next look: half as long as the operation runs already.
    fn pause(&self, since: Instant) -> Duration {
        let mean = (since.elapsed() / 2).max(self.first).min(self.longest);
        mean.mul_f64(rand::rng().random_range(0.5..1.5))
    }
}

/// What is done until the next look at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// The call waits.
    Wait,
    /// The call ends, and the next one continues.
    Leave,
}

impl Meanwhile {
    pub(super) const fn of(request: &MachineRequest) -> Self {
        if request.may_pause { Self::Leave } else { Self::Wait }
    }
}

/// An operation that did not succeed.
pub(super) enum Ended {
    /// It failed.
    Failed(DriverError),
    /// It may still succeed.
    Unknown(DriverError),
}

impl Ended {
    /// The error of a creation. If the request with this number failed, the next attempt makes another one.
    pub(super) fn after(self, number: u32) -> DriverError {
        match self {
            Self::Failed(error) => DriverError { last_known_state: Some(spent(number)), ..error },
            Self::Unknown(error) => error,
        }
    }
}

impl From<Ended> for DriverError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Failed(error) | Ended::Unknown(error) => error,
        }
    }
}

/// Follows an operation until it is done. Nothing of the driver is held meanwhile.
pub(super) async fn until_done(
    compute: &Compute,
    begun: &Begun,
    what: &str,
    pace: Pace,
    meanwhile: Meanwhile,
) -> Result<(), Ended> {
    let Begun { mut operation, zone, since, mut is_new, .. } = begun.clone();
    loop {
        if !is_new {
            match compute.operation(&zone, &operation.name).await {
                Ok(next) => operation = next,
                Err(failure) if failure.code().is_transient() => {}
                Err(failure) => return Err(Ended::Unknown(compute.error(&failure, what))),
            }
        }
        is_new = false;
        if operation.is_done() {
            let failed = |(errors, status)| Ended::Failed(operation_failed(what, errors, status, &compute.secret));
            return operation.failure().map_or(Ok(()), |failure| Err(failed(failure)));
        }
        let (pause, text) = (pace.pause(since), format!("{what} is not done yet: operation {}", operation.name));
        if since.elapsed() + pause > pace.total {
            return Err(Ended::Unknown(DriverError::new(Code::DeadlineExceeded, text)));
        }
        if meanwhile == Meanwhile::Leave {
            return Err(Ended::Unknown(DriverError::not_done(text, pause)));
        }
        sleep(pause).await;
    }
}
