//! Flags of the demo.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::{screen::DemoScreen, summary::DemoSummary};

/// Flags of `mcm demo`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DemoOptions {
    /// Kubeconfig of a cluster to use, in which the demo installs the CRDs and creates the namespace `demo`; without it the demo
    /// starts a control plane, and ends it
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Control plane that the demo starts: `embedded`, an API server in memory; or `real`, with the programs of Kubernetes.
    /// With --control-plane-binaries it is `real`
    #[arg(long, value_name = "KIND", conflicts_with = "kubeconfig", hide_possible_values = true)]
    pub control_plane: Option<StartedControlPlane>,

    /// Directory with etcd, kube-apiserver, kube-controller-manager and kube-scheduler for the real control plane; without it
    /// they are those in $KUBEBUILDER_ASSETS, or in $PATH
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    pub control_plane_binaries: Option<PathBuf>,

    /// Flags of every demo.
    #[command(flatten)]
    pub show: ShowOptions,
}

/// Flags of every demo.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct ShowOptions {
    /// Directory for the logs of the processes; without it a temporary one, which remains if the demo fails
    #[arg(long, value_name = "FOLDER")]
    pub logs: Option<PathBuf>,

    /// Leave everything running at the end
    #[arg(long)]
    pub keep: bool,

    /// Format of the final report
    #[arg(short, long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub output: SummaryFormat,

    /// Write the last frame of each act to this folder, as SVG
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub record: Option<PathBuf>,
}

/// A control plane that the demo starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartedControlPlane {
    /// An API server in memory.
    Embedded,
    /// etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
    Real,
}

/// Format of the final report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SummaryFormat {
    /// A table.
    Text,
    /// One JSON document on standard output.
    Json,
}

impl DemoOptions {
    /// The control plane to start where there is no cluster.
    pub(super) fn started_control_plane(&self) -> StartedControlPlane {
        let implied = self.control_plane_binaries.as_ref().map(|_| StartedControlPlane::Real);
        self.control_plane.or(implied).unwrap_or(StartedControlPlane::Embedded)
    }

    /// The processes of the demo outlive it. Those on its own control plane end with it.
    pub(super) const fn leaves_processes(&self) -> bool {
        self.show.keep && self.kubeconfig.is_some()
    }
}

impl ShowOptions {
    /// The directory for logs.
    #[must_use]
    pub fn logs(&self) -> &Path {
        self.logs.as_deref().unwrap_or_else(|| Path::new("target/demo"))
    }

    /// The screen, redrawn in place on a terminal.
    #[must_use]
    pub fn screen(&self) -> DemoScreen {
        let live = std::io::stderr().is_terminal() && std::env::var_os("CI").is_none();
        DemoScreen::new(live, self.record.clone())
    }

    /// Writes the final report.
    ///
    /// # Errors
    /// It cannot be serialized.
    pub fn report(&self, screen: &DemoScreen, summary: &DemoSummary) -> Result<()> {
        match self.output {
            SummaryFormat::Json => println!("{}", serde_json::to_string_pretty(summary)?),
            SummaryFormat::Text => screen.say(&summary.text(screen.width())),
        }
        Ok(())
    }

    /// Records the processes that `hack/demo stop` ends.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record_processes(&self, processes: impl IntoIterator<Item = u32>) -> Result<()> {
        let pids: Vec<String> = processes.into_iter().map(|pid| pid.to_string()).collect();
        std::fs::write(self.logs().join("pids"), pids.join("\n")).context("record the processes")
    }
}
