use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    budget::UnreadyPod,
    plan::obstacles,
    story::ObjectVerdict,
    terminal::TerminalLook,
    testing::{NOW, at, blocked, blocked_pool, machine, object, pool, preview},
};

/// A rollout from class `large`, whose machine runs, to class `small`, whose machine is `Pending` and waits.
fn failing(kind: WaitKind, text: &str, more: &Value) -> NamespaceFacts {
    let none = json!({});
    let machines = vec![
        machine("pool-84dff", "jpgkd", "small", "Pending", more),
        machine("pool-6d689", "d98b2", "large", "Running", &none),
    ];
    let mut facts = pool(2, machines);
    let planned = preview(MACHINE, "pool-84dff-jpgkd", &[], &[(kind, text)]);
    facts.previews.get_mut(MACHINE).unwrap().insert("pool-84dff-jpgkd".to_owned(), planned);
    facts
}

fn texts(remedies: &[ObjectRemedy]) -> Vec<&str> {
    remedies.iter().map(|remedy| remedy.text.as_str()).collect()
}

fn first_of(facts: &NamespaceFacts, object: &str) -> String {
    let answer = facts.answer(&facts.find(object).unwrap());
    answer.remedies()[0].text.clone()
}

const UNDO: &str = "mcm rollout undo pool -n demo";

#[rstest]
#[case::a_stock_out(WaitKind::DriverRetry, "the next attempt, after ResourceExhausted: no stock")]
#[case::a_quota(WaitKind::DriverRetry, "the next attempt, after QuotaExceeded: 10 of 10 cores")]
#[case::a_missing_class(WaitKind::Class, "the MachineClass small, which does not exist")]
#[case::a_secret_of_the_new_class(WaitKind::Secret, "the Secret demo/keys, which does not exist")]
#[case::a_refused_machine(WaitKind::MachineWrite, "the API server to accept a write: class small is not allowed")]
#[case::a_late_join(WaitKind::NodeJoin, "Node pool-84dff-jpgkd to join")]
fn the_first_remedy_of_a_new_template_that_fails_is_undo(#[case] kind: WaitKind, #[case] text: &str) {
    let facts = failing(kind, text, &json!({}));
    for object in ["pool", "machine/pool-84dff-jpgkd"] {
        assert_eq!(first_of(&facts, object), UNDO, "{object}");
    }
    let answer = facts.answer(&facts.find("machine/pool-84dff-jpgkd").unwrap());
    assert_eq!(answer.remedies()[1].text, "mcm rollout pause pool -n demo");
}

/// After the creation timeout the Machine is deleted, and its replacement meets the same error.
#[rstest]
#[case::a_stock_out(
    "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no stock]",
    WaitKind::DriverRetry,
    "the creation of its replacement, after ResourceExhausted: no stock"
)]
#[case::no_join(
    "Machine pool-84dff-jpgkd failed to join the cluster in 20m0s.",
    WaitKind::NodeJoin,
    "the Node of its replacement to join: its own did not until the creation timeout"
)]
fn a_machine_whose_creation_failed_waits_for_the_cause_and_so_does_the_plan(
    #[case] description: &str,
    #[case] kind: WaitKind,
    #[case] text: &str,
) {
    let last = json!({"type": "Create", "state": "Failed", "description": description});
    let more = json!({"status": {"currentStatus": {"phase": "Failed"}, "lastOperation": last}});
    let deletion = "its deletion, because a failed Machine never gets a VM";
    let facts = failing(WaitKind::MachineDeletion, deletion, &more);
    for object in ["pool", "machine/pool-84dff-jpgkd"] {
        assert_eq!(first_of(&facts, object), UNDO, "{object}");
    }
    let machine = facts.answer(&facts.find("machine/pool-84dff-jpgkd").unwrap());
    assert_eq!((machine.waits[0].kind, machine.waits[0].text.as_str()), (kind, text));
    assert_eq!(machine.waits.len(), 2, "{machine:?}");
    let answer = facts.answer(&facts.find("pool").unwrap());
    let mut in_the_way = obstacles::of_now(&answer, false);
    in_the_way.extend(obstacles::of_late_joins(&answer, |machine| facts.is_late_join(machine)));
    let texts: Vec<&str> = in_the_way.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, [format!("now, pool-84dff-jpgkd waits for {text}")]);
}

#[rstest]
#[case::late(540, Some("now, pool-84dff-a waits for Node a to join, as 1 more machine does"))]
#[case::young(30, None)]
fn a_node_that_is_late_is_in_the_way_of_a_plan(#[case] age: i64, #[case] expected: Option<&str>) {
    let created = json!({"metadata": {"creationTimestamp": at(NOW - age)}});
    let machines = ["a", "b"].map(|suffix| machine("pool-84dff", suffix, "small", "Pending", &created));
    let mut facts = pool(2, machines.into());
    for name in ["pool-84dff-a", "pool-84dff-b"] {
        let planned = preview(MACHINE, name, &[], &[(WaitKind::NodeJoin, "Node a to join")]);
        facts.previews.get_mut(MACHINE).unwrap().insert(name.to_owned(), planned);
    }
    let answer = facts.answer(&facts.find("pool").unwrap());
    let found = obstacles::of_late_joins(&answer, |machine| facts.is_late_join(machine));
    assert_eq!(found.map(|one| one.text).as_deref(), expected);
}

/// The former template has the same fault, the machines of the new one run, or no former one runs.
#[rstest]
#[case::both_classes_are_missing(WaitKind::Class, |facts: &mut NamespaceFacts| facts.classes.clear())]
#[case::the_former_class_is_gone(WaitKind::DriverRetry, |facts: &mut NamespaceFacts| drop(facts.classes.remove("large")))]
#[case::a_new_machine_is_available(WaitKind::DriverRetry, |facts: &mut NamespaceFacts| {
    let (name, one) = machine("pool-84dff", "other", "small", "Running", &json!({}));
    facts.machines.insert(name, one);
})]
#[case::no_old_machine_is_available(WaitKind::DriverRetry, |facts: &mut NamespaceFacts| {
    facts.machines.retain(|name, _| name.starts_with("pool-84dff"));
})]
#[case::the_deployment_is_deleted(WaitKind::DriverRetry, |facts: &mut NamespaceFacts| {
    let deployment = facts.deployments.get_mut("pool").unwrap();
    deployment.metadata.deletion_timestamp = serde_json::from_value(json!(at(500))).unwrap();
})]
#[case::the_join_is_young(WaitKind::NodeJoin, |facts: &mut NamespaceFacts| {
    let machine = facts.machines.get_mut("pool-84dff-jpgkd").unwrap();
    machine.metadata.creation_timestamp = serde_json::from_value(json!(at(NOW - 30))).unwrap();
})]
#[case::it_waits_for_another_reason(WaitKind::CloudOperation, |_: &mut NamespaceFacts| {})]
fn undo_is_no_remedy_where_it_does_not_help(#[case] kind: WaitKind, #[case] change: fn(&mut NamespaceFacts)) {
    let mut facts = failing(kind, "something", &json!({}));
    change(&mut facts);
    let answer = facts.answer(&facts.find("machine/pool-84dff-jpgkd").unwrap());
    assert!(!texts(&answer.waits[0].remedies).contains(&UNDO), "{answer:#?}");
}

/// The second-highest revision is not that of the machines that run.
#[test]
fn undo_names_the_revision_that_runs() {
    let mut facts = failing(WaitKind::DriverRetry, "no stock", &json!({}));
    let set: (String, MachineSet) = object(
        SET,
        "pool-old",
        Some((DEPLOYMENT, "pool")),
        &json!({
            "metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}},
            "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {"class": {"kind": "MachineClass", "name": "large"}}}},
        }),
    );
    facts.sets.extend([set]);
    facts.machines.retain(|name, _| name.starts_with("pool-84dff"));
    facts.machines.extend([machine("pool-old", "a", "large", "Running", &json!({}))]);
    assert_eq!(first_of(&facts, "machine/pool-84dff-jpgkd"), format!("{UNDO} --to-revision 1"));
}

#[rstest]
#[case::alike("larg", Some("large"))]
#[case::other_letters("smalll", Some("small"))]
#[case::nothing_alike("gpu-zone-3", None)]
fn a_class_whose_name_is_alike_is_proposed_for_a_missing_one(#[case] wanted: &str, #[case] meant: Option<&str>) {
    let mut facts = failing(WaitKind::Class, &format!("the MachineClass {wanted}, which does not exist"), &json!({}));
    wanted.clone_into(&mut facts.deployments.get_mut("pool").unwrap().spec.template.spec.class.name);
    let wait = Wait::new(WaitKind::Class, String::new(), None);
    let found = facts.remedies_of(&wait, &facts.subject(DEPLOYMENT, "pool"));
    let patch = |meant: &str| {
        let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"class":{{"name":"{meant}"}}}}}}}}}}"#);
        format!("kubectl patch machinedeployments.machine.sapcloud.io pool -n demo --type merge -p '{patch}'")
    };
    let proposed = found.iter().find(|one| one.text.starts_with("kubectl patch")).map(|one| one.text.clone());
    assert_eq!(proposed, meant.map(patch));
}

#[rstest]
#[case::with_a_vm("simulated:///a", "mcm machine forget pool-6d689-gmjqk -n demo --leave-vm")]
#[case::without_a_vm("", "mcm machine forget pool-6d689-gmjqk -n demo")]
fn a_machine_whose_class_is_gone_is_forgotten_and_no_finalizer_is_edited(#[case] vm: &str, #[case] command: &str) {
    let none = json!({});
    let mut facts = pool(1, vec![machine("pool-6d689", "gmjqk", "large", "Terminating", &none)]);
    facts.classes.clear();
    vm.clone_into(&mut facts.machines.get_mut("pool-6d689-gmjqk").unwrap().spec.provider_id);
    let wait = Wait::new(WaitKind::Class, "the MachineClass large, which does not exist".to_owned(), None);
    let found = facts.remedies_of(&wait, &facts.subject(MACHINE, "pool-6d689-gmjqk"));
    assert_eq!(texts(&found)[..2], ["create MachineClass large in namespace demo again", command]);
    assert!(!found.iter().any(|one| one.text.contains("finalizer")), "{found:#?}");
}

#[test]
fn a_secret_without_user_data_is_shown_and_not_created_again() {
    let mut facts = failing(WaitKind::Secret, "the key userData in the Secrets of the class", &json!({}));
    for class in facts.classes.values_mut() {
        class.secret_ref = serde_json::from_value(json!({"name": "keys", "namespace": "demo"})).unwrap();
    }
    let answer = facts.answer(&facts.find("machine/pool-84dff-jpgkd").unwrap());
    let found = texts(&answer.waits[0].remedies);
    for expected in ["add the key userData to Secret keys in namespace demo", "kubectl describe secret keys -n demo"] {
        assert!(found.contains(&expected), "{found:#?}");
    }
    assert!(!found.iter().any(|text| text.starts_with("create ")), "{found:#?}");
    for answer in [answer, facts.answer(&facts.find("pool").unwrap())] {
        assert!(answer.ruled_out.iter().all(|one| one.check != "class"), "{:?}", answer.ruled_out);
    }
}

fn budget(healthy: i32, desired: i32, unready: &[&str]) -> BudgetState {
    let pod = |name: &&str| UnreadyPod { name: (*name).to_owned(), node: Some(format!("node-of-{name}")) };
    BudgetState {
        namespace: "demo".to_owned(),
        name: "strict".to_owned(),
        allowed: 0,
        healthy,
        desired,
        expected: 3,
        nodes: [].into(),
        unready: unready.iter().map(pod).collect(),
        evicts_unready: false,
        amounts: json!({"minAvailable": desired, "maxUnavailable": null}),
    }
}

#[test]
fn a_pod_that_is_not_ready_is_named_and_its_budget_is_not_weakened() {
    let mut facts = pool(1, vec![blocked("pool-6d689", "gmjqk")]);
    let machine = facts.machines.get_mut("pool-6d689-gmjqk").unwrap();
    let condition = &mut machine.status.as_mut().unwrap().conditions[0];
    condition.message = Some("budget demo/strict allows no eviction now".into());
    facts.budgets.insert("demo/strict".to_owned(), budget(2, 2, &["web-b"]));
    let answer = facts.answer(&facts.find("machine/pool-6d689-gmjqk").unwrap());
    let text =
        "budget demo/strict to allow an eviction: 2 of 3 pods are healthy, and 2 have to be: demo/web-b is not Ready";
    assert_eq!(answer.waits[0].text, text);
    let found = texts(&answer.waits[0].remedies);
    assert_eq!(found[0], "kubectl describe pod web-b -n demo");
    assert!(!found.iter().any(|text| text.starts_with("kubectl patch pdb")), "{found:#?}");
}

/// The API server lets pods be evicted that are not Ready while enough others are.
#[rstest]
#[case::enough_are_healthy(2, "node-of-web-b", false)]
#[case::too_few_are_healthy(1, "node-of-web-b", true)]
#[case::it_is_on_another_node(1, "elsewhere", false)]
fn a_pod_that_is_not_ready_on_the_drained_node_may_be_evicted_first(
    #[case] healthy: i32,
    #[case] node: &str,
    #[case] is_offered: bool,
) {
    let found = of_budget(&budget(healthy, 2, &["web-b"]), Some(node));
    let policy =
        r#"kubectl patch pdb strict -n demo --type merge -p '{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}'"#;
    assert_eq!(texts(&found).contains(&policy), is_offered, "{found:#?}");
}

#[test]
fn a_budget_that_never_allows_an_eviction_is_changed_and_restored() {
    let found = of_budget(&budget(3, 3, &[]), None);
    let patch = |spec: &str| format!("kubectl patch pdb strict -n demo --type merge -p '{{\"spec\":{spec}}}'");
    let expected =
        [r#"{"maxUnavailable":1,"minAvailable":null}"#, r#"{"maxUnavailable":null,"minAvailable":3}"#].map(patch);
    assert_eq!(texts(&found), expected);
    assert_eq!(found.iter().map(|one| one.danger).collect::<Vec<_>>(), [RemedyDanger::KillsPods, RemedyDanger::Safe]);
}

#[rstest]
#[case::half_way("large", true)]
#[case::without_its_old_class("gone", false)]
fn a_rollout_that_is_paused_half_way_can_be_aborted(#[case] class: &str, #[case] is_offered: bool) {
    let mut facts = failing(WaitKind::NodeJoin, "Node a to join", &json!({}));
    class.clone_into(&mut facts.sets.get_mut("pool-6d689").unwrap().spec.template.spec.class.name);
    let wait = Wait::new(WaitKind::Paused, "the deployment to be resumed: spec.paused is true".to_owned(), None);
    let found = facts.remedies_of(&wait, &facts.subject(DEPLOYMENT, "pool"));
    assert_eq!(texts(&found).contains(&"mcm rollout abort pool -n demo"), is_offered, "{found:#?}");
}

#[test]
fn a_frozen_set_is_unfrozen_by_name() {
    let mut facts = pool(1, Vec::new());
    let wait = Wait::new(WaitKind::ScaleUpBlocked, "the set to be unfrozen (label freeze=True)".to_owned(), None);
    let set = facts.subject(SET, "pool-84dff");
    let unfreeze = "mcm unfreeze machineset/pool-84dff -n demo";
    assert_ne!(facts.remedies_of(&wait, &set)[0].text, unfreeze, "it is not frozen");
    let labels = [(labels::FREEZE.to_owned(), labels::TRUE.to_owned())];
    facts.sets.get_mut("pool-84dff").unwrap().metadata.labels = Some(labels.into());
    assert_eq!(facts.remedies_of(&wait, &set)[0].text, unfreeze);
}

/// A patch with what is stored changes nothing.
#[test]
fn a_budget_whose_pods_have_no_controller_is_not_changed() {
    let amounts = json!({"minAvailable": null, "maxUnavailable": 1});
    let same = BudgetState { amounts: amounts.clone(), ..budget(3, 3, &[]) };
    assert_eq!(of_budget(&same, None), []);
    let mut facts = pool(1, vec![blocked("pool-6d689", "gmjqk")]);
    let uncounted = BudgetState { expected: 0, nodes: ["a".to_owned()].into(), amounts, ..budget(0, 0, &[]) };
    facts.budgets.insert("demo/strict".to_owned(), uncounted);
    let answer = facts.answer(&facts.find("machine/pool-6d689-gmjqk").unwrap());
    let text = "budget demo/strict to allow an eviction: its pods have no controller, so it counts none of them";
    assert_eq!((answer.verdict, answer.waits[0].text.as_str()), (ObjectVerdict::Blocked, text));
    let found = texts(&answer.waits[0].remedies);
    let list = "kubectl get pods -n demo --field-selector spec.nodeName=pool-6d689-gmjqk";
    assert_eq!(found[..2], [list, "delete the pods of budget demo/strict by hand"]);
    assert!(found.contains(&"mcm drain force pool-6d689-gmjqk -n demo"), "{found:#?}");
    assert!(!found.iter().any(|text| text.contains("patch pdb") || text.starts_with("scale ")), "{found:#?}");
}

#[test]
fn each_command_of_an_answer_has_the_flags_of_the_call() {
    let mut facts = blocked_pool();
    facts.place.call.control = vec![("--context", "blue".to_owned())];
    let answer = facts.answer(&facts.find("pool").unwrap());
    let text = crate::report::one(TerminalLook::PLAIN, &answer, None, &[], &facts);
    let is_command = |line: &&str| ["kubectl ", "mcm "].iter().any(|program| line.starts_with(program));
    let commands: Vec<&str> = text.lines().filter_map(|line| line.get(13..)).filter(is_command).collect();
    assert!(commands.len() > 1 && commands.iter().all(|line| line.contains(" --context blue")), "{text}");
}

#[test]
fn no_command_is_printed_for_a_target_that_is_unknown() {
    let mut facts = blocked_pool();
    facts.place.is_target_unknown = true;
    facts.place.call.control = vec![("--context", "blue".to_owned())];
    let answer = facts.answer(&facts.find("machine/pool-6d689-gmjqk").unwrap());
    let found = texts(&answer.waits[0].remedies);
    assert!(!found.iter().any(|text| text.contains("kubectl ") && text.contains(" pdb ")), "{found:#?}");
    assert_eq!(found.iter().filter(|text| text.contains("--target-kubeconfig FILE")).count(), 1, "{found:#?}");
    assert!(
        found.iter().any(|text| text.starts_with("mcm drain force ") && text.contains("--context blue")),
        "{found:#?}"
    );
}

/// Situation 20: the annotation of the Node takes precedence.
#[rstest]
#[case::of_the_machine(
    labels::PRESERVE,
    "kubectl annotate machines.machine.sapcloud.io pool-84dff-a -n demo node.machine.sapcloud.io/preserve=false --overwrite"
)]
#[case::of_the_node(
    labels::LAST_NODE_PRESERVE,
    "kubectl annotate nodes pool-84dff-a node.machine.sapcloud.io/preserve=false --overwrite"
)]
fn a_preservation_is_ended_where_it_was_requested(#[case] annotation: &str, #[case] expected: &str) {
    let more = json!({"metadata": {"annotations": {annotation: "now"}}});
    let mut facts = pool(1, vec![machine("pool-84dff", "a", "small", "Running", &more)]);
    let waits =
        [(WaitKind::Preservation, "the preservation to end, which node.machine.sapcloud.io/preserve=now asks for")];
    let planned = preview(MACHINE, "pool-84dff-a", &[], &waits);
    facts.previews.get_mut(MACHINE).unwrap().insert("pool-84dff-a".to_owned(), planned);
    let answer = facts.answer(&facts.find("machine/pool-84dff-a").unwrap());
    let remedies = answer.remedies().into_iter().filter(|remedy| remedy.danger != RemedyDanger::Safe);
    let texts: Vec<&str> = remedies.map(|remedy| remedy.text.as_str()).collect();
    assert_eq!(texts, [expected]);
}
