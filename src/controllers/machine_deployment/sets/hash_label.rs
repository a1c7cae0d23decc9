//! Adopted sets may lack the hash label, which distinguishes the sets of one deployment. They get it in three stages,
//! so that every Machine always matches its set: first the template, then the Machines, then the set's own labels and
//! selector.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::{OwnedSets, SetView, naming::identity_for};
use crate::object::draft::DraftsByName;
use mcm_api::{
    labels,
    machine::{Machine, MachineSet},
};

/// Advances each set without the label by one stage.
pub(in super::super) fn complete(
    sets: &mut OwnedSets,
    machines: &mut DraftsByName<Machine>,
    deployment: &str,
    siblings: &[Arc<MachineSet>],
) {
    for set in sets.sets.iter_mut().filter(|set| !set.is_deleting() && !is_labelled(set)) {
        let template_labels = &set.draft.current().spec.template.metadata.labels;
        match template_labels.get(labels::TEMPLATE_HASH).cloned() {
            None => label_template(set, deployment, siblings),
            // Until the set controller has observed the template, it may create Machines without the label.
            Some(hash) if set.is_observed() && set.unreadable.is_empty() => {
                if label_machines(set, machines, &hash) == 0 {
                    label_set(set, hash);
                }
            }
            Some(_) => {}
        }
    }
}

fn is_labelled(set: &SetView) -> bool {
    let selector = set.draft.current().spec.selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    selector.is_some_and(|labels| labels.contains_key(labels::TEMPLATE_HASH))
}

fn label_template(set: &mut SetView, deployment: &str, siblings: &[Arc<MachineSet>]) {
    let current = set.draft.current();
    let own = current.labels().get(labels::TEMPLATE_HASH).cloned();
    let hash = own.unwrap_or_else(|| {
        let others = siblings.iter().map(Arc::as_ref);
        identity_for(deployment, &current.spec.template, 0, others).hash
    });
    set.draft.edit("label the template of an adopted set with its hash", |set| {
        set.spec.template.metadata.labels.insert(labels::TEMPLATE_HASH.to_owned(), hash);
    });
}

/// Labels the Machines of a set; returns how many lacked the label.
fn label_machines(set: &SetView, drafts: &mut DraftsByName<Machine>, hash: &str) -> usize {
    let lacks = |machine: &&Arc<Machine>| machine.labels().get(labels::TEMPLATE_HASH).is_none_or(|label| label != hash);
    let lacking: Vec<&Arc<Machine>> = set.machines.iter().filter(lacks).collect();
    for machine in &lacking {
        let reason = format!("label machine {} with the hash of its set", machine.name_any());
        drafts.edit(machine, reason, |machine| {
            machine.labels_mut().insert(labels::TEMPLATE_HASH.to_owned(), hash.to_owned());
        });
    }
    lacking.len()
}

fn label_set(set: &mut SetView, hash: String) {
    set.draft.edit("all machines of the adopted set carry its hash: select by it", |set| {
        set.labels_mut().insert(labels::TEMPLATE_HASH.to_owned(), hash.clone());
        let selector: &mut LabelSelector = set.spec.selector.get_or_insert_default();
        selector.match_labels.get_or_insert_default().insert(labels::TEMPLATE_HASH.to_owned(), hash);
    });
}
