//! The conversion between Cluster API and `machine.sapcloud.io`, in both directions.
//!
//! It is pure and total: objects in, objects out, with everything that was lost and everything that was refused. What
//! the other side cannot hold is noted in an annotation if ignoring it changes no VM, and refused if it does. An object
//! with a refusal has no result.

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
mod v1beta1;

pub use answers::{Answers, Question};
pub(crate) use cloud::{
    PROVIDERS, is_interruptible, network_provider,
    provider::{ProviderKinds, ProviderRole},
    provider_id, with_network,
};
pub(crate) use defaults::{
    deployment as default_deployment, health_check as default_health_check, machine as default_machine,
};
pub(crate) use health_check::may_cover;
pub(crate) use infrastructure::{
    bootstrap::{user_data_of, user_data_secret},
    content_of, named, zone_of,
};
pub(crate) use keys::is_in;
pub(crate) use machine_pool::spread;
pub use notes::{BOOTSTRAP_FORMAT, MACHINE_POOL, MADE_FROM, ROLLOUT_AFTER, UNMAPPED, VERSION};
pub use options::{Infrastructure, NativeDefaults, Options};
pub use report::{Loss, Refusal};
pub use run::{Conversion, class_of_template, template_of_class, to_capi, to_native};
pub(crate) use seconds::limit;
