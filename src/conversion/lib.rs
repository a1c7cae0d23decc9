//! The conversion between Cluster API and `machine.sapcloud.io`, in both directions.
//!
//! It is pure and total: objects in, objects out, with everything that was lost and everything that was refused. What
//! the other side cannot hold is noted in an annotation if ignoring it changes no VM, and refused if it does. An object
//! with a refusal has no result.

// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

mod answers;
mod cloud;
mod defaults;
mod health;
mod health_check;
mod hybrid;
mod infrastructure;
mod input;
mod keys;
mod machine;
mod machine_deployment;
mod machine_pool;
mod machine_set;
mod metadata;
mod notes;
mod options;
mod report;
mod run;
mod scalable;
mod seconds;
pub mod status;
mod strategy;
mod template;
#[cfg(test)]
mod tests;
mod topology;
pub mod types;
mod unconverted;
mod v1beta1;

pub use answers::{TemplateQuestion, UserAnswers};
pub use cloud::{
    PROVIDERS, is_interruptible, network_provider,
    provider::{ProviderKinds, ProviderRole},
    provider_id, with_network,
};
pub use defaults::{
    deployment as default_deployment, health_check as default_health_check, machine as default_machine,
};
pub use health_check::may_cover;
pub use infrastructure::{
    bootstrap::{user_data_of, user_data_secret},
    content_in_zone, content_of, named, zone_of,
};
pub use keys::is_in;
pub use machine_pool::spread;
pub use notes::{BOOTSTRAP_FORMAT, MACHINE_POOL, MADE_FROM, ROLLOUT_AFTER, UNMAPPED, VERSION};
pub use options::{ConversionOptions, InfrastructureChoice, NativeDefaults};
pub use report::{ConversionLoss, ConversionRefusal};
pub use run::{ConversionResult, class_of_template, template_of_class, to_capi, to_native};
pub use seconds::limit;
