//! All kinds.

use super::{
    api_servers, machine, machine_class, machine_deployment, machine_set, node, orphans, overshoot, secret,
    settings::Kind,
};

/// All kinds. The order does not matter.
pub(crate) const KINDS: &[Kind] = &[
    machine_deployment::KIND,
    machine_set::KIND,
    overshoot::KIND,
    machine::KIND,
    machine_class::KIND,
    secret::KIND,
    node::KIND,
    orphans::KIND,
    api_servers::KIND,
];
