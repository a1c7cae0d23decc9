//! The volumes of drained pods: which of them can be followed, and how far each has come on its way to another Node.
//!
//! A pod whose volumes can be followed is on the **move** from the time it is told to go until its volumes are detached
//! from the Node and attached to another one, or until the time for that is over. A volume that another pod of the Node
//! uses too stays attached, so it is awaited only with the last of these pods. The volume of a generic ephemeral claim
//! is deleted with its pod, so it is never attached again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use super::{PodFacts, PodRef, after};

/// Which PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A volume that can be followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Volume {
    /// Name of the PersistentVolume.
    pub name: Arc<str>,
    /// Its ID from the driver, part of a name in `Node.status.volumesAttached`.
    pub id: Arc<str>,
}

/// What a claim leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimFacts {
    Volume(Volume),
    /// Nothing that can be followed, with the reason.
    Ignored(String),
}

/// How long volumes are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Until they are detached, on top of the grace period of their pod (`--machine-pv-detach-timeout`).
    pub detach: SignedDuration,
    /// From then until they are attached to another Node (`--machine-pv-reattach-timeout`).
    pub reattach: SignedDuration,
}

/// A pod that was told to go, and its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub pod: PodRef,
    /// `spec.priority` of the pod.
    pub priority: i32,
    pub volumes: BTreeSet<Volume>,
    /// Names of those that will be attached to another Node.
    reattached: BTreeSet<Arc<str>>,
    /// When the pod was told to go, and its grace period.
    since: Timestamp,
    grace: SignedDuration,
    detached_at: Option<Timestamp>,
    reattached_at: Option<Timestamp>,
}

/// How far a [`Move`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its volumes are detached by this time, or it is given up.
    Detaching {
        until: Timestamp,
    },
    /// Its volumes are attached elsewhere by this time, or it is given up.
    Reattaching {
        until: Timestamp,
    },
    /// The time to detach was over at this time.
    Stuck {
        since: Timestamp,
    },
    Over,
}

/// What is known about the volumes of a Node's pods. Lives in the process only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    claims: BTreeMap<ClaimRef, ClaimFacts>,
    /// By UID of the pod.
    moves: BTreeMap<Arc<str>, Move>,
    /// The pods of the last list that have to go and have claims, by UID, and when that was.
    listed: BTreeMap<Arc<str>, (PodFacts, Timestamp)>,
}

/// Where volumes are attached now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    /// `Node.status.volumesAttached` of the drained Node.
    pub here: Vec<String>,
    /// Names of PersistentVolumes that are attached to other Nodes.
    pub elsewhere: BTreeSet<Arc<str>>,
}

impl Attachments {
    fn is_here(&self, volume: &Volume) -> bool {
        self.here.iter().any(|attached| names(attached, &volume.id))
    }
}

impl Volumes {
    /// The claims of these pods that were not read yet.
    pub fn unread(&self, pods: &[PodFacts]) -> BTreeSet<ClaimRef> {
        pods.iter().flat_map(PodFacts::claim_refs).filter(|claim| !self.claims.contains_key(claim)).collect()
    }

    /// A claim was read.
    pub fn read(&mut self, claim: ClaimRef, facts: ClaimFacts) {
        self.claims.insert(claim, facts);
    }

    /// Whether all claims of a pod were read.
    pub fn know(&self, pod: &PodFacts) -> bool {
        pod.claim_refs().all(|claim| self.claims.contains_key(&claim))
    }

    /// The volumes of a pod that can be followed. One that two of its claims lead to is named once.
    pub fn of(&self, pod: &PodFacts) -> BTreeSet<Volume> {
        let facts = pod.claim_refs().filter_map(|claim| self.claims.get(&claim));
        let volume = |facts: &ClaimFacts| match facts {
            ClaimFacts::Volume(volume) => Some(volume.clone()),
            ClaimFacts::Ignored(_) => None,
        };
        facts.filter_map(volume).collect()
    }

    /// The claims of these pods that cannot be followed, with the reasons.
    pub fn ignored<'a>(&'a self, pods: &[PodFacts]) -> BTreeMap<ClaimRef, &'a str> {
        let claims = pods.iter().filter(|pod| pod.is_drained()).flat_map(PodFacts::claim_refs);
        let reason = |claim: ClaimRef| match self.claims.get(&claim)? {
            ClaimFacts::Ignored(reason) => Some((claim, reason.as_str())),
            ClaimFacts::Volume(_) => None,
        };
        claims.filter_map(reason).collect()
    }

    /// The names of all volumes that are or will be on the move.
    pub fn followed(&self) -> BTreeSet<Arc<str>> {
        let claimed = self.claims.values().filter_map(|facts| match facts {
            ClaimFacts::Volume(volume) => Some(&volume.name),
            ClaimFacts::Ignored(_) => None,
        });
        claimed
            .chain(self.moves.values().flat_map(|it| it.volumes.iter().map(|volume| &volume.name)))
            .cloned()
            .collect()
    }

    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.values()
    }

    /// Whether some move is not over.
    pub fn are_moving(&self, patience: Patience, now: Timestamp) -> bool {
        self.moves.values().any(|it| it.is_under_way(patience, now))
    }

    /// A pod was told to go: by us, or it terminates already.
    pub fn told_to_go(&mut self, pod: &PodFacts, at: Timestamp) {
        let volumes = self.of(pod);
        if volumes.is_empty() || self.moves.contains_key(&pod.pod.uid) {
            return;
        }
        let lasting = pod.claims.iter().filter(|claim| !claim.is_ephemeral).map(|claim| pod.claim_ref(claim));
        let reattached = lasting.filter_map(|claim| match self.claims.get(&claim)? {
            ClaimFacts::Volume(volume) => Some(Arc::clone(&volume.name)),
            ClaimFacts::Ignored(_) => None,
        });
        let begun = Move {
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

    /// The pods of the Node were listed, and it was seen where volumes are attached. A pod that is gone although nobody is
    /// known to have told it to go was told by somebody else, or by us and the answer was lost.
    pub fn seen(&mut self, pods: &[PodFacts], attachments: &Attachments, now: Timestamp) {
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
        let users: Vec<(Arc<str>, BTreeSet<Volume>)> =
            pods.iter().filter(|pod| !pod.is_finished).map(|pod| (Arc::clone(&pod.pod.uid), self.of(pod))).collect();
        for (uid, it) in &mut self.moves {
            let is_held = |volume: &Volume| users.iter().any(|(user, uses)| user != uid && uses.contains(volume));
            let own: Vec<&Volume> = it.volumes.iter().filter(|volume| !is_held(volume)).collect();
            let is_there = users.iter().any(|(user, _)| user == uid);
            if it.detached_at.is_none() && !is_there && !own.iter().any(|volume| attachments.is_here(volume)) {
                it.detached_at = Some(now);
            }
            let arrived = |volume: &&Volume| {
                !it.reattached.contains(&volume.name) || attachments.elsewhere.contains(&volume.name)
            };
            if it.detached_at.is_some() && it.reattached_at.is_none() && own.iter().all(arrived) {
                it.reattached_at = Some(now);
            }
        }
    }
}

impl Move {
    pub fn stage(&self, patience: Patience, now: Timestamp) -> Stage {
        let detached_by = after(after(self.since, self.grace), patience.detach);
        match (self.detached_at, self.reattached_at) {
            (None, _) if now < detached_by => Stage::Detaching { until: detached_by },
            (None, _) => Stage::Stuck { since: detached_by },
            // It was given up already.
            (Some(detached), _) if detached > detached_by => Stage::Over,
            (Some(detached), None) => {
                let until = after(detached, patience.reattach);
                if now < until { Stage::Reattaching { until } } else { Stage::Over }
            }
            (Some(_), Some(_)) => Stage::Over,
        }
    }

    pub fn is_under_way(&self, patience: Patience, now: Timestamp) -> bool {
        matches!(self.stage(patience, now), Stage::Detaching { .. } | Stage::Reattaching { .. })
    }

    /// Names of its volumes, for people.
    pub fn names(&self) -> String {
        self.volumes.iter().map(|volume| &*volume.name).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a name of an attached volume names the volume with this ID. The name is a path such as
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
