//! What nobody plans: kubelets, users, other controllers, and bad luck.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{NodeCondition, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::ResourceExt;
use serde_json::json;

use super::{Model, wish::POOL};
use crate::{
    api::{
        labels,
        node::{Node, NodeSpec, NodeStatus},
    },
    drain::PodFacts,
};

/// What happens at a time.
#[derive(Debug)]
pub(super) enum Event {
    /// A VM joins the cluster.
    Boots {
        vm: String,
    },
    /// A Node is ready, if its VM lives.
    Ready {
        node: String,
    },
    /// A Node is not ready, for so long or for ever.
    Ails {
        node: String,
        for_seconds: Option<i64>,
    },
    /// A Node is unknown, if its VM is gone.
    LosesContact {
        node: String,
    },
    /// The cloud controller removes a Node whose VM is gone.
    Swept {
        node: String,
    },
    PodEnds {
        uid: String,
    },
}

/// Events to come.
#[derive(Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Timestamp, u64), Event>,
    serial: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Timestamp, event: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl Model {
    /// The next event on the agenda.
    pub(super) fn happen_in_time(&mut self) {
        let Some((_, event)) = self.agenda.events.pop_first() else { return };
        match event {
            Event::Boots { vm } => self.join(&vm),
            Event::Ready { node } => {
                if self.cloud.has_vm_for_node(&node) {
                    self.set_ready(&node, "True");
                    self.place_pods(&node);
                }
            }
            Event::Ails { node, for_seconds } => {
                self.set_ready(&node, "False");
                if let Some(seconds) = for_seconds {
                    let at = self.now() + SignedDuration::from_secs(seconds);
                    self.agenda.add(at, Event::Ready { node });
                }
            }
            Event::LosesContact { node } => {
                if !self.cloud.has_vm_for_node(&node) {
                    self.set_ready(&node, "Unknown");
                    // A Node that joined in the last moment, and that no Machine ever knew.
                    let held = self.cluster.nodes.get(&node);
                    if held.is_some_and(|held| !held.labels().contains_key(labels::MACHINE_NAME)) {
                        let at = self.now() + SignedDuration::from_mins(5);
                        self.agenda.add(at, Event::Swept { node });
                    }
                }
            }
            Event::Swept { node } => {
                if !self.cloud.has_vm_for_node(&node) {
                    self.delete_node_from_outside(&node);
                }
            }
            Event::PodEnds { uid } => {
                let pods = &self.cloud.pods;
                let node =
                    pods.iter().find(|(_, pods)| pods.iter().any(|pod| *pod.pod.uid == *uid)).map(|(node, _)| node);
                // Without its kubelet a pod never ends.
                if node.is_some_and(|node| self.cloud.has_vm_for_node(node)) {
                    self.cloud.remove_pod(&uid);
                }
            }
        }
    }

    /// A user does something, or something goes wrong.
    pub(super) fn happen_outside(&mut self) {
        if self.dice.per_mille(self.rates.mishaps) {
            return self.suffer();
        }
        match self.dice.below(14) {
            0 => self.delete_some_machine(),
            1 => self.delete_some_set(),
            2 => self.scale_down_as_autoscaler(),
            3 => {
                let pause = self.dice.millis(1000..1_800_000);
                self.say(format!("nothing happens for {pause}"));
                self.cluster.clock.now += pause;
            }
            _ => self.wish_anew(),
        }
    }

    fn wish_anew(&mut self) {
        if self.cluster.deployments.get(POOL).is_none() {
            return;
        }
        let change = self.wish.change(&mut self.dice);
        self.say(format!("user: {change}"));
        self.fulfil_wish();
    }

    /// Writes the wish into the deployment.
    pub(super) fn fulfil_wish(&mut self) {
        self.ledger.wished(&self.wish, &self.cluster);
        let wish = self.wish.clone();
        let (clock, deployments) = self.cluster.deployments();
        if let Some(seen) = deployments.get(POOL).cloned() {
            let wanted = wish.deployment().spec;
            if seen.spec != wanted {
                deployments.edit(clock, POOL, |deployment| deployment.spec = wanted);
            }
            if wish.is_deleted {
                deployments.delete(clock, &seen).unwrap();
            }
        }
    }

    fn suffer(&mut self) {
        match self.dice.below(8) {
            0 | 1 => self.kill_some_vm(),
            2..=4 => {
                if let Some(node) = self.some_node() {
                    let for_seconds = (!self.dice.one_in(3)).then(|| self.dice.within(1..900));
                    self.say(format!("node {node} ails for {for_seconds:?} s"));
                    let now = self.now();
                    self.agenda.add(now, Event::Ails { node, for_seconds });
                }
            }
            5 => {
                if let Some(node) = self.some_node() {
                    self.say(format!("user: delete node {node}"));
                    self.delete_node_from_outside(&node);
                }
            }
            6 => self.crashes = true,
            _ => self.touch_something(),
        }
    }

    fn kill_some_vm(&mut self) {
        let ids: Vec<String> = self.cloud.vms.keys().cloned().collect();
        let Some(server) = self.dice.pick(&ids).and_then(|id| self.cloud.vms.remove(id)) else { return };
        self.say(format!("the VM of node {} is killed", server.node));
        self.lose_contact(&server.node);
        if self.dice.one_in(3) {
            let at = self.now() + self.dice.millis(1000..300_000);
            self.agenda.add(at, Event::Swept { node: server.node });
        }
    }

    fn delete_some_machine(&mut self) {
        let names = self.cluster.machines.names();
        let Some(name) = self.dice.pick(&names) else { return };
        self.say(format!("user: delete machine {name}"));
        let (clock, machines) = self.cluster.machines();
        let seen = machines.get(name).unwrap().clone();
        machines.delete(clock, &seen).unwrap();
    }

    /// Its Machines go with it, and the deployment makes it again if it has to.
    fn delete_some_set(&mut self) {
        let names = self.cluster.sets.names();
        let Some(name) = self.dice.pick(&names).filter(|_| self.rates.mishaps > 0) else { return };
        self.say(format!("user: delete set {name}"));
        let (clock, sets) = self.cluster.sets();
        let seen = sets.get(name).unwrap().clone();
        sets.delete(clock, &seen).unwrap();
    }

    /// The autoscaler names a Machine and takes one from the replicas.
    fn scale_down_as_autoscaler(&mut self) {
        let names = self.cluster.machines.names();
        let Some(name) = self.dice.pick(&names).filter(|_| self.wish.replicas > 0).cloned() else { return };
        if self.cluster.deployments.get(POOL).is_none() {
            return;
        }
        self.say(format!("autoscaler: without machine {name}"));
        self.wish.replicas -= 1;
        self.fulfil_wish();
        let now = Timestamp::from_second(self.now().as_second()).unwrap();
        let (clock, deployments) = self.cluster.deployments();
        if deployments.get(POOL).is_some() {
            deployments.edit(clock, POOL, |deployment| {
                let annotations = deployment.annotations_mut();
                annotations.insert(labels::TRIGGER_DELETION.to_owned(), format!("{name}~{now}"));
                annotations.insert(labels::LAST_SCALER_CHANGE.to_owned(), now.to_string());
            });
        }
    }

    fn touch_something(&mut self) {
        let names = self.cluster.machines.names();
        if let Some(name) = self.dice.pick(&names) {
            let (clock, machines) = self.cluster.machines();
            machines.touch(clock, name);
        }
        if let Some(node) = self.some_node() {
            let (clock, nodes) = self.cluster.nodes();
            nodes.touch(clock, &node);
        }
    }

    fn some_node(&mut self) -> Option<String> {
        let names = self.cluster.nodes.names();
        self.dice.pick(&names).cloned()
    }

    fn delete_node_from_outside(&mut self, node: &str) {
        let (clock, nodes) = self.cluster.nodes();
        if let Some(seen) = nodes.get(node).cloned() {
            nodes.delete(clock, &seen).unwrap();
        }
    }

    fn join(&mut self, vm: &str) {
        let Some(node) = self.cloud.vms.get(vm).map(|server| server.node.clone()) else { return };
        self.say(format!("node {node} joins"));
        let metadata = ObjectMeta { name: Some(node.clone()), ..ObjectMeta::default() };
        let now = self.now();
        let status = NodeStatus { conditions: vec![ready("False", now)], ..NodeStatus::default() };
        let spec = NodeSpec { provider_id: vm.to_owned(), ..NodeSpec::default() };
        let (clock, nodes) = self.cluster.nodes();
        // A kubelet takes over what it finds.
        if nodes.get(&node).is_none() {
            nodes.create(clock, Node { metadata, spec, status }).unwrap();
        }
        let at = now + self.dice.millis(100..20_000);
        self.agenda.add(at, Event::Ready { node });
    }

    fn set_ready(&mut self, name: &str, status: &str) {
        let now = self.now();
        let (clock, nodes) = self.cluster.nodes();
        let Some(node) = nodes.get(name) else { return };
        let is_so = node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == status);
        if is_so {
            return;
        }
        nodes.edit(clock, name, |node| {
            node.status.conditions.retain(|it| it.type_ != "Ready");
            node.status.conditions.push(ready(status, now));
        });
        self.say(format!("node {name} is ready: {status}"));
    }

    fn place_pods(&mut self, node: &str) {
        if self.cloud.pods.contains_key(node) {
            return;
        }
        let pods = (0..self.dice.below(3))
            .map(|_| {
                let uid = self.dice.roll();
                let grace = self.dice.within(1..60);
                let pod: Pod = serde_json::from_value(json!({
                    "metadata": { "namespace": "default", "name": format!("pod-{}", uid % 1000), "uid": uid.to_string() },
                    "spec": { "containers": [], "terminationGracePeriodSeconds": grace },
                }))
                .unwrap();
                PodFacts::of(&pod)
            })
            .collect();
        self.cloud.pods.insert(node.to_owned(), pods);
    }

    /// Nothing goes wrong any more, and nothing new is wished.
    pub(super) fn calm_down(&mut self) {
        self.say("from now on all goes well");
        self.rates = super::api::Rates::default();
        self.wish.settle_down(&mut self.dice);
        self.fulfil_wish();
        let now = self.now();
        for node in self.cluster.nodes.names() {
            self.agenda.add(now, Event::Ready { node });
        }
        // What was about to go wrong goes well.
        for event in self.agenda.events.values_mut() {
            if let Event::Ails { for_seconds, .. } = event {
                for_seconds.get_or_insert(1);
            }
        }
        // As the API server does with pods whose Node is gone.
        let nodes = self.cluster.nodes.names();
        self.cloud.pods.retain(|node, _| nodes.contains(node));
    }
}

fn ready(status: &str, now: Timestamp) -> NodeCondition {
    NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(Time(now)),
        ..NodeCondition::default()
    }
}
