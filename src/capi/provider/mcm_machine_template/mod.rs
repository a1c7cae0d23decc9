//! MCMMachineTemplates: capacity and architecture of their VMs, so that an autoscaler can scale from zero. They are those of the
//! class or, without a `nodeTemplate`, those that its cloud reports.

mod apply;
mod cache;
mod capacity;
pub(super) use cache::CACHE;
mod observe;
mod plan;
mod register;

use std::{fmt, sync::Arc};

use jiff::Timestamp;

use crate::object::view::ObjectView;
use capacity::{CapacityReading, VmType};
use mcm_api::machine::MachineClass;
use mcm_conversion::types::{Cluster, MCMMachineTemplate, MCMMachineTemplateStatus};

pub(super) use register::KIND;

/// The input of a plan for an MCMMachineTemplate.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The object.
    pub object: Arc<MCMMachineTemplate>,
    /// Its Cluster.
    pub cluster: ObjectView<Cluster>,
    /// The class that it names.
    pub class: ObjectView<MachineClass>,
    /// The type of its VMs, if only their cloud has its capacity.
    pub vm_type: Option<VmType>,
    /// The last reads of that type.
    pub reading: Option<CapacityReading>,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Write the status as a whole.
    WriteStatus(Box<MCMMachineTemplateStatus>),
    /// Read the capacity of the VMs from their cloud.
    ReadCapacity,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteStatus(status) => {
                let resources: Vec<&str> = status.capacity.keys().map(String::as_str).collect();
                write!(f, "write status, capacity of {}", resources.join(", "))
            }
            Self::ReadCapacity => f.write_str("read the capacity of the VMs from their cloud"),
        }
    }
}
