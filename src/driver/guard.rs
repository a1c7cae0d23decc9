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
    account::CloudAccount,
    capacity::VmCapacity,
    code::Code,
    error::DriverError,
    inspection::ResourceFinding,
    interface::{Driver, DriverCapabilities, MachineRequest, ProblemsHook, SecretData},
    operation::DriverOperation,
    spec::ClassProblems,
    vm::{Vm, VmsByProviderId},
};
use mcm_api::{
    GoDuration,
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::MachineClass,
};

/// How drivers are guarded.
#[derive(Clone)]
pub struct DriverGuards {
    /// Observes every call.
    pub observer: Arc<dyn DriverObserver>,
    /// How long each call may take.
    pub time_limits: TimeLimits,
    /// How many calls of one account run at a time.
    pub calls_per_account: usize,
}

/// Controllers bound their calls to fewer, except that as many checks of VMs as fit on a page of a cloud share its answer. This
/// bounds all other callers if a cloud hangs.
const CALLS_PER_ACCOUNT: usize = 1200;

impl DriverGuards {
    /// The usual limits.
    pub fn new(observer: Arc<dyn DriverObserver>) -> Self {
        Self { observer, time_limits: TimeLimits::default(), calls_per_account: CALLS_PER_ACCOUNT }
    }

    /// The usual limits, for programs without metrics and for tests.
    pub fn unobserved() -> Self {
        Self::new(Arc::new(NoopObserver))
    }

    /// Puts all of them around a driver.
    pub fn around(&self, driver: Arc<dyn Driver>) -> Arc<dyn Driver> {
        let driver = Arc::new(GuardedDriver { inner: driver, guard: self.time_limits });
        let driver = Arc::new(GuardedDriver { inner: driver, guard: CallLimits::new(self.calls_per_account) });
        let driver = Arc::new(GuardedDriver { inner: driver, guard: MeteringGuard(Arc::clone(&self.observer)) });
        Arc::new(GuardedDriver { inner: driver, guard: ShortErrors })
    }
}

/// Observes every driver call, and the drivers' requests to their clouds.
pub trait DriverObserver: Send + Sync + 'static {
    /// A call ended after `duration`. A call that its caller dropped is reported as [`Code::Canceled`].
    fn observed(&self, provider: &str, operation: DriverOperation, duration: Duration, outcome: Result<(), Code>);

    /// A request to a cloud ended. Each attempt of a request is one.
    fn requested(&self, _provider: &str, _service: &'static str, _duration: Duration, _is_success: bool) {}

    /// A driver in another process became reachable or unreachable.
    fn reached(&self, _provider: &str, _is_up: bool) {}
}

struct NoopObserver;

impl DriverObserver for NoopObserver {
    fn observed(&self, _: &str, _: DriverOperation, _: Duration, _: Result<(), Code>) {}
}

/// A call of a driver.
#[derive(Clone, Debug)]
struct GuardedCall {
    provider: &'static str,
    operation: DriverOperation,
    /// `None` if it makes no cloud call.
    account: Option<CloudAccount>,
}

/// A wrapper around the calls of a driver.
trait CallGuard: Send + Sync + 'static {
    /// Makes the call, or fails in its place.
    fn around<T: Send>(
        &self,
        call: GuardedCall,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> impl Future<Output = Result<T, DriverError>> + Send;
}

/// A driver with a wrapper.
struct GuardedDriver<G> {
    inner: Arc<dyn Driver>,
    guard: G,
}

impl<G> GuardedDriver<G> {
    fn call(&self, operation: DriverOperation, class: &MachineClass) -> GuardedCall {
        GuardedCall { provider: self.inner.name(), operation, account: Some(CloudAccount::from_class(class)) }
    }
}

#[async_trait]
impl<G: CallGuard> Driver for GuardedDriver<G> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> DriverCapabilities {
        self.inner.capabilities()
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        self.inner.validate(class)
    }

    fn known_problems(&self, class: &MachineClass) -> Option<ClassProblems> {
        self.inner.known_problems(class)
    }

    fn on_problems(&self, hook: ProblemsHook) {
        self.inner.on_problems(hook);
    }

    /// Not guarded: it makes no cloud call.
    async fn problems(&self, class: &MachineClass) -> Result<ClassProblems, DriverError> {
        self.inner.problems(class).await
    }

    fn secret_problems(&self, class: &MachineClass, secret: &SecretData) -> ClassProblems {
        self.inner.secret_problems(class, secret)
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.guard.around(self.call(DriverOperation::Create, &request.class), self.inner.create(request)).await
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.guard.around(self.call(DriverOperation::Initialize, &request.class), self.inner.initialize(request)).await
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.guard.around(self.call(DriverOperation::Delete, &request.class), self.inner.delete(request)).await
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.guard.around(self.call(DriverOperation::Status, &request.class), self.inner.status(request)).await
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        self.guard.around(self.call(DriverOperation::List, class), self.inner.list(class, secret)).await
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        self.inner.may_list(class, other)
    }

    /// Not guarded: no controller calls it.
    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        self.inner.inspect(class, secret).await
    }

    fn capacity_key(&self, class: &MachineClass) -> Option<String> {
        self.inner.capacity_key(class)
    }

    async fn capacity(&self, class: &MachineClass, secret: &SecretData) -> Result<VmCapacity, DriverError> {
        self.guard.around(self.call(DriverOperation::Capacity, class), self.inner.capacity(class, secret)).await
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
        let call = self.call(DriverOperation::Register, &request.class);
        self.guard.around(call, self.inner.register(request, balancer)).await
    }

    async fn deregister(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let call = self.call(DriverOperation::Deregister, &request.class);
        self.guard.around(call, self.inner.deregister(request, balancer)).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        let call = GuardedCall { provider: self.name(), operation: DriverOperation::VolumeIds, account: None };
        self.guard.around(call, self.inner.volume_ids(specs)).await
    }
}

/// Cuts the messages of errors, which clouds write. Drivers have removed secrets from them before.
struct ShortErrors;

impl CallGuard for ShortErrors {
    async fn around<T: Send>(
        &self,
        _: GuardedCall,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        work.await.map_err(DriverError::shortened)
    }
}

/// Reports each call to an [`Observer`].
struct MeteringGuard(Arc<dyn DriverObserver>);

impl CallGuard for MeteringGuard {
    async fn around<T: Send>(
        &self,
        call: GuardedCall,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        let GuardedCall { provider, operation, .. } = call;
        let mut report = MeteredCall {
            observer: &*self.0,
            provider,
            operation,
            start: Instant::now(),
            outcome: Err(Code::Canceled),
        };
        let result = work.await;
        report.outcome = match &result {
            Err(error) if error.call_again_in.is_none() => Err(error.code),
            _ => Ok(()),
        };
        result
    }
}

/// Reports when dropped, so that a dropped call is counted too.
struct MeteredCall<'a> {
    observer: &'a dyn DriverObserver,
    provider: &'static str,
    operation: DriverOperation,
    start: Instant,
    outcome: Result<(), Code>,
}

impl Drop for MeteredCall<'_> {
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
    /// Of [`Driver::capacity`].
    pub capacity: Duration,
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
            capacity: short,
        }
    }
}

impl TimeLimits {
    /// The limit of one call.
    pub const fn limit_for(&self, operation: DriverOperation) -> Duration {
        match operation {
            DriverOperation::Create => self.create,
            DriverOperation::Initialize => self.initialize,
            DriverOperation::Delete => self.delete,
            DriverOperation::Status => self.status,
            DriverOperation::List => self.list,
            DriverOperation::VolumeIds => self.volume_ids,
            DriverOperation::Register | DriverOperation::Deregister => self.members,
            DriverOperation::Capacity => self.capacity,
        }
    }
}

impl CallGuard for TimeLimits {
    async fn around<T: Send>(
        &self,
        call: GuardedCall,
        work: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        let GuardedCall { provider, operation, .. } = call;
        let limit = self.limit_for(operation);
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
    slots: Mutex<HashMap<CloudAccount, Weak<Semaphore>>>,
}

impl CallLimits {
    fn new(per_account: usize) -> Self {
        Self { per_account: per_account.clamp(1, Semaphore::MAX_PERMITS), slots: Mutex::default() }
    }

    fn slots_of(&self, account: CloudAccount) -> Arc<Semaphore> {
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

impl CallGuard for CallLimits {
    async fn around<T: Send>(
        &self,
        call: GuardedCall,
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

    type Observation = (String, DriverOperation, Duration, Result<(), Code>);

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Observation>>);

    fn metered(inner: FakeDriver, recorder: &Arc<Recorder>) -> GuardedDriver<MeteringGuard> {
        GuardedDriver { inner: Arc::new(inner), guard: MeteringGuard(Arc::clone(recorder) as _) }
    }

    fn limited(inner: &Arc<FakeDriver>, calls: usize) -> GuardedDriver<CallLimits> {
        GuardedDriver { inner: Arc::clone(inner) as _, guard: CallLimits::new(calls) }
    }

    impl DriverObserver for Recorder {
        fn observed(&self, provider: &str, operation: DriverOperation, duration: Duration, outcome: Result<(), Code>) {
            self.0.lock().push((provider.to_owned(), operation, duration, outcome));
        }
    }

    fn balancer() -> LoadBalancer {
        LoadBalancer::Simulated(Simulated { name: "cp".to_owned() })
    }

    async fn call(driver: &dyn Driver, operation: DriverOperation) -> Result<(), DriverError> {
        let request = FakeDriver::request();
        match operation {
            DriverOperation::Create => driver.create(&request).await.map(|_| ()),
            DriverOperation::Initialize => driver.initialize(&request).await.map(|_| ()),
            DriverOperation::Delete => driver.delete(&request).await.map(|_| ()),
            DriverOperation::Status => driver.status(&request).await.map(|_| ()),
            DriverOperation::List => driver.list(&request.class, &request.secret).await.map(|_| ()),
            DriverOperation::VolumeIds => driver.volume_ids(&[]).await.map(|_| ()),
            DriverOperation::Register => driver.register(&request, &balancer()).await,
            DriverOperation::Deregister => driver.deregister(&request, &balancer()).await,
            DriverOperation::Capacity => driver.capacity(&request.class, &request.secret).await.map(|_| ()),
        }
    }

    #[rstest]
    #[case(DriverOperation::Create)]
    #[case(DriverOperation::Initialize)]
    #[case(DriverOperation::Delete)]
    #[case(DriverOperation::Status)]
    #[case(DriverOperation::List)]
    #[case(DriverOperation::VolumeIds)]
    #[case(DriverOperation::Register)]
    #[case(DriverOperation::Deregister)]
    #[case(DriverOperation::Capacity)]
    #[tokio::test(start_paused = true)]
    async fn every_call_is_measured_under_its_own_name(#[case] operation: DriverOperation) {
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
        let driver = DriverGuards::unobserved().around(Arc::new(FakeDriver::named("fake").saying(message)));
        assert_eq!(call(&*driver, DriverOperation::Create).await.unwrap_err().message, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_ends_while_the_cloud_works_is_no_failure() {
        let recorder = Arc::new(Recorder::default());
        let driver = metered(FakeDriver::named("fake").never_done(), &recorder);
        call(&driver, DriverOperation::Create).await.unwrap_err();
        assert_eq!(recorder.0.lock().first().map(|seen| seen.3), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_is_measured_as_canceled() {
        let recorder = Arc::new(Recorder::default());
        let inner = FakeDriver::named("fake").taking(Duration::from_secs(60));
        let driver = metered(inner, &recorder);
        timeout(Duration::from_secs(3), call(&driver, DriverOperation::Create)).await.unwrap_err();
        let seen = recorder.0.lock();
        assert_eq!(seen.first().map(|seen| (seen.2, seen.3)), Some((Duration::from_secs(3), Err(Code::Canceled))));
    }

    #[rstest]
    #[case(DriverOperation::Create, 1)]
    #[case(DriverOperation::Initialize, 2)]
    #[case(DriverOperation::Delete, 3)]
    #[case(DriverOperation::Status, 4)]
    #[case(DriverOperation::List, 5)]
    #[case(DriverOperation::VolumeIds, 6)]
    #[case(DriverOperation::Register, 7)]
    #[case(DriverOperation::Deregister, 7)]
    #[case(DriverOperation::Capacity, 8)]
    #[tokio::test(start_paused = true)]
    async fn every_call_has_its_own_deadline(#[case] operation: DriverOperation, #[case] seconds: u64) {
        let limits = TimeLimits {
            create: Duration::from_secs(1),
            initialize: Duration::from_secs(2),
            delete: Duration::from_secs(3),
            status: Duration::from_secs(4),
            list: Duration::from_secs(5),
            volume_ids: Duration::from_secs(6),
            members: Duration::from_secs(7),
            capacity: Duration::from_secs(8),
        };
        let start = Instant::now();
        let taking = |time| GuardedDriver { inner: Arc::new(FakeDriver::named("fake").taking(time)), guard: limits };
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
        futures::future::join_all((0..10).map(|_| call(&driver, DriverOperation::Create))).await;
        assert_eq!(inner.most_at_once(), 3);
        assert_eq!(start.elapsed(), Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn volume_ids_never_wait_behind_slow_calls() {
        let driver = limited(&Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(1))), 1);
        let start = Instant::now();
        let all = [DriverOperation::Create, DriverOperation::VolumeIds].map(|operation| call(&driver, operation));
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
        let guards = DriverGuards { calls_per_account: 1, ..DriverGuards::new(Arc::clone(&recorder) as _) };
        let driver = guards.around(Arc::new(FakeDriver::named("fake").taking(Duration::from_secs(3600))));
        let start = Instant::now();
        let both = futures::future::join_all((0..2).map(|_| call(&*driver, DriverOperation::Status))).await;
        assert!(both.iter().all(|result| result.as_ref().is_err_and(|error| error.code == Code::DeadlineExceeded)));
        assert_eq!(start.elapsed(), Duration::from_secs(120), "the second waits for the first, on its own time");
        let seen: Vec<_> = recorder.0.lock().iter().map(|one| (one.1, one.2.as_secs())).collect();
        assert_eq!(seen, [(DriverOperation::Status, 60), (DriverOperation::Status, 120)], "waiting is measured");
    }
}
