//! Decides about one pod by a list of rules; the first rule that applies wins. A new rule is one function and one line
//! in [`RULES`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    DisruptionAllowance, DrainAnswer, DrainAttempt, DrainMode, DrainRounds, EvictionRefusal, PodAttempts, PodFacts,
    PodRemovalMethod, after,
    volumes::{VolumeTimeouts, VolumeTracker},
};
use crate::plan::WaitKind;
use mcm_api::backoff::Backoff;

/// In this order.
pub const RULES: [DrainRule; 9] =
    [mirror, daemon, forced, finished, latecomer, told_to_go, unread_volumes, wait_for_turn, evict_or_delete];

/// A rule for one pod.
pub type DrainRule = fn(&PodFacts, &DrainRuleInput<'_>) -> DrainVerdict;

/// Input of every rule.
#[derive(Clone, Copy, Debug)]
pub struct DrainRuleInput<'a> {
    /// Name of the Node.
    pub node: &'a str,
    pub mode: DrainMode,
    /// How long a pod is evicted, from its first eviction, before it is deleted.
    pub evict_for: SignedDuration,
    /// From this time the drain is forced.
    pub forced_from: Timestamp,
    pub attempts: &'a PodAttempts,
    pub rounds: &'a DrainRounds,
    pub volumes: &'a VolumeTracker,
    /// Why the volumes of some pods could not be read; `None` if they could.
    pub unread: Option<&'a str>,
    pub timeouts: VolumeTimeouts,
    /// Pods that wait for other pods, by UID, with the reason.
    pub held: &'a BTreeMap<Arc<str>, String>,
    /// Current allowances of disruption budgets, by `namespace/name`: only budgets that are watched and refused an
    /// eviction.
    pub allowances: &'a BTreeMap<String, DisruptionAllowance>,
    /// Refused pods, by UID, that are evicted again without a pause.
    pub released: &'a BTreeSet<Arc<str>>,
    pub now: Timestamp,
}

/// Result of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum DrainVerdict {
    /// The rule does not apply; the next one decides.
    Undecided,
    /// The pod is not drained.
    NotDrained,
    /// The pod is not touched and not awaited.
    Leave { error: Option<String> },
    /// Call now. The report becomes an event.
    Call { method: PodRemovalMethod, report: Option<String>, problem: DrainProblem },
    /// Wait; the text completes "waiting for".
    Wait { kind: WaitKind, text: String, until: Timestamp, problem: DrainProblem },
}

/// Problems of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainProblem {
    /// An error that a short wait does not solve, in the words of the reference.
    pub error: Option<String>,
    /// The disruption budget that refuses the eviction now, as `namespace/name`.
    pub refused_by: Option<String>,
}

/// The verdict of the first rule that applies.
pub fn judge(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    let verdicts = RULES.iter().map(|rule| rule(pod, round));
    verdicts.into_iter().find(|verdict| *verdict != DrainVerdict::Undecided).unwrap_or(DrainVerdict::NotDrained)
}

/// Longest time between two evictions of one pod; the reference's fixed one.
const EVICTION_RETRY: SignedDuration = SignedDuration::from_secs(20);
/// Longest time between two lists while pods terminate; the reference's fixed one.
pub(super) const POLL: SignedDuration = SignedDuration::from_secs(5);
/// Time after the grace period until the termination of a pod counts as stuck.
const TERMINATION_SLACK: SignedDuration = SignedDuration::from_secs(30);
/// Refusals before the first event; the next ones follow about every five minutes.
const REFUSALS_TO_REPORT: (u32, u32) = (6, 15);

impl<'a> DrainRuleInput<'a> {
    pub(super) fn attempt(&self, pod: &PodFacts) -> Option<&'a DrainAttempt> {
        self.attempts.get(&pod.pod.uid)
    }

    /// End of the eviction period of a pod; `None` before its first eviction.
    fn evict_until(&self, pod: &PodFacts) -> Option<Timestamp> {
        if self.evict_for.is_zero() {
            return Some(Timestamp::MIN);
        }
        self.attempt(pod)?.evicting_since.map(|since| after(since, self.evict_for))
    }

    pub(super) fn method(&self, pod: &PodFacts) -> PodRemovalMethod {
        if self.evict_until(pod).is_some_and(|until| self.now >= until) {
            PodRemovalMethod::Delete
        } else {
            PodRemovalMethod::Evict
        }
    }

    /// The earlier of a time and the end of the pod's eviction period or the start of the forced drain.
    fn at_most(&self, pod: &PodFacts, time: Timestamp) -> Timestamp {
        let next = self.evict_until(pod).filter(|until| *until > self.now).unwrap_or(Timestamp::MAX);
        time.min(next).min(self.forced_from)
    }

    /// When to list again: every second after an eviction, later after a tenth of the time since.
    fn poll_at(&self) -> Timestamp {
        let accepted = self.attempts.values().filter(|attempt| attempt.answer == DrainAnswer::Accepted);
        let age = accepted.map(|attempt| attempt.at).max().map_or(POLL, |at| self.now.duration_since(at) / 10);
        after(self.now, age.clamp(SignedDuration::from_secs(1), POLL))
    }
}

/// A mirror pod runs because of a file on the Node: the API server cannot stop it.
fn mirror(pod: &PodFacts, _: &DrainRuleInput<'_>) -> DrainVerdict {
    if pod.is_mirror { DrainVerdict::NotDrained } else { DrainVerdict::Undecided }
}

/// Its DaemonSet would recreate it immediately.
fn daemon(pod: &PodFacts, _: &DrainRuleInput<'_>) -> DrainVerdict {
    if pod.is_daemon { DrainVerdict::NotDrained } else { DrainVerdict::Undecided }
}

/// A forced drain deletes a pod once and does not wait for it.
fn forced(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    if round.mode == DrainMode::Normal {
        return DrainVerdict::Undecided;
    }
    let error = match round.attempt(pod).filter(|attempt| attempt.method == PodRemovalMethod::Delete) {
        None => return call(PodRemovalMethod::Delete),
        Some(DrainAttempt { answer: DrainAnswer::Accepted, .. }) => None,
        Some(DrainAttempt { answer: DrainAnswer::Failed(error), .. }) => Some(error),
        Some(DrainAttempt { answer: DrainAnswer::Refused(refusal), .. }) => Some(&refusal.message),
    };
    DrainVerdict::Leave { error: error.map(|error| format!("error when deleting pod \"{}\": {error}", pod.pod.name)) }
}

/// A finished pod is evicted once, for its owner to notice; nothing waits for it.
fn finished(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    if !pod.is_finished {
        return DrainVerdict::Undecided;
    }
    if round.attempt(pod).is_none() && pod.terminating_since.is_none() {
        return call(PodRemovalMethod::Evict);
    }
    DrainVerdict::Leave { error: None }
}

/// It was scheduled after the cordon: it tolerates that and would come back.
fn latecomer(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    if round.rounds.count(pod) { DrainVerdict::Undecided } else { DrainVerdict::Leave { error: None } }
}

/// A terminating pod has until the end of its grace period, plus some time for the kubelet. After that it is evicted or
/// deleted again.
fn told_to_go(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    let accepted = round.attempt(pod).filter(|attempt| attempt.answer == DrainAnswer::Accepted);
    let since = match (accepted, pod.terminating_since) {
        (None, None) => return DrainVerdict::Undecided,
        (Some(attempt), Some(since)) => attempt.at.max(since),
        (Some(attempt), None) => attempt.at,
        (None, Some(since)) => since,
    };
    let is_killed = accepted.is_some_and(|attempt| attempt.method == PodRemovalMethod::Delete);
    let grace = if is_killed { SignedDuration::ZERO } else { pod.grace };
    let is_stuck = round.now >= after(after(since, grace), TERMINATION_SLACK);
    let is_told_so = accepted.is_some_and(|attempt| attempt.method == round.method(pod));
    if is_stuck && !is_killed && !is_told_so {
        return DrainVerdict::Undecided;
    }
    let error = is_stuck.then(|| {
        let (pod, node) = (&pod.pod.name, round.node);
        format!("error when waiting for pod \"{pod}\"/{node} terminating: context deadline exceeded")
    });
    DrainVerdict::Wait {
        kind: WaitKind::PodTermination,
        text: format!("pod {} to terminate", pod.pod),
        until: round.at_most(pod, round.poll_at()),
        problem: DrainProblem { error, refused_by: None },
    }
}

/// Shared volumes decide when a pod is evicted, so its volumes have to be known.
fn unread_volumes(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    if round.volumes.know(pod) {
        return DrainVerdict::Undecided;
    }
    let error = round.unread.unwrap_or("not read yet").to_owned();
    DrainVerdict::Wait {
        kind: WaitKind::VolumesUnknown,
        text: format!("the volumes of pod {}: {error}", pod.pod),
        until: round.at_most(pod, after(round.now, POLL)),
        problem: DrainProblem { error: Some(error), refused_by: None },
    }
}

/// Volumes move in order, and not too many at a time.
fn wait_for_turn(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    let Some(reason) = round.held.get(&pod.pod.uid) else { return DrainVerdict::Undecided };
    DrainVerdict::Wait {
        kind: WaitKind::VolumeTurn,
        text: format!("pod {} to be evicted: {reason}", pod.pod),
        until: round.at_most(pod, after(round.now, POLL)),
        problem: DrainProblem::default(),
    }
}

/// A pod is evicted until it terminates or its eviction period ends, then deleted.
fn evict_or_delete(pod: &PodFacts, round: &DrainRuleInput<'_>) -> DrainVerdict {
    let method = round.method(pod);
    let Some(attempt) = round.attempt(pod).filter(|attempt| attempt.method == method) else { return call(method) };
    let (reason, problem) = failure_of(pod, round.node, &attempt.answer);
    let is_watched = matches!(&attempt.answer, DrainAnswer::Refused(refusal) if awaits_change(refusal, round));
    // A change of a watched budget releases the pod.
    let pause = if is_watched { EVICTION_RETRY } else { eviction_backoff(attempt.count) };
    let retry_at = after(attempt.at, pause);
    if round.now < retry_at && !round.released.contains(&pod.pod.uid) {
        let text = format!("pod {}: eviction {reason}", pod.pod);
        return DrainVerdict::Wait { kind: WaitKind::Eviction, text, until: round.at_most(pod, retry_at), problem };
    }
    let report = is_worth_a_report(attempt.count)
        .then(|| format!("eviction of pod {} failed {} times so far: {reason}", pod.pod, attempt.count));
    DrainVerdict::Call { method, report, problem }
}

/// A change of the budget is to come. If it allowed an eviction already when it was read after the refusal, none may come.
fn awaits_change(refusal: &EvictionRefusal, round: &DrainRuleInput<'_>) -> bool {
    let allowance = refusal.budget.as_ref().and_then(|budget| round.allowances.get(budget));
    allowance.is_some_and(|found| found.disruptions <= 0 || refusal.version.as_deref() != Some(found.version.as_str()))
}

/// The reason of a failed call: a text for users, and the error in the words of the reference that programs search
/// for.
fn failure_of(pod: &PodFacts, node: &str, answer: &DrainAnswer) -> (String, DrainProblem) {
    let name = &pod.pod.name;
    match answer {
        DrainAnswer::Accepted => ("accepted".to_owned(), DrainProblem::default()),
        DrainAnswer::Failed(error) => {
            let text = format!("error when evicting pod \"{name}\": {error} scheduled on node {node}");
            (error.clone(), DrainProblem { error: Some(text), refused_by: None })
        }
        DrainAnswer::Refused(refusal) if refusal.is_of_several => {
            let text = format!("error when evicting pod \"{name}\": {} scheduled on node {node}", refusal.message);
            let names = refusal.budget.as_deref().map(|names| format!(" ({names})")).unwrap_or_default();
            (format!("{}{names}", refusal.message), DrainProblem { error: Some(text), refused_by: None })
        }
        DrainAnswer::Refused(refusal) => {
            let budget = refusal.budget.as_deref().unwrap_or_default();
            let error = refusal.is_misconfigured.then(|| {
                format!(
                    "error while evicting pod \"{name}\": pod disruption budget {budget} is misconfigured and requires \
                     zero voluntary evictions"
                )
            });
            let reason = match &refusal.budget {
                Some(budget) => format!("refused by the disruption budget {budget}"),
                None => refusal.message.clone(),
            };
            (reason, DrainProblem { error, refused_by: refusal.budget.clone() })
        }
    }
}

fn call(method: PodRemovalMethod) -> DrainVerdict {
    DrainVerdict::Call { method, report: None, problem: DrainProblem::default() }
}

const fn is_worth_a_report(count: u32) -> bool {
    let (first, every) = REFUSALS_TO_REPORT;
    count >= first && (count - first).is_multiple_of(every)
}

/// 1, 2, 4, 8, 16, 20, 20, … seconds.
pub(super) fn eviction_backoff(count: u32) -> SignedDuration {
    Backoff::new(Duration::from_secs(1), EVICTION_RETRY.unsigned_abs()).after(count)
}
