//! From the stand-in to the native controllers.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::World;
use crate::{Kind, MigrationDirection, MigrationStage, Plan, object::ObjectId};
use mcm_api::labels;
use mcm_conversion::types::names;

const WAY: MigrationDirection = MigrationDirection::FromStandIn;

impl World {
    /// A namespace in which the stand-in shows a deployment with two machines.
    fn of_stand_in() -> Self {
        let mut world = Self::empty();
        world.put(
            Kind::Namespace,
            "ns",
            json!({ "metadata": { "labels": { (labels::STAND_IN): labels::SERVED, "x": "y" } } }),
        );
        world.cluster();
        let synchronized = json!([{ "type": "Synchronized", "status": "True", "observedGeneration": 1 }]);
        let shown = world.put(
            Kind::CapiDeployment,
            "d",
            json!({
                "metadata": { "finalizers": [labels::STAND_IN_FINALIZER] },
                "spec": { "clusterName": "c" }, "status": { "conditions": synchronized },
            }),
        );
        let serving = json!([{ "type": "StandIn", "status": "True" }]);
        world.put(
            Kind::Migration,
            "d",
            json!({
                "metadata": { "labels": { (labels::STAND_IN): labels::SERVED } },
                "spec": { "authority": "ClusterAPI", "clusterName": "c" },
                "status": { "authority": "ClusterAPI", "conditions": serving },
            }),
        );
        let keys = json!({ (labels::STAND_IN): "d", (names::CLUSTER_NAME): "c" });
        let native = world.put(Kind::Deployment, "d", json!({ "metadata": { "labels": keys } }));
        world.put(Kind::Set, "d-1", json!({ "metadata": { "ownerReferences": native }, "spec": { "replicas": 0 } }));
        let mirror = |owners: &Value| {
            let marks = json!({ (labels::MIRROR): "", (names::PAUSED): "" });
            let of_deployment = json!({ (names::DEPLOYMENT_NAME): "d" });
            json!({ "metadata": { "annotations": marks, "labels": of_deployment, "ownerReferences": owners } })
        };
        let set = world.put(Kind::CapiSet, "d-1", mirror(&shown));
        for name in ["d-1-a", "d-1-b"] {
            world.put(Kind::CapiMachine, name, mirror(&set));
        }
        world
    }

    /// Simulates the stand-in: it takes the authority as requested, and removes the shown objects before the
    /// MachineDeployment is deleted. A deletion while Cluster API has the authority deletes the VMs.
    fn stand_in(&mut self) {
        let Some(deployment) = self.s.find(Kind::CapiDeployment, "d").cloned() else { return };
        let migration = self.s.find(Kind::Migration, "d").cloned();
        if let Some(migration) = &migration {
            let wanted = migration.at("/spec/authority");
            self.edit(Kind::Migration, "d", &json!({ "status": { "authority": wanted } }));
        }
        if deployment.is_deleting() {
            let given = migration.is_none_or(|one| one.text("/status/authority") == "MachineController");
            assert!(given, "the VMs are deleted");
            let gone = [Kind::Migration, Kind::CapiSet, Kind::CapiMachine, Kind::CapiDeployment];
            self.s.objects.retain(|id, _| !gone.contains(&id.kind));
        }
    }

    fn hand_over(&mut self) {
        for _ in 0..20 {
            if self.round(WAY, usize::MAX).stage == MigrationStage::Done {
                return;
            }
            self.stand_in();
        }
        let plan = self.plan(WAY);
        panic!("it does not end: {:?} {:#?}", plan.current(), plan.todo);
    }

    fn is_handed_over(&self) -> bool {
        let namespace = self.s.find(Kind::Namespace, "ns").unwrap();
        let left = [Kind::CapiDeployment, Kind::CapiSet, Kind::CapiMachine, Kind::Migration];
        let is_native = self.s.find(Kind::Deployment, "d").is_some_and(|native| !native.is_deleting());
        is_native
            && namespace.at("/metadata/labels") == json!({ "x": "y" })
            && left.into_iter().all(|kind| self.s.all(kind).next().is_none())
    }
}

fn titles(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|step| step.title).collect()
}

/// S8: the objects that show the machines are deleted, and the label with the last of them. The native side is not
/// touched.
#[test]
fn s8_the_native_controllers_get_the_machines_alone() {
    let mut world = World::of_stand_in();
    let plan = world.plan(WAY);
    assert_eq!(plan.failed().count(), 0, "{:#?}", plan.checks);
    let expected = [
        "transfer the authority to the MCM controllers",
        "remove the MachineSets and Machines that mirror the machines",
        "remove the label from the namespace",
    ];
    assert_eq!(titles(&plan), expected);
    let native = world.s.find(Kind::Deployment, "d").cloned();
    world.hand_over();
    assert!(world.is_handed_over());
    assert_eq!(world.s.find(Kind::Deployment, "d"), native.as_ref());
    assert_eq!(world.plan(WAY).stage, MigrationStage::Done);
}

/// It is continued after an interruption at any write, before and after the stand-in's part.
#[rstest]
fn s8_a_hand_over_that_stops_anywhere_goes_on(#[values(0, 1, 2)] turns: usize) {
    for stop in 0..8 {
        let mut world = World::of_stand_in();
        for _ in 0..stop {
            world.round(WAY, 1);
            (0..turns).for_each(|_| world.stand_in());
        }
        world.hand_over();
        assert!(world.is_handed_over());
    }
}

/// S6: nothing is deleted before the native side has the authority, whatever is requested.
#[test]
fn s8_nothing_is_removed_before_the_native_side_has_the_authority() {
    let mut world = World::of_stand_in();
    for _ in 0..5 {
        world.round(WAY, usize::MAX);
    }
    let plan = world.plan(WAY);
    assert_eq!(plan.todo.waits, ["the stand-in to transfer the authority to the MCM controllers"]);
    assert!(!world.s.find(Kind::CapiDeployment, "d").unwrap().is_deleting());
}

/// S3: the label keeps core from acting, so it stays as long as anything else is served.
#[test]
fn s8_the_label_stays_while_there_is_another_deployment() {
    let mut world = World::of_stand_in();
    let other = json!({
        "metadata": { "finalizers": [labels::STAND_IN_FINALIZER], "annotations": { (names::PAUSED): "" } },
    });
    world.put(Kind::CapiDeployment, "other", other.clone());
    let losses = world.plan(WAY).losses;
    assert_eq!(
        losses,
        ["the namespace keeps the label machine.mcm/stand-in as long as MachineDeployment other exists"]
    );
    let kept = |world: &World| world.s.find(Kind::Namespace, "ns").unwrap().label(labels::STAND_IN).is_some();
    for _ in 0..10 {
        world.round(WAY, usize::MAX);
        world.stand_in();
        if world.s.find(Kind::CapiDeployment, "other").is_none() {
            world.put(Kind::CapiDeployment, "other", other.clone());
        }
    }
    assert_eq!(world.plan(WAY).stage, MigrationStage::Done);
    assert!(kept(&world));
    world.s.objects.remove(&ObjectId::new(Kind::CapiDeployment, "other"));
    world.hand_over();
    assert!(!kept(&world));
}

#[rstest]
#[case::not_served(
    Kind::CapiDeployment, "d", json!({ "metadata": { "finalizers": null } }), "deployment: is not served by the stand-in, or not yet"
)]
#[case::going(
    Kind::CapiDeployment, "d", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    "deployment: is being deleted, and its machines with it"
)]
#[case::core_came_first(
    Kind::Migration, "d", json!({ "status": { "conditions": [{ "type": "StandIn", "status": "False" }] } }),
    "stand-in: does not act; see the condition StandIn of MCMMigration d"
)]
#[case::not_asked(
    Kind::Namespace, "ns", json!({ "metadata": { "labels": null } }),
    "stand-in: Namespace ns has no label machine.mcm/stand-in=enabled"
)]
#[case::paused(
    Kind::CapiDeployment, "d", json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }),
    "pause: MachineDeployment d is paused: remove the annotation cluster.x-k8s.io/paused"
)]
#[case::paused_cluster(Kind::Cluster, "c", json!({ "spec": { "paused": true } }), "pause: Cluster c is paused: unpause it")]
#[case::changed(
    Kind::CapiDeployment, "d", json!({ "metadata": { "generation": 2 } }),
    "synchronized: see the condition Synchronized of MachineDeployment d"
)]
#[case::of_somebody_else(
    Kind::Deployment, "d", json!({ "metadata": { "labels": { (labels::STAND_IN): null } } }),
    "mcm: there is no MCM MachineDeployment d of the stand-in"
)]
fn s8_nothing_is_begun_while_the_stand_in_cannot_give_the_machines_away(
    #[case] kind: Kind,
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &str,
) {
    let mut world = World::of_stand_in();
    world.edit(kind, name, &change);
    assert_eq!(world.failed(WAY), [expected]);
    let plan = world.plan(WAY);
    assert_eq!((plan.stage, plan.todo.actions.len()), (MigrationStage::Fresh, 0));
}

/// An unknown deployment does not count as handed over.
#[test]
fn s8_what_does_not_exist_is_not_done() {
    let mut world = World::of_stand_in();
    for kind in [Kind::CapiDeployment, Kind::Deployment, Kind::Migration] {
        world.s.objects.remove(&ObjectId::new(kind, "d"));
    }
    assert_eq!(world.failed(WAY), ["deployment: MachineDeployment d does not exist"]);
}
