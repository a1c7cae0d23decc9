//! What is told at the end.

use serde::Serialize;

/// What the tour showed.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Each act.
    pub acts: Vec<Act>,
    /// How long all of it took.
    pub seconds: f64,
    /// VMs that the cloud made.
    pub vms_created: u64,
    /// VMs that are left.
    pub vms_alive: u64,
}

/// One act.
#[derive(Debug, Serialize)]
pub struct Act {
    /// What was asked for.
    pub title: String,
    /// How long it took.
    pub seconds: f64,
    /// What one saw.
    pub result: String,
}
