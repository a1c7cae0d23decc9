//! Names that others read.

use mcm_api::machine::Machine;
use mcm_driver::{Code, DriverError, cloud::MachineIdentity};

/// Name in `MachineClass.provider`. Gardener's extension for KubeVirt writes `kubevirtdriver//127.0.0.1:8080`.
pub const NAME: &str = "kubevirt";
/// Precedes the name of the VM in a provider ID.
const SCHEME: &str = "kubevirt://";
/// Label with the name of the VM, on the VM and on its instance.
pub(crate) const VM_LABEL: &str = "kubevirt.io/vm";
/// Label with the UID of the Machine. VMs of the reference do not have it.
pub(crate) const UID_LABEL: &str = "machine.sapcloud.io/machine-uid";
/// Label with the marker of the owner. VMs of the reference do not have it.
pub(crate) const OWNER_LABEL: &str = "machine.sapcloud.io/owner";
/// Labels that classes cannot set.
pub(crate) const OWN_LABELS: [&str; 3] = [VM_LABEL, UID_LABEL, OWNER_LABEL];
/// Name of the disk of the root volume.
pub(crate) const ROOT_DISK: &str = "root-disk";
/// A region or zone of this name means Nodes without that label.
pub(crate) const NO_PLACE: &str = "default";

pub(crate) fn provider_id(vm: &str) -> String {
    format!("{SCHEME}{vm}")
}

/// The name of the VM in the provider ID of a Machine, if it has one.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is the ID of another cloud, or not the name of a VM.
pub(crate) fn vm_of(machine: &Machine) -> Result<Option<&str>, DriverError> {
    let id = machine.spec.provider_id.as_str();
    if id.is_empty() {
        return Ok(None);
    }
    id.strip_prefix(SCHEME).filter(|name| is_vm_name(name)).map(Some).ok_or_else(|| {
        let name = MachineIdentity::from_machine(machine).name;
        let message = format!("machine {name:?} has provider ID {id:?}, which is not {SCHEME}<VM>: check its class");
        DriverError::new(Code::InvalidArgument, message)
    })
}

/// The Secret with the user data of a Machine. The UID keeps it apart from the Secret of an earlier Machine of the same name.
pub(crate) fn secret_of(vm: &str, uid: &str) -> String {
    format!("userdata-{vm}-{uid}")
}

/// A VM may have this name, which becomes the value of a label: at most 63 lower-case letters, digits, hyphens and
/// dots, with a letter or digit at both ends of each part.
pub(crate) fn is_vm_name(name: &str) -> bool {
    let is_outer = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let ends = [part.bytes().next(), part.bytes().next_back()];
        ends.into_iter().all(|end| end.is_some_and(is_outer)) && part.bytes().all(|byte| is_outer(byte) || byte == b'-')
    };
    name.len() <= 63 && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("m", true)]
    #[case("shoot--p--s-worker-z1-5d4f8-abcde", true)]
    #[case("1.a-b", true)]
    #[case("", false)]
    #[case("m-", false)]
    #[case("M", false)]
    #[case("a..b", false)]
    #[case("..", false)]
    #[case("a/b", false)]
    #[case("a%2Fb", false)]
    #[case::as_long_as_a_label(&"a".repeat(63), true)]
    #[case::too_long(&"a".repeat(64), false)]
    fn vms_have_names_that_fit_into_labels(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_vm_name(name), expected);
    }

    #[rstest]
    #[case("", Some(None))]
    #[case("kubevirt://a", Some(Some("a")))]
    #[case("kubevirt:///a", None)]
    #[case("kubevirt://ns/a", None)]
    #[case("kubevirt://", None)]
    #[case("kubevirt://..", None)]
    #[case("gce:///p/z/a", None)]
    #[case("a", None)]
    fn a_provider_id_is_a_scheme_and_the_name_of_a_vm(#[case] id: &str, #[case] expected: Option<Option<&str>>) {
        let mut machine = Machine::default();
        machine.spec.provider_id = id.to_owned();
        assert_eq!(vm_of(&machine).ok(), expected);
        if let Some(name) = expected.flatten() {
            assert_eq!(provider_id(name), id);
        }
    }
}
