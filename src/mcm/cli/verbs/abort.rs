//! The end of a rollout that is under way. Pure.

use kube::ResourceExt;
use serde_json::json;

use super::patch::{ObjectPatch, at_once, change, machines, planned, replaced, return_text};
use crate::{
    api::machine::MachineSet,
    cli::{exit::ExitError, plan::to_revision},
};
use mcm_controllers::machine_deployment::revision_of;
use mcm_insight::{
    family::DeploymentFamily,
    story::{CLASS, NamespaceFacts, UndecodableObject},
};
use mcm_rules::plan::{SubjectRef, counted};

/// Returns to the template of the former set with the most available machines, and ends a pause: under it the machines of the new
/// template would stay.
pub(super) fn abort(
    facts: &NamespaceFacts,
    object: &SubjectRef,
    family: &DeploymentFamily<'_>,
) -> Result<ObjectPatch, ExitError> {
    let (deployment, name) = (family.deployment, &object.name);
    let set = returned_to(facts, object, family)?;
    class_exists(facts, object, set)?;
    let revision = revision_of(set);
    let mut patch = to_revision(facts, name, revision).map_err(|error| ExitError::no(error.message, error.hint))?;
    let resumes = if deployment.spec.paused { ", and resumes it" } else { "" };
    if deployment.spec.paused {
        patch["spec"]["paused"] = json!(false);
    }
    let available = machines(available(facts, set));
    let left = replaced(facts, family, Some(set));
    let says = format!(
        "{}{resumes}: keeps the set {} with {available} that serve, and replaces or deletes {}{}",
        return_text(deployment, set, revision),
        set.name_any(),
        machines(left),
        at_once(deployment, left)
    );
    let planned = Some(planned(name, &patch));
    Ok(ObjectPatch { needs_consent: left > 0, planned, ..change(object, &deployment.metadata, patch, says) })
}

/// The set whose template the deployment gets.
fn returned_to<'a>(
    facts: &NamespaceFacts,
    object: &SubjectRef,
    family: &DeploymentFamily<'a>,
) -> Result<&'a MachineSet, ExitError> {
    let SubjectRef { name, namespace, .. } = object;
    let new = family.new_set();
    if let Some(set) = facts.running_set(family, new) {
        return Ok(set);
    }
    let history = format!("mcm rollout history {name} -n {namespace}");
    let former = replaced(facts, family, new);
    if former > 0 {
        return Err(ExitError::no(
            format!(
                "{} of MachineDeployment {name} with a former template are left, and none of them is available",
                counted(former, "machine")
            ),
            format!("mcm rollout undo {name} -n {namespace} --to-revision N, with a revision of {history}"),
        ));
    }
    let is_first = family.sets.iter().all(|set| Some(set.name_any()) == new.map(ResourceExt::name_any));
    let (message, hint) = match is_first {
        true => (
            format!("MachineDeployment {name} has no former set to return to"),
            format!("correct spec.template, or hold the rollout: mcm rollout pause {name} -n {namespace}"),
        ),
        false => (
            format!("no rollout of MachineDeployment {name} is under way: all its machines have the current template"),
            format!("mcm rollout undo {name} -n {namespace} returns to an earlier one"),
        ),
    };
    Err(ExitError::no(message, hint))
}

/// Refuses to return to a template from which no machine can be created.
fn class_exists(facts: &NamespaceFacts, object: &SubjectRef, set: &MachineSet) -> Result<(), ExitError> {
    let SubjectRef { name, namespace, .. } = object;
    let class = &set.spec.template.spec.class.name;
    let pause = format!("mcm rollout pause {name} -n {namespace}");
    let is_class = |one: &&UndecodableObject| one.kind == CLASS && one.name == *class;
    if let Some(unreadable) = facts.unreadable.iter().find(is_class) {
        return Err(ExitError::no(unreadable.to_string(), format!("correct it; until then hold the rollout: {pause}")));
    }
    if facts.classes.contains_key(class) {
        return Ok(());
    }
    Err(ExitError::no(
        format!("MachineClass {class} of set {}, whose machines serve, does not exist", set.name_any()),
        format!("create it again, or correct spec.template; until then hold the rollout: {pause}"),
    ))
}

fn available(facts: &NamespaceFacts, set: &MachineSet) -> usize {
    facts.machines_of_set(&set.name_any()).iter().filter(|machine| machine.is_available()).count()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::{api::machine::same_template, cli::verbs::decide::decide, cli::verbs::verb::ChangeVerb};
    use mcm_insight::testing::{machine, pool};

    /// Two machines of the former class `large`, and a new one of `small` in a phase.
    fn rolling(phase: &str) -> NamespaceFacts {
        let none = json!({});
        pool(
            3,
            vec![
                machine("pool-84dff", "a", "small", phase, &none),
                machine("pool-6d689", "b", "large", "Running", &none),
                machine("pool-6d689", "c", "large", "Running", &none),
            ],
        )
    }

    fn aborted(facts: &NamespaceFacts) -> Result<ObjectPatch, String> {
        let object = facts.find("pool").unwrap();
        decide(facts, ChangeVerb::Abort, &object).map_err(|ended| format!("{} ({})", ended.message, ended.hint))
    }

    fn patched(facts: &NamespaceFacts, patch: &Value) -> crate::api::machine::MachineDeployment {
        let mut value = serde_json::to_value(&facts.deployments["pool"]).unwrap();
        crate::api::patch::apply(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    #[rstest]
    #[case::under_way(false)]
    #[case::paused(true)]
    fn a_rollout_returns_to_the_set_whose_machines_serve(#[case] paused: bool) {
        let mut facts = rolling("CrashLoopBackOff");
        facts.deployments.get_mut("pool").unwrap().spec.paused = paused;
        let change = aborted(&facts).unwrap();
        let after = patched(&facts, &change.patch).spec;
        let former = &facts.sets["pool-6d689"].spec;
        assert!(former.makes(&after.template) && !after.paused, "{}", change.patch);
        assert!(!same_template(&after.template, &facts.deployments["pool"].spec.template));
        assert_eq!(change.says.contains("and resumes it"), paused, "{}", change.says);
        let expected = "keeps the set pool-6d689 with 2 machines that serve, and replaces or deletes 1 machine";
        assert!(change.says.ends_with(expected) && change.needs_consent, "{}", change.says);
        let planned = change.planned.unwrap();
        assert_eq!((planned.name.as_str(), change.next.as_deref()), ("pool", Some("mcm rollout status pool -n demo")));
    }

    #[test]
    fn without_machines_of_a_former_template_that_serve_nothing_is_aborted() {
        let none = json!({});
        let done = pool(1, vec![machine("pool-84dff", "a", "small", "Running", &none)]);
        assert!(aborted(&done).unwrap_err().starts_with("no rollout of MachineDeployment pool is under way"));
        let mut first = done;
        first.sets.remove("pool-6d689");
        assert!(aborted(&first).unwrap_err().contains("has no former set to return to (correct spec.template"));
        let failed = pool(1, vec![machine("pool-6d689", "a", "large", "Failed", &none)]);
        let refusal = aborted(&failed).unwrap_err();
        assert!(
            refusal.contains("none of them is available (mcm rollout undo pool -n demo --to-revision"),
            "{refusal}"
        );
    }

    #[test]
    fn a_set_whose_class_is_gone_or_unreadable_is_not_returned_to() {
        let mut facts = rolling("Pending");
        facts.classes.remove("large");
        let refusal = aborted(&facts).unwrap_err();
        let expected = "MachineClass large of set pool-6d689, whose machines serve, does not exist (create it again";
        assert!(refusal.starts_with(expected) && refusal.contains("mcm rollout pause pool -n demo"), "{refusal}");
        let (kind, name) = ("MachineClass".to_owned(), "large".to_owned());
        facts.unreadable.push(UndecodableObject { kind, name, owner: None, error: "provider: no text".to_owned() });
        assert!(aborted(&facts).unwrap_err().contains("cannot be read"), "it is not absent");
    }
}
