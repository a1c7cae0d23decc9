//! The chain of objects from a Cluster down to the Node of a Machine. Pure.

use super::{
    CapiFacts, ObjectLookup,
    object::{CapiObject, CapiReference, Kind},
};
use crate::story::{ChainLink, DEPLOYMENT, MACHINE, NODE, ObjectVerdict};

impl CapiFacts<'_> {
    /// The objects above and below an object, from its Cluster down.
    pub fn links(&self, kind: Kind, object: &CapiObject) -> Vec<ChainLink> {
        let mut links = Vec::new();
        if kind != Kind::Cluster && !object.cluster_name().is_empty() {
            links.push(self.link(Kind::Cluster, object.cluster_name()));
        }
        match kind {
            Kind::Cluster => {
                links.push(self.object_link(kind, object));
                let infrastructure = &object.spec.infrastructure_ref;
                links.extend(self.referenced(Kind::MCMCluster, infrastructure, object, "InfrastructureReady"));
                links.extend(Self::other(&object.spec.control_plane_ref, object, "ControlPlaneAvailable"));
            }
            Kind::MachineSet => {
                links.extend(
                    object.owner(Kind::MachineDeployment.name()).map(|name| self.link(Kind::MachineDeployment, name)),
                );
                links.push(self.object_link(kind, object));
            }
            Kind::Machine => self.push_machine(&mut links, object),
            Kind::MCMMachine => {
                match object.owner(Kind::Machine.name()).map(|name| self.objects.see(Kind::Machine, name)) {
                    Some(ObjectLookup::Present(machine)) => self.push_machine(&mut links, machine),
                    _ => {
                        links.push(self.object_link(kind, object));
                        links.extend(self.native_link(object));
                    }
                }
            }
            Kind::MachinePool => {
                links.push(self.object_link(kind, object));
                let infrastructure = &object.spec.template.spec.infrastructure_ref;
                links.extend(self.referenced(Kind::MCMMachinePool, infrastructure, object, "InfrastructureReady"));
                links.extend(self.pool_links(&infrastructure.name));
            }
            Kind::MCMMachinePool => {
                links.extend(object.owner(Kind::MachinePool.name()).map(|name| self.link(Kind::MachinePool, name)));
                links.push(self.object_link(kind, object));
                links.extend(self.pool_links(object.name()));
            }
            Kind::MachineDeployment | Kind::MCMCluster => links.push(self.object_link(kind, object)),
        }
        links
    }

    fn push_machine(&self, links: &mut Vec<ChainLink>, machine: &CapiObject) {
        let pool = machine.owner(Kind::MachinePool.name()).map(|name| self.link(Kind::MachinePool, name));
        let set = machine.owner(Kind::MachineSet.name());
        let owner = set.and_then(|name| self.objects.see(Kind::MachineSet, name).known());
        let deployment = owner.and_then(|set| set.owner(Kind::MachineDeployment.name()));
        links.extend(deployment.map(|name| self.link(Kind::MachineDeployment, name)));
        links.extend(set.map(|name| self.link(Kind::MachineSet, name)));
        links.extend(pool);
        if machine.is_control_plane()
            && let Some(cluster) = self.objects.cluster_of(machine).known()
        {
            links.extend(Self::other(&cluster.spec.control_plane_ref, cluster, "ControlPlaneAvailable"));
        }
        links.push(self.object_link(Kind::Machine, machine));
        let infrastructure = &machine.spec.infrastructure_ref;
        links.extend(self.referenced(Kind::MCMMachine, infrastructure, machine, "InfrastructureReady"));
        let own = self.objects.see(Kind::MCMMachine, &infrastructure.name).known();
        links.extend(own.and_then(|own| self.native_link(own)));
        links.extend(node_of(machine));
    }

    fn link(&self, kind: Kind, name: &str) -> ChainLink {
        match self.objects.see(kind, name) {
            ObjectLookup::Present(object) => self.object_link(kind, object),
            ObjectLookup::Missing => {
                ChainLink::new(kind.name(), Some(kind.group()), name, ObjectVerdict::Waiting, "does not exist")
            }
            ObjectLookup::Unknown => {
                ChainLink::new(kind.name(), Some(kind.group()), name, ObjectVerdict::Unknown, "not read")
            }
        }
    }

    fn object_link(&self, kind: Kind, object: &CapiObject) -> ChainLink {
        let waits = self.waits(kind, object);
        let (verdict, state) = (Self::verdict(&waits), state(kind, object));
        let waits = waits.into_iter().next().map(|wait| wait.text);
        ChainLink { waits, ..ChainLink::new(kind.name(), Some(kind.group()), object.name(), verdict, &state) }
    }

    /// The infrastructure of an object, of this provider or of another.
    fn referenced(
        &self,
        kind: Kind,
        reference: &CapiReference,
        owner: &CapiObject,
        condition: &str,
    ) -> Option<ChainLink> {
        if reference.kind == kind.name() {
            return Some(self.link(kind, &reference.name));
        }
        Self::other(reference, owner, condition)
    }

    /// An object that is not read: a condition of another object shows its state.
    fn other(reference: &CapiReference, owner: &CapiObject, condition: &str) -> Option<ChainLink> {
        if reference.name.is_empty() {
            return None;
        }
        let (verdict, state) = match owner.condition(condition) {
            Some(one) if one.is_true() => (ObjectVerdict::Settled, "ready".to_owned()),
            Some(one) => (ObjectVerdict::Waiting, one.text()),
            None => (ObjectVerdict::Unknown, "not read".to_owned()),
        };
        Some(ChainLink::new(&reference.kind, None, &reference.name, verdict, &state))
    }

    fn native_link(&self, object: &CapiObject) -> Option<ChainLink> {
        let native = self.native(object)?;
        let waits = native.waits.first().map(|wait| wait.text.clone());
        Some(ChainLink { waits, ..ChainLink::new(MACHINE, None, &native.object.name, native.verdict, &native.state) })
    }

    fn pool_links(&self, pool: &str) -> Vec<ChainLink> {
        let of = |native: crate::story::ObjectAnswer| {
            let waits = native.waits.first().map(|wait| wait.text.clone());
            ChainLink { waits, ..ChainLink::new(DEPLOYMENT, None, &native.object.name, native.verdict, &native.state) }
        };
        self.deployments_of(pool).into_iter().map(of).collect()
    }
}

/// The Node of a Machine, from its status.
pub fn node_of(machine: &CapiObject) -> Option<ChainLink> {
    let name = &machine.status.node_ref.name;
    if name.is_empty() {
        return None;
    }
    let (verdict, state) = match machine.condition("NodeHealthy") {
        Some(one) if one.is_true() => (ObjectVerdict::Settled, "healthy".to_owned()),
        Some(one) if one.status == "False" => (ObjectVerdict::Waiting, one.text()),
        Some(one) => (ObjectVerdict::Unknown, one.text()),
        None => (ObjectVerdict::Unknown, "not looked at".to_owned()),
    };
    Some(ChainLink::new(NODE, None, name, verdict, &state))
}

/// The state of an object in words.
pub fn state(kind: Kind, object: &CapiObject) -> String {
    let status = &object.status;
    let phase = if object.is_deleting() { "Deleting" } else { status.phase.as_str() };
    match kind {
        Kind::Cluster => {
            let is_initialized = status.initialization.control_plane_initialized;
            let control_plane = if is_initialized { "initialized" } else { "not initialized" };
            let paused = if object.spec.paused == Some(true) { ", paused" } else { "" };
            format!("{phase}, control plane {control_plane}{paused}")
        }
        Kind::MachineDeployment | Kind::MachineSet => {
            let wanted = object.spec.replicas.unwrap_or(1);
            let deleting = if object.is_deleting() { ", deleting" } else { "" };
            format!(
                "{} of {wanted} available, {} up to date{deleting}",
                status.available_replicas, status.up_to_date_replicas
            )
        }
        Kind::MachinePool => {
            let wanted = object.spec.replicas.unwrap_or(1);
            let deleting = if object.is_deleting() { ", deleting" } else { "" };
            format!("{} of {wanted} Nodes{deleting}", status.node_refs.len())
        }
        Kind::Machine if phase.is_empty() => "new".to_owned(),
        Kind::Machine => phase.to_owned(),
        Kind::MCMCluster | Kind::MCMMachine | Kind::MCMMachinePool => {
            let ready = object.condition("Ready");
            let is_paused = object.condition("Paused").is_some_and(super::object::CapiCondition::is_true);
            match ready {
                _ if object.is_deleting() => "deleting".to_owned(),
                _ if is_paused => "paused".to_owned(),
                Some(ready) if ready.is_true() => "ready".to_owned(),
                Some(ready) => format!("not ready ({})", ready.reason),
                None => "no conditions yet".to_owned(),
            }
        }
    }
}
