//! Creations in a cloud that has no idempotency tokens: one request at a time for a Machine, and none while an earlier one may
//! still be carried out.
//!
//! A request runs to its end although its caller is dropped: a request that is given up may have an effect later. It does not
//! begin once its caller has lost the right to create, see [`creating_while`]. If its outcome
//! is unknown, no other request is sent for some time, in which only look-ups say whether there is a VM. The Machine's
//! `lastKnownState` keeps that time over a restart. A driver of a cloud that would take two VMs of one name stores it before each
//! request, so that a process that replaces this one in between waits as well.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::{failure::CloudFailure, wanted::MachineIdentity};
use crate::{Code, DriverError, MachineRequest};
use mcm_api::machine::Machine;

/// `lastKnownState` of a Machine whose creation has an unknown outcome, before the time of the request.
const UNKNOWN_SINCE: &str = "Creation with an unknown outcome at ";
/// The longest pause until the next look.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause in which a caller writes the status of a Machine.
const ANNOUNCES: Duration = Duration::from_millis(500);
/// Most Machines whose creation has an unknown outcome.
const MOST: usize = 10_000;

/// True while a creation may send requests. It is called often.
pub type CreationRight = Arc<dyn Fn() -> bool + Send + Sync>;

tokio::task_local! {
    static RIGHT: CreationRight;
}

/// Calls a driver. A creation that this begins ends without another request when `right` does, for example with a Lease, also if
/// the call was dropped.
pub async fn creating_while<F: Future>(right: CreationRight, call: F) -> F::Output {
    RIGHT.scope(right, call).await
}

/// Runs the steps of a creation, and checks the right before each of them continues.
async fn steps_while<V>(
    right: Option<CreationRight>,
    may_pause: bool,
    create: impl Future<Output = Result<V, UnfinishedCreation>>,
) -> Result<V, UnfinishedCreation> {
    let mut create = pin!(create);
    let mut has_begun = false;
    poll_fn(|context| {
        if right.as_ref().is_some_and(|right| !right()) {
            let message = "no request for the creation is sent, because this process is no longer the leader";
            // The caller of a creation that an earlier leader began may have the right.
            let call_again_in = may_pause.then_some(ANNOUNCES);
            let error = DriverError { call_again_in, ..DriverError::new(Code::Unavailable, message) };
            return Poll::Ready(Err(UnfinishedCreation { error, may_have_had_effect: has_begun }));
        }
        has_begun = true;
        create.as_mut().poll(context)
    })
    .await
}

/// The creations of VMs `V`, by the UID of their Machine.
pub struct VmCreations<V: Clone> {
    /// A cloud has carried out a request, or never will, so long after it was sent.
    settles: Duration,
    running: Arc<Mutex<HashMap<String, RunningCreation<V>>>>,
    /// When requests with unknown outcomes ended.
    unknown: Arc<Mutex<HashMap<String, Timestamp>>>,
    /// The `lastKnownState` that this process gave to Machines before it sends a request, and when.
    announced: Arc<AnnouncedStates>,
}

/// States with their times, by the UID of the Machine.
type AnnouncedStates = Mutex<HashMap<String, (String, Timestamp)>>;
type RunningCreation<V> = Shared<BoxFuture<'static, Result<V, DriverError>>>;

/// A creation of several steps that ended before the last one.
#[derive(Debug)]
pub struct UnfinishedCreation {
    /// Why.
    pub error: DriverError,
    /// The outcome of its last step is unknown.
    pub may_have_had_effect: bool,
}

impl UnfinishedCreation {
    /// A step failed. `error` describes it.
    pub fn from_failure(failure: &CloudFailure, error: impl FnOnce(&CloudFailure) -> DriverError) -> Self {
        Self { error: error(failure), may_have_had_effect: failure.may_have_had_effect() }
    }
}

/// Nothing was begun, or all steps so far have a known outcome.
impl From<DriverError> for UnfinishedCreation {
    fn from(error: DriverError) -> Self {
        Self { error, may_have_had_effect: false }
    }
}

impl<V: Clone + Send + Sync + 'static> VmCreations<V> {
    /// No creation runs. `settles` is the longest time after which a cloud may still carry out a request.
    pub fn new(settles: Duration) -> Self {
        Self { settles, running: Arc::default(), unknown: Arc::default(), announced: Arc::default() }
    }

    /// Stores in the Machine's `lastKnownState` that a request is about to be sent. A process that replaces this one waits as after
    /// an unknown outcome. Drivers call it before the look-up of a creation; a caller that cannot pause stores nothing.
    ///
    /// # Errors
    /// The pause in which the caller writes the status.
    pub fn announce(&self, request: &MachineRequest) -> Result<(), DriverError> {
        let (machine, now) = (&*request.machine, Timestamp::now());
        let wanted = MachineIdentity::from_machine(machine);
        let may_send = no_creation_may_run(&self.unknown, &self.announced, self.settles, request).is_ok();
        if !request.may_pause || !may_send || self.running.lock().contains_key(wanted.uid) {
            return Ok(());
        }
        let mut all = self.announced.lock();
        all.retain(|_, (_, since)| left(*since, now, self.settles).is_some());
        let fresh = all.get(wanted.uid).filter(|(_, since)| left(*since, now, self.settles / 2).is_some());
        let state = match fresh {
            Some((state, _)) if *state == state_of(machine) => return Ok(()),
            Some((state, _)) => state.clone(),
            None if all.len() >= MOST => return Ok(()),
            None => {
                let state = format!("{UNKNOWN_SINCE}{now:.3}");
                all.insert(wanted.uid.to_owned(), (state.clone(), now));
                state
            }
        };
        let message = format!(
            "the creation of the VM of machine {:?} begins once the status of the machine says so",
            wanted.name
        );
        Err(DriverError { last_known_state: Some(state), ..DriverError::not_done(message, ANNOUNCES) })
    }

    /// The state of a Machine means only that this process is about to send its request.
    pub fn is_announced(&self, machine: &Machine) -> bool {
        is_announced(&self.announced, machine)
    }

    /// The VM of a Machine: found by `look`, or created. Concurrent calls for one Machine share the result.
    /// `error` describes a failed request.
    ///
    /// # Errors
    /// Errors of `look` and of the request; [`Code::Unavailable`] while it is unknown whether an earlier request has an effect.
    pub async fn run(
        &self,
        request: &MachineRequest,
        look: impl Future<Output = Result<Option<V>, DriverError>> + Send + 'static,
        create: impl Future<Output = Result<V, CloudFailure>> + Send + 'static,
        error: impl FnOnce(&CloudFailure) -> DriverError + Send + 'static,
    ) -> Result<V, DriverError> {
        let create = async move { create.await.map_err(|failure| UnfinishedCreation::from_failure(&failure, error)) };
        self.run_steps(request, look, create).await
    }

    /// The same for a creation that sends several requests. Each step has to look for what an earlier attempt made.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub async fn run_steps(
        &self,
        request: &MachineRequest,
        look: impl Future<Output = Result<Option<V>, DriverError>> + Send + 'static,
        create: impl Future<Output = Result<V, UnfinishedCreation>> + Send + 'static,
    ) -> Result<V, DriverError> {
        let uid = MachineIdentity::from_machine(&request.machine).uid.to_owned();
        let running = {
            let mut all = self.running.lock();
            let begin = || {
                let (request, unknown, settles) = (request.clone(), Arc::clone(&self.unknown), self.settles);
                let announced = Arc::clone(&self.announced);
                let right = RIGHT.try_with(Arc::clone).ok();
                let creation = async move {
                    // An earlier request may be carried out while the look-up is under way.
                    let is_certain = no_creation_may_run(&unknown, &announced, settles, &request);
                    if let Some(found) = look.await? {
                        return Ok(found);
                    }
                    is_certain?;
                    match steps_while(right, request.may_pause, create).await {
                        Err(ended) if ended.may_have_had_effect => {
                            Err(remember(&unknown, settles, &request.machine, ended.error))
                        }
                        created => created.map_err(|ended| ended.error),
                    }
                };
                spawned(uid.clone(), Arc::clone(&self.running), creation)
            };
            all.entry(uid.clone()).or_insert_with(begin).clone()
        };
        running.await
    }
}

/// The known creations of Machines, whatever their VMs are.
#[async_trait]
pub trait CreationLedger: Send + Sync {
    /// Waits until no request for a Machine is under way.
    async fn settled(&self, machine: &Machine);

    /// Succeeds if an absence that a look-up from now on shows is certain.
    ///
    /// # Errors
    /// [`Code::Unavailable`]: an earlier request may still create the VM.
    fn certainty(&self, request: &MachineRequest) -> Result<(), DriverError>;
}

#[async_trait]
impl<V: Clone + Send + Sync + 'static> CreationLedger for VmCreations<V> {
    async fn settled(&self, machine: &Machine) {
        let running = self.running.lock().get(MachineIdentity::from_machine(machine).uid).cloned();
        if let Some(running) = running {
            // Its caller gets the outcome.
            drop(running.await);
        }
    }

    fn certainty(&self, request: &MachineRequest) -> Result<(), DriverError> {
        no_creation_may_run(&self.unknown, &self.announced, self.settles, request)
    }
}

/// Runs a creation to its end, whether anything waits for it or not.
fn spawned<V: Clone + Send + Sync + 'static>(
    uid: String,
    all: Arc<Mutex<HashMap<String, RunningCreation<V>>>>,
    creation: impl Future<Output = Result<V, DriverError>> + Send + 'static,
) -> RunningCreation<V> {
    let task = tokio::spawn(async move {
        let _ended = scopeguard(move || drop(all.lock().remove(&uid)));
        creation.await
    });
    let ended = |ended: Result<_, _>| {
        ended.unwrap_or_else(|_| Err(DriverError::new(Code::Unknown, "the creation ended without a result")))
    };
    task.map(ended).boxed().shared()
}

/// Runs a function when it is dropped.
fn scopeguard<F: FnOnce()>(end: F) -> impl Drop {
    struct ScopeGuard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for ScopeGuard<F> {
        fn drop(&mut self) {
            if let Some(end) = self.0.take() {
                end();
            }
        }
    }
    ScopeGuard(Some(end))
}

/// Remembers that the outcome of a request is unknown.
fn remember(
    unknown: &Mutex<HashMap<String, Timestamp>>,
    settles: Duration,
    machine: &Machine,
    error: DriverError,
) -> DriverError {
    let now = Timestamp::now();
    let mut all = unknown.lock();
    all.retain(|_, since| left(*since, now, settles).is_some());
    if all.len() < MOST {
        all.insert(MachineIdentity::from_machine(machine).uid.to_owned(), now);
    }
    DriverError { last_known_state: Some(format!("{UNKNOWN_SINCE}{now:.3}")), ..error }
}

fn no_creation_may_run(
    unknown: &Mutex<HashMap<String, Timestamp>>,
    announced: &AnnouncedStates,
    settles: Duration,
    request: &MachineRequest,
) -> Result<(), DriverError> {
    let (machine, now) = (&*request.machine, Timestamp::now());
    let wanted = MachineIdentity::from_machine(machine);
    let remembered = unknown.lock().get(wanted.uid).copied();
    let stored = stored(machine).filter(|_| !is_announced(announced, machine));
    let Some(since) = remembered.max(stored) else { return Ok(()) };
    let Some(left) = left(since, now, settles) else { return Ok(()) };
    let message = format!(
        "a request that may still create the VM of machine {:?} had no answer: a new one is sent in {} s at the earliest",
        wanted.name,
        left.as_secs() + 1
    );
    Err(DriverError {
        last_known_state: Some(format!("{UNKNOWN_SINCE}{since:.3}")),
        call_again_in: request.may_pause.then_some(left.min(LONGEST_PAUSE)),
        ..DriverError::new(Code::Unavailable, message)
    })
}

fn is_announced(announced: &AnnouncedStates, machine: &Machine) -> bool {
    let all = announced.lock();
    all.get(MachineIdentity::from_machine(machine).uid).is_some_and(|(state, _)| *state == state_of(machine))
}

fn state_of(machine: &Machine) -> &str {
    machine.status.as_ref().map(|status| status.last_known_state.as_str()).unwrap_or_default()
}

/// The end of a request with an unknown outcome, from the status of the Machine.
fn stored(machine: &Machine) -> Option<Timestamp> {
    state_of(machine).strip_prefix(UNKNOWN_SINCE)?.parse().ok()
}

/// How long a request may still have an effect. A time in the near future is of a clock that is ahead; one that is further ahead
/// does not count.
fn left(since: Timestamp, now: Timestamp, settles: Duration) -> Option<Duration> {
    let age = now.duration_since(since);
    let ahead = age.min(SignedDuration::ZERO).unsigned_abs();
    let age = age.max(SignedDuration::ZERO).unsigned_abs();
    settles.checked_sub(age).filter(|left| !left.is_zero() && ahead <= settles)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    use tokio::time::{sleep, timeout};

    const SETTLES: Duration = Duration::from_millis(300);

    /// A cloud with the number of its VMs.
    #[derive(Clone, Default)]
    struct Cloud(Arc<AtomicUsize>);

    fn request(state: &str, may_pause: bool) -> MachineRequest {
        let mut machine = Machine::default();
        machine.metadata.name = Some("m".to_owned());
        machine.metadata.uid = Some("u".to_owned());
        machine.status.get_or_insert_default().last_known_state = state.to_owned();
        let (machine, class, secret) = (Arc::new(machine), Arc::default(), Default::default());
        MachineRequest { machine, class, secret, owner: String::new(), may_pause }
    }

    /// Begins the look-up of a Machine that has no VM.
    async fn absence(creations: &VmCreations<usize>, request: &MachineRequest) -> Result<Option<usize>, DriverError> {
        creations.settled(&request.machine).await;
        creations.certainty(request).map(|()| None)
    }

    impl Cloud {
        /// Finds a VM; creates one after `pause`, and fails with `failure` if it is set.
        async fn create(
            &self,
            creations: &VmCreations<usize>,
            request: &MachineRequest,
            pause: Duration,
            failure: Option<CloudFailure>,
        ) -> Result<usize, DriverError> {
            let (looked, created) = (self.0.clone(), self.0.clone());
            let look = async move { Ok(Some(looked.load(Relaxed)).filter(|number| *number > 0)) };
            let create = async move {
                sleep(pause).await;
                match failure {
                    Some(failure) => Err(failure),
                    None => Ok(created.fetch_add(1, Relaxed) + 1),
                }
            };
            creations.run(request, look, create, |failure| failure.error("creation", &Default::default())).await
        }
    }

    /// A right that lasts until the flag is set.
    fn until_lost(is_lost: &Arc<AtomicBool>) -> CreationRight {
        let is_lost = Arc::clone(is_lost);
        Arc::new(move || !is_lost.load(Relaxed))
    }

    #[rstest]
    #[case::in_the_look(true, false)]
    #[case::between_two_steps(false, true)]
    #[tokio::test(start_paused = true)]
    async fn a_creation_sends_nothing_after_the_right_to_create_is_lost(
        #[case] in_look: bool,
        #[case] is_unknown: bool,
    ) {
        let (cloud, creations, request) = (Cloud::default(), VmCreations::new(SETTLES), request("", true));
        let is_lost = Arc::new(AtomicBool::new(false));
        let pause = Duration::from_secs(30);
        let made = cloud.0.clone();
        let look = async move {
            sleep(if in_look { pause } else { Duration::ZERO }).await;
            Ok(None)
        };
        let create = async move {
            sleep(pause).await;
            Ok(made.fetch_add(1, Relaxed))
        };
        let call = creating_while(until_lost(&is_lost), creations.run_steps(&request, look, create));
        assert!(timeout(pause / 2, call).await.is_err(), "its caller is gone");
        is_lost.store(true, Relaxed);
        creations.settled(&request.machine).await;
        assert_eq!(cloud.0.load(Relaxed), 0);
        assert_eq!(creations.unknown.lock().contains_key("u"), is_unknown);
        // The next leader of the same process.
        is_lost.store(false, Relaxed);
        creations.unknown.lock().clear();
        let right = until_lost(&is_lost);
        let created = creating_while(right, cloud.create(&creations, &request, Duration::ZERO, None)).await;
        assert_eq!(created.unwrap(), 1);
    }

    #[tokio::test]
    async fn concurrent_and_dropped_calls_create_one_vm() {
        let (cloud, creations, request) = (Cloud::default(), VmCreations::new(SETTLES), request("", true));
        let pause = Duration::from_millis(50);
        let dropped = timeout(Duration::from_millis(5), cloud.create(&creations, &request, pause, None)).await;
        assert!(dropped.is_err(), "its caller is gone");
        let calls = (0..5).map(|_| cloud.create(&creations, &request, pause, None));
        for created in futures::future::join_all(calls).await {
            assert_eq!(created, Ok(1));
        }
        assert!(creations.running.lock().is_empty());
        creations.settled(&request.machine).await;
    }

    #[tokio::test]
    async fn after_an_unknown_outcome_no_request_is_sent_until_it_is_settled() {
        let (cloud, creations) = (Cloud::default(), VmCreations::new(SETTLES));
        let first = cloud.create(&creations, &request("", true), Duration::ZERO, Some(CloudFailure::NoAnswer)).await;
        let error = first.unwrap_err();
        assert_eq!((error.code, error.call_again_in), (Code::DeadlineExceeded, None), "it is shown as a failure");
        let state = error.last_known_state.unwrap();
        let next = cloud.create(&creations, &request(&state, true), Duration::ZERO, None).await.unwrap_err();
        assert_eq!((next.code, next.last_known_state.as_ref()), (Code::Unavailable, Some(&state)));
        assert!(next.call_again_in.is_some_and(|pause| pause <= SETTLES));
        // Another process has only the state.
        let restarted = VmCreations::<usize>::new(SETTLES);
        let error = absence(&restarted, &request(&state, false)).await.unwrap_err();
        assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "who cannot pause gets an error");
        while cloud.create(&creations, &request(&state, true), Duration::ZERO, None).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(cloud.0.load(Relaxed), 1);
        absence(&restarted, &request(&state, true)).await.unwrap();
    }

    #[tokio::test]
    async fn a_look_up_that_began_before_a_request_was_settled_is_not_the_last() {
        let (cloud, creations) = (Cloud::default(), VmCreations::new(SETTLES));
        let first = cloud.create(&creations, &request("", true), Duration::ZERO, Some(CloudFailure::NoAnswer)).await;
        let request = request(&first.unwrap_err().last_known_state.unwrap(), true);
        let number = cloud.0.clone();
        // The cloud carries the first request out right after it has answered the look-up.
        let look = async move {
            sleep(SETTLES).await;
            number.store(1, Relaxed);
            Ok(None)
        };
        let second =
            creations.run(&request, look, async { Ok(2) }, |failure| failure.error("x", &Default::default())).await;
        assert_eq!(second.map_err(|error| error.code), Err(Code::Unavailable));
        assert_eq!(cloud.create(&creations, &request, Duration::ZERO, None).await, Ok(1));
    }

    #[tokio::test]
    async fn a_request_that_the_cloud_refused_is_sent_again_at_once() {
        let (cloud, creations, request) = (Cloud::default(), VmCreations::new(SETTLES), request("", true));
        let refused =
            CloudFailure::Named { code: Code::ResourceExhausted, name: "stock".into(), message: "out".into() };
        let error = cloud.create(&creations, &request, Duration::ZERO, Some(refused)).await.unwrap_err();
        assert_eq!((error.code, error.last_known_state), (Code::ResourceExhausted, None));
        assert_eq!(cloud.create(&creations, &request, Duration::ZERO, None).await, Ok(1));
    }

    #[tokio::test]
    async fn a_step_that_ends_early_blocks_the_next_attempt_only_if_its_outcome_is_unknown() {
        let (creations, request) = (VmCreations::<usize>::new(SETTLES), request("", true));
        let attempt = async |may_have_had_effect| {
            let error = DriverError::not_done("the volume of m is not done yet", SETTLES);
            let ended = async move { Err(UnfinishedCreation { error, may_have_had_effect }) };
            creations.run_steps(&request, async { Ok(None) }, ended).await.unwrap_err()
        };
        assert_eq!(attempt(false).await.last_known_state, None);
        absence(&creations, &request).await.unwrap();
        assert!(attempt(true).await.last_known_state.is_some());
        assert_eq!(absence(&creations, &request).await.unwrap_err().code, Code::Unavailable);
    }

    #[tokio::test]
    async fn a_process_that_finds_the_announcement_of_another_one_waits_until_it_is_settled() {
        let (cloud, first, second) = (Cloud::default(), VmCreations::new(SETTLES), VmCreations::new(SETTLES));
        let paused = first.announce(&request("", true)).unwrap_err();
        assert_eq!((paused.code, paused.call_again_in), (Code::Unavailable, Some(ANNOUNCES)));
        let state = paused.last_known_state.unwrap();
        let again = first.announce(&request("", true)).unwrap_err();
        assert_eq!(again.last_known_state.as_ref(), Some(&state), "the status is not written yet");
        let announced = request(&state, true);
        first.announce(&announced).unwrap();
        assert!(first.is_announced(&announced.machine) && !second.is_announced(&announced.machine));
        absence(&first, &announced).await.expect("the process knows that it has sent nothing");
        // The first process ends here; its request takes effect later.
        second.announce(&announced).unwrap();
        assert_eq!(absence(&second, &announced).await.unwrap_err().code, Code::Unavailable);
        let error = cloud.create(&second, &announced, Duration::ZERO, None).await.unwrap_err();
        assert_eq!((error.code, error.last_known_state), (Code::Unavailable, Some(state)));
        cloud.0.store(1, Relaxed);
        assert_eq!(cloud.create(&second, &announced, Duration::ZERO, None).await, Ok(1), "it is found");
    }

    #[tokio::test]
    async fn an_announcement_is_repeated_before_it_is_old_and_ends_with_an_unknown_outcome() {
        let (cloud, creations) = (Cloud::default(), VmCreations::new(SETTLES));
        let announced = |state: &str| creations.announce(&request(state, true)).unwrap_err().last_known_state.unwrap();
        let first = announced("");
        sleep(SETTLES / 2 + Duration::from_millis(5)).await;
        let second = announced(&first);
        assert_ne!(first, second);
        let request = request(&second, true);
        let lost = cloud.create(&creations, &request, Duration::ZERO, Some(CloudFailure::NoAnswer)).await.unwrap_err();
        assert_ne!(lost.last_known_state, Some(second));
        creations.announce(&request).expect("only the earlier request counts");
        assert_eq!(absence(&creations, &request).await.unwrap_err().code, Code::Unavailable);
    }

    #[test]
    fn a_caller_that_cannot_pause_announces_nothing() {
        VmCreations::<usize>::new(SETTLES).announce(&request("", false)).unwrap();
    }

    #[rstest]
    #[case::new("", false)]
    #[case::of_another_kind("Created metal:///p/u", false)]
    #[case::unreadable("Creation with an unknown outcome at noon", false)]
    #[case::old("Creation with an unknown outcome at 2020-01-01T00:00:00Z", false)]
    #[case::of_a_clock_far_ahead("Creation with an unknown outcome at 2999-01-01T00:00:00Z", false)]
    #[case::now(&format!("{UNKNOWN_SINCE}{}", Timestamp::now()), true)]
    #[tokio::test]
    async fn a_stored_time_counts_while_it_is_recent(#[case] state: &str, #[case] is_unknown: bool) {
        let creations = VmCreations::<usize>::new(Duration::from_secs(60));
        assert_eq!(absence(&creations, &request(state, true)).await.is_err(), is_unknown);
    }
}
