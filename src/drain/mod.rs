//! Draining a Node: which pods, how, until when, and when by force.
//!
//! **Before**: the Node gets the condition `Terminating` and is cordoned ([`policy`]); only then are its pods listed.
//!
//! **Who is next**: nobody. All pods are evicted at once, by namespace and name. Each pod is judged alone by the rules in
//! [`rules`], and the first rule that decides wins: mirror pods and pods of DaemonSets are not drained; a forced drain
//! deletes the rest with grace period 0; finished pods are evicted once and not awaited; pods that came too late are left;
//! pods that were told to go are awaited; the others are evicted, again and again with growing pauses, and deleted after
//! `maxEvictRetries` periods of 20 s since their first eviction. No pod is deleted before the grace period is over that its
//! accepted eviction granted.
//!
//! **Who counts**: the pods of the first listing after the cordon and, once these are gone, those of the next listing
//! ([`Rounds`]). Pods that tolerate a cordoned Node and come back after that do not keep a drain from ending.
//!
//! **The end**: no pod that counts is left in a listing, or the drain is forced: at `drainTimeout` after the deletion
//! timestamp, by the label `force-deletion`, or because the Node has been broken for five minutes ([`DrainPolicy`]).
//!
//! Pure: the executor lists pods, calls the API and records what it was told; [`plan`] says what comes next. A drain that
//! starts again after a crash goes on, because what happened to a pod shows in the pod. Only the count of evictions starts
//! anew then; `drainTimeout` does not.

pub mod pdb;
mod plan;
mod pods;
pub mod policy;
mod rounds;
pub mod rules;

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::{SignedDuration, Timestamp};

pub use pdb::Refusal;
pub use plan::plan;
pub use pods::PodFacts;
pub use policy::{DrainPolicy, Mode, Preparation};
pub use rounds::Rounds;
pub use rules::Round;

/// Which pod, and which incarnation of it. A call about it carries the UID as precondition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: Arc<str>,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How a pod is made to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By the eviction API, which asks disruption budgets and grants the pod its own grace period.
    Evict,
    /// By a delete with grace period 0.
    Delete,
}

/// What the API server answered to an eviction or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pod terminates now.
    Accepted,
    /// Refused for now (429).
    Refused(Refusal),
    /// Anything else, also a 404 or a 409: they may be about the disruption budget. Only a listing tells that a pod is gone.
    Failed(String),
}

/// The last call about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub method: Method,
    pub at: Timestamp,
    /// How many calls of this method were made so far, this one included.
    pub count: u32,
    pub answer: Answer,
    /// When the first eviction of the pod was tried; `None` if there was none.
    pub evicting_since: Option<Timestamp>,
}

/// The last call about each pod, by UID. Lives in the process only.
pub type Attempts = BTreeMap<Arc<str>, Attempt>;

/// `time + duration`, at most the end of time.
fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
