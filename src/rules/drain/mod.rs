//! The drain of a Node: which pods, how, until when, and when by force.
//!
//! **Before**: the Node gets the condition `Terminating` and is cordoned ([`policy`]); only then are its pods listed.
//!
//! **Order**: none, unless pods have volumes ([`turns`]). All pods are evicted in parallel, by namespace and name. The
//! rules in [`rules`] decide about each pod on its own, and the first rule that applies wins: mirror pods and pods of
//! DaemonSets are not drained; a forced drain deletes the rest with grace period 0; finished pods are evicted once and
//! not awaited; pods that came too late are left; terminating pods are awaited; pods with volumes wait until these are
//! known and for their turn; the others are evicted, with growing pauses between attempts, and deleted after
//! `maxEvictRetries` periods of 20 s since their first eviction. A pod whose eviction was accepted is not deleted before
//! its grace period is over.
//!
//! **Volumes** ([`volumes`]): once a pod no longer exists, its volumes are awaited: until they are detached from the
//! Node, then until they are attached to another one, each for a limited time. The end of the drain also waits, for a
//! limited time, for volumes that are attached to the Node although none of its pods uses them, no matter which client
//! evicted their pods.
//!
//! **Pods that count**: those of the first list after the cordon and, once these are terminated, those of the next
//! list ([`Rounds`]). Pods that tolerate a cordoned Node and return later do not block the drain.
//!
//! **The end**: no pod that counts is left in a list, or the drain is forced: at `drainTimeout` after the deletion
//! timestamp, by the label `force-deletion`, or because the Node has been broken for five minutes ([`DrainPolicy`]).
//!
//! Pure: the executor lists pods, makes the calls and records their results; [`plan()`] decides the next call. After a
//! crash the drain continues, because the state of each pod is in the pod. Only the eviction period starts again, and
//! volumes of terminated pods are awaited until they are detached, not until they are attached elsewhere;
//! `drainTimeout` does not start again.

pub mod pdb;
mod plan;
mod pods;
pub mod policy;
mod releases;
mod rounds;
pub mod rules;
mod turns;
pub mod volumes;

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};

pub use pdb::{DisruptionAllowance, EvictionRefusal, is_of_several};
pub use plan::{DrainPlan, plan};
pub use pods::PodVolumeClaim;
pub use pods::{ClaimRef, PodFacts, PodRef};
pub use policy::{DrainMode, DrainPolicy, DrainPreparation};
pub use rounds::DrainRounds;
pub use rules::DrainRuleInput;
pub use volumes::{AttachmentState, ClaimFacts, TrackedVolume, VolumeTimeouts, VolumeTracker};

/// How a pod is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRemovalMethod {
    /// By the eviction API, which checks disruption budgets and uses the pod's own grace period.
    Evict,
    /// By a delete with grace period 0.
    Delete,
}

/// Result of an eviction or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainAnswer {
    /// The pod is terminating.
    Accepted,
    /// Refused for now (429).
    Refused(EvictionRefusal),
    /// Any other error, including 404 and 409: they may be about the disruption budget. Only a list proves that a pod
    /// no longer exists.
    Failed(String),
}

/// The last call about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainAttempt {
    pub method: PodRemovalMethod,
    pub at: Timestamp,
    /// Number of calls of this method so far, including this one.
    pub count: u32,
    pub answer: DrainAnswer,
    /// Time of the first eviction attempt; `None` if there was none.
    pub evicting_since: Option<Timestamp>,
}

/// The last call about each pod, by UID. Lives in the process only.
pub type PodAttempts = BTreeMap<Arc<str>, DrainAttempt>;

/// `time + duration`, at most the end of time.
fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
