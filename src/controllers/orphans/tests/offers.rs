//! Machines that are created again for VMs and Nodes.

use std::{collections::BTreeMap, sync::Arc};

use rstest::rstest;
use serde_json::{Value, json};

use super::world::machine;
use crate::orphans::{ADOPTED_FOR, AdoptionOffer, ClassVms, NamespaceObjects, OfferStep, TargetNode, offers};
use mcm_api::{labels, machine::MachineSet, patch, vm_owner::Owner};
use mcm_driver::{ListedVm, VmsByProviderId};

#[derive(Clone)]
struct Scene {
    vms: VmsByProviderId,
    stock: NamespaceObjects,
}

impl Scene {
    /// A set with two replicas, one of which runs and one of which lost its VM, and VM 5 with its Node.
    fn new() -> Self {
        let mut scene = Self { vms: VmsByProviderId::new(), stock: NamespaceObjects::default() };
        scene.set(&json!({}));
        scene.vm("cloud:///5", "pool-1-five", Some("shoot"));
        scene.node("node-5", "cloud:///5");
        scene.vm("cloud:///1", "pool-1-one", Some("shoot"));
        scene.member("pool-1-one", "cloud:///1", "Running");
        scene.member("pool-1-two", "cloud:///2", "Unknown");
        scene
    }

    fn set(&mut self, change: &Value) {
        let mut set = json!({
            "metadata": {"name": "pool-1", "namespace": "shoot", "uid": "s"},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"name": "pool"}},
                "template": {
                    "metadata": {"labels": {"name": "pool", "hash": "1"}},
                    "spec": {"class": {"kind": "MachineClass", "name": "c"}, "drainTimeout": "7m"},
                },
            },
        });
        patch::apply(&mut set, change);
        self.stock.sets = vec![serde_json::from_str::<MachineSet>(&set.to_string()).unwrap()];
    }

    fn vm(&mut self, id: &str, machine: &str, owner: Option<&str>) {
        self.vms.insert(id.to_owned(), ListedVm::new(machine, owner.map(str::to_owned)));
    }

    fn node(&mut self, name: &str, id: &str) {
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": id}});
        let node = Arc::new(serde_json::from_value(node).unwrap());
        self.stock.nodes = vec![TargetNode { target: "target".to_owned(), is_default: true, node }];
    }

    fn member(&mut self, name: &str, id: &str, phase: &str) {
        let change = json!({
            "metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "MachineSet", "name": "pool-1", "uid": "s", "controller": true},
            ]},
            "spec": {"providerID": id}, "status": {"currentStatus": {"phase": phase}},
        });
        self.stock.machines.push(Arc::new(machine(name, &change)));
    }

    fn offers(&self) -> Vec<AdoptionOffer> {
        let owner = Owner { namespace: "shoot".to_owned(), uid: None };
        let list = ClassVms { owner, vms: self.vms.clone() };
        // Two classes with one tag.
        offers(&[list.clone(), list], &self.stock)
    }
}

#[test]
fn a_machine_is_created_from_the_template_of_its_set_and_gets_the_labels_when_it_runs() {
    let mut scene = Scene::new();
    let offers = scene.offers();
    assert_eq!(offers.len(), 1, "{offers:?}");
    let Ok(OfferStep::Create(created)) = offers[0].step.clone() else { panic!("{offers:?}") };
    let made = serde_json::to_value(&created).unwrap();
    assert_eq!(made["metadata"]["name"], "pool-1-five");
    assert_eq!(
        made["metadata"]["labels"],
        Value::Null,
        "or the set would delete it as surplus, because it has no phase"
    );
    assert_eq!(made["metadata"]["annotations"], json!({ADOPTED_FOR: "pool-1"}));
    assert_eq!(made["metadata"]["finalizers"], json!([labels::FINALIZER]));
    assert_eq!((&made["spec"]["providerID"], &made["spec"]["drainTimeout"]), (&json!("cloud:///5"), &json!("7m0s")));
    assert_eq!(made["spec"]["class"]["name"], "c");

    let mut machine = *created;
    scene.stock.machines.push(Arc::new(machine.clone()));
    assert_eq!(scene.offers()[0].step, Ok(OfferStep::Wait));
    machine.status = serde_json::from_value(json!({"currentStatus": {"phase": "Running"}})).unwrap();
    scene.stock.machines.pop();
    scene.stock.machines.push(Arc::new(machine));
    let Ok(OfferStep::Join { labels: joined, .. }) = scene.offers()[0].step.clone() else {
        panic!("{:?}", scene.offers())
    };
    assert_eq!(joined, BTreeMap::from([("name".to_owned(), "pool".to_owned()), ("hash".to_owned(), "1".to_owned())]));

    scene.stock.machines.pop();
    scene.member("pool-1-five", "cloud:///5", "Running");
    assert_eq!(scene.offers(), [], "the set has it");
}

#[rstest]
#[case::it_has_no_node(|scene: &mut Scene| scene.stock.nodes.clear(), "no Node has this VM")]
#[case::its_set_does_not_exist(|scene: &mut Scene| scene.stock.sets.clear(), "no MachineSet has a name")]
#[case::its_set_has_its_replicas(|scene: &mut Scene| scene.set(&json!({"spec": {"replicas": 1}})), "has its 1 replicas without it")]
#[case::its_set_does_not_select_it(
    |scene: &mut Scene| scene.set(&json!({"spec": {"selector": {"matchLabels": {"name": "x"}}}})),
    "does not select the machines of its template"
)]
#[case::a_lost_machine_still_counts_as_running(
    |scene: &mut Scene| scene.member("pool-1-three", "cloud:///3", "Running"),
    "machine pool-1-three is Running, and its VM is not listed"
)]
#[case::a_machine_of_its_name_has_another_vm(
    |scene: &mut Scene| { scene.vm("cloud:///6", "x", Some("team-b")); scene.member("pool-1-five", "cloud:///6", "Running"); },
    "another one has it"
)]
fn a_vm_that_no_set_can_take_is_left(#[case] change: fn(&mut Scene), #[case] reason: &str) {
    let mut scene = Scene::new();
    change(&mut scene);
    let offers = scene.offers();
    let offer = offers.iter().find(|offer| offer.vm == "cloud:///5").unwrap();
    assert!(offer.step.as_ref().unwrap_err().contains(reason), "{offer:?}");
}

#[test]
fn no_more_machines_are_created_than_a_set_has_room_for() {
    let mut scene = Scene::new();
    scene.vm("cloud:///6", "pool-1-six", None);
    let mut nodes = scene.stock.nodes.clone();
    scene.node("node-6", "cloud:///6");
    nodes.append(&mut scene.stock.nodes);
    scene.stock.nodes = nodes;
    let steps: Vec<bool> = scene.offers().iter().map(|offer| offer.step.is_ok()).collect();
    assert_eq!(steps, [true, false]);
}

#[test]
fn the_vm_of_another_owner_is_not_offered() {
    let mut scene = Scene::new();
    scene.vm("cloud:///5", "pool-1-five", Some("team-b"));
    assert_eq!(scene.offers(), []);
}
