//! Reasons to freeze: far more Machines than planned, people and the Go program that freeze by hand, and a target that does
//! not answer for long.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::api_server::{DEPLOYMENTS, Kind, MACHINES, SETS},
    desired_state::POOL,
    world::{NAMESPACE, World},
};
use mcm_api::labels;

/// Sets have their conditions in a field of another name.
pub(super) fn conditions_of(kind: &Kind) -> &'static str {
    if kind == &SETS { "machineSetCondition" } else { "conditions" }
}

impl World {
    /// A user causes or ends a freeze.
    pub(super) fn freeze_something(self: &Arc<Self>) {
        match self.faults.rng(|rng| rng.below(8)) {
            0..=2 => self.make_machines_by_hand(),
            3 | 4 => self.freeze_by_hand(),
            5 => self.ask_for_unfreezing(),
            _ => self.lose_target(),
        }
    }

    /// Machines that a set adopts.
    fn make_machines_by_hand(&self) {
        let Some(set) = self.some(&SETS).and_then(|name| self.control.get(&SETS, NAMESPACE, &name)) else { return };
        let count = self.faults.rng(|rng| rng.below(5)) + 1;
        self.ledger.lock().made_by_hand(count);
        self.say(format!("user: make {count} machines that set {} selects", set.name()));
        let template = &set.value["spec"]["template"];
        for _ in 0..count {
            let name = self.faults.rng(|rng| format!("by-hand-{}", rng.roll() % 100_000));
            let meta = json!({ "namespace": NAMESPACE, "name": name, "labels": template["metadata"]["labels"] });
            // One of that name exists already.
            drop(self.control.create(&MACHINES, json!({ "metadata": meta, "spec": template["spec"] })));
        }
    }

    /// With the label alone, or with all that the Go program writes.
    fn freeze_by_hand(&self) {
        let Some(set) = self.some(&SETS) else { return };
        let by_go = self.faults.one_in(2);
        self.say(format!("freeze set {set}, as the Go program: {by_go}"));
        self.mark_frozen(&SETS, &set, by_go);
        if by_go {
            self.mark_frozen(&DEPLOYMENTS, POOL, by_go);
        }
    }

    fn mark_frozen(&self, kind: &'static Kind, name: &str, with_condition: bool) {
        let time = self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let edited = self.control.edit(kind, NAMESPACE, name, |object| {
            object["metadata"]["labels"][labels::FREEZE] = json!(labels::TRUE);
            if with_condition {
                let conditions = &mut object["status"][conditions_of(kind)];
                let mut all = conditions.as_array().cloned().unwrap_or_default();
                all.retain(|condition| condition["type"] != "Frozen");
                all.push(json!({
                    "type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount", "message": "by hand",
                    "lastTransitionTime": time, "lastUpdateTime": time,
                }));
                *conditions = Value::Array(all);
            }
        });
        // The deployment may be deleted.
        drop(edited);
    }

    fn ask_for_unfreezing(&self) {
        self.say("user: unfreeze");
        let edited = self.control.edit(&DEPLOYMENTS, NAMESPACE, POOL, |deployment| {
            deployment["metadata"]["annotations"][labels::UNFREEZE] = json!(labels::TRUE);
        });
        drop(edited);
    }

    /// Longer than the time limit of any probe.
    fn lose_target(self: &Arc<Self>) {
        if self.faults.rates().mishaps == 0 || self.ledger.lock().target_is_away() {
            return;
        }
        let after = self.faults.millis(100_000..1_200_000);
        self.say(format!("the target API server does not answer for {after:?}"));
        self.target.set_paused(true);
        self.ledger.lock().target_answers(false);
        self.later(after, World::find_target);
    }

    /// It responds again, unless it did already.
    pub(super) fn find_target(self: &Arc<Self>) {
        if self.ledger.lock().target_is_away() {
            self.say("the target API server answers again");
            self.target.set_paused(false);
            self.ledger.lock().target_answers(true);
        }
    }
}
