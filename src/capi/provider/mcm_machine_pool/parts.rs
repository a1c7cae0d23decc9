//! Computes one verdict for each condition of the pool.

use kube::ResourceExt;

use super::{Snapshot, shares::PoolShare};
use crate::{
    object::{conditions::ConditionVerdict, view::ObjectView},
    provider::{class::ClassResolution, observe::cluster_name},
};
use mcm_api::{
    machine::{Machine, MachineDeployment, OperationState},
    reasons::{ConditionType, FulfilledReason, ProviderReason as Reason},
};

/// A verdict for each condition.
pub(super) struct PoolConditionVerdicts {
    /// The infrastructure of the Cluster.
    pub cluster: ConditionVerdict,
    /// The classes.
    pub class: ConditionVerdict,
    /// The bootstrap data of the VMs.
    pub bootstrap: ConditionVerdict,
    /// The workload cluster.
    pub workload: ConditionVerdict,
    /// The native deployments.
    pub native: ConditionVerdict,
    /// The VMs.
    pub machines: ConditionVerdict,
}

impl PoolConditionVerdicts {
    pub(super) fn from_snapshot(snapshot: &Snapshot) -> Self {
        let shares = snapshot.shares();
        Self {
            cluster: cluster(snapshot),
            class: class(snapshot, &shares),
            bootstrap: bootstrap(snapshot),
            workload: workload(snapshot),
            native: native(snapshot, &shares),
            machines: machines(snapshot, &shares),
        }
    }

    /// Everything that new native deployments need exists.
    pub(super) fn may_create(&self) -> bool {
        [&self.cluster, &self.class, &self.bootstrap, &self.workload].into_iter().all(|part| part.is_true())
    }

    /// The first verdict that is not true, in the order in which they become true.
    pub(super) fn summary(&self) -> ConditionVerdict {
        let all = [&self.cluster, &self.class, &self.bootstrap, &self.workload, &self.native, &self.machines];
        all.into_iter().find(|part| !part.is_true()).unwrap_or(&self.machines).clone()
    }
}

impl Snapshot {
    /// Name of the Cluster.
    pub(super) fn cluster_name(&self) -> Option<&str> {
        let of_owner = || self.owner.known().map(|owner| owner.spec.cluster_name.as_str());
        cluster_name(&self.object.metadata).or_else(of_owner)
    }

    /// Each VM is also a Machine of Cluster API.
    pub(super) fn has_members(&self) -> bool {
        self.object.spec.machine_pool_machines == "Enabled"
    }

    /// The native deployments that the pool created.
    pub(super) fn own_deployments(&self) -> impl Iterator<Item = &std::sync::Arc<MachineDeployment>> {
        self.deployments.values().filter(|deployment| self.owns(deployment))
    }

    /// The deployments that have the VMs of the pool: the owned ones, or the shown one.
    pub(super) fn counted(&self) -> Vec<&MachineDeployment> {
        match self.shown() {
            "" => self.own_deployments().map(AsRef::as_ref).collect(),
            shown => self.deployments.get(shown).map(AsRef::as_ref).into_iter().collect(),
        }
    }

    /// All native deployments of the pool exist, and none of their machines is missing, old or unhealthy.
    pub(super) fn is_complete(&self, shares: &[PoolShare]) -> bool {
        shares.iter().all(|share| {
            self.deployments
                .get(&share.name)
                .filter(|deployment| self.owns(deployment))
                .is_some_and(|one| is_settled(one))
        })
    }
}

fn cluster(snapshot: &Snapshot) -> ConditionVerdict {
    if snapshot.cluster.known().is_some_and(|cluster| cluster.is_provisioned()) {
        return ConditionVerdict::yes(FulfilledReason::Provisioned);
    }
    let name = snapshot.cluster_name().unwrap_or_default();
    ConditionVerdict::no(
        Reason::WaitingForClusterInfrastructure,
        format!("the infrastructure of Cluster {name} is not provisioned"),
    )
}

fn class(snapshot: &Snapshot, shares: &[PoolShare]) -> ConditionVerdict {
    let problem = shares.iter().find_map(|share| match snapshot.class_of(share) {
        ClassResolution::Problem(problem) => Some(problem),
        ClassResolution::Usable { .. } => None,
    });
    match problem {
        Some(problem) if snapshot.shown().is_empty() => problem,
        _ => ConditionVerdict::yes(FulfilledReason::Resolved),
    }
}

fn bootstrap(snapshot: &Snapshot) -> ConditionVerdict {
    if !snapshot.shown().is_empty() {
        return ConditionVerdict::yes(FulfilledReason::Available);
    }
    let owner = snapshot.owner.known();
    let named = owner.and_then(|owner| owner.spec.template.spec.bootstrap.data_secret_name.as_deref());
    let waiting = |text: String| ConditionVerdict::no(Reason::WaitingForBootstrapData, text);
    match (named, &snapshot.bootstrap) {
        (Some(""), _) | (Some(_), ObjectView::Present(_)) => ConditionVerdict::yes(FulfilledReason::Available),
        (Some(name), ObjectView::Missing) => waiting(format!("Secret {name} does not exist")),
        (Some(name), ObjectView::Unknown) => waiting(format!("Secret {name} cannot be read")),
        (None, _) => waiting("spec.template.spec.bootstrap.dataSecretName of the MachinePool is not set".to_owned()),
    }
}

/// A deployment managed by another process needs no workload cluster.
fn workload(snapshot: &Snapshot) -> ConditionVerdict {
    match &snapshot.nodes_unknown {
        Some(problem) if snapshot.shown().is_empty() => ConditionVerdict::no(Reason::NotConnected, problem.clone()),
        _ => ConditionVerdict::yes(FulfilledReason::Connected),
    }
}

fn native(snapshot: &Snapshot, shares: &[PoolShare]) -> ConditionVerdict {
    if let Some(name) = snapshot.unreadable_deployments.first() {
        return ConditionVerdict::no(Reason::Unreadable, format!("MCM MachineDeployment {name} cannot be read"));
    }
    let shown = snapshot.shown();
    if !shown.is_empty() {
        return match snapshot.deployments.get(shown) {
            None => {
                ConditionVerdict::no(Reason::NotProvisioned, format!("MCM MachineDeployment {shown} does not exist"))
            }
            Some(_) if !snapshot.is_scaled_elsewhere() => {
                let text = "the MachinePool only mirrors a deployment: annotate it with \
                            cluster.x-k8s.io/replicas-managed-by, so that Cluster API core adopts its replicas";
                ConditionVerdict::no(Reason::ReplicasNotManaged, text)
            }
            Some(_) => ConditionVerdict::yes(FulfilledReason::Synced),
        };
    }
    for PoolShare { name, .. } in shares {
        match snapshot.deployments.get(name) {
            Some(deployment) if !snapshot.owns(deployment) => {
                let text = format!("another object has MCM MachineDeployment {name}: delete or rename one of them");
                return ConditionVerdict::no(Reason::NameTaken, text);
            }
            None => {
                let text = format!("MCM MachineDeployment {name} does not exist yet");
                return ConditionVerdict::no(Reason::NotProvisioned, text);
            }
            Some(_) => {}
        }
    }
    ConditionVerdict::yes(FulfilledReason::Synced)
}

fn machines(snapshot: &Snapshot, shares: &[PoolShare]) -> ConditionVerdict {
    let counted = snapshot.counted();
    let is_surplus = |one: &&MachineDeployment| !shares.iter().any(|share| share.name == one.name_any());
    let has_surplus = snapshot.shown().is_empty() && counted.iter().any(is_surplus);
    if !counted.is_empty() && !has_surplus && counted.iter().all(|deployment| is_settled(deployment)) {
        return match snapshot.without_id() {
            None => ConditionVerdict::yes(FulfilledReason::Provisioned),
            Some(machine) => ConditionVerdict::no(
                Reason::ProviderIdUnknown,
                format!("the zone of VM {} is not known: set nodeTemplate.zone of its class", machine.spec.provider_id),
            ),
        };
    }
    if let Some(invalid) = counted.iter().find_map(|deployment| invalid(deployment)) {
        return ConditionVerdict::no(Reason::Failed, invalid);
    }
    if let Some(failed) = snapshot.machines.values().find_map(|machine| failure(machine)) {
        return failed;
    }
    if let Some(changed) = counted.iter().find(|deployment| !is_observed(deployment)) {
        let text = format!("a change of MCM MachineDeployment {} is not observed yet", changed.name_any());
        return ConditionVerdict::no(Reason::RollingOut, text);
    }
    let sum =
        |count: fn(&MachineDeployment) -> i32| counted.iter().fold(0_i32, |sum, one| sum.saturating_add(count(one)));
    let desired = sum(|one| one.spec.replicas);
    let available = sum(|one| one.status.as_ref().map_or(0, |status| status.available_replicas));
    let updated = sum(|one| one.status.as_ref().map_or(0, |status| status.updated_replicas));
    let text = format!("{available} of {desired} machines are available, {updated} have the current template");
    ConditionVerdict::no(Reason::RollingOut, text)
}

/// The counters are of the current spec.
fn is_observed(deployment: &MachineDeployment) -> bool {
    let observed = deployment.status.as_ref().map_or(0, |status| status.observed_generation);
    deployment.metadata.generation.unwrap_or_default() <= observed
}

/// The deployment is observed and complete.
fn is_settled(deployment: &MachineDeployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let replicas = deployment.spec.replicas;
    deployment.metadata.deletion_timestamp.is_none()
        && is_observed(deployment)
        && [status.replicas, status.updated_replicas, status.available_replicas].iter().all(|count| *count == replicas)
}

fn invalid(deployment: &MachineDeployment) -> Option<String> {
    let conditions = &deployment.status.as_ref()?.conditions;
    let invalid = ConditionType::Invalid.as_str();
    let found = conditions.iter().find(|condition| condition.type_ == invalid && condition.status == "True")?;
    Some(found.message.clone())
}

fn failure(machine: &Machine) -> Option<ConditionVerdict> {
    let operation = &machine.status.as_ref()?.last_operation;
    (operation.state == Some(OperationState::Failed)).then(|| {
        let code =
            if operation.error_code.is_empty() { Reason::Failed.as_str() } else { operation.error_code.as_str() };
        ConditionVerdict::no(code, format!("machine {}: {}", machine.name_any(), operation.description))
    })
}
