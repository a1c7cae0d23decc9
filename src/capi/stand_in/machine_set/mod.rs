//! MachineSets: each shows a native set of a deployment that is served.
//!
//! A MachineSet has no finalizer: it is created again if a user deletes it. An old set without machines is not shown,
//! as core would have deleted it.

mod apply;
mod cache;
pub(super) use cache::CACHE;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{mirror::MirrorAncestors, standing::StandInStatus};
use crate::object::{conditions, view::ObjectView};
use mcm_api::{machine as native_api, patch};
use mcm_conversion::types::{MachineSet, MachineSetStatus};

pub(super) use register::KIND;

/// The input of a plan for a MachineSet.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The right of the stand-in to act.
    pub standing: StandInStatus,
    /// The object.
    pub mirror: ObjectView<MachineSet>,
    /// The native set of its name.
    pub native: ObjectView<native_api::MachineSet>,
    /// The objects above the native set.
    pub above: MirrorAncestors,
    /// A live read in this reconcile showed that the native set does not exist.
    pub is_gone: bool,
    /// The time.
    pub now: Timestamp,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create the MachineSet.
    Create(Box<MachineSet>),
    /// Patch it.
    Patch { mirror: Arc<MachineSet>, patch: Value },
    /// Write its status.
    WriteStatus { mirror: Arc<MachineSet>, status: Box<MachineSetStatus> },
    /// Delete it.
    Delete(Arc<MachineSet>),
    /// Read the native set live.
    ReadNative,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(mirror) => write!(f, "create MachineSet {}", mirror.name_any()),
            Self::Patch { patch, .. } => write!(f, "patch {}", patch::fields(patch)),
            Self::WriteStatus { status, .. } => {
                write!(f, "write status, {} replicas", status.replicas.unwrap_or_default())?;
                conditions::told(f, &status.conditions)
            }
            Self::Delete(mirror) => write!(f, "delete MachineSet {}", mirror.name_any()),
            Self::ReadNative => f.write_str("read the MCM MachineSet live"),
        }
    }
}
