//! The overshoot freeze: a set with far too many Machines creates no more until most of the surplus is deleted.
//!
//! A frozen set has the label `freeze` = `True`; the condition `Frozen` has the reason. The set controller reads only
//! the label. A deployment is labelled while one of its sets is; its label has no effect, but users and other programs
//! read it.
//!
//! The numbers are checked periodically and after each creation of a Machine; the end of a freeze is also checked after
//! each deletion. Every deployment is checked separately, and so is a set without one: a failure of one delays no
//! other.

mod apply;
mod observe;
mod plan;
mod register;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

pub use plan::limits_of_set;
#[cfg(test)]
pub use plan::plan;
pub use register::KIND;

use mcm_api::machine::{MachineDeployment, MachineDeploymentStatus, MachineSet, MachineSetStatus};
use mcm_rules::safety::overshoot::OvershootMargins;

/// The sets of one check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum MachineSetGroup<K> {
    /// The sets of a deployment.
    Deployment(K),
    /// A set that no deployment controls.
    Set(K),
}

impl<K: fmt::Display> fmt::Display for MachineSetGroup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployment(key) => write!(f, "deployment {key}"),
            Self::Set(key) => write!(f, "set {key}"),
        }
    }
}

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Settings from the flags.
    pub policy: OvershootPolicy,
    /// The deployment; `None` for a set without one.
    pub deployment: Option<Arc<MachineDeployment>>,
    /// Its sets, or the set.
    pub sets: Vec<CountedSet>,
    /// Names of sets of the deployment that cannot be decoded. They may be frozen.
    pub unreadable_sets: Vec<String>,
    /// Why the number of Machines is not certain, if it is not.
    pub uncertain: Option<String>,
    /// Facts from earlier reconciles.
    pub memory: Memory,
    /// The time.
    pub now: Timestamp,
}

/// A set and the number of its Machines.
#[derive(Clone, Debug)]
pub struct CountedSet {
    /// The set.
    pub set: Arc<MachineSet>,
    /// Machines that it controls, including terminating and undecodable ones.
    pub machines: usize,
}

/// In-memory facts that are kept between reconciles. Without them a set with too many Machines is frozen again sooner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When a user unfroze a set, by the set's UID.
    pub unfrozen: BTreeMap<String, Timestamp>,
}

/// Settings, from the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OvershootPolicy {
    /// `--safety-up` and `--safety-down`.
    pub margins: OvershootMargins,
    /// How often the numbers are checked (`--machine-safety-overshooting-period`); at least one second.
    pub period: Duration,
}

impl Default for OvershootPolicy {
    fn default() -> Self {
        Self { margins: OvershootMargins::default(), period: Duration::from_mins(1) }
    }
}

/// One write that a plan can contain. A status is written before the metadata, with its result as precondition, so that
/// the label and the annotation, on which the next plan depends, change last.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Change condition, label and annotation of a set.
    WriteSet {
        /// The set, as the plan saw it.
        set: Arc<MachineSet>,
        /// The new status.
        status: Option<Box<MachineSetStatus>>,
        /// A merge patch of the metadata.
        patch: Option<Value>,
    },
    /// Change condition, label and annotation of the deployment.
    WriteDeployment {
        /// The new status.
        status: Option<Box<MachineDeploymentStatus>>,
        /// A merge patch of the metadata.
        patch: Option<Value>,
    },
    /// Remember that a user unfreezes the set with this UID.
    RememberUnfreeze(String),
}

impl Action {
    /// The object that it changes or reads, if that is another one than the object of the plan.
    fn subject(&self) -> Option<mcm_rules::plan::SubjectRef> {
        match self {
            Self::WriteSet { set, .. } => Some(mcm_rules::plan::SubjectRef::from_object(&**set)),
            Self::WriteDeployment { .. } | Self::RememberUnfreeze(_) => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteSet { set, .. } => write!(f, "write set {}", set.name_any()),
            Self::WriteDeployment { .. } => f.write_str("write deployment"),
            Self::RememberUnfreeze(_) => f.write_str("record the end of the freeze"),
        }
    }
}

#[cfg(test)]
mod tests;
