use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use kube::{Api, Client, api::ListParams};
use tokio::time::timeout;

use super::{
    pods::{failed, in_time},
    ports::MachineContext,
};
use crate::machine::{ClassView, NodeWrite, Snapshot, plan::forced_from};
use mcm_api::volume_attachment::VolumeAttachment;
use mcm_driver::Driver;
use mcm_rules::drain::{AttachmentState, ClaimFacts, ClaimRef, PodFacts, TrackedVolume};
use mcm_runtime::{
    cache::Key,
    dated::DatedObject,
    objects::{CachedApi, WriteFailure},
    target::{ATTACHMENTS_BY_NODE, ATTACHMENTS_BY_VOLUME},
};

/// Claims of one drain that are read at a time.
const READS: usize = 10;
/// How long a forced drain waits for the list of VolumeAttachments.
const LIST: Duration = Duration::from_secs(10);

/// Reads the volume of each claim live.
pub(super) async fn read(
    context: &MachineContext,
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
    let ignored = |reason: String| Ok(ClaimFacts::Ignored { reason, volume: None });
    let claims: Api<DatedObject<PersistentVolumeClaim>> = Api::namespaced(client.clone(), &claim.namespace);
    let Some(found) = by_name(&claims, "claim", &claim.name).await? else {
        return ignored("the claim does not exist".to_owned());
    };
    let Some(name) = found.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty()) else {
        return ignored("it is not bound to a volume".to_owned());
    };
    let Some(volume) = by_name(&Api::<DatedObject<PersistentVolume>>::all(client), "persistent volume", &name).await?
    else {
        return ignored(format!("persistent volume {name} does not exist"));
    };
    let spec = volume.spec.unwrap_or_default();
    let handle = spec.csi.as_ref().map(|csi| csi.volume_handle.clone()).unwrap_or_default();
    let reason = match id_of(driver, spec).await {
        Ok(Some(id)) => return Ok(ClaimFacts::Volume(TrackedVolume { name: name.into(), id: id.into() })),
        Ok(None) => format!("the driver does not know the kind of persistent volume {name}"),
        Err(error) => format!("the driver returned no ID of persistent volume {name}: {error}"),
    };
    Ok(ClaimFacts::Ignored { reason, volume: Some(TrackedVolume { name: name.into(), id: handle.into() }) })
}

/// By a list, because the permissions of the Go program do not include `get`. The API server reads one object for it.
async fn by_name<K>(api: &Api<DatedObject<K>>, what: &str, name: &str) -> Result<Option<K>, String>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let one = ListParams::default().fields(&format!("metadata.name={name}"));
    let listed = api.list(&one).await.map_err(|error| failed(&format!("list {what}"), name, &error))?;
    let mut listed = listed.items.into_iter().map(|DatedObject(object)| object);
    Ok(listed.find(|object| object.meta().name.as_deref() == Some(name)))
}

/// One volume per call: volumes that a driver does not support are missing in its answer, so the results of a longer
/// list could not be assigned.
async fn id_of(driver: Option<&dyn Driver>, spec: PersistentVolumeSpec) -> Result<Option<String>, String> {
    let Some(driver) = driver else { return Err("there is no driver".to_owned()) };
    let ids = driver.volume_ids(&[spec]).await.map_err(|error| error.to_string())?;
    Ok(ids.into_iter().next().filter(|id| !id.is_empty()))
}

/// Where volumes are attached, by the VolumeAttachments. Later changes enqueue the Machine.
///
/// At the end of a drain their list is awaited. A forced drain does not need it.
pub(super) async fn attachments(
    context: &MachineContext,
    snapshot: &Snapshot,
    key: &Key,
    node: &str,
    pods: &Result<Vec<PodFacts>, String>,
) -> AttachmentState {
    let unknown = AttachmentState::default();
    let (Ok(target), Ok(pods)) = (context.target_of(snapshot), pods) else { return unknown };
    if forced_from(snapshot, &context.policy).is_none_or(|from| context.now() >= from) {
        return unknown;
    }
    let followed = snapshot.memory.volumes.followed();
    let objects = target.attachments.demand_waking(key, followed.clone(), &context.queue);
    let ends = !pods.iter().any(|pod| pod.is_drained() && !pod.is_finished);
    if ends {
        let synced = timeout(LIST, objects.cache.wait_synced()).map(drop).boxed();
        drop(in_time(context, snapshot, synced).await);
    }
    let is_elsewhere =
        |attachment: &Arc<VolumeAttachment>| attachment.status.attached && attachment.spec.node_name != node;
    let arrived = |name: &Arc<str>| objects.cache.by(ATTACHMENTS_BY_VOLUME, &**name).iter().any(is_elsewhere);
    let elsewhere = followed.iter().filter(|name| arrived(name)).cloned().collect();
    let here = objects.cache.is_synced().then(|| {
        let all = objects.cache.by(ATTACHMENTS_BY_NODE, node);
        all.iter().map(|attachment| Arc::from(attachment.volume())).collect::<BTreeSet<Arc<str>>>()
    });
    let awaited = followed.into_iter().chain(here.iter().flatten().cloned()).collect();
    target.attachments.demand_waking(key, awaited, &context.queue);
    AttachmentState { here, elsewhere, ..unknown }
}

/// Deletes the VolumeAttachments of the Node, so that its volumes can be attached elsewhere.
pub(super) async fn detach(context: &MachineContext, snapshot: &mut Snapshot, node: &str) {
    let outcome = delete_attachments(context, snapshot, node).await;
    snapshot.now = context.now();
    match outcome {
        Ok(count) => snapshot.volumes_detached(count),
        Err(message) => snapshot.node_failed(NodeWrite::DetachVolumes, message),
    }
}

async fn delete_attachments(context: &MachineContext, snapshot: &Snapshot, node: &str) -> Result<usize, String> {
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

async fn delete(objects: Arc<CachedApi<VolumeAttachment>>, attachment: Arc<VolumeAttachment>) -> Option<String> {
    let error = objects.delete(&attachment.metadata).await.err()?;
    match error.failure() {
        // Another one may have its name by now.
        WriteFailure::Gone | WriteFailure::Conflict => None,
        _ => Some(error.text()),
    }
}
