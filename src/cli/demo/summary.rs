//! The final report.

use serde::Serialize;

/// Results of the demo.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The acts.
    pub acts: Vec<Act>,
    /// Duration in total.
    pub seconds: f64,
    /// VMs that the cloud created.
    pub vms_created: u64,
    /// VMs that are left.
    pub vms_alive: u64,
}

/// One act.
#[derive(Debug, Serialize)]
pub struct Act {
    /// Title.
    pub title: String,
    /// Duration.
    pub seconds: f64,
    /// Result.
    pub result: String,
}
