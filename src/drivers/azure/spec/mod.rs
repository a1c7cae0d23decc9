//! `providerSpec` of the provider Azure: its fields as the reference names them, and their problems.

mod check;
mod read;
#[cfg(test)]
mod tests;
mod types;

use mcm_driver::spec::ClassProblems;
use serde_json::Value;

use crate::names::is_own;

pub(crate) use types::{DataDisk, Image, Scope, Spec, Urn};

impl Spec {
    /// Reads a `providerSpec` and reports its problems.
    pub fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        let spec = read::spec(value, problems);
        check::spec(&spec, problems);
        Self { tags: spec.tags.into_iter().filter(|(key, _)| !is_own(key)).collect(), ..spec }
    }
}
