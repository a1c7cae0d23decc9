//! The kinds of the stand-in.

use super::{
    cluster, machine, machine_deployment, machine_set,
    settings::{ROLE_NAME, Settings},
    signals,
};
use crate::runtime::cell::{Kind, Role};

/// All kinds run under one Lease.
pub(crate) const ROLE: Role = Role { name: ROLE_NAME, lease: "mcm-stand-in" };

/// All kinds.
pub(crate) const KINDS: &[Kind<Settings>] =
    &[signals::KIND, cluster::KIND, machine_deployment::KIND, machine_set::KIND, machine::KIND];
