//! Each call of vCenter fails in each way: which code, how many VMs, and the result of the next attempt.

use mcm_driver::testing::suite::created;
use std::time::Duration;

use mcm_driver::{
    Code, MachineRequest,
    interface::Driver,
    testing::{
        matrix::{self, During, Outcome, Row, UNKNOWN, look_up, usual},
        server::{Fault, Reply},
    },
};
use rstest::rstest;
use serde_json::json;

use super::{CLUSTER, ROLE, UID, World, code, driver, spec_with, unmeasured, vcenter::fault, with_id};

/// A slow simulator is not a fault.
pub(super) const SHORTEST_ATTEMPT: Duration = Duration::from_secs(2);

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
    matrix::check::<World>(&Row { during, call, outcomes }).await;
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

/// After a restart nothing remembers the task of a clone.
#[tokio::test]
async fn a_clone_that_another_process_began_is_not_made_twice() {
    let world = World::new().await;
    world.vcenter.change(&json!({"CloneTime": 400}));
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    assert!(world.driver.create(&request).await.unwrap_err().call_again_in.is_some());
    let other = driver(Duration::from_secs(20), unmeasured());
    let request = MachineRequest { may_pause: false, ..request };
    created(&other, &request).await;
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
