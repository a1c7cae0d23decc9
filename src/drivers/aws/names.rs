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
/// Annotation in the node template of a Machine: a Placement of EC2 for it, if the class has none.
pub(super) const PLACEMENT_ANNOTATION: &str = "machine.sapcloud.io/awsPlacement";

/// The tags of a machine's instance, which has its UID and its owner, or of its volumes and interfaces: those of the class, and
/// ours.
pub(super) fn tags_of<'a>(
    of_class: &'a BTreeMap<String, String>,
    machine: &'a str,
    of_instance: Option<(&'a str, &'a str)>,
) -> BTreeMap<&'a str, &'a str> {
    let of_class = of_class.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let owner = of_instance.filter(|(_, owner)| !owner.is_empty());
    of_class
        .chain([(NAME_TAG, machine)])
        .chain(of_instance.map(|(uid, _)| (UID_TAG, uid)))
        .chain(owner.map(|(_, owner)| (OWNER_TAG, owner)))
        .collect()
}
