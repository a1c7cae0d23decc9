use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{Answer, Attempt, Attempts, Method, PodFacts, PodRef, drained_pods};
use crate::controllers::plan::Wait;

/// Longest time between two evictions of one pod; the reference's fixed one.
pub const EVICTION_RETRY: SignedDuration = SignedDuration::from_secs(20);
/// Longest time between two looks at terminating pods; the reference's fixed one.
const POLL: SignedDuration = SignedDuration::from_secs(5);
/// What a pod gets on top of its grace period before its termination counts as stuck.
const TERMINATION_SLACK: SignedDuration = SignedDuration::from_secs(30);
/// Refusals after which the first report is made, and again after as many as take about five minutes.
const REFUSALS_TO_REPORT: (u32, u32) = (6, 15);

/// How hard to press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Evict, respect budgets and grace periods, wait for every pod.
    Normal,
    /// Delete everything at once with grace period 0 and wait for nothing.
    Forced,
}

/// Until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From here on pods are deleted instead of evicted, and their grace periods are ignored.
    pub evict_until: Timestamp,
    /// From here on the drain is forced; the caller changes the mode then.
    pub deadline: Timestamp,
}

/// What a drain does next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainPlan {
    /// Calls to make now, concurrently; with a text worth an event, if there is one.
    pub calls: Vec<(Method, PodRef, Option<String>)>,
    /// What is waited for.
    pub waits: Vec<Wait>,
    /// What is wrong and will not heal by waiting a little, in the words of the reference, without repetitions.
    pub errors: Vec<String>,
    /// Disruption budgets that let no pod go for now, as `namespace/name`.
    pub refused_by: BTreeSet<String>,
    /// How many pods the drain is about.
    pub pods: usize,
}

impl DrainPlan {
    /// Nothing is left to do or to wait for. Errors may remain in forced mode.
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

    fn wait(&mut self, on: String, until: Timestamp) {
        self.waits.push(Wait { on, until: Some(until) });
    }

    fn fail(&mut self, error: String) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

/// What comes next for the pods that were found on a Node, and what was tried with them.
///
/// Pods with volumes go in parallel to the others and their termination is awaited; waiting for the detachment of
/// `PodFacts::claims` belongs here, after a pod's end.
pub fn plan(
    node: &str,
    pods: &[PodFacts],
    attempts: &Attempts,
    mode: Mode,
    limits: Limits,
    now: Timestamp,
) -> DrainPlan {
    let pods = drained_pods(pods);
    let mut plan = DrainPlan { pods: pods.len(), ..DrainPlan::default() };
    let poll_at = after(now, poll_interval(attempts, now));
    for pod in &pods {
        let attempt = attempts.get(&pod.pod.uid);
        match mode {
            Mode::Forced => force(&mut plan, pod, attempt),
            Mode::Normal if pod.is_finished => sweep(&mut plan, pod, attempt),
            Mode::Normal => press(&mut plan, node, pod, attempt, limits, poll_at, now),
        }
    }
    plan
}

/// One delete, whatever comes of it.
fn force(plan: &mut DrainPlan, pod: &PodFacts, attempt: Option<&Attempt>) {
    match attempt {
        Some(Attempt { method: Method::Delete, answer: Answer::Accepted, .. }) => {}
        Some(Attempt { method: Method::Delete, answer: Answer::Failed(error), .. }) => {
            plan.fail(format!("error when deleting pod \"{}\": {error}", pod.pod.name));
        }
        Some(Attempt { method: Method::Delete, answer: Answer::Refused(refusal), .. }) => {
            plan.fail(format!("error when deleting pod \"{}\": {}", pod.pod.name, refusal.message));
        }
        Some(Attempt { method: Method::Evict, .. }) | None => call(plan, Method::Delete, pod),
    }
}

/// A finished pod is evicted once, for its owner to notice; nothing waits for it.
fn sweep(plan: &mut DrainPlan, pod: &PodFacts, attempt: Option<&Attempt>) {
    if attempt.is_none() && pod.terminating_since.is_none() {
        call(plan, Method::Evict, pod);
    }
}

fn press(
    plan: &mut DrainPlan,
    node: &str,
    pod: &PodFacts,
    attempt: Option<&Attempt>,
    limits: Limits,
    poll_at: Timestamp,
    now: Timestamp,
) {
    let method = if now < limits.evict_until { Method::Evict } else { Method::Delete };
    let next_step = if now < limits.evict_until { limits.evict_until } else { limits.deadline };
    let accepted = attempt.filter(|attempt| attempt.answer == Answer::Accepted);
    let is_told = match method {
        Method::Evict => accepted.is_some() || pod.terminating_since.is_some(),
        Method::Delete => accepted.is_some_and(|attempt| attempt.method == Method::Delete),
    };
    if is_told {
        let since = match (accepted, pod.terminating_since) {
            (Some(attempt), Some(since)) => attempt.at.max(since),
            (Some(attempt), None) => attempt.at,
            (None, since) => since.unwrap_or(now),
        };
        let grace = if method == Method::Evict { pod.grace } else { SignedDuration::ZERO };
        if now >= after(after(since, grace), TERMINATION_SLACK) {
            plan.fail(format!(
                "error when waiting for pod \"{}\"/{node} terminating: context deadline exceeded",
                pod.pod.name
            ));
        }
        plan.wait(format!("pod {} to terminate", pod.pod), poll_at.min(next_step));
        return;
    }
    let Some(attempt) = attempt.filter(|attempt| attempt.method == method) else {
        return call(plan, method, pod);
    };
    let reason = match &attempt.answer {
        Answer::Accepted => return,
        Answer::Failed(error) => {
            plan.fail(format!("error when evicting pod \"{}\": {error} scheduled on node {node}", pod.pod.name));
            error.clone()
        }
        Answer::Refused(refusal) => {
            let budget = refusal.budget.as_deref().unwrap_or_default();
            if refusal.is_misconfigured {
                plan.fail(format!(
                    "error while evicting pod \"{}\": pod disruption budget {budget} is misconfigured and requires \
                     zero voluntary evictions",
                    pod.pod.name
                ));
            }
            match &refusal.budget {
                Some(budget) => {
                    plan.refused_by.insert(budget.clone());
                    format!("refused by the disruption budget {budget}")
                }
                None => refusal.message.clone(),
            }
        }
    };
    let retry_at = after(attempt.at, eviction_backoff(attempt.count));
    if now < retry_at {
        return plan.wait(format!("pod {}: eviction {reason}", pod.pod), retry_at.min(next_step));
    }
    let report = is_worth_a_report(attempt.count)
        .then(|| format!("eviction of pod {} failed {} times so far: {reason}", pod.pod, attempt.count));
    plan.calls.push((method, pod.pod.clone(), report));
}

fn call(plan: &mut DrainPlan, method: Method, pod: &PodFacts) {
    plan.calls.push((method, pod.pod.clone(), None));
}

const fn is_worth_a_report(count: u32) -> bool {
    let (first, every) = REFUSALS_TO_REPORT;
    count >= first && (count - first).is_multiple_of(every)
}

/// 1, 2, 4, 8, 16, 20, 20, … seconds.
fn eviction_backoff(count: u32) -> SignedDuration {
    SignedDuration::from_secs(1 << count.saturating_sub(1).min(8)).min(EVICTION_RETRY)
}

/// Soon after the last pod was told to go, then less and less often.
fn poll_interval(attempts: &Attempts, now: Timestamp) -> SignedDuration {
    let last = attempts.values().filter(|attempt| attempt.answer == Answer::Accepted).map(|attempt| attempt.at).max();
    let age = last.map_or(POLL, |at| now.duration_since(at) / 2);
    age.clamp(SignedDuration::from_secs(1), POLL)
}

fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
