//! Orphans: VMs without a Machine, and Machines without a VM. They are judged by a complete list of the VMs of a class
//! and by all Machines, read after that list.
//!
//! A VM is an orphan only if no Machine can have created it. A single list proves nothing, because a Machine may be
//! missing for reasons of ours. So an orphan must be seen again, and nothing is deleted before it has been seen for long
//! enough.
//!
//! Several control namespaces may have VMs in one list, because all VMs of a Kubernetes cluster need the same tag. Each VM
//! carries the marker of its owner. A VM without one, of the Go programs or of an older version, can be an orphan only
//! where a single namespace uses the tag.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use mcm_api::vm_owner::Owner;
use mcm_driver::{ListedVm, VmsByProviderId};

/// A Machine, as far as it can claim a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmClaim {
    /// Name of the Machine.
    pub name: String,
    /// `spec.providerID`; empty if it is absent.
    pub provider_id: String,
    /// Its VM is being created, so it may have another ID than the stored one.
    pub is_creating: bool,
}

/// The classification of a listed VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmClassification {
    /// A Machine has it, or may have it.
    Claimed,
    /// The Machine with the VM's name has another provider ID, and no VM has that ID. Either the stored ID or this VM
    /// is wrong; a user has to find out.
    Doubtful,
    /// No Machine has it, but it carries the marker of another owner.
    Foreign,
    /// No Machine has it, and it carries no marker. It is an orphan if no other owner uses the cluster tag.
    Unmarked,
    /// No Machine has it, and it carries the marker of its owner.
    Orphan,
}

/// Classifies each VM in the list of a class of `owner`. Provider IDs are compared literally.
pub fn judge<'a>(
    listed: &'a VmsByProviderId,
    claims: &[VmClaim],
    owner: &Owner,
) -> BTreeMap<&'a str, VmClassification> {
    let ids: BTreeSet<&str> = claims.iter().map(|claim| claim.provider_id.as_str()).collect();
    let mut by_name: BTreeMap<&str, Vec<&VmClaim>> = BTreeMap::new();
    for claim in claims {
        by_name.entry(&claim.name).or_default().push(claim);
    }
    let verdict = |id: &str, vm: &ListedVm| {
        if !id.is_empty() && ids.contains(id) {
            return VmClassification::Claimed;
        }
        let marker = vm.owner.as_deref();
        if marker.is_some_and(|marker| !owner.has(marker)) {
            return VmClassification::Foreign;
        }
        if id.is_empty() || vm.machine.is_empty() {
            // A driver's mistake. Such a VM cannot be deleted safely.
            return VmClassification::Doubtful;
        }
        let of_name = by_name.get(vm.machine.as_str()).map(Vec::as_slice).unwrap_or_default();
        if of_name.iter().any(|claim| claim.is_creating || claim.provider_id.is_empty()) {
            VmClassification::Claimed
        } else if of_name.iter().any(|claim| !listed.contains_key(&claim.provider_id)) {
            VmClassification::Doubtful
        } else if marker.is_none() {
            VmClassification::Unmarked
        } else {
            VmClassification::Orphan
        }
    };
    listed.iter().map(|(id, vm)| (id.as_str(), verdict(id, vm))).collect()
}

/// The Machines that have a provider ID which is not listed. `claims` are those of the listed class. A VM in the list whose
/// ID is not known may be that of any Machine, so there are none then.
pub fn without_vm<'a>(listed: &VmsByProviderId, claims: &'a [VmClaim]) -> impl Iterator<Item = &'a VmClaim> {
    let is_listed = |id: &str| id.is_empty() || listed.contains_key(id);
    let is_certain = !listed.contains_key("");
    claims.iter().filter(move |claim| is_certain && !claim.is_creating && !is_listed(&claim.provider_id))
}

/// A VM in [`Sightings`]: with the name of its Machine, because a cloud may use a provider ID again.
pub fn identity(provider_id: &str, machine: &str) -> String {
    format!("{provider_id} (machine {machine})")
}

/// Since when things have been seen in every list, by their identity.
pub type SightingTimes = BTreeMap<String, Timestamp>;

/// The sightings after a list that began at `now` and showed these.
pub fn seen<'a>(before: &SightingTimes, shown: impl IntoIterator<Item = &'a str>, now: Timestamp) -> SightingTimes {
    shown.into_iter().map(|id| (id.to_owned(), before.get(id).copied().unwrap_or(now))).collect()
}

/// A VM was in this list, and in one that is `patience` older.
pub fn is_proven(sightings: &SightingTimes, id: &str, patience: SignedDuration, now: Timestamp) -> bool {
    sightings.get(id).is_some_and(|since| *since < now && now.duration_since(*since) >= patience)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn claim(name: &str, provider_id: &str, is_creating: bool) -> VmClaim {
        VmClaim { name: name.to_owned(), provider_id: provider_id.to_owned(), is_creating }
    }

    fn listed(all: &[(&str, &str)]) -> VmsByProviderId {
        all.iter().map(|(id, name)| ((*id).to_owned(), marked(name, Some("team-a")))).collect()
    }

    fn marked(machine: &str, owner: Option<&str>) -> ListedVm {
        ListedVm::new(machine, owner.map(str::to_owned))
    }

    fn owner(uid: Option<&str>) -> Owner {
        Owner { namespace: "team-a".to_owned(), uid: uid.map(str::to_owned) }
    }

    #[rstest]
    #[case::its_machine(&[claim("m", "cloud:///1", false)], VmClassification::Claimed)]
    #[case::a_machine_of_another_name(&[claim("other", "cloud:///1", false)], VmClassification::Claimed)]
    #[case::its_machine_is_being_created(&[claim("m", "", true)], VmClassification::Claimed)]
    #[case::and_has_an_id_of_an_earlier_attempt(&[claim("m", "cloud:///9", true)], VmClassification::Claimed)]
    #[case::its_machine_has_no_id(&[claim("m", "", false)], VmClassification::Claimed)]
    #[case::no_machine(&[], VmClassification::Orphan)]
    #[case::only_other_machines(&[claim("other", "cloud:///2", false), claim("new", "", true)], VmClassification::Orphan)]
    #[case::its_machine_has_another_vm(&[claim("m", "cloud:///2", false)], VmClassification::Orphan)]
    #[case::its_machine_has_an_id_that_no_vm_has(&[claim("m", "cloud:///9", false)], VmClassification::Doubtful)]
    #[case::ids_are_compared_literally(&[claim("m", "other:///1", false)], VmClassification::Doubtful)]
    #[case::not_by_their_last_part(&[claim("other", "cloud:///11", false)], VmClassification::Orphan)]
    #[case::nor_by_case(&[claim("other", "Cloud:///1", false)], VmClassification::Orphan)]
    #[case::one_of_two_machines_of_the_name_may_have_it(
        &[claim("m", "cloud:///2", false), claim("m", "", true)],
        VmClassification::Claimed
    )]
    fn a_vm_is_an_orphan_only_if_no_machine_can_have_it(
        #[case] claims: &[VmClaim],
        #[case] expected: VmClassification,
    ) {
        let vms = listed(&[("cloud:///1", "m"), ("cloud:///2", "x")]);
        assert_eq!(judge(&vms, claims, &owner(None))["cloud:///1"], expected);
    }

    #[rstest]
    #[case::without_a_name("cloud:///1", "")]
    #[case::without_an_id("", "m")]
    fn an_incomplete_entry_is_no_orphan(#[case] id: &str, #[case] name: &str) {
        assert_eq!(judge(&listed(&[(id, name)]), &[], &owner(None))[id], VmClassification::Doubtful);
    }

    const UID: &str = "5c5b5f5e-7c66-4a9b-9b53-0f2b6f4e3c11";
    const OTHER: &str = "0d6b39ae-45a5-4bd7-8f40-7a1f8f6d1f2e";

    #[rstest]
    #[case::our_uid(Some(UID), Some(UID), VmClassification::Orphan)]
    #[case::our_name_from_before_the_uid_could_be_read(Some(UID), Some("team-a"), VmClassification::Orphan)]
    #[case::our_name(None, Some("team-a"), VmClassification::Orphan)]
    #[case::the_uid_of_another(Some(UID), Some(OTHER), VmClassification::Foreign)]
    #[case::the_name_of_another(Some(UID), Some("team-b"), VmClassification::Foreign)]
    #[case::a_uid_while_ours_is_unknown(None, Some(UID), VmClassification::Foreign)]
    #[case::a_part_of_our_name(None, Some("team"), VmClassification::Foreign)]
    #[case::in_capitals(None, Some("Team-a"), VmClassification::Foreign)]
    #[case::none(Some(UID), None, VmClassification::Unmarked)]
    #[case::an_empty_one(Some(UID), Some(""), VmClassification::Unmarked)]
    fn a_vm_without_a_machine_is_an_orphan_of_the_owner_whose_marker_it_carries(
        #[case] uid: Option<&str>,
        #[case] marker: Option<&str>,
        #[case] expected: VmClassification,
    ) {
        let vms: VmsByProviderId = [("cloud:///1".to_owned(), marked("m", marker))].into();
        let verdict = |claims: &[VmClaim]| judge(&vms, claims, &owner(uid))["cloud:///1"];
        assert_eq!(verdict(&[]), expected);
        let other = claim("n", "cloud:///1", false);
        assert_eq!(verdict(&[other]), VmClassification::Claimed, "whatever its marker, it is the VM of a machine");
        let by_name =
            if expected == VmClassification::Foreign { VmClassification::Foreign } else { VmClassification::Claimed };
        assert_eq!(verdict(&[claim("m", "", true)]), by_name, "a machine of the same name may be of another owner");
    }

    #[rstest]
    #[case(None, "team-a")]
    #[case(Some(UID), UID)]
    fn a_vm_is_marked_with_the_uid_of_the_namespace_or_its_name(#[case] uid: Option<&str>, #[case] marker: &str) {
        assert_eq!(owner(uid).marker(), marker);
    }

    #[test]
    fn machines_without_a_vm_are_found() {
        let claims = [
            claim("has-it", "cloud:///1", false),
            claim("lost-it", "cloud:///9", false),
            claim("creates-it", "cloud:///8", true),
            claim("new", "", false),
        ];
        let vms = listed(&[("cloud:///1", "has-it")]);
        let names: Vec<&str> = without_vm(&vms, &claims).map(|claim| claim.name.as_str()).collect();
        assert_eq!(names, ["lost-it"]);
    }

    #[rstest]
    #[case::it_may_be_any(&[("", "")], 0)]
    #[case::its_id_is_another(&[("cloud:///1", "")], 1)]
    #[case::its_id_is_this(&[("cloud:///9", "")], 0)]
    fn a_machine_whose_vm_may_be_listed_is_not_without_a_vm(#[case] all: &[(&str, &str)], #[case] expected: usize) {
        let claims = [claim("m", "cloud:///9", false)];
        assert_eq!(without_vm(&listed(all), &claims).count(), expected);
    }

    #[test]
    fn the_first_of_consecutive_sightings_counts() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let patience = SignedDuration::from_secs(60);
        let first = seen(&SightingTimes::new(), ["a", "b"], at(0));
        let second = seen(&first, ["a"], at(30));
        let third = seen(&second, ["a", "b"], at(60));
        assert_eq!(third, [("a".to_owned(), at(0)), ("b".to_owned(), at(60))].into());
        assert!(is_proven(&third, "a", patience, at(60)));
        assert!(!is_proven(&third, "b", patience, at(119)), "it was not in the second list");
        assert!(is_proven(&third, "b", patience, at(120)));
        assert!(!is_proven(&second, "a", patience, at(59)));
        assert!(!is_proven(&third, "c", patience, at(999)));
        assert!(!is_proven(&first, "a", SignedDuration::ZERO, at(0)), "one list proves nothing");
    }

    prop_compose! {
        fn any_claim()(name in "[a-c]?", id in "(v[0-4])?", is_creating in any::<bool>()) -> VmClaim {
            VmClaim { name, provider_id: id, is_creating }
        }
    }

    fn any_marker() -> impl Strategy<Value = Option<&'static str>> {
        prop::sample::select(vec![None, Some("team-a"), Some("team-b"), Some(UID), Some(OTHER)])
    }

    proptest! {
        /// A VM is an orphan if no Machine has its ID, every Machine of its name has another VM, and it carries the
        /// marker of this owner. VMs without a marker are reported separately, and VMs with another owner's marker are
        /// never orphans.
        #[test]
        fn no_vm_that_a_machine_or_another_owner_may_have_is_an_orphan(
            vms in prop::collection::btree_map("(v[0-4])?", ("[a-c]?", any_marker()), 0..6),
            claims in prop::collection::vec(any_claim(), 0..6),
            knows_uid in any::<bool>(),
        ) {
            let owner = owner(knows_uid.then_some(UID));
            let vms: VmsByProviderId = vms.into_iter().map(|(id, (name, marker))| (id, marked(&name, marker))).collect();
            for (id, verdict) in judge(&vms, &claims, &owner) {
                let vm = &vms[id];
                let marker = vm.owner.as_deref();
                let is_ours = marker == Some("team-a") || (knows_uid && marker == Some(UID));
                match verdict {
                    VmClassification::Orphan => prop_assert!(is_ours),
                    VmClassification::Unmarked => prop_assert_eq!(marker, None),
                    VmClassification::Foreign => prop_assert!(marker.is_some() && !is_ours),
                    VmClassification::Claimed | VmClassification::Doubtful => {}
                }
                if matches!(verdict, VmClassification::Orphan | VmClassification::Unmarked) {
                    prop_assert!(!id.is_empty());
                    for claim in &claims {
                        prop_assert_ne!(&claim.provider_id, id);
                        if claim.name == vm.machine {
                            prop_assert!(!claim.is_creating && vms.contains_key(&claim.provider_id));
                        }
                    }
                }
            }
        }
    }
}
