//! The set of the current template: its creation, its sync with the deployment, and its revision.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::{
    OwnedSets, SetView,
    naming::{NewSetIdentity, made_for},
};
use crate::{
    machine_deployment::bounds::ReplicaBounds,
    object::{draft::ObjectDraft, owner},
};
use mcm_api::{
    labels,
    machine::{MachineDeployment, MachineSet, MachineSetSpec, MachineTemplate, update_in_place},
};

/// Annotations of a deployment that are not copied to its sets and not restored by a rollback.
const OWN_ANNOTATIONS: [&str; 10] = [
    labels::ABSENT_REPLICAS,
    labels::KUBECTL_LAST_APPLIED,
    labels::REVISION,
    labels::REVISION_HISTORY,
    labels::DESIRED_REPLICAS,
    labels::MAX_REPLICAS,
    labels::PREFER_NO_SCHEDULE,
    labels::UNFREEZE,
    labels::TRIGGER_DELETION,
    labels::MADE_FOR,
];

/// Length of the revision history of a set.
const HISTORY_LENGTH: usize = 20;

/// The annotations that deployment and set share.
pub(in super::super) fn shared_annotations(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shared = annotations.iter().filter(|(key, _)| !OWN_ANNOTATIONS.contains(&key.as_str()));
    shared.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The revision of a set; 0 without the annotation.
pub fn revision_of(set: &MachineSet) -> i64 {
    set.annotations().get(labels::REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The revision after all old ones.
pub(in super::super) fn next_revision(sets: &OwnedSets) -> i64 {
    sets.old_sets().map(|set| revision_of(set.draft.current())).max().unwrap_or_default().saturating_add(1)
}

/// The annotations that record for which `spec.replicas` of the deployment a set was last scaled.
pub(in super::super) fn size_annotations(bounds: &ReplicaBounds) -> [(&'static str, String); 2] {
    [(labels::DESIRED_REPLICAS, bounds.desired.to_string()), (labels::MAX_REPLICAS, bounds.max_replicas().to_string())]
}

/// A new set with the current template. It is created with its finalizer.
pub(in super::super) fn new_set(
    deployment: &MachineDeployment,
    identity: &NewSetIdentity,
    bounds: &ReplicaBounds,
    revision: i64,
    replicas: i32,
) -> MachineSet {
    let spec = &deployment.spec;
    let mut template = spec.template.clone();
    template.metadata = template.metadata.normalised();
    template.metadata.labels.insert(labels::TEMPLATE_HASH.to_owned(), identity.hash.clone());
    let mut selector = spec.selector.clone().unwrap_or_default();
    let hash = (labels::TEMPLATE_HASH.to_owned(), identity.hash.clone());
    selector.match_labels.get_or_insert_default().insert(hash.0, hash.1);
    let mut annotations = shared_annotations(deployment.annotations());
    annotations.insert(labels::REVISION.to_owned(), revision.to_string());
    annotations.insert(labels::MADE_FOR.to_owned(), made_for(&identity.name, &spec.template));
    annotations.extend(size_annotations(bounds).map(|(key, value)| (key.to_owned(), value)));
    MachineSet {
        metadata: ObjectMeta {
            name: Some(identity.name.clone()),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(template.metadata.labels.clone()),
            annotations: Some(annotations),
            owner_references: owner::reference_to(deployment).map(|reference| vec![reference]),
            finalizers: Some(vec![labels::FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: MachineSetSpec {
            replicas,
            selector: Some(selector),
            template,
            min_ready_seconds: spec.min_ready_seconds,
            auto_preserve_failed_machine_max: spec.auto_preserve_failed_machine_max,
            ..MachineSetSpec::default()
        },
        status: None,
    }
}

/// Copies changes that need no rollout from the deployment to the new set, and sets the latest revision.
pub(in super::super) fn update_new_set(sets: &mut OwnedSets, deployment: &MachineDeployment) {
    let revision = next_revision(sets);
    let Some(set) = sets.new_set_mut().filter(|set| !set.is_deleting()) else { return };
    copy_annotations(set, deployment);
    copy_configuration(set, deployment);
    raise_revision(&mut set.draft, revision);
}

/// Sets the revision of the new set on the deployment.
pub(in super::super) fn set_on_deployment(deployment: &mut ObjectDraft<MachineDeployment>, revision: i64) {
    let text = revision.to_string();
    if revision > 0 && deployment.current().annotations().get(labels::REVISION) != Some(&text) {
        deployment.edit(format!("the current template is revision {revision}"), |deployment| {
            deployment.annotations_mut().insert(labels::REVISION.to_owned(), text);
        });
    }
}

/// Copies annotations. One that was removed from the deployment stays on the set.
fn copy_annotations(set: &mut SetView, deployment: &MachineDeployment) {
    let mut desired = shared_annotations(deployment.annotations());
    let present = set.draft.current().annotations();
    desired.retain(|key, value| present.get(key) != Some(value));
    if !desired.is_empty() {
        let names = desired.keys().cloned().collect::<Vec<_>>().join(", ");
        set.draft.edit(format!("copy annotations from the deployment: {names}"), |set| {
            set.annotations_mut().extend(desired);
        });
    }
}

/// A template with the hash label of a set, if the set has one.
fn with_hash(template: &MachineTemplate, set: &MachineSet) -> MachineTemplate {
    let mut template = MachineTemplate { metadata: template.metadata.normalised(), ..template.clone() };
    let hash = set.spec.template.metadata.labels.get(labels::TEMPLATE_HASH);
    if let Some(hash) = hash.or_else(|| set.labels().get(labels::TEMPLATE_HASH)) {
        template.metadata.labels.insert(labels::TEMPLATE_HASH.to_owned(), hash.clone());
    }
    template
}

fn copy_configuration(set: &mut SetView, deployment: &MachineDeployment) {
    let desired = &deployment.spec;
    let mut spec = set.draft.desired().spec.clone();
    let mut changed = Vec::new();
    if !spec.makes(&desired.template) {
        // The API server stored another template than it was sent.
        spec.template = with_hash(&desired.template, set.draft.current());
        changed.push("template");
    }
    changed.extend(update_in_place(&mut spec.template, &desired.template));
    if spec.min_ready_seconds != desired.min_ready_seconds {
        spec.min_ready_seconds = desired.min_ready_seconds;
        changed.push("minReadySeconds");
    }
    if spec.auto_preserve_failed_machine_max != desired.auto_preserve_failed_machine_max {
        spec.auto_preserve_failed_machine_max = desired.auto_preserve_failed_machine_max;
        changed.push("autoPreserveFailedMachineMax");
    }
    if !changed.is_empty() {
        set.draft
            .edit(format!("copy from the deployment without a rollout: {}", changed.join(", ")), |set| set.spec = spec);
    }
}

/// Raises the revision of a set. Former revisions are kept in the history, each once, the latest last.
fn raise_revision(draft: &mut ObjectDraft<MachineSet>, revision: i64) {
    let former = revision_of(draft.current());
    if former >= revision {
        return;
    }
    draft.edit(format!("the template of {} is revision {revision} now", draft.current().name_any()), |set| {
        let annotations = set.annotations_mut();
        annotations.insert(labels::REVISION.to_owned(), revision.to_string());
        if former > 0 {
            let history = annotations.entry(labels::REVISION_HISTORY.to_owned()).or_default();
            *history = remembering(history, former);
        }
    });
}

fn remembering(history: &str, revision: i64) -> String {
    let revision = revision.to_string();
    let mut entries: Vec<&str> = history.split(',').filter(|entry| !entry.is_empty() && *entry != revision).collect();
    entries.push(&revision);
    entries.split_off(entries.len().saturating_sub(HISTORY_LENGTH)).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn what_is_meant_for_one_object_is_not_copied_to_another() {
        let all = OWN_ANNOTATIONS.iter().chain(&["example.org/note"]);
        let all: BTreeMap<String, String> = all.map(|key| ((*key).to_owned(), "x".to_owned())).collect();
        assert_eq!(all.len(), 11);
        for own in ["node.machine.sapcloud.io/trigger-deletion-by-mcm", "safety.machine.sapcloud.io/unfreeze"] {
            assert!(all.contains_key(own));
        }
        assert_eq!(shared_annotations(&all).into_keys().collect::<Vec<_>>(), ["example.org/note"]);
    }

    #[rstest]
    #[case("", 1, "1")]
    #[case("1,3", 5, "1,3,5")]
    #[case("1,3,5", 3, "1,5,3")]
    #[case(
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
        21,
        "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21"
    )]
    fn the_history_is_short_and_says_nothing_twice(
        #[case] history: &str,
        #[case] revision: i64,
        #[case] expected: &str,
    ) {
        assert_eq!(remembering(history, revision), expected);
    }
}
