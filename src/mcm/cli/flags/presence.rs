//! Flags of the process in the place of a manager.

use std::net::{IpAddr, SocketAddr};

use clap::Args;

use super::{LogOptions, value};

/// All flags of `presence`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(mut_arg("format", |format| format.default_value("klog")))]
pub struct PresenceOptions {
    /// Listen address of the HTTP endpoints
    #[arg(
        help_heading = "HTTP endpoints",
        long,
        default_value = "0.0.0.0",
        value_name = "IP",
        value_parser = value::address
    )]
    pub address: IpAddr,

    /// Port of the HTTP endpoints: that of machine-controller-manager, or 10259 in the place of machine-controller
    #[arg(help_heading = "HTTP endpoints", long, default_value = "10258", value_parser = value::port)]
    pub port: u16,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,
}

impl PresenceOptions {
    /// Listen address of the HTTP endpoints.
    pub fn listen(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}
