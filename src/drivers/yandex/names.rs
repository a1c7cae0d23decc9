//! Names that others read.

use mcm_driver::cloud::MarkerNames;

/// Name in `MachineClass.provider`.
pub const NAME: &str = "Yandex";
/// Scheme of provider IDs: `yandex://<zone>/<instance>`.
pub(crate) const SCHEME: &str = "yandex://";
/// Key of the label with the UID of the Machine. VMs of the reference do not have it.
pub(crate) const UID_LABEL: &str = "machine-sapcloud-io-machine-uid";
/// Key of the label with the marker of the owner. VMs of the reference do not have it.
pub(crate) const OWNER_LABEL: &str = "machine-sapcloud-io-owner";
/// Keys of labels that classes cannot set.
pub(crate) const OWN_LABELS: [&str; 2] = [UID_LABEL, OWNER_LABEL];
/// Labels of VMs that mark cluster and role.
pub(crate) const MARKERS: MarkerNames =
    MarkerNames { carrier: "label", cluster: "kubernetes-io-cluster-", role: "kubernetes-io-role-" };
/// Key of the metadata with the user data.
pub(crate) const USER_DATA: &str = "user-data";

/// Longest key and value of a label.
const LONGEST: usize = 63;

/// A label can have this key.
pub(crate) fn is_label_key(key: &str) -> bool {
    is_label_value(key) && key.starts_with(|first: char| first.is_ascii_lowercase())
}

/// A label can have this value.
pub(crate) fn is_label_value(value: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./\\@".contains(&byte);
    value.len() <= LONGEST && value.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::cloud::is_instance_name;
    use rstest::rstest;

    #[rstest]
    #[case("worker-1", true)]
    #[case("a", true)]
    #[case(&"a".repeat(63), true)]
    #[case(&"a".repeat(64), false)]
    #[case("1-worker", false)]
    #[case("worker-", false)]
    #[case("worker.a", false)]
    #[case("Worker", false)]
    #[case("a\" OR name != \"b", false)]
    #[case("", false)]
    fn names_of_instances_have_letters_digits_and_hyphens(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_instance_name(name), expected);
    }

    #[rstest]
    #[case("kubernetes-io-cluster-shoot", true)]
    #[case("example.com/team_a", true)]
    #[case("1st", false)]
    #[case("Team", false)]
    #[case("", false)]
    #[case(&"a".repeat(64), false)]
    fn keys_of_labels_begin_with_a_letter(#[case] key: &str, #[case] expected: bool) {
        assert_eq!(is_label_key(key), expected);
        assert!(is_label_value("") && is_label_value("1") && !is_label_value("A"), "values may be empty");
    }
}
