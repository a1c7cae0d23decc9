//! A world in which a migration is played: API servers, a garbage collector, and controllers that confirm and report. What no
//! controller may ever be able to do is a violation.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    Kind, MigrationDirection, MigrationStage, Plan, UnstructuredObject,
    object::ObjectId,
    plan::{abort, plan},
    snapshot::{CloudAnswers, Snapshot},
    step::{Action, MigrationWrite},
    swap,
    unit::MigrationUnit,
};
use mcm_api::{labels, patch};
use mcm_conversion::types::names;

pub struct World {
    pub s: Snapshot,
    serial: u64,
    /// IDs of the VMs by name.
    pub vms: BTreeMap<String, String>,
    /// VMs with the tags of their class.
    pub tagged: BTreeSet<String>,
    /// VMs in the group of the pool, if there is one.
    pub group: Option<BTreeSet<String>>,
    /// Number of VMs that ended.
    pub lost: usize,
}

const HASH: &str = "abc";

impl World {
    pub fn empty() -> Self {
        let s = Snapshot {
            namespace: "ns".to_owned(),
            cluster: "c".to_owned(),
            unit: MigrationUnit::Deployment("d".to_owned()),
            objects: BTreeMap::new(),
            credentials: None,
            answers: Default::default(),
            cloud: None,
            now: Timestamp::UNIX_EPOCH,
        };
        Self { s, serial: 0, vms: BTreeMap::new(), tagged: BTreeSet::new(), group: None, lost: 0 }
    }

    /// A cluster of Cluster API with machines of the provider mcm, each described in place.
    pub fn of_cluster_api(count: usize) -> Self {
        let mut world = Self::empty();
        let class =
            json!({ "provider": "simulated", "providerSpec": { "zone": "z" }, "nodeTemplate": { "zone": "z" } });
        world.cluster();
        world.put(Kind::InfraTemplate, "t", json!({ "spec": { "template": { "spec": { "machineClass": class } } } }));
        let (hashed, spec, set) = world.core("MCMMachineTemplate", count);
        for number in 0..count {
            world.machine(&format!("d-abc-{number}"), &hashed, &spec, &set, &class);
        }
        world.controllers();
        world
    }

    /// A Cluster with infrastructure and a control plane.
    pub fn cluster(&mut self) {
        let initialized = json!({ "infrastructureProvisioned": true, "controlPlaneInitialized": true });
        let conditions = json!([{ "type": "ControlPlaneInitialized", "status": "True" }]);
        let status = json!({ "initialization": initialized, "conditions": conditions });
        self.put(Kind::Cluster, "c", json!({ "spec": {}, "status": status }));
    }

    /// Secret, deployment and set. Labels and spec of their machines, and the reference to the set.
    pub fn core(&mut self, template: &str, count: usize) -> (Value, Value, Value) {
        let world = self;
        world.put(Kind::Secret, "boot", json!({ "data": { "value": "I2Nsb3VkLWNvbmZpZw==" } }));
        let keys = json!({ "cluster.x-k8s.io/cluster-name": "c", "cluster.x-k8s.io/deployment-name": "d" });
        let spec = json!({
            "clusterName": "c", "version": "v1.33.0", "bootstrap": { "dataSecretName": "boot" },
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": template, "name": "t" },
        });
        let template = json!({ "metadata": { "labels": keys }, "spec": spec });
        let deployment = json!({
            "clusterName": "c", "replicas": count, "selector": { "matchLabels": keys }, "template": template,
        });
        let owner = world.put(Kind::CapiDeployment, "d", json!({ "spec": deployment }));
        let mut hashed = keys.clone();
        hashed[labels::TEMPLATE_HASH] = json!(HASH);
        let mut of_set = deployment.clone();
        of_set["selector"]["matchLabels"] = hashed.clone();
        of_set["template"]["metadata"]["labels"] = hashed.clone();
        let metadata =
            json!({ "labels": hashed, "ownerReferences": owner, "finalizers": ["cluster.x-k8s.io/machineset"] });
        let set = world.put(Kind::CapiSet, "d-abc", json!({ "metadata": metadata, "spec": of_set }));
        (hashed, spec, set)
    }

    /// VM, Node and Machine; the ID of the VM and the reference to the Machine.
    pub fn running(&mut self, name: &str, keys: &Value, spec: &Value, set: &Value, kind: &str) -> (String, Value) {
        let id = format!("simulated:///r/{name}");
        self.vms.insert(name.to_owned(), id.clone());
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let node = json!({ "conditions": ready, "nodeInfo": { "bootID": format!("boot-{name}") } });
        self.put(
            Kind::Node,
            name,
            json!({
                "metadata": { "annotations": { "cluster.x-k8s.io/machine": name, "other": "stays" } },
                "spec": { "providerID": id }, "status": node,
            }),
        );
        let mut spec = spec.clone();
        spec["providerID"] = json!(id);
        spec["infrastructureRef"]["kind"] = json!(kind);
        spec["infrastructureRef"]["name"] = json!(name);
        let metadata = json!({ "labels": keys, "ownerReferences": set, "finalizers": ["machine.cluster.x-k8s.io"] });
        let status = json!({ "phase": "Running", "nodeRef": { "name": name } });
        let owner = self.put(Kind::CapiMachine, name, json!({ "metadata": metadata, "spec": spec, "status": status }));
        (id, owner)
    }

    pub fn machine(&mut self, name: &str, keys: &Value, spec: &Value, set: &Value, class: &Value) {
        let (id, owner) = self.running(name, keys, spec, set, "MCMMachine");
        self.tagged.insert(name.to_owned());
        let metadata = json!({ "labels": keys, "ownerReferences": owner, "finalizers": [names::MACHINE_FINALIZER] });
        let infra = json!({ "providerID": id, "machineClass": class });
        let owner = self.put(Kind::InfraMachine, name, json!({ "metadata": metadata, "spec": infra }));
        let mut class = class.clone();
        class["metadata"] = json!({ "ownerReferences": owner });
        self.put(Kind::Class, name, class);
        self.native(name, name, &id, &owner);
    }

    /// The native Machine of an MCMMachine.
    fn native(&mut self, name: &str, class: &str, id: &str, owner: &Value) {
        self.put(Kind::Machine, name, json!({
            "metadata": {
                "labels": { "cluster.x-k8s.io/cluster-name": "c" }, "ownerReferences": owner, "finalizers": [labels::FINALIZER],
                "annotations": { (labels::USER_DATA_SECRET): "boot" },
            },
            "spec": {
                "class": { "apiGroup": "machine.sapcloud.io", "kind": "MachineClass", "name": class }, "providerID": id,
                "creationTimeout": "876000h0m0s", "disableHealthTimeout": true,
            },
            "status": { "currentStatus": { "phase": "Available" } },
        }));
    }

    /// Stores an object; the reference to it as a controller.
    pub fn put(&mut self, kind: Kind, name: &str, mut value: Value) -> Value {
        self.serial += 1;
        let metadata =
            json!({ "name": name, "uid": format!("u{}", self.serial), "generation": 1, "resourceVersion": "1" });
        patch::apply(
            &mut value,
            &json!({ "metadata": metadata, "apiVersion": kind.api_version(), "kind": kind.resource().name }),
        );
        if kind != Kind::Node {
            value["metadata"]["namespace"] = json!("ns");
        }
        let object = UnstructuredObject { kind, value };
        let owner = object.as_controller();
        self.s.objects.insert(object.id(), object);
        owner
    }

    pub fn edit(&mut self, kind: Kind, name: &str, change: &Value) {
        let object =
            self.s.objects.get_mut(&ObjectId::new(kind, name)).unwrap_or_else(|| panic!("{kind} {name} is gone"));
        patch::apply(&mut object.value, change);
    }

    /// A VM ends, and its Node is deleted.
    pub fn lose(&mut self, name: &str) {
        self.lost += 1;
        self.vms.remove(name);
        self.tagged.remove(name);
        if let Some(group) = &mut self.group {
            group.remove(name);
        }
        self.s.objects.remove(&ObjectId::new(Kind::Node, name));
    }

    /// Continues the migration until its current step has this title.
    pub fn walk_until(&mut self, way: MigrationDirection, title: &str) {
        self.walk_while(way, |plan| plan.current().is_none_or(|(_, step)| step.title != title));
    }

    /// Continues the migration until the authority is switched.
    pub fn walk_until_switched(&mut self, way: MigrationDirection) {
        self.walk_while(way, |plan| plan.stage != MigrationStage::Closing);
    }

    fn walk_while(&mut self, way: MigrationDirection, is_before: impl Fn(&Plan) -> bool) {
        for _ in 0..200 {
            if !is_before(&self.plan(way)) {
                return;
            }
            self.round(way, usize::MAX);
            self.controllers();
        }
        let failed: Vec<String> = self.plan(way).failed().map(ToString::to_string).collect();
        panic!("it does not come to that step: {:?} {failed:#?}", self.plan(way).current());
    }

    /// One round as the executor makes it, of which only so many writes happen.
    pub fn round(&mut self, way: MigrationDirection, writes: usize) -> Plan {
        let planned = self.plan(way);
        for action in planned.todo.actions.iter().take(writes) {
            self.execute(action);
            self.inspect();
        }
        self.act_by_hand(&planned.todo.waits);
        planned
    }

    pub fn plan(&mut self, way: MigrationDirection) -> Plan {
        self.s.cloud = None;
        let first = plan(&self.s, way).unwrap();
        if !first.asks_cloud {
            return first;
        }
        self.s.cloud = Some(self.cloud());
        plan(&self.s, way).unwrap()
    }

    /// Until nothing is left.
    pub fn walk(&mut self, way: MigrationDirection) {
        for _ in 0..200 {
            if self.round(way, usize::MAX).stage == MigrationStage::Done {
                return;
            }
            self.controllers();
            self.inspect();
        }
        let plan = self.plan(way);
        let failed: Vec<String> = plan.failed().map(ToString::to_string).collect();
        panic!("it does not end: {:?} {failed:#?} {:#?}", plan.current(), plan.todo);
    }

    pub fn abort(&mut self) -> Option<MigrationDirection> {
        let (back, actions) = abort(&self.s).ok()?;
        actions.iter().for_each(|action| self.execute(action));
        Some(back)
    }

    /// Every class lists all VMs with its tags.
    fn cloud(&self) -> CloudAnswers {
        let ended = self.s.recorded().filter(|member| !self.vms.contains_key(member.name));
        let ended = ended.map(|member| (member.name.to_owned(), Ok(None)));
        let found = self.vms.iter().map(|(name, id)| (name.clone(), Ok(Some(id.clone())))).chain(ended).collect();
        let tagged = self.vms.iter().filter(|(name, _)| self.tagged.contains(*name));
        let listed: BTreeMap<String, String> = tagged.map(|(name, id)| (id.clone(), name.clone())).collect();
        let listed = Arc::new(listed);
        let own = swap::class(&self.s).and_then(|class| Some(class["metadata"]["name"].as_str()?.to_owned()));
        let classes = self.s.all(Kind::Class).map(|class| class.name().to_owned()).chain(own.clone());
        let ids = |names: &BTreeSet<String>| names.iter().map(|name| self.vms[name].clone()).collect();
        let unknown = || "its MachineClass is not known".to_owned();
        let members = self.group.as_ref().map(|names| own.as_ref().map(|_| ids(names)).ok_or_else(unknown));
        CloudAnswers { found, members, listed: classes.map(|class| (class, Ok(listed.clone()))).collect() }
    }

    fn execute(&mut self, Action { id, change }: &Action) {
        match change {
            MigrationWrite::Create(object) => drop(self.put(id.kind, &id.name, object.clone())),
            MigrationWrite::Patch(patch) | MigrationWrite::PatchStatus(patch) => {
                let object = self.s.objects.get_mut(id).unwrap();
                let is_spec = patch.get("spec").is_some();
                patch::apply(&mut object.value, patch);
                if is_spec {
                    let generation = object.number("/metadata/generation").unwrap() + 1;
                    object.value["metadata"]["generation"] = json!(generation);
                }
                self.collect(id);
            }
            MigrationWrite::Tag { is_listed: true } => drop(self.tagged.insert(id.name.clone())),
            MigrationWrite::Tag { is_listed: false } => drop(self.tagged.remove(&id.name)),
            MigrationWrite::Delete { uid } => {
                let object = self.s.objects.get_mut(id).unwrap();
                assert_eq!(object.uid(), uid);
                object.value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                self.collect(id);
            }
        }
    }

    /// Removes a deleted object without finalizers, and its dependents.
    fn collect(&mut self, id: &ObjectId) {
        let Some(object) = self.s.objects.get(id) else { return };
        let has_finalizers = object.value["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if !object.is_deleting() || has_finalizers {
            return;
        }
        let uid = object.uid().to_owned();
        self.s.objects.remove(id);
        let owned: Vec<ObjectId> =
            self.s.objects.values().filter(|one| one.controller() == Some(&uid)).map(UnstructuredObject::id).collect();
        for id in owned {
            self.edit(id.kind, &id.name, &json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
            self.collect(&id);
        }
    }

    /// Core, the provider and the native controllers: each confirms a pause, and reports its objects. They decide nothing, since
    /// there is nothing to decide.
    pub fn controllers(&mut self) {
        let count =
            |s: &Snapshot, kind: Kind, uid: &str| s.all(kind).filter(|one| one.controller() == Some(uid)).count();
        let has_node = |s: &Snapshot, name: &str| s.find(Kind::Node, name).is_some();
        let cluster = self.s.find(Kind::Cluster, "c").cloned();
        let knows_health = cluster.is_some_and(|cluster| cluster.condition("ControlPlaneInitialized") == "True");
        for id in self.s.objects.keys().cloned().collect::<Vec<_>>() {
            let object = self.s.objects[&id].clone();
            let ready = json!({ "type": "Ready", "status": "True" });
            let mut conditions =
                vec![json!({ "type": "Paused", "status": if is_held(&object) { "True" } else { "False" } })];
            let generation = object.at("/metadata/generation");
            let status = match id.kind {
                Kind::CapiSet | Kind::CapiDeployment | Kind::Set | Kind::Deployment => {
                    let below = match id.kind {
                        Kind::CapiSet => Kind::CapiMachine,
                        Kind::Set => Kind::Machine,
                        Kind::CapiDeployment => Kind::CapiSet,
                        _ => Kind::Set,
                    };
                    let machines: usize = match below {
                        Kind::CapiMachine | Kind::Machine => count(&self.s, below, object.uid()),
                        _ => self
                            .s
                            .all(below)
                            .filter(|one| one.controller() == Some(object.uid()))
                            .map(|set| {
                                let kind = if below == Kind::Set { Kind::Machine } else { Kind::CapiMachine };
                                count(&self.s, kind, set.uid())
                            })
                            .sum(),
                    };
                    // Of machines that ended, none is available.
                    let works = machines.saturating_sub(self.lost);
                    let key = if id.kind == Kind::Set { "machineSetCondition" } else { "conditions" };
                    let is_of_core = matches!(id.kind, Kind::CapiSet | Kind::CapiDeployment);
                    let available = if is_of_core && !knows_health { 0 } else { works };
                    json!({
                        "observedGeneration": generation, "replicas": machines, "availableReplicas": available,
                        "updatedReplicas": machines, "upToDateReplicas": machines, (key): conditions,
                    })
                }
                Kind::AWS_MACHINE => match object.controller().is_some() && !is_held(&object) {
                    true => json!({ "ready": has_node(&self.s, &id.name) }),
                    false => continue,
                },
                Kind::CapiMachine => {
                    if !is_held(&object) {
                        self.own(&object);
                    }
                    json!({ "phase": "Running", "nodeRef": { "name": id.name }, "conditions": conditions })
                }
                // Without an owner its controller does nothing.
                Kind::InfraMachine if object.controller().is_none() => continue,
                Kind::InfraMachine => {
                    conditions.extend(has_node(&self.s, &id.name).then_some(ready));
                    if !is_held(&object) && self.s.find(Kind::Machine, &id.name).is_none() {
                        let class = object.text("/spec/machineClassRef/name");
                        let class = if class.is_empty() { &id.name } else { class };
                        self.native(&id.name, class, object.text("/spec/providerID"), &object.as_controller());
                    }
                    json!({ "conditions": conditions })
                }
                Kind::Machine => {
                    let is_native = object.value["metadata"]["ownerReferences"][0]["kind"] != "MCMMachine";
                    let phase = match has_node(&self.s, &id.name) {
                        true if is_native => "Running",
                        true => "Available",
                        false => "Unknown",
                    };
                    json!({ "currentStatus": { "phase": phase }, "conditions": conditions })
                }
                Kind::AWS_POOL => match self.observe_group(&object) {
                    Some(status) => status,
                    None => continue,
                },
                Kind::MachinePool => self.observe_pool(&object, &conditions),
                Kind::HealthCheck => json!({ "conditions": conditions }),
                _ => continue,
            };
            self.edit(id.kind, &id.name, &json!({ "status": status }));
        }
    }

    /// Core makes a Machine the owner of the objects it refers to, and the Cluster that of a Machine without a set.
    fn own(&mut self, machine: &UnstructuredObject) {
        if machine.at("/metadata/ownerReferences").is_null() {
            let owners =
                json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": "c" }]);
            self.edit(Kind::CapiMachine, machine.name(), &json!({ "metadata": { "ownerReferences": owners } }));
        }
        let kind = match machine.text("/spec/infrastructureRef/kind") {
            "AWSMachine" => Kind::AWS_MACHINE,
            _ => Kind::InfraMachine,
        };
        let name = machine.text("/spec/infrastructureRef/name");
        if self.s.find(kind, name).is_some_and(|infra| infra.controller().is_none()) {
            self.edit(kind, name, &json!({ "metadata": { "ownerReferences": machine.as_controller() } }));
        }
    }

    /// Invariants of every state: otherwise a running controller would create or delete a VM, or two would have one.
    pub fn inspect(&self) {
        let works = |object: &&UnstructuredObject| !is_held(object);
        for (sets, machines) in [(Kind::CapiSet, Kind::CapiMachine), (Kind::Set, Kind::Machine)] {
            for set in self.s.all(sets).filter(works) {
                let count = self.s.controlled(machines, Some(set)).len();
                let wanted = set.number("/spec/replicas").unwrap();
                assert_eq!(i64::try_from(count).unwrap(), wanted, "{} would create or delete machines", set.id());
            }
        }
        for (deployments, sets) in [(Kind::CapiDeployment, Kind::CapiSet), (Kind::Deployment, Kind::Set)] {
            for deployment in self.s.all(deployments).filter(works) {
                assert!(
                    !self.s.controlled(sets, Some(deployment)).is_empty(),
                    "{} would create a set",
                    deployment.id()
                );
            }
        }
        for kind in [Kind::CapiMachine, Kind::InfraMachine, Kind::AWS_MACHINE, Kind::Machine] {
            for object in self.s.all(kind).filter(works) {
                assert!(!object.is_deleting(), "{} would delete its VM", object.id());
            }
        }
        self.inspect_providers();
        self.inspect_pool();
        for native in self.s.all(Kind::Machine) {
            let is_of_other = self.s.unit.is_pool() || self.s.find(Kind::AWS_MACHINE, native.name()).is_some();
            assert!(!native.is_deleting() || is_of_other, "{} is deleted", native.id());
            let infra = self.s.find(Kind::InfraMachine, native.name()).filter(|one| !is_held(one));
            let set = self.s.all(Kind::Set).filter(works).any(|set| native.controller() == Some(set.uid()));
            let is_free = native.controller().is_none() && !is_held(native);
            assert!(infra.is_none() || !(set || is_free), "{} has two masters", native.id());
        }
    }

    /// State that must not change.
    pub fn essence(&self) -> Vec<(String, String, String)> {
        let native = |one: &UnstructuredObject| {
            (one.name().to_owned(), one.uid().to_owned(), one.text("/spec/providerID").to_owned())
        };
        let nodes = self.s.all(Kind::Node).map(|one| (one.name().to_owned(), one.uid().to_owned(), "node".to_owned()));
        // The native Machines of a pool are made and removed.
        let natives = self.s.all(Kind::Machine).filter(|_| !self.s.unit.is_pool());
        natives.map(native).chain(nodes).collect()
    }
}

/// The controllers of an object have paused it: the rules of core, of the provider and of the native
/// controllers.
pub fn is_held(object: &UnstructuredObject) -> bool {
    match object.kind {
        Kind::CapiDeployment
        | Kind::CapiSet
        | Kind::CapiMachine
        | Kind::HealthCheck
        | Kind::InfraMachine
        | Kind::MachinePool
        | Kind::AWS_POOL
        | Kind::AWS_MACHINE => object.annotation(names::PAUSED).is_some(),
        _ => object.annotation(labels::MIGRATION).is_some(),
    }
}
