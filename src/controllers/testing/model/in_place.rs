//! In-place updates as seen from outside: the agent on a Node, the user who selects Nodes, and whoever starts the
//! critical components afterwards.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{
    super::api_server::{NODES, ServerObject, WriteRecord},
    world::World,
};
use mcm_api::labels;

/// The agent may begin.
const READY: &str = "ReadyForUpdate";
const FAILED: &str = "UpdateFailed";

impl World {
    /// After each write of a Node.
    pub(super) fn saw_update(self: &Arc<Self>, write: &WriteRecord<'_>) {
        let Some(node) = write.after else { return };
        let is_new = |holds: fn(&ServerObject) -> bool| holds(node) && !write.before.is_some_and(holds);
        let name = node.name().to_owned();
        if is_new(|node| progress(node) == READY) {
            self.begin_update(&name);
        }
        if is_new(has_critical_taint) {
            let name = name.clone();
            let after = self.faults.millis(100..60_000);
            self.later(after, move |world| world.start_components(&name));
        }
        let is_asked = is_new(is_candidate) && self.desired.lock().is_manual();
        if is_asked && (self.faults.rates().mishaps == 0 || !self.faults.one_in(3)) {
            self.select_later(name);
        }
    }

    fn begin_update(self: &Arc<Self>, node: &str) {
        let is_bad = self.faults.rates().mishaps > 0;
        let fate = self.faults.rng(|rng| rng.below(10));
        let takes = self.faults.millis(500..60_000);
        if self.faults.one_in(3) {
            // Its machine restarts.
            let (node, seconds) = (node.to_owned(), takes.as_secs() / 2 + 1);
            self.later(Duration::from_millis(100), move |world| world.ail(&node, Some(seconds)));
        }
        match fate {
            0 if is_bad => self.say(format!("the agent on node {node} will never answer")),
            1 | 2 if is_bad => {
                let long = self.faults.millis(1000..1_500_000);
                self.report_later(node, takes, labels::FAILED);
                if fate == 1 {
                    self.report_later(node, takes + long, labels::SUCCESSFUL);
                }
            }
            // So late that it failed meanwhile.
            3 if is_bad => self.report_later(node, takes + Duration::from_mins(25), labels::SUCCESSFUL),
            _ => self.report_later(node, takes, labels::SUCCESSFUL),
        }
    }

    fn report_later(self: &Arc<Self>, node: &str, after: Duration, result: &'static str) {
        let (node, uid) = (node.to_owned(), self.uid_of_node(node));
        self.later(after, move |world| {
            if world.uid_of_node(&node) == uid {
                world.report(&node, result);
            }
        });
    }

    /// The agent reports the result of its update, if it still runs and has not reported it.
    fn report(&self, name: &str, result: &str) {
        let Some(node) = self.target.get(&NODES, "", name) else { return };
        let is_open = matches!(progress(&node), READY | FAILED) && result_of(&node) != labels::SUCCESSFUL;
        if !is_open || !self.has_its_vm(name) {
            return;
        }
        self.say(format!("the agent on node {name}: {result}"));
        let edited = self.target.edit(&NODES, "", name, |node| {
            node["metadata"]["labels"][labels::UPDATE_RESULT] = json!(result);
            if result == labels::FAILED {
                node["metadata"]["annotations"][labels::UPDATE_FAILED_REASON] = json!("no space left");
            }
        });
        edited.unwrap();
    }

    fn start_components(&self, name: &str) {
        let edited = self.target.edit(&NODES, "", name, |node| {
            if let Some(taints) = node["spec"]["taints"].as_array_mut() {
                taints.retain(|taint| taint["key"] != labels::CRITICAL_COMPONENTS_TAINT);
            }
        });
        // It may be deleted.
        drop(edited);
    }

    fn select_later(self: &Arc<Self>, node: String) {
        let after = self.faults.millis(100..60_000);
        self.later(after, move |world| world.select(&node));
    }

    /// A user selects a Node, if users do the selection.
    fn select(&self, name: &str) {
        let Some(node) = self.target.get(&NODES, "", name) else { return };
        if is_candidate(&node) && !is_selected(&node) && result_of(&node).is_empty() && self.desired.lock().is_manual()
        {
            self.say(format!("user: update node {name}"));
            let selected = self.target.edit(&NODES, "", name, |node| {
                node["metadata"]["labels"][labels::SELECTED_FOR_UPDATE] = json!(labels::SET);
            });
            selected.unwrap();
        }
    }

    /// Most updates succeed from now on, and every user and cloud controller does their part.
    pub(super) fn help_updates(self: &Arc<Self>) {
        for node in self.target.all(&NODES) {
            if matches!(progress(&node), READY | FAILED) && !self.faults.one_in(3) {
                let after = self.faults.millis(100..60_000);
                self.report_later(node.name(), after, labels::SUCCESSFUL);
            }
            self.select_later(node.name().to_owned());
            // A Machine that was updated successfully and is not healthy has no timeout.
            let (name, after) = (node.name().to_owned(), Duration::from_mins(1));
            self.later(after, move |world| world.sweep(&name));
        }
    }
}

/// The reason of the condition `InPlaceUpdate`.
pub(super) fn progress(node: &ServerObject) -> &str {
    let conditions = node.value["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|it| it["type"] == "InPlaceUpdate" && it["status"] == "True");
    found.and_then(|it| it["reason"].as_str()).unwrap_or_default()
}

pub(super) fn is_candidate(node: &ServerObject) -> bool {
    node.value["metadata"]["labels"][labels::CANDIDATE_FOR_UPDATE].is_string()
}

pub(super) fn is_selected(node: &ServerObject) -> bool {
    node.value["metadata"]["labels"][labels::SELECTED_FOR_UPDATE].is_string()
}

/// The result that the agent reported, or an empty text.
pub(super) fn result_of(node: &ServerObject) -> &str {
    node.value["metadata"]["labels"][labels::UPDATE_RESULT].as_str().unwrap_or_default()
}

fn has_critical_taint(node: &ServerObject) -> bool {
    let taints = node.value["spec"]["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["key"] == labels::CRITICAL_COMPONENTS_TAINT)
}
