//! The volumes of drained pods: the volumes that can be followed, and their moves to another Node.
//!
//! The volumes of a pod **move** from the eviction of the pod until they are detached from the Node and attached to
//! another one, or until the time for that is over. A volume that another pod of the Node also uses stays attached, so
//! it is awaited only with the last of these pods. The volume of a generic ephemeral claim is deleted with its pod, so
//! it is never attached again.
//!
//! Other volumes may be attached to the Node as well: their pods were evicted by other clients or before a restart, or
//! the driver does not report their IDs. Volumes that no pod of the Node uses are **left**, and the end of the drain
//! waits until they are detached, for a limited time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use super::{ClaimRef, PodFacts, PodRef, after};

/// A volume that can be followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrackedVolume {
    /// Name of the PersistentVolume.
    pub name: Arc<str>,
    /// Its ID from the driver, part of a name in `Node.status.volumesAttached`.
    pub id: Arc<str>,
}

/// The volume of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimFacts {
    Volume(TrackedVolume),
    /// Nothing that can be followed.
    Ignored {
        reason: String,
        /// Its volume, if it is bound to one. The ID is that of the CSI driver, or empty.
        volume: Option<TrackedVolume>,
    },
}

impl ClaimFacts {
    /// The volume, whether it can be followed or not.
    const fn volume(&self) -> Option<&TrackedVolume> {
        match self {
            Self::Volume(volume) => Some(volume),
            Self::Ignored { volume, .. } => volume.as_ref(),
        }
    }

    const fn followed(&self) -> Option<&TrackedVolume> {
        match self {
            Self::Volume(volume) => Some(volume),
            Self::Ignored { .. } => None,
        }
    }
}

/// How long volumes are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeTimeouts {
    /// Until they are detached, on top of the grace period of their pod (`--machine-pv-detach-timeout`).
    pub detach: SignedDuration,
    /// From then until they are attached to another Node (`--machine-pv-reattach-timeout`).
    pub reattach: SignedDuration,
}

/// An evicted or terminating pod, and its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMove {
    pub pod: PodRef,
    /// `spec.priority` of the pod.
    pub priority: i32,
    pub volumes: BTreeSet<TrackedVolume>,
    /// Names of the volumes that will be attached to another Node.
    reattached: BTreeSet<Arc<str>>,
    /// The time of the pod's eviction, and its grace period.
    since: Timestamp,
    grace: SignedDuration,
    detached_at: Option<Timestamp>,
    reattached_at: Option<Timestamp>,
}

/// How far a [`Move`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMoveStage {
    /// Its volumes must be detached by this time; afterwards they are no longer awaited.
    Detaching {
        until: Timestamp,
    },
    /// Its volumes must be attached elsewhere by this time; afterwards they are no longer awaited.
    Reattaching {
        until: Timestamp,
    },
    /// The time to detach was over at this time.
    Stuck {
        since: Timestamp,
    },
    Over,
}

/// State of the volumes of a Node's pods. Kept in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeTracker {
    pub(super) claims: BTreeMap<ClaimRef, ClaimFacts>,
    /// By UID of the pod.
    moves: BTreeMap<Arc<str>, VolumeMove>,
    /// The pods of the last list that have to go and have claims, by UID, and when that was.
    listed: BTreeMap<Arc<str>, (PodFacts, Timestamp)>,
    /// Volumes that no pod uses and that are on no move, with the time since when that is known.
    left: BTreeMap<NodeAttachment, Timestamp>,
}

/// Where volumes are attached now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentState {
    /// `Node.status.volumesAttached` of the drained Node. A volume is removed from it before its detachment begins.
    pub on_node: Vec<String>,
    /// The VolumeAttachments of the Node: names of their PersistentVolumes, or their own names if a volume is described
    /// inline. A VolumeAttachment is deleted when its volume is detached. `None` if they could not be listed.
    pub here: Option<BTreeSet<Arc<str>>>,
    /// Names of PersistentVolumes that are attached to other Nodes.
    pub elsewhere: BTreeSet<Arc<str>>,
}

impl AttachmentState {
    fn is_here(&self, volume: &TrackedVolume) -> bool {
        self.on_node.iter().any(|attached| names(attached, &volume.id))
            || self.here.as_ref().is_some_and(|here| here.contains(&volume.name))
    }

    fn all(&self) -> impl Iterator<Item = NodeAttachment> {
        let on_node = self.on_node.iter().cloned().map(NodeAttachment::OnNode);
        let objects = self.here.iter().flatten().map(|name| NodeAttachment::Object(Arc::clone(name)));
        on_node.chain(objects).chain(self.here.is_none().then_some(NodeAttachment::Unknown))
    }
}

/// A volume that is attached to the Node, by the place where that is stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NodeAttachment {
    /// An entry of `Node.status.volumesAttached`.
    OnNode(String),
    /// A VolumeAttachment, by the name in [`Attachments::here`].
    Object(Arc<str>),
    /// The VolumeAttachments could not be listed.
    Unknown,
}

impl NodeAttachment {
    fn is_of(&self, volume: &TrackedVolume) -> bool {
        match self {
            Self::OnNode(attached) => names(attached, &volume.id),
            Self::Object(name) => *name == volume.name,
            Self::Unknown => false,
        }
    }
}

/// The volumes that are left on the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingVolumes {
    /// Their names, for users; empty if it is unknown whether there are any.
    pub names: String,
    /// They must be detached by this time; afterwards they are no longer awaited.
    pub until: Timestamp,
}

impl VolumeTracker {
    /// The claims of these pods that were not read yet.
    pub fn unread(&self, pods: &[PodFacts]) -> BTreeSet<ClaimRef> {
        pods.iter().flat_map(PodFacts::claim_refs).filter(|claim| !self.claims.contains_key(claim)).collect()
    }

    /// A claim was read.
    pub fn read(&mut self, claim: ClaimRef, facts: ClaimFacts) {
        self.claims.insert(claim, facts);
    }

    /// All claims of a pod were read.
    pub fn know(&self, pod: &PodFacts) -> bool {
        pod.claim_refs().all(|claim| self.claims.contains_key(&claim))
    }

    /// The volumes of a pod that can be followed. One that two of its claims lead to is named once.
    pub fn trackable_volumes(&self, pod: &PodFacts) -> BTreeSet<TrackedVolume> {
        pod.claim_refs().filter_map(|claim| self.claims.get(&claim)?.followed().cloned()).collect()
    }

    /// All volumes of a pod that are known.
    fn all_of(&self, pod: &PodFacts) -> impl Iterator<Item = &TrackedVolume> {
        pod.claim_refs().filter_map(|claim| self.claims.get(&claim)?.volume())
    }

    /// The claims of these pods that cannot be followed, with the reasons.
    pub fn ignored<'a>(&'a self, pods: &[PodFacts]) -> BTreeMap<ClaimRef, &'a str> {
        let claims = pods.iter().filter(|pod| pod.is_drained()).flat_map(PodFacts::claim_refs);
        let reason = |claim: ClaimRef| match self.claims.get(&claim)? {
            ClaimFacts::Ignored { reason, .. } => Some((claim, reason.as_str())),
            ClaimFacts::Volume(_) => None,
        };
        claims.filter_map(reason).collect()
    }

    /// The names of all volumes that are or will be on the move.
    pub fn followed(&self) -> BTreeSet<Arc<str>> {
        let claimed = self.claims.values().filter_map(|facts| Some(&facts.followed()?.name));
        claimed
            .chain(self.moves.values().flat_map(|it| it.volumes.iter().map(|volume| &volume.name)))
            .cloned()
            .collect()
    }

    pub fn moves(&self) -> impl Iterator<Item = &VolumeMove> {
        self.moves.values()
    }

    /// Some move is not over.
    pub fn are_moving(&self, timeouts: VolumeTimeouts, now: Timestamp) -> bool {
        self.moves.values().any(|it| it.is_under_way(timeouts, now))
    }

    /// A pod was evicted by us, or is already terminating.
    pub fn told_to_go(&mut self, pod: &PodFacts, at: Timestamp) {
        let volumes = self.trackable_volumes(pod);
        if volumes.is_empty() || self.moves.contains_key(&pod.pod.uid) {
            return;
        }
        let lasting = pod.claims.iter().filter(|claim| !claim.is_ephemeral).map(|claim| pod.claim_ref(claim));
        let reattached = lasting.filter_map(|claim| Some(Arc::clone(&self.claims.get(&claim)?.followed()?.name)));
        let begun = VolumeMove {
            pod: pod.pod.clone(),
            priority: pod.priority,
            reattached: reattached.collect(),
            volumes,
            since: at,
            grace: pod.grace,
            detached_at: None,
            reattached_at: None,
        };
        self.moves.insert(Arc::clone(&pod.pod.uid), begun);
    }

    /// The Node no longer exists, so its pods are not evicted any more: only what is still attached to it counts.
    pub fn node_gone(&mut self) {
        self.moves.clear();
        self.listed.clear();
    }

    /// Records a list of the Node's pods together with the places where volumes are attached. A missing pod without a
    /// recorded eviction was evicted by another client, or by us and the answer was lost.
    pub fn seen(&mut self, pods: &[PodFacts], attachments: &AttachmentState, now: Timestamp) {
        let going = || pods.iter().filter(|pod| pod.is_drained() && !pod.is_finished);
        for pod in going() {
            if let Some(since) = pod.terminating_since {
                self.told_to_go(pod, since);
            }
        }
        let mut gone = std::mem::take(&mut self.listed);
        gone.retain(|uid, _| pods.iter().all(|pod| pod.pod.uid != *uid));
        gone.values().for_each(|(pod, at)| self.told_to_go(pod, *at));
        let with_claims = going().filter(|pod| !pod.claims.is_empty());
        self.listed = with_claims.map(|pod| (Arc::clone(&pod.pod.uid), (pod.clone(), now))).collect();
        let users: Vec<(Arc<str>, BTreeSet<TrackedVolume>)> = pods
            .iter()
            .filter(|pod| !pod.is_finished)
            .map(|pod| (Arc::clone(&pod.pod.uid), self.trackable_volumes(pod)))
            .collect();
        for (uid, it) in &mut self.moves {
            let is_held =
                |volume: &TrackedVolume| users.iter().any(|(user, uses)| user != uid && uses.contains(volume));
            let own: Vec<&TrackedVolume> = it.volumes.iter().filter(|volume| !is_held(volume)).collect();
            let is_there = users.iter().any(|(user, _)| user == uid);
            if it.detached_at.is_none() && !is_there && !own.iter().any(|volume| attachments.is_here(volume)) {
                it.detached_at = Some(now);
            }
            let arrived = |volume: &&TrackedVolume| {
                !it.reattached.contains(&volume.name) || attachments.elsewhere.contains(&volume.name)
            };
            if it.detached_at.is_some() && it.reattached_at.is_none() && own.iter().all(arrived) {
                it.reattached_at = Some(now);
            }
        }
        self.see_left(pods, attachments, now);
    }

    fn see_left(&mut self, pods: &[PodFacts], attachments: &AttachmentState, now: Timestamp) {
        let before = std::mem::take(&mut self.left);
        let free = attachments.all().filter(|it| !self.is_in_use(it, pods.iter()));
        let left = free.map(|it| (it.clone(), before.get(&it).copied().unwrap_or(now)));
        self.left = left.collect();
    }

    /// A pod of the Node uses it, or it is on the move.
    fn is_in_use<'a>(&self, attachment: &NodeAttachment, mut pods: impl Iterator<Item = &'a PodFacts>) -> bool {
        let uses = |pod: &PodFacts| !pod.is_finished && self.all_of(pod).any(|volume| attachment.is_of(volume));
        pods.any(uses) || self.moves.values().flat_map(|it| &it.volumes).any(|volume| attachment.is_of(volume))
    }

    /// The volumes that are left on the Node, with the time since when that is known. Claims may have been read since the
    /// pods were listed.
    fn left_beside<'a>(&'a self, pods: &'a [&PodFacts]) -> impl Iterator<Item = (&'a NodeAttachment, Timestamp)> {
        let free = self.left.iter().filter(|(attachment, _)| !self.is_in_use(attachment, pods.iter().copied()));
        free.map(|(attachment, since)| (attachment, *since))
    }

    /// The volumes that are left on the Node. They are named until some time after their time limit.
    pub fn left(
        &self,
        pods: &[&PodFacts],
        timeouts: VolumeTimeouts,
        told_for: SignedDuration,
        now: Timestamp,
    ) -> Option<RemainingVolumes> {
        let until = |since: Timestamp| after(since, timeouts.detach);
        let left: Vec<_> = self.left_beside(pods).filter(|(_, since)| now < after(until(*since), told_for)).collect();
        let until = left.iter().map(|(_, since)| until(*since)).max()?;
        Some(RemainingVolumes { names: names_of(left.into_iter().map(|(attachment, _)| attachment)), until })
    }

    /// Names of the volumes that are left on the Node, including those no longer awaited.
    pub fn still_attached(&self, pods: &[PodFacts]) -> String {
        let pods: Vec<&PodFacts> = pods.iter().collect();
        names_of(self.left_beside(&pods).map(|(attachment, _)| attachment))
    }
}

/// A volume with a VolumeAttachment is named by that.
fn names_of<'a>(attachments: impl Iterator<Item = &'a NodeAttachment>) -> String {
    let (mut on_node, mut objects) = (Vec::new(), Vec::new());
    for attachment in attachments {
        match attachment {
            NodeAttachment::OnNode(name) => on_node.push(name.as_str()),
            NodeAttachment::Object(name) => objects.push(&**name),
            NodeAttachment::Unknown => {}
        }
    }
    if objects.is_empty() { on_node.join(", ") } else { objects.join(", ") }
}

impl VolumeMove {
    pub fn stage(&self, timeouts: VolumeTimeouts, now: Timestamp) -> VolumeMoveStage {
        let detached_by = after(after(self.since, self.grace), timeouts.detach);
        match (self.detached_at, self.reattached_at) {
            (None, _) if now < detached_by => VolumeMoveStage::Detaching { until: detached_by },
            (None, _) => VolumeMoveStage::Stuck { since: detached_by },
            // Its time limit is over.
            (Some(detached), _) if detached > detached_by => VolumeMoveStage::Over,
            (Some(detached), None) => {
                let until = after(detached, timeouts.reattach);
                if now < until { VolumeMoveStage::Reattaching { until } } else { VolumeMoveStage::Over }
            }
            (Some(_), Some(_)) => VolumeMoveStage::Over,
        }
    }

    pub fn is_under_way(&self, timeouts: VolumeTimeouts, now: Timestamp) -> bool {
        matches!(self.stage(timeouts, now), VolumeMoveStage::Detaching { .. } | VolumeMoveStage::Reattaching { .. })
    }

    /// Names of its volumes, for users.
    pub fn names(&self) -> String {
        self.volumes.iter().map(|volume| &*volume.name).collect::<Vec<_>>().join(", ")
    }
}

/// A name of an attached volume names the volume with this ID. The name is a path such as
/// `kubernetes.io/csi/<driver>^<id>`, and the ID has to be whole parts of it: `vol-1` is not in `…^vol-12`.
fn names(attached: &str, id: &str) -> bool {
    let is_part_of_id = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_whole = |(start, _): (usize, &str)| {
        let (before, behind) = (attached.get(..start), attached.get(start + id.len()..));
        !before.is_some_and(|text| text.ends_with(is_part_of_id))
            && !behind.is_some_and(|text| text.starts_with(is_part_of_id))
    };
    !id.is_empty() && attached.match_indices(id).any(is_whole)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::csi("kubernetes.io/csi/ebs.csi.aws.com^vol-1", "vol-1", true)]
    #[case::longer_id("kubernetes.io/csi/ebs.csi.aws.com^vol-12", "vol-1", false)]
    #[case::longer_prefix("kubernetes.io/csi/ebs.csi.aws.com^my-vol-1", "vol-1", false)]
    #[case::dotted("kubernetes.io/csi/d^vol-1.bak", "vol-1", false)]
    #[case::in_tree("kubernetes.io/aws-ebs/aws://eu-west-1a/vol-1", "vol-1", true)]
    #[case::path("kubernetes.io/csi/disk.csi.azure.com^/subscriptions/s/disks/d", "/subscriptions/s/disks/d", true)]
    #[case::segments(
        "kubernetes.io/csi/pd.csi.storage.gke.io^projects/p/zones/z/disks/d",
        "projects/p/zones/z/disks/d",
        true
    )]
    #[case::later_match_counts("kubernetes.io/csi/d^vol-12/vol-1", "vol-1", true)]
    #[case::whole("vol-1", "vol-1", true)]
    #[case::no_pattern("kubernetes.io/csi/d^vol-1", "vol.1", false)]
    #[case::no_valid_pattern("kubernetes.io/csi/d^vol(1", "vol(1", true)]
    #[case::no_id("kubernetes.io/csi/d^vol-1", "", false)]
    fn ids_are_compared_literally_and_as_whole_parts(#[case] attached: &str, #[case] id: &str, #[case] expected: bool) {
        assert_eq!(names(attached, id), expected);
    }
}
