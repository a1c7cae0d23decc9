use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    error::UnreadError,
    manager::ManagerFreeze,
    progress::{self, RolloutState},
    report,
    terminal::{TerminalLook, ago},
    testing,
};
use mcm_runtime::engaged::switch::ParkCause;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Ten minutes after the epoch.
const NOW: i64 = 600;

fn object<T: serde::de::DeserializeOwned>(kind: &str, name: &str, owner: Option<(&str, &str)>, more: &Value) -> T {
    let owners: Vec<Value> = owner
        .iter()
        .map(|(kind, name)| {
            json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": "u", "controller": true})
        })
        .collect();
    let mut value = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "demo", "ownerReferences": owners}, "spec": {},
    });
    for (key, part) in more.as_object().unwrap() {
        match (value.get_mut(key).and_then(Value::as_object_mut), part.as_object()) {
            (Some(known), Some(part)) => known.extend(part.clone()),
            _ => value[key] = part.clone(),
        }
    }
    serde_json::from_value(value).unwrap()
}

fn preview(
    kind: &'static str,
    name: &str,
    steps: &[(&str, bool)],
    waits: &[(WaitKind, &str)],
) -> ((&'static str, String), PlanPreview) {
    let step = |(action, is_look): &(&str, bool)| PreviewStep {
        object: None,
        action: (*action).to_owned(),
        reason: "a reason".to_owned(),
        is_status: false,
        is_look: *is_look,
    };
    let wait = |(kind, text): &(WaitKind, &str)| Wait::new(*kind, (*text).to_owned(), Some(at(660)));
    let object = SubjectRef { kind: kind.to_owned(), namespace: "demo".to_owned(), name: name.to_owned() };
    let (steps, waits) = (steps.iter().map(step).collect(), waits.iter().map(wait).collect());
    ((kind, name.to_owned()), PlanPreview { object, controller: "c", steps, waits })
}

fn manager(role: &str, renewed: i64) -> ManagerLease {
    testing::held_lease(&format!("lease-of-{role}"), role, "mcm-0", at(renewed))
}

fn one<T>(name: &str, object: T) -> ByName<T> {
    BTreeMap::from([(name.to_owned(), object)])
}

/// A deployment with a set and a machine that is `more`, and the plans of the three.
fn family(more: &Value, previews: [((&'static str, String), PlanPreview); 3]) -> NamespaceFacts {
    NamespaceFacts {
        now: at(NOW),
        namespace: "demo".to_owned(),
        place: CallTarget::default(),
        deployments: one("pool", object(DEPLOYMENT, "pool", None, &json!({"spec": {"replicas": 1, "template": {}}}))),
        sets: one("pool-1", object(SET, "pool-1", Some((DEPLOYMENT, "pool")), &json!({"spec": {"replicas": 1}}))),
        machines: one("pool-1-a", object(MACHINE, "pool-1-a", Some((SET, "pool-1")), more)),
        classes: BTreeMap::new(),
        unreadable: Vec::new(),
        previews: previews.into_iter().map(|((kind, name), preview)| (kind, one(&name, preview))).collect(),
        managers: vec![manager("sets", NOW - 2), manager("machines", NOW - 2)],
        unread: Vec::new(),
        unserved: BTreeSet::new(),
        memory: Memory::default(),
        budgets: BTreeMap::new(),
        zones: BTreeMap::new(),
        owned: OwnedMachines::default(),
        places: PlaceCounts::default(),
    }
}

fn settled() -> [((&'static str, String), PlanPreview); 2] {
    [preview(DEPLOYMENT, "pool", &[], &[]), preview(SET, "pool-1", &[], &[])]
}

fn with_machine(more: &Value, steps: &[(&str, bool)], waits: &[(WaitKind, &str)]) -> NamespaceFacts {
    let [deployment, set] = settled();
    family(more, [deployment, set, preview(MACHINE, "pool-1-a", steps, waits)])
}

#[rstest]
#[case::settled(&[], &[], ObjectVerdict::Settled)]
#[case::routine(&[], &[(WaitKind::VmCheck, "the next check of the VM")], ObjectVerdict::Settled)]
#[case::acts(&[("create VM", false)], &[], ObjectVerdict::Progressing)]
#[case::others_act(&[], &[(WaitKind::NodeJoin, "Node a to join")], ObjectVerdict::Waiting)]
#[case::a_user_acts(&[], &[(WaitKind::NodeJoin, "Node a to join"), (WaitKind::Secret, "Secret s")], ObjectVerdict::Blocked)]
fn a_deployment_is_as_its_worst_machine(
    #[case] steps: &[(&str, bool)],
    #[case] waits: &[(WaitKind, &str)],
    #[case] expected: ObjectVerdict,
) {
    let facts = with_machine(&json!({}), steps, waits);
    for name in ["pool", "machineset/pool-1", "mc/pool-1-a"] {
        let object = facts.find(name).unwrap();
        assert_eq!(facts.answer(&object).verdict, expected, "{name}");
    }
    let shown = facts.all().len();
    assert_eq!(shown, usize::from(expected != ObjectVerdict::Settled));
}

/// Its manager is that of the provider for Cluster API, which plans it.
#[rstest]
#[case::in_place("Running", ObjectVerdict::Settled)]
#[case::without_a_node("Pending", ObjectVerdict::Waiting)]
fn a_machine_of_the_provider_is_not_blocked_by_its_owner(#[case] phase: &str, #[case] expected: ObjectVerdict) {
    let more = json!({
        "metadata": { "labels": { (labels::POOL): "p" } },
        "status": { "currentStatus": { "phase": phase } },
    });
    let hold = "the manager of MCMMachinePool p, which owns this object";
    let facts = with_machine(&more, &[], &[(WaitKind::Hold, hold)]);
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    assert_eq!(answer.verdict, expected, "{answer:?}");
    assert!(answer.waits.iter().all(|wait| wait.text == hold && wait.remedies.is_empty()), "{answer:?}");
}

#[rstest]
#[case::complete(3, ObjectVerdict::Settled)]
#[case::without_a_machine(2, ObjectVerdict::Waiting)]
fn a_machine_pool_of_the_provider_is_not_blocked_by_its_owner(#[case] count: usize, #[case] expected: ObjectVerdict) {
    let none = json!({});
    let machine = |number: usize| testing::machine("pool-84dff", &number.to_string(), "small", "Running", &none);
    let facts = testing::of_machine_pool(testing::pool(3, (0..count).map(machine).collect()));
    let answer = facts.answer(&facts.subject(DEPLOYMENT, "pool"));
    assert_eq!((answer.verdict, answer.remedies().len()), (expected, 0), "{answer:?}");
    let set = facts.answer(&facts.subject(SET, "pool-84dff"));
    assert_eq!(set.verdict, ObjectVerdict::Settled, "{set:?}");
    let all = facts.all().into_iter().filter(|one| one.object.kind != CLASS);
    assert_eq!(all.map(|one| one.verdict).max().unwrap_or(ObjectVerdict::Settled), expected);
    let state = facts.state(&facts.progress("pool").unwrap(), &answer);
    assert_eq!(state == RolloutState::Done, expected == ObjectVerdict::Settled, "{state:?}");
}

#[test]
fn the_lease_of_a_native_manager_is_missed_only_where_it_has_objects() {
    let machine = testing::machine("pool-84dff", "a", "small", "Running", &json!({}));
    let mut facts = testing::of_machine_pool(testing::pool(1, vec![machine]));
    for manager in &mut facts.managers {
        (manager.exists, manager.renewed) = (false, None);
    }
    let text = |facts: &NamespaceFacts| report::all(TerminalLook::PLAIN, &[], facts, &[]);
    assert!(!text(&facts).contains("Lease"), "{}", text(&facts));
    assert!(facts.manager_for(&facts.subject(DEPLOYMENT, "pool")).is_none());
    facts.deployments.values_mut().for_each(|one| one.labels_mut().clear());
    assert!(text(&facts).contains("there is no Lease lease-of-sets"), "{}", text(&facts));
    assert!(facts.manager_for(&facts.subject(DEPLOYMENT, "pool")).is_some());
}

#[test]
fn a_wait_for_a_user_comes_first_with_its_remedies() {
    let waits = [(WaitKind::NodeJoin, "Node a to join"), (WaitKind::Class, "class large")];
    let facts = with_machine(&json!({}), &[], &waits);
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    assert_eq!(answer.waits.iter().map(|wait| wait.kind).collect::<Vec<_>>(), [WaitKind::Class, WaitKind::NodeJoin]);
    assert!(
        answer.waits[0]
            .remedies
            .iter()
            .any(|remedy| remedy.text == "kubectl get machineclasses.machine.sapcloud.io -n demo")
    );
    let owners: Vec<&str> = answer.owners.iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(owners, ["pool-1", "pool"]);
}

#[test]
fn without_a_manager_nothing_progresses() {
    let mut facts = with_machine(&json!({}), &[("create VM", false)], &[]);
    facts.managers = vec![manager("sets", NOW), manager("machines", NOW - 120)];
    let answer = facts.answer(&facts.find("pool").unwrap());
    assert_eq!(answer.verdict, ObjectVerdict::Blocked);
    facts.previews.insert(MACHINE, preview_of_join());
    let waiting = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    assert_eq!(waiting.waits.iter().map(|wait| wait.kind).collect::<Vec<_>>(), [WaitKind::Manager, WaitKind::NodeJoin]);
    let text = "a manager, and none runs: mcm-0 renewed the Lease lease-of-machines 2m ago";
    assert_eq!((waiting.verdict, waiting.waits[0].text.as_str()), (ObjectVerdict::Blocked, text));
    let manager = facts.manager_of(MACHINE).unwrap();
    assert_eq!(manager.state(facts.now), "no manager runs: mcm-0 renewed the Lease lease-of-machines 2m ago");
}

fn preview_of_join() -> ByName<PlanPreview> {
    let ((_, name), preview) = preview(MACHINE, "pool-1-a", &[], &[(WaitKind::NodeJoin, "Node a to join")]);
    one(&name, preview)
}

#[rstest]
#[case::of_machines(DEPLOYMENT, "ReplicaFailure", "True", "FailedCreate")]
#[case::of_machines_of_a_set(SET, "ReplicaFailure", "True", "FailedCreate")]
#[case::of_sets(DEPLOYMENT, "Progressing", "False", "MachineSetCreateError")]
fn a_refused_write_blocks_although_a_step_is_planned(
    #[case] kind: &'static str,
    #[case] type_: &str,
    #[case] status: &str,
    #[case] reason: &str,
) {
    let mut facts = with_machine(&json!({}), &[], &[]);
    let name = if kind == SET { "pool-1" } else { "pool" };
    let message = "machines.machine.sapcloud.io \"pool-1-a\" is forbidden: class small is not allowed";
    let condition = json!({"type": type_, "status": status, "reason": reason, "message": message});
    let conditions = if kind == SET { "machineSetCondition" } else { "conditions" };
    let status = json!({ conditions: [condition] });
    match kind {
        SET => facts.sets.get_mut(name).unwrap().status = serde_json::from_value(status).unwrap(),
        _ => facts.deployments.get_mut(name).unwrap().status = serde_json::from_value(status).unwrap(),
    }
    let ((_, named), planned) = preview(kind, name, &[("create machine", false)], &[]);
    facts.previews.insert(kind, one(&named, planned));
    let answer = facts.answer(&facts.find("pool").unwrap());
    let waits = answer.waits.iter().chain(answer.sets.iter().flat_map(|set| &set.waits));
    let texts: Vec<&str> = waits.map(|wait| wait.text.as_str()).collect();
    assert_eq!(answer.verdict, ObjectVerdict::Blocked, "{answer:#?}");
    assert!(texts.iter().any(|text| text.contains("class small is not allowed")), "{texts:?}");
}

#[test]
fn a_deployment_is_blocked_since_its_worst_machine_is() {
    let phase = json!({"status": {"currentStatus": {"phase": "Pending", "lastUpdateTime": at(595)}}});
    let mut facts = with_machine(&phase, &[], &[(WaitKind::Secret, "Secret s")]);
    let progressing = json!({"conditions": [{"type": "Progressing", "status": "True", "lastUpdateTime": at(0)}]});
    facts.deployments.get_mut("pool").unwrap().status = serde_json::from_value(progressing).unwrap();
    let since = |facts: &NamespaceFacts| facts.answer(&facts.find("pool").unwrap()).since;
    assert_eq!(since(&facts), Some(at(595)), "not since the last progress");
    facts.memory.explained = serde_json::from_value(json!([{
        "object": {"kind": "Machine", "name": "pool-1-a"},
        "waits": [{"kind": "Secret", "text": "Secret s", "since": at(590), "plans": 1}],
    }]))
    .unwrap();
    assert_eq!(since(&facts), Some(at(590)), "the manager remembers it");
}

#[test]
fn a_namespace_that_was_not_read_gets_no_all_clear() {
    let mut facts = with_machine(&json!({}), &[], &[]);
    assert_eq!(
        report::all(TerminalLook::PLAIN, &[], &facts, &[]).lines().next(),
        Some("nothing waits in namespace demo")
    );
    facts.unread = vec!["secrets".to_owned()];
    assert_eq!(facts.unread_kinds(), [""; 0]);
    facts.unread.push("machines".to_owned());
    let text = report::all(TerminalLook::PLAIN, &[], &facts, &[]);
    assert!(text.starts_with("nothing that was read waits in namespace demo; machines could not be read"), "{text}");
    let error = crate::reader::find(&facts, "other").unwrap_err().to_string();
    assert!(error.starts_with("whether there is other in namespace demo is unknown"), "{error}");
}

#[test]
fn an_object_that_cannot_be_decoded_is_unknown_and_named_with_its_correction() {
    let mut facts = with_machine(&json!({}), &[], &[]);
    let (kind, name) = (DEPLOYMENT.to_owned(), "broken".to_owned());
    facts.unreadable.push(UndecodableObject {
        kind,
        name,
        owner: None,
        error: "spec.replicas is no number".to_owned(),
    });
    assert!(!facts.is_whole());
    let all = facts.all();
    let [one] = all.as_slice() else { panic!("{all:?}") };
    let command = "kubectl edit machinedeployments.machine.sapcloud.io broken -n demo";
    assert_eq!((one.verdict, one.waits[0].remedies[0].text.as_str()), (ObjectVerdict::Unknown, command));
    let text = report::all(TerminalLook::PLAIN, &all, &facts, &[]);
    assert!(text.contains("MachineDeployment/broken") && text.contains("spec.replicas is no number"), "{text}");
    let error = crate::reader::find_deployment(&facts, "broken").unwrap_err();
    let hint = error.downcast_ref::<UnreadError>().map(|unread| unread.hint.clone());
    assert_eq!(hint, Some(format!("{command} corrects it")));
    let error = crate::reader::find(&facts, "machine/broken").unwrap_err().to_string();
    assert!(error.starts_with("there is no machine/broken"), "a deployment is no machine: {error}");
}

/// The three facts of which each command once had its own word.
#[rstest]
#[case::a_budget_that_never_allows_an_eviction(
    json!({"metadata": {"deletionTimestamp": at(360)}, "status": {"conditions": [{"type": "DrainBlocked", "status": "True",
        "message": "budget demo/strict allows no eviction although all its pods are healthy"}]}}),
    &[], ObjectVerdict::Blocked
)]
#[case::a_budget_that_is_misconfigured(
    json!({"metadata": {"deletionTimestamp": at(360)}, "status": {"conditions": [{"type": "DrainBlocked", "status": "True",
        "message": "budget demo/strict is misconfigured and requires zero voluntary evictions"}]}}),
    &[], ObjectVerdict::Blocked
)]
#[case::a_budget_without_room_now(
    json!({"metadata": {"deletionTimestamp": at(360)}, "status": {"conditions": [{"type": "DrainBlocked", "status": "True",
        "message": "budget demo/strict allows none"}]}}),
    &[], ObjectVerdict::Waiting
)]
#[case::a_wrong_class(json!({}), &[(WaitKind::Class, "class wrong to exist")], ObjectVerdict::Blocked)]
#[case::a_join(json!({}), &[(WaitKind::NodeJoin, "Node a to join")], ObjectVerdict::Waiting)]
fn a_fact_has_one_verdict_in_all_answers(
    #[case] more: Value,
    #[case] waits: &[(WaitKind, &str)],
    #[case] expected: ObjectVerdict,
) {
    let mut facts = with_machine(&more, &[], waits);
    let own = [(WaitKind::Rollout, "1 machine of new set pool-1 to become available")];
    facts.previews.get_mut(DEPLOYMENT).unwrap().insert("pool".to_owned(), preview(DEPLOYMENT, "pool", &[], &own).1);
    for one in facts.all() {
        assert_eq!(one.verdict, expected, "{}", one.argument());
        assert_eq!(facts.answer(&one.object).verdict, expected, "{}", one.argument());
    }
    let answer = facts.answer(&facts.find("pool").unwrap());
    let state = facts.state(&facts.progress("pool").unwrap(), &answer);
    match expected {
        ObjectVerdict::Blocked => assert!(matches!(state, RolloutState::Blocked(_)), "{state:?}"),
        _ => assert!(!matches!(state, RolloutState::Blocked(_)), "{state:?}"),
    }
    let blockers = crate::plan::obstacles::of_now(&answer, false);
    let is_blocked = blockers.iter().any(|one| one.severity == crate::plan::answer::BlockerSeverity::Blocks);
    assert_eq!(is_blocked, expected == ObjectVerdict::Blocked, "{blockers:?}");
}

/// For every kind of wait, of a machine and of its set: what only a user ends is blocked in each answer.
#[test]
fn each_kind_of_wait_has_one_verdict_in_all_answers() {
    for kind in WaitKind::ALL {
        for (kind_of_object, name) in [(MACHINE, "pool-1-a"), (SET, "pool-1"), (DEPLOYMENT, "pool")] {
            let mut facts = with_machine(&json!({}), &[], &[]);
            let waits = [(kind, "something")];
            let (_, planned) = preview(kind_of_object, name, &[], &waits);
            facts.previews.get_mut(kind_of_object).unwrap().insert(name.to_owned(), planned);
            let answer = facts.answer(&facts.find("pool").unwrap());
            let is_blocked = answer.verdict == ObjectVerdict::Blocked;
            assert_eq!(is_blocked, kind.guide().end == WaitEnd::User, "{kind:?} of {name}");
            let worst = facts.all().into_iter().map(|one| one.verdict).max();
            let own = facts.answer(&facts.subject(kind_of_object, name)).verdict;
            assert_eq!(worst.unwrap_or(ObjectVerdict::Settled), own, "{kind:?} of {name}");
            let blockers = crate::plan::obstacles::of_now(&answer, false);
            let blocks = blockers.iter().any(|one| one.severity == crate::plan::answer::BlockerSeverity::Blocks);
            let state = facts.state(&facts.progress("pool").unwrap(), &answer);
            let is_done = matches!(state, RolloutState::Done | RolloutState::Failed(_));
            assert_eq!(blocks, is_blocked, "{kind:?} of {name}: {blockers:?}");
            assert_eq!(matches!(state, RolloutState::Blocked(_)), is_blocked && !is_done, "{kind:?} of {name}");
        }
    }
}

/// The manager acts on no machine, so the steps that a reader plans do not happen. Its Lease says so, without any port.
#[rstest]
#[case::a_step_is_planned(&[("delete VM", false)], &[])]
#[case::the_nodes_are_awaited(&[], &[(WaitKind::NodesUnknown, "the Nodes")])]
fn a_frozen_manager_is_the_first_wait_of_a_machine(#[case] steps: &[(&str, bool)], #[case] waits: &[(WaitKind, &str)]) {
    let mut facts = with_machine(&json!({}), steps, waits);
    let frozen = ManagerFreeze { since: at(540), why: "the API server target does not answer: timeout".to_owned() };
    facts.managers.iter_mut().for_each(|manager| manager.frozen = Some(frozen.clone()));
    let object = facts.find("machine/pool-1-a").unwrap();
    let answer = facts.answer(&object);
    let told = |wait: &ExplainedWait| (wait.kind, wait.since, wait.text.contains("API server target does not answer"));
    assert_eq!(answer.waits.iter().map(told).collect::<Vec<_>>(), [(WaitKind::NodesUnknown, Some(at(540)), true)]);
    assert_eq!((answer.verdict, answer.next.len()), (ObjectVerdict::Waiting, 0));
    assert!(!answer.ruled_out.iter().any(|one| one.check == "manager"), "{:?}", answer.ruled_out);
    // A manager that is gone has no say.
    facts.managers.iter_mut().for_each(|manager| manager.renewed = Some(at(0)));
    assert_eq!(facts.answer(&object).waits[0].kind, WaitKind::Manager);
}

/// The facts with managers that renew their Leases, and whose namespace is parked.
fn parked(facts: NamespaceFacts, cause: ParkCause) -> NamespaceFacts {
    let park = |manager: ManagerLease| ManagerLease { parked: Some(ManagerPark::new(cause, "demo")), ..manager };
    NamespaceFacts { managers: facts.managers.into_iter().map(park).collect(), ..facts }
}

/// The wait of a namespace whose Deployment has 0 replicas.
const OFF: &str = "the Deployment demo/machine-controller-manager to have replicas: with 0 the namespace is parked";
/// The command that ends it.
const SCALE_UP: &str = "kubectl scale deployment machine-controller-manager -n demo --replicas=1";

/// Its manager renews the Lease and acts on nothing, so the steps that a reader plans do not happen.
#[test]
fn a_parked_namespace_is_the_first_wait_of_each_object_with_something_to_do() {
    let facts = with_machine(&json!({}), &[("delete VM", false)], &[(WaitKind::NodeJoin, "Node a to join")]);
    let mut facts = parked(facts, ParkCause::NoReplicas);
    let frozen = ManagerFreeze { since: at(540), why: "the API server target does not answer: timeout".to_owned() };
    facts.managers.iter_mut().for_each(|manager| manager.frozen = Some(frozen.clone()));
    let object = facts.find("machine/pool-1-a").unwrap();
    let answer = facts.answer(&object);
    let waits = |answer: &ObjectAnswer| -> Vec<(WaitKind, String)> {
        answer.waits.iter().map(|wait| (wait.kind, wait.text.clone())).collect()
    };
    let expected = [(WaitKind::Hold, OFF.to_owned()), (WaitKind::NodeJoin, "Node a to join".to_owned())];
    assert_eq!(waits(&answer), expected, "a frozen target of a parked namespace may be shut down");
    assert_eq!((answer.verdict, answer.next.len()), (ObjectVerdict::Blocked, 0));
    assert_eq!(answer.remedies()[0].text, SCALE_UP);
    assert!(!answer.ruled_out.iter().any(|one| one.check == "manager"), "{:?}", answer.ruled_out);
    assert_eq!(facts.park_note().unwrap(), format!("the manager waits for {OFF}: {SCALE_UP}"));
    // The manager was asked, and remembers the same.
    let remembered = json!({
        "object": {"kind": "Machine", "name": "pool-1-a"},
        "waits": [{"kind": "Hold", "text": OFF, "since": at(60), "plans": 2}],
    });
    facts.memory.explained.push(serde_json::from_value(remembered).unwrap());
    let answer = facts.answer(&object);
    assert_eq!(waits(&answer), [(WaitKind::Hold, OFF.to_owned())]);
    assert_eq!((answer.waits[0].since, answer.remedies()[0].text.as_str()), (Some(at(60)), SCALE_UP));
}

#[test]
fn a_settled_namespace_that_is_parked_has_no_wait_and_its_manager_says_so() {
    let facts = parked(with_machine(&json!({}), &[], &[]), ParkCause::Terminating);
    let answers = facts.all();
    assert!(answers.is_empty(), "{answers:?}");
    let text = report::all(TerminalLook::PLAIN, &answers, &facts, &[]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("mcm-0 holds both Leases, and renews them; the namespace is parked"), "{text}");
    let note = facts.park_note().unwrap();
    assert!(note.contains("this one is being deleted") && !note.contains("kubectl"), "{note}");
}

#[test]
fn a_frozen_target_comes_before_the_token_that_could_not_be_created_in_it() {
    let token = "Waiting for a bootstrap token: create Secret kube-system/bootstrap-token-a: client error (Connect)";
    let more = json!({"status": {"lastOperation": {"type": "Create", "state": "Processing", "description": token}}});
    let mut facts = with_machine(&more, &[], &[]);
    let frozen = ManagerFreeze { since: at(540), why: "the API server target does not answer: timeout".to_owned() };
    facts.managers.iter_mut().for_each(|manager| manager.frozen = Some(frozen.clone()));
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    let kinds: Vec<WaitKind> = answer.waits.iter().map(|wait| wait.kind).collect();
    assert_eq!(kinds, [WaitKind::NodesUnknown, WaitKind::BootstrapToken]);
    assert_eq!(answer.verdict, ObjectVerdict::Waiting, "no user has to act");
}

#[test]
fn a_wait_that_the_manager_remembers_beats_a_step_that_is_planned_here() {
    let mut facts = with_machine(&json!({}), &[("delete VM", false)], &[]);
    let object = facts.find("machine/pool-1-a").unwrap();
    assert_eq!(facts.answer(&object).verdict, ObjectVerdict::Progressing);
    facts.memory.explained = serde_json::from_value(json!([{
        "object": {"kind": "Machine", "name": "pool-1-a"},
        "waits": [{"kind": "NodesUnknown", "text": "the Nodes", "since": at(540), "plans": 1}],
    }]))
    .unwrap();
    assert_eq!(facts.answer(&object).verdict, ObjectVerdict::Waiting);
}

/// The manager remembers the last answer for each pod, and the object the cause.
#[test]
fn the_text_that_the_object_shows_is_preferred_to_that_of_the_manager() {
    let blocked = json!({
        "metadata": {"deletionTimestamp": at(360)},
        "spec": {"drainTimeout": "10m"},
        "status": {"conditions": [{"type": "DrainBlocked", "status": "True",
            "message": "budget demo/strict allows no eviction although all its pods are healthy"}]},
    });
    let mut facts = with_machine(&blocked, &[], &[]);
    let wait = |kind: &str, text: &str, next: i64| json!({"kind": kind, "text": text, "since": at(400), "nextAttempt": at(next), "plans": 3});
    facts.memory.explained = serde_json::from_value(json!([{
        "object": {"kind": "Machine", "name": "pool-1-a"},
        "waits": [
            wait("Eviction", "pod demo/a: eviction refused by the disruption budget demo/strict", 615),
            wait("Eviction", "pod demo/b: eviction refused by the disruption budget demo/strict", 610),
            wait("Eviction", "pod demo/c: eviction refused by the disruption budget demo/other", 620),
            wait("DriverRetry", "the next attempt: machine codes error: code = [Internal] message = [no route]", 630),
        ],
    }]))
    .unwrap();
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    let told = |wait: &ExplainedWait| (wait.text.clone(), wait.next_attempt, wait.forced_at);
    let expected = [
        (format!("budget demo/strict to allow an eviction{}", crate::wording::NEVER), Some(at(610)), Some(at(960))),
        ("pod demo/c: eviction refused by the disruption budget demo/other".to_owned(), Some(at(620)), Some(at(960))),
        ("the next attempt: Internal: no route".to_owned(), Some(at(630)), None),
    ];
    assert_eq!(answer.waits.iter().map(told).collect::<Vec<_>>(), expected);
}

#[test]
fn a_drain_without_progress_is_a_wait_for_evictions_until_the_drain_timeout() {
    let blocked = json!({
        "metadata": {"deletionTimestamp": at(360)},
        "spec": {"drainTimeout": "10m"},
        "status": {"conditions": [{"type": "DrainBlocked", "status": "True", "message": "budget demo/strict allows none"}]},
    });
    let facts = with_machine(&blocked, &[("list pods of node a", true)], &[]);
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    let [wait] = answer.waits.as_slice() else { panic!("{answer:?}") };
    assert_eq!((wait.kind, wait.forced_at), (WaitKind::Eviction, Some(at(960))));
    assert_eq!(wait.text, "budget demo/strict to allow an eviction");
    assert_eq!((answer.next.len(), answer.verdict, answer.state.as_str()), (0, ObjectVerdict::Waiting, "Terminating"));
    assert_eq!(answer.since, Some(at(360)));
}

#[rstest]
#[case::evictions(
    "Evictions are refused by the disruption budget ns/db. Initiate node drain",
    true,
    WaitKind::Eviction,
    "budget ns/db to allow an eviction"
)]
#[case::a_secret("Waiting for Secret demo/pool", false, WaitKind::Secret, "Secret demo/pool")]
#[case::a_token(
    "Waiting for a bootstrap token: create Secret kube-system/bootstrap-token-a: client error (Connect)",
    false,
    WaitKind::BootstrapToken,
    "a bootstrap token: create Secret kube-system/bootstrap-token-a: client error (Connect)"
)]
#[case::a_class(
    "Waiting for a driver for the provider of the MachineClass small",
    false,
    WaitKind::Class,
    "a driver for the provider of the MachineClass small"
)]
#[case::a_write(
    "Waiting for the API server to accept the finalizer",
    false,
    WaitKind::MachineWrite,
    "the API server to accept the finalizer"
)]
fn a_wait_that_the_manager_shows_in_the_status_is_known(
    #[case] description: &str,
    #[case] is_deleted: bool,
    #[case] kind: WaitKind,
    #[case] text: &str,
) {
    let mut more = json!({"status": {"lastOperation": {"state": "Processing", "description": description}}});
    if is_deleted {
        more["metadata"] = json!({"deletionTimestamp": at(360)});
    }
    let facts = with_machine(&more, &[("look", true)], &[]);
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    assert_eq!((answer.waits[0].kind, answer.waits[0].text.as_str()), (kind, text));
    assert_eq!(answer.next, []);
}

#[test]
fn without_the_leases_it_is_unknown_whether_a_controller_acts() {
    let mut facts = with_machine(&json!({}), &[("create a VM", false)], &[]);
    assert_eq!(facts.machine("pool-1-a").verdict, ObjectVerdict::Progressing);
    facts.unread = vec!["leases".to_owned()];
    let answer = facts.machine("pool-1-a");
    assert_eq!((answer.verdict, answer.unread.as_slice()), (ObjectVerdict::Unknown, ["leases"].as_slice()));
    facts = with_machine(&json!({}), &[], &[]);
    facts.unread = vec!["leases".to_owned()];
    assert_eq!(facts.machine("pool-1-a").verdict, ObjectVerdict::Settled, "nothing is to be done");
}

#[test]
fn without_a_lease_a_manager_may_run() {
    let mut facts = with_machine(&json!({}), &[("create VM", false)], &[]);
    facts.managers.iter_mut().for_each(|manager| (manager.exists, manager.holder) = (false, String::new()));
    let answer = facts.answer(&facts.find("pool").unwrap());
    assert_eq!(answer.verdict, ObjectVerdict::Progressing);
    let state = facts.managers[0].state(facts.now);
    assert!(state.starts_with("there is no Lease lease-of-sets"), "{state}");
}

#[test]
fn a_failed_call_of_the_cloud_is_a_wait_for_the_next_one() {
    let failed = json!({
        "status": {
            "currentStatus": {"phase": "CrashLoopBackOff"},
            "lastOperation": {
                "type": "Create", "state": "Failed", "errorCode": "ResourceExhausted",
                "description": "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no stock]",
                "lastUpdateTime": at(540),
            },
        },
    });
    let facts = with_machine(&failed, &[("get VM status", true)], &[]);
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    assert_eq!(answer.failed.as_deref(), Some("no stock (ResourceExhausted), 1m ago"));
    assert_eq!((answer.waits[0].kind, answer.verdict), (WaitKind::DriverRetry, ObjectVerdict::Waiting));
    assert_eq!(answer.waits[0].text, "the next attempt, after ResourceExhausted: no stock");
}

/// As the status shows it, where the manager is not asked.
#[rstest]
#[case::a_denied_eviction(
    "Drain failed due to - pods \"web\" is forbidden: denied request: evictions are disabled. Will retry in next sync. Initiate node drain",
    WaitKind::Eviction
)]
#[case::a_dead_webhook(
    "Drain failed due to - Internal error occurred: failed calling webhook. Will retry in next sync. Initiate node drain",
    WaitKind::Eviction
)]
#[case::a_denied_cordon(
    "Drain failed due to failure in update of node conditions - forbidden. Will retry in next sync. Initiate node drain",
    WaitKind::NodeWriteRefused
)]
#[case::volumes(
    "Deletion of volume attachments failed: forbidden. Delete Volume Attachments",
    WaitKind::VolumeAttachment
)]
#[case::a_node(
    "Node deletion failed due to error: forbidden. Initiate node object deletion",
    WaitKind::NodeWriteRefused
)]
fn a_failed_step_in_the_target_cluster_is_not_a_failed_call_of_the_cloud(
    #[case] description: &str,
    #[case] kind: WaitKind,
) {
    let more = json!({
        "metadata": {"deletionTimestamp": at(360)},
        "status": {"lastOperation": {"type": "Delete", "state": "Failed", "description": description}},
    });
    let facts = with_machine(&more, &[("look", true)], &[]);
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    assert_eq!(answer.waits[0].kind, kind, "{answer:?}");
}

/// The text of a deletion goes on with its step after the message of the cloud.
#[rstest]
#[case::with_its_step(
    "code = [Unauthenticated] message = [the key is invalid]. Aborting operation. Initiate VM deletion",
    "the key is invalid"
)]
#[case::with_brackets("code = [Internal] message = [tag [a] is wrong]. Initiate VM deletion", "tag [a] is wrong")]
fn the_message_of_the_cloud_ends_before_the_step(#[case] text: &str, #[case] message: &str) {
    let found =
        crate::wording::error_of_cloud(&format!("machine codes error: {text}")).map(|(_, found)| found.to_owned());
    assert_eq!(found.as_deref(), Some(message));
}

#[rstest]
#[case::a_budget("budget demo/strict to allow an eviction", Some(("demo", "strict")))]
#[case::in_a_sentence("refused by the disruption budget ns/db. Will retry", Some(("ns", "db")))]
#[case::several("a pod that several disruption budgets select is never evicted: a, b", None)]
fn the_budget_of_a_wait_is_found_in_its_text(#[case] text: &str, #[case] expected: Option<(&str, &str)>) {
    assert_eq!(budget_in(text), expected);
}

#[test]
fn a_remedy_names_the_missing_secret_and_the_strict_budget() {
    let texts = |kind, text: &str| {
        let facts = with_machine(&json!({}), &[], &[(kind, text)]);
        let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
        answer.waits[0].remedies.iter().map(|remedy| remedy.text.clone()).collect::<Vec<_>>()
    };
    let missing = texts(WaitKind::Secret, "the Secret demo/keys, which does not exist");
    let create = "create the Secret keys in namespace demo with the keys that its class needs, such as userData";
    assert_eq!(missing[0], create);
    let invalid = texts(WaitKind::Secret, "the Secret demo/keys, which has no userData");
    assert!(invalid.iter().all(|text| !text.starts_with("create")), "{invalid:?}");
    let strict = texts(WaitKind::Eviction, "pod demo/a: eviction refused by the disruption budget other/strict");
    assert!(strict.iter().any(|text| text.starts_with("kubectl patch pdb strict -n other --type merge")), "{strict:?}");
}

#[test]
fn a_deployment_is_blocked_by_its_frozen_set_and_shows_what_ends_it() {
    let [deployment, _] = settled();
    let waits = [(WaitKind::ScaleUpBlocked, "the set to be unfrozen (label freeze=True)")];
    let machine = preview(MACHINE, "pool-1-a", &[], &[]);
    let facts = family(&json!({}), [deployment, preview(SET, "pool-1", &[], &waits), machine]);
    let answer = facts.answer(&facts.find("pool").unwrap());
    assert_eq!((answer.verdict, answer.sets.len()), (ObjectVerdict::Blocked, 1));
    let remedies: Vec<&str> = answer.remedies().iter().map(|remedy| remedy.text.as_str()).collect();
    assert_eq!(remedies[0], "kubectl get machinesets.machine.sapcloud.io pool-1 -n demo -o yaml");
    assert!(remedies[1].contains("safety.machine.sapcloud.io/unfreeze=True"), "{remedies:?}");
    assert_eq!(
        progress::obstacle(&answer).as_deref(),
        Some("pool-1 waits for the set to be unfrozen (label freeze=True)")
    );
}

#[test]
fn a_paused_rollout_waits_for_a_user_who_can_resume_it() {
    let [_, set] = settled();
    let waits = [
        (WaitKind::Rollout, "1 machine of old set pool-1 to be deleted"),
        (WaitKind::Paused, "the deployment to be resumed: spec.paused is true"),
    ];
    let machine = preview(MACHINE, "pool-1-a", &[], &[]);
    let facts = family(&json!({}), [preview(DEPLOYMENT, "pool", &[], &waits), set, machine]);
    let answer = facts.answer(&facts.find("pool").unwrap());
    assert_eq!((answer.verdict, answer.waits[0].kind), (ObjectVerdict::Blocked, WaitKind::Paused));
    let commands: Vec<&str> = answer.remedies().iter().map(|remedy| remedy.text.as_str()).collect();
    assert!(
        commands[1].starts_with("kubectl patch machinedeployments.machine.sapcloud.io pool -n demo --type merge"),
        "{commands:?}"
    );
}

#[rstest]
#[case("pool", Some(DEPLOYMENT))]
#[case("pool-1", Some(SET))]
#[case("mcs/pool", None)]
#[case("machine/pool-1-a", Some(MACHINE))]
#[case("node/ip-10-0-0-1", Some(MACHINE))]
#[case("pods/x", None)]
#[case("nonesuch", None)]
fn an_object_is_found_by_its_name_or_with_its_kind(#[case] text: &str, #[case] expected: Option<&str>) {
    let facts = with_machine(&json!({"metadata": {"labels": {"node": "ip-10-0-0-1"}}}), &[], &[]);
    assert_eq!(facts.find(text).map(|found| found.kind).as_deref(), expected);
}

#[test]
fn a_node_without_a_machine_waits_as_its_manager_remembers() {
    let mut facts = with_machine(&json!({"metadata": {"labels": {"node": "ip-10-0-0-1"}}}), &[], &[]);
    assert_eq!(facts.node_without_machine("node/ip-10-0-0-1"), None, "it leads to its machine");
    assert_eq!(facts.node_without_machine("stranger"), None, "not a Node");
    assert_eq!((facts.node_without_machine("no/stranger"), facts.find("no/stranger")), (Some("stranger"), None));
    let remembered = json!({
        "object": {"kind": "Node", "namespace": "", "name": "stranger"},
        "waits": [{"kind": "NodeClaim", "text": "a machine to claim the node", "since": at(60), "nextAttempt": at(900), "plans": 2}],
    });
    facts.memory.explained.push(serde_json::from_value(remembered).unwrap());
    let answer = facts.answer(&facts.find("no/stranger").unwrap());
    let wait = &answer.waits[0];
    assert_eq!((answer.verdict, wait.kind), (ObjectVerdict::Waiting, WaitKind::NodeClaim));
    assert_eq!((wait.since, wait.next_attempt), (Some(at(60)), Some(at(900))));
    assert_eq!(wait.remedies[0].text, "kubectl get machines.machine.sapcloud.io -n demo");
}

#[test]
fn an_object_that_cannot_be_planned_is_unknown() {
    let mut facts = with_machine(&json!({}), &[], &[]);
    facts.previews.remove(MACHINE);
    assert_eq!(facts.answer(&facts.find("pool").unwrap()).verdict, ObjectVerdict::Unknown);
}

#[test]
fn the_answer_fits_a_terminal() {
    let blocked = json!({
        "metadata": {"deletionTimestamp": at(360)},
        "spec": {"drainTimeout": "10m"},
        "status": {"conditions": [{
            "type": "DrainBlocked", "status": "True",
            "message": "pod disruption budget demo/strict allows no eviction although all its pods are healthy",
        }]},
    });
    let [_, set] = settled();
    let waits = [(WaitKind::Rollout, "1 machine of old set pool-1 to be deleted")];
    let deployment = preview(DEPLOYMENT, "pool", &[], &waits);
    let machine = preview(MACHINE, "pool-1-a", &[("list pods of node a", true)], &[]);
    let facts = family(&blocked, [deployment, set, machine]);
    let text = |look: TerminalLook, name: &str| {
        let object = facts.find(name).unwrap();
        report::one(look, &facts.answer(&object), facts.manager_of(&object.kind), &[], &facts)
    };
    let texts = |look: TerminalLook| ["pool", "machine/pool-1-a"].map(|name| text(look, name)).join("\n");
    let narrow = texts(TerminalLook::PLAIN);
    // Commands are in one line, so that they can be copied.
    let is_command = |line: &str| {
        ["kubectl ", "mcm "].iter().any(|program| line.get(13..).is_some_and(|text| text.starts_with(program)))
    };
    assert!(narrow.lines().all(|line| line.chars().count() <= 80 || is_command(line)), "{narrow}");
    insta::assert_snapshot!(narrow);
    insta::assert_snapshot!(
        "200-columns",
        texts(TerminalLook { width: 200, colours: true, is_terminal: true, ..TerminalLook::PLAIN })
    );
}

#[rstest]
#[case(0, "0s")]
#[case(59, "59s")]
#[case(243, "4m3s")]
#[case(3600, "1h")]
#[case(190_800, "2d5h")]
fn a_time_has_at_most_two_units(#[case] seconds: i64, #[case] expected: &str) {
    assert_eq!(ago(at(seconds), at(0)), expected);
}

#[test]
fn what_depends_on_a_kind_that_was_not_read_is_unknown_and_hides_nothing_else() {
    let mut facts = with_machine(&json!({}), &[], &[(WaitKind::NodesUnknown, "the Nodes to be read")]);
    let machine = facts.find("machine/pool-1-a").unwrap();
    assert_eq!(facts.answer(&machine).verdict, ObjectVerdict::Waiting);
    facts.unread = vec!["nodes".to_owned()];
    let answer = facts.answer(&machine);
    assert_eq!(
        (answer.verdict, answer.unread.as_slice(), answer.waits.as_slice()),
        (ObjectVerdict::Unknown, &["nodes"][..], &[][..])
    );
    assert_eq!(facts.all(), [], "a note says it once");
}

#[test]
fn the_memory_of_a_manager_says_since_when_and_how_often_and_settles_what_was_not_read() {
    let mut facts = with_machine(&json!({}), &[("get VM status", true)], &[(WaitKind::NodesUnknown, "the Nodes")]);
    facts.unread = vec!["nodes".to_owned()];
    facts.memory.explained = serde_json::from_value(json!([{
        "object": { "kind": "Machine", "namespace": "demo", "name": "pool-1-a" }, "controller": "machine",
        "lastPlanned": "1970-01-01T00:09:00Z", "since": "1970-01-01T00:05:00Z", "step": "create VM: it has none",
        "waits": [
            { "kind": "DriverRetry", "text": "the next attempt", "since": "1970-01-01T00:05:00Z",
              "nextAttempt": "1970-01-01T00:12:00Z", "plans": 7 },
            { "kind": "OfAnotherVersion", "text": "?", "since": "1970-01-01T00:05:00Z", "plans": 1 },
            { "kind": "VmCheck", "text": "a routine", "since": "1970-01-01T00:05:00Z", "plans": 1 },
        ],
    }]))
    .unwrap();
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    assert_eq!((answer.verdict, answer.next.len(), answer.unread.len()), (ObjectVerdict::Waiting, 0, 0));
    assert_eq!(answer.tried.as_deref(), Some("create VM: it has none"));
    let [wait] = answer.waits.as_slice() else { panic!("{:?}", answer.waits) };
    assert_eq!(
        (wait.kind, wait.since, wait.next_attempt, wait.plans),
        (WaitKind::DriverRetry, Some(at(300)), Some(at(720)), Some(7))
    );
}

#[test]
fn the_rollout_and_the_set_say_why_a_machine_is_touched_at_all_and_usual_causes_are_ruled_out() {
    let mut facts = with_machine(&json!({}), &[], &[(WaitKind::NodeJoin, "Node a to join")]);
    let newest = json!({
        "metadata": { "annotations": { "deployment.kubernetes.io/revision": "4" } },
        "spec": { "replicas": 2, "template": { "spec": { "class": { "name": "small" } } } },
    });
    facts.sets.insert("pool-2".to_owned(), object(SET, "pool-2", Some((DEPLOYMENT, "pool")), &newest));
    let answer = facts.answer(&facts.find("machine/pool-1-a").unwrap());
    let expected = [
        "MachineDeployment pool replaces the machines of pool-1 with class small (revision 4)",
        "old set pool-1 has 1 of 1 machines",
    ];
    assert_eq!(answer.chain.up, expected);
    let checks: Vec<&str> = answer.ruled_out.iter().map(|one| one.check).collect();
    assert_eq!(checks, ["paused", "frozen", "manager"]);
}

#[test]
fn a_remedy_is_offered_only_to_objects_of_its_kind() {
    let facts = with_machine(&json!({}), &[], &[]);
    let texts = |kind: &str, name: &str, wait: WaitKind| -> Vec<String> {
        let wait = Wait::new(wait, String::new(), None);
        facts.told(&wait, &facts.subject(kind, name)).remedies.into_iter().map(|remedy| remedy.text).collect()
    };
    let describe = |kind: &str, name: &str| format!("kubectl describe {kind} {name} -n demo");
    let set = texts(SET, "pool-1", WaitKind::Preservation);
    assert_eq!(set, [describe("machinesets.machine.sapcloud.io", "pool-1")]);
    let machine = texts(MACHINE, "pool-1-a", WaitKind::Preservation);
    assert_eq!((machine.len(), &machine[0]), (2, &describe("machines.machine.sapcloud.io", "pool-1-a")));
    let without_node = texts(MACHINE, "pool-1-a", WaitKind::PodTermination);
    assert!(without_node.iter().all(|text| !text.contains("spec.nodeName")), "{without_node:?}");
}

#[test]
fn an_object_that_only_a_manager_plans_is_answered_from_its_memory() {
    let mut facts = with_machine(&json!({}), &[], &[]);
    let explained = json!({
        "object": {"kind": "Secret", "name": "old"}, "lastPlanned": "2026-01-01T00:00:00Z",
        "waits": [{"kind": "Users", "text": "classes that name it: small", "since": "2026-01-01T00:00:00Z", "plans": 2}],
    });
    facts.memory.explained.push(serde_json::from_value(explained).unwrap());
    assert_eq!(facts.find("secret/new"), None);
    let answer = facts.answer(&facts.find("secrets/old").unwrap());
    assert_eq!((answer.verdict, answer.waits[0].kind), (ObjectVerdict::Blocked, WaitKind::Users));
    assert_eq!(answer.since, answer.waits[0].since);
    assert_eq!(facts.all().iter().map(|one| one.object.name.as_str()).collect::<Vec<_>>(), ["old"]);
}

#[rstest]
#[case("machinedeployment", Some(DEPLOYMENT))]
#[case("machdeploy", Some(DEPLOYMENT))]
#[case("MCS", Some(SET))]
#[case("machines.machine.sapcloud.io", Some(MACHINE))]
#[case("mach", Some(MACHINE))]
#[case("mcc", Some(CLASS))]
#[case("no", Some(NODE))]
#[case("mcmmachines", Some(INFRASTRUCTURE))]
#[case("machines.cluster.x-k8s.io", None)]
#[case("secret", None)]
#[case("", None)]
fn a_kind_is_named_as_kubectl_takes_it(#[case] word: &str, #[case] expected: Option<&str>) {
    assert_eq!(kind_of(word), expected);
}
