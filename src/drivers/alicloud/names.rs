//! Names that others read.

use std::collections::BTreeMap;

use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError,
    cloud::{MachineIdentity, MarkerNames, is_word},
};

/// Name in `MachineClass.provider`.
pub const NAME: &str = "Alicloud";
/// The tags that mark the VMs of a class.
pub(crate) const MARKERS: MarkerNames =
    MarkerNames { carrier: "tag key", cluster: "kubernetes.io/cluster/", role: "kubernetes.io/role/" };
/// Tag with the UID of the Machine. VMs of the reference do not have it.
pub(crate) const UID_TAG: &str = "machine.sapcloud.io/machine-uid";
/// Tag with the marker of the owner. VMs of the reference do not have it.
pub(crate) const OWNER_TAG: &str = "machine.sapcloud.io/owner";
/// Tags that classes cannot set, the more important first.
pub(crate) const OWN_TAGS: [&str; 2] = [UID_TAG, OWNER_TAG];
/// ECS takes no more for a VM.
pub(crate) const MOST_TAGS: usize = 20;

/// The provider ID of a VM: `<region>.<instance>`, without a scheme.
pub(crate) fn provider_id(region: &str, id: &str) -> String {
    format!("{region}.{id}")
}

/// The name of the Node of a VM, which is the host name that ECS gives it, in lower case.
pub(crate) fn node_name(id: &str) -> String {
    format!("{}z", id.replacen('-', "z", 1))
}

/// The ID of the VM in the provider ID of a Machine, if it has one. The reference also takes an ID without a region.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is an ID of another cloud or region.
pub(crate) fn id_of<'a>(machine: &'a Machine, region: &str) -> Result<Option<&'a str>, DriverError> {
    let provider_id = machine.spec.provider_id.as_str();
    if provider_id.is_empty() {
        return Ok(None);
    }
    let (place, id) = provider_id.rsplit_once('.').unwrap_or((region, provider_id));
    if place == region && is_word(id) {
        return Ok(Some(id));
    }
    let name = MachineIdentity::from_machine(machine).name;
    let message = format!(
        "machine {name:?} has provider ID {provider_id:?}, which is not an ID of provider {NAME} in region {region}: check its class"
    );
    Err(DriverError::new(Code::InvalidArgument, message))
}

/// The tags of a Machine's VM: those of the class, and ours as far as there is room.
pub(crate) fn tags_of(of_class: &BTreeMap<String, String>, uid: &str, owner: &str) -> Vec<(String, String)> {
    let own = [(UID_TAG, uid), (OWNER_TAG, owner)].into_iter().filter(|(_, value)| !value.is_empty());
    let own = own.take(MOST_TAGS.saturating_sub(of_class.len()));
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    of_class.iter().map(|(key, value)| (key.clone(), value.clone())).chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("i-uf69abc", "izuf69abcz")]
    #[case::only_the_first("i-a-b", "iza-bz")]
    #[case::of_an_old_vm("AY1204", "AY1204z")]
    fn a_node_has_the_host_name_of_its_vm(#[case] id: &str, #[case] expected: &str) {
        assert_eq!(node_name(id), expected);
    }

    #[rstest]
    #[case::none("", Ok(None))]
    #[case("cn-beijing.i-1", Ok(Some("i-1")))]
    #[case::without_a_region("i-1", Ok(Some("i-1")))]
    #[case::of_another_region("cn-hangzhou.i-1", Err(()))]
    #[case::of_another_cloud("aws:///eu-west-1/i-1", Err(()))]
    #[case::several_regions("x.cn-beijing.i-1", Err(()))]
    #[case::empty("cn-beijing.", Err(()))]
    #[case::with_a_quote("cn-beijing.i-1\",\"i-2", Err(()))]
    fn a_provider_id_is_read_from_its_end(#[case] provider_id: &str, #[case] expected: Result<Option<&str>, ()>) {
        let mut machine = Machine::default();
        machine.spec.provider_id = provider_id.to_owned();
        let found = id_of(&machine, "cn-beijing").map_err(|error| assert_eq!(error.code, Code::InvalidArgument));
        assert_eq!(found, expected);
    }

    #[test]
    fn both_forms_of_an_id_are_inverse() {
        let mut machine = Machine::default();
        machine.spec.provider_id = provider_id("cn-beijing", "i-1");
        assert_eq!(machine.spec.provider_id, "cn-beijing.i-1");
        assert_eq!(id_of(&machine, "cn-beijing").unwrap(), Some("i-1"));
    }
}
