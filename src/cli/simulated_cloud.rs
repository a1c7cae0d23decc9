//! The simulated cloud as a service of its own, for several processes to share.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};
use clap::Args;

use super::flags::{LogOptions, value};

/// Flags of `mcm simulated-cloud`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SimulatedCloudOptions {
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "IP", value_parser = value::address)]
    pub address: IpAddr,

    /// The port to listen on
    #[arg(long, default_value = "10270", value_parser = value::port)]
    pub port: u16,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,
}

impl SimulatedCloudOptions {
    /// Where it listens.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// Serves until the process is told to stop.
///
/// # Errors
/// When it cannot listen.
#[expect(clippy::unused_async, reason = "it will wait for requests")]
pub async fn run(_options: SimulatedCloudOptions) -> Result<()> {
    bail!("not wired")
}
