//! The suite that holds each driver of a cloud to the same rules, against a fake of its cloud.
//!
//! A driver implements [`World`] for its fake and lists the cases with [`driver_suite`](crate::driver_suite). A driver without it has
//! no matrix of faults either.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use serde_json::json;

use super::{
    case::Case,
    code,
    server::{Fault, FaultSwitch, Reply},
    with_id,
};
use crate::{Code, Driver, DriverError, ListedVm, MachineRequest};

/// Attempts of a call that is answered: a slow machine is not a fault.
pub const PATIENT: Duration = Duration::from_secs(20);
/// After this time a request without an answer has had its effect.
pub const SETTLES: Duration = Duration::from_millis(400);
/// The pause of a caller that repeats a call.
const PAUSE: Duration = Duration::from_millis(5);
/// The name of a Machine that any cloud takes.
const NAME: &str = "m-1";
/// The Machines of the large cases.
const MACHINES: usize = 200;
/// More look-ups than a case makes.
const FOREVER: usize = 1_000_000;

/// The names of the calls of a fake.
#[derive(Clone, Copy, Debug)]
pub struct CallNames {
    /// A look-up of one VM by the name of its Machine.
    pub look: &'static str,
    /// A look-up of one VM by its ID.
    pub look_by_id: &'static str,
    /// The request that creates a VM.
    pub create: &'static str,
    /// The request that deletes a VM.
    pub delete: &'static str,
}

/// The state in which a cloud shows a VM that it deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionView {
    /// A state of deletions.
    Shown,
    /// The state of a VM that is being stopped.
    AsStop,
    /// The state before the deletion, or none: a deletion takes no time.
    Hidden,
}

/// A fake of a cloud, and drivers for it.
#[async_trait]
pub trait World: Sized + Send + Sync {
    /// The calls of the fake.
    const CALLS: CallNames;
    /// Values that no text may contain.
    const SECRETS: &[&str];
    /// An attempt that ends soon, for calls without an answer. A fake that is slow needs more.
    const SHORT: Duration = Duration::from_millis(300);
    /// The most requests for 200 VMs of which each tenth has no answer. A cloud with idempotency tokens gets some twice.
    const MOST_CREATIONS: usize = MACHINES;

    /// The most look-ups by name of 200 Machines that wait together. A cloud without a list that may be stale has one for each.
    const MOST_LOOKS: usize = MACHINES - 1;

    /// The state in which the cloud shows a VM that it deletes.
    const DELETIONS: DeletionView = DeletionView::Shown;
    /// A provider ID finds a VM with the markers of the class in a place that the class does not name.
    const FOLLOWS_IDS: bool = false;
    /// The place of a class has one VM of a name.
    const HAS_UNIQUE_NAMES: bool = false;

    /// One of the cloud's errors: of throttle, auth, denied, stock-out, quota, and not found.
    fn error(case: Case) -> Reply;

    /// A cloud with room for 300 VMs.
    async fn new() -> Self;

    /// A driver for the same cloud, as another process has it. `attempt` is how long an attempt of a call takes, `settles` how long a
    /// request without an answer may have an effect.
    fn driver_with(&self, attempt: Duration, settles: Duration) -> Box<dyn Driver>;

    /// A request for a Machine of the class, without a UID if it is empty.
    fn request_with(&self, name: &str, uid: &str) -> MachineRequest;

    /// Creates a VM of the class without the driver, for a UID or for none; returns its provider ID.
    fn put_for(&self, name: &str, uid: Option<&str>) -> String;

    /// Creates a VM with the markers of the class for a Machine with this UID, in a region, zone, project or folder that the class does
    /// not name; returns its provider ID.
    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        panic!("the VM {name} of {uid} can be nowhere else")
    }

    /// Attaches a disk of others to a VM, such as a volume; returns its name in the fake.
    fn attach_disk(&self, id: &str) -> String {
        panic!("VM {id} has no disks of others")
    }

    /// A disk of others exists.
    fn has_disk(&self, disk: &str) -> bool {
        panic!("there is no disk {disk}")
    }

    /// Deletions that begin from now on take so many look-ups.
    fn delay_deletions(&self, looks: usize);

    /// Lists that look-ups share do not show a VM any more. A look-up by its ID does. By default no list is shared.
    fn unlist(&self, _: &str) {}

    /// Lets calls fail.
    fn switch(&self) -> &dyn FaultSwitch;

    /// The number of VMs in the cloud, without those that are being deleted.
    fn vms(&self) -> usize;

    /// The number of VMs in the cloud, with those that are being deleted.
    fn remaining(&self) -> usize;

    /// Fails if a request does not fit the description of the API.
    fn check_requests(&self) {}

    /// A cloud for a case of the matrix.
    async fn for_matrix() -> Self {
        Self::new().await
    }

    /// The request of the cases of the matrix.
    fn request_of_matrix(&self) -> MachineRequest {
        self.request_of(NAME)
    }

    /// A request for a Machine of the class.
    fn request_of(&self, name: &str) -> MachineRequest {
        self.request_with(name, &format!("uid-{name}"))
    }

    /// A driver that waits as long as usual.
    fn patient(&self) -> Box<dyn Driver> {
        self.driver_with(PATIENT, SETTLES)
    }
}

/// Registers the cases of the suite as tests of a world: all cases of every cloud, or the listed ones.
#[macro_export]
macro_rules! driver_suite {
    ($world:ty) => {
        $crate::driver_suite! { $world:
            a_call_that_is_dropped_does_not_lose_its_vm
            a_creation_that_is_carried_out_late_leads_to_one_vm
            a_deletion_is_sent_once_however_often_it_is_called
            a_deletion_lasts_until_the_vm_is_gone
            a_vm_of_the_reference_is_found_by_its_name_and_adopted
            a_vm_that_a_shared_list_lacks_is_found_by_its_id
            a_vm_that_is_being_deleted_is_not_taken_for_one_that_runs
            each_call_has_its_answer_to_two_vms
            an_orphan_is_deleted_by_its_name_and_id_alone
            each_of_two_hundred_machines_gets_one_vm_although_every_tenth_answer_is_lost
            an_initialization_is_refused_where_there_is_none
            no_vm_is_doubled_by_a_list_that_spans_the_end_of_a_request
            the_page_of_a_proxy_is_not_an_absence
            the_vm_of_an_earlier_machine_of_that_name_is_left_alone
            without_a_uid_nothing_is_created
        }
    };
    ($world:ty: $($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            $crate::testing::suite::$case::<$world>().await;
        }
    )*};
}

/// The request once the state is stored.
pub fn with_state(mut request: MachineRequest, state: Option<&str>) -> MachineRequest {
    if let Some(state) = state {
        let machine = std::sync::Arc::make_mut(&mut request.machine);
        machine.status.get_or_insert_default().last_known_state = state.to_owned();
    }
    request
}

/// Reads the state of the VM and repeats a creation as the controllers do, until it succeeds; returns the provider ID.
pub async fn created(driver: &dyn Driver, request: &MachineRequest) -> String {
    drop(driver.status(request).await);
    let mut request = request.clone();
    loop {
        let error = match driver.create(&request).await {
            Ok(vm) => return vm.provider_id,
            Err(error) => error,
        };
        assert!(error.code.is_transient(), "{error}");
        request = with_state(request, error.last_known_state.as_deref());
        tokio::time::sleep(PAUSE).await;
    }
}

/// Creates a VM for each request while every tenth answer to a call is lost.
pub async fn create_each<W: World>(world: &W, lost: &'static str, requests: &[MachineRequest]) {
    world.switch().fail_every(lost, 10, Fault::LostAnswer);
    let driver = world.patient();
    let mut ids = join_all(requests.iter().map(|request| created(&*driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.vms()), (requests.len(), requests.len()));
    world.check_requests();
}

/// Deletes the VM of each request.
pub async fn delete_each<W: World>(world: &W, requests: &[MachineRequest]) {
    let driver = world.patient();
    let deleted = join_all(requests.iter().map(|request| driver.delete(request))).await;
    let failed: Vec<DriverError> = deleted.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.vms()), (vec![], 0));
}

/// The request of a controller, whose driver has announced its creation in the status of the Machine.
pub async fn announced(driver: &dyn Driver, request: MachineRequest) -> MachineRequest {
    let request = MachineRequest { may_pause: true, ..request };
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.call_again_in.is_some() && error.code == Code::Unavailable, "{error}");
    with_state(request, error.last_known_state.as_deref())
}

/// Begins to create a VM, and drops the call once `is_begun`.
async fn dropped(driver: &dyn Driver, request: &MachineRequest, is_begun: impl Fn() -> bool) {
    let begun = async {
        while !is_begun() {
            tokio::time::sleep(PAUSE / 5).await;
        }
    };
    tokio::select! {
        biased;
        () = begun => {}
        created = driver.create(request) => drop(created.unwrap()),
    }
}

/// The VM is known by its tags, whatever the caller has seen.
pub async fn a_call_that_is_dropped_does_not_lose_its_vm<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    dropped(&*driver, &request, || world.vms() > 0).await;
    driver.delete(&request).await.unwrap();
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.create)), (0, 1));
}

/// Each outcome of a request is unknown for a while.
async fn settled<W: World>(world: &W) {
    while world.switch().late() > 0 {
        tokio::time::sleep(PAUSE).await;
    }
}

/// The next process creates the VM again, or finds it.
pub async fn a_creation_that_is_carried_out_late_leads_to_one_vm<W: World>() {
    let (world, minute) = (W::new().await, Duration::from_secs(60));
    let attempt = W::SHORT.max(minute / 60);
    let (hasty, next) = (world.driver_with(attempt, minute), world.driver_with(minute, minute));
    world.switch().fail(W::CALLS.create, Fault::Late(3 * attempt), 9);
    let request = world.request_of(NAME);
    let error = hasty.create(&request).await.unwrap_err();
    assert!(error.code.is_transient() && world.switch().late() > 0, "{error}");
    world.switch().clear();
    let id = created(&*next, &with_state(request.clone(), error.last_known_state.as_deref())).await;
    settled(&world).await;
    assert_eq!(world.vms(), 1);
    assert_eq!(next.status(&request).await.unwrap().provider_id, id);
    next.delete(&with_id(request, &id)).await.unwrap();
    assert_eq!(world.vms(), 0);
}

/// The request of a Machine that has the VM of an object of Cluster API.
fn of_infrastructure(mut request: MachineRequest) -> MachineRequest {
    let owner = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": NAME, "uid": "owner", "controller": true,
    });
    let machine = std::sync::Arc::make_mut(&mut request.machine);
    machine.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
    request
}

/// Cluster API deletes the Node as soon as the deletion succeeds, so the kubelet must have ended.
pub async fn a_deletion_lasts_until_the_vm_is_gone<W: World>() {
    for may_pause in [true, false] {
        let world = W::new().await;
        let (driver, request) = (world.patient(), of_infrastructure(world.request_of(NAME)));
        let id = driver.create(&request).await.unwrap().provider_id;
        world.delay_deletions(6);
        let known = with_id(MachineRequest { may_pause, ..request }, &id);
        let mut pauses = 0;
        while let Err(error) = driver.delete(&known).await {
            assert!(may_pause && error.call_again_in.is_some() && pauses < 1000, "{error}");
            pauses += 1;
            tokio::time::sleep(PAUSE).await;
        }
        assert_eq!((world.remaining(), world.switch().calls(W::CALLS.delete)), (0, 1), "pauses: {may_pause}");
    }
}

/// Neither is it an error to call it again.
pub async fn a_deletion_is_sent_once_however_often_it_is_called<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), MachineRequest { may_pause: true, ..world.request_of(NAME) });
    let id = created(&*driver, &request).await;
    world.delay_deletions(FOREVER);
    for request in [request.clone(), with_id(request.clone(), &id), of_infrastructure(with_id(request, &id))] {
        for _ in 0..3 {
            if let Err(error) = driver.delete(&request).await {
                assert!(error.code == Code::Unavailable && error.call_again_in.is_some(), "{error}");
            }
        }
    }
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.delete)), (0, 1));
}

/// Another client, or an earlier process, deletes it.
pub async fn a_vm_that_is_being_deleted_is_not_taken_for_one_that_runs<W: World>() {
    let world = W::new().await;
    let (first, next) = (world.patient(), world.patient());
    let request = MachineRequest { may_pause: true, ..world.request_of(NAME) };
    let id = created(&*first, &request).await;
    world.delay_deletions(FOREVER);
    let known = with_id(request.clone(), &id);
    drop(first.delete(&known).await);
    assert_eq!(world.vms(), 0);
    for request in [&request, &known] {
        match next.status(request).await {
            Ok(vm) => assert!(vm.halted.is_some() || W::DELETIONS == DeletionView::Hidden, "it is shown as running"),
            Err(error) => assert!([Code::NotFound, Code::Unavailable].contains(&error.code), "{error}"),
        }
        if let Err(error) = next.delete(request).await {
            assert!(error.code == Code::Unavailable && error.call_again_in.is_some(), "{error}");
        }
    }
    if W::DELETIONS == DeletionView::Shown {
        assert_eq!(world.switch().calls(W::CALLS.delete), 1);
        match next.create(&request).await {
            Ok(vm) => assert_ne!(vm.provider_id, id, "it is adopted"),
            Err(error) => assert!(error.code.is_transient() || error.code == Code::AlreadyExists, "{error}"),
        }
    }
}

/// It was moved, its tags were changed, or the list is late.
pub async fn a_vm_that_a_shared_list_lacks_is_found_by_its_id<W: World>() {
    let world = W::new().await;
    let driver = world.patient();
    let known: Vec<_> = ["m-1", "m-2"]
        .map(|name| with_id(world.request_of(name), &world.put_for(name, Some(&format!("uid-{name}")))))
        .into();
    world.unlist(&known[1].machine.spec.provider_id);
    for (request, found) in known.iter().zip(join_all(known.iter().map(|request| driver.status(request))).await) {
        assert_eq!(found.unwrap().provider_id, request.machine.spec.provider_id);
    }
    let (status, deleted) = tokio::join!(driver.status(&known[0]), driver.delete(&known[1]));
    assert_eq!((status.map(drop), deleted.map(drop), world.vms()), (Ok(()), Ok(()), 1));
}

/// It has the name, the UID and the markers. Of a cloud where a login has several places.
pub async fn a_vm_in_another_place_is_left_alone<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    let elsewhere = world.put_elsewhere(NAME, "uid-m-1");
    assert_eq!(code(driver.status(&request).await), Code::NotFound);
    assert!(driver.list(&request.class, &request.secret).await.unwrap().is_empty());
    driver.delete(&request).await.unwrap();
    assert_eq!(world.vms(), 1);
    let own = driver.create(&request).await.unwrap().provider_id;
    assert_ne!(own, elsewhere);
    assert_eq!(world.vms(), 2);
    let listed = driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed.into_keys().collect::<Vec<_>>(), std::slice::from_ref(&own));
    drop(driver.delete(&with_id(request.clone(), &elsewhere)).await);
    assert_eq!(world.vms(), if W::FOLLOWS_IDS { 1 } else { 2 });
    assert_eq!(driver.status(&request).await.unwrap().provider_id, own);
}

/// A volume, or a disk that an administrator attached. Of a cloud that ends disks with their VM, or whose driver deletes disks.
pub async fn a_disk_of_others_outlives_the_vm<W: World>() {
    for is_known in [true, false] {
        let world = W::new().await;
        let (driver, request) = (world.patient(), world.request_of(NAME));
        let id = driver.create(&request).await.unwrap().provider_id;
        let disk = world.attach_disk(&id);
        let request = if is_known { with_id(request, &id) } else { request };
        driver.delete(&request).await.unwrap();
        assert_eq!((world.vms(), world.has_disk(&disk)), (0, true), "with its ID: {is_known}");
        let listed = driver.list(&request.class, &request.secret).await.unwrap();
        assert!(listed.is_empty(), "the disk is no orphan: {listed:?}");
    }
}

/// The list is taken before the cloud carries a request out, and its answer comes when the request counts as settled.
pub async fn no_vm_is_doubled_by_a_list_that_spans_the_end_of_a_request<W: World>() {
    let (world, milli) = (W::new().await, Duration::from_millis(1));
    let driver = world.driver_with(PATIENT, 3500 * milli);
    world.switch().fail_every(W::CALLS.create, 10, Fault::LostAndLate(2500 * milli));
    world.switch().fail(W::CALLS.look, Fault::Slow(2000 * milli), FOREVER);
    let requests: Vec<_> = (0..MACHINES).map(|number| world.request_of(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| created(&*driver, request))).await;
    ids.sort();
    ids.dedup();
    settled(&world).await;
    assert_eq!((ids.len(), world.vms()), (MACHINES, MACHINES));
}

/// Of a cloud whose requests nothing identifies.
pub async fn a_deletion_waits_for_the_request_of_a_dropped_call<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    world.switch().fail(W::CALLS.create, Fault::Late(Duration::from_millis(200)), 1);
    dropped(&*driver, &request, || world.switch().calls(W::CALLS.create) > 0).await;
    driver.delete(&request).await.unwrap();
    let calls = [W::CALLS.create, W::CALLS.delete].map(|call| world.switch().calls(call));
    assert_eq!((world.vms(), calls), (0, [1, 1]));
}

/// A refusal has had no effect. Of a cloud that throttles by its own errors.
pub async fn a_throttled_creation_is_repeated_within_the_call<W: World>() {
    let world = W::new().await;
    world.switch().fail(W::CALLS.create, Fault::Error(W::error(Case::Throttle)), 1);
    world.patient().create(&world.request_of(NAME)).await.unwrap();
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.create)), (1, 2));
}

/// VMs of the reference have no UID.
pub async fn a_vm_of_the_reference_is_found_by_its_name_and_adopted<W: World>() {
    let world = W::new().await;
    let (id, driver, request) = (world.put_for(NAME, None), world.patient(), world.request_of(NAME));
    assert_eq!(driver.create(&request).await.unwrap().provider_id, id);
    assert_eq!(driver.status(&request).await.unwrap().provider_id, id);
    assert_eq!(world.switch().calls(W::CALLS.create), 0);
    let listed = driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(id, ListedVm::unmarked(NAME))].into());
    driver.delete(&request).await.unwrap();
    assert_eq!(world.vms(), 0);
}

/// It would fill the memory.
pub async fn an_answer_without_end_is_given_up<W: World>() {
    let world = W::new().await;
    world.switch().fail(W::CALLS.look, Fault::Endless, 9);
    assert_eq!(code(world.patient().status(&world.request_of(NAME)).await), Code::Unavailable);
    assert_eq!(world.switch().calls(W::CALLS.look), 1);
}

/// The Machine of an orphan does not exist any more.
pub async fn an_orphan_is_deleted_by_its_name_and_id_alone<W: World>() {
    let world = W::new().await;
    let driver = world.patient();
    let vm = driver.create(&world.request_of(NAME)).await.unwrap();
    driver.delete(&with_id(world.request_with(NAME, ""), &vm.provider_id)).await.unwrap();
    assert_eq!(world.vms(), 0);
}

/// No third is created. Only a deletion has something to do with two VMs of one Machine, and it deletes both.
pub async fn each_call_has_its_answer_to_two_vms<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    let first = world.put_for(NAME, Some("uid-m-1"));
    if W::HAS_UNIQUE_NAMES {
        return of_two_vms_one_is_elsewhere(&world, &request, &first).await;
    }
    let second = world.put_for(NAME, Some("uid-m-1"));
    for error in [driver.create(&request).await.unwrap_err(), driver.status(&request).await.unwrap_err()] {
        assert_eq!((error.code, world.vms()), (Code::OutOfRange, 2));
        assert!(error.message.contains(r#"machine "m-1" has several VMs: "#), "{error}");
    }
    let listed = driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed.into_keys().collect::<BTreeSet<_>>(), [first.clone(), second].into());
    assert_eq!(driver.status(&with_id(request.clone(), &first)).await.unwrap().provider_id, first);
    driver.delete(&request).await.unwrap();
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.create)), (0, 0));
}

/// The class had another place once. Only a provider ID may lead there.
async fn of_two_vms_one_is_elsewhere<W: World>(world: &W, request: &MachineRequest, first: &str) {
    let (driver, second) = (world.patient(), world.put_elsewhere(NAME, "uid-m-1"));
    assert_eq!(driver.create(request).await.unwrap().provider_id, first);
    assert_eq!(driver.status(request).await.unwrap().provider_id, first);
    let listed = driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed.into_keys().collect::<Vec<_>>(), [first]);
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.create)), (2, 0));
    driver.delete(request).await.unwrap();
    assert_eq!(world.vms(), 1);
    drop(driver.delete(&with_id(request.clone(), &second)).await);
    assert_eq!(world.vms(), usize::from(!W::FOLLOWS_IDS));
}

/// Neither a second VM nor a lost one, and few look-ups.
pub async fn each_of_two_hundred_machines_gets_one_vm_although_every_tenth_answer_is_lost<W: World>() {
    let world = W::new().await;
    let calls = |call| world.switch().calls(call);
    let requests: Vec<_> = (0..MACHINES).map(|number| world.request_of(&format!("m-{number}"))).collect();
    create_each(&world, W::CALLS.create, &requests).await;
    let (creations, looks) = (calls(W::CALLS.create), calls(W::CALLS.look));
    assert!((MACHINES..=W::MOST_CREATIONS).contains(&creations), "{creations} creations of {MACHINES} VMs");
    delete_each(&world, &requests).await;
    let later = calls(W::CALLS.look) - looks;
    assert!(looks <= W::MOST_LOOKS && later <= W::MOST_LOOKS, "{looks} and {later} look-ups of {MACHINES} VMs");
    assert_eq!(calls(W::CALLS.delete), MACHINES);
}

/// Controllers call it only where a driver has it.
pub async fn an_initialization_is_refused_where_there_is_none<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    // The capabilities of a driver in another process come before the answer of its first call.
    drop(driver.status(&request).await);
    if !driver.capabilities().initialize {
        assert_eq!(code(driver.initialize(&request).await), Code::Unimplemented);
    }
}

/// A list for all of them costs as much as a look-up of one. Of a cloud that has such a list.
pub async fn machines_that_wait_together_share_their_look_ups<W: World>() {
    let world = W::new().await;
    let driver = world.patient();
    let looks = || world.switch().calls(W::CALLS.look) + world.switch().calls(W::CALLS.look_by_id);
    let requests: Vec<_> = (0..20).map(|number| world.request_of(&format!("m-{number}"))).collect();
    let found = join_all(requests.iter().map(|request| driver.status(request))).await;
    assert!(found.into_iter().all(|found| code(found) == Code::NotFound));
    assert!(looks() <= 10, "{} look-ups", looks());
    let created = join_all(requests.iter().map(|request| driver.create(request))).await;
    let ids = created.into_iter().map(|vm| vm.unwrap().provider_id);
    let known: Vec<_> = requests.into_iter().zip(ids).map(|(request, id)| with_id(request, &id)).collect();
    let before = looks();
    for found in join_all(known.iter().map(|request| driver.status(request))).await {
        found.unwrap();
    }
    assert!(looks() - before <= 10, "{} look-ups by ID", looks() - before);
}

/// Only an answer of the cloud proves which VMs exist.
pub async fn the_page_of_a_proxy_is_not_an_absence<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    let known = with_id(request.clone(), &driver.create(&request).await.unwrap().provider_id);
    for (call, request) in [(W::CALLS.look_by_id, known), (W::CALLS.look, request)] {
        world.switch().fail(call, Fault::Status(404), 99);
        assert_eq!(code(driver.status(&request).await), Code::Unknown);
        assert_eq!((code(driver.delete(&request).await), world.vms()), (Code::Unknown, 1));
        world.switch().clear();
    }
}

/// Its Machine may still have it.
pub async fn the_vm_of_an_earlier_machine_of_that_name_is_left_alone<W: World>() {
    let world = W::new().await;
    let (driver, request) = (world.patient(), world.request_of(NAME));
    let earlier = world.put_for(NAME, Some("earlier"));
    assert_eq!(code(driver.status(&request).await), Code::NotFound);
    driver.delete(&request).await.unwrap();
    match driver.create(&request).await {
        Ok(vm) => assert_ne!(vm.provider_id, earlier),
        Err(error) => assert_eq!(error.code, Code::AlreadyExists, "{error}"),
    }
    // A Machine that was restored has a new UID and its provider ID.
    let restored = with_id(world.request_with(NAME, "restored"), &earlier);
    assert_eq!(driver.status(&restored).await.unwrap().provider_id, earlier);
}

/// A repeated creation could not be told from another.
pub async fn without_a_uid_nothing_is_created<W: World>() {
    let world = W::new().await;
    assert_eq!(code(world.patient().create(&world.request_with(NAME, "")).await), Code::InvalidArgument);
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.create)), (0, 0));
}

/// The next process neither sends another request nor reports that there is no VM. Of a cloud whose requests nothing identifies.
pub async fn a_creation_that_is_carried_out_after_its_time_out_is_not_made_twice<W: World>() {
    let (world, minute) = (W::new().await, Duration::from_secs(60));
    let hasty = world.driver_with(Duration::from_secs(1), minute);
    let next = world.driver_with(minute, minute);
    world.switch().fail(W::CALLS.create, Fault::Late(Duration::from_secs(4)), 9);
    let request = world.request_of(NAME);
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.vms()), (Code::DeadlineExceeded, 0));
    world.switch().clear();
    let request = with_state(request, error.last_known_state.as_deref());
    assert_eq!(code(next.create(&request).await), Code::Unavailable);
    assert_eq!(code(next.status(&request).await), Code::Unavailable);
    assert_eq!(code(next.delete(&request).await), Code::Unavailable);
    let sent = world.switch().calls(W::CALLS.create);
    let id = created(&*next, &request).await;
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.create)), (1, sent));
    assert_eq!(next.status(&request).await.unwrap().provider_id, id);
    next.delete(&request).await.unwrap();
    assert_eq!(world.vms(), 0);
}

/// The failure is shown once, and then the controllers wait. Of a cloud that would take two requests.
pub async fn an_unknown_outcome_pauses_the_calls_of_controllers<W: World>() {
    let (world, minute) = (W::new().await, Duration::from_secs(60));
    let driver = world.driver_with(minute, minute);
    world.switch().fail(W::CALLS.create, Fault::Status(502), 9);
    let mut request = MachineRequest { may_pause: true, ..world.request_of(NAME) };
    let mut error = driver.create(&request).await.unwrap_err();
    if error.call_again_in.is_some() {
        request = with_state(request, error.last_known_state.as_deref());
        error = driver.create(&request).await.unwrap_err();
    }
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "the failure is shown");
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.call_again_in.is_some() && error.last_known_state.is_some(), "{error}");
    assert_eq!(world.switch().calls(W::CALLS.create), 1);
}

/// A process is killed before it sends a request that it announced, and another one takes over.
pub async fn the_next_process_waits_for_a_request_that_was_announced<W: World>() {
    let (world, second) = (W::new().await, Duration::from_secs(1));
    let first = world.driver_with(60 * second, second);
    let request = announced(&*first, world.request_of(NAME)).await;
    assert_eq!(world.switch().calls(W::CALLS.create), 0, "the status comes first");
    takes_over(&world, request).await;
}

/// The same for a request that is carried out.
pub async fn the_next_process_waits_for_a_request_that_is_under_way<W: World>() {
    let (world, second) = (W::new().await, Duration::from_secs(1));
    let first = world.driver_with(60 * second, second);
    let request = announced(&*first, world.request_of(NAME)).await;
    world.switch().fail(W::CALLS.create, Fault::Late(second / 2), 1);
    dropped(&*first, &request, || world.switch().calls(W::CALLS.create) > 0).await;
    takes_over(&world, request).await;
}

/// Another process creates the VM of a Machine whose request was announced.
async fn takes_over<W: World>(world: &W, mut request: MachineRequest) {
    let second = Duration::from_secs(1);
    let other = world.driver_with(60 * second, second);
    let stored = request.machine.status.as_ref().map(|status| status.last_known_state.clone());
    assert_eq!(code(other.status(&request).await), Code::Unavailable);
    let mut error = other.create(&request).await.unwrap_err();
    assert_eq!(error.last_known_state, stored);
    loop {
        assert!(error.call_again_in.is_some(), "{error}");
        request = with_state(request, error.last_known_state.as_deref());
        tokio::time::sleep(PAUSE).await;
        error = match other.create(&request).await {
            Ok(_) => break,
            Err(error) => error,
        };
    }
    assert_eq!((world.vms(), world.switch().calls(W::CALLS.create)), (1, 1));
}
