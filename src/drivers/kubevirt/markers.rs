//! Labels that mark the VMs of a class: one for the cluster, one for the role.

use std::{collections::BTreeMap, fmt};

use mcm_driver::spec::ClassProblems;

type Labels = BTreeMap<String, String>;

/// How classes spell a marker.
struct Spelling {
    /// Gardener's key; its value marks.
    key: &'static str,
    /// Begins a key that marks by itself, as on clouds whose tags cannot have slashes.
    prefix: &'static str,
}

const CLUSTER: Spelling = Spelling { key: "mcm.gardener.cloud/cluster", prefix: "kubernetes.io-cluster-" };
const ROLE: Spelling = Spelling { key: "mcm.gardener.cloud/role", prefix: "kubernetes.io-role-" };

impl Spelling {
    fn is(&self, key: &str) -> bool {
        key == self.key || key.strip_prefix(self.prefix).is_some_and(|rest| !rest.is_empty())
    }

    fn all<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = (&'a String, &'a String)> {
        labels.iter().filter(|(key, value)| self.is(key) && (key.as_str() != self.key || !value.is_empty()))
    }

    /// The marker among some labels: Gardener's key, or the first in order.
    fn marker_in(&self, labels: &Labels) -> Option<Marker> {
        let by_key = self.all(labels).find(|(key, _)| *key == self.key);
        let (key, value) = by_key.or_else(|| self.all(labels).next())?;
        Some(Marker { key: key.clone(), value: value.clone() })
    }
}

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Marker {
    pub key: String,
    pub value: String,
}

impl Marker {
    fn is_on(&self, labels: &Labels) -> bool {
        labels.get(&self.key) == Some(&self.value)
    }
}

/// As a selector.
impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// The markers of a class, which tell its VMs from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope {
    pub cluster: Marker,
    pub role: Marker,
}

impl Scope {
    /// Picks the markers from the tags of a class.
    pub fn from_tags(tags: &Labels) -> Option<Self> {
        Some(Self { cluster: CLUSTER.marker_in(tags)?, role: ROLE.marker_in(tags)? })
    }

    /// The labels as a map.
    pub fn labels(&self) -> Labels {
        [&self.cluster, &self.role].map(|marker| (marker.key.clone(), marker.value.clone())).into()
    }

    /// An object belongs to the cluster.
    pub fn is_of_cluster(&self, labels: &Labels) -> bool {
        self.cluster.is_on(labels)
    }

    /// An object has the role of the class.
    pub fn is_of_role(&self, labels: &Labels) -> bool {
        self.role.is_on(labels)
    }

    /// An object has the marker of another cluster, or another role.
    pub fn is_foreign(&self, labels: &Labels) -> bool {
        let has_other = |spelling: &Spelling, marker: &Marker| {
            let mut all = labels.keys().filter(|key| spelling.is(key));
            !marker.is_on(labels) && all.next().is_some()
        };
        has_other(&CLUSTER, &self.cluster) || has_other(&ROLE, &self.role)
    }
}

/// Reports tags of a class without markers, or with several.
pub(crate) fn check(tags: &Labels, path: &str, problems: &mut ClassProblems) {
    for spelling in [&CLUSTER, &ROLE] {
        let Spelling { key, prefix } = spelling;
        match (spelling.marker_in(tags), spelling.all(tags).count()) {
            (None, _) if tags.contains_key(*key) => {
                problems.expected(path, &format!("a value of {key}"), "an empty one")
            }
            (None, _) => problems.expected(path, &format!("{key}, or a key that begins with {prefix}"), "neither"),
            (Some(marker), 2..) => problems.warning(path, format!("several tags are markers: {marker} marks the VMs")),
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    const GARDENERS: [(&str, &str); 2] = [("mcm.gardener.cloud/cluster", "shoot"), ("mcm.gardener.cloud/role", "node")];

    #[rstest]
    #[case::of_gardener(&GARDENERS, Some(("mcm.gardener.cloud/cluster=shoot", "mcm.gardener.cloud/role=node")))]
    #[case::in_keys(&[("kubernetes.io-cluster-a", "1"), ("kubernetes.io-role-node", "1")], Some(("kubernetes.io-cluster-a=1", "kubernetes.io-role-node=1")))]
    #[case::gardeners_first(&[GARDENERS[0], GARDENERS[1], ("kubernetes.io-cluster-a", "")], Some(("mcm.gardener.cloud/cluster=shoot", "mcm.gardener.cloud/role=node")))]
    #[case::without_a_cluster(&[("mcm.gardener.cloud/cluster", ""), GARDENERS[1]], None)]
    #[case::without_a_role(&[GARDENERS[0]], None)]
    #[case::without_a_name(&[("kubernetes.io-cluster-", "a"), GARDENERS[1]], None)]
    #[case::none(&[("team", "a")], None)]
    fn a_class_has_a_marker_of_its_cluster_and_one_of_its_role(
        #[case] tags: &[(&str, &str)],
        #[case] expected: Option<(&str, &str)>,
    ) {
        let found = Scope::from_tags(&labels(tags)).map(|scope| (scope.cluster.to_string(), scope.role.to_string()));
        assert_eq!(found, expected.map(|(cluster, role)| (cluster.to_owned(), role.to_owned())));
    }

    #[rstest]
    #[case::ours(&GARDENERS, true, true, false)]
    #[case::of_another_cluster(&[("mcm.gardener.cloud/cluster", "other"), GARDENERS[1]], false, true, true)]
    #[case::of_another_role(&[GARDENERS[0], ("mcm.gardener.cloud/role", "bastion")], true, false, true)]
    #[case::of_a_cluster_in_a_key(&[("kubernetes.io-cluster-a", "")], false, false, true)]
    #[case::without_a_role(&[GARDENERS[0]], true, false, false)]
    #[case::unmarked(&[("team", "a")], false, false, false)]
    fn the_labels_of_a_vm_decide_about_it(
        #[case] of_vm: &[(&str, &str)],
        #[case] cluster: bool,
        #[case] role: bool,
        #[case] foreign: bool,
    ) {
        let (scope, of_vm) = (Scope::from_tags(&labels(&GARDENERS)).unwrap(), labels(of_vm));
        assert_eq!(
            (scope.is_of_cluster(&of_vm), scope.is_of_role(&of_vm), scope.is_foreign(&of_vm)),
            (cluster, role, foreign)
        );
    }
}
