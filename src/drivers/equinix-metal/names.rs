//! Names that others read.

use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError,
    cloud::{MarkerNames, ProviderIds},
};

/// Name in `MachineClass.provider`.
pub const NAME: &str = "EquinixMetal";
/// `equinixmetal://<metro>/<device>`; the cloud controller manager leaves the metro out.
pub(crate) const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "equinixmetal://" };
/// `packet:///<facility>/<device>`, as Gardener's driver wrote it before the cloud was renamed.
const OLD_IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "packet:///" };
/// Tags that mark the devices of a class. They are compared as whole texts.
pub(crate) const MARKERS: MarkerNames =
    MarkerNames { carrier: "tag", cluster: "kubernetes.io/cluster/", role: "kubernetes.io/role/" };
/// Key of the tag with the UID of the Machine. Devices of the reference do not have it.
pub(crate) const UID_TAG: &str = "machine.sapcloud.io/machine-uid";
/// Key of the tag with the marker of the owner. Devices of the reference do not have it.
pub(crate) const OWNER_TAG: &str = "machine.sapcloud.io/owner";
/// Longest host name.
const LONGEST_NAME: usize = 63;

/// The value of a tag `key=value` with this key.
pub(crate) fn value_of<'a>(tag: &'a str, key: &str) -> Option<&'a str> {
    tag.strip_prefix(key)?.strip_prefix('=')
}

/// The key that classes cannot set, if a tag has one.
pub(crate) fn own_key(tag: &str) -> Option<&'static str> {
    [UID_TAG, OWNER_TAG].into_iter().find(|key| value_of(tag, key).is_some())
}

/// The ID of the device in the provider ID of a Machine, if it has one.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is one of another cloud, or not an ID of a device.
pub(crate) fn device_of(machine: &Machine) -> Result<Option<&str>, DriverError> {
    let is_old = OLD_IDS.parts::<1>(&machine.spec.provider_id).is_some();
    if is_old { OLD_IDS.word_of_machine(machine) } else { IDS.word_of_machine(machine) }
}

/// Checks that a device can have the name of a Machine as its host name.
///
/// # Errors
/// [`Code::InvalidArgument`]: it cannot.
pub(crate) fn check_name(name: &str) -> Result<(), DriverError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let message = format!(
        "machine {name:?} cannot be the host name of a device: use 1 to {LONGEST_NAME} lower-case letters, digits and hyphens"
    );
    Err(DriverError::new(Code::InvalidArgument, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("a=b", "a", Some("b"))]
    #[case("a=b=c", "a", Some("b=c"))]
    #[case("a=", "a", Some(""))]
    #[case::only_the_key("a", "a", None)]
    #[case("ab=c", "a", None)]
    fn a_tag_has_a_key_and_a_value(#[case] tag: &str, #[case] key: &str, #[case] expected: Option<&str>) {
        assert_eq!(value_of(tag, key), expected);
    }

    #[rstest]
    #[case("equinixmetal://ny/3c1a", Ok(Some("3c1a")))]
    #[case::of_the_cloud_controller_manager("equinixmetal://3c1a", Ok(Some("3c1a")))]
    #[case::from_the_time_of_packet("packet:///ewr1/3c1a", Ok(Some("3c1a")))]
    #[case::none("", Ok(None))]
    #[case::of_another_cloud("aws:///eu-west-1/i-0", Err(Code::InvalidArgument))]
    #[case::empty("equinixmetal://ny/", Err(Code::InvalidArgument))]
    #[case::up("equinixmetal://ny/..", Err(Code::InvalidArgument))]
    #[case::escaped("equinixmetal://ny/a%2Fb", Err(Code::InvalidArgument))]
    #[case::with_a_query("equinixmetal://ny/a?force_delete=true", Err(Code::InvalidArgument))]
    fn the_last_part_of_a_provider_id_is_the_device(#[case] id: &str, #[case] expected: Result<Option<&str>, Code>) {
        let mut machine = Machine::default();
        machine.spec.provider_id = id.to_owned();
        assert_eq!(device_of(&machine).map_err(|error| error.code), expected);
    }

    #[rstest]
    #[case("shoot--a-1", true)]
    #[case(&"a".repeat(63), true)]
    #[case(&"a".repeat(64), false)]
    #[case("", false)]
    #[case("A", false)]
    #[case("a.b", false)]
    fn a_host_name_is_short_and_plain(#[case] name: &str, #[case] is_allowed: bool) {
        assert_eq!(check_name(name).map_err(|error| error.code), is_allowed.then_some(()).ok_or(Code::InvalidArgument));
    }
}
