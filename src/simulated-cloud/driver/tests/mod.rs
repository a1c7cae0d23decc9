//! The cloud as its drivers see it: each test runs against a cloud in the process and against one behind HTTP.

mod conformance;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};

use super::SimulatedDriver;
use crate::{
    CloudSimulator, CreateVm, KillMode, KillRequest, SimulatedCloudClient, SimulationSettings, VmState, VolumesRequest,
    router,
};
use mcm_api::{
    load_balancer::{LoadBalancer, Simulated},
    machine::{Machine, MachineClass},
};
use mcm_driver::{
    Code, Driver, DriverError, DriverOperation, ListedVm, MachineRequest, SecretData, Vm, VmsByProviderId,
};

#[derive(Clone, Copy, Debug)]
enum Way {
    Embedded,
    Http,
}

fn remote(address: &str) -> SimulatedDriver {
    SimulatedDriver::new(Arc::new(SimulatedCloudClient::new(address).unwrap()))
}

async fn driver(way: Way, cloud: &Arc<CloudSimulator>) -> SimulatedDriver {
    match way {
        Way::Embedded => SimulatedDriver::new(Arc::clone(cloud) as _),
        Way::Http => remote(&serve_http(cloud).await),
    }
}

async fn serve_http(cloud: &Arc<CloudSimulator>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router(Arc::clone(cloud))).into_future());
    format!("http://{address}")
}

fn cloud(control: Value) -> Arc<CloudSimulator> {
    let cloud = CloudSimulator::new(1, SimulationSettings::default());
    cloud.replace_control(control).unwrap();
    Arc::new(cloud)
}

fn request_for(name: &str, uid: &str, spec: Value) -> MachineRequest {
    let mut machine = Machine::default();
    machine.metadata.name = Some(name.into());
    machine.metadata.namespace = Some("ns".into());
    machine.metadata.uid = Some(uid.into()).filter(|uid: &String| !uid.is_empty());
    let mut class = MachineClass { provider: "simulated".into(), provider_spec: spec, ..MachineClass::default() };
    class.metadata.name = Some("class".into());
    class.metadata.namespace = Some("ns".into());
    let secret = SecretData([("userData".to_owned(), b"top secret".to_vec())].into());
    MachineRequest {
        machine: Arc::new(machine),
        class: Arc::new(class),
        secret,
        owner: "team-a".to_owned(),
        may_pause: false,
    }
}

fn of_team_a(machine: &str) -> ListedVm {
    ListedVm::new(machine, Some("team-a".to_owned()))
}

fn request(name: &str) -> MachineRequest {
    request_for(name, &format!("uid-{name}"), json!({}))
}

fn with_id(mut request: MachineRequest, provider_id: &str) -> MachineRequest {
    Arc::make_mut(&mut request.machine).spec.provider_id = provider_id.into();
    request
}

fn code<T: std::fmt::Debug>(result: Result<T, DriverError>) -> Code {
    result.unwrap_err().code
}

async fn list(driver: &SimulatedDriver) -> VmsByProviderId {
    let request = request("any");
    driver.list(&request.class, &request.secret).await.unwrap()
}

fn create_vm(machine: &str, token: &str) -> CreateVm {
    CreateVm { machine_name: machine.into(), namespace: "ns".into(), token: token.into(), ..CreateVm::default() }
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn a_vm_lives_from_create_to_delete(#[case] way: Way) {
    let cloud = cloud(json!({}));
    let driver = driver(way, &cloud).await;
    assert_eq!(code(driver.status(&request("a")).await), Code::NotFound);
    let vm = driver.create(&request("a")).await.unwrap();
    assert!(vm.provider_id.starts_with("simulated:///simulated-a/vm-"), "{}", vm.provider_id);
    assert_eq!(vm.node_name, "a");
    assert_eq!(vm.addresses.len(), 2);
    assert_eq!(driver.status(&request("a")).await.unwrap(), vm);
    assert_eq!(driver.status(&with_id(request("a"), &vm.provider_id)).await.unwrap(), vm);
    assert_eq!(list(&driver).await, [(vm.provider_id.clone(), of_team_a("a"))].into());
    assert_eq!(driver.delete(&with_id(request("a"), &vm.provider_id)).await.unwrap(), None);
    assert_eq!(list(&driver).await, VmsByProviderId::new());
    assert_eq!(code(driver.status(&with_id(request("a"), &vm.provider_id)).await), Code::NotFound);
    driver.delete(&request("a")).await.expect("nothing there is success");
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn an_operation_that_takes_long_is_called_again(#[case] way: Way) {
    let fault = json!({"operation": "create", "callAgainIn": "3s", "message": "the VM is being created", "count": 2});
    let cloud = cloud(json!({"faults": [fault]}));
    let driver = driver(way, &cloud).await;
    let may_pause = MachineRequest { may_pause: true, ..request("a") };
    let paused = driver.create(&may_pause).await.unwrap_err();
    assert_eq!(paused, DriverError::not_done("the VM is being created", Duration::from_secs(3)));
    let must_not = driver.create(&request("a")).await.unwrap_err();
    assert_eq!(must_not, DriverError { call_again_in: None, ..paused });
    driver.create(&may_pause).await.unwrap();
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn creation_with_one_token_makes_one_vm_however_often_and_at_once(#[case] way: Way) {
    let cloud = cloud(json!({"latency": {"create": "50ms"}}));
    let driver = driver(way, &cloud).await;
    let request = request("a");
    let vms: Vec<Vm> =
        join_all((0..20).map(|_| driver.create(&request))).await.into_iter().map(Result::unwrap).collect();
    assert!(vms.iter().all(|vm| Some(vm) == vms.first()));
    assert_eq!(cloud.stats().created, 1);
    assert_eq!(code(driver.create(&request_for("a", "other", json!({}))).await), Code::AlreadyExists);
    assert_eq!(code(driver.create(&request_for("b", "uid-a", json!({}))).await), Code::AlreadyExists);
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn a_lost_reply_leaves_the_vm_which_the_next_call_finds(#[case] way: Way) {
    let cloud = cloud(json!({"faults": [{"operation": "create", "lostReply": true, "count": 1}]}));
    let driver = driver(way, &cloud).await;
    assert_eq!(code(driver.create(&request("a")).await), Code::Unknown);
    let found = driver.status(&request("a")).await.unwrap();
    assert_eq!(driver.create(&request("a")).await.unwrap(), found);
    assert_eq!(cloud.stats().created, 1);
}

#[tokio::test(start_paused = true)]
async fn creation_and_deletion_go_on_when_their_callers_give_up() {
    let cloud = cloud(json!({}));
    let spec = json!({"createLatency": "10s", "deleteLatency": "10s"});
    let request = request_for("a", "uid", spec);
    let driver = driver(Way::Embedded, &cloud).await;
    let second = Duration::from_secs(1);
    tokio::time::timeout(second, driver.create(&request)).await.unwrap_err();
    assert_eq!(cloud.state().vms.first().map(|vm| vm.state), Some(VmState::Creating));
    tokio::time::sleep(second * 9).await;
    assert_eq!(cloud.state().vms.first().map(|vm| vm.state), Some(VmState::Running));

    tokio::time::timeout(second, driver.delete(&request)).await.unwrap_err();
    assert_eq!(cloud.state().vms.first().map(|vm| vm.state), Some(VmState::Deleting));
    assert_eq!(code(driver.create(&request).await), Code::Aborted);
    tokio::time::sleep(second * 9).await;
    assert_eq!(cloud.state().vms, []);
}

#[tokio::test(start_paused = true)]
async fn a_second_caller_waits_no_longer_than_the_first() {
    let cloud = cloud(json!({"latency": {"create": "4s", "delete": "6s", "boot": "2s"}}));
    let driver = driver(Way::Embedded, &cloud).await;
    let start = Instant::now();
    let late = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
    let create = async {
        late(3).await;
        driver.create(&request("a")).await
    };
    let request_a = request("a");
    let (first, second) = tokio::join!(driver.create(&request_a), create);
    assert_eq!((first.unwrap(), start.elapsed().as_secs()), (second.unwrap(), 4));
    assert_eq!(cloud.state().vms.first().map(|vm| vm.state), Some(VmState::Booting));
    let delete = async {
        late(5).await;
        driver.delete(&request("a")).await
    };
    let (first, second) = tokio::join!(driver.delete(&request_a), delete);
    assert_eq!((first, second, start.elapsed().as_secs()), (Ok(None), Ok(None), 10));
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_killed_while_it_is_made_is_not_reported_as_made() {
    let cloud = cloud(json!({"latency": {"create": "4s"}}));
    let driver = driver(Way::Embedded, &cloud).await;
    let kill = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let id = cloud.state().vms.first().map(|vm| vm.id.clone()).unwrap();
        cloud.kill(&id, KillRequest { mode: KillMode::Vanish }).unwrap();
    };
    let request = request("a");
    let (outcome, ()) = tokio::join!(driver.create(&request), kill);
    assert_eq!(code(outcome), Code::Aborted);
}

#[tokio::test]
async fn quotas_count_what_is_not_gone_of_their_zone_and_type() {
    let quotas = json!({"quotas": [{"limit": 3}, {"zone": "a", "instanceType": "large", "limit": 1}]});
    let cloud = cloud(quotas);
    let driver = driver(Way::Embedded, &cloud).await;
    let make = async |name: &str, zone: &str| {
        let spec = json!({"zone": zone, "instanceType": "large"});
        driver.create(&request_for(name, name, spec)).await.map(drop).map_err(|error| (error.code, error.message))
    };
    let used_up = |text: &str| Err((Code::ResourceExhausted, text.to_owned()));
    assert_eq!(make("1", "a").await, Ok(()));
    let text = r#"the quota of 1 VMs of instance type "large" in zone "a" is used up"#;
    assert_eq!(make("2", "a").await, used_up(text));
    assert_eq!(make("3", "b").await, Ok(()));
    assert_eq!(make("4", "b").await, Ok(()));
    let text = r#"the quota of 3 VMs of instance type "*" in zone "*" is used up"#;
    assert_eq!(make("5", "b").await, used_up(text));
    assert_eq!(make("1", "a").await, Ok(()), "a repeated call is not one VM more");
    driver.delete(&request("1")).await.unwrap();
    assert_eq!(make("2", "a").await, Ok(()));
    let stats = cloud.stats();
    assert_eq!((stats.created, stats.deleted, stats.alive, stats.max_alive), (4, 1, 3, 3));
}

#[tokio::test]
async fn many_creations_at_once_do_not_exceed_a_quota() {
    let cloud = cloud(json!({"quotas": [{"limit": 7}], "latency": {"create": "5ms"}}));
    let driver = driver(Way::Embedded, &cloud).await;
    let made = join_all((0..50).map(async |number| driver.create(&request(&format!("m-{number}"))).await)).await;
    assert_eq!(made.iter().filter(|result| result.is_ok()).count(), 7);
    assert_eq!(cloud.stats().max_alive, 7);
}

#[tokio::test]
async fn a_stock_out_ends_when_it_is_taken_away() {
    let cloud = cloud(json!({"stockOuts": [{"zone": "simulated-*"}]}));
    let driver = driver(Way::Embedded, &cloud).await;
    let error = driver.create(&request("a")).await.unwrap_err();
    assert_eq!(error.message, r#"instance type "standard" is out of stock in zone "simulated-a""#);
    assert_eq!(error.code, Code::ResourceExhausted);
    cloud.patch_control(json!({"stockOuts": null})).unwrap();
    driver.create(&request("a")).await.unwrap();
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn every_code_reaches_the_caller_with_its_text_and_state(#[case] way: Way) {
    let cloud = cloud(json!({}));
    let driver = driver(way, &cloud).await;
    for code in Code::ALL {
        let fault = json!({"code": code.as_str(), "message": format!("text of {code}"), "lastKnownState": "half"});
        cloud.replace_control(json!({"faults": [fault]})).unwrap();
        let expected = DriverError {
            last_known_state: Some("half".to_owned()),
            ..DriverError::new(code, format!("text of {code}"))
        };
        let request = request_for("a", "uid", json!({"initialize": true}));
        let with_id = with_id(request.clone(), "simulated:///z/vm-1");
        assert_eq!(driver.create(&request).await.as_ref(), Err(&expected));
        assert_eq!(driver.status(&request).await.as_ref(), Err(&expected));
        assert_eq!(driver.delete(&request).await.as_ref(), Err(&expected));
        assert_eq!(driver.initialize(&with_id).await.as_ref(), Err(&expected));
        assert_eq!(driver.list(&request.class, &request.secret).await.as_ref(), Err(&expected));
    }
    assert_eq!(cloud.stats().created, 0, "a fault that loses no reply prevents the operation");
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn a_vm_that_needs_it_is_uninitialized_until_it_is_initialized(#[case] way: Way) {
    let cloud = cloud(json!({}));
    let driver = driver(way, &cloud).await;
    let request = request_for("a", "uid", json!({"initialize": true}));
    let vm = driver.create(&request).await.unwrap();
    let error = driver.status(&request).await.unwrap_err();
    assert_eq!((error.code, error.vm), (Code::Uninitialized, Some(Box::new(vm.clone()))));
    assert_eq!(driver.initialize(&request).await.unwrap(), vm, "found by name when the ID is not stored yet");
    assert_eq!(driver.status(&request).await.unwrap(), vm);
    assert_eq!(driver.initialize(&with_id(request, &vm.provider_id)).await.unwrap(), vm);
    let plain = request_for("b", "uid-b", json!({}));
    assert_eq!(code(driver.initialize(&plain).await), Code::Unimplemented);
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn several_vms_of_a_machine_are_told_apart_by_id_and_deleted_together_by_name(#[case] way: Way) {
    let cloud = cloud(json!({}));
    let driver = driver(way, &cloud).await;
    let first = cloud.create(&create_vm("a", "")).await.unwrap();
    cloud.create(&create_vm("a", "")).await.unwrap();
    let error = driver.status(&request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::OutOfRange);
    assert!(error.message.contains(&first.id), "{}", error.message);
    driver.status(&with_id(request("a"), &first.provider_id)).await.unwrap();
    driver.delete(&with_id(request("a"), &first.provider_id)).await.unwrap();
    driver.status(&request("a")).await.unwrap();
    cloud.create(&create_vm("a", "")).await.unwrap();
    driver.delete(&request("a")).await.unwrap();
    assert_eq!(cloud.stats().alive, 0);
}

#[rstest]
#[case(Way::Embedded)]
#[case(Way::Http)]
#[tokio::test]
async fn vms_of_another_cluster_are_neither_seen_nor_deleted(#[case] way: Way) {
    let cloud = cloud(json!({}));
    let ours = driver(way, &cloud).await;
    let theirs = driver(way, &cloud).await.with_cluster("other & co");
    let vm = theirs.create(&request("a")).await.unwrap();
    assert_eq!(code(ours.status(&with_id(request("a"), &vm.provider_id)).await), Code::NotFound);
    ours.delete(&with_id(request("a"), &vm.provider_id)).await.unwrap();
    ours.delete(&request("a")).await.unwrap();
    assert_eq!(list(&ours).await, VmsByProviderId::new());
    assert_eq!(list(&theirs).await, [(vm.provider_id, of_team_a("a"))].into());
    ours.create(&request("a")).await.expect("the same name and token in another cluster are another machine");
}

#[tokio::test]
async fn a_class_is_checked_and_a_request_that_cannot_be_safe_is_refused() {
    let driver = driver(Way::Embedded, &cloud(json!({}))).await;
    let error = driver.validate(&request_for("a", "uid", json!({"zone": 7})).class).to_result().unwrap_err();
    assert_eq!(
        error.to_string(),
        "machine codes error: code = [InvalidArgument] message = [providerSpec.zone: expected a non-empty string, found the number 7]"
    );
    let foreign = MachineClass { provider: "AWS".into(), ..MachineClass::default() };
    assert_eq!(driver.validate(&foreign).error_text(), r#"provider: expected simulated, found "AWS""#);
    assert_eq!(code(driver.create(&request_for("a", "", json!({}))).await), Code::InvalidArgument);
    let error = driver.delete(&with_id(request("a"), "aws:///eu/i-1")).await.unwrap_err();
    let text =
        r#"machine "a" has provider ID "aws:///eu/i-1", which is not an ID of driver simulated: check its class"#;
    assert_eq!((error.code, error.message.as_str()), (Code::InvalidArgument, text));
}

#[tokio::test]
async fn csi_volumes_have_their_handles_as_ids_and_others_none() {
    let driver = driver(Way::Embedded, &cloud(json!({}))).await;
    let specs: Vec<_> = [
        json!({"csi": {"driver": "simulated.csi.mcm.dev", "volumeHandle": "vol-1"}}),
        json!({"hostPath": {"path": "/tmp"}}),
        json!({"csi": {"driver": "other", "volumeHandle": "vol-2"}}),
        json!({"csi": {"driver": "other", "volumeHandle": ""}}),
    ]
    .into_iter()
    .map(|spec| serde_json::from_value(spec).unwrap())
    .collect();
    assert_eq!(driver.volume_ids(&specs).await.unwrap(), ["vol-1", "vol-2"]);
}

#[tokio::test]
async fn a_refused_connection_proves_that_nothing_was_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let driver = remote(&address);
    let error = driver.create(&request("a")).await.unwrap_err();
    let text = format!("cannot connect to the simulated cloud at {address}: check that it is running");
    assert_eq!((error.code, error.message), (Code::Unavailable, text));
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_the_outcome_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let driver = remote(&listener.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 16]).await.unwrap();
        }
    });
    assert_eq!(code(driver.status(&request("a")).await), Code::Unknown);
}

#[tokio::test]
async fn not_found_from_another_account_does_not_prove_the_absence_of_a_vm() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let driver = remote(&listener.local_addr().unwrap().to_string());
    tokio::spawn(axum::serve(listener, axum::Router::new()).into_future());
    assert_eq!(code(driver.status(&request("a")).await), Code::Unknown);
    assert_eq!(code(driver.delete(&request("a")).await), Code::Unknown);
}

#[rstest]
#[case("https://127.0.0.1:1")]
#[case("http://")]
#[case("")]
fn an_address_that_is_none_is_refused(#[case] address: &str) {
    let text = SimulatedCloudClient::new(address).unwrap_err().to_string();
    assert!(text.ends_with("use one such as http://127.0.0.1:10270"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_throttle_fail_without_effect() {
    let cloud = cloud(json!({"throttle": {"callsPerSecond": 2, "code": "ResourceExhausted"}}));
    let driver = driver(Way::Embedded, &cloud).await;
    driver.create(&request("a")).await.unwrap();
    driver.create(&request("b")).await.unwrap();
    let error = driver.create(&request("c")).await.unwrap_err();
    let text = "more than 2 calls per second: retry later";
    assert_eq!((error.code, error.message.as_str()), (Code::ResourceExhausted, text));
    tokio::time::sleep(Duration::from_millis(500)).await;
    driver.create(&request("c")).await.unwrap();
    let calls = cloud.stats().calls.remove(&DriverOperation::Create).unwrap();
    assert_eq!((calls.total, calls.failed), (4, [("ResourceExhausted".to_owned(), 1)].into()));
}

#[tokio::test(start_paused = true)]
async fn a_slow_fault_delays_and_then_lets_the_call_through() {
    let cloud = cloud(json!({"faults": [{"operation": "status", "machines": "a*", "latency": "3s"}]}));
    let driver = driver(Way::Embedded, &cloud).await;
    driver.create(&request("a")).await.unwrap();
    let start = Instant::now();
    driver.status(&request("a")).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn a_restarted_cloud_keeps_its_vms_and_completes_operations() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let open = || Arc::new(CloudSimulator::open(&path, 1, SimulationSettings::default()).unwrap());
    let cloud = open();
    let before = driver(Way::Embedded, &cloud).await;
    let vm = before.create(&request("a")).await.unwrap();
    let killed = cloud.create(&create_vm("k", "uid-k")).await.unwrap();
    cloud.kill(&killed.id, KillRequest::default()).unwrap();
    let condition = json!({"type": "KernelDeadlock", "status": "True"});
    cloud.set_condition(&killed.id, serde_json::from_value(condition).unwrap()).unwrap();
    let volumes = VolumesRequest { attach: vec!["v".into()], detach: Vec::new() };
    cloud.set_volumes(&killed.id, &volumes).unwrap();
    let slow = request_for("s", "uid-s", json!({"createLatency": "1h"}));
    tokio::time::timeout(Duration::from_millis(1), before.create(&slow)).await.unwrap_err();
    let going = request_for("g", "uid-g", json!({"deleteLatency": "1ms"}));
    before.create(&going).await.unwrap();
    drop(tokio::spawn(async move { before.delete(&going).await }).await);
    let state = cloud.state();
    assert_eq!(state.vms.len(), 3);

    let cloud = open();
    assert_eq!(cloud.state(), state);
    let after = driver(Way::Embedded, &cloud).await;
    assert_eq!(after.create(&request("a")).await.unwrap(), vm);
    assert_eq!(cloud.stats().created, 0);
    let stopped = cloud.state().vms.into_iter().find(|vm| vm.machine_name == "k").unwrap();
    assert_eq!((stopped.state, stopped.volumes, stopped.conditions.len()), (VmState::Stopped, vec!["v".to_owned()], 1));
}

#[tokio::test]
async fn user_data_is_nowhere_in_the_cloud() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let cloud = Arc::new(CloudSimulator::open(&path, 1, SimulationSettings::default()).unwrap());
    driver(Way::Http, &cloud).await.create(&request("a")).await.unwrap();
    let shown = serde_json::to_string(&cloud.state()).unwrap();
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(shown.contains(r#""userDataBytes":10"#), "{shown}");
    assert!(!shown.contains("secret") && !kept.contains("secret"));
}

fn balancer(name: &str) -> LoadBalancer {
    LoadBalancer::Simulated(Simulated { name: name.to_owned() })
}

#[rstest]
#[tokio::test]
async fn a_vm_is_a_member_of_a_load_balancer_until_it_is_deregistered(#[values(Way::Embedded, Way::Http)] way: Way) {
    let cloud = cloud(json!({}));
    let driver = driver(way, &cloud).await;
    let vm = driver.create(&request("a")).await.unwrap();
    let request = with_id(request("a"), &vm.provider_id);
    assert_eq!(code(driver.register(&request, &balancer("cp")).await), Code::NotFound);
    cloud.put_load_balancer("cp").unwrap();
    let id = vm.provider_id.rsplit('/').next().unwrap();
    for _ in 0..2 {
        driver.register(&request, &balancer("cp")).await.unwrap();
        assert_eq!(cloud.load_balancer("cp").unwrap().members, [id]);
    }
    driver.delete(&request).await.unwrap();
    assert_eq!(cloud.load_balancer("cp").unwrap().members, [id], "a test sees what was not deregistered");
    for _ in 0..2 {
        driver.deregister(&request, &balancer("cp")).await.unwrap();
        assert!(cloud.load_balancer("cp").unwrap().members.is_empty());
    }
    assert_eq!(code(driver.register(&request, &balancer("cp")).await), Code::FailedPrecondition, "it is deleted");
    cloud.delete_load_balancer("cp").unwrap();
    assert_eq!(code(driver.deregister(&request, &balancer("cp")).await), Code::NotFound);
}

/// The outcome of a lost answer is not known, and the next call finds it.
#[tokio::test]
async fn a_registration_whose_answer_is_lost_is_repeated() {
    let cloud = cloud(json!({"faults": [{"operation": "register", "count": 1, "lostReply": true}]}));
    cloud.put_load_balancer("cp").unwrap();
    let driver = driver(Way::Embedded, &cloud).await;
    let vm = driver.create(&request("a")).await.unwrap();
    let request = with_id(request("a"), &vm.provider_id);
    assert_eq!(code(driver.register(&request, &balancer("cp")).await), Code::Unknown);
    driver.register(&request, &balancer("cp")).await.unwrap();
    assert_eq!(cloud.load_balancer("cp").unwrap().members.len(), 1);
}

/// The Node of a VM has that capacity.
#[rstest]
#[case::usual(json!({}), json!({"cpu": "4", "memory": "16Gi"}))]
#[case::given(
    json!({"capacity": {"cpu": "8", "memory": "1000Mi", "nvidia.com/gpu": "2", "ephemeral-storage": "50Gi"}}),
    json!({"cpu": "8", "memory": "1000Mi", "nvidia.com/gpu": "2", "ephemeral-storage": "50Gi"})
)]
#[tokio::test]
async fn the_capacity_of_a_vm_is_that_of_its_class(#[case] spec: Value, #[case] expected: Value) {
    let driver = driver(Way::Embedded, &cloud(json!({}))).await;
    let request = request_for("m", "u", spec);
    assert!(driver.capacity_key(&request.class).is_some());
    let capacity = driver.capacity(&request.class, &request.secret).await.unwrap();
    assert_eq!(json!(capacity.node_resources()), expected);
}
