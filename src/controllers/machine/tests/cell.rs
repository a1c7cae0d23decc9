//! The real executor in a cell: effects of watch handlers and of the trust in caches.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolumeSpec, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::sleep};

use crate::{
    Settings,
    machine::KIND,
    testing::{Fate, Leading, Wire, settings, until},
};
use mcm_api::{
    labels,
    machine::{Machine, MachineClass, MachinePhase},
};
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, DriverGuards, MachineRequest, SecretData, Vm, VmsByProviderId,
    spec::ClassProblems,
};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::plan::WaitKind;
use mcm_runtime::{cache::Key, cells::CellOverview};

/// Each creation lasts until the test ends it.
struct SlowCloud {
    /// Names of the Machines whose creation has begun.
    begun: Mutex<Vec<String>>,
    may_end: Semaphore,
}

fn unused<T>() -> Result<T, DriverError> {
    Err(DriverError::new(Code::Unimplemented, "not needed"))
}

#[async_trait]
impl Driver for SlowCloud {
    fn name(&self) -> &'static str {
        "cloud"
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities::default()
    }

    fn validate(&self, _: &MachineClass) -> ClassProblems {
        ClassProblems::default()
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let name = request.machine.metadata.name.clone().unwrap();
        self.begun.lock().push(name.clone());
        self.may_end.acquire().await.unwrap().forget();
        Ok(Vm { provider_id: format!("cloud:///{name}"), node_name: name, ..Vm::default() })
    }

    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        unused()
    }

    async fn delete(&self, _: &MachineRequest) -> Result<Option<String>, DriverError> {
        unused()
    }

    async fn status(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::NotFound, "no VM"))
    }

    async fn list(&self, _: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        unused()
    }

    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        unused()
    }
}

fn machine(wire: &Wire, name: &str) {
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": name, "namespace": "shoot"},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}},
    });
    wire.put::<Value>(&format!("machines/{name}"), &machine);
}

fn class(wire: &Wire) {
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "c", "namespace": "shoot", "finalizers": [labels::FINALIZER]}, "provider": "cloud", "providerSpec": {},
        "secretRef": {"name": "s", "namespace": "shoot"},
    });
    wire.put::<Value>("machineclasses/c", &class);
}

#[tokio::test(start_paused = true)]
async fn the_waits_of_a_machine_are_explained_while_they_last() {
    let wire = Wire::new();
    let secret = json!({"metadata": {"name": "s", "namespace": "shoot"}, "data": {"userData": "YWJj"}});
    wire.put::<Secret>("secrets/s", &secret);
    let cloud = Arc::new(SlowCloud { begun: Mutex::default(), may_end: Semaphore::new(0) });
    let driver: Arc<dyn Driver> = Arc::clone(&cloud) as _;
    let drivers = Arc::new(DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved()));
    let leading = Leading::start(&wire, &[KIND], &Settings { drivers, slots: 1, ..settings() });
    let explain = || leading.cell.explain("machine", &Key::new("shoot", "m"));
    let is_waiting = |kind| explain().is_some_and(|it| it.waits.iter().any(|waiting| waiting.wait.kind == kind));

    machine(&wire, "m");
    until("it waits for its class", || is_waiting(WaitKind::Class)).await;
    let first = explain().unwrap();
    assert_eq!((first.object.kind.as_str(), first.object.name.as_str()), ("Machine", "m"));
    let text = &first.waits[0].wait.text;
    assert!(text.contains("c"), "{text}");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(explain().unwrap().since, first.since);

    class(&wire);
    until("its VM is created", || cloud.begun.lock().len() == 1).await;
    let creating = explain().unwrap();
    assert_eq!((creating.since, creating.waits), (None, Vec::new()));
    assert!(creating.step.as_deref().is_some_and(|step| step.starts_with("create VM: ")), "{:?}", creating.step);

    cloud.may_end.add_permits(1);
    until("it waits for another event", || explain().is_some_and(|it| !it.waits.is_empty())).await;
    assert!(!is_waiting(WaitKind::Class));
    wire.remove("machines/m");
    until("nothing is kept", || explain().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_becomes_unreadable_while_it_waits_for_a_slot_is_skipped() {
    let wire = Wire::new();
    let secret = json!({"metadata": {"name": "s", "namespace": "shoot"}, "data": {"userData": "YWJj"}});
    wire.put::<Secret>("secrets/s", &secret);
    class(&wire);
    let cloud = Arc::new(SlowCloud { begun: Mutex::default(), may_end: Semaphore::new(0) });
    let driver: Arc<dyn Driver> = Arc::clone(&cloud) as _;
    let drivers = Arc::new(DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved()));
    let _leading = Leading::start(&wire, &[KIND], &Settings { drivers, slots: 1, ..settings() });
    for name in ["works", "waits", "waits-longer"] {
        machine(&wire, name);
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(*cloud.begun.lock(), ["works"]);
    wire.put::<Value>("machines/waits", &json!({"spec": {"drainTimeout": "two hours"}}));
    sleep(Duration::from_secs(1)).await;
    cloud.may_end.add_permits(1);
    let took = until("the next creation", || cloud.begun.lock().len() == 2).await;
    assert_eq!(*cloud.begun.lock(), ["works", "waits-longer"]);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

fn phase(wire: &Wire) -> MachinePhase {
    wire.get::<Machine>("machines/m").unwrap().phase()
}

fn ready(wire: &Wire, status: &str) {
    wire.put::<Value>("nodes/n", &json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}));
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_not_failed_by_a_node_that_was_last_heard_of_before_the_health_timeout() {
    let wire = Wire::new();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "creationTimestamp": "2020-01-01T00:00:00Z", "labels": {labels::MACHINE_NAME: "m"}},
        "spec": {"providerID": "cloud:///1"},
    });
    wire.put::<Value>("nodes/n", &node);
    ready(&wire, "True");
    machine(&wire, "m");
    let running = json!({
        "metadata": {"labels": {"node": "n"}}, "spec": {"providerID": "cloud:///1"},
        "status": {"currentStatus": {"phase": "Running"}},
    });
    wire.put::<Value>("machines/m", &running);
    let _leading = Leading::start_with_target(&wire, &[KIND], &settings());
    sleep(Duration::from_secs(10)).await;
    ready(&wire, "False");
    until("the machine is unknown", || phase(&wire) == MachinePhase::Unknown).await;
    wire.judge(|request| if request.starts_with("GET nodes") { Fate::Unavailable } else { Fate::Answered });
    sleep(Duration::from_mins(1)).await;
    ready(&wire, "True");
    sleep(Duration::from_mins(30)).await;
    assert_eq!(phase(&wire), MachinePhase::Unknown);
    wire.judge(|_| Fate::Answered);
    until("the machine runs", || phase(&wire) == MachinePhase::Running).await;
}

/// The VM of the first machine is deleted, and the VM of the second has got the same name.
#[tokio::test(start_paused = true)]
async fn the_node_of_a_machine_that_cannot_be_decoded_is_left_to_it() {
    let wire = Wire::new();
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "cloud:///2"}});
    wire.put::<Value>("nodes/n", &node);
    ready(&wire, "True");
    for (name, id) in [("m", "cloud:///1"), ("newer", "cloud:///2")] {
        machine(&wire, name);
        let pending = json!({
            "metadata": {"labels": {"node": "n"}, "uid": name}, "spec": {"providerID": id},
            "status": {"currentStatus": {"phase": "Pending"}},
        });
        wire.put::<Value>(&format!("machines/{name}"), &pending);
    }
    wire.put::<Value>("machines/newer", &json!({"spec": {"drainTimeout": "two hours"}}));
    wire.put::<Value>("nodes/n", &json!({"metadata": {"annotations": {labels::NODE_OF: "shoot/newer/newer"}}}));
    let _leading = Leading::start_with_target(&wire, &[KIND], &settings());
    sleep(Duration::from_mins(1)).await;
    let labels = || wire.get::<Value>("nodes/n").unwrap()["metadata"]["labels"].clone();
    assert_eq!((phase(&wire), labels()), (MachinePhase::Pending, Value::Null));
    wire.put::<Value>("machines/newer", &json!({"spec": {"drainTimeout": "2h"}}));
    until("the other one has it", || labels()[labels::MACHINE_NAME] == "newer").await;
    assert_eq!(phase(&wire), MachinePhase::Pending);
}

#[tokio::test(start_paused = true)]
async fn aggregates_replace_the_series_of_machines_above_the_bound_and_stay_for_ten_minutes() {
    const BOUND: usize = 1000;
    let wire = Wire::new();
    let add = |number: usize| {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": format!("m-{number}"), "namespace": "shoot", "labels": {"name": "pool"}},
            "spec": {"class": {"kind": "MachineClass", "name": "missing"}},
        });
        wire.create("machines", machine);
    };
    (0..BOUND).for_each(add);
    let leading = Leading::start(&wire, &[KIND], &settings());
    let series = |text: &str, start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    let count = || {
        let text = leading.metrics.render();
        let value = text.lines().find_map(|line| line.strip_prefix("mcm_machine_items_total ")?.parse::<f64>().ok());
        value.unwrap_or_default()
    };
    until("all machines are exported", || count() == 1000.0).await;
    let text = leading.metrics.render();
    assert_eq!(series(&text, "mcm_machine_info{"), BOUND);
    assert_eq!((series(&text, "mcm_machines"), series(&text, "mcm_series_omitted{")), (0, 0));

    add(BOUND);
    until("one more is exported", || count() == 1001.0).await;
    let text = leading.metrics.render();
    assert_eq!(series(&text, "mcm_machine_info{"), 0);
    let groups =
        text.lines().filter(|line| line.starts_with(r#"mcm_machines{namespace="shoot",deployment="pool",phase=""#));
    let machines: f64 = groups.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert_eq!(machines, 1001.0, "{text}");
    let omitted = text.lines().find_map(|line| line.strip_prefix(r#"mcm_series_omitted{of="machines"} "#)).unwrap();
    assert!(omitted.parse::<usize>().unwrap() > BOUND, "{omitted}");

    wire.remove(&format!("machines/m-{BOUND}"));
    until("one less is exported", || count() == 1000.0).await;
    assert_eq!(series(&leading.metrics.render(), "mcm_machine_info{"), 0, "series do not come and go");
    sleep(Duration::from_mins(10)).await;
    let text = leading.metrics.render();
    assert_eq!((series(&text, "mcm_machine_info{"), series(&text, "mcm_machines{")), (BOUND, 0));
}
