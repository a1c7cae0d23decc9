use rstest::rstest;
use serde_json::Value;

use super::*;
use crate::api::machine::same_template;
use mcm_insight::{
    family::changes,
    testing::{blocked_pool, machine, pool},
};

fn decided(facts: &NamespaceFacts, verb: ChangeVerb, object: &str) -> Result<ObjectPatch, String> {
    decide(facts, verb, &facts.find(object).unwrap()).map_err(|ended| format!("{} ({})", ended.message, ended.hint))
}

/// The deployment after a patch.
fn patched(facts: &NamespaceFacts, patch: &Value) -> MachineDeployment {
    fn merge(target: &mut Value, patch: &Value) {
        match (target.as_object_mut(), patch.as_object()) {
            (Some(fields), Some(patch)) => {
                patch.iter().for_each(|(key, part)| merge(fields.entry(key.clone()).or_insert(Value::Null), part));
            }
            _ => *target = patch.clone(),
        }
    }
    let mut value = serde_json::to_value(&facts.deployments["pool"]).unwrap();
    merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_restart_makes_another_template_and_nothing_else() {
    let facts = blocked_pool();
    let change = decided(&facts, ChangeVerb::Restart, "pool").unwrap();
    let (old, new) = (&facts.deployments["pool"].spec, patched(&facts, &change.patch).spec);
    assert!(!same_template(&old.template, &new.template), "the planner makes a new set");
    assert_eq!(changes(&old.template, &new.template).len(), 1);
    assert_eq!((new.replicas, &new.strategy, new.paused), (old.replicas, &old.strategy, old.paused));
    assert!(change.needs_consent);
    assert_eq!(change.says, "replaces 2 machines of MachineDeployment pool");
}

#[test]
fn a_patch_is_refused_if_the_object_was_changed_meanwhile() {
    let change = decided(&blocked_pool(), ChangeVerb::Pause, "pool").unwrap();
    assert_eq!(change.patch_at_version(), json!({"spec": {"paused": true}, "metadata": {"resourceVersion": "7"}}));
    let expected = r#"kubectl patch machinedeployments.machine.sapcloud.io pool -n demo --type merge -p '{"spec":{"paused":true}}'"#;
    assert_eq!(change.kubectl(), expected);
}

#[test]
fn an_undo_asks_for_the_revision_before_the_current_one() {
    let change = decided(&blocked_pool(), ChangeVerb::Undo(None), "pool").unwrap();
    assert_eq!(change.patch, json!({"spec": {"rollbackTo": {"revision": 3}}}));
    let expected = "returns MachineDeployment pool to revision 3 (template.spec.class.name small → large): replaces or deletes 1 machine";
    assert_eq!(change.says, expected);
}

#[rstest]
#[case::unknown(
    ChangeVerb::Undo(Some(9)),
    "MachineDeployment pool has no revision 9 (mcm rollout history pool -n demo)"
)]
#[case::current(
    ChangeVerb::Undo(Some(4)),
    "MachineDeployment pool has the template of revision 4 already (mcm rollout history pool -n demo)"
)]
#[case::not_paused(ChangeVerb::Resume, "MachineDeployment pool is not paused (mcm why pool -n demo)")]
#[case::freeze(
    ChangeVerb::Freeze,
    "a freeze of MachineDeployment pool holds nothing back (freeze a MachineSet, or pause the rollout: mcm rollout pause pool -n demo)"
)]
#[case::not_frozen(
    ChangeVerb::Unfreeze,
    "MachineDeployment pool is not frozen (mcm why machinedeployment/pool -n demo)"
)]
fn what_makes_no_sense_for_a_deployment_is_refused(#[case] verb: ChangeVerb, #[case] expected: &str) {
    assert_eq!(decided(&blocked_pool(), verb, "pool").unwrap_err(), expected);
}

#[rstest]
#[case::undo(ChangeVerb::Undo(None))]
#[case::restart(ChangeVerb::Restart)]
fn machines_that_are_replaced_all_at_once_are_said_to_be(#[case] verb: ChangeVerb) {
    let running = |suffix: &str| machine("pool-84dff", suffix, "small", "Running", &json!({}));
    let mut facts = pool(2, vec![running("a"), running("b")]);
    assert!(!decided(&facts, verb, "pool").unwrap().says.contains("all at once"));
    let strategy = json!({"type": "Recreate"});
    facts.deployments.get_mut("pool").unwrap().spec.strategy = serde_json::from_value(strategy).unwrap();
    let change = decided(&facts, verb, "pool").unwrap();
    assert!(change.says.ends_with("2 machines, all at once (strategy Recreate)") || verb == ChangeVerb::Restart);
    assert!(change.says.contains("all at once (strategy Recreate)"), "{}", change.says);
}

#[test]
fn an_undo_of_a_paused_deployment_returns_its_template_and_replaces_nothing() {
    let mut facts = blocked_pool();
    facts.deployments.get_mut("pool").unwrap().spec.paused = true;
    let change = decided(&facts, ChangeVerb::Undo(None), "pool").unwrap();
    let after = patched(&facts, &change.patch).spec;
    assert!(facts.sets["pool-6d689"].spec.makes(&after.template) && after.paused, "{}", change.patch);
    assert!(change.says.contains("stays paused") && !change.needs_consent, "{}", change.says);
    assert_eq!((change.planned, change.next.as_deref()), (None, Some("mcm rollout resume pool -n demo")));
}

#[test]
fn a_paused_deployment_is_resumed_before_a_restart() {
    let mut facts = blocked_pool();
    facts.deployments.get_mut("pool").unwrap().spec.paused = true;
    let expected = "MachineDeployment pool is paused, so this would have no effect (mcm rollout resume pool -n demo)";
    assert_eq!(decided(&facts, ChangeVerb::Restart, "pool").unwrap_err(), expected);
    let expected = "MachineDeployment pool is paused already (mcm why pool -n demo)";
    assert_eq!(decided(&facts, ChangeVerb::Pause, "pool").unwrap_err(), expected);
    let resume = decided(&facts, ChangeVerb::Resume, "pool").unwrap();
    assert_eq!((resume.patch, resume.needs_consent), (json!({"spec": {"paused": false}}), true));
}

#[test]
fn a_set_is_frozen_and_unfrozen() {
    let mut facts = blocked_pool();
    let freeze = decided(&facts, ChangeVerb::Freeze, "machineset/pool-84dff").unwrap();
    assert_eq!(freeze.patch, json!({"metadata": {"labels": {"freeze": "True"}}}));
    assert!(freeze.says.contains("--machine-safety-overshooting-period, 1m by default"), "{}", freeze.says);
    facts.memory.overshoot_period = Some("5m".parse().unwrap());
    let says = decided(&facts, ChangeVerb::Freeze, "machineset/pool-84dff").unwrap().says;
    assert!(says.contains("ends the freeze within 5m0s unless"), "{says}");
    facts.sets.get_mut("pool-84dff").unwrap().labels_mut().insert("freeze".to_owned(), "True".to_owned());
    assert!(decided(&facts, ChangeVerb::Freeze, "machineset/pool-84dff").unwrap_err().contains("frozen already"));
    let patch = json!({"metadata": {"annotations": {"safety.machine.sapcloud.io/unfreeze": "True"}}});
    for object in ["machineset/pool-84dff", "pool"] {
        assert_eq!(decided(&facts, ChangeVerb::Unfreeze, object).unwrap().patch, patch, "{object}");
    }
}

#[rstest]
#[case::deleted("Terminating", json!({}), Some("force-deletion"))]
#[case::in_place("InPlaceUpdating", json!({}), Some("force-drain"))]
#[case::preserved(
    "Failed",
    json!({"status": {"currentStatus": {"preserveExpiryTime": "1970-01-02T00:00:00Z"}}}),
    Some("force-drain")
)]
#[case::selected_for_an_update(
    "Running",
    json!({"status": {"conditions": [{"type": "InPlaceUpdate", "status": "True", "reason": "SelectedForUpdate"}]}}),
    Some("force-drain")
)]
#[case::running("Running", json!({}), None)]
fn a_drain_is_forced_by_the_label_for_its_reason(
    #[case] phase: &str,
    #[case] more: Value,
    #[case] label: Option<&str>,
) {
    let facts = pool(1, vec![machine("pool-84dff", "a", "small", phase, &more)]);
    let change = decided(&facts, ChangeVerb::ForceDrain, "machine/pool-84dff-a");
    let Some(label) = label else {
        let error = change.unwrap_err();
        assert!(error.contains("is not drained") && !error.contains("delete"), "{error}");
        return;
    };
    let change = change.unwrap();
    assert_eq!((change.patch, change.needs_consent), (json!({"metadata": {"labels": {label: "True"}}}), true));
}

#[rstest]
#[case(PreserveTrigger::Now, "now")]
#[case(PreserveTrigger::WhenFailed, "when-failed")]
#[case(PreserveTrigger::Never, "false")]
fn a_machine_is_preserved_by_an_annotation(#[case] preserve: PreserveTrigger, #[case] value: &str) {
    let facts = pool(1, vec![machine("pool-84dff", "a", "small", "Running", &json!({}))]);
    let change = decided(&facts, ChangeVerb::Preserve(preserve), "machine/pool-84dff-a").unwrap();
    assert_eq!(change.patch, json!({"metadata": {"annotations": {labels::PRESERVE: value}}}));
    let again = json!({"metadata": {"annotations": {labels::PRESERVE: value}}});
    let facts = pool(1, vec![machine("pool-84dff", "a", "small", "Running", &again)]);
    assert!(decided(&facts, ChangeVerb::Preserve(preserve), "machine/pool-84dff-a").unwrap_err().contains("already"));
    assert!(
        decided(&blocked_pool(), ChangeVerb::Preserve(preserve), "pool-6d689-gmjqk").is_err(),
        "it is being deleted"
    );
}

/// Situation 19.
#[test]
fn a_preserved_machine_is_said_to_be_deleted_by_a_rollout_or_a_scale_down() {
    let facts = pool(1, vec![machine("pool-84dff", "a", "small", "Running", &json!({}))]);
    for trigger in [PreserveTrigger::Now, PreserveTrigger::WhenFailed] {
        let says = decided(&facts, ChangeVerb::Preserve(trigger), "machine/pool-84dff-a").unwrap().says;
        assert!(says.contains("a rollout or a scale-down still deletes it"), "{says}");
    }
}

/// Situation 20: the controller would remove the annotation of the Machine.
#[rstest]
#[case::now(PreserveTrigger::Now, "when-failed", "preserve=now --overwrite")]
#[case::no_longer(PreserveTrigger::Never, "now", "preserve=false --overwrite")]
#[case::a_word_without_meaning(PreserveTrigger::WhenFailed, "always", "preserve=when-failed --overwrite")]
#[case::already(PreserveTrigger::Now, "now", "mcm tree machine/pool-84dff-a -n demo")]
fn a_preservation_is_refused_where_the_annotation_of_the_node_decides(
    #[case] preserve: PreserveTrigger,
    #[case] value: &str,
    #[case] hint: &str,
) {
    let of_node = json!({"metadata": {"annotations": {labels::LAST_NODE_PRESERVE: value}}});
    let facts = pool(1, vec![machine("pool-84dff", "a", "small", "Running", &of_node)]);
    let refusal = decided(&facts, ChangeVerb::Preserve(preserve), "machine/pool-84dff-a").unwrap_err();
    assert!(refusal.starts_with("Node pool-84dff-a ") && refusal.contains(&format!("preserve={value}")), "{refusal}");
    assert!(refusal.trim_end_matches(')').ends_with(hint), "{refusal}");
}

#[test]
fn a_machine_is_forgotten_only_if_its_vm_cannot_be_deleted() {
    let mut facts = blocked_pool();
    let forget =
        |facts: &NamespaceFacts, leaves_vm| decided(facts, ChangeVerb::Forget { leaves_vm }, "pool-6d689-gmjqk");
    assert!(forget(&facts, false).unwrap_err().contains("MachineClass large exists"));
    facts.classes.remove("large");
    assert!(forget(&facts, false).unwrap_err().contains("has the VM simulated:///pool-6d689-gmjqk"));
    let change = forget(&facts, true).unwrap();
    assert_eq!((change.patch, change.needs_consent), (json!({"metadata": {"finalizers": []}}), true));
    assert!(change.says.ends_with("its VM simulated:///pool-6d689-gmjqk stays in the cloud"), "{}", change.says);
    facts.machines.get_mut("pool-6d689-gmjqk").unwrap().spec.provider_id = String::new();
    assert!(forget(&facts, false).is_ok(), "no VM was ever created");
    let (kind, name) = ("MachineClass".to_owned(), "large".to_owned());
    facts.unreadable.push(UndecodableObject { kind, name, owner: None, error: "provider: no text".to_owned() });
    assert!(forget(&facts, false).unwrap_err().contains("MachineClass large cannot be read"), "it is not absent");
    assert!(forget(&facts, true).is_ok());
    assert!(
        decided(&facts, ChangeVerb::Forget { leaves_vm: true }, "pool-6d689-d98b2")
            .unwrap_err()
            .contains("not being deleted")
    );
}
