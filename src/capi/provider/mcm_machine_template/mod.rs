//! MCMMachineTemplates: capacity and architecture of their VMs, so that an autoscaler can scale from zero.

mod apply;
mod cache;
pub(super) use cache::CACHE;
mod observe;
mod plan;
mod register;

use std::{fmt, sync::Arc};

use crate::object::view::ObjectView;
use mcm_api::machine::MachineClass;
use mcm_conversion::types::{Cluster, MCMMachineTemplate, MCMMachineTemplateStatus};

pub(super) use register::KIND;

/// The input of a plan for an MCMMachineTemplate.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The object.
    pub object: Arc<MCMMachineTemplate>,
    /// The Cluster in its label.
    pub cluster: ObjectView<Cluster>,
    /// The class that it names.
    pub class: ObjectView<MachineClass>,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<String>,
}

/// Write the status as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WriteStatus(pub Box<MCMMachineTemplateStatus>);

impl fmt::Display for WriteStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resources: Vec<&str> = self.0.capacity.keys().map(String::as_str).collect();
        write!(f, "write status, capacity of {}", resources.join(", "))
    }
}
