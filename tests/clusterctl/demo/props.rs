//! The objects in the demo: objects of Cluster API, native ones, and Nodes.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use mcm::cli::demo::LiveObjects;
use serde_json::Value;

use crate::world::World;

/// A kind that is shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Cluster,
    MachineDeployment,
    MachinePool,
    Machine,
    MCMMachine,
    NativeDeployment,
    NativeMachine,
    Node,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Cluster,
        Self::MachineDeployment,
        Self::MachinePool,
        Self::Machine,
        Self::MCMMachine,
        Self::NativeDeployment,
        Self::NativeMachine,
        Self::Node,
    ];

    fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::Cluster => ("cluster.x-k8s.io", "v1beta2", "Cluster"),
            Self::MachineDeployment => ("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
            Self::MachinePool => ("cluster.x-k8s.io", "v1beta2", "MachinePool"),
            Self::Machine => ("cluster.x-k8s.io", "v1beta2", "Machine"),
            Self::MCMMachine => ("infrastructure.cluster.x-k8s.io", "v1beta2", "MCMMachine"),
            Self::NativeDeployment => ("machine.sapcloud.io", "v1alpha1", "MachineDeployment"),
            Self::NativeMachine => ("machine.sapcloud.io", "v1alpha1", "Machine"),
            Self::Node => ("", "v1", "Node"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }
}

/// All objects, by kind and name.
#[derive(Clone, Default)]
pub struct Props(pub BTreeMap<Kind, BTreeMap<String, Value>>);

impl Props {
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = (&String, &Value)> {
        self.0.get(&kind).into_iter().flatten()
    }

    pub fn find(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.0.get(&kind)?.get(name)
    }

    /// Machines of Cluster API that run and are not being deleted, of a deployment.
    pub fn running(&self, deployment: &str) -> Vec<&String> {
        let runs = |machine: &Value| machine["status"]["phase"] == "Running";
        self.living(Kind::Machine, deployment, runs)
    }

    /// The same of native machines.
    pub fn natives(&self, deployment: &str) -> Vec<&String> {
        let runs = |machine: &Value| machine["status"]["currentStatus"]["phase"] == "Running";
        self.living(Kind::NativeMachine, deployment, runs)
    }

    fn living(&self, kind: Kind, deployment: &str, runs: impl Fn(&Value) -> bool) -> Vec<&String> {
        let prefix = format!("{deployment}-");
        let own = self.all(kind).filter(|(name, _)| name.starts_with(&prefix));
        let alive = own.filter(|(_, machine)| machine["metadata"]["deletionTimestamp"].is_null() && runs(machine));
        alive.map(|(name, _)| name).collect()
    }
}

/// Keeps looking at the objects of a namespace and the Nodes of its cluster.
pub fn watch(world: &World, namespace: &str) -> LiveObjects<Props> {
    let (management, workload) = (world.management.client(), world.workload.client());
    let namespace = namespace.to_owned();
    LiveObjects::looking(move || look(management.clone(), workload.clone(), namespace.clone()))
}

async fn look(management: Client, workload: Client, namespace: String) -> Result<Props> {
    let mut props = Props::default();
    for kind in Kind::ALL {
        let api: Api<DynamicObject> = match kind {
            Kind::Node => Api::all_with(workload.clone(), &kind.resource()),
            _ => Api::namespaced_with(management.clone(), &namespace, &kind.resource()),
        };
        let objects = match api.list(&ListParams::default()).await {
            Ok(list) => list.items,
            // Its kind is not installed yet, or not any more.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let by_name = objects.into_iter().map(|object| Ok((object.name_any(), serde_json::to_value(object)?)));
        props.0.insert(kind, by_name.collect::<Result<_>>()?);
    }
    Ok(props)
}
