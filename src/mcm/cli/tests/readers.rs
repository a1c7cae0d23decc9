//! The commands that read, asked about one state of a cluster.

use std::sync::Arc;

use http::Uri;
use jiff::Timestamp;
use serde_json::Value;

use super::super::{
    plan::{self, Plan},
    run::default_settings,
    top::{self, TopVerdict},
    tree::{self, TreeBranch},
};
use mcm_driver_host::DriverCatalogue;
use mcm_fake_api::{ApiServer, NetworkModel, PerfectNetwork};
use mcm_insight::{
    budget_reader, memory,
    place::CallTarget,
    plan::{
        answer::BlockerSeverity,
        change::{ChangeContent, PlannedChange},
        planner::PlanPremises,
    },
    progress::RolloutState,
    read_only::{ReadOnly, ReadOnlyClients},
    reader,
    rehearsal::play::SeedObject,
    story::{DEPLOYMENT, MACHINE, NamespaceFacts, ObjectAnswer, ObjectVerdict, SET},
};
use mcm_rules::plan::SubjectRef;
use mcm_runtime::clock::ManualClock;

/// The objects of a control cluster and of its target cluster at a time.
#[derive(Clone, Debug)]
pub struct ClusterState {
    pub now: Timestamp,
    pub namespace: String,
    pub control: Vec<SeedObject>,
    /// `None` if Nodes are in the control cluster.
    pub target: Option<Vec<SeedObject>>,
}

impl ClusterState {
    /// API servers with these objects.
    pub fn servers(&self, network: &Arc<dyn NetworkModel>) -> (ApiServer, Option<ApiServer>) {
        let clock = ManualClock::at(self.now);
        let server = |objects: &Vec<SeedObject>| {
            let server = ApiServer::new(&clock, Arc::clone(network));
            objects.iter().for_each(|(kind, value)| server.seed(kind, value.clone()));
            server
        };
        (server(&self.control), self.target.as_ref().map(server))
    }
}

/// The facts of each command about a state.
pub struct StateReaders {
    pub cell: ReadOnly,
    /// Verdicts of `mcm why` and `mcm tree`.
    pub listed: NamespaceFacts,
    /// States of `mcm top` and `mcm rollout status`.
    pub cached: NamespaceFacts,
}

impl StateReaders {
    pub async fn of(state: &ClusterState, drivers: DriverCatalogue) -> Self {
        let (control, target) = state.servers(&(Arc::new(PerfectNetwork) as Arc<dyn NetworkModel>));
        let control = control.client("reader");
        let (server, elsewhere) = (Uri::from_static("http://control"), Uri::from_static("http://target"));
        let target = match target {
            Some(target) => (target.client("reader"), elsewhere),
            None => (control.clone(), server.clone()),
        };
        let reach = ReadOnlyClients {
            control,
            server,
            target: Some(target),
            namespace: state.namespace.clone(),
            place: CallTarget::default(),
        };
        let clock = Arc::new(ManualClock::at(state.now));
        let cell = ReadOnly::from_clients_with(reach, default_settings(drivers), clock).await;
        let mut listed = reader::facts(&cell).await.unwrap();
        listed.memory = memory::ask(&cell, &listed.managers, None).await;
        listed.budgets = budget_reader::awaited(&cell, &listed).await;
        let cached = reader::cached(&cell, listed.managers.clone());
        Self { cell, listed, cached }
    }

    /// The answer of `mcm why` for an object.
    pub fn why(&self, kind: &str, name: &str) -> ObjectAnswer {
        self.listed.answer(&self.listed.subject(kind, name))
    }

    /// The plan for changes of deployments.
    pub async fn plan(&mut self, changes: Vec<PlannedChange>) -> Plan {
        plan::of_changes(&mut self.cell, PlanPremises::default(), None, |_| Ok((changes, Vec::new()))).await.unwrap()
    }

    /// Sentences about objects of which two commands give different verdicts.
    pub async fn disagreements(&self) -> Vec<String> {
        let all = self.listed.all();
        let roots: Vec<SubjectRef> =
            self.listed.deployments.keys().map(|name| self.listed.subject(DEPLOYMENT, name)).collect();
        let (branches, _) = tree::grow(&self.cell, &self.listed, &roots).await;
        let shown = top::verdicts(&self.cached);
        let mut found = Vec::new();
        for kind in [DEPLOYMENT, SET, MACHINE] {
            for name in self.listed.names(kind) {
                let answer = self.why(kind, name);
                let mut tell = |command: &str, other: String| {
                    found.push(format!(
                        "{kind} {name}: mcm why: {:?} ({}), {command}: {other}",
                        answer.verdict,
                        answer.reason()
                    ));
                };
                let in_list = all.iter().find(|one| one.object == answer.object).map(|one| one.verdict);
                let is_left_out = |verdict| {
                    verdict == ObjectVerdict::Settled || verdict == ObjectVerdict::Unknown && !answer.unread.is_empty()
                };
                // An object that is settled but for those below it is not listed beside them.
                let below = || answer.sets.iter().chain(&answer.machines).map(|one| &one.object);
                let is_stood_for = in_list.is_none()
                    && all.iter().any(|one| one.verdict == answer.verdict && below().any(|it| *it == one.object));
                if in_list != Some(answer.verdict).filter(|verdict| !is_left_out(*verdict)) && !is_stood_for {
                    tell("mcm why -n", format!("{in_list:?}"));
                }
                let in_tree = find(&branches, kind, name).and_then(|branch| branch.verdict);
                if in_tree.is_some_and(|verdict| verdict != answer.verdict) {
                    tell("mcm tree", format!("{in_tree:?}"));
                }
                let in_top = shown.iter().find(|one| one.kind == kind && one.name == *name);
                if let Some(one) = in_top.filter(|one| one.verdict != answer.verdict || !one.has_word_of_verdict()) {
                    tell("mcm top", format!("{:?} {:?}", one.verdict, one.word));
                }
                if kind == DEPLOYMENT
                    && let Some(progress) = self.cached.progress(name)
                {
                    let state = self.cached.state(&progress, &self.cached.answer(&answer.object));
                    if !is_state_of(answer.verdict, &state) {
                        tell("mcm rollout status", format!("{state:?}"));
                    }
                }
            }
        }
        found
    }

    /// Sentences about deployments that `mcm why` calls blocked and `mcm plan` does not, or the other way around.
    pub async fn plans_that_disagree(&mut self) -> Vec<String> {
        let names: Vec<String> = self.listed.deployments.keys().cloned().collect();
        let mut found = Vec::new();
        for name in names {
            let plan = self.plan(vec![unchanged(&name)]).await;
            let answer = self.why(DEPLOYMENT, &name);
            let is_blocked = answer.verdict == ObjectVerdict::Blocked;
            let blockers = || plan.objects.iter().flat_map(|object| &object.blockers);
            let is_blocked_now = blockers().any(|one| one.is_now && one.severity == BlockerSeverity::Blocks);
            if is_blocked && !plan.blocked || is_blocked_now && !is_blocked {
                let texts: Vec<&str> = blockers().map(|one| one.text.as_str()).collect();
                found.push(format!(
                    "{name}: mcm why: {:?} ({}), mcm plan: blocked: {}, {texts:?}",
                    answer.verdict,
                    answer.reason(),
                    plan.blocked
                ));
            }
        }
        found
    }
}

/// The plan of a deployment without a change.
pub fn unchanged(name: &str) -> PlannedChange {
    PlannedChange { kind: DEPLOYMENT, name: name.to_owned(), wish: ChangeContent::Nothing }
}

/// The plan of a deployment with a merge patch.
pub fn patched(name: &str, patch: &Value) -> PlannedChange {
    PlannedChange { wish: ChangeContent::Patch(patch.clone()), ..unchanged(name) }
}

fn find<'a>(branches: &'a [TreeBranch], kind: &str, name: &str) -> Option<&'a TreeBranch> {
    branches.iter().find_map(|branch| match branch.kind == kind && branch.name == name {
        true => Some(branch),
        false => find(&branch.children, kind, name),
    })
}

/// `mcm rollout status` ends with the exit code of the verdict. A deployment may have failed whatever its machines wait for.
const fn is_state_of(verdict: ObjectVerdict, state: &RolloutState) -> bool {
    match (verdict, state) {
        (_, RolloutState::Failed(_)) => true,
        (ObjectVerdict::Blocked, state) => matches!(state, RolloutState::Blocked(_)),
        (ObjectVerdict::Unknown, state) => matches!(state, RolloutState::Unknown(_)),
        (_, RolloutState::Blocked(_) | RolloutState::Unknown(_)) => false,
        (ObjectVerdict::Settled, state) => matches!(state, RolloutState::Done | RolloutState::Rolling),
        _ => true,
    }
}

impl TopVerdict {
    /// The word of a deployment is that of its verdict. Machines have none.
    fn has_word_of_verdict(&self) -> bool {
        let Some(word) = &self.word else { return true };
        let words: &[&str] = match self.verdict {
            ObjectVerdict::Blocked => &["blocked", "failed"],
            ObjectVerdict::Unknown => &["unknown", "failed"],
            ObjectVerdict::Settled => &["settled", "rolling", "failed"],
            ObjectVerdict::Waiting | ObjectVerdict::Progressing => &["waiting", "rolling", "failed"],
        };
        words.iter().any(|one| word.starts_with(one))
    }
}
