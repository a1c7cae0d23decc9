//! Names that others read.

use mcm_driver::cloud::{MarkerNames, ProviderIds, is_instance_name};

/// Name in `MachineClass.provider`.
pub const NAME: &str = "GCP";
/// `gce:///<project>/<zone>/<instance>`
pub(super) const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "gce:///" };
/// Network tags that mark the VMs of a class.
pub(super) const MARKERS: MarkerNames =
    MarkerNames { carrier: "tag", cluster: "kubernetes-io-cluster-", role: "kubernetes-io-role-" };
/// Label of an instance with the UID of its Machine; labels have no dots and slashes. VMs of the reference do not have it.
pub(super) const UID_LABEL: &str = "machine-sapcloud-io-machine-uid";
/// Label of an instance with the marker of its owner. VMs of the reference do not have it.
pub(super) const OWNER_LABEL: &str = "machine-sapcloud-io-owner";
/// Labels that an instance gets beside those of its class.
pub(super) const OWN_LABELS: [&str; 2] = [UID_LABEL, OWNER_LABEL];

/// Labels that an instance may have.
pub(super) const MOST_LABELS: usize = 64;

/// The text may be a project, which a domain may precede: `example.com:project`.
pub(super) fn is_project(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part) && !text.contains("..")
}

/// The project of a Shared VPC and the rest of the path, of a network or subnetwork that a class names by its path. A name has
/// no slash: it is one of the project of the VMs.
pub(super) fn shared(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("projects/")?.split_once('/').filter(|(project, _)| is_project(project))
}

/// A class may name a network so: by its name, or by the path of a Shared VPC.
pub(super) fn is_network(text: &str) -> bool {
    is_resource(text, &["global", "networks"])
}

/// The same for a subnetwork of the region.
pub(super) fn is_subnetwork(text: &str, region: &str) -> bool {
    is_resource(text, &["regions", region, "subnetworks"])
}

fn is_resource(text: &str, folders: &[&str]) -> bool {
    let Some((_, rest)) = shared(text) else { return !text.contains('/') };
    rest.rsplit_once('/').is_some_and(|(folder, name)| folder == folders.join("/") && is_instance_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("nodes", true)]
    #[case("projects/host/regions/r/subnetworks/nodes", true)]
    #[case("projects/example.com:host/regions/r/subnetworks/nodes", true)]
    #[case::another_region("projects/host/regions/other/subnetworks/nodes", false)]
    #[case::a_network("projects/host/global/networks/nodes", false)]
    #[case::no_project("regions/r/subnetworks/nodes", false)]
    #[case::elsewhere("projects/../regions/r/subnetworks/nodes", false)]
    #[case::no_name("projects/host/regions/r/subnetworks/", false)]
    #[case::url("https://compute.googleapis.com/compute/v1/projects/host/regions/r/subnetworks/nodes", false)]
    fn a_subnetwork_is_a_name_or_the_path_of_a_shared_vpc(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_subnetwork(text, "r"), expected);
        let network = text.replace("regions/r/subnetworks", "global/networks");
        assert_eq!(is_network(&network), expected || text.contains("global"));
    }

    #[rstest]
    #[case("m", true)]
    #[case("shoot--p--s-worker-z1-5d4f8-abcde", true)]
    #[case("", false)]
    #[case("1m", false)]
    #[case("m-", false)]
    #[case("M", false)]
    #[case("a.b", false)]
    #[case("a/../b", false)]
    #[case::as_long_as_it_may_be(&"a".repeat(63), true)]
    #[case::too_long(&"a".repeat(64), false)]
    fn instances_have_names_that_are_labels_of_hosts(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_instance_name(name), expected);
    }

    #[rstest]
    #[case("my-project", true)]
    #[case("example.com:my-project", true)]
    #[case("123456", true)]
    #[case("", false)]
    #[case("a/b", false)]
    #[case("..", false)]
    #[case("a?b", false)]
    fn a_project_cannot_lead_elsewhere(#[case] project: &str, #[case] expected: bool) {
        assert_eq!(is_project(project), expected);
    }
}
