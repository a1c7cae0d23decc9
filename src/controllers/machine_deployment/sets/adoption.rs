//! The deployment that adopts a set without a controller.
//!
//! The deployment of another template would replace the Machines of the set. So if several deployments select a set, a
//! deployment with its template adopts it. If there are several such deployments, or none, the name of the set decides.

use std::sync::Arc;

use kube::ResourceExt;

use super::super::overlap::selects;
use mcm_api::machine::{MachineDeployment, MachineSet};

/// The owner that a set without a controller should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetAdopter {
    /// The deployment itself.
    Own,
    /// Another deployment, which adopts it.
    Other,
    /// One of several deployments; it is not known which one.
    Unclear,
}

/// The owner of a set that the deployment selects.
pub(super) fn heir_of(
    set: &MachineSet,
    deployment: &MachineDeployment,
    rivals: &[Arc<MachineDeployment>],
) -> SetAdopter {
    let selecting = rivals.iter().map(Arc::as_ref).filter(|rival| selects(rival, set.labels()));
    let all: Vec<&MachineDeployment> = std::iter::once(deployment).chain(selecting).collect();
    let has_template = |one: &&&MachineDeployment| set.spec.makes(&one.spec.template);
    let equal: Vec<&MachineDeployment> = all.iter().filter(has_template).copied().collect();
    let heirs = if equal.is_empty() { all } else { equal };
    let only = match heirs.as_slice() {
        [only] => Some(*only),
        _ => heirs.iter().copied().find(|one| is_named_after(set, one)),
    };
    match only {
        Some(only) if only.metadata.name == deployment.metadata.name => SetAdopter::Own,
        Some(_) => SetAdopter::Other,
        None => SetAdopter::Unclear,
    }
}

/// The name of a set is that of its deployment, a dash, and characters without a dash.
fn is_named_after(set: &MachineSet, deployment: &MachineDeployment) -> bool {
    let (set, deployment) = (set.name_any(), deployment.name_any());
    set.rsplit_once('-').is_some_and(|(stem, _)| stem == deployment)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn deployment(name: &str, pool: &str, class: &str) -> MachineDeployment {
        let labels = json!({ "pool": pool });
        let template = json!({
            "metadata": { "labels": labels }, "spec": { "class": { "kind": "MachineClass", "name": class } },
        });
        let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
    }

    /// A set of class `a` that `md-1` selects.
    #[rstest]
    #[case::no_other_selects_it("found", "b", &[("md-2", "y", "a")], SetAdopter::Own)]
    #[case::the_template_is_equal("md-2-abc", "a", &[("md-2", "x", "b")], SetAdopter::Own)]
    #[case::the_template_of_another_is_equal("md-1-abc", "b", &[("md-2", "x", "a")], SetAdopter::Other)]
    #[case::both_are_and_the_name_decides("md-1-abc", "a", &[("md-2", "x", "a")], SetAdopter::Own)]
    #[case::both_are_and_it_has_the_name_of_the_other("md-2-abc", "a", &[("md-2", "x", "a")], SetAdopter::Other)]
    #[case::none_is_and_the_name_decides("md-1-abc", "b", &[("md-2", "x", "c")], SetAdopter::Own)]
    #[case::the_name_of_one_begins_with_that_of_another("md-1-abc", "a", &[("md", "x", "a")], SetAdopter::Own)]
    #[case::nothing_decides("found", "b", &[("md-2", "x", "c")], SetAdopter::Unclear)]
    #[case::three_have_the_template("found", "a", &[("md-2", "x", "a"), ("md-3", "x", "a")], SetAdopter::Unclear)]
    fn a_set_belongs_where_no_machine_is_replaced(
        #[case] name: &str,
        #[case] class: &str,
        #[case] rivals: &[(&str, &str, &str)],
        #[case] expected: SetAdopter,
    ) {
        let template = deployment("md-1", "x", "a").spec.template;
        let meta = json!({ "name": name, "labels": { "pool": "x" } });
        let set = serde_json::from_value(json!({ "metadata": meta, "spec": { "template": template } })).unwrap();
        let rivals: Vec<_> = rivals.iter().map(|(name, pool, class)| Arc::new(deployment(name, pool, class))).collect();
        assert_eq!(heir_of(&set, &deployment("md-1", "x", class), &rivals), expected);
    }
}
