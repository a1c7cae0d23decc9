//! A guided tour on simulated machines.

use anyhow::{Result, bail};

/// Flags of `mcm demo`.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct DemoOptions {}

/// Runs the tour.
///
/// # Errors
/// When a part of it cannot be started.
#[expect(clippy::unused_async, reason = "it will wait for what it starts")]
pub async fn run(_options: DemoOptions) -> Result<()> {
    bail!("not wired")
}
