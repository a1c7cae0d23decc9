//! In-place updates: a Machine keeps its VM and its Node, few Nodes are out of service at a time, and the agent begins on a
//! Node that is drained.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        super::api_server::{ApiServer, PODS},
        faults::Faults,
    },
    Ledger, MachineFacts, NEWS, NodeFacts,
};
use mcm_api::labels;

/// The default of `--machine-inplace-update-timeout`, and of the health timeout.
const UPDATE_TIMEOUT: Duration = Duration::from_mins(20);
const HEALTH_TIMEOUT: Duration = Duration::from_mins(10);
/// How far clocks of processes are ahead at most, with a time that is stored in seconds.
const CLOCKS: Duration = Duration::from_secs(62);

impl Ledger {
    /// Available Machines on Nodes that take pods.
    pub(super) fn serving(&self) -> impl Iterator<Item = &MachineFacts> {
        self.machines.values().filter(|machine| machine.is_available() && self.is_open(machine))
    }

    pub(super) fn is_open(&self, machine: &MachineFacts) -> bool {
        !self.nodes.get(&machine.node).is_some_and(NodeFacts::is_being_updated)
    }

    /// A process wrote a Node.
    pub(super) fn check_update(&self, name: &str, new: &NodeFacts, faults: &Faults, target: &ApiServer) {
        let unknown = NodeFacts::default();
        let old = self.nodes.get(name).unwrap_or(&unknown);
        if new.is_selected && !old.is_selected {
            self.check_selection(name, faults);
        }
        let may_begin = |node: &NodeFacts| matches!(&*node.progress, "DrainSuccessful" | "ReadyForUpdate");
        if may_begin(new) && !may_begin(old) {
            let pods = target.all(&PODS);
            let left = pods.iter().filter(|pod| pod.value["spec"]["nodeName"] == name && !pod.is_terminating()).count();
            faults.must(new.is_cordoned && left == 0, || {
                format!("the agent on node {name} may begin: {left} pods are left, cordoned is {}", new.is_cordoned)
            });
        }
        let is_reopened = old.is_being_updated() && !new.is_being_updated();
        faults.must(!is_reopened || old.result == labels::SUCCESSFUL, || {
            format!("the update of node {name} is called off, and its result is {:?}", old.result)
        });
    }

    fn check_selection(&self, name: &str, faults: &Faults) {
        faults.must(!self.span.only_manual, || format!("node {name} is selected, and that is up to the user"));
        let Some(chosen) = self.machines.values().find(|machine| machine.node == name) else { return };
        if !self.span.only_in_place || !chosen.is_available() {
            return;
        }
        let serve = self.serving().filter(|machine| machine.uid != chosen.uid).count();
        let (lost, least) = (self.lost.len() + self.recently_taken(), self.span.least);
        faults.must(serve + lost >= least, || {
            format!("node {name} is selected: {serve} serve and {lost} were lost, at least {least} must serve")
        });
    }

    /// A process moved a Machine from one set to another one.
    pub(super) fn check_move(&mut self, old: &MachineFacts, new: &MachineFacts, faults: &Faults) {
        if old.set.is_empty() || new.set.is_empty() || old.set == new.set {
            return;
        }
        let result = self.nodes.get(&new.node).map(|node| &*node.result);
        faults.must(result == Some(labels::SUCCESSFUL), || {
            format!("machine {} moves to another set, and its node's update is {result:?}", new.name)
        });
        self.moved.push((Instant::now(), new.set.clone()));
    }

    /// Another phase of a Machine whose Node is updated: it must not fail before its time.
    pub(super) fn check_update_phase(&self, old: &MachineFacts, new: &MachineFacts, faults: &Faults) {
        let Some(node) = self.nodes.get(&new.node) else { return };
        let (name, has_waited) = (&new.name, old.phase_entered_at.elapsed() + CLOCKS);
        match (&*old.phase, &*new.phase) {
            ("InPlaceUpdating", "InPlaceUpdateFailed") => {
                faults.must(node.result == labels::FAILED || has_waited >= UPDATE_TIMEOUT, || {
                    format!("the update of {name} failed after {has_waited:?}, and its agent did not say so")
                });
            }
            ("InPlaceUpdateFailed", "Failed") => {
                let is_updated = node.has_been_updated_for(NEWS);
                faults.must(has_waited >= HEALTH_TIMEOUT && !is_updated, || {
                    format!("{name} is given up {has_waited:?} after its update failed; updated since: {is_updated}")
                });
            }
            (_, "InPlaceUpdateSuccessful") => {
                faults.must(node.result == labels::SUCCESSFUL, || format!("nobody said that {name} was updated"));
            }
            _ => {}
        }
    }

    /// A set chose a Machine. A Machine that can be updated in place is not replaced: it is deleted only if fewer are
    /// desired.
    pub(super) fn check_choice(&self, machine: &MachineFacts, faults: &Faults) {
        if self.span.only_in_place && !self.span.is_deleted {
            let (live, missing, fewest) = (self.live(), self.missing(), self.span.fewest);
            let taken = self.recently_taken_from(&machine.set);
            faults.must(live + missing + taken > fewest, || {
                format!("{} is deleted during an in-place update: {live} machines, {fewest} replicas", machine.name)
            });
        }
    }

    /// Machines that sets are about to create.
    fn missing(&self) -> usize {
        let own = |uid: &str| self.machines.values().filter(|it| it.set == uid && !it.is_terminating()).count();
        let sets = self.sets.iter().filter(|(_, set)| set.deleted_at.is_none());
        sets.map(|(uid, set)| set.most_replicas(Duration::ZERO).saturating_sub(own(uid))).sum()
    }
}
