//! What every driver gets from outside: metrics, deadlines, limits.
//!
//! The usual order is `Metered` around `Limited` around `Deadline` around the driver: waiting for a free slot is measured, but
//! does not use up the time that the call itself may take.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until, timeout},
};

use super::{Capabilities, Code, Driver, DriverError, MachineRequest, SecretData, Vm};
use crate::api::{GoDuration, machine::MachineClass};

/// A driver that reports each call to an [`Observer`].
pub type Metered = Decorated<Metering>;
/// A driver whose calls end in time.
pub type Deadline = Decorated<TimeLimits>;
/// A driver that is not called too often at once.
pub type Limited = Decorated<CallLimits>;

/// The calls of [`Driver`] that take time. The names are those of the reference's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the methods of Driver")]
pub enum Operation {
    Create,
    Initialize,
    Delete,
    Status,
    List,
    VolumeIds,
}

impl Operation {
    /// The exact name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create_machine",
            Self::Initialize => "initialize_machine",
            Self::Delete => "delete_machine",
            Self::Status => "get_machine_status",
            Self::List => "list_machine",
            Self::VolumeIds => "get_volume_ids",
        }
    }
}

/// Hears of every driver call.
pub trait Observer: Send + Sync + 'static {
    /// A call ended after `duration`. `operation` is one of the names of [`Operation`]. A call that its caller gave up
    /// is reported as [`Code::Canceled`].
    fn observed(&self, provider: &str, operation: &'static str, duration: Duration, outcome: Result<(), Code>);
}

/// Something done around every call of a driver.
pub trait Around: Send + Sync + 'static {
    /// Makes the call, or fails in its place.
    fn around<T: Send>(
        &self,
        provider: &'static str,
        operation: Operation,
        call: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> impl Future<Output = Result<T, DriverError>> + Send;
}

/// A driver with something around its calls.
pub struct Decorated<A> {
    inner: Arc<dyn Driver>,
    around: A,
}

#[async_trait]
impl<A: Around> Driver for Decorated<A> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn validate(&self, class: &MachineClass) -> Result<(), DriverError> {
        self.inner.validate(class)
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.around.around(self.name(), Operation::Create, self.inner.create(request)).await
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.around.around(self.name(), Operation::Initialize, self.inner.initialize(request)).await
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.around.around(self.name(), Operation::Delete, self.inner.delete(request)).await
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.around.around(self.name(), Operation::Status, self.inner.status(request)).await
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<BTreeMap<String, String>, DriverError> {
        self.around.around(self.name(), Operation::List, self.inner.list(class, secret)).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        self.around.around(self.name(), Operation::VolumeIds, self.inner.volume_ids(specs)).await
    }
}

/// Reports calls. See [`Metered`].
pub struct Metering(Arc<dyn Observer>);

impl Metered {
    /// Reports each call of `inner` to `observer`.
    pub fn new(inner: Arc<dyn Driver>, observer: Arc<dyn Observer>) -> Self {
        Self { inner, around: Metering(observer) }
    }
}

impl Around for Metering {
    async fn around<T: Send>(
        &self,
        provider: &'static str,
        operation: Operation,
        call: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        let mut report =
            Report { observer: &*self.0, provider, operation, start: Instant::now(), outcome: Err(Code::Canceled) };
        let result = call.await;
        report.outcome = result.as_ref().map(|_| ()).map_err(|error| error.code);
        result
    }
}

/// Reports when dropped, so that a call that was given up is counted too.
struct Report<'a> {
    observer: &'a dyn Observer,
    provider: &'static str,
    operation: Operation,
    start: Instant,
    outcome: Result<(), Code>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.observer.observed(self.provider, self.operation.as_str(), self.start.elapsed(), self.outcome);
    }
}

/// How long each call may take. See [`Deadline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the methods of Driver")]
pub struct TimeLimits {
    pub create: Duration,
    pub initialize: Duration,
    pub delete: Duration,
    pub status: Duration,
    pub list: Duration,
    pub volume_ids: Duration,
}

impl Default for TimeLimits {
    /// Generous: drivers of the reference wait up to ten minutes for one VM.
    fn default() -> Self {
        let (long, short) = (Duration::from_secs(600), Duration::from_secs(60));
        Self { create: long, initialize: long, delete: long, status: short, list: long, volume_ids: short }
    }
}

impl TimeLimits {
    const fn of(&self, operation: Operation) -> Duration {
        match operation {
            Operation::Create => self.create,
            Operation::Initialize => self.initialize,
            Operation::Delete => self.delete,
            Operation::Status => self.status,
            Operation::List => self.list,
            Operation::VolumeIds => self.volume_ids,
        }
    }
}

impl Deadline {
    /// Gives up calls of `inner` that exceed `limits`: [`Code::DeadlineExceeded`], outcome unknown.
    pub fn new(inner: Arc<dyn Driver>, limits: TimeLimits) -> Self {
        Self { inner, around: limits }
    }
}

impl Around for TimeLimits {
    async fn around<T: Send>(
        &self,
        provider: &'static str,
        operation: Operation,
        call: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        let limit = self.of(operation);
        timeout(limit, call).await.unwrap_or_else(|_| {
            let (operation, limit) = (operation.as_str(), GoDuration::from(limit));
            let message = format!("{operation} of driver {provider} did not end within {limit}; it is tried again");
            Err(DriverError::new(Code::DeadlineExceeded, message))
        })
    }
}

/// Holds calls back. See [`Limited`].
pub struct CallLimits {
    slots: Semaphore,
    pace: Option<Pace>,
}

impl Limited {
    /// Lets at most `concurrent` calls of `inner` (at least one) run at a time, and starts at most `per_second` of them,
    /// one second's worth at once. Calls beyond that wait their turn. `volume_ids` asks no cloud, so it never waits.
    pub fn new(inner: Arc<dyn Driver>, concurrent: usize, per_second: Option<f64>) -> Self {
        let slots = Semaphore::new(concurrent.clamp(1, Semaphore::MAX_PERMITS));
        Self { inner, around: CallLimits { slots, pace: per_second.and_then(Pace::new) } }
    }
}

impl Around for CallLimits {
    async fn around<T: Send>(
        &self,
        _: &'static str,
        operation: Operation,
        call: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        if operation == Operation::VolumeIds {
            return call.await;
        }
        // Nobody closes the semaphore, so there always is a permit in the end.
        let _slot = self.slots.acquire().await.ok();
        if let Some(pace) = &self.pace {
            sleep_until(pace.next_start()).await;
        }
        call.await
    }
}

/// Start times a fixed interval apart; up to one second of unused ones is kept.
struct Pace {
    interval: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// None if there is nothing to keep to.
    fn new(per_second: f64) -> Option<Self> {
        let interval = Duration::try_from_secs_f64(per_second.recip()).ok().filter(|interval| !interval.is_zero())?;
        Some(Self { interval, next: Mutex::new(None) })
    }

    fn next_start(&self) -> Instant {
        let now = Instant::now();
        let kept = Duration::from_secs(1).saturating_sub(self.interval);
        let earliest = now.checked_sub(kept).unwrap_or(now);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = next.unwrap_or(earliest).max(earliest);
        *next = start.checked_add(self.interval);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::fake::FakeDriver;
    use rstest::rstest;

    type Observation = (String, &'static str, Duration, Result<(), Code>);

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Observation>>);

    impl Observer for Recorder {
        fn observed(&self, provider: &str, operation: &'static str, duration: Duration, outcome: Result<(), Code>) {
            self.0.lock().unwrap().push((provider.to_owned(), operation, duration, outcome));
        }
    }

    async fn call(driver: &dyn Driver, operation: Operation) -> Result<(), DriverError> {
        let request = FakeDriver::request();
        match operation {
            Operation::Create => driver.create(&request).await.map(|_| ()),
            Operation::Initialize => driver.initialize(&request).await.map(|_| ()),
            Operation::Delete => driver.delete(&request).await.map(|_| ()),
            Operation::Status => driver.status(&request).await.map(|_| ()),
            Operation::List => driver.list(&request.class, &request.secret).await.map(|_| ()),
            Operation::VolumeIds => driver.volume_ids(&[]).await.map(|_| ()),
        }
    }

    #[rstest]
    #[case(Operation::Create, "create_machine")]
    #[case(Operation::Initialize, "initialize_machine")]
    #[case(Operation::Delete, "delete_machine")]
    #[case(Operation::Status, "get_machine_status")]
    #[case(Operation::List, "list_machine")]
    #[case(Operation::VolumeIds, "get_volume_ids")]
    #[tokio::test(start_paused = true)]
    async fn every_call_is_measured_under_its_own_name(#[case] operation: Operation, #[case] name: &'static str) {
        let recorder = Arc::new(Recorder::default());
        let inner = FakeDriver::named("fake").taking(Duration::from_secs(2));
        call(&Metered::new(Arc::new(inner), Arc::clone(&recorder) as _), operation).await.unwrap();
        let failing = FakeDriver::named("fake").failing(Code::ResourceExhausted);
        call(&Metered::new(Arc::new(failing), Arc::clone(&recorder) as _), operation).await.unwrap_err();
        let expected: [Observation; 2] = [
            ("fake".to_owned(), name, Duration::from_secs(2), Ok(())),
            ("fake".to_owned(), name, Duration::ZERO, Err(Code::ResourceExhausted)),
        ];
        assert_eq!(*recorder.0.lock().unwrap(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_is_measured_as_canceled() {
        let recorder = Arc::new(Recorder::default());
        let inner = FakeDriver::named("fake").taking(Duration::from_secs(60));
        let driver = Metered::new(Arc::new(inner), Arc::clone(&recorder) as _);
        timeout(Duration::from_secs(3), call(&driver, Operation::Create)).await.unwrap_err();
        let seen = recorder.0.lock().unwrap();
        assert_eq!(seen.first().map(|seen| (seen.2, seen.3)), Some((Duration::from_secs(3), Err(Code::Canceled))));
    }

    #[rstest]
    #[case(Operation::Create, 1)]
    #[case(Operation::Initialize, 2)]
    #[case(Operation::Delete, 3)]
    #[case(Operation::Status, 4)]
    #[case(Operation::List, 5)]
    #[case(Operation::VolumeIds, 6)]
    #[tokio::test(start_paused = true)]
    async fn every_call_has_its_own_deadline(#[case] operation: Operation, #[case] seconds: u64) {
        let limits = TimeLimits {
            create: Duration::from_secs(1),
            initialize: Duration::from_secs(2),
            delete: Duration::from_secs(3),
            status: Duration::from_secs(4),
            list: Duration::from_secs(5),
            volume_ids: Duration::from_secs(6),
        };
        let start = Instant::now();
        let slow = Deadline::new(Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(600))), limits);
        let error = call(&slow, operation).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(seconds));
        assert_eq!(error.code, Code::DeadlineExceeded);
        let name = operation.as_str();
        assert_eq!(error.message, format!("{name} of driver fake did not end within {seconds}s; it is tried again"));

        let quick =
            Deadline::new(Arc::new(FakeDriver::named("fake").taking(Duration::from_millis(seconds * 999))), limits);
        call(&quick, operation).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_calls_run_at_once_than_allowed() {
        let inner = Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(1)));
        let driver = Limited::new(Arc::clone(&inner) as _, 3, None);
        let start = Instant::now();
        futures::future::join_all((0..10).map(|_| call(&driver, Operation::Create))).await;
        assert_eq!(inner.most_at_once(), 3);
        assert_eq!(start.elapsed(), Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn volume_ids_never_wait_behind_slow_calls() {
        let driver = Limited::new(Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(1))), 1, Some(0.001));
        let start = Instant::now();
        let all = [Operation::Create, Operation::VolumeIds].map(|operation| call(&driver, operation));
        futures::future::join_all(all).await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_start_no_faster_than_allowed_after_a_burst_of_one_second() {
        let driver = Limited::new(Arc::new(FakeDriver::named("fake")), 1000, Some(10.0));
        let start = Instant::now();
        futures::future::join_all((0..30).map(|_| call(&driver, Operation::Create))).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2));
    }

    #[rstest]
    #[case(0.0)]
    #[case(-1.0)]
    #[case(f64::NAN)]
    #[case(f64::INFINITY)]
    fn a_pace_that_is_none_holds_nothing_back(#[case] per_second: f64) {
        assert!(Pace::new(per_second).is_none());
    }
}
