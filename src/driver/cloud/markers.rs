//! Selects the VMs of a class: they carry its cluster marker and its role marker. Only the keys count.

use super::VmOwnership;
use crate::spec::ClassProblems;

/// How a cloud spells the two markers.
#[derive(Clone, Copy, Debug)]
pub struct MarkerNames {
    /// The place of a marker: a key, a tag.
    pub carrier: &'static str,
    /// Part of the key that marks the cluster.
    pub cluster: &'static str,
    /// Part of the key that marks the role.
    pub role: &'static str,
}

/// The markers of one class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassMarkers {
    /// The key that marks the cluster.
    pub cluster: String,
    /// The key that marks the role.
    pub role: String,
}

impl ClassMarkers {
    /// Picks the markers from the keys of a class. Of several the first in order counts, so that it is always the same;
    /// the reference picks any of them.
    pub fn from_keys<'a>(keys: impl Iterator<Item = &'a str> + Clone, names: MarkerNames) -> Option<Self> {
        let cluster = keys.clone().filter(|key| key.contains(names.cluster)).min()?;
        // A key with both parts marks the cluster.
        let role = keys.filter(|key| key.contains(names.role) && !key.contains(names.cluster)).min()?;
        Some(Self { cluster: cluster.to_owned(), role: role.to_owned() })
    }

    /// Reports problems of the keys of a class.
    pub fn check<'a>(
        keys: impl Iterator<Item = &'a str> + Clone,
        names: MarkerNames,
        path: &str,
        problems: &mut ClassProblems,
    ) {
        let clusters = keys.clone().filter(|key| key.contains(names.cluster)).count();
        let roles = keys.filter(|key| key.contains(names.role) && !key.contains(names.cluster)).count();
        for (part, count) in [(names.cluster, clusters), (names.role, roles)] {
            match count {
                0 => problems.expected(path, &format!("a {} that contains {part}", names.carrier), "none"),
                1 => {}
                _ => {
                    let text = format!("{count} {}s contain {part}: the first in order marks the VMs", names.carrier);
                    problems.warning(path, text);
                }
            }
        }
    }

    /// A VM with these keys carries both markers.
    pub fn are_on<'a>(&self, keys: impl Iterator<Item = &'a str> + Clone) -> bool {
        keys.clone().any(|key| key == self.cluster) && keys.clone().any(|key| key == self.role)
    }

    /// The ownership of a VM with these keys.
    pub fn ownership<'a>(&self, keys: impl Iterator<Item = &'a str> + Clone, names: MarkerNames) -> VmOwnership {
        if self.are_on(keys.clone()) {
            VmOwnership::Ours
        } else if self.are_foreign(keys, names) {
            VmOwnership::Foreign
        } else {
            VmOwnership::Unmarked
        }
    }

    /// A VM with these keys is marked as one of another cluster.
    pub fn are_foreign<'a>(&self, keys: impl Iterator<Item = &'a str> + Clone, names: MarkerNames) -> bool {
        keys.clone().any(|key| key.contains(names.cluster)) && !keys.clone().any(|key| key == self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const NAMES: MarkerNames =
        MarkerNames { carrier: "key", cluster: "example.com/cluster/", role: "example.com/role/" };

    fn markers(keys: &[&str]) -> Option<(String, String)> {
        ClassMarkers::from_keys(keys.iter().copied(), NAMES).map(|markers| (markers.cluster, markers.role))
    }

    #[rstest]
    #[case(&["example.com/cluster/a", "example.com/role/node"], Some(("example.com/cluster/a", "example.com/role/node")))]
    #[case(&["x-example.com/cluster/a", "example.com/role/"], Some(("x-example.com/cluster/a", "example.com/role/")))]
    #[case::of_several_the_first(&["example.com/cluster/b", "example.com/role/n", "example.com/cluster/a"], Some(("example.com/cluster/a", "example.com/role/n")))]
    #[case(&["example.com/cluster/a"], None)]
    #[case(&["example.com/role/a", "other"], None)]
    fn markers_are_found_by_a_part_of_their_key(#[case] keys: &[&str], #[case] expected: Option<(&str, &str)>) {
        assert_eq!(markers(keys), expected.map(|(cluster, role)| (cluster.to_owned(), role.to_owned())));
    }

    #[rstest]
    #[case(&["example.com/cluster/a", "example.com/role/n", "x"], true, false)]
    #[case(&["example.com/cluster/a"], false, false)]
    #[case(&["example.com/role/n"], false, false)]
    #[case(&["example.com/cluster/b", "example.com/role/n"], false, true)]
    #[case(&["example.com/cluster/a", "example.com/cluster/b"], false, false)]
    #[case(&[], false, false)]
    fn a_vm_belongs_to_a_class_by_both_markers_and_to_others_by_theirs(
        #[case] keys: &[&str],
        #[case] ours: bool,
        #[case] foreign: bool,
    ) {
        let markers = ClassMarkers { cluster: "example.com/cluster/a".into(), role: "example.com/role/n".into() };
        let found = (markers.are_on(keys.iter().copied()), markers.are_foreign(keys.iter().copied(), NAMES));
        assert_eq!(found, (ours, foreign));
        let expected = match (ours, foreign) {
            (true, _) => VmOwnership::Ours,
            (false, true) => VmOwnership::Foreign,
            (false, false) => VmOwnership::Unmarked,
        };
        assert_eq!(markers.ownership(keys.iter().copied(), NAMES), expected);
    }

    #[rstest]
    #[case(&["example.com/cluster/a", "example.com/role/n"], 0, 0)]
    #[case(&["example.com/cluster/a"], 1, 0)]
    #[case(&[], 2, 0)]
    #[case(&["example.com/cluster/a", "example.com/cluster/b", "example.com/role/n"], 0, 1)]
    fn a_class_without_markers_is_wrong_and_one_with_several_is_odd(
        #[case] keys: &[&str],
        #[case] errors: usize,
        #[case] warnings: usize,
    ) {
        let mut problems = ClassProblems::default();
        ClassMarkers::check(keys.iter().copied(), NAMES, "providerSpec.tags", &mut problems);
        assert_eq!((problems.errors.len(), problems.warnings.len()), (errors, warnings));
    }
}
