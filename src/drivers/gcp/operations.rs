//! Operations that Google carries out after its answer. Those of one account and zone that are due at the same time share a look.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    errors::{is_not_found, is_throttled, operation_failed},
    operation::Operation,
    request_id::spent,
    running::Begun,
    session::{LookUpKey, Session},
};
use mcm_driver::{
    DriverError, MachineRequest,
    cloud::{CloudFailure, LookupCoalescer, LruCache, PollTiming},
    code::Code,
};

/// More zones than any installation uses.
const MOST_ZONES: usize = 1024;
/// The most times that polls become rarer while Google throttles.
const SLOWEST: u32 = 8;

/// The pace of polls of operations: shorter pauses than usual, because polls are shared.
pub(super) const PACE: PollTiming =
    PollTiming { first: Duration::from_secs(1), longest: Duration::from_secs(5), total: Duration::from_secs(300) };

/// The pause before the next poll of an operation that runs for `running`, `now` after the first tick: up to the next tick, of
/// which there is one in each shortest pause, so that polls can be shared.
fn pause_to_tick(pace: &PollTiming, running: Duration, now: Duration, slowness: u32) -> Duration {
    let due = now + pace.pause(running) * slowness;
    let tick = pace.first.as_nanos().max(1);
    let next = due.as_nanos().div_ceil(tick) * tick;
    Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX)).saturating_sub(now)
}

/// Behaviour of a call until the next look at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// The call waits.
    Wait,
    /// The call ends, and the next one continues.
    Leave,
}

impl Meanwhile {
    pub(super) const fn for_request(request: &MachineRequest) -> Self {
        if request.may_pause { Self::Leave } else { Self::Wait }
    }
}

/// An operation that did not succeed.
pub(super) enum Ended {
    /// It failed.
    Failed(DriverError),
    /// It failed, because something does not exist.
    Absent(DriverError),
    /// It may still succeed.
    Unknown(DriverError),
}

impl Ended {
    /// The error of a creation. If the request with this number failed, the next attempt makes another one.
    pub(super) fn after(self, number: u32) -> DriverError {
        match self {
            Self::Failed(error) | Self::Absent(error) => DriverError { last_known_state: Some(spent(number)), ..error },
            Self::Unknown(error) => error,
        }
    }
}

impl From<Ended> for DriverError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Failed(error) | Ended::Absent(error) | Ended::Unknown(error) => error,
        }
    }
}

/// A look at several operations.
type Looked = Result<Arc<Vec<Operation>>, CloudFailure>;

/// All operations that are waited for.
pub(super) struct Operations {
    pace: PollTiming,
    /// The first tick.
    epoch: Instant,
    looks: LookupCoalescer<LookUpKey, Looked>,
    zones: LruCache<LookUpKey, Arc<Zone>>,
}

/// The pace of polls in one zone with one account.
struct Zone {
    /// How many times rarer they are.
    slowness: AtomicU32,
    /// The account may read single operations only.
    cannot_list: AtomicBool,
}

impl Default for Zone {
    fn default() -> Self {
        Self { slowness: AtomicU32::new(1), cannot_list: AtomicBool::new(false) }
    }
}

impl Zone {
    /// Google throttles the whole project, so all polls in it slow down together.
    fn learn<T>(&self, looked: &Result<T, CloudFailure>) {
        let slowness = self.slowness.load(Relaxed);
        match looked {
            Ok(_) => self.slowness.store((slowness / 2).max(1), Relaxed),
            Err(failure) if is_throttled(failure) => self.slowness.store((slowness * 2).min(SLOWEST), Relaxed),
            Err(_) => {}
        }
    }
}

impl Operations {
    /// A poll waits for `window` so that others can join it.
    pub(super) fn new(pace: PollTiming, window: Duration) -> Self {
        Self { pace, epoch: Instant::now(), looks: LookupCoalescer::new(window), zones: LruCache::new(MOST_ZONES) }
    }

    /// Follows an operation until it is done. Nothing of the driver is held meanwhile.
    pub(super) async fn until_done(
        &self,
        session: &Session,
        begun: &Begun,
        what: &str,
        meanwhile: Meanwhile,
    ) -> Result<(), Ended> {
        let (compute, state) = (&session.compute, self.zone(&session.look_up_key(&begun.zone)));
        let Begun { mut operation, since, mut is_new, .. } = begun.clone();
        loop {
            if !is_new {
                match self.look(session, &begun.zone, &operation.name).await {
                    Ok(next) => operation = next,
                    Err(failure) if failure.code().is_transient() => {}
                    Err(failure) => return Err(Ended::Unknown(compute.error(&failure, what))),
                }
            }
            is_new = false;
            if operation.is_done() {
                let Some((errors, status)) = operation.failure() else { return Ok(()) };
                let error = operation_failed(what, errors, status, &compute.secret);
                let is_absent = errors.iter().any(is_not_found);
                return Err(if is_absent { Ended::Absent(error) } else { Ended::Failed(error) });
            }
            let slowness = state.slowness.load(Relaxed);
            let pause = pause_to_tick(&self.pace, since.elapsed(), self.epoch.elapsed(), slowness);
            let text = format!("{what} is not done yet: operation {}", operation.name);
            if since.elapsed() + pause > self.pace.total {
                return Err(Ended::Unknown(DriverError::new(Code::DeadlineExceeded, text)));
            }
            if meanwhile == Meanwhile::Leave {
                return Err(Ended::Unknown(DriverError::not_done(text, pause)));
            }
            sleep(pause).await;
        }
    }

    /// An operation as it is now.
    async fn look(&self, session: &Session, zone: &str, name: &str) -> Result<Operation, CloudFailure> {
        let key = session.look_up_key(zone);
        let state = self.zone(&key);
        if !state.cannot_list.load(Relaxed) {
            let (compute, zone) = (session.compute.clone(), zone.to_owned());
            let all = move |names| async move { compute.operations(&zone, "name", &names).await.map(Arc::new) };
            let looked = self.looks.look_up(key, name.to_owned(), all).await;
            state.learn(&looked);
            match looked {
                Ok(all) => {
                    if let Some(found) = all.iter().find(|operation| operation.name == name) {
                        return Ok(found.clone());
                    }
                }
                // Gardener's driver needs no permission to list operations.
                Err(failure) if failure.code() == Code::PermissionDenied => {
                    if !state.cannot_list.swap(true, Relaxed) {
                        tracing::warn!("the account may not list operations of its zone, so each is looked at alone");
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        let looked = session.compute.operation(zone, name).await;
        state.learn(&looked);
        looked
    }

    fn zone(&self, key: &LookUpKey) -> Arc<Zone> {
        let Ok(zone) = self.zones.get_or(key, || Ok::<_, Infallible>(Arc::default()));
        zone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const MILLI: fn(u64) -> Duration = Duration::from_millis;

    #[rstest]
    #[case::at_first(0, 0, 1, 1_000)]
    #[case::up_to_the_tick(0, 300, 1, 1_700)]
    #[case::half_as_long_as_it_runs(6_000, 6_000, 1, 3_000)]
    #[case::not_longer_than_that(100_000, 100_000, 1, 5_000)]
    #[case::slower(0, 0, 4, 4_000)]
    #[case::slowest(100_000, 100_000, 8, 40_000)]
    fn looks_become_rarer_and_are_at_ticks(
        #[case] running: u64,
        #[case] now: u64,
        #[case] slowness: u32,
        #[case] expected: u64,
    ) {
        assert_eq!(pause_to_tick(&PACE, MILLI(running), MILLI(now), slowness), MILLI(expected));
    }

    #[test]
    fn looks_become_rarer_while_google_throttles() {
        let named = |name: &str, code| CloudFailure::Named { code, name: name.to_owned(), message: String::new() };
        let throttled = named("rateLimitExceeded", Code::Unavailable);
        let zone = Zone::default();
        let learn = |looked: Result<(), CloudFailure>| {
            zone.learn(&looked);
            zone.slowness.load(Relaxed)
        };
        assert_eq!([(); 4].map(|()| learn(Err(throttled.clone()))), [2, 4, 8, 8]);
        assert_eq!(learn(Err(named("backendError", Code::Unavailable))), 8);
        assert_eq!([(); 4].map(|()| learn(Ok(()))), [4, 2, 1, 1]);
        assert_eq!(learn(Err(CloudFailure::Status(429))), 2);
        assert_eq!(learn(Err(named("RESOURCE_EXHAUSTED", Code::Unavailable))), 4);
    }
}
