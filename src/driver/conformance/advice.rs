//! Advice about a driver that fails a check.

/// Advice for the check of this name; empty for a check without advice.
pub fn advice(check: &str) -> &'static str {
    ALL.iter().find(|(name, _)| *name == check).map_or("", |(_, advice)| advice)
}

const ALL: &[(&str, &str)] = &[
    (
        "validate accepts a class from which VMs can be created",
        "report as errors only what makes every creation fail; unknown fields are warnings",
    ),
    (
        "an invalid class is rejected with paths, and no VM is created from it",
        "also validate the class in create, before the first call to the cloud, and fail with InvalidArgument",
    ),
    (
        "status of a machine without a VM is NotFound",
        "look up by provider ID if the Machine has one, else by name; NotFound only if the cloud said so",
    ),
    ("delete of a machine without a VM succeeds", "a VM that is gone already is success"),
    (
        "create returns a VM that status finds, by name and by provider ID",
        "tag the VM with the name of the Machine while it is created, not afterwards",
    ),
    (
        "a second create finds the VM of the first",
        "look for a VM with the UID of the Machine before creating one, and pass the UID to the cloud as idempotency token",
    ),
    (
        "concurrent creates create one VM",
        "let the cloud decide by the idempotency token, or take a lock for the UID of the Machine",
    ),
    (
        "a create that was cancelled is found by the next",
        "tag the VM in the same call that creates it, so that a call that ends in the middle leaves nothing unknown",
    ),
    (
        "a machine with another UID does not get the VM",
        "compare the UID in the tags of the VM with that of the Machine, not only its name",
    ),
    (
        "initialize can be repeated and keeps the provider ID",
        "make initialize return the VM if it is initialized already; the VM stays the same",
    ),
    (
        "delete removes the VM, and can be repeated",
        "return from delete when status would say NotFound, or fail with a transient code until then",
    ),
    (
        "delete without a provider ID removes the VM",
        "without a provider ID find the VMs by tags, and delete all of them",
    ),
    (
        "a delete that was cancelled is completed by the next",
        "check in each call what is left to delete; keep no state about deletions in memory",
    ),
    (
        "a provider ID identifies exactly one VM",
        "with a provider ID never fall back to the name: the VM with that name may belong to a newer Machine",
    ),
    (
        "list contains every VM that was created, with the name of its machine",
        "read all pages; list by the tag of the cluster, and take the name of the Machine from a tag",
    ),
    (
        "list returns the owner that create was given",
        "write the owner of the request as a tag in the call that creates the VM, and never change it; or leave it out everywhere",
    ),
    ("list contains no VM that was deleted", "leave out VMs that are terminated or about to be"),
    (
        "VMs of another cluster are neither listed nor deleted",
        "restrict every look-up, deletion and list to the tag of the cluster that the class names",
    ),
    (
        "volume_ids keeps the order and leaves out unknown types",
        "return one ID for each volume of a known type, in the order of the request; never fail for others",
    ),
    (
        "no text contains a secret",
        "do not put requests or responses of the cloud into errors; name the key, not the value",
    ),
    ("brackets in texts come in pairs", "replace brackets in texts of the cloud, or close them"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::checks;

    #[test]
    fn every_check_says_what_to_do() {
        let names: Vec<&str> =
            checks::ALL.iter().map(|check| check.0).chain(checks::OF_TEXTS.iter().map(|check| check.0)).collect();
        assert_eq!(names, ALL.iter().map(|one| one.0).collect::<Vec<_>>());
        assert!(names.iter().all(|name| !advice(name).is_empty()));
    }
}
