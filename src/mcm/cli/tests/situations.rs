//! Situations in which a pool is changed or hangs, played by the shipped controllers in the simulated cloud. In each of them the plan
//! before the change is what then happens or names what is in the way; and while it is under way or hangs, `mcm why` names the cause,
//! and all commands that read have one verdict.

use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::{
    super::reading::drivers,
    readers::{ClusterState, StateReaders, patched, unchanged},
    stage::{MachineChanges, NAMESPACE, PoolStage, play, pool},
};
use crate::{
    api::labels,
    simulated_cloud::{KillMode, KillRequest},
};
use mcm_fake_api::{ApiVerb, BUDGETS, CLASSES, DEPLOYMENTS, Kind, MACHINES, NODES, PODS, SECRETS, SETS};
use mcm_insight::{
    plan::answer::{Action, ObjectPlan, Plan},
    report,
    story::{DEPLOYMENT, ObjectVerdict},
    terminal::TerminalLook,
};

/// The course of a stage.
#[derive(Clone, Copy)]
enum Act {
    /// The pool becomes as it is wanted.
    Settle,
    /// Seconds pass.
    Wait(u64),
    /// Something changes at once.
    Do(fn(&PoolStage)),
}

/// The expected plan of a change.
#[derive(Clone, Copy, PartialEq)]
enum Planned {
    /// The effect of the change: the machines that are deleted, and the number of those created.
    Equal,
    /// It is blocked, for this reason.
    Blocked(&'static str),
    /// It is not blocked, and contains this text.
    Says(&'static str),
    /// The cause comes after the plan.
    Nothing,
}

/// A pool that is changed, or hangs.
struct Situation {
    /// A name for failures.
    name: &'static str,
    /// The target cluster is another one than the control cluster.
    is_apart: bool,
    /// The command reads the Nodes of the control cluster, although they are elsewhere.
    reads_wrong_target: bool,
    /// Until the plan is made.
    before: Vec<Act>,
    /// A merge patch of the pool; without one, the plan is for what happens anyway.
    change: Option<Value>,
    planned: Planned,
    /// Until the commands are asked.
    then: Vec<Act>,
    /// The verdict about the pool.
    verdict: ObjectVerdict,
    /// Words that `mcm why pool` has.
    why: &'static str,
    /// Words that `mcm plan pool` has then; empty if it has none.
    now: &'static str,
}

impl Situation {
    fn new(name: &'static str, before: &[Act]) -> Self {
        Self {
            name,
            is_apart: false,
            reads_wrong_target: false,
            before: before.to_vec(),
            change: None,
            planned: Planned::Nothing,
            then: vec![Act::Wait(20)],
            verdict: ObjectVerdict::Progressing,
            why: "",
            now: "",
        }
    }

    /// The change with its expected plan.
    fn changed(self, change: Value, planned: Planned) -> Self {
        Self { change: Some(change), planned, ..self }
    }

    fn planned(self, planned: Planned) -> Self {
        Self { planned, ..self }
    }

    fn then(self, then: &[Act]) -> Self {
        Self { then: then.to_vec(), ..self }
    }

    /// The answers after the change.
    fn asked(self, verdict: ObjectVerdict, why: &'static str, now: &'static str) -> Self {
        Self { verdict, why, now, ..self }
    }

    /// The differences between what should be and what is.
    fn failures(&self) -> Vec<String> {
        let (before, middle, changes) = play(async || self.play().await);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut found = self.compare_plan(&before, &changes).await;
            found.extend(self.ask(&middle).await);
            found
        })
    }

    async fn play(&self) -> (ClusterState, ClusterState, MachineChanges) {
        let stage = PoolStage::new(self.is_apart);
        stage.start_manager();
        act(&stage, &self.before).await;
        let before = self.seen(stage.state());
        stage.take_changes();
        if let Some(change) = &self.change {
            stage.patch(&DEPLOYMENTS, "pool", change);
        }
        act(&stage, &self.then).await;
        let middle = self.seen(stage.state());
        if self.planned == Planned::Equal {
            stage.settle().await;
        }
        (before, middle, stage.take_changes())
    }

    /// The state as the commands read it.
    fn seen(&self, state: ClusterState) -> ClusterState {
        if self.reads_wrong_target { ClusterState { target: None, ..state } } else { state }
    }

    async fn compare_plan(&self, before: &ClusterState, changes: &MachineChanges) -> Vec<String> {
        let mut readers = StateReaders::of(before, drivers().unwrap()).await;
        let change = self.change.as_ref().map_or_else(|| unchanged("pool"), |change| patched("pool", change));
        let plan = readers.plan(vec![change]).await;
        let object = &plan.objects[0];
        match self.planned {
            Planned::Nothing => Vec::new(),
            Planned::Equal => differences(object, changes),
            Planned::Blocked(words) => missing("plan before", &plan, words, Some(true)),
            Planned::Says(words) => missing("plan before", &plan, words, Some(false)),
        }
    }

    async fn ask(&self, state: &ClusterState) -> Vec<String> {
        let mut readers = StateReaders::of(state, drivers().unwrap()).await;
        let mut found = readers.disagreements().await;
        let answer = readers.why(DEPLOYMENT, "pool");
        let text = report::one(TerminalLook::PLAIN, &answer, None, &[], &readers.listed);
        if answer.verdict != self.verdict || !joined(&text).contains(self.why) {
            found.push(format!("mcm why: not {:?} with {:?}:\n{text}", self.verdict, self.why));
        }
        let plan = readers.plan(vec![unchanged("pool")]).await;
        found.extend(missing("plan in the middle", &plan, self.now, None));
        found.extend(readers.plans_that_disagree().await);
        found
    }
}

async fn act(stage: &PoolStage, acts: &[Act]) {
    for act in acts {
        match act {
            Act::Settle => stage.settle().await,
            Act::Wait(seconds) => sleep(Duration::from_secs(*seconds)).await,
            Act::Do(act) => act(stage),
        }
    }
}

/// The words in one line.
pub(super) fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn missing(what: &str, plan: &Plan, words: &str, is_blocked: Option<bool>) -> Vec<String> {
    let object = &plan.objects[0];
    let blockers = object.blockers.iter().map(|one| one.text.as_str());
    let texts: Vec<&str> = [object.headline.as_str()]
        .into_iter()
        .chain(object.reason.as_deref())
        .chain(blockers)
        .chain(plan.notes.iter().map(String::as_str))
        .collect();
    let has_words = joined(&texts.join(" ")).contains(words);
    let is_met = has_words && is_blocked.is_none_or(|is_blocked| plan.blocked == is_blocked);
    let told = || format!("{what}: blocked: {}, wanted {words:?}: {texts:#?}", plan.blocked);
    (!is_met).then(told).into_iter().collect()
}

/// The differences between a plan and what happened.
fn differences(plan: &ObjectPlan, changes: &MachineChanges) -> Vec<String> {
    let goes = plan.machines.iter().filter(|one| matches!(one.action, Action::Replace | Action::Delete));
    let goes: BTreeSet<&str> = goes.map(|one| one.name.as_str()).collect();
    let known: BTreeSet<&str> = plan.machines.iter().map(|one| one.name.as_str()).collect();
    let went: BTreeSet<&str> = changes.deleted.iter().map(String::as_str).filter(|name| known.contains(name)).collect();
    let mut found = Vec::new();
    if goes != went {
        found.push(format!("{}: planned to go: {goes:?}, gone: {went:?}", plan.headline));
    }
    if plan.summary.create != changes.created.len() || plan.summary.delete != changes.deleted.len() {
        found.push(format!("{}: planned: {:?}, happened: {changes:?}", plan.headline, plan.summary));
    }
    let most = plan.bounds.and_then(|bounds| usize::try_from(bounds.max_total).ok());
    if most.is_some_and(|most| changes.most > most) {
        found.push(format!("{}: at most {most:?}, and there were {}", plan.headline, changes.most));
    }
    found
}

fn check(situations: Vec<Situation>) {
    let mut found = Vec::new();
    for one in &situations {
        let failures = one.failures();
        found.extend((!failures.is_empty()).then(|| format!("{}:\n  {}", one.name, failures.join("\n  "))));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn template(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

fn to_class(name: &str) -> Value {
    template(&json!({ "class": { "name": name } }))
}

fn replicas(count: u32) -> Value {
    json!({ "spec": { "replicas": count } })
}

/// A pool that is settled.
macro_rules! settled {
    ($count:expr $(, $act:expr)*) => {
        [Act::Do(|stage| drop(stage.control.create(&DEPLOYMENTS, pool($count)).unwrap())), Act::Settle $(, $act)*]
    };
}

fn names(stage: &PoolStage, kind: &Kind) -> Vec<String> {
    let server = if *kind == NODES { &stage.target } else { &stage.control };
    server.all(kind).iter().map(|one| one.name().to_owned()).collect()
}

/// A pod on each of some Nodes, the first of which are not Ready, and the budget of all, if it needs any.
fn run_web(stage: &PoolStage, nodes: usize, unready: usize, min_available: usize, finalizers: &[&str]) {
    for (number, node) in names(stage, &NODES).iter().take(nodes).enumerate() {
        let ready = if number < unready { "False" } else { "True" };
        let pod = json!({
            "metadata": {
                "name": format!("web-{number}"), "namespace": "default", "uid": format!("web-{number}"), "labels": { "app": "web" },
                "finalizers": finalizers,
            },
            "spec": { "nodeName": node, "containers": [], "terminationGracePeriodSeconds": 30 },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
        });
        stage.target.seed(&PODS, pod);
    }
    if min_available == 0 {
        return;
    }
    let healthy = nodes - unready;
    let budget = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "web", "generation": 1 },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": "web" } } },
        "status": {
            "observedGeneration": 1, "disruptionsAllowed": healthy.saturating_sub(min_available), "currentHealthy": healthy,
            "desiredHealthy": min_available, "expectedPods": nodes,
        },
    });
    stage.target.seed(&BUDGETS, budget);
}

/// A user removes an object, with its finalizers.
fn remove(stage: &PoolStage, kind: &'static Kind, name: &str) {
    stage.control.delete(kind, NAMESPACE, name).unwrap();
    if stage.control.get(kind, NAMESPACE, name).is_some() {
        stage.control.edit(kind, NAMESPACE, name, |object| object["metadata"]["finalizers"] = json!(null)).unwrap();
    }
}

fn kill(stage: &PoolStage, count: usize, mode: KillMode) {
    let vms: Vec<String> = stage.cloud.state().vms.into_iter().map(|vm| vm.id).take(count).collect();
    for id in vms {
        stage.cloud.kill(&id, KillRequest { mode }).unwrap();
    }
}

fn set_cloud(stage: &PoolStage, settings: Value) {
    stage.cloud.patch_control(settings).unwrap();
}

fn strategy(kind: &str, amounts: Value) -> Value {
    let field = if kind == "InPlaceUpdate" { "inPlaceUpdate" } else { "rollingUpdate" };
    json!({ "spec": { "strategy": { "type": kind, field: amounts } } })
}

const ROLL_LARGE: Act = Act::Do(|stage| stage.patch(&DEPLOYMENTS, "pool", &to_class("large")));

/// Rollouts and scalings without an obstacle: the plan is what happens.
fn changes() -> Vec<Situation> {
    use ObjectVerdict::{Settled, Waiting};
    let amounts = |surge: Value, unavailable: Value| json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    let mut thirds = strategy("RollingUpdate", amounts(json!("30%"), json!("25%")));
    patch(&mut thirds, to_class("large"));
    let mut percents = strategy("RollingUpdate", amounts(json!("1%"), json!("1%")));
    patch(&mut percents, to_class("large"));
    let mut zeros = strategy("RollingUpdate", amounts(json!(0), json!(0)));
    patch(&mut zeros, to_class("large"));
    let mut recreate = json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": null } } });
    patch(&mut recreate, to_class("large"));
    vec![
        Situation::new("a roll by the name of the class", &settled!(5))
            .changed(to_class("large"), Planned::Equal)
            .asked(Waiting, "replaces the machines of", ""),
        Situation::new("a surge of 30 % and 25 % unavailable", &settled!(7)).changed(thirds, Planned::Equal).asked(
            Waiting,
            "replaces the machines of",
            "",
        ),
        Situation::new("1 % of each", &settled!(3)).changed(percents, Planned::Equal).asked(
            Waiting,
            "replaces the machines of",
            "",
        ),
        Situation::new("0 of each", &settled!(3)).changed(zeros, Planned::Equal).asked(
            Waiting,
            "replaces the machines of",
            "",
        ),
        Situation::new("a scaling in the middle of a rollout", &settled!(5, ROLL_LARGE, Act::Wait(20)))
            .changed(replicas(3), Planned::Equal)
            .asked(Waiting, "replaces the machines of", ""),
        Situation::new("timeouts alone", &settled!(3))
            .changed(template(&json!({ "drainTimeout": "5m" })), Planned::Equal)
            .asked(Settled, "", ""),
        Situation::new("a taint of the node template", &settled!(3))
            .changed(
                template(
                    &json!({ "nodeTemplate": { "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } } }),
                ),
                Planned::Equal,
            )
            .asked(Settled, "", ""),
        Situation::new(
            "scaling while it is paused",
            &settled!(
                3,
                Act::Do(|stage| {
                    stage.patch(&DEPLOYMENTS, "pool", &json!({ "spec": { "paused": true } }));
                })
            ),
        )
        .changed(replicas(4), Planned::Equal)
        .asked(Waiting, "", "paused"),
        Situation::new(
            "a chosen machine",
            &settled!(
                4,
                Act::Do(|stage| {
                    let name = names(stage, &MACHINES).swap_remove(2);
                    stage.patch(
                        &MACHINES,
                        &name,
                        &json!({ "metadata": { "annotations": { (labels::PRIORITY): "1" } } }),
                    );
                })
            ),
        )
        .changed(replicas(3), Planned::Equal)
        .then(&[Act::Wait(1)])
        .asked(Waiting, "to be deleted", ""),
        Situation::new("all at once", &settled!(3))
            .changed(recreate, Planned::Equal)
            .then(&[Act::Wait(2)])
            .asked(Waiting, "", ""),
        Situation::new(
            "a preserved machine",
            &settled!(
                3,
                Act::Do(|stage| {
                    let name = names(stage, &MACHINES).swap_remove(0);
                    stage.patch(
                        &MACHINES,
                        &name,
                        &json!({ "metadata": { "annotations": { (labels::PRESERVE): "now" } } }),
                    );
                }),
                Act::Wait(30)
            ),
        )
        .changed(to_class("large"), Planned::Equal)
        .asked(Waiting, "replaces the machines of", ""),
        Situation::new(
            "the label freeze on the deployment, which holds nothing back",
            &settled!(
                2,
                Act::Do(|stage| {
                    stage.patch(
                        &DEPLOYMENTS,
                        "pool",
                        &json!({ "metadata": { "labels": { (labels::FREEZE): "True" } } }),
                    );
                })
            ),
        )
        .changed(replicas(4), Planned::Equal)
        .then(&[Act::Wait(5)])
        .asked(Waiting, "to join", ""),
    ]
}

/// Machines whose VMs or Nodes are lost: the plan is what happens without a change.
fn losses() -> Vec<Situation> {
    use ObjectVerdict::Waiting;
    vec![
        Situation::new(
            "a VM that is dead",
            &settled!(3, Act::Do(|stage| kill(stage, 1, KillMode::Stop)), Act::Wait(120)),
        )
        .planned(Planned::Equal)
        .then(&[Act::Wait(1)])
        .asked(Waiting, "Ready=", ""),
        Situation::new(
            "3 of 5 that are dead",
            &settled!(5, Act::Do(|stage| kill(stage, 3, KillMode::Stop)), Act::Wait(120)),
        )
        .planned(Planned::Equal)
        .then(&[Act::Wait(1)])
        .asked(Waiting, "Ready=", ""),
        Situation::new("a VM that is gone with its Node", &settled!(3))
            .then(&[Act::Do(|stage| kill(stage, 1, KillMode::Unregister)), Act::Wait(3)])
            .asked(Waiting, "to join", ""),
        Situation::new("a Node that was deleted", &settled!(2))
            .then(&[
                Act::Do(|stage| {
                    let name = names(stage, &NODES).swap_remove(0);
                    stage.target.edit(&NODES, "", &name, |node| node["metadata"]["finalizers"] = json!(null)).unwrap();
                    stage.target.delete(&NODES, "", &name).unwrap();
                }),
                Act::Wait(3),
            ])
            .asked(Waiting, "to join", ""),
    ]
}

/// Drains that make no progress.
fn drains() -> Vec<Situation> {
    use ObjectVerdict::{Blocked, Waiting};
    let never = Act::Do(|stage| run_web(stage, 2, 0, 2, &[]));
    let in_place = Act::Do(|stage| {
        let amounts = json!({ "maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto" });
        stage.patch(&DEPLOYMENTS, "pool", &strategy("InPlaceUpdate", amounts));
    });
    vec![
        Situation::new("a budget that never allows an eviction", &settled!(2, never))
            .changed(to_class("large"), Planned::Blocked("never allows an eviction"))
            .then(&[Act::Wait(180)])
            .asked(Blocked, "budget default/web", "budget default/web"),
        Situation::new(
            "a budget on the Node that is drained alone",
            &settled!(
                2,
                Act::Do(|stage| {
                    run_web(stage, 1, 0, 1, &[]);
                    let node = stage.target.all(&PODS)[0].value["spec"]["nodeName"].clone();
                    let machines = stage.control.all(&MACHINES);
                    let machine = machines.iter().find(|one| one.value["metadata"]["labels"]["node"] == node).unwrap();
                    stage.control.delete(&MACHINES, NAMESPACE, machine.name()).unwrap();
                }),
                Act::Wait(180)
            ),
        )
        .planned(Planned::Blocked("never allow"))
        .then(&[Act::Wait(1)])
        .asked(Blocked, "budget default/web", "budget default/web"),
        Situation::new(
            "a budget without room because of an unhealthy pod",
            &settled!(
                3,
                Act::Do(|stage| {
                    run_web(stage, 3, 1, 2, &[]);
                })
            ),
        )
        .changed(to_class("large"), Planned::Says("default/web-0 is not Ready"))
        .then(&[Act::Wait(180)])
        .asked(Waiting, "default/web-0 is not Ready", "default/web-0 is not Ready"),
        Situation::new(
            "a pod that a finalizer keeps",
            &settled!(
                2,
                Act::Do(|stage| {
                    run_web(stage, 2, 0, 0, &["example.com/held"]);
                })
            ),
        )
        .changed(to_class("large"), Planned::Nothing)
        .then(&[Act::Wait(240)])
        .asked(Waiting, "pods to terminate", "pods to terminate"),
        Situation::new("an update in place", &settled!(2, in_place))
            .changed(to_class("large"), Planned::Says("UPDATES IN PLACE 2 machines"))
            .then(&[Act::Wait(120)])
            .asked(Waiting, "in place", "UPDATES IN PLACE"),
        Situation::new("a drain of an update in place that a budget blocks", &settled!(2, in_place, never))
            .changed(to_class("large"), Planned::Blocked("never allows an eviction"))
            .then(&[Act::Wait(180)])
            .asked(Blocked, "budget default/web", "budget default/web"),
        Situation::new("a deployment that is deleted, and a drain that a budget blocks", &settled!(2, never))
            .then(&[Act::Do(|stage| stage.control.delete(&DEPLOYMENTS, NAMESPACE, "pool").unwrap()), Act::Wait(180)])
            .asked(Blocked, "budget default/web", "budget default/web"),
    ]
}

/// Machines that cannot be created, or whose VMs cannot be deleted.
fn creations() -> Vec<Situation> {
    use ObjectVerdict::{Blocked, Waiting};
    vec![
        Situation::new("a stock-out in the middle of a rollout", &settled!(2))
            .changed(to_class("large"), Planned::Nothing)
            .then(&[Act::Do(|stage| set_cloud(stage, json!({ "stockOuts": [{ "instanceType": "large" }] }))), Act::Wait(120)])
            .asked(Waiting, "mcm rollout undo pool", "ResourceExhausted"),
        Situation::new("a quota below the surge", &settled!(2, Act::Do(|stage| set_cloud(stage, json!({ "quotas": [{ "limit": 2 }] })))))
            .changed(
                json!({ "spec": { "strategy": { "rollingUpdate": { "maxUnavailable": 0 } }, "template": { "spec": { "class": { "name": "large" } } } } }),
                Planned::Nothing,
            )
            .then(&[Act::Wait(120)])
            .asked(Waiting, "mcm rollout undo pool", "ResourceExhausted"),
        Situation::new("a Secret that is missing", &settled!(2, Act::Do(|stage| remove(stage, &SECRETS, "pool"))))
            .changed(to_class("large"), Planned::Blocked("Secret pool of class large does not exist"))
            .then(&[Act::Wait(60)])
            .asked(Blocked, "Secret", "Secret"),
        Situation::new("a Secret without user data", &settled!(2, Act::Do(|stage| {
            stage.patch(&SECRETS, "pool", &json!({ "data": { "userData": null, "other": "eA==" } }));
        })))
        .changed(to_class("large"), Planned::Blocked("userData"))
        .then(&[Act::Wait(60)])
        .asked(Blocked, "userData", "userData"),
        Situation::new("a class that never existed", &settled!(2))
            .changed(to_class("larg"), Planned::Blocked("class larg does not exist"))
            .then(&[Act::Wait(60)])
            .asked(Blocked, "larg", "larg"),
        Situation::new("a return to a template whose class is gone", &settled!(2, ROLL_LARGE, Act::Settle, Act::Do(|stage| {
            remove(stage, &CLASSES, "small");
        })))
        .changed(to_class("small"), Planned::Blocked("class small does not exist"))
        .then(&[Act::Wait(60)])
        .asked(Blocked, "MachineClass small", "small"),
        Situation::new("a machine that goes, and whose class is gone", &settled!(2, Act::Do(|stage| remove(stage, &CLASSES, "small"))))
            .changed(replicas(1), Planned::Nothing)
            .then(&[Act::Wait(60)])
            .asked(Blocked, "create MachineClass small", "small"),
        Situation::new("a new template while it is paused", &settled!(2, Act::Do(|stage| {
            stage.patch(&DEPLOYMENTS, "pool", &json!({ "spec": { "paused": true } }));
        })))
        .changed(to_class("large"), Planned::Blocked("paused"))
        .asked(Blocked, "paused", "paused"),
        Situation::new("a frozen set", &settled!(2, Act::Do(|stage| {
            let name = names(stage, &SETS).swap_remove(0);
            stage.patch(&SETS, &name, &json!({ "metadata": { "labels": { (labels::FREEZE): "True" } } }));
        })))
        .changed(replicas(4), Planned::Blocked("is frozen"))
        .then(&[Act::Wait(5)])
        .asked(Blocked, "frozen", "frozen"),
        Situation::new("Nodes that do not join", &settled!(2, Act::Do(|stage| {
            stage.patch(&CLASSES, "large", &json!({ "providerSpec": { "neverJoin": true } }));
        })))
        .changed(to_class("large"), Planned::Nothing)
        .then(&[Act::Wait(600)])
        .asked(Waiting, "mcm rollout undo pool", "to join"),
        Situation::new("Machines that the API server refuses", &settled!(2, Act::Do(|stage| stage.refuse(ApiVerb::Create, &MACHINES))))
            .changed(replicas(3), Planned::Nothing)
            .then(&[Act::Wait(60)])
            .asked(Blocked, "you must not do that", "you must not do that"),
        Situation::new("sets that the API server refuses", &settled!(2, Act::Do(|stage| stage.refuse(ApiVerb::Create, &SETS))))
            .changed(to_class("large"), Planned::Nothing)
            .then(&[Act::Wait(60)])
            .asked(Blocked, "you must not do that", "you must not do that"),
        Situation::new("a creation that takes the cloud long", &settled!(2, Act::Do(|stage| set_cloud(stage, json!({ "latency": { "create": "8m" } })))))
            .changed(replicas(3), Planned::Equal)
            .then(&[Act::Wait(60)])
            .asked(Waiting, "", ""),
    ]
}

/// Managers that are gone, or cannot act.
fn managers() -> Vec<Situation> {
    use ObjectVerdict::{Blocked, Settled, Unknown, Waiting};
    let apart = |situation: Situation| Situation { is_apart: true, ..situation };
    vec![
        Situation::new("no manager", &settled!(2, Act::Do(PoolStage::kill_manager), Act::Wait(60)))
            .changed(replicas(3), Planned::Blocked("a manager"))
            .then(&[Act::Wait(1)])
            .asked(Blocked, "a manager", "a manager"),
        apart(Situation::new("a manager whose target cluster is away", &settled!(2)))
            .changed(replicas(3), Planned::Nothing)
            .then(&[Act::Do(|stage| stage.target.set_paused(true)), Act::Wait(600)])
            .asked(Waiting, "an API server to answer: machines are frozen since", "an API server to answer"),
        apart(Situation::new("an idle pool in another cluster", &settled!(2)))
            .planned(Planned::Says("NO CHANGE"))
            .asked(Settled, "", "NO CHANGE"),
        Situation {
            reads_wrong_target: true,
            ..apart(Situation::new("Nodes that are not in the cluster that is read", &settled!(2)))
        }
        .planned(Planned::Says("NO CHANGE"))
        .asked(Unknown, "", "none of 2 Nodes is in the cluster that was read"),
    ]
}

fn patch(all: &mut Value, more: Value) {
    crate::api::patch::apply(all, &more);
}

#[rstest]
#[case::of_changes(changes())]
#[case::of_losses(losses())]
#[case::of_drains(drains())]
#[case::of_creations(creations())]
#[case::of_managers(managers())]
fn in_each_situation_the_plan_is_what_happens_and_all_commands_name_the_cause(#[case] situations: Vec<Situation>) {
    check(situations);
}
