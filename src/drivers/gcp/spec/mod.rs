//! `providerSpec` of the provider GCP: its fields as the reference names them, and what is wrong with them.

mod check;
mod read;
#[cfg(test)]
mod tests;
mod types;

use serde_json::Value;

pub(super) use self::types::{Disk, Gpu, NetworkInterface, SCRATCH, Scope, ServiceAccount, Shielded, Spec};
use mcm_driver::spec::ClassProblems;

impl Spec {
    /// Reads a `providerSpec` and reports its problems; what is wrong has its default.
    pub(super) fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        let spec = read::spec(value, problems);
        check::spec(&spec, problems);
        spec
    }
}
