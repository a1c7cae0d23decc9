use std::collections::BTreeSet;

use super::{
    Method, PodFacts, PodRef, Round,
    rules::{self, Problem, Verdict},
};
use crate::plan::Wait;

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
    pub method: Method,
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

    fn add(&mut self, pod: &PodFacts, verdict: Verdict) {
        match verdict {
            Verdict::Undecided | Verdict::NotDrained => return,
            Verdict::Leave { error } => self.tell(Problem { error, refused_by: None }),
            Verdict::Call { method, report, problem } => {
                self.calls.push(PodStep { method, pod: pod.pod.clone(), report });
                self.tell(problem);
            }
            Verdict::Wait { kind, text, until, problem } => {
                self.waits.push(Wait { kind, text, until: Some(until) });
                self.tell(problem);
            }
        }
        self.pods += 1;
    }

    fn tell(&mut self, problem: Problem) {
        if let Some(error) = problem.error.filter(|error| !self.errors.contains(error)) {
            self.errors.push(error);
        }
        self.refused_by.extend(problem.refused_by);
    }
}

/// Plans the drain of the listed pods of a Node.
pub fn plan(pods: &[PodFacts], round: &Round<'_>) -> DrainPlan {
    let mut sorted: Vec<&PodFacts> = pods.iter().collect();
    sorted.sort_by(|a, b| a.pod.cmp(&b.pod));
    let mut plan = DrainPlan::default();
    for pod in sorted {
        plan.add(pod, rules::judge(pod, round));
    }
    plan
}
