//! Executes plans for MCMMachines.

use std::sync::Arc;

use kube::api::ListParams;

use super::{Action, Snapshot};
use crate::{
    api::{
        machine::{self as native, MachineClass},
        patch,
    },
    capi::{
        object::apply::{known_after, read},
        provider::native_managers::Managers,
        types::{Cluster, MCMCluster, MCMMachine, Machine},
    },
    controllers::secret::MetadataOfSecret,
    plan::Step,
    runtime::{
        clock::Clock,
        events::Events,
        objects::Objects,
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
};

/// Reconciles MCMMachines.
pub(super) struct MCMMachines {
    pub objects: Arc<Objects<MCMMachine>>,
    pub machines: Arc<Objects<Machine>>,
    pub clusters: Arc<Objects<Cluster>>,
    pub infrastructures: Arc<Objects<MCMCluster>>,
    pub natives: Arc<Objects<native::Machine>>,
    pub classes: Arc<Objects<MachineClass>>,
    pub secrets: Arc<Objects<MetadataOfSecret>>,
    pub managers: Arc<Managers>,
    pub watch_filter: Option<String>,
    pub events: Events,
    pub clock: Arc<dyn Clock>,
}

/// Objects of one answer of the API server.
const PAGE: u32 = 500;

pub(super) async fn apply(
    kind: &MCMMachines,
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    turn: &mut Turn<'_, MCMMachines>,
) -> Result<Next, ReconcileError> {
    let seen = &snapshot.object.metadata;
    for Step { action, event, .. } in steps {
        match action {
            Action::PatchSelf(change) => drop(turn.track(kind.objects.patch(seen, &change).await)?),
            Action::WriteStatus(status) => {
                let change = patch::status(&snapshot.object.status, &Some(*status));
                turn.track(kind.objects.patch_status(seen, &change).await)?;
                turn.status_written();
            }
            Action::CreateClass(class) => {
                let answer = kind.classes.create(&class).await.map(drop);
                let answer = turn.track(answer);
                known_after(answer, &kind.classes, turn.key).await?;
            }
            Action::CreateNative(machine) => {
                let answer = kind.natives.create(&machine).await.map(drop);
                let answer = turn.track(answer);
                known_after(answer, &kind.natives, turn.key).await?;
            }
            Action::PatchNative { machine, patch } => {
                turn.track(kind.natives.patch(&machine.metadata, &patch).await)?;
            }
            Action::DeleteNative(machine) => turn.track(kind.natives.delete(&machine.metadata).await)?,
            Action::ReadNative => turn.session.is_native_gone = read(&kind.natives, turn.key).await?,
            Action::ReadNatives => {
                read_natives(kind, &turn.key.namespace).await?;
                turn.session.has_read_natives = true;
            }
        }
        event.iter().for_each(|event| kind.events.record(snapshot.object.as_ref(), event));
    }
    Ok(Next::Plan)
}

async fn read_natives(kind: &MCMMachines, namespace: &str) -> Result<(), ReconcileError> {
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let found = kind.natives.api(namespace).list(&page).await;
        let found = found.map_err(|source| ReconcileError::read("the MCM Machines of the namespace", source))?;
        let next = found.metadata.continue_.filter(|token| !token.is_empty());
        found.items.into_iter().for_each(|machine| drop(kind.natives.cache.wrote(machine)));
        let Some(token) = next else { return Ok(()) };
        page = page.continue_token(&token);
    }
}
