//! Executes plans for MCMMachinePools.

use std::{collections::BTreeSet, io::Error, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt, api::ListParams, core::PartialObjectMeta};
use serde::Serialize;

use super::{Action, Snapshot};
use crate::{
    object::apply::read,
    provider::{
        native_managers::ManagerRegistry,
        resume::ResumedClusters,
        workload::{ConnectionAttempts, target_of},
    },
};
use mcm_api::{
    labels,
    machine::{self as native, MachineClass, MachineDeployment, MachineSet},
    node::Node,
};
use mcm_controllers::secret::MetadataOfSecret;
use mcm_conversion::types::{Cluster, MCMCluster, MCMMachine, MCMMachinePool, Machine, MachinePool};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::{CacheableKind, Key},
    clock::TimeSource,
    events::EventRecorder,
    guard::GuardedObject,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    target::CellTargets,
    worker::{ReconcileError, RequeueTime},
};

/// Reconciles MCMMachinePools.
pub(super) struct MCMMachinePools {
    pub objects: Arc<CachedApi<MCMMachinePool>>,
    pub pools: Arc<CachedApi<MachinePool>>,
    pub clusters: Arc<CachedApi<Cluster>>,
    pub infrastructures: Arc<CachedApi<MCMCluster>>,
    pub deployments: Arc<CachedApi<MachineDeployment>>,
    pub sets: Arc<CachedApi<MachineSet>>,
    pub natives: Arc<CachedApi<native::Machine>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub secrets: Arc<CachedApi<MetadataOfSecret>>,
    pub members: Arc<CachedApi<MCMMachine>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub targets: Arc<CellTargets>,
    pub workloads: Arc<ConnectionAttempts>,
    pub resumed: Arc<ResumedClusters>,
    pub managers: Arc<ManagerRegistry>,
    pub watch_filter: Option<String>,
    pub events: EventRecorder,
    pub clock: Arc<dyn TimeSource>,
}

/// Taint of a Node that the autoscaler is about to delete.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// Pause until the watch has delivered the objects of a live read.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl PlanExecutor for MCMMachinePools {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        let seen = &snapshot.object.metadata;
        for Step { action, event, .. } in steps {
            match action {
                Action::PatchSelf(change) => drop(turn.track(turn.patch(&self.objects, seen, &change).await)?),
                Action::WriteStatus(status) => {
                    turn.write_status(&self.objects, seen, &snapshot.object.status, &Some(*status)).await?;
                }
                Action::CreateClass(class) => {
                    turn.create_or_read(&self.classes, &class).await?;
                }
                Action::DeleteClass(class) => turn.track(self.classes.delete(&class.metadata).await)?,
                Action::CreateDeployment(deployment) => {
                    turn.create_or_read(&self.deployments, &deployment).await?;
                }
                Action::PatchDeployment { deployment, patch } => {
                    turn.track(turn.patch(&self.deployments, &deployment.metadata, &patch).await)?;
                }
                Action::DeleteDeployment(deployment) => {
                    turn.track(self.deployments.delete(&deployment.metadata).await)?;
                }
                Action::PatchNative { machine, patch } => {
                    turn.track(turn.patch(&self.natives, &machine.metadata, &patch).await)?;
                }
                Action::CreateMember(member) => {
                    turn.create_or_read(&self.members, &member).await?;
                }
                Action::PatchMember { member, patch } => {
                    turn.track(turn.patch(&self.members, &member.metadata, &patch).await)?;
                }
                Action::DeleteMember(member) => turn.track(self.members.delete(&member.metadata).await)?,
                Action::PatchOwner { pool, patch } => {
                    drop(turn.track(turn.patch(&self.pools, &pool.metadata, &patch).await)?)
                }
                Action::DeleteMachine(machine) => turn.track(self.machines.delete(&machine.metadata).await)?,
                Action::ReadNatives => {
                    if !is_gone(self, &snapshot).await? {
                        return Ok(LoopContinuation::Requeue(RequeueTime::After(LOOK_AGAIN)));
                    }
                    turn.session.is_gone = true;
                }
                Action::ReadMachines => {
                    read_machines(self, &snapshot).await?;
                    turn.session.has_read_machines = true;
                }
                Action::ReadNodes => turn.session.to_be_deleted = Some(to_be_deleted(self, &snapshot).await?),
            }
            event.iter().for_each(|event| self.events.record(snapshot.object.as_ref(), event));
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, _: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        match write.kind.as_str() {
            "MCMMachinePool" => drop(read(&self.objects, &write.key).await?),
            "MachineClass" => drop(read(&self.classes, &write.key).await?),
            "MCMMachine" => drop(read(&self.members, &write.key).await?),
            "MachineDeployment" => drop(read(&self.deployments, &write.key).await?),
            "MachinePool" => drop(read(&self.pools, &write.key).await?),
            // A native Machine, or one of Cluster API: the next plan writes it again if that is needed.
            _ => {}
        }
        Ok(())
    }
}

/// The Machines that core created for the pool, read live.
async fn read_machines(kind: &MCMMachinePools, snapshot: &Snapshot) -> Result<(), ReconcileError> {
    let namespace = snapshot.object.namespace().unwrap_or_default();
    for name in snapshot.members.keys() {
        read(&kind.machines, &Key::new(&namespace, name)).await?;
    }
    Ok(())
}

/// Names of the native Machines whose Nodes have the taint with which the autoscaler begins to delete them.
async fn to_be_deleted(kind: &MCMMachinePools, snapshot: &Snapshot) -> Result<BTreeSet<String>, ReconcileError> {
    let cluster = snapshot.cluster.known().map(|cluster| Key::from_meta(&cluster.metadata));
    let target = cluster.and_then(|cluster| kind.targets.get(&target_of(&cluster)));
    let away = || ReconcileError::read("the Nodes of the pool", Error::other("the workload cluster is not connected"));
    let target = target.ok_or_else(away)?;
    let mut chosen = BTreeSet::new();
    for (name, machine) in &snapshot.machines {
        let Some(node) = machine.node_name() else { continue };
        let key = Key::new("", node);
        read(&target.nodes, &key).await?;
        let has_taint = |node: Arc<Node>| node.spec.taints.iter().any(|taint| taint.key == TO_BE_DELETED);
        if target.nodes.cache.get(&key).is_some_and(has_taint) {
            chosen.insert(name.clone());
        }
    }
    Ok(chosen)
}

/// The metadata of objects, also of undecodable ones.
fn metadata_of<K>(objects: &CachedApi<K>, namespace: &str) -> Api<GuardedObject<PartialObjectMeta<K>>>
where
    K: CacheableKind + Serialize + Resource<Scope = NamespaceResourceScope>,
{
    Api::namespaced(objects.api(namespace).into_client(), namespace)
}

/// The API server has no native object with the label of the pool.
async fn is_gone(kind: &MCMMachinePools, snapshot: &Snapshot) -> Result<bool, ReconcileError> {
    let namespace = snapshot.object.namespace().unwrap_or_default();
    let of_pool = ListParams::default().labels(&format!("{}={}", labels::POOL, snapshot.object.name_any())).limit(1);
    let failed = |source| ReconcileError::read("the MCM objects of the pool", source);
    let deployments = metadata_of(&kind.deployments, &namespace).list(&of_pool).await.map_err(failed)?;
    let machines = metadata_of(&kind.natives, &namespace).list(&of_pool).await.map_err(failed)?;
    Ok(deployments.items.is_empty() && machines.items.is_empty())
}
