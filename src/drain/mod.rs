//! Emptying a Node: which pods, in which way, and until when.
//!
//! Pure: the shell lists pods, calls the API and writes down what it was told; [`plan`] says what comes next. Every
//! deadline is a time. A drain that starts again after a crash goes on, because what happened to a pod shows in the pod.

pub mod pdb;
mod plan;
mod pods;

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;

pub use pdb::Refusal;
pub use plan::{DrainPlan, Limits, Mode, plan};
pub use pods::{PodFacts, drained_pods};

/// Which pod, and which incarnation of it. A call about it carries the UID as precondition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
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
    /// Accepted: the pod terminates now.
    Accepted,
    /// Refused for now (429).
    Refused(Refusal),
    /// Anything else but "not found" and "other UID", which mean that the pod is gone.
    Failed(String),
}

/// The last call about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// How.
    pub method: Method,
    /// When.
    pub at: Timestamp,
    /// How many calls of this method were made so far, this one included.
    pub count: u32,
    /// The answer.
    pub answer: Answer,
}

/// The last call about each pod, by UID. Lives in the process only.
pub type Attempts = BTreeMap<Arc<str>, Attempt>;
