//! Core, an API server and the native controllers in a few lines. Plans are executed as the API server would.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::{Action, MachinePoolMember, McmMachinePoolSession, Snapshot, members::machine_of, plan::plan};
use crate::{
    object::{
        gate::ManagerObstacle,
        observe::owner_of,
        view::{ObjectView, OwnerView},
    },
    testing::world::{class, cluster, condition, deleted, infrastructure_ref, owned_by, parsed, view},
};
use mcm_api::patch;
use mcm_conversion::types::{MCMMachinePool, MCMMachinePoolStatus};
use mcm_rules::plan::Plan;

type Objects = BTreeMap<String, Value>;

pub(super) struct World {
    pub object: Option<Value>,
    pub pool: Option<Value>,
    pub cluster: Option<Value>,
    pub infrastructure: Option<Value>,
    pub classes: Objects,
    pub deployments: Objects,
    pub natives: Objects,
    pub members: Objects,
    /// Machines of Cluster API.
    pub machines: Objects,
    pub secrets: Vec<String>,
    pub unreadable_machines: Vec<String>,
    pub unreadable_deployments: Vec<String>,
    pub nodes_unknown: Option<String>,
    pub is_resumed: bool,
    /// Changes of Machines of Cluster API that the watch has not delivered yet.
    pub unseen: Objects,
    /// Native Machines whose Nodes have the taint of the autoscaler.
    pub tainted: Vec<String>,
    /// A native manager beside the provider.
    pub obstacle: Option<ManagerObstacle>,
    pub filter: Option<String>,
    /// Every action, as text.
    pub log: Vec<String>,
    /// Every plan, for a reader.
    pub story: String,
}

fn all<K: DeserializeOwned>(objects: &Objects) -> BTreeMap<String, Arc<K>> {
    objects.iter().map(|(name, object)| (name.clone(), parsed(object))).collect()
}

impl World {
    /// A pool of three right after core took it, in a cluster that is ready, with bootstrap data.
    pub fn new() -> Self {
        let owner = owned_by("MachinePool", "mp", "mp");
        Self {
            object: Some(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachinePool",
                "metadata": {
                    "name": "p", "namespace": "ns", "uid": "object", "generation": 1, "ownerReferences": owner,
                    "labels": { "cluster.x-k8s.io/cluster-name": "c" },
                },
                "spec": { "machineClassRef": { "name": "small" } },
            })),
            pool: Some(json!({
                "metadata": { "name": "mp", "namespace": "ns", "uid": "mp" },
                "spec": { "clusterName": "c", "replicas": 3, "template": { "spec": {
                    "clusterName": "c", "version": "v1.33.0", "bootstrap": { "dataSecretName": "boot" },
                    "infrastructureRef": infrastructure_ref("MCMMachinePool", "p"),
                } } },
            })),
            cluster: Some(cluster("p")),
            infrastructure: None,
            classes: [("small".to_owned(), class("small", "a"))].into(),
            deployments: Objects::new(),
            natives: Objects::new(),
            members: Objects::new(),
            machines: Objects::new(),
            secrets: vec!["boot".to_owned()],
            unreadable_machines: Vec::new(),
            unreadable_deployments: Vec::new(),
            nodes_unknown: None,
            is_resumed: true,
            unseen: Objects::new(),
            tainted: Vec::new(),
            obstacle: None,
            filter: None,
            log: Vec::new(),
            story: String::new(),
        }
    }

    /// The same with all its VMs.
    pub fn running() -> Self {
        let mut world = Self::new();
        world.pass();
        world.catch_up();
        world.pass();
        (world.log, world.story) = (Vec::new(), String::new());
        world
    }

    pub fn set_object(&mut self, change: &Value) {
        patch::apply(self.object.as_mut().unwrap(), change);
    }

    pub fn set_pool(&mut self, change: &Value) {
        patch::apply(self.pool.as_mut().unwrap(), change);
    }

    pub fn set_template(&mut self, change: &Value) {
        self.set_pool(&json!({ "spec": { "template": { "spec": change } } }));
    }

    pub fn set_cluster(&mut self, change: &Value) {
        patch::apply(self.cluster.as_mut().unwrap(), change);
    }

    pub fn set_native(&mut self, name: &str, change: &Value) {
        patch::apply(self.natives.get_mut(name).unwrap(), change);
    }

    pub fn delete(&mut self) {
        self.set_object(&deleted());
    }

    /// Simulates native controllers that have created all machines of each deployment, and no others.
    pub fn catch_up(&mut self) {
        self.natives.clear();
        for (name, deployment) in &mut self.deployments {
            let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or_default();
            for index in 0..replicas {
                let machine = native(&format!("{name}-{index}"), deployment);
                self.natives.insert(format!("{name}-{index}"), machine);
            }
            let generation = deployment["metadata"]["generation"].clone();
            deployment["status"] = json!({
                "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas,
            });
        }
    }

    /// Core made a Machine of each MCMMachine.
    pub fn core_follows(&mut self) {
        for (name, member) in &mut self.members {
            let uid = format!("machine-{name}");
            let reference = json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": uid, "controller": true });
            let owners = member["metadata"]["ownerReferences"].as_array_mut().unwrap();
            if owners.len() == 1 {
                owners.push(reference);
                let metadata = json!({ "name": name, "namespace": "ns", "uid": uid });
                self.machines.insert(name.clone(), json!({ "metadata": metadata, "spec": { "clusterName": "c" } }));
            }
        }
    }

    pub fn snapshot(&self, session: &McmMachinePoolSession) -> Snapshot {
        let object: Arc<MCMMachinePool> = parsed(self.object.as_ref().unwrap());
        let named = owner_of(&object.metadata, "MachinePool").is_some();
        let owner: OwnerView<mcm_conversion::types::MachinePool> =
            if named { OwnerView::Named(view(self.pool.as_ref())) } else { OwnerView::None };
        let secret = owner.known().and_then(|pool| pool.spec.template.spec.bootstrap.data_secret_name.clone());
        let has_data = secret.is_some_and(|name| self.secrets.contains(&name));
        let used = self.deployments.values().map(|one| &one["spec"]["template"]["spec"]["class"]["name"]);
        let used = used.chain(self.natives.values().map(|one| &one["spec"]["class"]["name"]));
        let used_classes: BTreeSet<String> = used.filter_map(Value::as_str).map(str::to_owned).collect();
        let classes = self.classes.iter().map(|(name, class)| (name.clone(), view(Some(class))));
        let members = all::<mcm_conversion::types::MCMMachine>(&self.members).into_iter().map(|(name, object)| {
            let machine = machine_of(&object, view(self.machines.get(&name)));
            (name, MachinePoolMember { object, machine })
        });
        Snapshot {
            classes: classes.collect(),
            used_classes,
            deployments: all(&self.deployments),
            machines: all(&self.natives),
            unreadable_machines: self.unreadable_machines.clone(),
            unreadable_deployments: self.unreadable_deployments.clone(),
            bootstrap: if has_data { ObjectView::Present(().into()) } else { ObjectView::Missing },
            cluster: view(self.cluster.as_ref()),
            infrastructure: view(self.infrastructure.as_ref()),
            nodes_unknown: self.nodes_unknown.clone(),
            is_resumed: self.is_resumed,
            obstacle: self.obstacle.clone(),
            members: members.collect(),
            watch_filter: self.filter.clone(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            object,
            owner,
            session: session.clone(),
        }
    }

    /// Plans and executes until there is nothing to do. Returns the waits of the object.
    pub fn pass(&mut self) -> Vec<String> {
        let mut session = McmMachinePoolSession::default();
        for _ in 0..20 {
            if self.object.is_none() {
                return Vec::new();
            }
            let plan = plan(&self.snapshot(&session));
            self.story.push_str(&plan.to_string());
            if plan.steps.is_empty() {
                return plan.waits.into_iter().map(|wait| wait.text).collect();
            }
            self.execute(plan, &mut session);
        }
        panic!("it does not come to an end:\n{}", self.story);
    }

    fn execute(&mut self, plan: Plan<Action>, session: &mut McmMachinePoolSession) {
        let writes =
            plan.steps.iter().filter(|step| matches!(step.action, Action::PatchSelf(_) | Action::WriteStatus(_)));
        assert!(writes.count() <= 1, "the second write would meet another resource version");
        for step in plan.steps {
            self.log.push(step.action.to_string().lines().next().unwrap_or_default().to_owned());
            match step.action {
                Action::PatchSelf(change) => {
                    self.set_object(&change);
                    let meta = &self.object.as_ref().unwrap()["metadata"];
                    let has_finalizer = meta["finalizers"].as_array().is_some_and(|all| !all.is_empty());
                    if !has_finalizer && meta["deletionTimestamp"].is_string() {
                        self.object = None;
                    }
                }
                Action::WriteStatus(status) => {
                    self.object.as_mut().unwrap()["status"] = serde_json::to_value(*status).unwrap();
                }
                Action::CreateClass(class) => put(&mut self.classes, &class.name_any(), json!(*class)),
                Action::DeleteClass(class) => drop(self.classes.remove(&class.name_any())),
                Action::CreateDeployment(deployment) => {
                    let name = deployment.name_any();
                    assert!(!self.deployments.contains_key(&name), "the API server refuses a second one of that name");
                    put(&mut self.deployments, &name, json!(*deployment));
                }
                Action::PatchDeployment { deployment, patch: change } => {
                    let stored = self.deployments.get_mut(&deployment.name_any()).unwrap();
                    patch::apply(stored, &change);
                    let generation = stored["metadata"]["generation"].as_i64().unwrap_or_default();
                    stored["metadata"]["generation"] = json!(generation + 1);
                }
                Action::DeleteDeployment(deployment) => {
                    patch::apply(self.deployments.get_mut(&deployment.name_any()).unwrap(), &deleted());
                }
                Action::PatchNative { machine, patch: change } => self.set_native(&machine.name_any(), &change),
                Action::CreateMember(member) => put(&mut self.members, &member.name_any(), json!(*member)),
                Action::PatchMember { member, patch: change } => {
                    patch::apply(self.members.get_mut(&member.name_any()).unwrap(), &change);
                }
                Action::DeleteMember(member) => drop(self.members.remove(&member.name_any())),
                Action::PatchOwner { patch: change, .. } => self.set_pool(&change),
                Action::DeleteMachine(machine) => {
                    patch::apply(self.machines.get_mut(&machine.name_any()).unwrap(), &deleted());
                }
                Action::ReadNatives => {
                    let mut all = self.deployments.values().chain(self.natives.values());
                    session.is_gone = !all.any(|native| native["metadata"]["labels"]["machine.mcm/pool"] == "p");
                }
                Action::ReadMachines => {
                    session.has_read_machines = true;
                    for (name, change) in std::mem::take(&mut self.unseen) {
                        patch::apply(self.machines.entry(name).or_insert_with(|| json!({})), &change);
                    }
                }
                Action::ReadNodes => session.to_be_deleted = Some(self.tainted.iter().cloned().collect()),
            }
        }
    }

    pub fn status(&self) -> MCMMachinePoolStatus {
        let object: Arc<MCMMachinePool> = parsed(self.object.as_ref().unwrap());
        object.status.clone().unwrap_or_default()
    }

    pub fn ids(&self) -> Vec<String> {
        parsed::<MCMMachinePool>(self.object.as_ref().unwrap()).spec.provider_id_list.clone()
    }

    /// `False Creating`, for a condition.
    pub fn condition(&self, type_: &str) -> String {
        condition(&self.status().conditions, type_)
    }

    /// The template of the only deployment.
    pub fn template(&self) -> &Value {
        &self.deployments["p"]["spec"]["template"]
    }
}

fn put(objects: &mut Objects, name: &str, mut object: Value) {
    object["metadata"]["uid"] = json!(name);
    object["metadata"]["generation"] = json!(1);
    objects.insert(name.to_owned(), object);
}

/// A native Machine with a VM and a Node.
pub(super) fn native(name: &str, deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
        },
        "spec": { "class": template["spec"]["class"], "providerID": format!("simulated:///r/{name}") },
        "status": { "currentStatus": { "phase": "Running" } },
    })
}
