//! The real executor in a cell: triggers, credentials, the request to the driver, events and metrics.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolumeSpec, Secret};
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::KIND;
use crate::{
    Kind, Settings, api_servers, machine, node,
    testing::{Fate, Leading, Wire, settings, until},
};
use mcm_api::{
    labels,
    machine::{Machine, MachineClass},
};
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, DriverGuards, ListedVm, MachineRequest, SecretData, Vm,
    VmsByProviderId, spec::ClassProblems,
};
use mcm_driver_host::DriverCatalogue;
use mcm_runtime::target::{TargetClients, TargetId};

const PERIOD: Duration = Duration::from_mins(15);

#[derive(Default)]
struct Cloud {
    vms: Mutex<VmsByProviderId>,
    lists: Mutex<usize>,
    /// `id name namespace key` of each deletion.
    deleted: Mutex<Vec<String>>,
    fails: Mutex<Option<Code>>,
}

struct CloudDriver(Arc<Cloud>);

fn marked(machine: &str, owner: &str) -> ListedVm {
    ListedVm::new(machine, Some(owner.to_owned()))
}

fn unused<T>() -> Result<T, DriverError> {
    Err(DriverError::new(Code::Unimplemented, "not needed"))
}

#[async_trait]
impl Driver for CloudDriver {
    fn name(&self) -> &'static str {
        "cloud"
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { list: true, ..DriverCapabilities::default() }
    }

    fn validate(&self, _: &MachineClass) -> ClassProblems {
        ClassProblems::default()
    }

    async fn create(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        unused()
    }

    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        unused()
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let (meta, id) = (&request.machine.metadata, &request.machine.spec.provider_id);
        let key = String::from_utf8_lossy(&request.secret.0["key"]).into_owned();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.0.deleted.lock().push(format!("{id} {} {} {key}", text(&meta.name), text(&meta.namespace)));
        self.0.vms.lock().remove(id);
        Ok(None)
    }

    async fn status(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        unused()
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        *self.0.lists.lock() += 1;
        assert!(secret.0.contains_key("key"), "never without credentials");
        if class.metadata.name.as_deref() == Some("broken") {
            return unused();
        }
        match *self.0.fails.lock() {
            Some(code) => Err(DriverError::new(code, "no")),
            None => Ok(self.0.vms.lock().clone()),
        }
    }

    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        unused()
    }
}

struct World {
    wire: Wire,
    cloud: Arc<Cloud>,
}

impl World {
    /// VM 1 without a Machine, and VM 2 with Machine `there`.
    fn new() -> Self {
        let world = Self { wire: Wire::new(), cloud: Arc::default() };
        *world.cloud.vms.lock() = [("cloud:///1", "gone"), ("cloud:///2", "there")]
            .map(|(id, name)| (id.to_owned(), marked(name, "shoot")))
            .into();
        world.secret();
        for class in ["broken", "c"] {
            let class_object = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
                "metadata": {"name": class, "namespace": "shoot"}, "provider": "cloud", "providerSpec": {},
                "credentialsSecretRef": {"name": "account", "namespace": "shoot"},
            });
            world.wire.put::<Value>(&format!("machineclasses/{class}"), &class_object);
        }
        world.machine(
            "there",
            &json!({"spec": {"providerID": "cloud:///2"}, "status": {"currentStatus": {"phase": "Running"}}}),
        );
        world
    }

    fn secret(&self) {
        let secret = json!({"metadata": {"name": "account", "namespace": "shoot"}, "data": {"key": "YWJj"}});
        self.wire.put::<Secret>("secrets/account", &secret);
    }

    fn machine(&self, name: &str, change: &Value) {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": name, "namespace": "shoot"}, "spec": {"class": {"kind": "MachineClass", "name": "c"}},
        });
        self.wire.put::<Value>(&format!("machines/{name}"), &machine);
        self.wire.put::<Value>(&format!("machines/{name}"), change);
    }

    fn start(&self) -> Leading {
        self.start_with(&[KIND], Leading::start)
    }

    fn start_with(&self, kinds: &[Kind], start: fn(&Wire, &[Kind], &Settings) -> Leading) -> Leading {
        let driver: Arc<dyn Driver> = Arc::new(CloudDriver(Arc::clone(&self.cloud)));
        let drivers = Arc::new(DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved()));
        start(&self.wire, kinds, &Settings { drivers, ..settings() })
    }

    fn deleted(&self) -> Vec<String> {
        self.cloud.deleted.lock().clone()
    }

    fn lists(&self) -> usize {
        *self.cloud.lists.lock()
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_deleted_after_a_period_whatever_becomes_of_other_classes() {
    let world = World::new();
    let leading = world.start();
    let took = until("the orphan is deleted", || !world.deleted().is_empty()).await;
    assert!((PERIOD..PERIOD + Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!(world.deleted(), ["cloud:///1 gone shoot abc"], "with name, namespace, ID and credentials");
    sleep(PERIOD * 4).await;
    assert_eq!((world.deleted().len(), world.cloud.vms.lock().len()), (1, 1));
    assert_eq!(world.wire.count("GET machines/gone"), 1, "its machine was read live before");
    let text = leading.metrics.render();
    assert!(text.contains("mcm_orphan_vms_deleted_total{namespace=\"shoot\",class=\"c\"} 1\n"), "{text}");
    assert!(text.contains("mcm_orphan_vms{namespace=\"shoot\",class=\"c\"} 0\n"), "{text}");
    assert!(text.contains("mcm_workqueue_adds_total{name=\"machinesafetyorphanvms\"}"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_its_name_that_only_the_api_server_has_protects_a_vm() {
    let world = World::new();
    // Every list and watch of machines fails from now on; a live read does not.
    let _leading = world.start();
    until("it was listed", || world.lists() > 0).await;
    world.wire.judge(|request| if request == "GET machines" { Fate::Unavailable } else { Fate::Answered });
    world.machine(
        "gone",
        &json!({"spec": {"providerID": "cloud:///1"}, "status": {"currentStatus": {"phase": "Running"}}}),
    );
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_decoded_protects_every_vm() {
    let world = World::new();
    world.machine("odd", &json!({"spec": {"drainTimeout": "2 hours"}}));
    let _leading = world.start();
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted(), [""; 0]);
    world.wire.put::<Machine>("machines/odd", &json!({"spec": {"drainTimeout": "2h"}}));
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn while_machines_are_frozen_nothing_is_deleted() {
    let world = World::new();
    let _leading = world.start_with(&[KIND, api_servers::KIND], Leading::start_with_target);
    until("it was listed", || world.lists() > 0).await;
    world.wire.judge(|request| if request == "GET nodes/dummy_name" { Fate::Refused } else { Fate::Answered });
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted(), [""; 0]);
    world.wire.judge(|_| Fate::Answered);
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn no_vm_is_deleted_while_its_target_is_not_connected() {
    let world = World::new();
    let leading = world.start_with(&[KIND], Leading::start_with_target);
    leading.cell.targets().disconnect(&TargetId::only());
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted(), [""; 0]);
    leading.cell.targets().connect(&TargetId::only(), &TargetClients::one(&world.wire.client()));
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn without_its_credentials_a_class_is_not_listed() {
    let world = World::new();
    world.wire.remove("secrets/account");
    let _leading = world.start();
    sleep(PERIOD * 4).await;
    assert_eq!((world.lists(), world.deleted().len()), (0, 0));
    world.secret();
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_and_several_vms_lead_to_a_list_and_many_to_few() {
    let world = World::new();
    let _leading = world.start();
    let of_both = |lists: usize| lists;
    until("both classes were listed", || world.lists() == of_both(2)).await;
    sleep(Duration::from_mins(2)).await;
    let text = "Cloud provider message - machine codes error: code = [OutOfRange] message = [2 VMs]";
    world.machine("there", &json!({"status": {"lastOperation": {"description": text}}}));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(world.lists(), 3, "of its class");
    world.machine("there", &json!({"status": {"lastOperation": {"errorCode": "OutOfRange"}}}));
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.lists(), 3, "only when it is new");

    (0..10).for_each(|index| world.machine(&format!("m{index}"), &json!({})));
    for index in 0..10 {
        world.wire.remove(&format!("machines/m{index}"));
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(55)).await;
    assert_eq!(world.lists(), 5, "at once, and a minute later for the rest");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_repeated_and_nothing_is_deleted() {
    let world = World::new();
    *world.cloud.fails.lock() = Some(Code::Unavailable);
    let _leading = world.start();
    sleep(PERIOD * 4).await;
    assert!(world.deleted().is_empty() && world.lists() > 8, "{}", world.lists());
}

/// VM 1 serves as a Node with our finalizer, and its Machine is lost.
fn serving() -> World {
    let world = World::new();
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "gone", "creationTimestamp": "2020-01-01T00:00:00Z", "finalizers": [labels::NODE_FINALIZER],
            "labels": {labels::MACHINE_NAME: "gone"},
        },
        "spec": {"providerID": "cloud:///1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    world.wire.put::<Value>("nodes/gone", &node);
    world
}

/// As after the restore of an older etcd, with the controllers of Machines and Nodes.
#[tokio::test(start_paused = true)]
async fn the_node_of_an_orphan_is_drained_and_deleted_with_its_vm() {
    let world = serving();
    let kinds = [KIND, node::KIND, machine::KIND];
    let _leading = world.start_with(&kinds, Leading::start_with_target);
    let took = until("the VM is deleted", || !world.deleted().is_empty()).await;
    assert!(took > Duration::from_mins(20), "another manager has the creation timeout to claim it: {took:?}");
    assert_eq!(world.deleted(), ["cloud:///1 gone shoot abc"]);
    let requests = world.wire.requests();
    let at = |head: &str| requests.iter().position(|request| request.starts_with(head));
    assert!(at("POST machines") < at("DELETE machines/gone"), "{requests:?}");
    assert!(
        at("DELETE machines/gone") < at("GET pods") && at("GET pods").is_some(),
        "its pods are evicted: {requests:?}"
    );
    let took = until("the node is deleted", || world.wire.get::<Value>("nodes/gone").is_none()).await;
    assert!(took < Duration::from_mins(1), "{took:?}");
    until("its machine is deleted", || world.wire.get::<Value>("machines/gone").is_none()).await;
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted().len(), 1);
}

/// The manager of a new control cluster, with a namespace of the same name.
#[tokio::test(start_paused = true)]
async fn the_vm_of_a_node_that_another_manager_has_is_kept() {
    let world = serving();
    let _leading = world.start_with(&[KIND, node::KIND], Leading::start_with_target);
    let is_marked =
        || world.wire.get::<Value>("nodes/gone").unwrap()["metadata"]["annotations"][labels::NOT_MANAGED] == "1";
    until("the node is marked", is_marked).await;
    let claimed = json!({"metadata": {"annotations": {labels::NOT_MANAGED: null}}});
    world.wire.put::<Value>("nodes/gone", &claimed);
    sleep(PERIOD * 20).await;
    assert_eq!((world.deleted().len(), world.wire.count("POST machines")), (0, 0));
    let events: Vec<Value> = world.wire.all("events");
    assert_eq!(events.iter().filter(|event| event["reason"] == "OrphanKept").count(), 1, "{events:?}");
}

/// Two classes with one tag.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_two_classes_list_is_deleted_and_reported_once() {
    let world = World::new();
    let mut class: Value = world.wire.get("machineclasses/c").unwrap();
    class["metadata"] = json!({"name": "d", "namespace": "shoot"});
    world.wire.put::<Value>("machineclasses/d", &class);
    let _leading = world.start();
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
    sleep(PERIOD * 4).await;
    assert_eq!(world.deleted(), ["cloud:///1 gone shoot abc"]);
    let events: Vec<Value> = world.wire.all("events");
    for reason in ["OrphanFound", "OrphanDeleted"] {
        assert_eq!(events.iter().filter(|event| event["reason"] == reason).count(), 1, "{reason}: {events:?}");
    }
}

/// The class that handled an orphan is deleted.
#[tokio::test(start_paused = true)]
async fn another_class_takes_an_orphan_over() {
    let world = World::new();
    let mut class: Value = world.wire.get("machineclasses/c").unwrap();
    class["metadata"] = json!({"name": "d", "namespace": "shoot"});
    world.wire.put::<Value>("machineclasses/d", &class);
    let _leading = world.start();
    until("both were listed", || world.lists() > 2).await;
    let events: Vec<Value> = world.wire.all("events");
    let found = events.iter().find(|event| event["reason"] == "OrphanFound").unwrap();
    let handler = found["involvedObject"]["name"].as_str().unwrap();
    world.wire.remove(&format!("machineclasses/{handler}"));
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
    assert_eq!(world.deleted().len(), 1);
}

/// A class of another namespace with a cluster tag.
fn class_of_others(world: &World, tag: &str) {
    world.wire.create(
        "machineclasses",
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": "w", "namespace": "team-b"}, "provider": "Cloud", "providerSpec": {"tags": [tag]},
        }),
    );
}

/// As a version made it that wrote no markers.
fn unmark(world: &World) {
    world.wire.put::<Value>("machineclasses/c", &json!({"providerSpec": {"tags": ["kubernetes-io-cluster-a"]}}));
    world.cloud.vms.lock().insert("cloud:///1".to_owned(), ListedVm::unmarked("gone"));
}

#[tokio::test(start_paused = true)]
async fn an_unmarked_vm_stays_while_a_class_of_another_namespace_has_its_cluster_tag() {
    let world = World::new();
    unmark(&world);
    class_of_others(&world, "kubernetes-io-cluster-a");
    let leading = world.start();
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted(), [""; 0]);
    let text = leading.metrics.render();
    assert!(text.contains("mcm_foreign_vms{namespace=\"shoot\",class=\"c\"} 1\n"), "{text}");
    let events: Vec<Value> = world.wire.all("events");
    let told = events.iter().filter(|event| event["reason"] == "OrphanKept").collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{events:?}");
    let message = told[0]["message"].as_str().or(told[0]["note"].as_str()).unwrap_or_default();
    assert!(message.contains("MachineClass team-b/w has the same tag"), "{message}");
    world.wire.remove_from("team-b", "machineclasses/w");
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
}

#[rstest]
#[case::another_tag(Some("kubernetes-io-cluster-b"))]
#[case::no_class(None)]
#[tokio::test(start_paused = true)]
async fn an_unmarked_vm_is_deleted_where_no_other_namespace_uses_its_tag(#[case] tag: Option<&str>) {
    let world = World::new();
    unmark(&world);
    tag.iter().for_each(|tag| class_of_others(&world, tag));
    let _leading = world.start();
    until("the orphan is deleted", || !world.deleted().is_empty()).await;
}

#[rstest]
#[case::permissions_of_the_go_programs(|world: &World| {
    world.wire.judge(|request| if request == "GET machineclasses" { Fate::Refused } else { Fate::Answered });
})]
#[case::away(|world: &World| {
    class_of_others(world, "kubernetes-io-cluster-b");
    world.wire.judge(|request| if request == "GET machineclasses" { Fate::Unavailable } else { Fate::Answered });
})]
#[case::undecodable(|world: &World| world.wire.create("machineclasses", json!({
    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
    "metadata": {"name": "w", "namespace": "team-b"}, "provider": {"name": "Cloud"}, "providerSpec": {},
})))]
#[tokio::test(start_paused = true)]
async fn while_classes_of_others_are_unreadable_only_marked_vms_are_deleted(#[case] change: fn(&World)) {
    let world = World::new();
    unmark(&world);
    world.cloud.vms.lock().insert("cloud:///3".to_owned(), marked("ours", "shoot"));
    let _leading = world.start();
    until("it was listed", || world.lists() > 0).await;
    change(&world);
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted(), ["cloud:///3 ours shoot abc"]);
}

/// Of Cluster API, or of another `mcm run`.
#[tokio::test(start_paused = true)]
async fn a_vm_with_the_marker_of_another_namespace_stays() {
    let world = World::new();
    world.cloud.vms.lock().extend([
        ("cloud:///3".to_owned(), marked("theirs", "capmcm-system")),
        ("cloud:///4".to_owned(), marked("gone", "5c5b5f5e-7c66-4a9b-9b53-0f2b6f4e3c11")),
    ]);
    let _leading = world.start();
    sleep(PERIOD * 10).await;
    assert_eq!(world.deleted(), ["cloud:///1 gone shoot abc"]);
}
