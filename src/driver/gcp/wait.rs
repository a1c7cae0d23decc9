//! Operations that Google carries out after its answer.

use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, sleep};

use super::{
    calls::{Compute, Operation},
    errors::operation_failed,
    request_id::spent,
};
use crate::driver::{DriverError, code::Code};

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

/// Waits until an operation is done. Nothing is held meanwhile: the next call continues if this one is dropped.
pub(super) async fn until_done(
    compute: &Compute,
    zone: &str,
    mut operation: Operation,
    what: &str,
    Pace { first, longest, total }: Pace,
) -> Result<(), Ended> {
    let (deadline, mut pause) = (Instant::now() + total, first);
    loop {
        if operation.is_done() {
            let failed = |(errors, status)| Ended::Failed(operation_failed(what, errors, status, &compute.secret));
            return operation.failure().map_or(Ok(()), |failure| Err(failed(failure)));
        }
        if Instant::now() + pause > deadline {
            let message = format!("{what} is not done yet: operation {}", operation.name);
            return Err(Ended::Unknown(DriverError::new(Code::DeadlineExceeded, message)));
        }
        let wait = pause.mul_f64(rand::rng().random_range(0.5..1.5));
        sleep(wait).await;
        pause = (pause * 3 / 2).min(longest);
        match compute.operation(zone, &operation.name).await {
            Ok(next) => operation = next,
            Err(failure) if failure.code().is_transient() => {}
            Err(failure) => return Err(Ended::Unknown(compute.error(&failure, what))),
        }
    }
}
