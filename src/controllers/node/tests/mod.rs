mod watch;

use jiff::ToSpan;
use kube::{ResourceExt, runtime::watcher};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{MACHINES, SETS, testing::PROVIDER};
use mcm_api::{
    labels::{MACHINE_NAME, NODE_FINALIZER, NOT_MANAGED},
    sharing::SharedText,
};
use mcm_rules::{
    plan::Plan,
    safety::meltdown::{MeltdownGroup, MeltdownLimits, OutOfService, ReplacementLimit},
};
use mcm_runtime::{cache::Key, guard::GuardedObject, role::ControllerRole};

const POLICY: NodePolicy = NodePolicy {
    creation_timeout: SignedDuration::from_secs(1200),
    marks_strangers: true,
    finalizer_grace: SignedDuration::from_secs(30),
    unhealthy_replacements: MeltdownLimits { per_deployment: ReplacementLimit::Machines(1), per_zone: None },
};

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn node(age: i64, metadata: Value) -> Node {
    let mut node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    node.metadata.name = Some("n".into());
    node.metadata.creation_timestamp = Some((now() - age.seconds()).into());
    node
}

#[rstest]
#[case::sets(&[SETS], false)]
#[case::machines(&[MACHINES], true)]
#[case::both(&[SETS, MACHINES], true)]
#[case::the_provider(&[PROVIDER], true)]
fn a_process_that_reconciles_only_sets_caches_no_status_of_nodes(
    #[case] roles: &[ControllerRole],
    #[case] is_kept: bool,
) {
    let joined: Node = serde_json::from_value(json!({
        "metadata": { "name": "n", "labels": { "a": "b" } },
        "spec": { "providerID": "cloud:///1", "taints": [{ "key": "k", "effect": "NoExecute" }] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }], "volumesAttached": [{ "name": "v" }] },
    }))
    .unwrap();
    let cache = cache_for(roles)();
    cache.observe(watcher::Event::Apply(GuardedObject::Readable(joined.clone())));
    let cached = cache.get(&Key::new("", "n")).unwrap();
    assert_eq!((&cached.metadata, &cached.spec), (&joined.metadata, &joined.spec));
    assert_eq!(cached.status == joined.status, is_kept);
}

/// A text that names the Node, its machine or its VM has no equal.
#[rstest]
#[case::without_status(&[SETS])]
#[case::with_status(&[SETS, MACHINES])]
fn cached_nodes_share_their_labels_and_annotations_but_not_their_names(#[case] roles: &[ControllerRole]) {
    let (cache, key) = (cache_for(roles)(), format!("example.com/of-{}-roles", roles.len()));
    let (pool, template) = (format!("pool of {key}"), key.repeat(30));
    let cached = |name: &str| {
        let node = json!({
            "metadata": {
                "name": name, "uid": name, "resourceVersion": "1",
                "labels": { &key: pool, "kubernetes.io/hostname": name, MACHINE_NAME: format!("machine-of-{name}") },
                "annotations": {
                    labels::LAST_APPLIED_NODE_TEMPLATE: template, labels::NODE_OF: format!("ns/machine-of-{name}/uid"),
                    "csi.volume.kubernetes.io/nodeid": format!("{{\"csi\":\"vm-of-{name}\"}}"),
                },
            },
            "spec": { "providerID": format!("cloud:///vm-of-{name}") },
        });
        cache.wrote(serde_json::from_value(node).unwrap())
    };
    let [one, _other] = ["first", "second"].map(cached);
    assert_eq!(one.labels().keys().find(|known| **known == key).map(SharedText::owners), Some(3), "both and the pool");
    assert_eq!(one.labels().get(&key).map(SharedText::owners), Some(3));
    assert_eq!(one.annotations().get(labels::LAST_APPLIED_NODE_TEMPLATE).map(SharedText::owners), Some(3));
    for (map, key) in [
        (one.labels(), "kubernetes.io/hostname"),
        (one.labels(), MACHINE_NAME),
        (one.annotations(), labels::NODE_OF),
        (one.annotations(), "csi.volume.kubernetes.io/nodeid"),
    ] {
        assert_eq!(map.get(key).map(SharedText::owners), Some(1), "{key}");
    }
}

fn machine(name: &str, phase: &str) -> Arc<Machine> {
    let machine = json!({
        "metadata": { "name": name, "labels": { "node": "n" } },
        "spec": {}, "status": { "currentStatus": { "phase": phase } },
    });
    Arc::new(serde_json::from_value(machine).unwrap())
}

fn running() -> Vec<Arc<Machine>> {
    vec![machine("m", "Running")]
}

fn dying() -> Vec<Arc<Machine>> {
    let mut machine = machine("m", "Running").as_ref().clone();
    machine.metadata.deletion_timestamp = Some(now().into());
    vec![Arc::new(machine)]
}

fn snapshot(node: Node, machines: Vec<Arc<Machine>>) -> Snapshot {
    Snapshot {
        policy: POLICY,
        subject: ObservedNode::Present(Arc::new(node)),
        machines,
        unproven: Vec::new(),
        machines_complete: true,
        target: TargetTrust::default(),
        memory: Memory::default(),
        now: now(),
        target_ahead: SignedDuration::ZERO,
    }
}

#[test]
fn the_age_of_a_node_is_computed_with_the_clock_that_stamped_it() {
    let judged = |target_ahead: SignedDuration| {
        let plan = plan(&Snapshot { target_ahead, ..snapshot(node(600, json!({})), vec![]) }, &POLICY);
        plan.steps.len()
    };
    assert_eq!(judged(SignedDuration::ZERO), 0, "it may be claimed for 20 minutes");
    assert_eq!(judged(SignedDuration::from_mins(15)), 1, "it is 25 minutes old");
    assert_eq!(judged(SignedDuration::from_mins(-15)), 0);
}

fn act(plan: &Plan<Action>) -> Vec<Value> {
    let describe = |action: &Action| match action {
        Action::DeleteMachine(machine) => json!(format!("delete {}", machine.name_any())),
        Action::PatchNode { patch, .. } => patch["metadata"].clone(),
        other => json!(format!("{other:?}").split(['(', ' ', '{']).next()),
    };
    plan.steps.iter().map(|step| describe(&step.action)).collect()
}

fn held() -> Value {
    json!({ "finalizers": [NODE_FINALIZER] })
}

fn deleting(mut metadata: Value) -> Value {
    metadata["deletionTimestamp"] = json!("2023-11-14T22:00:00Z");
    metadata
}

#[rstest]
#[case::deleted_node_means_a_new_machine(node(99, deleting(held())), running(), vec![json!("delete m")])]
#[case::deleted_node_of_a_dying_machine(node(99, deleting(held())), dying(), vec![])]
#[case::deleted_node_without_machine(
    node(99, deleting(json!({ "finalizers": ["x", NODE_FINALIZER] }))), vec![], vec![json!({ "finalizers": ["x"] })]
)]
#[case::deleted_node_that_is_not_ours(node(99, deleting(json!({ "finalizers": ["x"] }))), vec![], vec![])]
#[case::deleted_node_with_a_doubtful_machine(
    node(99, deleting(held())), vec![machine("a", "Running"), machine("b", "Running")], vec![]
)]
#[case::joined_a_moment_ago(node(29, json!({})), running(), vec![])]
#[case::left_without_finalizer(
    node(30, json!({ "finalizers": ["x"] })), running(), vec![json!({ "finalizers": ["x", NODE_FINALIZER] })]
)]
#[case::held(node(9999, held()), running(), vec![])]
#[case::a_dying_machine_gets_no_new_finalizer(node(99, json!({})), dying(), vec![])]
#[case::two_machines_claim_it(node(99, json!({})), vec![machine("a", "Running"), machine("b", "Running")], vec![])]
#[case::managed_after_all(
    node(5, json!({ "annotations": { NOT_MANAGED: "yes" } })),
    running(),
    vec![json!({ "annotations": { NOT_MANAGED: null }, "finalizers": [NODE_FINALIZER] })]
)]
#[case::managed_after_all_by_a_dying_machine(
    node(99, json!({ "annotations": { NOT_MANAGED: "1" } })),
    dying(),
    vec![json!({ "annotations": { NOT_MANAGED: null } })]
)]
#[case::not_yet_claimed(node(1199, held()), vec![], vec![])]
#[case::never_claimed(
    node(1200, json!({ "finalizers": [NODE_FINALIZER, "x"] })),
    vec![],
    vec![json!({ "annotations": { NOT_MANAGED: "1" }, "finalizers": ["x"] })]
)]
#[case::never_claimed_and_never_held(
    node(1201, json!({})), vec![], vec![json!({ "annotations": { NOT_MANAGED: "1" } })]
)]
#[case::known_not_to_be_managed(node(9999, json!({ "annotations": { NOT_MANAGED: "" } })), vec![], vec![])]
fn a_node(#[case] node: Node, #[case] machines: Vec<Arc<Machine>>, #[case] expected: Vec<Value>) {
    assert_eq!(act(&plan(&snapshot(node, machines), &POLICY)), expected);
}

/// In a cluster of Cluster API, other managers have the Nodes without a Machine here.
#[test]
fn nodes_of_others_are_marked_only_if_they_cannot_be_others() {
    let policy = NodePolicy { marks_strangers: false, ..POLICY };
    assert_eq!(act(&plan(&snapshot(node(1201, json!({})), vec![]), &policy)), Vec::<Value>::new());
    let deleted = plan(&snapshot(node(1201, deleting(held())), vec![]), &policy);
    assert_eq!(act(&deleted), [json!({ "finalizers": [] })]);
}

#[rstest]
#[case(node(9999, held()))]
#[case(node(9999, deleting(held())))]
fn without_all_machines_known_no_node_is_let_go(#[case] node: Node) {
    let plan = plan(&Snapshot { machines_complete: false, ..snapshot(node, vec![]) }, &POLICY);
    assert!(plan.steps.is_empty() && !plan.waits.is_empty());
}

#[rstest]
#[case::unclaimed(node(200, json!({})), vec![], 1000)]
#[case::without_finalizer(node(10, json!({})), running(), 20)]
fn a_wait_ends_when_its_time_comes(#[case] node: Node, #[case] machines: Vec<Arc<Machine>>, #[case] seconds: i64) {
    let plan = plan(&snapshot(node, machines), &POLICY);
    assert_eq!(plan.requeue_at(), Some(now() + seconds.seconds()));
}

fn claimed(age: i64, mut metadata: Value) -> Node {
    metadata["labels"] = json!({ MACHINE_NAME: "theirs" });
    node(age, metadata)
}

fn marked_at(snapshot: Snapshot, seconds_ago: i64) -> Snapshot {
    let memory = Memory { marked_at: Some(now() - seconds_ago.seconds()), ..Memory::default() };
    Snapshot { memory, ..snapshot }
}

#[rstest]
#[case::it_is_asked_for(claimed(1201, held()), None, vec![json!({ "annotations": { NOT_MANAGED: "1" } })])]
#[case::not_before_its_time(claimed(1199, held()), None, vec![])]
#[case::also_while_it_is_being_deleted(claimed(9, deleting(held())), None, vec![json!({ "annotations": { NOT_MANAGED: "1" } })])]
#[case::somebody_has_it(claimed(1201, held()), Some(99_999), vec![])]
#[case::the_mark_was_there_before_us(claimed(1201, marked(held())), None, vec![json!("RememberMark")])]
#[case::somebody_may_have_it(claimed(1201, marked(held())), Some(1199), vec![])]
#[case::nobody_has_it(claimed(1201, marked(held())), Some(1200), vec![json!({ "finalizers": [] })])]
fn a_node_of_a_machine_that_is_not_ours(#[case] node: Node, #[case] marked: Option<i64>, #[case] expected: Vec<Value>) {
    let mut snapshot = snapshot(node, vec![]);
    if let Some(seconds) = marked {
        snapshot = marked_at(snapshot, seconds);
    }
    assert_eq!(act(&plan(&snapshot, &POLICY)), expected);
}

fn marked(mut metadata: Value) -> Value {
    metadata["annotations"] = json!({ NOT_MANAGED: "1" });
    metadata
}

#[rstest]
#[case::alive(claimed(1201, held()), json!({ "annotations": { NOT_MANAGED: "1" }, "finalizers": [] }))]
#[case::deleted(claimed(9, deleting(held())), json!({ "finalizers": [] }))]
fn the_node_of_a_machine_that_was_ours_is_let_go_at_once(#[case] node: Node, #[case] expected: Value) {
    let memory = Memory { former_machine: Some("theirs".to_owned()), ..Memory::default() };
    assert_eq!(act(&plan(&Snapshot { memory, ..snapshot(node, vec![]) }, &POLICY)), [expected]);
}

#[test]
fn a_node_that_was_marked_before_loses_our_finalizer_too() {
    assert_eq!(act(&plan(&snapshot(node(9, marked(held())), vec![]), &POLICY)), [json!({ "finalizers": [] })]);
}

#[test]
fn a_removed_mark_is_not_set_again() {
    let again = marked_at(snapshot(node(9999, json!({})), vec![]), 10);
    assert!(act(&plan(&again, &POLICY)).is_empty());
}

/// Two managers with Nodes of one cluster, and the worst case for each of them: this many marks in an hour.
#[test]
fn two_managers_of_one_target_cluster_do_not_fight() {
    let start = now();
    let (mut ours, mut theirs) = (Memory::default(), Memory::default());
    let (mut is_marked, mut writes) = (false, 0);
    for second in 0..3600 {
        let metadata = if is_marked { marked(held()) } else { held() };
        let mut node = claimed(1201, metadata);
        node.labels_mut().insert(MACHINE_NAME, "m");
        for (memory, machines) in [(&mut ours, running()), (&mut theirs, vec![])] {
            let now = start + i64::from(second).seconds();
            let snapshot = Snapshot { memory: memory.clone(), now, ..snapshot(node.clone(), machines) };
            for step in plan(&snapshot, &POLICY).steps {
                match step.action {
                    Action::PatchNode { mark: NodeMarkChange::Put, .. } => {
                        (memory.mark_put(now), is_marked = true, writes += 1).1
                    }
                    Action::PatchNode { mark: NodeMarkChange::Remove, .. } => {
                        (memory.mark_removed(now), is_marked = false, writes += 1).1
                    }
                    Action::RememberMark => memory.mark_put(now),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert_eq!((writes, is_marked), (2, false));
}

#[test]
fn against_a_manager_that_insists_the_mark_is_removed_less_and_less_often() {
    let (start, mut memory, mut times) = (now(), Memory::default(), Vec::new());
    for second in 0..3 * 3600 {
        let now = start + i64::from(second).seconds();
        let node = node(9999, marked(held()));
        let snapshot = Snapshot { memory: memory.clone(), now, ..snapshot(node, running()) };
        if !plan(&snapshot, &POLICY).steps.is_empty() {
            memory.mark_removed(now);
            times.push(second / 60);
        }
    }
    assert_eq!(times[..8], [0, 1, 3, 7, 15, 30, 45, 60]);
}

#[test]
fn a_finalizer_that_the_owner_adds_again_is_removed_once_per_creation_timeout() {
    let (start, mut times) = (now(), Vec::new());
    let mut memory = Memory { marked_at: Some(start), ..Memory::default() };
    for second in 0..2 * 3600 {
        let now = start + i64::from(second).seconds();
        let snapshot = Snapshot { memory: memory.clone(), now, ..snapshot(claimed(1201, marked(held())), vec![]) };
        for step in plan(&snapshot, &POLICY).steps {
            let Action::PatchNode { mark, .. } = step.action else { panic!("{:?}", step.action) };
            assert_eq!(mark, NodeMarkChange::Renew);
            memory.mark_changed(mark, now);
            times.push(second);
        }
    }
    assert_eq!(times, [1200, 2400, 3600, 4800, 6000]);
}

fn gone_node() -> GoneNode {
    GoneNode {
        name: "n".to_owned(),
        provider_id: String::new(),
        machine: Some("m".to_owned()),
        owner: None,
        seen_at: now(),
    }
}

fn after_end_of(gone: GoneNode, machines: Vec<Arc<Machine>>) -> Snapshot {
    let permit = ReplacementPermit::Held(Vec::new());
    let subject = ObservedNode::Gone { node: gone, exists: Some(Ok(false)), permit };
    Snapshot { subject, ..snapshot(node(0, json!({})), machines) }
}

fn edited(change: impl FnOnce(&mut Machine)) -> Vec<Arc<Machine>> {
    let mut machine = running().remove(0).as_ref().clone();
    change(&mut machine);
    vec![Arc::new(machine)]
}

fn created(seconds_before: i64) -> Vec<Arc<Machine>> {
    edited(|machine| machine.metadata.creation_timestamp = Some((now() - seconds_before.seconds()).into()))
}

#[rstest]
#[case::replaced(running(), "delete m")]
#[case::unhealthy_too(vec![machine("m", "Unknown")], "delete m")]
#[case::older_than_the_end(created(1), "delete m")]
#[case::younger_than_the_end(created(-5), "ForgetGoneNode")]
#[case::as_old(created(0), "ForgetGoneNode")]
#[case::dying(dying(), "ForgetGoneNode")]
#[case::not_a_machine(vec![], "ForgetGoneNode")]
#[case::another_machine_of_that_node_name(vec![machine("other", "Running")], "ForgetGoneNode")]
fn the_machine_of_a_node_that_was_deleted(#[case] machines: Vec<Arc<Machine>>, #[case] expected: &str) {
    assert_eq!(act(&plan(&after_end_of(gone_node(), machines), &POLICY)), [json!(expected)]);
}

#[rstest]
#[case::its_vm("cloud:///7", "other-form/7", "Pending", "delete m")]
#[case::another_vm("cloud:///7", "cloud:///8", "Running", "ForgetGoneNode")]
#[case::ran("", "cloud:///8", "Running", "delete m")]
#[case::its_own_has_not_joined_yet("", "cloud:///8", "Pending", "ForgetGoneNode")]
#[case::not_created_yet("cloud:///7", "", "", "ForgetGoneNode")]
fn a_node_without_label_is_identified_by_its_vm(
    #[case] of_node: &str,
    #[case] of_machine: &str,
    #[case] phase: &str,
    #[case] expected: &str,
) {
    let mut machine = machine("m", phase).as_ref().clone();
    machine.spec.provider_id = of_machine.to_owned();
    let gone = GoneNode { machine: None, provider_id: of_node.to_owned(), ..gone_node() };
    assert_eq!(act(&plan(&after_end_of(gone, vec![Arc::new(machine)]), &POLICY)), [json!(expected)]);
}

#[test]
fn two_machines_of_one_deleted_node_are_not_touched() {
    let gone = GoneNode { machine: None, ..gone_node() };
    let plan = plan(&after_end_of(gone, vec![machine("a", "Running"), machine("b", "Running")]), &POLICY);
    assert!(plan.steps.is_empty() && plan.waits[0].text.contains("a, b"));
}

#[rstest]
#[case::not_read_yet(None, json!("GetNode"))]
#[case::it_is_back(Some(Ok(true)), json!("ForgetGoneNode"))]
#[case::not_readable(Some(Err("timeout".to_owned())), Value::Null)]
fn a_machine_is_deleted_only_if_its_node_is_still_missing(
    #[case] read: Option<Result<bool, String>>,
    #[case] expected: Value,
) {
    let mut snapshot = after_end_of(gone_node(), running());
    if let ObservedNode::Gone { exists, .. } = &mut snapshot.subject {
        *exists = read;
    }
    let plan = plan(&snapshot, &POLICY);
    assert_eq!(act(&plan).first().cloned().unwrap_or_default(), expected);
    assert!(!plan.steps.is_empty() || plan.requeue_at().is_some());
}

#[test]
fn nothing_is_concluded_from_a_target_cluster_that_cannot_be_trusted() {
    let target = TargetTrust::Untrusted { since: now(), reason: "no answer".to_owned() };
    let plan = plan(&Snapshot { target, ..after_end_of(gone_node(), running()) }, &POLICY);
    assert!(plan.steps.is_empty() && plan.requeue_at().is_some());
}

#[test]
fn a_node_is_not_read_while_the_permit_is_refused() {
    let pool = edited(|machine| drop(machine.labels_mut().insert("name".to_owned(), "pool".to_owned())));
    let judged = |known: ReplacementPermit| {
        let mut snapshot = after_end_of(gone_node(), pool.clone());
        if let ObservedNode::Gone { exists, permit, .. } = &mut snapshot.subject {
            (*exists, *permit) = (None, known);
        }
        act(&plan(&snapshot, &POLICY))
    };
    assert_eq!(judged(ReplacementPermit::NotAsked), [json!("LookAtPermit")]);
    assert_eq!(judged(ReplacementPermit::Refused { by: "x".to_owned() }), Vec::<Value>::new());
    assert_eq!(judged(ReplacementPermit::Free), [json!("GetNode")]);
}

#[test]
fn nodes_that_go_all_at_once_replace_one_machine_of_a_deployment_at_a_time() {
    let pool = edited(|machine| drop(machine.labels_mut().insert("name".to_owned(), "pool".to_owned())));
    let judged = |permit: ReplacementPermit| {
        let mut snapshot = after_end_of(gone_node(), pool.clone());
        if let ObservedNode::Gone { permit: held, .. } = &mut snapshot.subject {
            *held = permit;
        }
        act(&plan(&snapshot, &POLICY))
    };
    let key = PermitKey { namespace: String::new(), group: MeltdownGroup::Deployment("pool".to_owned()) };
    let mut going = pool[0].as_ref().clone();
    going.metadata.deletion_timestamp = Some(now().into());
    assert_eq!(judged(ReplacementPermit::NotAsked), [json!("LookAtPermit")]);
    assert_eq!(judged(ReplacementPermit::Free), [json!("TakePermit")]);
    assert_eq!(judged(ReplacementPermit::Refused { by: "x".to_owned() }), Vec::<Value>::new());
    assert_eq!(judged(ReplacementPermit::Held(vec![OutOfService::for_key(&key, [&going])])), Vec::<Value>::new());
    assert_eq!(judged(ReplacementPermit::Held(vec![OutOfService::for_key(&key, [&*pool[0]])])), [json!("delete m")]);
}

/// Its manager has no evidence that the Node is that of the Machine, so it neither holds, marks, releases nor replaces.
#[rstest]
#[case::of_another(node(5_000, json!({ "labels": { MACHINE_NAME: "m" }, "annotations": { labels::NODE_OF: "demo/m/u" }, "finalizers": [NODE_FINALIZER] })))]
#[case::without_a_machine(node(5_000, json!({})))]
#[case::deleted(node(5_000, deleting(json!({}))))]
fn a_node_that_a_machine_only_names_is_left_alone(#[case] node: Node) {
    let snapshot = Snapshot { unproven: vec![machine("m", "Pending")], ..snapshot(node, vec![]) };
    let plan = plan(&snapshot, &POLICY);
    assert_eq!((act(&plan), plan.waits.len()), (vec![], 1));
    assert!(plan.waits[0].text.contains("evidence that the node is that of machine m"), "{}", plan.waits[0].text);
}

#[rstest]
#[case::its_own("shoot/m/u", "delete m")]
#[case::before_a_move("shoot/m/before", "delete m")]
#[case::of_another_namespace("demo/m/u", "ForgetGoneNode")]
fn a_deleted_node_replaces_the_machine_in_its_annotation(#[case] owner: &str, #[case] expected: &str) {
    let machines = edited(|machine| {
        (machine.metadata.namespace, machine.metadata.uid) = (Some("shoot".to_owned()), Some("u".to_owned()));
    });
    let gone = GoneNode { owner: Some(owner.to_owned()), ..gone_node() };
    assert_eq!(act(&plan(&after_end_of(gone, machines), &POLICY)), [json!(expected)]);
}
