//! Starts the controllers of the three running commands.

use anyhow::{Result, bail};

use super::{
    connect::connect,
    flags::{ControllerManagerOptions, MachineControllerOptions, RunOptions},
};
use crate::runtime::kubeconfig::{Fallback, UserAgent};

/// All controllers in one process.
///
/// # Errors
/// When the clusters cannot be reached.
pub async fn run(options: RunOptions) -> Result<()> {
    connect(&options.generic, Fallback::LocalKubeconfig, UserAgent::Mcm).await?;
    bail!("not wired")
}

/// The controllers of sets and deployments.
///
/// # Errors
/// When the clusters cannot be reached.
pub async fn controller_manager(options: ControllerManagerOptions) -> Result<()> {
    connect(&options.generic, Fallback::None, UserAgent::ControllerManager).await?;
    bail!("not wired")
}

/// The controllers of machines and classes.
///
/// # Errors
/// When the clusters cannot be reached.
pub async fn machine_controller(options: MachineControllerOptions) -> Result<()> {
    connect(&options.generic, Fallback::None, UserAgent::MachineController).await?;
    bail!("not wired")
}
