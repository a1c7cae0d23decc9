//! Executes plans for MCMMachines.

use std::sync::Arc;

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;

use super::{Action, Snapshot};
use crate::{object::apply::read, provider::native_managers::ManagerRegistry};
use mcm_api::machine::{self as native, MachineClass};
use mcm_controllers::{machine::secrets_of_class, secret::MetadataOfSecret};
pub use mcm_conversion::{
    ProviderKinds, ProviderRole, provider_id,
    types::{Cluster, MCMCluster, MCMMachine, Machine},
};
use mcm_driver::{Code, DriverError, MachineRequest};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    dated::DatedObject,
    events::EventRecorder,
    objects::{CachedApi, chain, read as read_object},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    secrets::SecretCache,
    worker::ReconcileError,
};

/// Reconciles MCMMachines.
pub(super) struct MCMMachines {
    pub objects: Arc<CachedApi<MCMMachine>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub clusters: Arc<CachedApi<Cluster>>,
    pub infrastructures: Arc<CachedApi<MCMCluster>>,
    pub natives: Arc<CachedApi<native::Machine>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub secrets: Arc<CachedApi<MetadataOfSecret>>,
    pub drivers: Arc<DriverCatalogue>,
    /// The data of Secrets, for calls of drivers.
    pub credentials: SecretCache,
    pub managers: Arc<ManagerRegistry>,
    pub watch_filter: Option<String>,
    pub events: EventRecorder,
    pub clock: Arc<dyn TimeSource>,
}

/// Objects of one answer of the API server.
const PAGE: u32 = 500;

impl PlanExecutor for MCMMachines {
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
                Action::CreateNative(machine) => {
                    turn.create_or_read(&self.natives, &machine).await?;
                }
                Action::PatchNative { machine, patch } => {
                    turn.track(turn.patch(&self.natives, &machine.metadata, &patch).await)?;
                }
                Action::PatchClass { class, patch } => {
                    turn.track(turn.patch(&self.classes, &class.metadata, &patch).await)?;
                }
                Action::DeleteNative(machine) => turn.track(self.natives.delete(&machine.metadata).await)?,
                Action::ReadNative => turn.session.is_native_gone = read(&self.natives, turn.key).await?,
                Action::Register(_) | Action::Deregister(_) => {
                    let answer = change_member(self, &snapshot, &action).await;
                    let now = self.clock.now();
                    turn.session.answered(&action, &answer);
                    turn.remember(|memory| memory.answered(&action, &answer, now));
                }
                Action::ReadNatives => {
                    let wanted = &snapshot.object.spec.provider_id;
                    turn.session.unreadable_rival = read_natives(&self.natives, &turn.key.namespace, wanted).await?;
                    turn.session.has_read_natives = true;
                }
                Action::ReadNetwork { kinds, name } => {
                    let found = read_network(self, kinds, &turn.key.namespace, &name).await?;
                    turn.session.network = Some(Arc::new(found));
                }
            }
            event.iter().for_each(|event| self.events.record(snapshot.object.as_ref(), event));
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        match write.kind.as_str() {
            "MCMMachine" => drop(read(&self.objects, key).await?),
            "MachineClass" => drop(read(&self.classes, key).await?),
            _ => drop(read(&self.natives, key).await?),
        }
        Ok(())
    }
}

/// Registers or deregisters the VM, with the class and the Secrets of its Machine. No reconcile waits for the cloud.
async fn change_member(kind: &MCMMachines, snapshot: &Snapshot, action: &Action) -> Result<(), DriverError> {
    let fail = |code, text: String| DriverError::new(code, text);
    let Some(class) = snapshot.vm_class.known() else {
        return Err(fail(Code::FailedPrecondition, "the MachineClass of the VM cannot be read: create it".to_owned()));
    };
    let driver = kind.drivers.get(class).map_err(|error| fail(Code::Unimplemented, error.to_string()))?;
    let Some(machine) = snapshot.machine_of_vm() else {
        return Err(fail(Code::FailedPrecondition, "the ID of the VM is not known".to_owned()));
    };
    let merged = secrets_of_class(class, &kind.credentials).await;
    let merged = merged.map_err(|error| {
        let text = format!("the Secrets of MachineClass {} cannot be read: {}", class.name_any(), chain(&error));
        fail(Code::Unavailable, text)
    })?;
    let secret = merged.complete().map_err(|missing| {
        fail(Code::FailedPrecondition, format!("MachineClass {} needs {missing}", class.name_any()))
    })?;
    let class = Arc::clone(class);
    let request = MachineRequest { machine, class, secret, owner: String::new(), may_pause: true };
    match action {
        Action::Register(balancer) => driver.register(&request, balancer).await,
        Action::Deregister(balancer) => driver.deregister(&request, balancer).await,
        _ => Ok(()),
    }
}

/// Reads the native Machines of a namespace. One that cannot be decoded is returned if it has the VM, and does not affect others.
pub(super) async fn read_natives(
    natives: &CachedApi<native::Machine>,
    namespace: &str,
    vm: &str,
) -> Result<Option<String>, ReconcileError> {
    let client = natives.api(namespace).into_client();
    let resource = ApiResource::erase::<native::Machine>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let (mut page, mut unreadable) = (ListParams::default().limit(PAGE), None);
    loop {
        let found = api.list(&page).await;
        let found = found.map_err(|source| ReconcileError::read("the MCM Machines of the namespace", source))?;
        for object in found.items {
            let (name, id) = (object.name_any(), object.data["spec"]["providerID"].clone());
            match serde_json::to_value(object).and_then(serde_json::from_value::<native::Machine>) {
                Ok(machine) => drop(natives.cache.wrote(machine)),
                Err(_) if id.as_str().is_some_and(|id| provider_id::is_same(id, vm)) => unreadable = Some(name),
                Err(_) => {}
            }
        }
        let Some(token) = found.metadata.continue_.filter(|token| !token.is_empty()) else { return Ok(unreadable) };
        page = page.continue_token(&token);
    }
}

/// The infrastructure of a Cluster, of another provider; null if it does not exist.
async fn read_network(
    kind: &MCMMachines,
    kinds: &ProviderKinds,
    namespace: &str,
    name: &str,
) -> Result<Value, ReconcileError> {
    let resource = kinds.with_role(ProviderRole::Cluster).api_resource();
    let client = kind.objects.api(namespace).into_client();
    let api: Api<DatedObject<DynamicObject>> = Api::namespaced_with(client, namespace, &resource);
    let what = format!("{} {namespace}/{name}", kinds.cluster.kind);
    let found = read_object(&api, name).await.map_err(|source| ReconcileError::read(what, source))?;
    Ok(found.map_or(Value::Null, |object| object.data))
}
