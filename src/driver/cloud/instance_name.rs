//! Names of VMs in clouds that take the labels of RFC 1035.

use super::MachineIdentity;
use crate::{DriverError, code::Code};
use mcm_api::machine::Machine;

/// Length of the longest name.
const LONGEST: usize = 63;

/// A VM may have this name: a letter first, then lower-case letters, digits and hyphens, no hyphen last.
pub fn is_instance_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= LONGEST
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(is_inner)
}

/// Checks that a VM may have the name of a Machine.
///
/// # Errors
/// [`Code::InvalidArgument`]: it may not.
pub fn check_instance_name(machine: &Machine) -> Result<(), DriverError> {
    let name = MachineIdentity::from_machine(machine).name;
    if is_instance_name(name) {
        return Ok(());
    }
    let message = format!(
        "machine {name:?} cannot be the name of a VM: at most {LONGEST} lower-case letters, digits and hyphens, a letter first"
    );
    Err(DriverError::new(Code::InvalidArgument, message))
}
