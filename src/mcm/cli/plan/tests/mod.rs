//! Plans of changes against a control plane in this process.

mod folded;

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use rstest::rstest;

use super::*;
use crate::{api::machine::MachineDeployment, cli::run::default_settings};
use mcm_driver_host::DriverCatalogue;
use mcm_fake_api::{
    ApiServer, CLASSES, DEPLOYMENTS, Kind, MACHINES, NODES, PerfectNetwork, SECRETS, SETS, clock::VirtualClock,
};
use mcm_insight::{
    place::CallTarget,
    plan::{
        answer::{BlockerSeverity, FieldEffect, MachinePlan, PlanBlocker, PlanSummary, SettledCounts},
        outcome::PlannedDeployment,
    },
    reader,
    rehearsal::{
        cloud::RehearsalTiming,
        play::{DeploymentWrite, RehearsalSetup, SeedObject, play},
        record::RehearsalEnding,
    },
    story::SET,
};
use mcm_runtime::cell::{UnreadCause, UnreadKind};

const NAMESPACE: &str = "demo";

fn class(name: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "provider": "elsewhere", "providerSpec": { "image": "one" },
        "secretRef": { "name": "pool", "namespace": NAMESPACE },
    })
}

fn deployment(replicas: i32) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": { "name": "pool", "namespace": NAMESPACE },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "pool": "pool" } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 1 } },
            "template": {
                "metadata": { "labels": { "pool": "pool" } },
                "spec": { "class": { "kind": "MachineClass", "name": "large" }, "drainTimeout": "10m" },
            },
        },
    })
}

/// An object of a rehearsal with identifiers that no other rehearsal gives.
fn elsewhere(value: &Value) -> Value {
    let text =
        value.to_string().replace("\"uid\":\"", "\"uid\":\"elsewhere-").replace("rehearsal:///", "elsewhere:///");
    serde_json::from_str(&text).unwrap()
}

/// A control plane with a pool that is settled.
struct Plane {
    server: ApiServer,
    cell: ReadOnly,
}

impl Plane {
    async fn of(deployment: &Value) -> Self {
        Self::with(deployment, |_| {}).await
    }

    /// With a change of the objects.
    async fn with(deployment: &Value, change: impl FnOnce(&mut Vec<SeedObject>)) -> Self {
        let settings = default_settings(DriverCatalogue::default());
        let manager = settings.clone();
        let secret = json!({ "metadata": { "name": "pool", "namespace": NAMESPACE }, "data": { "userData": "eA==" } });
        let mut seeds: Vec<SeedObject> =
            vec![(&CLASSES, class("small")), (&CLASSES, class("large")), (&SECRETS, secret)];
        let classes = seeds.iter().map(|(kind, value)| {
            let mut value = value.clone();
            value["provider"] = json!("");
            (*kind, value)
        });
        // An hour ago, in whole seconds, so that ages are the same in each run.
        let now = Timestamp::from_second(Timestamp::now().as_second() - 3600).unwrap();
        let stage = RehearsalSetup {
            now,
            namespace: NAMESPACE.to_owned(),
            name: "pool".to_owned(),
            seeds: classes.collect(),
            cues: vec![DeploymentWrite::Create(deployment.clone())],
            settings,
            has_target: true,
            pace: RehearsalTiming {
                join: Duration::from_secs(124),
                leave: Duration::from_secs(5),
                update: Duration::from_secs(60),
            },
            selects: false,
            out_of_stock: BTreeSet::new(),
            judge: Arc::new(|_| None),
            budget: Duration::from_secs(60),
        };
        let courses = play(stage, &Arc::new(AtomicUsize::new(0)), Duration::from_secs(60)).await.unwrap();
        let course = &courses[0];
        assert_eq!(
            course.ending,
            RehearsalEnding::Settled,
            "{:?} {:?}\n{:#?}",
            course.waits,
            course.entries,
            course.objects["Machine"].first()
        );
        for (kind, name) in [(&DEPLOYMENTS, "MachineDeployment"), (&SETS, "MachineSet"), (&MACHINES, "Machine")] {
            seeds.extend(course.objects[name].iter().map(|value| (kind, elsewhere(value))));
        }
        seeds.extend(course.nodes.values().map(|node| (&NODES, elsewhere(node))));
        change(&mut seeds);
        let server = ApiServer::new(&VirtualClock::starting(Timestamp::now()), Arc::new(PerfectNetwork));
        for (kind, value) in seeds {
            server.seed(kind, value);
        }
        let client = server.client("plan");
        let uri = http::Uri::default();
        let reach = ReadOnlyClients {
            control: client.clone(),
            server: uri.clone(),
            target: Some((client, uri)),
            namespace: NAMESPACE.to_owned(),
            place: CallTarget::default(),
        };
        let cell = ReadOnly::from_clients(reach, manager).await;
        Self { server, cell }
    }

    async fn plan(&self, changes: &[PlannedChange]) -> Plan {
        let facts = reader::facts(&self.cell).await.unwrap();
        let mut plan = plan_of(&self.cell, &facts, changes, PlanPremises::default()).await.unwrap();
        plan.at = "2026-11-26T10:04:53Z".to_owned();
        plan
    }

    async fn patched(&self, patch: Value) -> Plan {
        self.plan(&[change(ChangeContent::Patch(patch))]).await
    }

    fn writes(&self) -> usize {
        use mcm_fake_api::ApiVerb;
        let reads = [ApiVerb::Get, ApiVerb::List, ApiVerb::Watch];
        let is_write =
            |call: &&Arc<mcm_fake_api::ApiCall>| !reads.contains(&call.verb) && !call.query.contains_key("dryRun");
        self.server.calls().iter().filter(is_write).count()
    }
}

fn change(wish: ChangeContent) -> PlannedChange {
    PlannedChange { kind: DEPLOYMENT, name: "pool".to_owned(), wish }
}

fn of_template(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

fn text(plan: &Plan) -> String {
    report(TerminalLook::PLAIN, plan, RoundDetail::Summary)
}

#[tokio::test]
async fn a_new_class_replaces_each_machine_within_the_bounds() {
    let plane = Plane::of(&deployment(5)).await;
    let patch = of_template(&json!({
        "class": { "name": "small" }, "drainTimeout": "2m", "nodeTemplate": { "metadata": { "labels": { "team": "blue" } } },
    }));
    let plan = plane.patched(patch).await;
    insta::assert_snapshot!("new_class", text(&plan));
    let wide = report(TerminalLook { width: 200, ..TerminalLook::PLAIN }, &plan, RoundDetail::All);
    assert!(text(&plan).lines().count() <= 24 && wide.lines().count() <= 50, "{wide}");
    insta::assert_snapshot!("new_class_wide", wide);
    insta::assert_snapshot!("new_class_markdown", markdown::plan("cluster blue, namespace demo", &plan));
    insta::assert_snapshot!("new_class_json", serde_json::to_string_pretty(&plan).unwrap());
    assert_eq!(plane.writes(), 0);
}

#[tokio::test]
async fn a_duration_that_is_written_differently_changes_nothing() {
    let plane = Plane::of(&deployment(2)).await;
    let plan = plane.patched(of_template(&json!({ "drainTimeout": "600s" }))).await;
    insta::assert_snapshot!("written_differently", text(&plan));
    let nothing = plane.plan(&[change(ChangeContent::Nothing)]).await;
    assert_eq!(nothing.objects[0].verdict, PlanVerdict::NoChange, "{nothing:?}");
}

#[tokio::test]
async fn replicas_scale_and_a_deletion_deletes() {
    let plane = Plane::of(&deployment(3)).await;
    for (name, wish) in [
        ("scale_up", ChangeContent::Patch(json!({ "spec": { "replicas": 5 } }))),
        ("scale_down", ChangeContent::Patch(json!({ "spec": { "replicas": 1 } }))),
        ("delete", ChangeContent::Delete),
    ] {
        insta::assert_snapshot!(name, text(&plane.plan(&[change(wish)]).await));
    }
}

#[tokio::test]
async fn an_in_place_update_keeps_the_machines() {
    let mut pool = deployment(3);
    pool["spec"]["strategy"] = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
        "orchestrationType": "Auto", "maxSurge": 0, "maxUnavailable": 1 } });
    let plane = Plane::of(&pool).await;
    let plan = plane.patched(of_template(&json!({ "class": { "name": "small" } }))).await;
    insta::assert_snapshot!("in_place", text(&plan));
}

#[tokio::test]
async fn a_missing_class_and_a_paused_deployment_are_in_the_way() {
    let plane = Plane::of(&deployment(2)).await;
    let plan = plane.patched(of_template(&json!({ "class": { "name": "nonesuch" } }))).await;
    insta::assert_snapshot!("missing_class", text(&plan));
    assert!(plan.blocked, "{plan:?}");
    let paused = json!({ "spec": { "paused": true, "template": { "spec": { "class": { "name": "small" } } } } });
    let plan = plane.patched(paused).await;
    insta::assert_snapshot!("paused", text(&plan));
    let invalid = plane.patched(json!({ "spec": { "strategy": { "type": "Sometimes" } } })).await;
    insta::assert_snapshot!("refused", text(&invalid));
}

#[tokio::test]
async fn a_class_replaces_nothing_and_a_new_deployment_is_created_with_it() {
    let plane = Plane::of(&deployment(2)).await;
    let mut small = class("large");
    small["providerSpec"]["image"] = json!("two");
    let mut other = deployment(3);
    other["metadata"]["name"] = json!("other");
    for label in ["/spec/selector/matchLabels/pool", "/spec/template/metadata/labels/pool"] {
        *other.pointer_mut(label).unwrap() = json!("other");
    }
    let (changes, notes) = changes_of_files(&[other, small], NAMESPACE).unwrap();
    assert!(notes.is_empty());
    insta::assert_snapshot!("files", text(&plane.plan(&changes).await));
}

/// Adds a set without a deployment that lacks its two machines.
fn add_lone_set(seeds: &mut Vec<SeedObject>) {
    let of_pool = &seeds.iter().find(|(kind, _)| *kind == &SETS).unwrap().1;
    let mut set: Value = serde_json::from_str(&of_pool.to_string().replace("\"pool\"", "\"alone\"")).unwrap();
    (set["metadata"]["name"], set["metadata"]["uid"]) = (json!("alone"), json!("alone"));
    set["metadata"]["ownerReferences"] = json!([]);
    set["status"] = json!({});
    seeds.push((&SETS, set));
}

#[tokio::test]
async fn without_a_named_object_sets_without_a_deployment_are_planned_and_settled_deployments_are_counted() {
    let plane = Plane::with(&deployment(2), add_lone_set).await;
    let facts = reader::unplanned(&plane.cell).await.unwrap();
    let plan = plane.plan(&changes_of_everything(&facts).0).await.without_settled();
    insta::assert_snapshot!("everything", text(&plan));
    assert_eq!(plan.settled, Some(SettledCounts { deployments: 1, sets: 0 }));
    assert_eq!((plan.objects.len(), plan.objects[0].verdict), (1, PlanVerdict::Scales), "{plan:?}");
    assert!(plan.objects[0].settles && plan.objects[0].bounds.is_none(), "{plan:?}");
}

#[tokio::test]
async fn a_set_without_a_deployment_is_scaled() {
    let plane = Plane::with(&deployment(2), add_lone_set).await;
    let wish = ChangeContent::Patch(json!({ "spec": { "replicas": 3 } }));
    let plan = plane.plan(&[PlannedChange { kind: SET, name: "alone".to_owned(), wish }]).await;
    let plan = &plan.objects[0];
    assert_eq!((plan.verdict, plan.summary.create, plan.settles), (PlanVerdict::Scales, 3, true), "{plan:?}");
    assert_eq!((plan.kind.as_str(), plan.fields.len()), (SET, 1), "{plan:?}");
    assert_eq!(plane.writes(), 0);
}

/// The plan for a pool of two is settled, but for one machine in a phase.
#[tokio::test]
async fn a_deployment_with_a_machine_under_way_is_not_settled() {
    let pending = |seeds: &mut Vec<SeedObject>| {
        let machine = seeds.iter_mut().find(|(kind, _)| *kind == &MACHINES);
        machine.unwrap().1["status"]["currentStatus"]["phase"] = json!("Pending");
    };
    let plane = Plane::with(&deployment(2), pending).await;
    let plan = plane.plan(&[change(ChangeContent::Nothing)]).await.without_settled();
    assert_eq!(plan.objects[0].remarks, ["already under way: 1 machine being created"], "{plan:?}");
}

#[tokio::test]
async fn machines_whose_nodes_are_in_another_cluster_are_not_said_to_be_replaced() {
    let plane = Plane::with(&deployment(3), |seeds| seeds.retain(|(kind, _)| *kind != &NODES)).await;
    let unread = plane.cell.unread.iter().find(|unread| unread.kind == "nodes").unwrap();
    let is_elsewhere = matches!(&unread.cause, UnreadCause::OtherCluster(text) if text.starts_with("none of 3 Nodes"));
    assert!(is_elsewhere, "{unread:?}");
    let plan = plane.plan(&[change(ChangeContent::Nothing)]).await;
    let plan = &plan.objects[0];
    assert_eq!((plan.verdict, plan.summary.delete), (PlanVerdict::NoChange, 0), "{plan:?}");
}

/// A Machine has the name of its Node minutes before the Node exists.
#[rstest]
#[case::being_created("Pending")]
#[case::without_a_node_after_the_timeout("Failed")]
#[tokio::test]
async fn nodes_that_have_not_joined_yet_are_not_taken_for_those_of_another_cluster(#[case] phase: &str) {
    let starting = |seeds: &mut Vec<SeedObject>| {
        seeds.retain(|(kind, _)| *kind != &NODES);
        for (_, machine) in seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES) {
            machine["status"]["currentStatus"]["phase"] = json!(phase);
        }
    };
    let plane = Plane::with(&deployment(3), starting).await;
    assert!(plane.cell.unread.is_empty(), "{:?}", plane.cell.unread);
}

#[tokio::test]
async fn nodes_of_machines_of_the_provider_for_cluster_api_are_not_missed() {
    let provided = |seeds: &mut Vec<SeedObject>| {
        seeds.retain(|(kind, _)| *kind != &NODES);
        for (_, machine) in seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES) {
            machine["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": "m", "uid": "u",
                "controller": true,
            }]);
        }
    };
    let plane = Plane::with(&deployment(3), provided).await;
    assert_eq!(plane.cell.unread.iter().map(|unread| unread.kind.as_str()).collect::<Vec<_>>(), [""; 0]);
}

#[rstest]
#[case::the_current_state(ChangeContent::Nothing)]
#[case::a_scale_up(ChangeContent::Patch(json!({ "spec": { "replicas": 3 } })))]
#[tokio::test]
async fn a_drain_that_a_budget_never_allows_is_in_the_way(#[case] wish: ChangeContent) {
    let draining = |seeds: &mut Vec<SeedObject>| {
        let machine = &mut seeds.iter_mut().find(|(kind, _)| *kind == &MACHINES).unwrap().1;
        machine["metadata"]["deletionTimestamp"] = json!(Timestamp::now());
        machine["status"]["conditions"] = json!([{
            "type": "DrainBlocked", "status": "True",
            "message": "eviction refused by the disruption budget demo/web although all its pods are healthy",
        }]);
    };
    let plan = Plane::with(&deployment(2), draining).await.plan(&[change(wish)]).await;
    let blocker = plan.objects[0].blockers.first().unwrap_or_else(|| panic!("{plan:?}"));
    assert!(plan.blocked, "{plan:?}");
    assert!(blocker.wait_kind == "Eviction" && blocker.text.contains("budget demo/web"), "{blocker:?}");
}

/// A change of the class may end it, so it is in the way of the present state only.
#[rstest]
#[case::the_current_state(ChangeContent::Nothing, true)]
#[case::another_class(ChangeContent::Patch(of_template(&json!({ "class": { "name": "small" } }))), false)]
#[tokio::test]
async fn a_creation_that_fails_now_is_in_the_way(
    #[case] wish: ChangeContent,
    #[case] is_shown: bool,
    #[values("CrashLoopBackOff", "Failed")] phase: &str,
) {
    let failing = |seeds: &mut Vec<SeedObject>| {
        let machine = &mut seeds.iter_mut().find(|(kind, _)| *kind == &MACHINES).unwrap().1;
        machine["spec"]["providerID"] = json!("");
        machine["metadata"]["labels"]["node"] = json!("");
        machine["status"] = json!({
            "currentStatus": { "phase": phase, "lastUpdateTime": Timestamp::now() },
            "lastOperation": {
                "type": "Create", "state": "Failed", "errorCode": "ResourceExhausted", "lastUpdateTime": Timestamp::now(),
                "description": "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no host has room]",
            },
        });
    };
    let plan = Plane::with(&deployment(2), failing).await.plan(&[change(wish)]).await;
    let texts: Vec<&str> = plan.objects[0].blockers.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts.iter().any(|text| text.contains("no host has room")), is_shown, "{texts:?}");
}

/// Machines of an old set keep their timeouts; those of a set that stays get the new ones first.
#[rstest]
#[case::of_a_new_template(json!({ "class": { "name": "small" }, "drainTimeout": "2m" }), 3, "drainTimeout 10m")]
#[case::of_fewer_machines(json!({ "drainTimeout": "2m" }), 2, "1 × drainTimeout 2m")]
#[tokio::test]
async fn a_drain_has_the_timeout_of_the_machine_that_is_drained(
    #[case] template: Value,
    #[case] replicas: i32,
    #[case] expected: &str,
) {
    let plane = Plane::of(&deployment(3)).await;
    let plan = plane.patched(json!({ "spec": { "replicas": replicas, "template": { "spec": template } } })).await;
    let duration = plan.objects[0].duration.clone().unwrap_or_else(|| panic!("{plan:?}"));
    assert!(duration.timeouts.ends_with(expected), "{duration:?}");
}

#[tokio::test]
async fn drains_and_creations_under_way_count_with_the_time_that_is_left() {
    let begun = |seeds: &mut Vec<SeedObject>| {
        let ago = |minutes: i64| Timestamp::from_second(Timestamp::now().as_second() - minutes * 60).unwrap();
        let mut machines = seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES).map(|(_, machine)| machine);
        machines.next().unwrap()["metadata"]["deletionTimestamp"] = json!(ago(4));
        let pending = machines.next().unwrap();
        pending["status"]["currentStatus"]["phase"] = json!("Pending");
        pending["metadata"]["creationTimestamp"] = json!(ago(5));
    };
    let plan = Plane::with(&deployment(3), begun).await.plan(&[change(ChangeContent::Nothing)]).await;
    let duration = plan.objects[0].duration.clone().unwrap_or_else(|| panic!("{plan:?}"));
    let is_told = |what: &str| duration.timeouts.contains(&format!(" left of 1 {what} under way"));
    assert!(is_told("drain") && is_told("creation"), "{duration:?}");
    // 15 minutes of the creation and 6 of the drain, beside the creation of the third machine.
    let left = duration.at_most_seconds - 20 * 60;
    assert!((20 * 60..=21 * 60).contains(&left), "{duration:?}");
}

/// Situations 19 and 30: no strategy bounds failing machines, nor a surplus that is there already.
#[rstest]
#[case::of_a_healthy_pool("Running", 5, "small", Some((6, 4)))]
#[case::of_a_repair("Failed", 5, "large", None)]
#[case::of_a_pool_with_a_dead_machine("Unknown", 5, "small", None)]
#[case::with_fewer_machines("Running", 3, "small", None)]
#[tokio::test]
async fn only_rollouts_of_healthy_pools_have_bounds(
    #[case] phase: &str,
    #[case] replicas: i32,
    #[case] class: &str,
    #[case] expected: Option<(i32, i32)>,
) {
    let phase = phase.to_owned();
    let seeded = move |seeds: &mut Vec<SeedObject>| {
        let machines = seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES).map(|(_, machine)| machine);
        machines.take(3).for_each(|machine| machine["status"]["currentStatus"]["phase"] = json!(phase));
    };
    let plane = Plane::with(&deployment(5), seeded).await;
    let template = json!({ "spec": { "class": { "name": class } } });
    let plan = plane.patched(json!({ "spec": { "replicas": replicas, "template": template } })).await;
    let object = &plan.objects[0];
    assert_eq!(object.verdict, PlanVerdict::Replaces, "{}", text(&plan));
    assert_eq!(object.bounds.map(|bounds| (bounds.max_total, bounds.min_available)), expected, "{}", text(&plan));
}

/// Situations 13 and 14: the set controller reads the label of the set alone.
#[rstest]
#[case::a_frozen_set(&SETS, 4, true)]
#[case::a_frozen_set_that_need_not_grow(&SETS, 2, false)]
#[case::the_label_of_the_deployment_alone(&DEPLOYMENTS, 4, false)]
#[tokio::test]
async fn a_frozen_set_that_would_create_machines_is_in_the_way(
    #[case] of: &'static Kind,
    #[case] replicas: i32,
    #[case] is_blocked: bool,
) {
    let frozen = |seeds: &mut Vec<SeedObject>| {
        let object = &mut seeds.iter_mut().find(|(kind, _)| *kind == of).unwrap().1;
        object["metadata"]["labels"]["freeze"] = json!("True");
    };
    let plane = Plane::with(&deployment(2), frozen).await;
    let plan = plane.patched(json!({ "spec": { "replicas": replicas } })).await;
    let blockers: Vec<_> =
        plan.objects[0].blockers.iter().filter(|one| one.severity == BlockerSeverity::Blocks).collect();
    assert_eq!((plan.blocked, blockers.len()), (is_blocked, usize::from(is_blocked)), "{blockers:?}");
    if let [blocker] = blockers.as_slice() {
        let text = &blocker.text;
        assert!(text.contains("is frozen (label freeze=True): it creates no machine"), "{text}");
        assert!(text.ends_with("every 1m, removes the label once the set has at most 6 machines; it has 2"), "{text}");
        assert!(blocker.remedies.iter().any(|one| one.command.contains("unfreeze=True")), "{blocker:?}");
    }
}

/// A new template has another set, which no freeze holds back.
#[tokio::test]
async fn a_frozen_old_set_does_not_hold_a_new_template_back() {
    let frozen = |seeds: &mut Vec<SeedObject>| {
        let set = &mut seeds.iter_mut().find(|(kind, _)| *kind == &SETS).unwrap().1;
        set["metadata"]["labels"]["freeze"] = json!("True");
    };
    let plane = Plane::with(&deployment(2), frozen).await;
    let plan = plane.patched(of_template(&json!({ "class": { "name": "small" } }))).await;
    assert!(!plan.blocked, "{plan:?}");
    assert_eq!(plan.objects[0].verdict, PlanVerdict::Replaces);
}

/// As after `kubectl delete machinedeployment --cascade=orphan`, with further owners removed by `change`.
fn orphaned(seeds: &mut Vec<SeedObject>) {
    seeds.retain(|(kind, _)| *kind != &DEPLOYMENTS);
    for (_, set) in seeds.iter_mut().filter(|(kind, _)| *kind == &SETS) {
        set["metadata"]["ownerReferences"] = json!([]);
    }
}

/// The set is gone as well, as after the restoration of machines alone.
fn orphaned_machines(seeds: &mut Vec<SeedObject>) {
    orphaned(seeds);
    seeds.retain(|(kind, _)| *kind != &SETS);
    for (_, machine) in seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES) {
        machine["metadata"]["ownerReferences"] = json!([]);
    }
}

#[rstest]
#[case::of_another_class(orphaned, "small", 3, (PlanVerdict::Replaces, "REPLACES 3 of 3 machines", 3, 3, 3))]
#[case::of_the_same_class(orphaned, "large", 3, (PlanVerdict::Creates, "ADOPTS 3 machines, CREATES 0", 0, 0, 3))]
#[case::with_more_replicas(orphaned, "large", 5, (PlanVerdict::Creates, "ADOPTS 3 machines, CREATES 2", 2, 0, 3))]
#[case::with_fewer_replicas(orphaned, "large", 2, (PlanVerdict::Creates, "ADOPTS 3 machines, CREATES 0, DELETES 1", 0, 1, 3))]
#[case::machines_alone(orphaned_machines, "large", 3, (PlanVerdict::Creates, "ADOPTS 3 machines, CREATES 0", 0, 0, 3))]
#[tokio::test]
async fn a_new_deployment_adopts_what_it_selects(
    #[case] change: fn(&mut Vec<SeedObject>),
    #[case] class: &str,
    #[case] replicas: i32,
    #[case] expected: (PlanVerdict, &str, usize, usize, usize),
) {
    let plane = Plane::with(&deployment(3), change).await;
    let mut file = deployment(replicas);
    file["spec"]["template"]["spec"]["class"]["name"] = json!(class);
    let (changes, _) = changes_of_files(&[file], NAMESPACE).unwrap();
    let plan = plane.plan(&changes).await;
    let object = &plan.objects[0];
    let PlanSummary { create, delete, adopt, .. } = object.summary;
    assert_eq!((object.verdict, object.headline.as_str(), create, delete, adopt), expected, "{}", text(&plan));
    assert!(object.settles, "{}", text(&plan));
    assert_eq!(FailOn::Replace.is_met(&plan), expected.0 == PlanVerdict::Replaces);
    assert_eq!(FailOn::Delete.is_met(&plan), delete > create);
}

/// The set of the pool, and a copy of the pool, which selects it as well.
#[tokio::test]
async fn machines_of_a_set_that_another_deployment_adopts_are_left_out() {
    let shared = |seeds: &mut Vec<SeedObject>| {
        let pool = seeds.iter().find(|(kind, _)| *kind == &DEPLOYMENTS).unwrap().1.clone();
        orphaned(seeds);
        seeds.push((&DEPLOYMENTS, pool));
    };
    let plane = Plane::with(&deployment(2), shared).await;
    let facts = reader::unplanned(&plane.cell).await.unwrap();
    let plan = plane.plan(&changes_of_everything(&facts).0).await;
    let [object] = plan.objects.as_slice() else { panic!("{}", text(&plan)) };
    assert_eq!((object.summary.create, object.summary.adopt, object.is_settled), (0, 2, false), "{}", text(&plan));
    let mut other = deployment(2);
    other["metadata"]["name"] = json!("other");
    let (changes, _) = changes_of_files(&[other], NAMESPACE).unwrap();
    let plan = plane.plan(&changes).await;
    let object = &plan.objects[0];
    assert_eq!((object.summary.create, object.summary.adopt, object.machines.len()), (2, 0, 0), "{}", text(&plan));
}

/// As a verb plans its patch.
#[rstest]
#[case::a_class_that_exists("small", false)]
#[case::a_class_that_is_gone("gone", true)]
#[tokio::test]
async fn the_plan_of_a_patch_says_what_is_in_its_way(#[case] class: &str, #[case] is_blocked: bool) {
    let mut plane = Plane::of(&deployment(2)).await;
    let plan =
        of_change(&mut plane.cell, change(ChangeContent::Patch(of_template(&json!({ "class": { "name": class } })))))
            .await
            .unwrap();
    let is_in_the_way = |one: &PlanBlocker| one.severity == BlockerSeverity::Blocks && one.wait_kind == "Class";
    assert_eq!(plan.objects[0].blockers.iter().any(is_in_the_way), is_blocked, "{}", text(&plan));
    assert_eq!(plane.writes(), 0);
}

/// The fields of a schema, each with another value.
fn leaves(found: &mut Vec<(String, Value)>, at: &str, schema: &Value) {
    if let Some(fields) = schema["properties"].as_object() {
        for (name, field) in fields {
            leaves(found, &format!("{at}/{name}"), field);
        }
        return;
    }
    let value = match schema["type"].as_str().unwrap() {
        "object" => json!({ "team": "blue" }),
        "array" if at.ends_with("/taints") => json!([{ "key": "team", "value": "blue", "effect": "NoSchedule" }]),
        "array" => json!(["team"]),
        "boolean" => json!(true),
        "integer" => json!(7),
        _ if at.ends_with("/class/name") => json!("small"),
        _ if at.ends_with("Timeout") => json!("3m0s"),
        _ => json!("other"),
    };
    found.push((at.to_owned(), value));
}

/// Every field of the template in the schema of the kind: a plan replaces machines if and only if the set of the deployment does
/// not make the template any more, by the rule of the controllers.
#[tokio::test]
async fn the_effect_of_each_field_is_that_of_the_comparison_of_templates() {
    let plane = Plane::of(&deployment(1)).await;
    let crds = to_value(&crate::api::crd::crds());
    let crds = crds.as_array().unwrap().iter();
    let crd = crds.clone().find(|crd| crd["spec"]["names"]["kind"] == DEPLOYMENT).unwrap();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/template";
    let mut values = Vec::new();
    leaves(&mut values, "", crd.pointer(schema).unwrap());
    assert!(values.len() > 20, "{values:?}");
    let (mut told, facts) = (String::new(), reader::facts(&plane.cell).await.unwrap());
    let live = &facts.deployments["pool"];
    for (pointer, value) in values {
        let template =
            pointer.rsplit('/').filter(|part| !part.is_empty()).fold(value, |inner, part| json!({ part: inner }));
        let patch = json!({ "spec": { "template": template } });
        let mut wanted = to_value(live);
        crate::api::patch::apply(&mut wanted, &patch);
        let typed: MachineDeployment = serde_json::from_value(wanted).unwrap();
        let is_equal = facts.sets.values().next().unwrap().spec.makes(&typed.spec.template);
        let plan = plane.patched(patch).await;
        let object = &plan.objects[0];
        assert_eq!(object.fields.len(), 1, "{pointer}: {object:?}");
        let effect = object.fields[0].effect;
        assert_eq!(effect == FieldEffect::Replace, !is_equal, "{pointer}: {object:?}");
        assert_eq!(object.summary.delete > 0, !is_equal, "{pointer}: {object:?}");
        told.push_str(&format!("{pointer}: {effect:?}\n"));
    }
    insta::assert_snapshot!("effects", told);
}

#[tokio::test]
async fn a_secret_that_a_new_class_names_has_to_exist_or_come_with_it() {
    let plane = Plane::of(&deployment(1)).await;
    let mut fresh = class("fresh");
    fresh["secretRef"]["name"] = json!("fresh");
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "fresh" } });
    let facts = reader::unplanned(&plane.cell).await.unwrap();
    for (files, is_blocked) in [(vec![fresh.clone()], true), (vec![secret, fresh], false)] {
        let (changes, _) = changes_of_files(&files, NAMESPACE).unwrap();
        let secrets = secrets_of_files(&files, NAMESPACE);
        let premises = PlanPremises { new_secrets: secrets, ..PlanPremises::default() };
        let plan = plan_of(&plane.cell, &facts, &changes, premises).await.unwrap();
        assert_eq!(plan.blocked, is_blocked, "{}", text(&plan));
    }
}

/// No machine can be created from the new class, and the old ones go within the bounds only.
#[rstest]
#[case::without_data(json!(null))]
#[case::with_another_key(json!({ "token": "eA==" }))]
#[tokio::test]
async fn a_secret_without_user_data_is_in_the_way(#[case] data: Value) {
    let bare = |seeds: &mut Vec<SeedObject>| {
        seeds.push((&SECRETS, json!({ "metadata": { "name": "bare", "namespace": NAMESPACE }, "data": data })));
        let small = seeds.iter_mut().find(|(_, value)| value["metadata"]["name"] == "small").unwrap();
        small.1["secretRef"]["name"] = json!("bare");
    };
    let plane = Plane::with(&deployment(3), bare).await;
    let plan = plane.patched(of_template(&json!({ "class": { "name": "small" } }))).await;
    let of_pool = &plan.objects[0];
    let blocks = of_pool.blockers.iter().filter(|one| one.severity == BlockerSeverity::Blocks);
    let texts: Vec<&str> = blocks.map(|one| one.text.as_str()).collect();
    assert!(plan.blocked, "{}", text(&plan));
    assert_eq!(texts, ["no Secret of class small has the key userData: no machine can be created"]);
    assert!(!of_pool.settles && of_pool.summary.delete <= 1, "{}", text(&plan));
    let kept = plane.patched(json!({ "spec": { "replicas": 4 } })).await;
    assert!(!kept.blocked, "the class of now has user data: {}", text(&kept));
}

/// The budget has no room because of a pod elsewhere, which has to become Ready: the budget is not the fault.
#[rstest]
#[case::one("1", 2, "demo/web-1 is not Ready")]
#[case::two("2", 1, "demo/web-1, demo/web-2 are not Ready")]
#[tokio::test]
async fn a_budget_without_room_names_the_pods_that_are_not_ready(
    #[case] last: &str,
    #[case] healthy: i32,
    #[case] expected: &str,
) {
    use mcm_fake_api::{BUDGETS, PODS};

    let tight =
        |seeds: &mut Vec<SeedObject>| {
            let nodes: Vec<Value> =
                seeds.iter().filter(|(kind, _)| *kind == &NODES).map(|(_, node)| node.clone()).collect();
            for (number, node) in nodes.iter().enumerate() {
                let number = number.to_string();
                let is_ready = number == "0" || number.as_str() > last;
                let ready = json!([{ "type": "Ready", "status": if is_ready { "True" } else { "False" } }]);
                seeds.push((&PODS, json!({
                "metadata": { "name": format!("web-{number}"), "namespace": NAMESPACE, "labels": { "app": "web" } },
                "spec": { "nodeName": node["metadata"]["name"], "containers": [] },
                "status": { "phase": "Running", "conditions": ready },
            })));
            }
            seeds.push((&BUDGETS, json!({
            "metadata": { "name": "web", "namespace": NAMESPACE },
            "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } },
            "status": { "disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3 },
        })));
        };
    let plane = Plane::with(&deployment(3), tight).await;
    let plan = plane.patched(of_template(&json!({ "class": { "name": "small" } }))).await.objects.remove(0);
    let blocker = plan.blockers.iter().find(|one| one.wait_kind == "Eviction").unwrap_or_else(|| panic!("{plan:?}"));
    assert_eq!(blocker.severity, BlockerSeverity::Delays);
    assert!(blocker.text.contains(expected), "{}", blocker.text);
    assert_eq!(blocker.remedies[0].command, "kubectl describe pod web-1 -n demo");
    assert!(blocker.remedies.iter().all(|one| !one.command.contains("minAvailable")), "{blocker:?}");
}

/// Unknown is not absent: the controllers count such a machine, and a rehearsal without it would create another.
#[tokio::test]
async fn a_deployment_with_a_machine_that_cannot_be_decoded_is_not_judged() {
    let break_one = |seeds: &mut Vec<SeedObject>| {
        let machine = seeds.iter_mut().find(|(kind, _)| *kind == &MACHINES).unwrap();
        machine.1["spec"]["drainTimeout"] = json!("2 hours");
    };
    let plane = Plane::with(&deployment(3), break_one).await;
    let plan = plane.patched(of_template(&json!({ "class": { "name": "small" } }))).await;
    assert_eq!((plan.objects[0].verdict, plan.complete), (PlanVerdict::Unknown, false), "{}", text(&plan));
    let reason = plan.objects[0].reason.clone().unwrap();
    assert!(reason.contains("cannot be read") && reason.contains("2 hours"), "{reason}");
}

#[tokio::test]
async fn a_deployment_that_cannot_be_decoded_is_unknown_and_in_the_way_until_it_is_corrected() {
    let break_it = |seeds: &mut Vec<SeedObject>| {
        let pool = seeds.iter_mut().find(|(kind, _)| *kind == &DEPLOYMENTS).unwrap();
        pool.1["spec"]["template"]["spec"]["drainTimeout"] = json!("2 hours");
    };
    let plan = Plane::with(&deployment(2), break_it).await.plan(&[change(ChangeContent::Nothing)]).await;
    let object = &plan.objects[0];
    assert_eq!((object.verdict, plan.complete, plan.blocked), (PlanVerdict::Unknown, false, true), "{}", text(&plan));
    assert!(object.reason.as_ref().unwrap().contains("2 hours"), "{object:?}");
    let command = &object.blockers[0].remedies[0].command;
    assert_eq!(command, &format!("kubectl edit machinedeployments.machine.sapcloud.io pool -n {NAMESPACE}"));
}

#[tokio::test]
async fn a_deployment_whose_machines_may_not_be_listed_is_not_judged() {
    let mut plane = Plane::of(&deployment(1)).await;
    plane.cell.unread =
        vec![UnreadKind { kind: "machines".to_owned(), cause: UnreadCause::Refusal("forbidden".to_owned()) }];
    let plan = plane.patched(json!({ "spec": { "replicas": 2 } })).await;
    assert_eq!(plan.objects[0].reason.as_deref(), Some("you may not list machines"), "{}", text(&plan));
}

#[rstest]
#[case::left_out(None, PlanVerdict::NoChange)]
#[case::zero(Some(0), PlanVerdict::Scales)]
#[tokio::test]
async fn a_file_without_replicas_deletes_no_machine(#[case] replicas: Option<i32>, #[case] verdict: PlanVerdict) {
    let applied = deployment(3);
    let plane = Plane::with(&applied, |seeds| {
        let live = seeds.iter_mut().find(|(kind, _)| *kind == &DEPLOYMENTS).unwrap();
        live.1["metadata"]["annotations"][labels::KUBECTL_LAST_APPLIED] = json!(applied.to_string());
        live.1["metadata"]["managedFields"] = json!([{
            "manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:replicas": {}, "f:template": {} } },
        }]);
    });
    let mut file = applied.clone();
    file["spec"]["replicas"] = json!(replicas);
    if replicas.is_none() {
        file["spec"].as_object_mut().unwrap().remove("replicas");
    }
    let (changes, _) = changes_of_files(&[file], NAMESPACE).unwrap();
    let plan = plane.await.plan(&changes).await.objects.remove(0);
    assert_eq!((plan.verdict, plan.remarks.len()), (verdict, usize::from(replicas.is_none())), "{plan:?}");
    assert_eq!(plan.summary.delete, replicas.map_or(0, |_| 3), "{plan:?}");
}

#[test]
fn an_effect_on_one_object_is_refused_whatever_happens_to_others() {
    let object = |verdict, create, delete, actions: &[Action]| {
        let machine = |action: &Action| MachinePlan { name: "m".to_owned(), action: *action, step: Some(1) };
        let summary = PlanSummary { create, delete, ..PlanSummary::default() };
        let machines = actions.iter().map(machine).collect();
        ObjectPlan { summary, machines, ..ObjectPlan::without_effect(DEPLOYMENT, NAMESPACE, "pool", verdict) }
    };
    let plan = |objects| Plan::from_objects(Timestamp::UNIX_EPOCH, objects, Vec::new());
    let shrinks = object(PlanVerdict::Scales, 0, 2, &[Action::Delete, Action::Delete]);
    let grows = object(PlanVerdict::Scales, 5, 0, &[]);
    assert!(FailOn::Delete.is_met(&plan(vec![shrinks, grows.clone()])), "others are created elsewhere");
    assert!(!FailOn::Delete.is_met(&plan(vec![grows])));
    let cut = plan(vec![object(PlanVerdict::Unknown, 1, 1, &[Action::Replace])]);
    assert!(FailOn::Replace.is_met(&cut), "some of its machines are replaced in the rounds that were played");
    assert!(!FailOn::Delete.is_met(&cut));
}

#[tokio::test]
async fn a_change_without_a_rollout_is_played_with_few_machines_and_keeps_all() {
    let plane = Plane::of(&deployment(36)).await;
    let plan = plane.patched(of_template(&json!({ "drainTimeout": "2m" }))).await.objects.remove(0);
    assert_eq!((plan.summary.propagate, plan.machines.len(), plan.remarks.len()), (36, 36, 1), "{plan:?}");
    assert!(plan.machines.iter().all(|machine| machine.action == Action::Keep), "{plan:?}");
}

#[test]
fn a_change_that_takes_too_long_is_unknown_after_the_rounds_that_were_played() {
    use mcm_insight::rehearsal::record::{MachineTransition, OwnTimeouts, RehearsalCourse, RehearsalEntry};

    let deployment: MachineDeployment = serde_json::from_value(deployment(5)).unwrap();
    let create = RehearsalEntry {
        at: Duration::ZERO,
        act: MachineTransition::Create,
        machine: "new".to_owned(),
        is_known: false,
        timeouts: OwnTimeouts::default(),
        tallies: [].into(),
    };
    let course = RehearsalCourse {
        entries: vec![create],
        ending: RehearsalEnding::Cut,
        took: Duration::from_secs(1),
        objects: [].into(),
        nodes: [].into(),
        tallies: [].into(),
        kept: [].into(),
        adopted: [].into(),
        others: [].into(),
        grown: [].into(),
        waits: Vec::new(),
    };
    let policy = mcm_controllers::machine::MachinePolicy::default();
    let case = PlannedDeployment {
        live: None,
        wanted: Some(&deployment),
        machines: &[],
        policy: &policy,
        fields: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    };
    let mut plan = ObjectPlan::without_effect(DEPLOYMENT, NAMESPACE, "pool", PlanVerdict::Unknown);
    case.fill(&mut plan, &course);
    let plan = Plan::from_objects(Timestamp::UNIX_EPOCH, vec![plan], Vec::new());
    assert!(!plan.complete);
    insta::assert_snapshot!("cut", text(&plan));
}

#[test]
fn the_schema_is_published() {
    crate::cli::document::tests::published::<Plan>("plan");
}

/// The plan of a pool of three for a change, with assumed faults.
async fn assuming(faults: &[&str], wish: ChangeContent) -> Plan {
    let zoned = |seeds: &mut Vec<SeedObject>| {
        let nodes = seeds.iter_mut().filter(|(kind, _)| *kind == &NODES);
        for ((_, node), zone) in nodes.zip(["eu-1a", "eu-1b", "eu-1b"]) {
            node["metadata"]["labels"][labels::ZONE] = json!(zone);
        }
    };
    let plane = Plane::with(&deployment(3), zoned).await;
    let facts = reader::unplanned(&plane.cell).await.unwrap();
    let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    plan_of(&plane.cell, &facts, &[change(wish)], PlanPremises { faults, ..PlanPremises::default() }).await.unwrap()
}

#[tokio::test]
async fn a_rollout_to_a_class_of_which_nothing_is_left_stops_within_its_bounds() {
    let wish = || ChangeContent::Patch(of_template(&json!({ "class": { "name": "small" } })));
    let plan = assuming(&["stock-out=small"], wish()).await;
    let object = &plan.objects[0];
    assert!(!object.settles && plan.blocked, "{}", text(&plan));
    let replaced = object.machines.iter().filter(|machine| machine.action != Action::Keep).count();
    assert_eq!(replaced, 1, "maxUnavailable is 1: {}", text(&plan));
    assert!(plan.notes.contains(&"assumed: the cloud has no VM of class small left".to_owned()), "{:?}", plan.notes);
    let other = assuming(&["stock-out=large"], wish()).await;
    assert!(other.objects[0].settles, "{}", text(&other));
}

#[tokio::test]
async fn the_machines_of_a_zone_that_is_down_are_replaced() {
    let plan = assuming(&["zone-down=eu-1a"], ChangeContent::Nothing).await;
    let replaced = plan.objects[0].machines.iter().filter(|machine| machine.action == Action::Replace).count();
    assert_eq!((replaced, plan.objects[0].settles), (1, true), "{}", text(&plan));
    let nothing = assuming(&["zone-down=eu-1c"], ChangeContent::Nothing).await;
    assert_eq!(nothing.objects[0].verdict, PlanVerdict::NoChange, "{}", text(&nothing));
}

#[tokio::test]
async fn a_rollout_by_a_tenth_without_an_unavailable_machine_reaches_its_end() {
    let mut pool = deployment(30);
    pool["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": "10%", "maxUnavailable": 0 });
    let plan = Plane::of(&pool).await.patched(of_template(&json!({ "class": { "name": "small" } }))).await;
    let object = &plan.objects[0];
    assert_eq!((object.settles, object.summary.create, object.summary.delete), (true, 30, 30), "{}", text(&plan));
}
