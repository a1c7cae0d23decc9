//! Namespaces that others serve, and namespaces that are switched off: nothing is done in them.

use std::{sync::Arc, time::Duration};

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::creating::{CountingCloud, drivers_of};
use crate::{
    KINDS, Settings,
    testing::{Fate, Leading, Standby, Wire, settings, until},
};
use mcm_api::labels;

/// Longer than every pause before a retry, and than the time after which Machines fail.
const LONG: Duration = Duration::from_mins(40);
/// Shorter than the time in which a Node has to join.
const SHORT: Duration = Duration::from_mins(10);
const SETS_LEASE: &str = "leases/machine-controller-manager";
const MACHINES_LEASE: &str = "leases/machine-controller";
const SWITCH: &str = "deployments/machine-controller-manager";

/// The namespace `shoot` with a set of 20 replicas.
pub(super) fn world() -> Wire {
    let wire = Wire::new();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shoot"}, "data": {"userData": "YWJj"},
    });
    wire.put::<Value>("secrets/s", &secret);
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "c", "namespace": "shoot", "finalizers": [labels::FINALIZER]},
        "provider": "cloud", "providerSpec": {}, "secretRef": {"name": "s", "namespace": "shoot"},
    });
    wire.put::<Value>("machineclasses/c", &class);
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": {"name": "pool", "namespace": "shoot"},
        "spec": {
            "replicas": 20, "selector": {"matchLabels": {"pool": "a"}},
            "template": {
                "metadata": {"labels": {"pool": "a"}},
                "spec": {"class": {"kind": "MachineClass", "name": "c"}},
            },
        },
    });
    wire.put::<Value>("machinesets/pool", &set);
    wire
}

pub(super) fn machine(wire: &Wire, name: &str) {
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": name, "namespace": "shoot", "labels": {"pool": "b"}},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}},
    });
    wire.put::<Value>(&format!("machines/{name}"), &machine);
}

/// A Go program that renews its Lease until it is dropped.
fn go_program(wire: &Wire, lease: &'static str) -> AbortOnDropHandle<()> {
    let renew = {
        let wire = wire.clone();
        move |renewal: u64| {
            let (_, name) = lease.split_once('/').unwrap();
            let lease_object = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "shoot"},
                "spec": {
                    "holderIdentity": "go-host", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                    // Only the change counts: its clock is wrong.
                    "renewTime": format!("2001-01-01T00:00:00.{renewal:06}Z"),
                },
            });
            wire.put::<Value>(lease, &lease_object);
        }
    };
    renew(0);
    AbortOnDropHandle::new(tokio::spawn(async move {
        for renewal in 1.. {
            sleep(Duration::from_secs(2)).await;
            renew(renewal);
        }
    }))
}

fn lead_beside(wire: &Wire, cloud: &Arc<CountingCloud>) -> Leading {
    Standby::start_with_claims(wire, KINDS, &Settings { drivers: drivers_of(cloud), ..settings() }).lead()
}

fn holder(wire: &Wire, lease: &str) -> Option<String> {
    Some(wire.get::<Value>(lease)?["spec"]["holderIdentity"].as_str()?.to_owned())
}

/// Writes by the cell, other than of Leases.
fn writes(wire: &Wire) -> Vec<String> {
    let writes = wire.own_requests().into_iter().filter(|request| !request.starts_with("GET "));
    writes.filter(|request| !request.contains(" leases")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_go_programs_serve_is_not_touched_until_they_are_silent_for_their_duration() {
    let (wire, cloud) = (world(), CountingCloud::new());
    let both = [SETS_LEASE, MACHINES_LEASE].map(|lease| go_program(&wire, lease));
    let leading = lead_beside(&wire, &cloud);
    sleep(LONG).await;
    assert_eq!((writes(&wire), cloud.calls()), (Vec::new(), 0));
    assert_eq!(holder(&wire, SETS_LEASE).as_deref(), Some("go-host"));
    drop(both);
    let took = until("the machines are created", || wire.len("machines") == 20).await;
    assert!((Duration::from_secs(12)..Duration::from_secs(20)).contains(&took), "{took:?}");
    until("each has a VM", || cloud.created() == 20).await;
    sleep(SHORT).await;
    assert_eq!((wire.len("machines"), cloud.created()), (20, 20));
    let own = [SETS_LEASE, MACHINES_LEASE].map(|lease| holder(&wire, lease).unwrap());
    assert!(own.iter().all(|name| name.starts_with("mcm-cell-system_")), "{own:?}");
    assert_eq!(wire.get::<Value>(SETS_LEASE).unwrap()["spec"]["leaseDurationSeconds"], json!(900));
    drop(leading);
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_two_roles_are_respected_each_by_itself() {
    let (wire, cloud) = (world(), CountingCloud::new());
    machine(&wire, "alone");
    let _go = go_program(&wire, SETS_LEASE);
    let _leading = lead_beside(&wire, &cloud);
    until("the machine has a VM", || cloud.created() == 1).await;
    sleep(LONG).await;
    assert_eq!((wire.count("POST machines"), wire.count("PATCH machinesets")), (0, 0));

    let (wire, cloud) = (world(), CountingCloud::new());
    let _go = go_program(&wire, MACHINES_LEASE);
    let _leading = lead_beside(&wire, &cloud);
    until("the machines are created", || wire.len("machines") == 20).await;
    sleep(LONG).await;
    assert_eq!((cloud.calls(), wire.count("PATCH machines/")), (0, 0));
    assert_eq!(holder(&wire, MACHINES_LEASE).as_deref(), Some("go-host"));
}

#[rstest]
#[case::refused(Fate::Refused)]
#[case::away(Fate::Unavailable)]
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_is_not_free(#[case] fate: Fate) {
    let (wire, cloud) = (world(), CountingCloud::new());
    wire.judge(move |request| if request.starts_with("GET leases/") { fate } else { Fate::Answered });
    let _leading = lead_beside(&wire, &cloud);
    sleep(LONG).await;
    assert_eq!((writes(&wire), cloud.calls()), (Vec::new(), 0));
    wire.judge(|_| Fate::Answered);
    until("each machine has a VM", || cloud.created() == 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_takes_ends_the_work_in_its_namespace_and_in_no_other() {
    let (wire, cloud) = (world(), CountingCloud::new());
    let _leading = lead_beside(&wire, &cloud);
    until("each machine has a VM", || cloud.created() == 20).await;
    // By force: a program that respects Leases would wait.
    let go = [SETS_LEASE, MACHINES_LEASE].map(|lease| go_program(&wire, lease));
    // The next renewal notices it.
    sleep(Duration::from_mins(6)).await;
    let before = (writes(&wire).len(), cloud.calls());
    wire.put::<Value>("machinesets/pool", &json!({"spec": {"replicas": 3}}));
    sleep(LONG).await;
    assert_eq!((writes(&wire).len(), cloud.calls()), before);
    drop(go);
    until("the set has its size", || wire.len("machines") == 3).await;
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_namespace_without_objects_are_released() {
    let (wire, cloud) = (world(), CountingCloud::new());
    wire.put::<Value>("machinesets/pool", &json!({"spec": {"replicas": 0}}));
    let _leading = lead_beside(&wire, &cloud);
    let are = |expected: fn(&str) -> bool| {
        [SETS_LEASE, MACHINES_LEASE].iter().all(|lease| holder(&wire, lease).is_some_and(|name| expected(&name)))
    };
    until("the leases are held", || are(|name| name.starts_with("mcm-cell-"))).await;
    sleep(LONG).await;
    assert!(are(|name| name.starts_with("mcm-cell-")), "there are objects");
    wire.remove("machinesets/pool");
    wire.remove("machineclasses/c");
    until("the leases are released", || are(str::is_empty)).await;
    // They are acquired again for new objects.
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": "next", "namespace": "shoot"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"pool": "a"}}, "template": {
            "metadata": {"labels": {"pool": "a"}}, "spec": {"class": {"kind": "MachineClass", "name": "c"}},
        }},
    });
    wire.put::<Value>("machinesets/next", &set);
    let took = until("a machine is created", || wire.len("machines") == 1).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Sets the replicas of the Deployment; `None` deletes it.
fn turn(wire: &Wire, replicas: Option<u32>) {
    match replicas {
        Some(replicas) => {
            let deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "machine-controller-manager", "namespace": "shoot"},
                "spec": {"replicas": replicas, "selector": {}, "template": {}},
            });
            wire.put::<Value>(SWITCH, &deployment);
        }
        None => wire.remove(SWITCH),
    }
}

fn lead_by_switch(wire: &Wire, cloud: &Arc<CountingCloud>) -> Leading {
    Standby::start_with_switch(wire, KINDS, &Settings { drivers: drivers_of(cloud), ..settings() }).lead()
}

#[rstest]
#[case::no_replicas(Some(0))]
#[case::deleted(None)]
#[tokio::test(start_paused = true)]
async fn a_namespace_whose_deployment_is_switched_off_is_left_alone_within_a_second(#[case] off: Option<u32>) {
    let (wire, cloud) = (world(), CountingCloud::taking(Duration::from_secs(30)));
    turn(&wire, Some(1));
    let _leading = lead_by_switch(&wire, &cloud);
    // Some VMs are being created.
    until("the creations begin", || cloud.calls() >= 4).await;
    turn(&wire, off);
    sleep(Duration::from_secs(1)).await;
    let parked = (writes(&wire).len(), cloud.calls());
    wire.put::<Value>("machinesets/pool", &json!({"spec": {"replicas": 0}}));
    sleep(LONG).await;
    assert_eq!((writes(&wire).len(), cloud.calls(), cloud.created()), (parked.0, parked.1, 0));
    wire.put::<Value>("machinesets/pool", &json!({"spec": {"replicas": 2}}));
    turn(&wire, Some(2));
    until("the set has its size", || wire.len("machines") == 2 && cloud.created() >= 2).await;
}

#[rstest]
#[case::none(None)]
#[case::zero(Some(0))]
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_off_at_the_start_is_not_touched_until_it_is_switched_on(#[case] off: Option<u32>) {
    let (wire, cloud) = (world(), CountingCloud::new());
    off.into_iter().for_each(|replicas| turn(&wire, Some(replicas)));
    let _leading = lead_by_switch(&wire, &cloud);
    sleep(LONG).await;
    assert_eq!((writes(&wire), cloud.calls()), (Vec::new(), 0));
    turn(&wire, Some(1));
    let began = Instant::now();
    until("each machine has a VM", || cloud.created() == 20).await;
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn machines_with_silent_nodes_are_left_alone_while_the_deployment_is_off() {
    let (wire, cloud) = (world(), CountingCloud::new());
    wire.put::<Value>("machinesets/pool", &json!({"spec": {"replicas": 3}}));
    turn(&wire, Some(1));
    let _leading = lead_by_switch(&wire, &cloud);
    until("each machine has a VM", || cloud.created() == 3).await;
    let names: Vec<String> = cloud.names();
    let node = |name: &str, ready: &str| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": format!("cloud:///{name}")},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    };
    let phases = |phase: &str| {
        let machines: Vec<Value> = wire.all("machines");
        machines.iter().filter(|machine| machine["status"]["currentStatus"]["phase"] == phase).count()
    };
    names.iter().for_each(|name| drop(wire.put::<Value>(&format!("nodes/{name}"), &node(name, "True"))));
    until("the machines run", || phases("Running") == 3).await;
    turn(&wire, Some(0));
    sleep(Duration::from_secs(1)).await;
    let parked = (writes(&wire).len(), cloud.calls());
    names.iter().for_each(|name| drop(wire.put::<Value>(&format!("nodes/{name}"), &node(name, "Unknown"))));
    sleep(LONG).await;
    // A Node that is deleted in this time leads to nothing either, also not later.
    wire.remove(&format!("nodes/{}", names[0]));
    sleep(LONG).await;
    assert_eq!((writes(&wire).len(), cloud.calls(), phases("Running")), (parked.0, parked.1, 3));
    names.iter().for_each(|name| drop(wire.put::<Value>(&format!("nodes/{name}"), &node(name, "True"))));
    turn(&wire, Some(1));
    sleep(LONG).await;
    assert_eq!((wire.len("machines"), cloud.created(), cloud.deleted()), (3, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn vms_of_machines_that_a_migration_strips_are_no_orphans_while_the_deployment_is_off() {
    let (wire, cloud) = (world(), CountingCloud::new());
    turn(&wire, Some(1));
    let _leading = lead_by_switch(&wire, &cloud);
    until("each machine has a VM", || cloud.created() == 20).await;
    sleep(SHORT).await;
    turn(&wire, None);
    sleep(Duration::from_secs(1)).await;
    wire.remove("machinesets/pool");
    cloud.names().iter().for_each(|name| wire.remove(&format!("machines/{name}")));
    // The class outlives them by many periods of the collector.
    sleep(LONG * 3).await;
    assert_eq!(cloud.deleted(), 0);
    // They are, once it is on again.
    turn(&wire, Some(1));
    until("some are deleted", || cloud.deleted() > 0).await;
}
