//! `providerSpec` of the provider AWS: its fields as the reference names them, and what is wrong with them.

pub(super) mod check;
mod read;
#[cfg(test)]
mod tests;
mod types;

use serde_json::Value;

pub(super) use self::types::{
    BlockDevice, CapacityReservation, CpuOptions, MARKERS, MetadataOptions, NetworkInterface, Placement, ROOT_DEVICE,
    Scope, Spec,
};
use mcm_driver::{
    DriverError,
    spec::{ClassProblems, FieldProblem},
};

impl Spec {
    /// Reads a `providerSpec` and reports its problems; what is wrong has its default.
    pub(super) fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        let spec = read::spec(value, problems);
        check::spec(&spec, value, problems);
        spec
    }
}

/// Reads the placement in an annotation of a Machine. The warnings are about unknown keys.
///
/// # Errors
/// `InvalidArgument`: it is no such object.
pub(super) fn placement_of_annotation(text: &str) -> Result<(Option<Placement>, Vec<FieldProblem>), DriverError> {
    let mut problems = ClassProblems::default();
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let placement = read::annotated_placement(&value, &mut problems);
    problems.to_result()?;
    Ok((Some(placement).filter(|placement| *placement != Placement::default()), problems.warnings))
}
