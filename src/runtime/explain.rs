//! The last plan of each object, for users: its waits, and since when each has lasted.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::Serialize;

use mcm_rules::plan::{SubjectRef, Wait, WaitKind};

/// Why an object does not progress, as of its last plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectExplanation {
    /// The object.
    pub object: SubjectRef,
    /// The controller that planned it, as in logs and metrics; of several that with the longest wait.
    pub controller: &'static str,
    /// When it was last planned.
    pub last_planned: Timestamp,
    /// The start of its longest wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The step that is executed now, or with which the last reconcile ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
    /// Its waits; empty while a step is executed.
    pub waits: Vec<WaitRecord>,
}

/// A wait with its duration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitRecord {
    /// The wait, as last planned.
    #[serde(flatten)]
    pub wait: Wait,
    /// End of the first reconcile with this kind and text; no later one ended without them.
    pub since: Timestamp,
    /// Number of these reconciles.
    pub plans: u32,
}

impl ObjectExplanation {
    /// Joins the explanations of several controllers, so that each object has one.
    pub fn of_objects(all: Vec<Self>) -> Vec<Self> {
        let mut by_object: BTreeMap<SubjectRef, Vec<Self>> = BTreeMap::new();
        all.into_iter().for_each(|one| by_object.entry(one.object.clone()).or_default().push(one));
        by_object.into_values().filter_map(Self::joined).collect()
    }

    /// Joins the explanations of an object by several controllers; `None` without explanations.
    pub fn joined(mut all: Vec<Self>) -> Option<Self> {
        all.sort_by_key(|one| (one.since.is_none(), one.since));
        all.into_iter().reduce(|first, other| Self {
            last_planned: first.last_planned.max(other.last_planned),
            step: first.step.or(other.step),
            waits: first.waits.into_iter().chain(other.waits).collect(),
            ..first
        })
    }
}

/// The last plan of an object.
#[derive(Clone, Debug)]
pub(super) struct LastPlan {
    at: Timestamp,
    step: Option<Arc<str>>,
    is_executing: bool,
    /// Of the plan with which the last reconcile ended.
    waits: Vec<WaitRecord>,
}

/// The last plan of a reconcile.
pub(super) struct FinalPlan {
    pub waits: Vec<Wait>,
    /// Its last step, if any.
    pub step: Option<Arc<str>>,
}

impl LastPlan {
    pub fn new(at: Timestamp) -> Self {
        Self { at, step: None, is_executing: false, waits: Vec::new() }
    }

    /// The steps of a plan are about to be executed. The next plan decides whether the waits still last.
    pub fn begin(&mut self, step: &Arc<str>, now: Timestamp) {
        self.at = now;
        self.step = Some(Arc::clone(step));
        self.is_executing = true;
    }

    /// A reconcile ended.
    pub fn end(&mut self, ending: FinalPlan, now: Timestamp) {
        self.at = now;
        self.step = ending.step;
        self.is_executing = false;
        let is_same = |(known, wait): (&WaitRecord, &Wait)| known.is_of(wait);
        if self.waits.len() == ending.waits.len() && self.waits.iter().zip(&ending.waits).all(is_same) {
            self.waits.iter_mut().zip(ending.waits).for_each(|(known, wait)| known.planned_again(wait));
            return;
        }
        let known = std::mem::take(&mut self.waits);
        let waiting = |wait: Wait| match known.iter().find(|known| known.is_of(&wait)) {
            Some(known) => WaitRecord { wait, since: known.since, plans: known.plans.saturating_add(1) },
            None => WaitRecord { wait, since: now, plans: 1 },
        };
        self.waits = ending.waits.into_iter().map(waiting).collect();
    }

    pub fn explain(&self, object: SubjectRef, controller: &'static str) -> ObjectExplanation {
        let waits = if self.is_executing { Vec::new() } else { self.waits.clone() };
        let since = waits.iter().map(|waiting| waiting.since).min();
        ObjectExplanation { object, controller, last_planned: self.at, since, step: self.step.clone(), waits }
    }

    /// Each kind of the waits once, with the start of the longest. A step that is executed now ends none.
    pub fn each_wait(&self, see: &mut dyn FnMut(WaitKind, Timestamp)) {
        for (place, waiting) in self.waits.iter().enumerate() {
            let kind = waiting.wait.kind;
            if self.waits[..place].iter().all(|earlier| earlier.wait.kind != kind) {
                let same = self.waits.iter().filter(|other| other.wait.kind == kind);
                see(kind, same.map(|other| other.since).min().unwrap_or(waiting.since));
            }
        }
    }

    /// It waits for more than a routine check.
    pub fn is_waiting(&self) -> bool {
        !self.is_executing && self.waits.iter().any(|waiting| !waiting.wait.kind.is_routine())
    }
}

impl WaitRecord {
    fn is_of(&self, wait: &Wait) -> bool {
        self.wait.kind == wait.kind && self.wait.text == wait.text
    }

    fn planned_again(&mut self, wait: Wait) {
        self.wait = wait;
        self.plans = self.plans.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn wait(kind: WaitKind, text: &str, until: i64) -> Wait {
        Wait::new(kind, text.to_owned(), Some(at(until)))
    }

    fn ending(waits: impl Into<Vec<Wait>>) -> FinalPlan {
        FinalPlan { waits: waits.into(), step: None }
    }

    fn explained(plan: &LastPlan) -> Value {
        let object = SubjectRef { kind: "Machine".to_owned(), namespace: "ns".to_owned(), name: "m".to_owned() };
        serde_json::to_value(plan.explain(object, "machine")).unwrap()
    }

    #[test]
    fn a_wait_lasts_while_plans_repeat_its_kind_and_text() {
        let mut plan = LastPlan::new(at(1));
        plan.end(ending([wait(WaitKind::NodeJoin, "node n", 60)]), at(1));
        plan.end(ending([wait(WaitKind::NodeJoin, "node n", 70)]), at(2));
        plan.end(ending([wait(WaitKind::VmLookup, "the VM", 90), wait(WaitKind::NodeJoin, "node n", 80)]), at(3));
        let expected = json!({
            "object": { "kind": "Machine", "namespace": "ns", "name": "m" },
            "controller": "machine",
            "lastPlanned": "1970-01-01T00:00:03Z",
            "since": "1970-01-01T00:00:01Z",
            "waits": [
                { "kind": "VmLookup", "text": "the VM", "nextAttempt": "1970-01-01T00:01:30Z",
                  "since": "1970-01-01T00:00:03Z", "plans": 1 },
                { "kind": "NodeJoin", "text": "node n", "nextAttempt": "1970-01-01T00:01:20Z",
                  "since": "1970-01-01T00:00:01Z", "plans": 3 },
            ],
        });
        assert_eq!(explained(&plan), expected);

        plan.end(ending([wait(WaitKind::NodeHealth, "node n", 80)]), at(4));
        assert_eq!(explained(&plan)["since"], "1970-01-01T00:00:04Z", "another kind");
        plan.end(ending([]), at(5));
        plan.end(ending([wait(WaitKind::NodeHealth, "node n", 80)]), at(6));
        assert_eq!(explained(&plan)["since"], "1970-01-01T00:00:06Z", "it ended before");
    }

    #[test]
    fn the_waits_of_several_controllers_are_those_of_one_object() {
        let of = |controller, text: &str, at_second| {
            let mut plan = LastPlan::new(at(at_second));
            plan.end(
                FinalPlan { waits: vec![wait(WaitKind::NodeJoin, text, 60)], step: Some(text.into()) },
                at(at_second),
            );
            let object = SubjectRef { kind: "MachineSet".to_owned(), namespace: "ns".to_owned(), name: "s".to_owned() };
            plan.explain(object, controller)
        };
        let settled = ObjectExplanation { since: None, waits: Vec::new(), step: None, ..of("settled", "", 9) };
        let all = vec![settled, of("later", "b", 5), of("earlier", "a", 4)];
        let joined = ObjectExplanation::joined(all).unwrap();
        let texts: Vec<&str> = joined.waits.iter().map(|waiting| waiting.wait.text.as_str()).collect();
        assert_eq!((joined.controller, joined.since, joined.last_planned), ("earlier", Some(at(4)), at(9)));
        assert_eq!((texts, joined.step.as_deref()), (vec!["a", "b"], Some("a")));
        assert_eq!(ObjectExplanation::joined(Vec::new()), None);
    }

    #[test]
    fn an_object_that_several_controllers_plan_is_explained_once() {
        let of = |name: &str, controller, at_second| {
            let mut plan = LastPlan::new(at(at_second));
            plan.end(ending([wait(WaitKind::NodeJoin, controller, 60)]), at(at_second));
            let object =
                SubjectRef { kind: "MachineSet".to_owned(), namespace: "ns".to_owned(), name: name.to_owned() };
            plan.explain(object, controller)
        };
        let all = ObjectExplanation::of_objects(vec![of("b", "later", 5), of("a", "only", 3), of("b", "earlier", 4)]);
        let told = |one: &ObjectExplanation| (one.object.name.clone(), one.controller, one.waits.len());
        assert_eq!(all.iter().map(told).collect::<Vec<_>>(), [("a".into(), "only", 1), ("b".into(), "earlier", 2)]);
    }

    #[test]
    fn a_kind_of_wait_is_counted_once_for_an_object_also_while_a_step_is_executed() {
        let mut plan = LastPlan::new(at(1));
        plan.end(ending([wait(WaitKind::NodeJoin, "node n", 60)]), at(1));
        let waits = [("b", WaitKind::VmLookup), ("n", WaitKind::NodeJoin), ("node n", WaitKind::NodeJoin)];
        plan.end(ending(waits.map(|(text, kind)| wait(kind, text, 60))), at(2));
        plan.begin(&"get VM status: it is time".into(), at(3));
        let mut seen = Vec::new();
        plan.each_wait(&mut |kind, since| seen.push((kind, since)));
        assert_eq!(seen, [(WaitKind::VmLookup, at(2)), (WaitKind::NodeJoin, at(1))]);
        assert!(!plan.is_waiting());
    }

    #[test]
    fn waits_are_hidden_while_a_step_is_executed_and_keep_their_start() {
        let mut plan = LastPlan::new(at(1));
        plan.end(ending([wait(WaitKind::VmLookup, "the VM", 60)]), at(1));
        plan.begin(&"get VM status: it is time".into(), at(60));
        let running = explained(&plan);
        assert_eq!(running["step"], "get VM status: it is time");
        assert_eq!(running["waits"], json!([]));
        plan.end(ending([wait(WaitKind::VmLookup, "the VM", 120)]), at(61));
        let ended = explained(&plan);
        assert_eq!((&ended["step"], &ended["since"]), (&Value::Null, &json!("1970-01-01T00:00:01Z")));
        plan.end(FinalPlan { waits: Vec::new(), step: Some("create VM: it has none".into()) }, at(62));
        assert_eq!(explained(&plan)["step"], "create VM: it has none", "a failed step stays");
    }
}
