//! Divides a pool into native deployments, one for each zone.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::Snapshot;
use crate::{
    object::view::{ObjectView, OwnerView},
    provider::class::{self, ClassResolution, VmDescription},
};
use mcm_api::{machine::ClassNodeTemplate, syntax};
use mcm_controllers::object::owner;
pub use mcm_conversion::{
    content_in_zone, named, spread,
    types::{MCMCluster, MCMMachinePool, MachinePool, names},
};

/// Length of the hash that makes shortened names unique, in characters.
const HASH: usize = 9;

/// The part of a pool that is one native deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolShare {
    /// Name of the deployment.
    pub name: String,
    /// Its zone; empty if the pool names none.
    pub zone: String,
    /// Desired number of machines; `None` if core has not set it yet.
    pub replicas: Option<i32>,
}

/// The shares of a pool, in the order of their zones.
pub(super) fn pool_shares(object: &MCMMachinePool, owner: &MachinePool) -> Vec<PoolShare> {
    let (name, replicas) = (object.name_any(), owner.spec.replicas);
    let parts = spread(replicas.unwrap_or_default(), &owner.spec.failure_domains).into_iter();
    let shares = parts.map(|(zone, part)| PoolShare {
        name: zone.map_or_else(|| name.clone(), |zone| in_zone(&name, zone)),
        zone: zone.unwrap_or_default().to_owned(),
        replicas: replicas.map(|_| part),
    });
    shares.collect()
}

/// Name of the deployment of a zone. It is also the value of a label and of a selector, so a long one ends with a hash.
fn in_zone(pool: &str, zone: &str) -> String {
    let name = format!("{pool}-{zone}");
    if names::is_label_value(&name) {
        return name;
    }
    let head: String = pool.chars().take(syntax::NAME_MAX - HASH).collect();
    named(&head, &name)
}

/// Name of the class that is created for a zone from a description in the pool itself. Other content leads to another
/// class, and so to a rollout: machines of the old class may still exist.
pub(super) fn own_class(object: &MCMMachinePool, zone: &str) -> Option<String> {
    let content = content_in_zone(object.spec.machine_class.as_ref()?, &object.spec.zones, zone);
    Some(named(&object.name_any(), &serde_json::to_string(&content).unwrap_or_default()))
}

/// Name of the class of a zone.
pub(super) fn class_name(object: &MCMMachinePool, zone: &str, infrastructure: &ObjectView<MCMCluster>) -> String {
    own_class(object, zone).unwrap_or_else(|| class::in_zone(&object.spec.machine_class_ref, zone, infrastructure))
}

impl Snapshot {
    /// The native deployments that the pool needs; none while its MachinePool is unknown.
    pub(super) fn shares(&self) -> Vec<PoolShare> {
        self.owner.known().map(|owner| pool_shares(&self.object, owner)).unwrap_or_default()
    }

    /// The class of a share.
    pub(super) fn class_of(&self, share: &PoolShare) -> ClassResolution {
        let object = &self.object;
        let name = class_name(object, &share.zone, &self.infrastructure);
        let description = VmDescription {
            named: &object.spec.machine_class_ref,
            inline: object.spec.machine_class.as_ref().map(|content| (name.clone(), content, &object.spec.zones)),
            zone: &share.zone,
            infrastructure: &self.infrastructure,
            class: self.classes.get(&name).unwrap_or(&ObjectView::Missing),
        };
        description.resolve()
    }

    /// The node template of the first known class, for an autoscaler that scales from zero.
    pub(super) fn node_template(&self) -> Option<&ClassNodeTemplate> {
        let shares = self.shares();
        let wanted = shares.iter().map(|share| class_name(&self.object, &share.zone, &self.infrastructure));
        let shown = self.counted().into_iter().map(|one| one.spec.template.spec.class.name.clone());
        let names: Vec<String> = if self.shown().is_empty() { wanted.collect() } else { shown.collect() };
        let known = names.iter().find_map(|name| self.classes.get(name)?.known()?.node_template.as_ref());
        self.object.spec.machine_class.as_ref().map_or(known, |content| content.node_template.as_ref())
    }

    /// Another program than core sets the number of machines, once the deployments exist.
    pub(super) fn is_scaled_elsewhere(&self) -> bool {
        let annotations = self.owner.known().and_then(|owner| owner.metadata.annotations.as_ref());
        let value = annotations.and_then(|annotations| annotations.get(names::REPLICAS_MANAGED_BY));
        value.is_some_and(|value| value != "false")
    }

    /// The MachinePool is being deleted, or deleted.
    pub(super) fn is_abandoned(&self) -> bool {
        match &self.owner {
            OwnerView::None | OwnerView::Named(ObjectView::Unknown) => false,
            OwnerView::Named(ObjectView::Missing) => true,
            OwnerView::Named(ObjectView::Present(pool)) => pool.metadata.deletion_timestamp.is_some(),
        }
    }

    /// The MachinePool, and the patch of its number of machines if another program sets the number of the native
    /// deployments.
    pub(super) fn counted_elsewhere(&self) -> Option<(Arc<MachinePool>, Value)> {
        let pool = self.owner.known().filter(|_| self.is_scaled_elsewhere())?;
        let shares = self.shares();
        let needed: Vec<&str> = match self.shown() {
            "" => shares.iter().map(|share| share.name.as_str()).collect(),
            shown => vec![shown],
        };
        let replicas = needed.iter().try_fold(0_i32, |sum, name| {
            let deployment = self.deployments.get(*name)?;
            let is_counted = !self.shown().is_empty() || self.owns(deployment);
            is_counted.then(|| sum.saturating_add(deployment.spec.replicas))
        })?;
        let is_news = pool.spec.replicas != Some(replicas) && pool.metadata.deletion_timestamp.is_none();
        is_news.then(|| (pool.clone(), json!({ "spec": { "replicas": replicas } })))
    }

    /// The deployment that the pool shows and does not own; empty if it owns its deployments.
    pub(super) fn shown(&self) -> &str {
        &self.object.spec.machine_deployment_ref.name
    }

    /// The pool controls the deployment, or created it and the owner was removed.
    pub(super) fn owns(&self, deployment: &mcm_api::machine::MachineDeployment) -> bool {
        match owner::controller_of(&deployment.metadata) {
            Some(controller) => self.object.metadata.uid.as_deref() == Some(&controller.uid),
            None => {
                let label = deployment.metadata.labels.as_ref().and_then(|all| all.get(mcm_api::labels::POOL));
                label == Some(&self.object.name_any())
            }
        }
    }
}
