//! Probes the API servers of the control cluster and of the targets. Machines are frozen while one of theirs does not
//! answer, as in the reference. Without a target nothing is probed.

mod apply;
mod observe;
mod plan;
mod register;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;

use mcm_rules::safety::api_server::{ApiServerHealth, ProbeTiming};

pub(crate) use apply::{ApiServers, FrozenServers};
pub(crate) use register::KIND;

/// An API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApiServerId {
    /// Of the control cluster.
    Control,
    /// Of a target cluster.
    Target(String),
}

impl fmt::Display for ApiServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control => f.write_str("control"),
            Self::Target(name) => f.write_str(name),
        }
    }
}

/// The result of one probe of each API server.
pub type ProbeResults = BTreeMap<ApiServerId, Result<(), String>>;

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Settings from the flags.
    pub probing: ProbeTiming,
    /// All API servers, with their health; empty without a target.
    pub servers: BTreeMap<ApiServerId, ApiServerHealth>,
    /// Results of the probes of this reconcile, and whether they are stored already.
    pub probed: Option<(ProbeResults, bool)>,
    /// The time.
    pub now: Timestamp,
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Probe all API servers at the same time.
    Probe,
    /// Store the results of the probes.
    Conclude(BTreeMap<ApiServerId, ApiServerHealth>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe => f.write_str("probe all API servers"),
            Self::Conclude(answers) => write!(f, "store the answers of {} API servers", answers.len()),
        }
    }
}

#[cfg(test)]
mod tests;
