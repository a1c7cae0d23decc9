//! Flags that say where machines come from.

use clap::Args;
use reqwest::Url;

use super::value;

/// Where machines come from.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Drivers")]
pub struct DriverOptions {
    /// Serve only the classes of this provider; all built-in drivers serve if it is not given
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,

    /// The simulated cloud to use; one lives inside this process if it is not given
    #[arg(long, value_name = "URL", value_parser = value::http_url)]
    pub simulated_cloud: Option<Url>,
}
