//! Names that others read.

use mcm_driver::cloud::{MarkerNames, ProviderIds};

/// Name in `MachineClass.provider`.
pub const NAME: &str = "OpenStack";
/// `openstack:///<region>/<server>`
pub(crate) const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "openstack:///" };
/// Keys of metadata that mark the servers of a class.
pub(crate) const MARKERS: MarkerNames =
    MarkerNames { carrier: "key", cluster: "kubernetes.io-cluster-", role: "kubernetes.io-role-" };
/// Key of the metadata with the UID of the Machine. Nova allows no slash in keys. Servers of the reference do not have it.
pub(crate) const UID_KEY: &str = "machine.sapcloud.io-machine-uid";
/// Key of the metadata with the marker of the owner. Servers of the reference do not have it.
pub(crate) const OWNER_KEY: &str = "machine.sapcloud.io-owner";

/// Classes cannot set metadata with this key.
pub(crate) fn is_own(key: &str) -> bool {
    [UID_KEY, OWNER_KEY].contains(&key)
}

/// The description of a port: ports have no metadata, and their tags are set only after their creation.
pub(crate) fn description_of(uid: &str) -> String {
    format!("{UID_KEY}={uid}")
}

/// The UID in the description of a port, if mcm created it.
pub(crate) fn uid_of(description: &str) -> Option<&str> {
    description.strip_prefix(UID_KEY)?.strip_prefix('=').filter(|uid| !uid.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&description_of("u"), Some("u"))]
    #[case("machine.sapcloud.io-machine-uid=", None)]
    #[case("machine.sapcloud.io-machine-uids=u", None)]
    #[case("a port of the database", None)]
    #[case("", None)]
    fn the_description_of_a_port_has_the_uid(#[case] description: &str, #[case] expected: Option<&str>) {
        assert_eq!(uid_of(description), expected);
    }
}
