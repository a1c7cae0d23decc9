//! A kind outside of the product, in cells against an API server in memory, on virtual time.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    super::{
        api_server::{ApiServer, ApiVerb, CONFIG_MAPS, EVENTS, PerfectNetwork},
        clock::VirtualClock,
    },
    HOLD, KEYS,
    register::{KIND, ROLE},
};
use crate::node;
use mcm_rules::plan::{SubjectRef, WaitKind};
use mcm_runtime::{
    cache::Key,
    cell::{CellConfig, CellScope, ControllerCell, RoleEnd, SharedCellState},
    cells::CellOverview,
    clock::TimeSource,
    events::EventRecorder,
    explain::ObjectExplanation,
    kind_cache::KindCaches,
    metrics::MetricsRegistry,
    role::ControllerRole,
    target::{CellTargets, TargetAssignment},
};

const HOUR: Duration = Duration::from_hours(1);

/// One process.
pub(super) struct Program {
    pub(super) cell: Arc<ControllerCell>,
    metrics: MetricsRegistry,
}

/// A program that plays the role.
struct Leading {
    stop: CancellationToken,
    task: AbortOnDropHandle<RoleEnd>,
}

impl Program {
    pub(super) fn start(server: &ApiServer, clock: &VirtualClock, roles: &[ControllerRole]) -> Self {
        let control = server.client("program");
        let shared = SharedCellState {
            clock: Arc::new(clock.clone()),
            metrics: MetricsRegistry::new(),
            caches: Arc::default(),
            entropy: Arc::new(|| 7),
            cells: Arc::default(),
        };
        let metrics = shared.metrics.clone();
        metrics.attach(&shared.cells);
        let config = CellConfig {
            name: String::new(),
            scope: CellScope::Namespace("shoot".to_owned()),
            events: EventRecorder::start(control.clone(), "tiny", Arc::clone(&shared.clock), metrics.clone()),
            control,
            targets: CellTargets::new(TargetAssignment::None, node::cache),
            kinds: KindCaches::default().with(super::cache::CACHE),
            shared,
        };
        Self { cell: ControllerCell::new(config, &[KIND], roles, &()), metrics }
    }

    fn lead(&self) -> Leading {
        let (cell, stop) = (Arc::clone(&self.cell), CancellationToken::new());
        let until = stop.clone();
        Leading { stop, task: AbortOnDropHandle::new(tokio::spawn(async move { cell.lead(&ROLE, &until).await })) }
    }

    fn explain(&self, name: &str) -> Option<ObjectExplanation> {
        self.cell.explain("ConfigMap", &Key::new("shoot", name))
    }

    /// A figure of the kind's queue.
    fn queue(&self, family: &str) -> Option<f64> {
        let text = self.metrics.render();
        let line = format!("{family}{{name=\"tiny\"}} ");
        text.lines().find_map(|one| one.strip_prefix(&line)?.parse().ok())
    }
}

fn world() -> (ApiServer, VirtualClock) {
    let clock = VirtualClock::new();
    (ApiServer::new(&clock, Arc::new(PerfectNetwork)), clock)
}

pub(super) fn put(server: &ApiServer, name: &str, content: Value) {
    let mut map = json!({ "metadata": { "name": name, "namespace": "shoot" } });
    map.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    if server.get(&CONFIG_MAPS, "shoot", name).is_none() {
        server.create(&CONFIG_MAPS, map).unwrap();
    } else {
        server.edit(&CONFIG_MAPS, "shoot", name, |stored| super::super::api_server::merge(stored, &content)).unwrap();
    }
}

pub(super) fn keys(server: &ApiServer, name: &str) -> Option<String> {
    let map = server.get(&CONFIG_MAPS, "shoot", name)?;
    map.value["metadata"]["annotations"][KEYS].as_str().map(str::to_owned)
}

/// Writes of the program to ConfigMaps.
pub(super) fn writes(server: &ApiServer) -> usize {
    let is_read = |verb: ApiVerb| matches!(verb, ApiVerb::Get | ApiVerb::List | ApiVerb::Watch);
    server.calls().iter().filter(|call| call.kind == &CONFIG_MAPS && !is_read(call.verb)).count()
}

/// `unreadable-map Unreadable`, for each event.
fn events(server: &ApiServer) -> Vec<String> {
    let event = |event: &Value| {
        format!("{} {}", event["involvedObject"]["name"].as_str().unwrap(), event["reason"].as_str().unwrap())
    };
    server.all(&EVENTS).iter().map(|stored| event(&stored.value)).collect()
}

/// Lets time pass until it is so.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(5), "never: {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_reconciled_and_then_nothing_is_done() {
    let (server, clock) = world();
    put(&server, "there", json!({ "data": { "b": "1", "a": "2" } }));
    let program = Program::start(&server, &clock, &[ROLE]);
    let _leading = program.lead();
    until("what was there is reconciled", || keys(&server, "there").as_deref() == Some("a,b")).await;

    put(&server, "there", json!({ "data": { "c": "3" } }));
    put(&server, "new", json!({}));
    until("a change is", || keys(&server, "there").as_deref() == Some("a,b,c")).await;
    until("a new one is", || keys(&server, "new").as_deref() == Some("")).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(writes(&server), 3);

    let adds = program.queue("mcm_workqueue_adds_total");
    sleep(HOUR).await;
    assert_eq!(writes(&server), 3, "idle");
    assert_eq!(program.queue("mcm_workqueue_adds_total"), adds, "nothing is even looked at again");
}

#[tokio::test(start_paused = true)]
async fn a_standby_watches_and_acts_and_exports_only_while_it_plays_its_role() {
    let (server, clock) = world();
    let program = Program::start(&server, &clock, &[ROLE]);
    program.cell.wait_synced().await;
    put(&server, "a", json!({ "data": { "x": "" } }));
    put(&server, "odd", json!({ "data": ["no map"] }));
    sleep(HOUR).await;
    assert_eq!((writes(&server), events(&server).len()), (0, 0));
    let exports = || program.metrics.render().contains("\ntiny_maps 1\n");
    assert!(!exports());

    let leading = program.lead();
    until("it acts on what it saw before", || keys(&server, "a").as_deref() == Some("x")).await;
    assert!(exports());
    leading.stop.cancel();
    assert_eq!(leading.task.await.unwrap(), RoleEnd::Completely);
    let reported = events(&server);
    put(&server, "odd-later", json!({ "data": ["no map"] }));
    put(&server, "a", json!({ "data": { "y": "" } }));
    sleep(HOUR).await;
    assert_eq!(keys(&server, "a").as_deref(), Some("x"));
    assert_eq!(events(&server), reported);
    assert!(!exports());
}

#[tokio::test(start_paused = true)]
async fn a_process_without_the_role_does_not_even_watch() {
    let (server, clock) = world();
    let _program = Program::start(&server, &clock, &[ControllerRole { name: "another", lease: "another" }]);
    sleep(HOUR).await;
    assert!(server.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_is_reported_and_not_touched_until_it_is_corrected() {
    let (server, clock) = world();
    put(&server, "odd", json!({ "data": ["no map"] }));
    put(&server, "broken-later", json!({ "data": { "a": "" } }));
    let program = Program::start(&server, &clock, &[ROLE]);
    let _leading = program.lead();
    until("the others are reconciled", || keys(&server, "broken-later").as_deref() == Some("a")).await;
    until("it is reported", || events(&server) == ["odd Unreadable"]).await;

    put(&server, "broken-later", json!({ "data": 7 }));
    until("it is reported, too", || events(&server).contains(&"broken-later Unreadable".to_owned())).await;
    sleep(HOUR).await;
    assert_eq!((writes(&server), keys(&server, "odd")), (1, None));

    put(&server, "odd", json!({ "data": { "even": "" } }));
    until("it is corrected", || keys(&server, "odd").as_deref() == Some("even")).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_the_lint_refuses_is_not_carried_out_and_made_again_later() {
    let (server, clock) = world();
    put(&server, "locked", json!({ "immutable": true, "data": { "a": "" } }));
    let program = Program::start(&server, &clock, &[ROLE]);
    let _leading = program.lead();
    let retries = || program.queue("mcm_workqueue_retries_total").unwrap();
    until("it is tried again and again", || retries() >= 5.0).await;
    put(&server, "free", json!({ "data": { "b": "" } }));
    until("others are not held up", || keys(&server, "free").as_deref() == Some("b")).await;
    assert_eq!(keys(&server, "locked"), None);

    put(&server, "locked", json!({ "immutable": false }));
    until("the next plan is carried out", || keys(&server, "locked").as_deref() == Some("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_explained_from_its_start_to_its_end() {
    let (server, clock) = world();
    put(&server, "map", json!({ "data": { "a": "" } }));
    let program = Program::start(&server, &clock, &[ROLE]);
    assert_eq!(program.explain("map"), None, "a standby plans nothing");
    let _leading = program.lead();
    let waits = || program.explain("map").map(|explanation| explanation.waits);
    until("it is planned and waits for nothing", || waits() == Some(Vec::new())).await;
    assert_eq!(program.explain("map").unwrap().step, None);

    let begun = clock.now();
    put(&server, "map", json!({ "metadata": { "annotations": { HOLD: "a user" } } }));
    until("it waits", || waits().unwrap().len() == 1).await;
    let first = program.explain("map").unwrap();
    let map = SubjectRef { kind: "ConfigMap".to_owned(), namespace: "shoot".to_owned(), name: "map".to_owned() };
    assert_eq!((&first.object, first.controller), (&map, "tiny"));
    let waiting = &first.waits[0];
    assert_eq!((waiting.wait.kind, waiting.wait.text.as_str(), waiting.plans), (WaitKind::Hold, "a user", 1));
    assert!(begun <= waiting.since && waiting.since <= clock.now());
    assert_eq!((first.since, first.last_planned), (Some(waiting.since), waiting.since));

    sleep(HOUR).await;
    put(&server, "map", json!({ "data": { "b": "" } }));
    until("it is planned again", || waits().unwrap()[0].plans == 2).await;
    let second = program.explain("map").unwrap();
    assert_eq!(second.since, first.since);
    assert!(second.last_planned > first.last_planned);

    put(&server, "map", json!({ "metadata": { "annotations": { HOLD: null } } }));
    until("the wait ends", || waits() == Some(Vec::new())).await;
}

#[tokio::test(start_paused = true)]
async fn waits_are_counted_by_kind_and_leave_with_their_objects() {
    let (server, clock) = world();
    let program = Program::start(&server, &clock, &[ROLE]);
    let sample = |series: &str| {
        let text = program.metrics.render();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse::<f64>().ok());
        value.unwrap_or_default()
    };
    let role = format!("mcm_leader{{cell=\"\",role=\"{}\"}}", ROLE.lease);
    assert!(program.metrics.render().contains(&format!("\n{role} 0\n")), "a standby has the series");
    let _leading = program.lead();
    for name in ["one", "other"] {
        put(&server, name, json!({ "data": { "a": "" } }));
        put(&server, name, json!({ "metadata": { "annotations": { HOLD: "a user" } } }));
        sleep(HOUR).await;
    }
    let (count, longest) = (r#"mcm_waiting{controller="tiny",kind="Hold"}"#, "mcm_waiting_longest_seconds");
    let longest = count.replace("mcm_waiting", longest);
    until("both wait", || sample(count) == 2.0).await;
    assert!(sample(&longest) >= 7200.0, "{}", sample(&longest));
    assert_eq!(sample(&role), 1.0);
    let waiters = program.cell.waiters(Some("shoot"));
    assert_eq!(waiters.iter().map(|one| one.object.name.as_str()).collect::<BTreeSet<_>>(), ["one", "other"].into());
    assert!(program.cell.waiters(Some("another")).is_empty());

    server.delete(&CONFIG_MAPS, "shoot", "one").unwrap();
    until("one waits", || sample(count) == 1.0).await;
    put(&server, "other", json!({ "metadata": { "annotations": { HOLD: null } } }));
    until("no series is left", || !program.metrics.render().contains("mcm_waiting{")).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_or_undecodable_object_has_no_explanation() {
    let (server, clock) = world();
    let program = Program::start(&server, &clock, &[ROLE]);
    let _leading = program.lead();
    for name in ["deleted", "broken"] {
        put(&server, name, json!({ "data": { "a": "" } }));
        put(&server, name, json!({ "metadata": { "annotations": { HOLD: "a user" } } }));
        until("it waits", || program.explain(name).is_some_and(|explanation| explanation.waits.len() == 1)).await;
    }
    server.delete(&CONFIG_MAPS, "shoot", "deleted").unwrap();
    put(&server, "broken", json!({ "data": 7 }));
    for name in ["deleted", "broken", "never-there"] {
        until("nothing is kept", || program.explain(name).is_none()).await;
    }
    assert_eq!(program.cell.explain("another", &Key::new("shoot", "deleted")), None);
}

#[tokio::test(start_paused = true)]
async fn a_refused_step_is_explained() {
    let (server, clock) = world();
    put(&server, "locked", json!({ "immutable": true, "data": { "a": "" } }));
    let program = Program::start(&server, &clock, &[ROLE]);
    let _leading = program.lead();
    let step = || program.explain("locked")?.step;
    until("the step is shown", || step().is_some_and(|step| step.ends_with("its data has the keys \"a\""))).await;
}
