use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::{
    DrainMode, DrainRuleInput, PodFacts, PodRef, PodRemovalMethod, after, releases,
    rules::{self, DrainProblem, DrainVerdict, POLL},
    turns,
    volumes::{VolumeMove, VolumeMoveStage},
};
use crate::plan::{Wait, WaitKind};

/// Time for which volumes that were not detached in time are reported. The reference's pause until the next attempt.
const TOLD_FOR: SignedDuration = SignedDuration::from_secs(5);

/// In the words of the reference.
const NOT_DETACHED: &str = "timeout while waiting for PVs to detach from node";

/// The next calls and waits of a drain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainPlan {
    /// Calls to make now, concurrently.
    pub calls: Vec<PodStep>,
    pub waits: Vec<Wait>,
    /// Errors that a short wait does not solve, in the words of the reference, without duplicates.
    pub errors: Vec<String>,
    /// Disruption budgets that refuse evictions now, as `namespace/name`.
    pub refused_by: BTreeSet<String>,
    /// Number of pods to drain.
    pub pods: usize,
}

/// A call about a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodStep {
    pub method: PodRemovalMethod,
    pub pod: PodRef,
    /// Message of an event, if the call is worth one.
    pub report: Option<String>,
}

impl DrainPlan {
    /// Nothing is left to do or to wait for. In forced mode errors may remain.
    pub fn is_done(&self) -> bool {
        self.calls.is_empty() && self.waits.is_empty()
    }

    /// The errors as one text; `None` if there are none.
    pub fn error(&self) -> Option<String> {
        match self.errors.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        }
    }

    fn add(&mut self, pod: &PodFacts, verdict: DrainVerdict) {
        match verdict {
            DrainVerdict::Undecided | DrainVerdict::NotDrained => return,
            DrainVerdict::Leave { error } => self.tell(DrainProblem { error, refused_by: None }),
            DrainVerdict::Call { method, report, problem } => {
                self.calls.push(PodStep { method, pod: pod.pod.clone(), report });
                self.tell(problem);
            }
            DrainVerdict::Wait { kind, text, until, problem } => {
                self.waits.push(Wait::new(kind, text, Some(until)));
                self.tell(problem);
            }
        }
        self.pods += 1;
    }

    /// A terminating pod is awaited itself; after that, its volumes are.
    fn add_move(&mut self, it: &VolumeMove, pods: &[&PodFacts], round: &DrainRuleInput<'_>) {
        let (names, node) = (it.names(), round.node);
        let (kind, text, until) = match it.stage(round.timeouts, round.now) {
            VolumeMoveStage::Over => return,
            VolumeMoveStage::Stuck { since } => {
                let until = after(since, TOLD_FOR);
                if round.now >= until {
                    return;
                }
                self.tell(DrainProblem { error: Some(NOT_DETACHED.to_owned()), refused_by: None });
                let text =
                    format!("volumes {names} of pod {}, which were not detached from node {node} in time", it.pod);
                (WaitKind::VolumeDetachment, text, until)
            }
            VolumeMoveStage::Detaching { .. } if pods.iter().any(|pod| pod.pod.uid == it.pod.uid) => return,
            VolumeMoveStage::Detaching { until } => {
                let text = format!("volumes {names} of pod {} to be detached from node {node}", it.pod);
                (WaitKind::VolumeDetachment, text, until)
            }
            VolumeMoveStage::Reattaching { until } => {
                let text = format!("volumes {names} of pod {} to be attached to another node", it.pod);
                (WaitKind::VolumeAttachment, text, until)
            }
        };
        let until = until.min(after(round.now, POLL)).min(round.forced_from);
        self.waits.push(Wait::new(kind, text, Some(until)));
    }

    /// At the end of a drain: volumes that are attached to the Node although no pod uses them.
    fn add_left(&mut self, pods: &[&PodFacts], round: &DrainRuleInput<'_>) {
        let Some(left) = round.volumes.left(pods, round.timeouts, TOLD_FOR, round.now) else { return };
        let node = round.node;
        let (text, until) = match (left.names.as_str(), round.now < left.until) {
            ("", true) => (format!("the VolumeAttachments of node {node} to become readable"), left.until),
            ("", false) => return,
            (names, true) => {
                (format!("volumes {names}, which no pod uses, to be detached from node {node}"), left.until)
            }
            (names, false) => {
                self.tell(DrainProblem { error: Some(NOT_DETACHED.to_owned()), refused_by: None });
                (
                    format!("volumes {names}, which were not detached from node {node} in time"),
                    after(left.until, TOLD_FOR),
                )
            }
        };
        let until = until.min(after(round.now, POLL)).min(round.forced_from);
        self.waits.push(Wait::new(WaitKind::VolumeDetachment, text, Some(until)));
    }

    fn tell(&mut self, problem: DrainProblem) {
        if let Some(error) = problem.error.filter(|error| !self.errors.contains(error)) {
            self.errors.push(error);
        }
        self.refused_by.extend(problem.refused_by);
    }
}

/// Plans the drain of the listed pods of a Node.
pub fn plan(pods: &[PodFacts], round: &DrainRuleInput<'_>) -> DrainPlan {
    let mut sorted: Vec<&PodFacts> = pods.iter().collect();
    sorted.sort_by(|a, b| a.pod.cmp(&b.pod));
    let mut plan = DrainPlan::default();
    let held = turns::held(&sorted, round);
    let round = DrainRuleInput { held: &held, ..*round };
    let released = releases::released(&sorted, &round);
    let round = DrainRuleInput { released: &released, ..round };
    for pod in &sorted {
        plan.add(pod, rules::judge(pod, &round));
    }
    if round.mode == DrainMode::Normal {
        round.volumes.moves().for_each(|it| plan.add_move(it, &sorted, &round));
        if plan.is_done() {
            plan.add_left(&sorted, &round);
        }
        plan.waits.iter_mut().for_each(|wait| wait.forced_at = Some(round.forced_from));
    }
    plan
}
