//! Requests and results as the other side reads them.

use rstest::rstest;

use super::*;
use mcm_driver::conformance::{self, ConformanceOutcome, ConformanceSubject};
use mcm_simulated_cloud::{CloudSimulator, SimulationSettings, driver::SimulatedDriver};

fn tested(endpoint: &DriverEndpoint) -> RemoteDriver {
    RemoteDriver::open(endpoint, TextTreatment::AsTheyAre, &DriverGuards::unobserved().observer)
}

#[tokio::test]
async fn the_simulated_driver_conforms_over_a_socket() {
    let cloud = Arc::new(CloudSimulator::new(1, SimulationSettings::default()));
    cloud.replace_control(json!({"latency": {"create": "10ms", "delete": "10ms"}})).unwrap();
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(SimulatedDriver::new(Arc::clone(&cloud) as _))).await;
    let driver = tested(&DriverEndpoint::new("Simulated", DriverAddress::Unix(path)));
    driver.reached().await.unwrap();

    let class = |namespace: &str, spec: serde_json::Value| -> MachineClass {
        let metadata = json!({"name": "class", "namespace": namespace});
        let class = json!({"metadata": metadata, "provider": "simulated", "providerSpec": spec});
        serde_json::from_value(class).unwrap()
    };
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let subject = ConformanceSubject {
        driver: &driver,
        class: class("ns", json!({"initialize": true})),
        invalid_class: Some(class("ns", json!({"zone": 7, "taints": [{}]}))),
        foreign_class: Some(class("elsewhere", json!({}))),
        secret: SecretData([("userData".to_owned(), b"hunter2-hunter2".to_vec())].into()),
        volumes: vec![
            (volume(json!({"csi": {"driver": "d", "volumeHandle": "vol-1"}})), Some("vol-1".to_owned())),
            (volume(json!({"hostPath": {"path": "/tmp"}})), None),
        ],
        prefix: "conformance".to_owned(),
    };
    let report = conformance::run(&subject).await;
    assert!(report.results.iter().all(|one| one.outcome == ConformanceOutcome::Passed), "\n{report}");
    assert_eq!(cloud.stats().alive, 0, "nothing is left");
}

#[tokio::test]
async fn capabilities_are_those_of_the_driver() {
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    let driver = client_of("odd", &path);
    driver.reached().await.unwrap();
    assert_eq!(driver.capabilities(), DriverCapabilities { initialize: false, list: true, inspect: true, tag: true });
}

#[tokio::test]
async fn an_endpoint_that_serves_something_else_says_so() {
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    let driver = client_of("aws", &path);
    let error = driver.status(&request()).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    let expected = format!("driver aws at unix://{}: it serves odd, and not aws", path.display());
    assert_eq!(error.message, expected);
}

#[rstest]
#[case::no_id(Vm { node_name: "node-1".to_owned(), ..Vm::default() })]
#[case::path(Vm { provider_id: "odd:///1".to_owned(), node_name: "../x".to_owned(), ..Vm::default() })]
#[tokio::test]
async fn a_vm_that_cannot_be_is_an_error(#[case] vm: Vm) {
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(Odd::answering(Ok(vm)))).await;
    let driver = client_of("odd", &path);
    for answer in [driver.create(&request()).await, driver.status(&request()).await] {
        assert_eq!(answer.unwrap_err().code, Code::Internal);
    }
    let too_many = driver.volume_ids(&[PersistentVolumeSpec::default()]).await.unwrap_err();
    assert_eq!(too_many.code, Code::Internal);
}

#[tokio::test]
async fn errors_come_with_code_state_and_vm_and_without_secrets() {
    let vm = Vm { provider_id: "odd:///1".to_owned(), node_name: "node-1".to_owned(), ..Vm::default() };
    let failed = DriverError {
        last_known_state: Some("state".to_owned()),
        vm: Some(Box::new(vm)),
        ..DriverError::new(Code::Uninitialized, "key hunter2-hunter2 [")
    };
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(Odd::answering(Err(failed.clone())))).await;
    let expected = DriverError { message: "key (secret) (".to_owned(), ..failed.clone() };
    assert_eq!(client_of("odd", &path).create(&request()).await, Err(expected.clone()));
    assert_eq!(client_of("odd", &path).delete(&request()).await, Err(expected));
    let tested = tested(&DriverEndpoint::new("odd", DriverAddress::Unix(path)));
    assert_eq!(tested.status(&request()).await, Err(failed), "a test judges what the driver said");
}

#[rstest]
#[case(&[], &[])]
#[case(&[("odd:///1", "m-1"), ("odd:///2", "m-2")], &[("odd:///1", "m-1"), ("odd:///2", "m-2")])]
#[case::no_name(&[("odd:///1", "m-1"), ("odd:///2", "")], &[("odd:///1", "m-1"), ("odd:///2", "")])]
#[case::not_an_id(&[("odd:///1", "m-1"), ("o d d", "m-2")], &[("odd:///1", "m-1"), ("", "")])]
#[tokio::test]
async fn a_wrong_entry_of_a_list_is_emptied_and_a_test_refuses_it(
    #[case] vms: &[(&str, &str)],
    #[case] expected: &[(&str, &str)],
) {
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(Odd::listing(vms))).await;
    let MachineRequest { class, secret, .. } = request();
    let listed = client_of("odd", &path).list(&class, &secret).await;
    assert_eq!(listed, Ok(Odd::listing(expected).list));
    let judged = tested(&DriverEndpoint::new("odd", DriverAddress::Unix(path))).list(&class, &secret).await;
    assert_eq!(judged.is_ok(), vms == expected && vms.iter().all(|(_, name)| !name.is_empty()), "{judged:?}");
}

#[tokio::test]
async fn a_call_that_may_pause_pauses_as_the_driver_says() {
    let paused = DriverError::not_done("VM m is not done yet", Duration::from_secs(7));
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(Odd::answering(Err(paused.clone())))).await;
    let driver = client_of("odd", &path);
    assert_eq!(driver.create(&request()).await, Err(paused.clone()));
    assert_eq!(driver.delete(&request()).await, Err(paused.clone()));
    let patient = MachineRequest { may_pause: false, ..request() };
    assert_eq!(driver.create(&patient).await, Err(DriverError { call_again_in: None, ..paused }));
}

#[tokio::test]
async fn a_class_is_inspected_and_a_vm_tagged_in_the_other_process() {
    let (_folder, path) = socket();
    let odd = Arc::new(Odd::new());
    let _server = Server::on_socket(&path, Arc::clone(&odd) as _).await;
    let driver = client_of("odd", &path);
    let MachineRequest { class, secret, .. } = request();
    let found = driver.inspect(&class, &secret).await.unwrap();
    let found: Vec<_> = found.iter().map(|one| (one.path.as_str(), one.presence, one.text.as_str())).collect();
    let expected = [
        ("providerSpec.image", ResourcePresence::Present, "here"),
        ("providerSpec.network", ResourcePresence::Missing, "no network"),
        ("Secret", ResourcePresence::Unknown, "key (secret)"),
    ];
    assert_eq!(found, expected);
    let mut known = request();
    Arc::make_mut(&mut known.machine).spec.provider_id = "odd:///1".to_owned();
    driver.tag(&known, true).await.unwrap();
    driver.tag(&known, false).await.unwrap();
    assert_eq!(*odd.tagged.lock(), [("odd:///1".to_owned(), true), ("odd:///1".to_owned(), false)]);
}

#[tokio::test]
async fn the_capacity_of_a_vm_is_read_in_the_other_process() {
    let (_folder, path) = socket();
    let odd = Arc::new(Odd::new());
    let _server = Server::on_socket(&path, Arc::clone(&odd) as _).await;
    let driver = client_of("odd", &path);
    let MachineRequest { class, secret, .. } = request();
    driver.reached().await.unwrap();
    let key = driver.capacity_key(&class);
    assert!(key.is_some());
    assert_eq!(driver.capacity(&class, &secret).await, odd.capacity(&class, &secret).await);

    let mut none = MachineClass::clone(&class);
    none.provider_spec = json!({"cpus": 0});
    assert_ne!(driver.capacity_key(&none), key);
    assert_eq!(driver.capacity(&none, &secret).await.unwrap_err().code, Code::Internal);
}

#[tokio::test]
async fn a_class_is_validated_in_the_background() {
    let (_folder, path) = socket();
    let _server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    let driver: Arc<dyn Driver> = Arc::new(client_of("odd", &path));
    let mut class = MachineClass::clone(&request().class);
    class.provider_spec = json!({"bad": true});
    let (known, told) = std::sync::mpsc::channel();
    catalogue(Arc::clone(&driver))
        .on_problems(&(Arc::new(move |class: &MachineClass| known.send(class.clone()).unwrap()) as _));
    assert_eq!(driver.known_problems(&class), None, "what was not asked is unknown");
    let known = until_ok(async || driver.known_problems(&class).ok_or(DriverError::new(Code::Unavailable, "not yet")));
    let mut expected = ClassProblems::default();
    expected.error("providerSpec.bad", "two lines");
    assert_eq!(known.await, expected);
    let told = tokio::task::spawn_blocking(move || told.recv_timeout(Duration::from_secs(30)));
    assert_eq!(told.await.unwrap().unwrap(), class, "its controller looks again");
    assert_eq!(driver.problems(&class).await, Ok(expected.clone()));
    assert_eq!(driver.validate(&class), expected);
}
