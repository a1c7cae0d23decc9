//! Names that others read.

use mcm_driver::cloud::{MarkerNames, ProviderIds};

/// Name in `MachineClass.provider`.
pub const NAME: &str = "Azure";
/// `azure:///<location>/<vm>`
pub(crate) const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "azure:///" };
/// The tags that mark the resources of a class begin like this.
pub(crate) const MARKERS: MarkerNames =
    MarkerNames { carrier: "tag", cluster: "kubernetes.io-cluster-", role: "kubernetes.io-role-" };
/// Key of the tag with the UID of the Machine. Resources of the reference do not have it. Azure allows no `/` in keys.
pub(crate) const UID_TAG: &str = "machine.sapcloud.io-machine-uid";
/// Key of the tag with the marker of the owner. Resources of the reference do not have it.
pub(crate) const OWNER_TAG: &str = "machine.sapcloud.io-owner";
/// Keys of tags that classes cannot set.
pub(crate) const OWN_TAGS: [&str; 2] = [UID_TAG, OWNER_TAG];
/// Tags that a resource may have.
pub(crate) const MOST_TAGS: usize = 50;

/// Only mcm sets this tag.
pub(crate) fn is_own(key: &str) -> bool {
    OWN_TAGS.iter().any(|own| own.eq_ignore_ascii_case(key))
}

/// The names that Azure takes.
pub(crate) const VM_NAMES: &str =
    "at most 64 letters, digits, hyphens, underscores and periods, the first and the last one a letter or digit";
/// Longest name of a VM with Linux, which is also its host name.
const LONGEST_VM_NAME: usize = 64;
const NIC: &str = "-nic";
const OS_DISK: &str = "-os-disk";

/// The network interface of a VM.
pub(crate) fn nic_of(vm: &str) -> String {
    format!("{vm}{NIC}")
}

/// The VM with a network interface of this name.
pub(crate) fn vm_of_nic(nic: &str) -> Option<&str> {
    nic.strip_suffix(NIC)
}

pub(crate) fn os_disk_of(vm: &str) -> String {
    format!("{vm}{OS_DISK}")
}

/// The VM with a system disk of this name.
pub(crate) fn vm_of_os_disk(disk: &str) -> Option<&str> {
    disk.strip_suffix(OS_DISK)
}

/// The keys among these that may mark resources: only their beginning counts.
pub(crate) fn marker_keys<'a>(keys: impl Iterator<Item = &'a str> + Clone) -> impl Iterator<Item = &'a str> + Clone {
    keys.filter(|key| key.starts_with(MARKERS.cluster) || key.starts_with(MARKERS.role))
}

/// Azure accepts a text as the name of a VM.
pub(crate) fn is_vm_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let ends_well = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_VM_NAME
        && bytes.iter().all(|byte| is_allowed(*byte))
        && bytes.first().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.last().is_some_and(|last| ends_well(*last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DataDisk;
    use rstest::rstest;

    #[test]
    fn the_parts_of_a_vm_have_the_names_of_the_reference() {
        let data_disk = |name: &str, lun| DataDisk { name: name.to_owned(), lun, ..DataDisk::default() }.name_at("m");
        assert_eq!((nic_of("m").as_str(), os_disk_of("m").as_str()), ("m-nic", "m-os-disk"));
        assert_eq!((data_disk("logs", 1).as_str(), data_disk("", 0).as_str()), ("m-logs-1-data-disk", "m-0-data-disk"));
    }

    #[rstest]
    #[case("m-nic", Some("m"))]
    #[case::shorter_than_the_suffix("nic", None)]
    #[case("m-nic2", None)]
    fn only_a_nic_with_the_suffix_names_a_vm(#[case] name: &str, #[case] expected: Option<&str>) {
        assert_eq!(vm_of_nic(name), expected);
    }

    #[rstest]
    #[case("shoot--a--b-worker-1-5f4d", true)]
    #[case("a.b", true)]
    #[case("", false)]
    #[case("-a", false)]
    #[case("a-", false)]
    #[case("a.", false)]
    #[case("..", false)]
    #[case("a/b", false)]
    #[case("a%2Fb", false)]
    fn azure_takes_these_names_of_vms(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_vm_name(name), expected);
        assert!(!is_vm_name(&"a".repeat(65)) && is_vm_name(&"a".repeat(64)));
    }
}
