//! Names that others read.

use mcm_driver::cloud::ProviderIds;

/// Name in `MachineClass.provider`, as Gardener's extension for metal-stack writes it.
pub const NAME: &str = "metal";
/// `metal:///<partition>/<machine>`
pub(super) const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "metal:///" };
/// Key of the tag that marks the machines of a cluster.
pub(super) const CLUSTER_TAG: &str = "cluster.metal-stack.io/id";
/// Key of the tag with the UID of the Machine. Machines of the reference do not have it.
pub(super) const UID_TAG: &str = "machine.sapcloud.io/machine-uid";
/// Key of the tag with the marker of the owner. Machines of the reference do not have it.
pub(super) const OWNER_TAG: &str = "machine.sapcloud.io/owner";
/// Key of the tag of machines that another infrastructure provider has taken over: they are not listed. The cluster tag stays on
/// them, because the cloud controller manager of metal-stack needs it.
pub(super) const UNLISTED_TAG: &str = "machine.sapcloud.io/unlisted";
/// Keys of tags that classes cannot set.
pub(super) const OWN_TAGS: [&str; 3] = [UID_TAG, OWNER_TAG, UNLISTED_TAG];

/// The value of a tag `key=value` with this key. A tag without `=` is a key without a value.
pub(super) fn value_of<'a>(tag: &'a str, key: &str) -> Option<&'a str> {
    let (own, value) = tag.split_once('=').unwrap_or((tag, ""));
    (own == key).then_some(value)
}

/// A tag has a key that classes cannot set.
pub(super) fn is_own(tag: &str) -> bool {
    OWN_TAGS.iter().any(|key| value_of(tag, key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("a=b", "a", Some("b"))]
    #[case("a=b=c", "a", Some("b=c"))]
    #[case("a=", "a", Some(""))]
    #[case("a", "a", Some(""))]
    #[case("ab=c", "a", None)]
    fn a_tag_is_split_at_its_first_equals_sign(#[case] tag: &str, #[case] key: &str, #[case] expected: Option<&str>) {
        assert_eq!(value_of(tag, key), expected);
    }
}
