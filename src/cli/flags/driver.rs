//! Flags of the drivers.

use clap::Args;
use reqwest::Url;

use super::value;

/// Flags of the drivers.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Drivers")]
pub struct DriverOptions {
    /// Serve only classes of this provider; all built-in drivers if absent
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,

    /// URL of the simulated cloud; embedded in this process if absent
    #[arg(long, value_name = "URL", value_parser = value::http_url)]
    pub simulated_cloud: Option<Url>,
}
