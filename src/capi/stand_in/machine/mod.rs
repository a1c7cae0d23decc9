//! Machines: each shows a native Machine of a deployment that is served.
//!
//! Rules that hold in every plan:
//! - a Machine that users delete is deleted after its MCM Machine, which is deleted only after a live check for Cluster
//!   API core;
//! - a Machine that is no longer shown loses its finalizer before it is deleted, so that its deletion is not a request.

mod apply;
mod observe;
mod plan;
mod register;
mod shown;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{mirror::MirrorAncestors, standing::StandInStatus};
use crate::object::{conditions, view::ObjectView};
use mcm_api::{
    machine::{self as native_api, MachineClass},
    patch,
};
use mcm_conversion::types::{Machine, MachineSet, MachineStatus};

pub(super) use register::KIND;

/// The input of a plan for a Machine.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The right of the stand-in to act.
    pub standing: StandInStatus,
    /// The object.
    pub mirror: ObjectView<Machine>,
    /// The native Machine of its name.
    pub native: ObjectView<native_api::Machine>,
    /// The MachineSet that shows its native set.
    pub set: Option<Arc<MachineSet>>,
    /// The objects above the native Machine.
    pub above: MirrorAncestors,
    /// The class of the native Machine.
    pub class: Option<Arc<MachineClass>>,
    /// Its set is that of the current template.
    pub is_up_to_date: bool,
    /// Progress of this reconcile.
    pub session: StandInMachineSession,
    /// The time.
    pub now: Timestamp,
}

/// Progress of a reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StandInMachineSession {
    /// Core was checked live.
    pub is_confirmed: bool,
    /// It read live that the native Machine does not exist.
    pub is_gone: bool,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create the Machine.
    Create(Box<Machine>),
    /// Patch it.
    Patch { mirror: Arc<Machine>, patch: Value },
    /// Write its status.
    WriteStatus { mirror: Arc<Machine>, status: Box<MachineStatus> },
    /// Delete it.
    Delete(Arc<Machine>),
    /// Patch the native Machine.
    PatchNative { native: Arc<native_api::Machine>, patch: Value },
    /// Delete the native Machine.
    DeleteNative(Arc<native_api::Machine>),
    /// Read the native Machine live.
    ReadNative,
    /// Check live for core.
    Confirm,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(mirror) => write!(f, "create Machine {}", mirror.name_any()),
            Self::Patch { patch, .. } => write!(f, "patch {}", patch::fields(patch)),
            Self::WriteStatus { status, .. } => {
                write!(f, "write status, phase {}", status.phase)?;
                conditions::told(f, &status.conditions)
            }
            Self::Delete(mirror) => write!(f, "delete Machine {}", mirror.name_any()),
            Self::PatchNative { native, patch } => {
                write!(f, "patch MCM Machine {}: {}", native.name_any(), patch::fields(patch))
            }
            Self::DeleteNative(native) => write!(f, "delete MCM Machine {}", native.name_any()),
            Self::ReadNative => f.write_str("read the MCM Machine live"),
            Self::Confirm => f.write_str("look for Cluster API core live"),
        }
    }
}
