//! The wrappers of every driver: short errors around metrics around limits around deadlines. Waiting for a slot counts in the metrics but
//! not against the deadline of the call.
//!
//! Only the catalogue wraps drivers.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    account::Account,
    code::Code,
    error::DriverError,
    inspection::Finding,
    interface::{Capabilities, Driver, MachineRequest, ProblemsHook, SecretData},
    operation::Operation,
    spec::Problems,
    vm::{Listed, Vm},
};
use mcm_api::{
    GoDuration,
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::MachineClass,
};

/// How drivers are guarded.
#[derive(Clone)]
pub struct Guards {
    /// Observes every call.
    pub observer: Arc<dyn Observer>,
    /// How long each call may take.
    pub time_limits: TimeLimits,
    /// How many calls of one account run at a time.
    pub calls_per_account: usize,
}

/// Controllers bound their calls to fewer, except that as many checks of VMs as fit on a page of a cloud share its answer. This
/// bounds all other callers if a cloud hangs.
const CALLS_PER_ACCOUNT: usize = 1200;

impl Guards {
    /// The usual limits.
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, time_limits: TimeLimits::default(), calls_per_account: CALLS_PER_ACCOUNT }
    }

    /// The usual limits, for programs without metrics and for tests.
    pub fn unobserved() -> Self {
        Self::new(Arc::new(Unobserved))
    }

    /// Puts all of them around a driver.
    pub fn around(&self, driver: Arc<dyn Driver>) -> Arc<dyn Driver> {
        let driver = Arc::new(Guarded { inner: driver, guard: self.time_limits });
        let driver = Arc::new(Guarded { inner: driver, guard: CallLimits::new(self.calls_per_account) });
        let driver = Arc::new(Guarded { inner: driver, guard: Metering(Arc::clone(&self.observer)) });
        Arc::new(Guarded { inner: driver, guard: ShortErrors })
    }
}

/// Observes every driver call, and the drivers' requests to their clouds.
pub trait Observer: Send + Sync + 'static {
    /// A call ended after `duration`. A call that its caller dropped is reported as [`Code::Canceled`].
    fn observed(&self, provider: &str, operation: Operation, duration: Duration, outcome: Result<(), Code>);

    /// A request to a cloud ended. Each attempt of a request is one.
    fn requested(&self, _provider: &str, _service: &'static str, _duration: Duration, _is_success: bool) {}

    /// A driver in another process became reachable or unreachable.
    fn reached(&self, _provider: &str, _is_up: bool) {}
}

struct Unobserved;

impl Observer for Unobserved {
    fn observed(&self, _: &str, _: Operation, _: Duration, _: Result<(), Code>) {}
}

/// A call of a driver.
#[derive(Clone, Debug)]
struct Call {
    provider: &'static str,
    operation: Operation,
    /// `None` if it makes no cloud call.
    account: Option<Account>,
}

/// A wrapper around the calls of a driver.
trait Guard: Send + Sync + 'static {
    /// Makes the call, or fails in its place.
    fn around<T: Send>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> impl Future<Output = Result<T, DriverError>> + Send;
}

/// A driver with a wrapper.
struct Guarded<G> {
    inner: Arc<dyn Driver>,
    guard: G,
}

impl<G> Guarded<G> {
    fn call(&self, operation: Operation, class: &MachineClass) -> Call {
        Call { provider: self.inner.name(), operation, account: Some(Account::of(class)) }
    }
}

#[async_trait]
impl<G: Guard> Driver for Guarded<G> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn validate(&self, class: &MachineClass) -> Problems {
        self.inner.validate(class)
    }

    fn known_problems(&self, class: &MachineClass) -> Option<Problems> {
        self.inner.known_problems(class)
    }

    fn on_problems(&self, hook: ProblemsHook) {
        self.inner.on_problems(hook);
    }

    /// Not guarded: it makes no cloud call.
    async fn problems(&self, class: &MachineClass) -> Result<Problems, DriverError> {
        self.inner.problems(class).await
    }

    fn secret_problems(&self, class: &MachineClass, secret: &SecretData) -> Problems {
        self.inner.secret_problems(class, secret)
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.guard.around(self.call(Operation::Create, &request.class), self.inner.create(request)).await
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.guard.around(self.call(Operation::Initialize, &request.class), self.inner.initialize(request)).await
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.guard.around(self.call(Operation::Delete, &request.class), self.inner.delete(request)).await
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.guard.around(self.call(Operation::Status, &request.class), self.inner.status(request)).await
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<Listed, DriverError> {
        self.guard.around(self.call(Operation::List, class), self.inner.list(class, secret)).await
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        self.inner.may_list(class, other)
    }

    /// Not guarded: no controller calls it.
    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<Finding>, DriverError> {
        self.inner.inspect(class, secret).await
    }

    /// Not guarded: no controller calls it.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        self.inner.tag(request, is_listed).await
    }

    /// Not guarded: no controller calls it.
    async fn members_of_group(
        &self,
        class: &MachineClass,
        secret: &SecretData,
        group: &str,
    ) -> Result<BTreeSet<String>, DriverError> {
        self.inner.members_of_group(class, secret, group).await
    }

    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        self.inner.load_balancers()
    }

    async fn register(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let call = self.call(Operation::Register, &request.class);
        self.guard.around(call, self.inner.register(request, balancer)).await
    }

    async fn deregister(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let call = self.call(Operation::Deregister, &request.class);
        self.guard.around(call, self.inner.deregister(request, balancer)).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        let call = Call { provider: self.name(), operation: Operation::VolumeIds, account: None };
        self.guard.around(call, self.inner.volume_ids(specs)).await
    }
}

/// Cuts the messages of errors, which clouds write. Drivers have removed secrets from them before.
struct ShortErrors;

impl Guard for ShortErrors {
    async fn around<T: Send>(
        &self,
        _: Call,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        work.await.map_err(DriverError::shortened)
    }
}

/// Reports each call to an [`Observer`].
struct Metering(Arc<dyn Observer>);

impl Guard for Metering {
    async fn around<T: Send>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        let Call { provider, operation, .. } = call;
        let mut report =
            Report { observer: &*self.0, provider, operation, start: Instant::now(), outcome: Err(Code::Canceled) };
        let result = work.await;
        report.outcome = match &result {
            Err(error) if error.call_again_in.is_none() => Err(error.code),
            _ => Ok(()),
        };
        result
    }
}

/// Reports when dropped, so that a dropped call is counted too.
struct Report<'a> {
    observer: &'a dyn Observer,
    provider: &'static str,
    operation: Operation,
    start: Instant,
    outcome: Result<(), Code>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.observer.observed(self.provider, self.operation, self.start.elapsed(), self.outcome);
    }
}

/// Time limits of calls. A call that takes longer is dropped: [`Code::DeadlineExceeded`], outcome unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// Of [`Driver::create`].
    pub create: Duration,
    /// Of [`Driver::initialize`].
    pub initialize: Duration,
    /// Of [`Driver::delete`].
    pub delete: Duration,
    /// Of [`Driver::status`].
    pub status: Duration,
    /// Of [`Driver::list`].
    pub list: Duration,
    /// Of [`Driver::volume_ids`].
    pub volume_ids: Duration,
    /// Of [`Driver::register`] and [`Driver::deregister`].
    pub members: Duration,
}

impl Default for TimeLimits {
    /// Generous: drivers of the reference wait up to ten minutes for one VM.
    fn default() -> Self {
        let (long, short) = (Duration::from_secs(600), Duration::from_secs(60));
        Self {
            create: long,
            initialize: long,
            delete: long,
            status: short,
            list: long,
            volume_ids: short,
            members: short,
        }
    }
}

impl TimeLimits {
    /// The limit of one call.
    pub const fn of(&self, operation: Operation) -> Duration {
        match operation {
            Operation::Create => self.create,
            Operation::Initialize => self.initialize,
            Operation::Delete => self.delete,
            Operation::Status => self.status,
            Operation::List => self.list,
            Operation::VolumeIds => self.volume_ids,
            Operation::Register | Operation::Deregister => self.members,
        }
    }
}

impl Guard for TimeLimits {
    async fn around<T: Send>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        let Call { provider, operation, .. } = call;
        let limit = self.of(operation);
        timeout(limit, work).await.unwrap_or_else(|_| {
            let limit = GoDuration::from(limit);
            let message = format!("{operation} of driver {provider} did not end within {limit}; it is retried");
            Err(DriverError::new(Code::DeadlineExceeded, message))
        })
    }
}

/// Bounds the concurrent calls of each account; the others wait in order. Calls that make no cloud call never wait.
struct CallLimits {
    per_account: usize,
    /// Exists while a call of the account runs or waits.
    slots: Mutex<HashMap<Account, Weak<Semaphore>>>,
}

impl CallLimits {
    fn new(per_account: usize) -> Self {
        Self { per_account: per_account.clamp(1, Semaphore::MAX_PERMITS), slots: Mutex::default() }
    }

    fn slots_of(&self, account: Account) -> Arc<Semaphore> {
        let mut all = self.slots.lock();
        if let Some(slots) = all.get(&account).and_then(Weak::upgrade) {
            return slots;
        }
        all.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(Semaphore::new(self.per_account));
        all.insert(account, Arc::downgrade(&slots));
        slots
    }
}

impl Guard for CallLimits {
    async fn around<T: Send>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        let slots = call.account.map(|account| self.slots_of(account));
        let _slot = match &slots {
            // The semaphore is never closed, so a permit becomes free eventually.
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeDriver;
    use mcm_api::load_balancer::Simulated;
    use rstest::rstest;

    type Observation = (String, Operation, Duration, Result<(), Code>);

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Observation>>);

    fn metered(inner: FakeDriver, recorder: &Arc<Recorder>) -> Guarded<Metering> {
        Guarded { inner: Arc::new(inner), guard: Metering(Arc::clone(recorder) as _) }
    }

    fn limited(inner: &Arc<FakeDriver>, calls: usize) -> Guarded<CallLimits> {
        Guarded { inner: Arc::clone(inner) as _, guard: CallLimits::new(calls) }
    }

    impl Observer for Recorder {
        fn observed(&self, provider: &str, operation: Operation, duration: Duration, outcome: Result<(), Code>) {
            self.0.lock().push((provider.to_owned(), operation, duration, outcome));
        }
    }

    fn balancer() -> LoadBalancer {
        LoadBalancer::Simulated(Simulated { name: "cp".to_owned() })
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
            Operation::Register => driver.register(&request, &balancer()).await,
            Operation::Deregister => driver.deregister(&request, &balancer()).await,
        }
    }

    #[rstest]
    #[case(Operation::Create)]
    #[case(Operation::Initialize)]
    #[case(Operation::Delete)]
    #[case(Operation::Status)]
    #[case(Operation::List)]
    #[case(Operation::VolumeIds)]
    #[case(Operation::Register)]
    #[case(Operation::Deregister)]
    #[tokio::test(start_paused = true)]
    async fn every_call_is_measured_under_its_own_name(#[case] operation: Operation) {
        let recorder = Arc::new(Recorder::default());
        let inner = FakeDriver::named("fake").taking(Duration::from_secs(2));
        call(&metered(inner, &recorder), operation).await.unwrap();
        let failing = FakeDriver::named("fake").failing(Code::ResourceExhausted);
        call(&metered(failing, &recorder), operation).await.unwrap_err();
        let expected: [Observation; 2] = [
            ("fake".to_owned(), operation, Duration::from_secs(2), Ok(())),
            ("fake".to_owned(), operation, Duration::ZERO, Err(Code::ResourceExhausted)),
        ];
        assert_eq!(*recorder.0.lock(), expected);
    }

    #[rstest]
    #[case::short("[as told]".to_owned(), "[as told]".to_owned())]
    #[case::long("[ä".repeat(1 << 20), "(ä".repeat(682) + "(…")]
    #[tokio::test]
    async fn messages_of_errors_fit_into_a_status(#[case] message: String, #[case] expected: String) {
        let driver = Guards::unobserved().around(Arc::new(FakeDriver::named("fake").saying(message)));
        assert_eq!(call(&*driver, Operation::Create).await.unwrap_err().message, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ends_while_the_cloud_works_is_no_failure() {
        let recorder = Arc::new(Recorder::default());
        let driver = metered(FakeDriver::named("fake").never_done(), &recorder);
        call(&driver, Operation::Create).await.unwrap_err();
        assert_eq!(recorder.0.lock().first().map(|seen| seen.3), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_is_measured_as_canceled() {
        let recorder = Arc::new(Recorder::default());
        let inner = FakeDriver::named("fake").taking(Duration::from_secs(60));
        let driver = metered(inner, &recorder);
        timeout(Duration::from_secs(3), call(&driver, Operation::Create)).await.unwrap_err();
        let seen = recorder.0.lock();
        assert_eq!(seen.first().map(|seen| (seen.2, seen.3)), Some((Duration::from_secs(3), Err(Code::Canceled))));
    }

    #[rstest]
    #[case(Operation::Create, 1)]
    #[case(Operation::Initialize, 2)]
    #[case(Operation::Delete, 3)]
    #[case(Operation::Status, 4)]
    #[case(Operation::List, 5)]
    #[case(Operation::VolumeIds, 6)]
    #[case(Operation::Register, 7)]
    #[case(Operation::Deregister, 7)]
    #[tokio::test(start_paused = true)]
    async fn every_call_has_its_own_deadline(#[case] operation: Operation, #[case] seconds: u64) {
        let limits = TimeLimits {
            create: Duration::from_secs(1),
            initialize: Duration::from_secs(2),
            delete: Duration::from_secs(3),
            status: Duration::from_secs(4),
            list: Duration::from_secs(5),
            volume_ids: Duration::from_secs(6),
            members: Duration::from_secs(7),
        };
        let start = Instant::now();
        let taking = |time| Guarded { inner: Arc::new(FakeDriver::named("fake").taking(time)), guard: limits };
        let slow = taking(Duration::from_secs(600));
        let error = call(&slow, operation).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(seconds));
        assert_eq!(error.code, Code::DeadlineExceeded);
        assert_eq!(error.message, format!("{operation} of driver fake did not end within {seconds}s; it is retried"));

        let quick = taking(Duration::from_millis(seconds * 999));
        call(&quick, operation).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_calls_run_at_once_than_allowed() {
        let inner = Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(1)));
        let driver = limited(&inner, 3);
        let start = Instant::now();
        futures::future::join_all((0..10).map(|_| call(&driver, Operation::Create))).await;
        assert_eq!(inner.most_at_once(), 3);
        assert_eq!(start.elapsed(), Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn volume_ids_never_wait_behind_slow_calls() {
        let driver = limited(&Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(1))), 1);
        let start = Instant::now();
        let all = [Operation::Create, Operation::VolumeIds].map(|operation| call(&driver, operation));
        futures::future::join_all(all).await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_account_does_not_hold_up_another_and_idle_accounts_are_forgotten() {
        let driver = limited(&Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(1))), 1);
        let of = |account: &str| {
            let mut request = FakeDriver::request();
            Arc::make_mut(&mut request.class).provider = account.to_owned();
            request
        };
        let requests = ["slow", "slow", "slow", "other"].map(of);
        let start = Instant::now();
        let calls = requests.iter().map(async |request| {
            driver.create(request).await.unwrap();
            start.elapsed().as_secs()
        });
        assert_eq!(futures::future::join_all(calls).await, [1, 2, 3, 1]);
        driver.create(&of("third")).await.unwrap();
        assert_eq!(driver.guard.slots.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn every_driver_is_measured_around_its_limits_around_its_deadline() {
        let recorder = Arc::new(Recorder::default());
        let guards = Guards { calls_per_account: 1, ..Guards::new(Arc::clone(&recorder) as _) };
        let driver = guards.around(Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(3600))));
        let start = Instant::now();
        let both = futures::future::join_all((0..2).map(|_| call(&*driver, Operation::Status))).await;
        assert!(both.iter().all(|result| result.as_ref().is_err_and(|error| error.code == Code::DeadlineExceeded)));
        assert_eq!(start.elapsed(), Duration::from_secs(120), "the second waits for the first, on its own time");
        let seen: Vec<_> = recorder.0.lock().iter().map(|one| (one.1, one.2.as_secs())).collect();
        assert_eq!(seen, [(Operation::Status, 60), (Operation::Status, 120)], "waiting is measured");
    }
}
