//! Each call of vCenter fails in each way: which code, how many VMs, and the result of the next attempt.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::join_all;
use mcm_driver::{
    Code, DriverError, MachineRequest,
    interface::Driver,
    testing::{
        matrix::{self, Case, During, Outcome, Row, UNKNOWN, look_up, usual, with_state},
        server::{Fault, Reply},
    },
};
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, ROLE, UID, World, code, driver, driver_that_settles, spec, spec_with, unmeasured,
    vcenter::{PASSWORD, VCenter, fault},
    with_id,
};
use crate::VsphereVms;
use mcm_driver::cloud::CloudDriver;

/// A slow simulator is not a fault.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(2);

/// A vCenter, which all cases of a row share, with a driver whose calls end soon, and one that waits. Each case has a cluster and a machine of
/// its own.
struct Matrix {
    world: World,
    failing: CloudDriver<VsphereVms>,
    name: String,
}

impl matrix::Errors for Matrix {
    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => Reply { status: 503, body: "503 Service Unavailable".to_owned() },
            Case::Auth => fault("NotAuthenticated", "The session is not authenticated."),
            Case::Denied => fault("NoPermission", "Permission to perform this operation was denied."),
            Case::StockOut => fault("NoDiskSpace", "There is not enough space."),
            Case::Quota => fault("InsufficientMemoryResourcesFault", "The host does not have sufficient memory."),
            _ => fault("ManagedObjectNotFound", "The object has already been deleted."),
        }
    }
}

#[async_trait]
impl matrix::World for Matrix {
    async fn start(attempt: Duration) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let world = World { vcenter: VCenter::shared().await, driver: driver(Duration::from_secs(20), unmeasured()) };
        let failing = driver(attempt.max(SHORTEST_ATTEMPT), unmeasured());
        Self { world, failing, name: format!("case-{}-", NUMBER.fetch_add(1, Relaxed)) }
    }

    fn driver(&self) -> &dyn Driver {
        &self.failing
    }

    fn patient_driver(&self) -> &dyn Driver {
        &self.world.driver
    }

    fn request(&self) -> MachineRequest {
        let tags = json!({CLUSTER.0: self.name, ROLE.0: ROLE.1, self.name.clone(): "a field that is not defined yet"});
        self.world.request_for(&self.name, &format!("uid-{}", self.name), spec_with(&json!({"tags": tags})))
    }

    fn fail(&self, call: Option<(&'static str, Fault)>) {
        let faults = call.map(|(name, fault)| (name, fault, 99));
        self.world.vcenter.settings.lock().faults = faults.into_iter().collect();
    }

    fn count(&self) -> usize {
        self.world.vcenter.vms_named(&self.name).len()
    }

    fn secrets(&self) -> Vec<&'static str> {
        vec![PASSWORD, "hunter2"]
    }
}

/// A look at a VM, which vCenter may not have any more.
const fn look_at_vm(absent: Option<Code>) -> [Outcome; 10] {
    usual(1, (UNKNOWN, 1), (absent, 1))
}

#[rstest]
#[case(During::Create, "RetrieveServiceContent", look_up(0))]
#[case(During::Create, "Login", look_up(0))]
#[case(During::Create, "FindByInventoryPath", look_up(0))]
#[case(During::Create, "FindChild", look_up(0))]
#[case(During::Create, "RetrievePropertiesEx", look_up(0))]
#[case(During::Create, "template", look_up(0))]
#[case(During::Create, "CloneVM_Task", usual(0, (UNKNOWN, 1), (UNKNOWN, 0)))]
#[case(During::Create, "task", look_up(1))]
#[case(During::Create, "look", look_at_vm(Some(Code::Unavailable)))]
#[case(During::Create, "markers", look_at_vm(Some(Code::Unavailable)))]
#[case(During::Create, "ReconfigVM_Task", look_up(1))]
#[case(During::Create, "UpgradeVM_Task", [(None, 1); 10])]
#[case(During::Create, "AddCustomFieldDef", look_up(1))]
#[case(During::Create, "SetField", look_up(1))]
#[case(During::Create, "PowerOnVM_Task", look_up(1))]
#[case(During::Status, "FindByInventoryPath", look_up(1))]
#[case(During::Status, "FindChild", look_up(1))]
#[case(During::Status, "look", look_at_vm(Some(Code::NotFound)))]
#[case(During::StatusById, "FindAllByUuid", look_up(1))]
#[case(During::StatusById, "look", look_at_vm(Some(Code::NotFound)))]
#[case(During::List, "FindByInventoryPath", look_up(1))]
#[case(During::List, "look", look_up(1))]
#[case(During::Delete, "FindChild", look_up(1))]
#[case(During::Delete, "look", look_at_vm(None))]
#[case(During::DeleteById, "FindAllByUuid", look_up(1))]
#[case(During::Delete, "PowerOffVM_Task", look_up(1))]
#[case(During::Delete, "task", look_up(1))]
#[case(During::Delete, "Destroy_Task", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "Destroy_Task", usual(1, (UNKNOWN, 0), (None, 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<Matrix>(&Row { during, call, outcomes }).await;
}

/// Only a deletion has something to do with two VMs of one Machine. One folder holds one VM of a name, so the other was moved.
#[tokio::test]
async fn a_vm_that_was_moved_is_known_by_its_id() {
    let world = World::new().await;
    let moved = world.put("a", &[CLUSTER, ROLE, (UID, "uid-a")]);
    let elsewhere = world.request_for("a", "uid-a", spec_with(&json!({"folder": "workers/pool"})));
    assert_eq!(world.driver.status(&with_id(elsewhere.clone(), &moved)).await.unwrap().provider_id, moved);
    world.driver.delete(&with_id(elsewhere, &moved)).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_clone_that_is_begun_after_its_time_out_is_not_made_twice() {
    let (mut world, minute) = (World::new().await, Duration::from_secs(60));
    let hasty = driver_that_settles(Duration::from_secs(1), minute, unmeasured());
    world.driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("CloneVM_Task", Fault::Late(Duration::from_secs(4)), 1);
    let request = world.request("a");
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::DeadlineExceeded, 0));
    let request = with_state(request, error.last_known_state.as_deref());
    // The next process neither sends another request nor reports that there is no VM.
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    let vm = create(&world.driver, &request).await;
    assert_eq!((world.count(), world.calls("CloneVM_Task")), (1, 1));
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn an_unknown_outcome_pauses_the_calls_of_controllers() {
    let (world, minute) = (World::new().await, Duration::from_secs(60));
    let driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("CloneVM_Task", Fault::Status(502), 9);
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    let error = driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "the failure is shown");
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.call_again_in.is_some() && error.last_known_state.is_some(), "{error}");
    assert_eq!(world.calls("CloneVM_Task"), 1);
}

/// After a restart nothing remembers the task of a clone.
#[tokio::test]
async fn a_clone_that_another_process_began_is_not_made_twice() {
    let world = World::new().await;
    world.vcenter.change(&json!({"CloneTime": 400}));
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    assert!(world.driver.create(&request).await.unwrap_err().call_again_in.is_some());
    let other = driver(Duration::from_secs(20), unmeasured());
    let request = MachineRequest { may_pause: false, ..request };
    create(&other, &request).await;
    assert_eq!(world.count(), 1);
    assert_eq!(world.vm("a").power, "poweredOn");
}

#[rstest]
#[case::name("name")]
#[case::state("runtime.powerState")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] property: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let entry = |name: &str| format!("<propSet><name>{name}</name><val>x</val></propSet>");
    let rest: String =
        ["name", "runtime.powerState", "config.uuid"].into_iter().filter(|one| *one != property).map(entry).collect();
    let objects = format!(r#"<objects><obj type="VirtualMachine">vm-1</obj>{rest}</objects>"#);
    world.fail("look", Fault::Error(found(&objects)), 99);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

/// An answer of the property collector.
fn found(objects: &str) -> Reply {
    let body = format!(
        r#"<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><e:Body><RetrievePropertiesExResponse xmlns="urn:vim25"><returnval>{objects}</returnval></RetrievePropertiesExResponse></e:Body></e:Envelope>"#
    );
    Reply { status: 200, body }
}

/// A VM that is being made, or whose host is not connected, has no configuration.
#[tokio::test]
async fn a_vm_that_vcenter_cannot_describe_is_not_absent() {
    let world = World::new().await;
    let request = world.request("a");
    let known = with_id(request.clone(), &world.driver.create(&request).await.unwrap().provider_id);
    let key = 7;
    let fields = format!(
        r#"<objects><obj type="CustomFieldsManager">CustomFieldsManager</obj><propSet><name>field</name><val><CustomFieldDef><key>{key}</key><name>kubernetes.io/cluster/shoot</name></CustomFieldDef><CustomFieldDef><key>8</key><name>kubernetes.io/role/node</name></CustomFieldDef></val></propSet></objects>"#
    );
    let value = |key: i32| format!("<CustomFieldValue><key>{key}</key><value>1</value></CustomFieldValue>");
    let vm = format!(
        r#"<objects><obj type="VirtualMachine">vm-1</obj><propSet><name>name</name><val>a</val></propSet><propSet><name>runtime.powerState</name><val>poweredOff</val></propSet><propSet><name>customValue</name><val>{}{}</val></propSet></objects>"#,
        value(key),
        value(8)
    );
    world.fail("look", Fault::Error(found(&(fields + &vm))), 99);
    for request in [&request, &known] {
        assert_eq!(code(world.driver.status(request).await), Code::Unavailable);
        assert_eq!(code(world.driver.delete(request).await), Code::Unavailable);
    }
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unavailable);
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
}

#[tokio::test]
async fn a_property_that_may_not_be_read_is_a_missing_permission() {
    let world = World::new().await;
    let missing = r#"<objects><obj type="VirtualMachine">vm-1</obj><missingSet><path>config.uuid</path><fault><fault xsi:type="NoPermission"/><localizedMessage/></fault></missingSet></objects>"#;
    world.fail("look", Fault::Error(found(missing)), 99);
    let request = world.request("a");
    let error = world.driver.list(&request.class, &request.secret).await.unwrap_err();
    assert!(error.code == Code::PermissionDenied && error.message.contains("config.uuid"), "{error}");
}

#[rstest]
#[case("NotSupported")]
#[case("NotImplemented")]
#[tokio::test]
async fn a_look_up_that_is_not_supported_is_not_an_absence(#[case] name: &str) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    for call in ["FindChild", "FindAllByUuid"] {
        world.fail(call, Fault::Error(fault(name, "no")), 99);
    }
    for request in [with_id(request.clone(), &vm.provider_id), request] {
        assert_eq!(code(world.driver.status(&request).await), Code::Internal);
        assert_eq!(code(world.driver.delete(&request).await), Code::Internal);
    }
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::new().await;
    world.fail("FindChild", Fault::Endless, 9);
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::Unavailable);
    assert_eq!(world.calls("FindChild"), 1);
}

#[rstest]
#[case::vm("FindAllByUuid")]
#[case::page("look")]
#[tokio::test]
async fn the_page_of_a_proxy_is_not_an_absence(#[case] call: &'static str) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail(call, Fault::Status(404), 9);
    assert_eq!(code(world.driver.status(&with_id(request, &vm.provider_id)).await), Code::Unknown);
}

/// Repeats a creation as the controller does, until it succeeds.
async fn create(driver: &dyn Driver, request: &MachineRequest) -> String {
    let mut request = request.clone();
    loop {
        let error = match driver.create(&request).await {
            Ok(vm) => return vm.provider_id,
            Err(error) => error,
        };
        assert!(error.code.is_transient() || error.code == Code::AlreadyExists, "{error}");
        request = with_state(request, error.last_known_state.as_deref());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn two_hundred_machines_get_two_hundred_vms_although_every_tenth_answer_is_lost() {
    let world = World::new().await;
    world.vcenter.settings.lock().lost_every = Some(("CloneVM_Task", 10));
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.count(), world.calls("CloneVM_Task")), (200, 200, 200));
    assert!(world.vcenter.vms().iter().all(|vm| vm.power == "poweredOn" && vm.fields.contains_key(UID)));
    assert!(world.calls("template") < 20, "{} looks at the template", world.calls("template"));
    // Deletions share look-ups in the same way.
    let before = world.calls("look");
    let deleted = requests.iter().map(|request| world.driver.delete(request));
    let failed: Vec<DriverError> = join_all(deleted).await.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.count(), world.calls("Destroy_Task")), (vec![], 0, 200));
    assert!(world.calls("look") - before < 20, "{} look-ups of 200 machines", world.calls("look") - before);
}

#[tokio::test]
async fn a_call_that_is_dropped_does_not_lose_its_vm() {
    let world = World::new().await;
    let driver = Arc::new(driver(Duration::from_secs(20), unmeasured()));
    let request = world.request_for("a", "uid-a", spec());
    world.fail("CloneVM_Task", Fault::Late(Duration::from_millis(200)), 1);
    let creation = tokio::spawn({
        let (driver, request) = (Arc::clone(&driver), request.clone());
        async move { driver.create(&request).await }
    });
    while world.calls("CloneVM_Task") == 0 {
        tokio::task::yield_now().await;
    }
    creation.abort();
    // A deletion waits for the request that is still under way, and for the clone.
    driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("CloneVM_Task"), world.calls("Destroy_Task")), (0, 1, 1));
}
