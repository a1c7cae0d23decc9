//! Adopted sets may lack the label that keeps sets of one deployment apart. They get it in three stages, so that no
//! Machine ever falls out of its set: template, Machines, then the set's own labels and selector.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::{
    draft::Draft,
    naming::identity_for,
    sets::{Family, SetView},
};
use crate::api::{
    labels,
    machine::{Machine, MachineSet},
};

/// Takes each set that lacks the label one stage further. Answers the Machines to label.
pub(super) fn complete(family: &mut Family, deployment: &str, siblings: &[Arc<MachineSet>]) -> Vec<Draft<Machine>> {
    let mut machines = Vec::new();
    for set in family.sets.iter_mut().filter(|set| !set.is_deleting() && !is_labelled(set)) {
        let template_labels = &set.draft.seen().spec.template.metadata.labels;
        match template_labels.get(labels::TEMPLATE_HASH).cloned() {
            None => label_template(set, deployment, siblings),
            // Until the set's controller has seen the template, it may make Machines without the label.
            Some(hash) if set.is_observed() && set.unreadable == 0 => {
                let unlabelled = label_machines(set, &hash);
                if unlabelled.is_empty() {
                    label_set(set, hash);
                }
                machines.extend(unlabelled);
            }
            Some(_) => {}
        }
    }
    machines
}

fn is_labelled(set: &SetView) -> bool {
    let selector = set.draft.seen().spec.selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    selector.is_some_and(|labels| labels.contains_key(labels::TEMPLATE_HASH))
}

fn label_template(set: &mut SetView, deployment: &str, siblings: &[Arc<MachineSet>]) {
    let seen = set.draft.seen();
    let own = seen.labels().get(labels::TEMPLATE_HASH).cloned();
    let hash = own.unwrap_or_else(|| {
        let others = siblings.iter().map(Arc::as_ref);
        identity_for(deployment, &seen.spec.template, 0, others).hash
    });
    set.draft.edit("label the template of an adopted set with its hash", |set| {
        set.spec.template.metadata.labels.insert(labels::TEMPLATE_HASH.to_owned(), hash);
    });
}

fn label_machines(set: &SetView, hash: &str) -> Vec<Draft<Machine>> {
    let lacking = set
        .machines
        .iter()
        .filter(|machine| machine.labels().get(labels::TEMPLATE_HASH).map(String::as_str) != Some(hash));
    lacking
        .map(|machine| {
            let mut draft = Draft::of(machine.clone());
            draft.edit(format!("label machine {} with the hash of its set", machine.name_any()), |machine| {
                machine.labels_mut().insert(labels::TEMPLATE_HASH.to_owned(), hash.to_owned());
            });
            draft
        })
        .collect()
}

fn label_set(set: &mut SetView, hash: String) {
    set.draft.edit("all machines of the adopted set carry its hash: select by it", |set| {
        set.labels_mut().insert(labels::TEMPLATE_HASH.to_owned(), hash.clone());
        let selector: &mut LabelSelector = set.spec.selector.get_or_insert_default();
        selector.match_labels.get_or_insert_default().insert(labels::TEMPLATE_HASH.to_owned(), hash);
    });
}
