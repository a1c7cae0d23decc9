//! The events that trigger a check, and its delay.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::KIND;
use crate::testing::{Leading, Wire, settings, until};
use mcm_api::{
    labels,
    machine::{MachineDeployment, MachineSet},
};
use mcm_rules::plan::WaitKind;
use mcm_runtime::{cache::Key, cells::CellOverview};

/// Sooner than the period.
const SOON: Duration = Duration::from_secs(2);
const PERIOD: Duration = Duration::from_mins(1);

struct World {
    wire: Wire,
    set: MachineSet,
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true})
}

impl World {
    /// A deployment of 1 replica without a surge: the limit is 3.
    fn new(machines: usize) -> Self {
        let wire = Wire::new();
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "pool", "namespace": "shoot"},
            "spec": {"replicas": 1, "template": {}, "strategy": {"type": "Recreate"}},
        });
        let deployment: MachineDeployment = wire.put("machinedeployments/pool", &deployment);
        let set = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {
                "name": "set", "namespace": "shoot",
                "ownerReferences": [owner("MachineDeployment", "pool", &deployment.uid().unwrap())],
            },
            "spec": {"replicas": 1},
        });
        let world = Self { set: wire.put("machinesets/set", &set), wire };
        (0..machines).for_each(|index| world.add(index));
        world
    }

    fn add(&self, index: usize) {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": format!("m{index}"), "namespace": "shoot",
                "ownerReferences": [owner("MachineSet", "set", &self.set.uid().unwrap())],
            },
            "spec": {},
        });
        self.wire.put::<Value>(&format!("machines/m{index}"), &machine);
    }

    fn is_frozen(&self) -> bool {
        let labelled = |path: &str| self.wire.get::<Value>(path).unwrap()["metadata"]["labels"]["freeze"] == "True";
        let frozen = labelled("machinesets/set");
        frozen && labelled("machinedeployments/pool")
    }

    fn start(&self) -> Leading {
        Leading::start(&self.wire, &[KIND], &settings())
    }

    async fn until_frozen(&self, expected: bool) -> Duration {
        until(if expected { "it is frozen" } else { "it is not frozen" }, || self.is_frozen() == expected).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_there_at_the_start_is_checked_at_once_and_what_a_creation_adds_soon() {
    let world = World::new(3);
    let leading = world.start();
    assert!(world.until_frozen(true).await < SOON);
    let explained = || leading.cell.explain("MachineDeployment", &Key::new("shoot", "pool"));
    until("the next check is explained", || explained().is_some_and(|it| !it.waits.is_empty())).await;
    let explained = explained().unwrap();
    assert_eq!(
        (explained.controller, explained.waits[0].wait.kind),
        ("machinesafetyovershooting", WaitKind::MachineCount)
    );

    let fewer = World::new(2);
    let _leading = fewer.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!fewer.is_frozen());
    fewer.add(2);
    assert!(fewer.until_frozen(true).await < SOON);
}

#[tokio::test(start_paused = true)]
async fn a_freeze_left_by_the_go_program_ends_when_its_machines_are_deleted() {
    let world = World::new(3);
    let condition = json!([{"type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount"}]);
    let label = json!({"metadata": {"labels": {"freeze": "True"}}});
    for (path, field) in [("machinesets/set", "machineSetCondition"), ("machinedeployments/pool", "conditions")] {
        world.wire.put::<Value>(path, &label);
        world.wire.put::<Value>(path, &json!({"status": {field: condition}}));
    }
    let leading = world.start();
    tokio::time::sleep(PERIOD * 2).await;
    assert!(world.is_frozen(), "3 machines are too many");
    assert_eq!(world.wire.count("PATCH"), 0, "nothing is written again");
    world.wire.remove("machines/m2");
    assert!(world.until_frozen(false).await < SOON);
    let text = leading.metrics.render();
    assert!(text.contains("mcm_workqueue_adds_total{name=\"machinesafetyovershooting\"}"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_is_noticed_and_a_label_set_by_hand_removed_with_the_next_period() {
    let world = World::new(3);
    world.wire.put::<Value>("machinedeployments/pool", &json!({"spec": {"replicas": 3}}));
    let _leading = world.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.wire.put::<Value>("machinedeployments/pool", &json!({"spec": {"replicas": 1}}));
    let took = world.until_frozen(true).await;
    assert!(SOON < took && took < PERIOD, "not at once: most scale-downs end within a period ({took:?})");

    let calm = World::new(1);
    let _leading = calm.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    calm.wire.put::<Value>("machinesets/set", &json!({"metadata": {"labels": {"freeze": "True"}}}));
    let is_labelled = || calm.wire.get::<Value>("machinesets/set").unwrap()["metadata"]["labels"]["freeze"] == "True";
    let took = until("the label is removed", || !is_labelled()).await;
    assert!(SOON < took && took < PERIOD, "{took:?}");
}

/// The replicas of the deployment are lowered at once, and the machines exist until their Nodes are drained.
#[tokio::test(start_paused = true)]
async fn machines_that_the_autoscaler_chose_do_not_count() {
    let world = World::new(5);
    let list = json!({"metadata": {"annotations": {labels::TRIGGER_DELETION: "m0~2026-01-01T00:00:00Z,m1"}}});
    world.wire.put::<Value>("machinedeployments/pool", &list);
    let mark = json!({labels::PRIORITY: "1", labels::MARKED_FOR_DELETION_TIME: "2026-01-01T00:00:00Z"});
    world.wire.put::<Value>("machines/m2", &json!({"metadata": {"annotations": mark}}));
    let _leading = world.start();
    tokio::time::sleep(PERIOD * 2).await;
    assert!(!world.is_frozen(), "2 of 5 count");
    world.add(5);
    assert!(world.until_frozen(true).await < SOON);
}

#[tokio::test(start_paused = true)]
async fn the_annotation_is_honoured_soon() {
    for path in ["machinesets/set", "machinedeployments/pool"] {
        let world = World::new(3);
        let _leading = world.start();
        world.until_frozen(true).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let annotation = json!({"metadata": {"annotations": {"safety.machine.sapcloud.io/unfreeze": "True"}}});
        world.wire.put::<Value>(path, &annotation);
        assert!(world.until_frozen(false).await < SOON, "{path}");
        assert!(world.until_frozen(true).await > Duration::from_secs(50), "a period passes first");
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_loses_its_deployment_is_checked_by_itself() {
    let world = World::new(2);
    let _leading = world.start();
    tokio::time::sleep(Duration::from_secs(10)).await;
    world
        .wire
        .put::<Value>("machinesets/set", &json!({"metadata": {"ownerReferences": null}, "spec": {"replicas": 0}}));
    let is_labelled = || world.wire.get::<Value>("machinesets/set").unwrap()["metadata"]["labels"]["freeze"] == "True";
    assert!(until("2 machines >= 2 * 0 + 2", is_labelled).await < SOON);
}
