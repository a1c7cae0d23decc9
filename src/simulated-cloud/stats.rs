//! Counters since the start.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::control::OPERATIONS;
use mcm_driver::{code::Code, operation::DriverOperation};

/// Counts since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SimulationStats {
    /// Calls by operation.
    pub calls: BTreeMap<DriverOperation, CallCounts>,
    /// VMs made.
    pub created: u64,
    /// VMs deleted by a delete call.
    pub deleted: u64,
    /// VMs deleted by a kill.
    pub killed: u64,
    /// VMs that are not deleted.
    pub alive: usize,
    /// The highest number of VMs that existed at one time.
    pub max_alive: usize,
    /// Nodes registered.
    pub nodes_registered: u64,
    /// Nodes removed.
    pub nodes_removed: u64,
}

/// Calls of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// All of them.
    pub total: u64,
    /// Failed calls, by the name of the code.
    pub failed: BTreeMap<String, u64>,
}

impl SimulationStats {
    /// The initial counters, with `alive` VMs.
    pub(super) fn starting_with(alive: usize) -> Self {
        let calls = OPERATIONS.map(|operation| (operation, CallCounts::default())).into();
        Self { calls, alive, max_alive: alive, ..Self::default() }
    }

    pub(super) fn called(&mut self, operation: DriverOperation) {
        self.calls.entry(operation).or_default().total += 1;
    }

    pub(super) fn failed(&mut self, operation: DriverOperation, code: Code) {
        *self.calls.entry(operation).or_default().failed.entry(code.to_string()).or_default() += 1;
    }

    pub(super) fn now_alive(&mut self, alive: usize) {
        self.alive = alive;
        self.max_alive = self.max_alive.max(alive);
    }
}
