//! Leading in a namespace that is being deleted. The API server deletes the Lease with the rest, and refuses a new one.
//! Objects with finalizers stay, and they need a leader: it claims one of them by an annotation, which it renews in place
//! of the Lease.
//!
//! The rules are those of the Lease. A leader stops `renew_deadline` after it sent its last successful renewal. A
//! candidate waits until it has seen no claim change and no object disappear for `lease_duration`: a claim that it did
//! not see may have been deleted with its object. Every write carries the resource version on which it is based. Since
//! several objects may carry claims, a candidate writes its claim, then reads all objects again, and leads only if
//! there is no other claim: of two candidates at least one reads the claim of the other.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Resource,
    api::{ListParams, Patch, PatchParams},
    core::{DynamicObject, ObjectMeta, PartialObjectMeta},
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use super::{BREATH, LeaderElection, LeaseCallError, LeaseTerm};
use crate::guard::GuardedObject;
use mcm_api::{
    kinds::{MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, ResourceKind},
    labels,
};

/// The kinds that may have finalizers. Objects of a kind that is deleted last come first, so that a claim rarely moves.
const ANCHOR_KINDS: [ResourceKind; 4] = [MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES];

/// The metadata of objects. They can be used if the rest of an object cannot be decoded.
type MetadataApi = Api<GuardedObject<PartialObjectMeta<DynamicObject>>>;

/// An object with finalizers.
#[derive(Clone, Debug)]
struct AnchorObject {
    api: MetadataApi,
    name: String,
    uid: String,
    version: Option<String>,
    claim: Option<LeaderClaim>,
}

/// The claim of an object: its holder and the time of its last renewal. The holder is empty after a release.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LeaderClaim {
    holder: String,
    uid: String,
    text: String,
}

/// UIDs and claims of the objects as last seen, and since when.
#[derive(Debug)]
pub(super) struct ObservedClaims {
    objects: BTreeMap<String, Option<LeaderClaim>>,
    since: Instant,
}

/// Renews the claim of a leader. Without objects that need a leader there is nothing to claim.
pub(super) async fn renew(election: &LeaderElection, term: &LeaseTerm) -> Result<LeaseTerm, LeaseCallError> {
    let identity = &election.config.identity;
    let anchors = anchors(election).await?;
    if let Some(other) = claims(&anchors).find(|claim| !claim.holder.is_empty() && claim.holder != *identity) {
        return Err(LeaseCallError::Taken(other.holder.clone()));
    }
    let sent_at = Instant::now();
    let own = anchors.iter().find(|anchor| anchor.claim.is_some());
    if own.is_none() && !anchors.is_empty() {
        let CandidateName { namespace, lease } = CandidateName::from_election(election);
        info!(
            lease,
            namespace, "the namespace is being deleted: keeping leadership with an annotation on a remaining object"
        );
    }
    if let Some(anchor) = own.or(anchors.first()) {
        write(election, anchor, identity).await?;
    }
    Ok(LeaseTerm { lease: term.lease.clone(), ends_at: sent_at + election.config.timing.renew_deadline })
}

/// Tries to become leader; `None` if another process may still lead, or if nothing needs a leader.
pub(super) async fn acquire(
    election: &LeaderElection,
    seen: &mut Option<ObservedClaims>,
) -> Result<Option<LeaseTerm>, LeaseCallError> {
    let identity = &election.config.identity;
    let anchors = anchors(election).await?;
    let mut found = claims(&anchors).peekable();
    let is_free = |claim: &LeaderClaim| claim.holder.is_empty() || election.is_expelled(&claim.holder);
    let is_released = found.peek().is_some() && found.all(is_free);
    let objects = anchors.iter().map(|anchor| (anchor.uid.clone(), anchor.claim.clone())).collect();
    let since = match seen {
        Some(seen) if seen.objects == objects => seen.since,
        _ => seen.insert(ObservedClaims { objects, since: Instant::now() }).since,
    };
    if !is_released && since.elapsed() < election.config.timing.lease_duration {
        return Ok(None);
    }
    let Some(chosen) = anchors.iter().find(|anchor| anchor.claim.is_some()).or(anchors.first()) else {
        return Ok(None);
    };
    let sent_at = Instant::now();
    for stale in anchors.iter().filter(|anchor| anchor.claim.is_some() && anchor.uid != chosen.uid) {
        clear(election, stale).await?;
    }
    write(election, chosen, identity).await?;
    let now = self::anchors(election).await?;
    if claims(&now).any(|claim| claim.uid != chosen.uid || claim.holder != *identity) {
        debug!(lease = election.config.name, "another candidate claims the objects");
        if let Some(own) =
            now.iter().find(|anchor| anchor.claim.as_ref().is_some_and(|claim| claim.holder == *identity))
        {
            clear(election, own).await?;
        }
        return Err(LeaseCallError::Conflict);
    }
    let CandidateName { namespace, lease } = CandidateName::from_election(election);
    info!(
        lease,
        namespace, "the namespace is being deleted: acquired leadership with an annotation on a remaining object"
    );
    // Without a version: it is never written.
    let lease = Lease { metadata: election.claimed(None).metadata, ..Lease::default() };
    Ok(Some(LeaseTerm { lease, ends_at: sent_at + election.config.timing.renew_deadline }))
}

/// Releases the claim. The next candidate does not wait.
pub(super) async fn release(election: &LeaderElection) -> Result<(), LeaseCallError> {
    loop {
        let anchors = anchors(election).await?;
        let is_own = |claim: &LeaderClaim| claim.holder == election.config.identity;
        let Some(own) = anchors.iter().find(|anchor| anchor.claim.as_ref().is_some_and(is_own)) else { return Ok(()) };
        match write(election, own, "").await {
            Err(LeaseCallError::Conflict) => sleep(BREATH).await,
            outcome => return outcome,
        }
    }
}

/// For logs.
struct CandidateName<'a> {
    namespace: &'a str,
    lease: &'a str,
}

impl<'a> CandidateName<'a> {
    fn from_election(election: &'a LeaderElection) -> Self {
        Self { namespace: &election.config.namespace, lease: &election.config.name }
    }
}

fn claims(anchors: &[AnchorObject]) -> impl Iterator<Item = &LeaderClaim> {
    anchors.iter().filter_map(|anchor| anchor.claim.as_ref())
}

fn annotation(election: &LeaderElection) -> String {
    format!("{}{}", labels::LEADER_PREFIX, election.config.name)
}

/// All objects with finalizers in the namespace of the Lease, read live.
async fn anchors(election: &LeaderElection) -> Result<Vec<AnchorObject>, LeaseCallError> {
    let annotation = &annotation(election);
    let of_kinds = ANCHOR_KINDS.map(|kind| async move {
        let client = election.leases.clone().into_client();
        let api = MetadataApi::namespaced_with(client, &election.config.namespace, &kind.api_resource());
        let list = election.call(api.list(&ListParams::default())).await?;
        let anchors =
            list.items.into_iter().filter_map(|object| AnchorObject::from_meta(&api, object.meta(), annotation));
        Ok::<Vec<AnchorObject>, LeaseCallError>(anchors.collect())
    });
    Ok(try_join_all(of_kinds).await?.concat())
}

impl AnchorObject {
    fn from_meta(api: &MetadataApi, meta: &ObjectMeta, annotation: &str) -> Option<Self> {
        meta.finalizers.as_ref().filter(|finalizers| !finalizers.is_empty())?;
        let text = meta.annotations.as_ref().and_then(|all| all.get(annotation)).cloned();
        let uid = meta.uid.clone().unwrap_or_default();
        let claim = text.map(|text| {
            let holder = text.split_once(' ').map_or("", |(holder, _)| holder).to_owned();
            LeaderClaim { holder, uid: uid.clone(), text }
        });
        let (name, version) = (meta.name.clone()?, meta.resource_version.clone());
        Some(Self { api: api.clone(), name, uid, version, claim })
    }
}

async fn write(election: &LeaderElection, anchor: &AnchorObject, holder: &str) -> Result<(), LeaseCallError> {
    let text = format!("{holder} {}", election.clock.now());
    patch(election, anchor, json!(text)).await
}

async fn clear(election: &LeaderElection, anchor: &AnchorObject) -> Result<(), LeaseCallError> {
    patch(election, anchor, serde_json::Value::Null).await
}

async fn patch(
    election: &LeaderElection,
    anchor: &AnchorObject,
    value: serde_json::Value,
) -> Result<(), LeaseCallError> {
    let patch = json!({"metadata": {
        "resourceVersion": anchor.version,
        "annotations": {annotation(election): value},
    }});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let write = anchor.api.patch(&anchor.name, &params, &patch);
    match election.call(write).await {
        // Its last finalizer was removed.
        Err(LeaseCallError::Api(kube::Error::Api(status))) if status.code == 404 => Err(LeaseCallError::Conflict),
        written => written.map(drop),
    }
}
