//! Flags of the controllers of sets and deployments.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::value;

/// Safety of sets and deployments.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Sets and deployments")]
pub struct RolloutOptions {
    /// Number of machines beyond desired + maxSurge at which a set or deployment is frozen
    #[arg(long, default_value = "2", value_name = "COUNT", value_parser = value::count)]
    pub safety_up: u32,

    /// Number of machines below that limit at which a set or deployment is unfrozen
    #[arg(long, default_value = "1", value_name = "COUNT", value_parser = value::count)]
    pub safety_down: u32,

    /// Period of the checks of the number of machines
    #[arg(long, default_value = "1m", value_parser = value::duration)]
    pub machine_safety_overshooting_period: Duration,

    /// Disable scale-down by the cluster autoscaler for nodes of a rollout
    #[arg(long, default_value = "true", action = ArgAction::Set, value_parser = value::boolean)]
    pub autoscaler_scaledown_annotation_during_rollout: bool,
}
