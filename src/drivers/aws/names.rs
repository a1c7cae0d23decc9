//! Names that others read.

use std::collections::BTreeMap;

use mcm_driver::cloud::ProviderIds;

/// Name in `MachineClass.provider`.
pub const NAME: &str = "AWS";
/// Name of this program in the user agent of requests.
pub(super) const APP: &str = "mcm";
/// `aws:///<region>/<instance>`
pub(super) const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "aws:///" };
/// The tag with the name of the Machine, which the console shows as the name of the VM.
pub(super) const NAME_TAG: &str = "Name";
/// Tag with the name of the Auto Scaling group of an instance. EC2 adds and removes it.
pub(super) const GROUP_TAG: &str = "aws:autoscaling:groupName";
/// Tag of an instance with the UID of its Machine. VMs of the reference do not have it.
pub(super) const UID_TAG: &str = "machine.sapcloud.io/machine-uid";
/// Tag of an instance with the marker of its owner. VMs of the reference do not have it.
pub(super) const OWNER_TAG: &str = "machine.sapcloud.io/owner";
/// Annotation in the node template of a Machine: a Placement of EC2 for it, if the class sets no Placement.
pub(super) const PLACEMENT_ANNOTATION: &str = "machine.sapcloud.io/awsPlacement";

/// Tags that a resource may have.
pub(super) const MOST_TAGS: usize = 50;

/// The tags of a machine's instance, which has its UID and its owner, or of its volumes and interfaces: those of the class, and
/// ours as far as EC2 takes so many. An instance without the UID is found by its name, as one of the reference, and one without
/// an owner is listed as one of the cluster.
pub(super) fn tags_of<'a>(
    of_class: &'a BTreeMap<String, String>,
    machine: &'a str,
    of_instance: Option<(&'a str, &'a str)>,
) -> BTreeMap<&'a str, &'a str> {
    let of_class = of_class.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut tags: BTreeMap<_, _> = of_class.chain([(NAME_TAG, machine)]).collect();
    let own = of_instance.map(|(uid, owner)| [(UID_TAG, uid), (OWNER_TAG, owner)]);
    for (key, value) in own.into_iter().flatten().filter(|(_, value)| !value.is_empty()) {
        if tags.len() < MOST_TAGS || tags.contains_key(key) {
            tags.insert(key, value);
        }
    }
    tags
}
