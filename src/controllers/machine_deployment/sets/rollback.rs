//! Rollback to the template of an earlier revision.

use super::{
    OwnedSets, SetView,
    revision::{revision_of, shared_annotations},
};
use crate::{machine_deployment::nodes::DeploymentNodes, object::draft::ObjectDraft};
use kube::ResourceExt;
use mcm_api::{
    labels,
    machine::{MachineDeployment, RollbackConfig},
    reasons::EventReason,
};
use mcm_rules::plan::Event;

/// Executes the request in `spec.rollbackTo` and clears it, in one patch of the deployment.
pub(in super::super) fn roll_back(
    deployment: &mut ObjectDraft<MachineDeployment>,
    sets: &mut OwnedSets,
    nodes: &mut DeploymentNodes<'_>,
    request: &RollbackConfig,
) {
    let revision = if request.revision == 0 { previous(sets) } else { Some(request.revision) };
    let found = sets
        .sets
        .iter_mut()
        .find(|set| revision.is_some_and(|revision| revision > 0 && revision_of(set.draft.current()) == revision));
    let (Some(set), Some(revision)) = (found, revision) else {
        let text = match revision {
            Some(revision) => format!("there is no machine set of revision {revision} to roll back to"),
            None => "there is no earlier revision to roll back to".to_owned(),
        };
        deployment.edit(format!("{text}; clear the request"), |deployment| deployment.spec.rollback_to = None);
        deployment.record(Event::warning(EventReason::DeploymentRollbackRevisionNotFound, text));
        return;
    };
    nodes.untaint(set);
    let name = set.name();
    if set.draft.current().spec.makes(&deployment.current().spec.template) {
        let text = format!("the template is already that of revision {revision} (machine set {name})");
        deployment.edit(format!("{text}; clear the request"), |deployment| deployment.spec.rollback_to = None);
        deployment.record(Event::warning(EventReason::DeploymentRollbackTemplateUnchanged, text));
        return;
    }
    deployment
        .edit(format!("roll back to revision {revision}, machine set {name}"), |deployment| restore(deployment, set));
    deployment.record(Event::normal(
        EventReason::DeploymentRollback,
        format!("Rolled back deployment {} to revision {revision}", deployment.current().name_any()),
    ));
}

/// The second-highest revision.
fn previous(sets: &OwnedSets) -> Option<i64> {
    let mut revisions: Vec<i64> = sets.sets.iter().map(|set| revision_of(set.draft.current())).collect();
    revisions.sort_unstable();
    revisions.pop();
    revisions.pop().filter(|revision| *revision > 0)
}

fn restore(deployment: &mut MachineDeployment, set: &SetView) {
    let set = set.draft.current();
    let mut template = set.spec.template.clone();
    template.metadata.labels.remove(labels::TEMPLATE_HASH);
    deployment.spec.template = template;
    let mut annotations = shared_annotations(set.annotations());
    // An older time would stop the deletion of Machines that the autoscaler has marked since.
    annotations.remove(labels::LAST_SCALER_CHANGE);
    deployment.annotations_mut().extend(annotations);
    deployment.spec.rollback_to = None;
}
