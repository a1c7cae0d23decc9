//! The final report.

use comfy_table::{Cell, CellAlignment};
use serde::Serialize;

use super::shown::table;

/// Results of the demo.
#[derive(Debug, Serialize)]
pub struct DemoSummary {
    /// The acts.
    pub acts: Vec<ActResult>,
    /// Duration in total.
    pub seconds: f64,
    /// VMs that the cloud created.
    pub vms_created: u64,
    /// VMs that are left.
    pub vms_alive: u64,
}

/// One act.
#[derive(Debug, Serialize)]
pub struct ActResult {
    /// Title.
    pub title: String,
    /// Duration.
    pub seconds: f64,
    /// Result.
    pub result: String,
}

impl DemoSummary {
    /// As a table of at most this width.
    #[must_use]
    pub fn text(&self, width: u16) -> String {
        let mut table = table(width, false);
        table.set_header(["ACT", "SECONDS", "RESULT"]);
        for act in &self.acts {
            table.add_row([
                Cell::new(&act.title),
                Cell::new(format!("{:.1}", act.seconds)).set_alignment(CellAlignment::Right),
                Cell::new(&act.result),
            ]);
        }
        format!(
            "{table}\n{:.1} s in all; the cloud created {} VMs, {} are left.",
            self.seconds, self.vms_created, self.vms_alive
        )
    }
}
