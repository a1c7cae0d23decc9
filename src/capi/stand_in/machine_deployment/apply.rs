//! Executes plans for MachineDeployments.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::PartialObjectMetaExt,
};
use serde_json::json;

use super::{Action, Snapshot};
use crate::{
    object::{apply::read, view::ObjectView},
    stand_in::{mirror::is_mirror, observe::PreconditionReader},
};
use mcm_api::{
    labels,
    machine::{self as native, MachineClass},
    patch,
};
use mcm_controllers::{object::owner, secret::MetadataOfSecret};
pub use mcm_conversion::{
    types::{
        Cluster, MCMMachineTemplate, MCMMigration, Machine, MachineDeployment, MachineHealthCheck, MachineSet, names,
    },
    user_data_secret,
};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    objects::{CachedApi, ObjectWriteError},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles MachineDeployments.
pub(super) struct StandInDeploymentReconciler {
    pub objects: Arc<CachedApi<MachineDeployment>>,
    pub migrations: Arc<CachedApi<MCMMigration>>,
    pub clusters: Arc<CachedApi<Cluster>>,
    pub health_checks: Arc<CachedApi<MachineHealthCheck>>,
    pub templates: Arc<CachedApi<MCMMachineTemplate>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub secrets: Arc<CachedApi<MetadataOfSecret>>,
    pub natives: Arc<CachedApi<native::MachineDeployment>>,
    pub native_sets: Arc<CachedApi<native::MachineSet>>,
    pub native_machines: Arc<CachedApi<native::Machine>>,
    pub sets: Arc<CachedApi<MachineSet>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub ground: PreconditionReader,
    pub control: Client,
    pub watch_filter: Option<String>,
    pub clock: Arc<dyn TimeSource>,
}

impl PlanExecutor for StandInDeploymentReconciler {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            match step.action {
                Action::PatchSelf(change) => {
                    if let ObjectView::Present(object) = &snapshot.object {
                        turn.track(turn.patch(&self.objects, &object.metadata, &change).await)?;
                    }
                }
                Action::WriteStatus(status) => {
                    if let ObjectView::Present(object) = &snapshot.object {
                        turn.write_status(&self.objects, &object.metadata, &object.status, &Some(*status)).await?;
                    }
                }
                Action::CreateMigration(migration) => {
                    turn.create_or_read(&self.migrations, &migration).await?;
                }
                Action::WriteAuthority(status) => {
                    if let ObjectView::Present(migration) = &snapshot.migration {
                        let change = patch::status(&migration.status, &Some(*status));
                        turn.track(self.migrations.patch_status(&migration.metadata, &change).await)?;
                    }
                }
                Action::DeleteMigration => {
                    if let ObjectView::Present(migration) = &snapshot.migration {
                        turn.track(self.migrations.delete(&migration.metadata).await)?;
                    }
                }
                Action::CreateClass(class) => {
                    turn.create_or_read(&self.classes, &class).await?;
                }
                Action::DeleteClass(class) => turn.track(self.classes.delete(&class.metadata).await)?,
                Action::CopyBootstrap { source, copy } => {
                    copy_bootstrap(self, turn, &source, &copy).await?;
                }
                Action::DeleteCopy(name) => delete_copy(self, &Key::new(&turn.key.namespace, name)).await?,
                Action::CreateNative(native) => {
                    turn.create_or_read(&self.natives, &native).await?;
                }
                Action::PatchNative { native, patch } => {
                    turn.track(turn.patch(&self.natives, &native.metadata, &patch).await)?;
                }
                Action::DeleteNative(native) => turn.track(self.natives.delete(&native.metadata).await)?,
                Action::PatchMachine { machine, patch } => {
                    turn.track(turn.patch(&self.native_machines, &machine.metadata, &patch).await)?;
                }
                Action::ReadMachines => {
                    read_machines(self, turn.key).await?;
                    turn.session.has_read_machines = true;
                }
                Action::ReadSets => turn.session.are_sets_released = Some(are_sets_released(self, turn.key).await?),
                Action::ReadNative => turn.session.is_gone = read(&self.natives, turn.key).await?,
                Action::Confirm => {
                    self.ground.confirm().await?;
                    turn.session.is_confirmed = true;
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, _: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        match write.kind.as_str() {
            "MCMMigration" => drop(read(&self.migrations, &write.key).await?),
            "MachineClass" => drop(read(&self.classes, &write.key).await?),
            // The kinds of both sides have one name.
            "MachineDeployment" => {
                read(&self.objects, &write.key).await?;
                read(&self.natives, &write.key).await?;
            }
            // A native Machine or a Secret: the next plan writes it again if that is needed.
            _ => {}
        }
        Ok(())
    }
}

/// The Machines of a deployment as they are now, with the annotations that choose them.
async fn read_machines(kind: &StandInDeploymentReconciler, deployment: &Key) -> Result<(), ReconcileError> {
    let own = ListParams::default().labels(&format!("{}={}", names::DEPLOYMENT_NAME, deployment.name));
    let found = kind.machines.api(&deployment.namespace).list(&own).await;
    let found = found.map_err(|source| ReconcileError::read("the Machines of the deployment", source))?;
    for machine in found {
        kind.machines.cache.wrote(machine.0);
    }
    Ok(())
}

/// A set that shows a native one has lost its deployment as owner.
async fn are_sets_released(kind: &StandInDeploymentReconciler, deployment: &Key) -> Result<bool, ReconcileError> {
    let own = ListParams::default().labels(&format!("{}={}", names::DEPLOYMENT_NAME, deployment.name));
    let found = kind.sets.api(&deployment.namespace).list(&own).await;
    let found = found.map_err(|source| ReconcileError::read("the MachineSets of the deployment", source))?;
    let is_released = |set: &MachineSet| is_mirror(&set.metadata) && owner::controller_of(&set.metadata).is_none();
    Ok(found.items.iter().any(|set| is_released(&set.0)))
}

/// The data go from one Secret to the other and nowhere else. Data that cannot be used are remembered as such.
async fn copy_bootstrap(
    kind: &StandInDeploymentReconciler,
    turn: &ReconcileRun<'_, StandInDeploymentReconciler>,
    source: &str,
    copy: &str,
) -> Result<(), ReconcileError> {
    let namespace = &turn.key.namespace;
    let api: Api<Secret> = Api::namespaced(kind.control.clone(), namespace);
    let read = api.get(source).await;
    let read = read.map_err(|failed| ReconcileError::read(format!("Secret {namespace}/{source}"), failed))?;
    let version = read.resource_version().unwrap_or_default();
    kind.secrets.cache.wrote(read.metadata.clone().into_response_partial());
    let mut value = serde_json::to_value(&read).unwrap_or_default();
    value["apiVersion"] = "v1".into();
    value["kind"] = "Secret".into();
    let mut made = match user_data_secret(&value) {
        Ok(made) => made,
        Err(problem) => {
            turn.remember(|memory| memory.unusable = Some((version, problem)));
            return Ok(());
        }
    };
    made["metadata"]["name"] = copy.into();
    made["metadata"]["labels"] = json!({ (labels::COPIED_VERSION): version, (labels::STAND_IN): turn.key.name });
    let key = Key::new(namespace, copy);
    let stored = match serde_json::from_value::<Secret>(made.clone()) {
        Ok(secret) if kind.secrets.cache.get(&key).is_none() => api.create(&PostParams::default(), &secret).await,
        _ => api.patch(copy, &PatchParams::default(), &Patch::Merge(made)).await,
    };
    let stored = stored.map_err(|failed| ObjectWriteError::new("copy", "Secret", key, failed))?;
    kind.secrets.cache.wrote(stored.metadata.into_response_partial());
    Ok(())
}

async fn delete_copy(kind: &StandInDeploymentReconciler, key: &Key) -> Result<(), ReconcileError> {
    let Some(known) = kind.secrets.cache.get(key) else { return Ok(()) };
    let api: Api<Secret> = Api::namespaced(kind.control.clone(), &key.namespace);
    match api.delete(&key.name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(failed) => return Err(ObjectWriteError::new("delete", "Secret", key.clone(), failed).into()),
    }
    kind.secrets.cache.removed(key, known.metadata.uid.as_deref().unwrap_or_default());
    Ok(())
}
