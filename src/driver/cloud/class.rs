//! The parts of classes that all clouds share.

use crate::spec::Problems;
use mcm_api::machine::MachineClass;

/// Reports a class of another provider. None at all is one of a process with a single driver.
pub fn check_provider(class: &MachineClass, name: &str, problems: &mut Problems) {
    let provider = class.provider.trim();
    if !provider.is_empty() && !provider.eq_ignore_ascii_case(name) {
        problems.expected("provider", name, &format!("{provider:?}"));
    }
}
