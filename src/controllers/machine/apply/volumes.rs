use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use kube::{Api, Client, api::ListParams};
use tokio::time::timeout;

use super::{
    super::{ClassView, NodeWrite, Snapshot},
    pods::{failed, in_time},
};
use crate::{
    api::volume_attachment::VolumeAttachment,
    controllers::machine::Ports,
    drain::{ClaimFacts, ClaimRef, Volume},
    driver::Driver,
    runtime::{
        cache::Key,
        objects::{Objects, WriteFailure},
        target::{ATTACHMENTS_BY_NODE, ATTACHMENTS_BY_VOLUME},
    },
};

/// Claims of one drain that are read at a time.
const READS: usize = 10;
/// How long a forced drain waits for the list of VolumeAttachments.
const LIST: Duration = Duration::from_secs(10);

/// What each claim leads to, live.
pub(super) async fn read(
    context: &Ports,
    snapshot: &Snapshot,
    claims: BTreeSet<ClaimRef>,
) -> Vec<(ClaimRef, Result<ClaimFacts, String>)> {
    let driver = match &snapshot.class {
        ClassView::Present { class, .. } => context.drivers.get(class).ok(),
        ClassView::Unserved(_) | ClassView::Unknown | ClassView::Missing => None,
    };
    let client = context.target_of(snapshot).map(|target| target.drains.clone());
    let reads = claims.into_iter().map(|claim| {
        let (client, driver) = (client.clone(), driver.clone());
        async move {
            let facts = match client {
                Ok(client) => {
                    in_time(context, snapshot, read_one(client, driver.as_deref(), &claim).boxed()).await.flatten()
                }
                Err(error) => Err(error.to_owned()),
            };
            (claim, facts)
        }
    });
    stream::iter(reads).buffer_unordered(READS).collect().await
}

async fn read_one(client: Client, driver: Option<&dyn Driver>, claim: &ClaimRef) -> Result<ClaimFacts, String> {
    let ignored = |reason: String| Ok(ClaimFacts::Ignored(reason));
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.namespace);
    let Some(found) = by_name(&claims, "claim", &claim.name).await? else {
        return ignored("the claim does not exist".to_owned());
    };
    let Some(name) = found.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty()) else {
        return ignored("it is not bound to a volume".to_owned());
    };
    let Some(volume) = by_name(&Api::<PersistentVolume>::all(client), "persistent volume", &name).await? else {
        return ignored(format!("persistent volume {name} does not exist"));
    };
    match id_of(driver, volume.spec.unwrap_or_default()).await {
        Ok(Some(id)) => Ok(ClaimFacts::Volume(Volume { name: name.into(), id: id.into() })),
        Ok(None) => ignored(format!("the driver does not know the kind of persistent volume {name}")),
        Err(error) => ignored(format!("the driver returned no ID of persistent volume {name}: {error}")),
    }
}

/// By a list, because the permissions of the Go program do not include `get`. The API server reads one object for it.
async fn by_name<K>(api: &Api<K>, what: &str, name: &str) -> Result<Option<K>, String>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    let listed = api.list(&one).await.map_err(|error| failed(&format!("list {what}"), name, &error))?;
    Ok(listed.items.into_iter().find(|object| object.meta().name.as_deref() == Some(name)))
}

/// One volume per call: what a driver does not know is missing in its answer, so a longer one could not be assigned.
async fn id_of(driver: Option<&dyn Driver>, spec: PersistentVolumeSpec) -> Result<Option<String>, String> {
    let Some(driver) = driver else { return Err("there is no driver".to_owned()) };
    let ids = driver.volume_ids(&[spec]).await.map_err(|error| error.to_string())?;
    Ok(ids.into_iter().next().filter(|id| !id.is_empty()))
}

/// The followed volumes that are attached to another Node than this one. Later changes enqueue the Machine.
pub(super) fn elsewhere(context: &Ports, snapshot: &Snapshot, key: &Key, node: &str) -> BTreeSet<Arc<str>> {
    let followed = snapshot.memory.volumes.followed();
    let Ok(target) = context.target_of(snapshot) else { return BTreeSet::new() };
    if followed.is_empty() {
        return BTreeSet::new();
    }
    let objects = target.attachments.demand_waking(key, followed.clone(), &context.queue);
    let is_elsewhere =
        |attachment: &Arc<VolumeAttachment>| attachment.status.attached && attachment.spec.node_name != node;
    let arrived = |name: &Arc<str>| objects.cache.by(ATTACHMENTS_BY_VOLUME, &**name).iter().any(is_elsewhere);
    followed.into_iter().filter(arrived).collect()
}

/// Deletes the VolumeAttachments of the Node, so that its volumes can be attached elsewhere.
pub(super) async fn detach(context: &Ports, snapshot: &mut Snapshot, node: &str) {
    let outcome = delete_attachments(context, snapshot, node).await;
    snapshot.now = context.now();
    match outcome {
        Ok(count) => snapshot.volumes_detached(count),
        Err(message) => snapshot.node_failed(NodeWrite::DetachVolumes, message),
    }
}

async fn delete_attachments(context: &Ports, snapshot: &Snapshot, node: &str) -> Result<usize, String> {
    let target = context.target_of(snapshot).map_err(str::to_owned)?;
    let objects = target.attachments.demand();
    if timeout(LIST, objects.cache.wait_synced()).await.is_err() {
        return Err(format!("cannot list volumeattachments within {}s", LIST.as_secs()));
    }
    let live = objects.cache.by(ATTACHMENTS_BY_NODE, node);
    let live: Vec<_> = live.into_iter().filter(|one| one.metadata.deletion_timestamp.is_none()).collect();
    let count = live.len();
    let deletes = live.into_iter().map(|one| delete(Arc::clone(&objects), one));
    let answers: Vec<Option<String>> = stream::iter(deletes).buffered(READS).collect().await;
    let errors: Vec<String> = answers.into_iter().flatten().collect();
    if errors.is_empty() { Ok(count) } else { Err(errors.join(", ")) }
}

async fn delete(objects: Arc<Objects<VolumeAttachment>>, attachment: Arc<VolumeAttachment>) -> Option<String> {
    let error = objects.delete(&attachment.metadata).await.err()?;
    match error.failure() {
        // Another one may have its name by now.
        WriteFailure::Gone | WriteFailure::Conflict => None,
        _ => Some(error.text()),
    }
}
