use std::fmt;

use serde_json::json;

use super::*;
use crate::plan::SentPatch;
use mcm_api::machine::Machine;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A controller that gives one field of some Machines a value.
struct Wanted {
    machines: Vec<Machine>,
    value: &'static str,
}

struct PatchStep {
    machine: Machine,
    patch: Value,
}

impl fmt::Display for PatchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("patch")
    }
}

impl PlanInput for Wanted {
    type Action = PatchStep;
    const STEPS_DEPEND_ON_ORDER: bool = false;

    fn plan(&self) -> Plan<PatchStep> {
        let mut plan = Plan::default();
        for machine in &self.machines {
            if machine.metadata.labels.as_ref().and_then(|labels| labels.get("pool")).is_none_or(|it| it != self.value)
            {
                let patch = json!({ "metadata": { "labels": { "pool": self.value } } });
                plan.then(PatchStep { machine: machine.clone(), patch }, "it differs");
            }
        }
        plan
    }

    fn sent_patch<'a>(&'a self, action: &'a PatchStep) -> Option<SentPatch<'a>> {
        Some(SentPatch::new(&action.machine, &action.patch))
    }
}

/// An API server with some Machines, and the log of the writes to it.
struct World {
    wanted: Wanted,
    log: WriteLog,
    writes: usize,
    waits: Vec<String>,
}

impl World {
    fn of(machines: usize) -> Self {
        let machine = |index: usize| {
            let meta = json!({ "name": format!("m{index}"), "uid": format!("u{index}"), "labels": { "pool": "old" } });
            serde_json::from_value(json!({ "metadata": meta, "spec": {} })).unwrap()
        };
        let wanted = Wanted { machines: (0..machines).map(machine).collect(), value: "a" };
        Self { wanted, log: WriteLog::default(), writes: 0, waits: Vec::new() }
    }

    /// One reconcile. The API server, or another client a moment later, stores what `change` makes of it.
    fn reconcile(
        &mut self,
        second: i64,
        stores: impl Fn(&str) -> Option<String>,
        reverts: impl Fn(&str) -> Option<String>,
    ) {
        for _ in 0..32 {
            let mut plan = self.wanted.plan();
            let undone = self.log.hold_back(&self.wanted, &mut plan, at(second));
            self.waits = plan.waits.iter().map(|wait| wait.text.clone()).collect();
            assert_eq!(undone.is_empty(), self.waits.is_empty());
            if plan.steps.is_empty() {
                break;
            }
            for step in plan.steps {
                self.writes += 1;
                let index =
                    self.wanted.machines.iter().position(|it| it.metadata.uid == step.action.machine.metadata.uid);
                let machine = &mut self.wanted.machines[index.unwrap()];
                let uid = machine.metadata.uid.clone().unwrap();
                let label = stores(&uid).unwrap_or_else(|| self.wanted.value.to_owned());
                machine.metadata.labels = Some([("pool".to_owned(), label)].into());
                let stored = json!(machine);
                self.log.accepted(&uid, &step.action.patch, &stored, at(second));
            }
        }
        for machine in &mut self.wanted.machines {
            if let Some(label) = reverts(machine.metadata.uid.as_deref().unwrap()) {
                machine.metadata.labels = Some([("pool".to_owned(), label)].into());
            }
        }
    }

    fn differing(&self) -> usize {
        self.wanted.plan().steps.len()
    }
}

fn nothing(_: &str) -> Option<String> {
    None
}

fn policy(_: &str) -> Option<String> {
    Some("b".to_owned())
}

#[test]
fn a_patch_that_the_api_server_alters_is_sent_ever_more_rarely() {
    let mut world = World::of(3);
    (0..600).for_each(|second| world.reconcile(second, policy, nothing));
    assert_eq!(world.writes, 3 + 6, "one machine is tried for all, after 5, 15, 35, 75, 155 and 315 s");
    let expected = "the API server, or another client, to keep a write of Machine m0: metadata.labels.pool is \"b\", \"a\" was \
                    written (2 more writes are undone)";
    assert_eq!(world.waits, [expected]);
}

#[test]
fn after_the_policy_is_gone_all_machines_are_written_and_nothing_is_waited_for() {
    let mut world = World::of(50);
    (0..300).for_each(|second| world.reconcile(second, policy, nothing));
    let before = world.writes;
    (300..910).for_each(|second| world.reconcile(second, nothing, nothing));
    assert_eq!((world.differing(), world.writes - before, world.waits.len()), (0, 50, 0));
}

#[test]
fn a_patch_that_another_client_changes_back_is_sent_at_most_ten_times_a_minute() {
    let mut world = World::of(1);
    (0..60).for_each(|second| world.reconcile(second, nothing, policy));
    assert!((4..=10).contains(&world.writes), "{}", world.writes);
    assert_eq!(world.waits.len(), 1, "{:?}", world.waits);
    (60..600).for_each(|second| world.reconcile(second, nothing, policy));
    assert!(world.writes <= 12, "{}", world.writes);
}

#[test]
fn after_the_other_client_is_gone_all_machines_are_written_within_a_pause() {
    let mut world = World::of(20);
    (0..300).for_each(|second| world.reconcile(second, nothing, policy));
    (300..960).for_each(|second| world.reconcile(second, nothing, nothing));
    assert_eq!((world.differing(), world.waits.len()), (0, 0));
}

#[test]
fn another_intent_is_sent_at_once() {
    let mut world = World::of(2);
    (0..100).for_each(|second| world.reconcile(second, policy, nothing));
    let before = world.writes;
    world.wanted.value = "c";
    world.reconcile(100, nothing, nothing);
    assert_eq!((world.writes - before, world.differing()), (2, 0));
}

#[test]
fn a_patch_that_is_wanted_again_after_a_while_is_no_fight() {
    let mut world = World::of(1);
    for round in 0..20 {
        world.reconcile(round * 61, nothing, policy);
        assert_eq!(world.waits.len(), 0);
    }
    assert_eq!(world.writes, 20);
}

#[test]
fn an_answer_with_another_value_that_is_not_wanted_again_holds_nothing_back() {
    let mut world = World::of(1);
    let patch = json!({ "metadata": { "labels": { "pool": "a" } } });
    world.log.accepted("other", &patch, &json!({ "metadata": { "labels": { "pool": "A" } } }), at(0));
    world.reconcile(0, nothing, nothing);
    assert_eq!((world.writes, world.differing()), (1, 0));
}
