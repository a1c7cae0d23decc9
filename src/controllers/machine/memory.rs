use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::conditions::{CopyPeriod, NeverMet};
use mcm_api::{backoff::Backoff, hash::fnv1a_64, patch, syntax};
use mcm_driver::{Code, DriverError};
use mcm_rules::{
    drain::{DrainAnswer, DrainRounds, EvictionRefusal, PodAttempts, PodRef, VolumeTracker},
    plan::repeats::{REVERTED, RepeatCount},
    safety::node_claim::VmReport,
};

/// In-memory facts about a Machine that are kept between reconciles. Losing them costs a repeated call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// UID of the Machine. Another Machine may have the same name later.
    uid: Option<String>,
    /// How often the failures were cleared.
    forgotten: u64,
    calls: BTreeMap<VmCall, CallFailure>,
    node: BTreeMap<NodeWrite, NodeFailure>,
    token: Option<NodeFailure>,
    /// True after this process made the bootstrap token or tried to, false after it deleted it; `None` if it did neither.
    has_token: Option<bool>,
    /// Writes of the Machine that the API server refused, by the fields that they name.
    refused: BTreeMap<String, RefusedWrite>,
    /// Name of the VM's Node, if it cannot be the value of the label that would store it.
    unlabelled_node: Option<String>,
    /// Patches of the Machine that were accepted, by the fields that they name.
    written: BTreeMap<String, AcceptedPatch>,
    /// Patches of the Node that were accepted, by their purpose.
    accepted: BTreeMap<NodeWrite, AcceptedPatch>,
    /// Writes that were accepted and reverted, as they failed last.
    reverted: BTreeMap<NodeWrite, NodeFailure>,
    /// The deletion of a new VM was begun, because its name is that of another VM's Node.
    has_given_up_vm: bool,
    /// The last eviction or delete of each pod.
    pub(super) pods: PodAttempts,
    /// The pods to drain, as they were listed last.
    pub(super) listed: Vec<PodRef>,
    /// The pods the drain waits for.
    pub(super) rounds: DrainRounds,
    /// The volumes of the pods, and how far they have come.
    pub(super) volumes: VolumeTracker,
    /// The time of the driver's last answer about the existence of the VM.
    pub(super) looked_at: Option<Timestamp>,
    /// That answer, reduced to the identity of the VM.
    pub(super) report: VmReport,
    /// Writes that stored nothing but conditions of the Node.
    pub(super) copies: Option<CopyPeriod>,
    /// The user data contains a placeholder for a bootstrap token; `None` if it was not read since the start.
    pub(super) wants_token: Option<bool>,
}

/// A call to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VmCall {
    /// `Driver::status`.
    Status,
    /// `Driver::create`.
    Create,
    /// `Driver::initialize`.
    Initialize,
    /// `Driver::delete`.
    Delete,
}

/// A driver call that failed, or that ended while the cloud still works on it, and was not successful since.
#[derive(Clone, Debug, PartialEq)]
pub struct CallFailure {
    /// The error of the driver.
    pub error: DriverError,
    /// When the call returned.
    pub at: Timestamp,
    /// How often in a row it failed with this code; 0 if resources that it lacked may be available since.
    pub count: u32,
}

/// Purpose of a write to a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeWrite {
    /// Apply the Machine's template: labels, annotations, taints, finalizer.
    Sync,
    /// After that was refused, this part of it alone.
    SyncPart(NodePatchPart),
    /// Set the virtual capacity of the class.
    Capacity,
    /// Set the condition `Terminating`.
    Announce,
    /// Cordon it.
    Cordon,
    /// Set the condition `InPlaceUpdate`.
    InPlaceUpdate,
    /// Keep it from the autoscaler, and new pods from it, because its Machine is preserved.
    Preserve,
    /// Set the condition `Preserved`.
    TellPreserved,
    /// Set the condition `Preserved` after its drain.
    TellDrained,
    /// Undo the changes of a preservation.
    EndPreservation,
    /// Delete its VolumeAttachments.
    DetachVolumes,
    /// Remove our finalizer.
    RemoveFinalizer,
    /// Delete it.
    Delete,
}

impl NodeWrite {
    /// One such write is enough until something changes.
    pub(super) const fn is_idempotent(self) -> bool {
        matches!(self, Self::Sync | Self::SyncPart(_) | Self::Capacity | Self::Preserve | Self::EndPreservation)
    }
}

/// A part of the patch to a Node, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodePatchPart {
    /// Our finalizer, and the label with the name of the Machine.
    Finalizer,
    Taints,
    Labels,
    Annotations,
    /// After its labels or annotations were refused together, one of them, by the hash of its kind and key.
    Entry(u64),
    /// The annotations that store the applied values.
    Records,
}

impl fmt::Display for NodeWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "node template",
            Self::SyncPart(NodePatchPart::Finalizer) => "finalizer of the node template",
            Self::SyncPart(NodePatchPart::Taints) => "taints of the node template",
            Self::SyncPart(NodePatchPart::Labels) => "labels of the node template",
            Self::SyncPart(NodePatchPart::Annotations) => "annotations of the node template",
            Self::SyncPart(NodePatchPart::Entry(_)) => "label or annotation of the node template",
            Self::SyncPart(NodePatchPart::Records) => "record of the node template",
            Self::Capacity => "virtual capacity",
            Self::Announce => "condition Terminating",
            Self::Cordon => "cordon",
            Self::InPlaceUpdate => "condition InPlaceUpdate",
            Self::Preserve => "preserve",
            Self::TellPreserved | Self::TellDrained => "condition Preserved",
            Self::EndPreservation => "end of the preservation",
            Self::DetachVolumes => "delete volume attachments",
            Self::RemoveFinalizer => "remove our finalizer",
            Self::Delete => "delete",
        })
    }
}

/// First and longest pause before a failed write is retried.
const FAILED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
/// The same after a refusal.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(10));
/// End of the message about a write that is reverted each time.
const CHANGED_BACK: &str = "the object is still different: a webhook or another controller changes it back";
/// How often a write is accepted in a row until the object counts as changed back each time.
pub(super) const ACCEPTED: u32 = 3;
/// How long a write must last until its condition is removed.
const LASTING: SignedDuration = SignedDuration::from_secs(10);

/// How often a patch with this content was accepted in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AcceptedPatch {
    content: u64,
    count: RepeatCount,
}

impl AcceptedPatch {
    /// It was accepted once more: how often in a row.
    fn again(&mut self, patch: &Value, now: Timestamp) -> u32 {
        let content = fnv1a_64(patch.to_string().bytes());
        if self.content != content {
            *self = Self { content, ..Self::default() };
        }
        self.count.add(&REVERTED, now);
        self.count.count()
    }
}

/// A write to the target cluster that failed and was not successful since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFailure {
    /// The error of the API server.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// How often in a row it failed.
    pub count: u32,
    /// A retry does not help without a change: the API server refused it, or another program reverts it.
    pub is_refused: bool,
    /// `metadata.generation` of the Machine at that time.
    generation: Option<i64>,
}

/// A write that the API server refused and did not accept since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedWrite {
    /// The error of the API server.
    message: String,
    at: Timestamp,
    /// How often in a row it was refused.
    count: u32,
}

impl RefusedWrite {
    /// The wait of a Machine with a refused write.
    pub(super) fn awaited(&self) -> String {
        format!("the API server to accept a write of the Machine: {}", self.message)
    }

    /// When to retry: after 5, 10, 20, … seconds, then every 10 minutes.
    pub(super) fn retry_at(&self) -> Timestamp {
        retry_after(self.at, self.count, REFUSED)
    }
}

impl Memory {
    /// Clears all failures, so that every call may be made immediately. Called when the class or a Secret changed.
    pub fn forget_failures(&mut self) {
        self.forgotten += 1;
        self.clear_failures();
    }

    /// How often failures were cleared because the class or a Secret changed.
    pub(super) const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn clear_failures(&mut self) {
        self.written.clear();
        self.accepted.clear();
        self.calls.clear();
        self.node.clear();
        self.reverted.clear();
        self.token = None;
        self.refused.clear();
    }

    /// The memory, unless it is about an earlier Machine of the same name.
    pub(super) fn for_uid(&self, uid: Option<&str>) -> Self {
        if self.uid.as_deref() == uid {
            return self.clone();
        }
        Self { uid: uid.map(str::to_owned), forgotten: self.forgotten, ..Self::default() }
    }

    /// The memory at a time. A failure after that time is from before the clock was set back: its retry is due now, not
    /// when the clock has caught up. An accepted eviction keeps its time, because its grace period counts from there.
    pub(super) fn at(mut self, now: Timestamp) -> Self {
        let calls = self.calls.values_mut().map(|failure| &mut failure.at);
        let writes = self.node.values_mut().chain(&mut self.token).map(|failure| &mut failure.at);
        let refused = self.pods.values_mut().filter(|attempt| attempt.answer != DrainAnswer::Accepted);
        let of_machine = self.refused.values_mut().map(|refusal| &mut refusal.at);
        let times = calls.chain(writes).chain(refused.map(|attempt| &mut attempt.at)).chain(of_machine);
        times.filter(|at| **at > now).for_each(|at| *at = Timestamp::MIN);
        self
    }

    /// Stores the memory as a reconcile changed it. If failures were cleared while a call was in flight, they stay
    /// cleared.
    pub(super) fn replace(&mut self, changed: Self) {
        let forgotten = self.forgotten;
        let is_outdated = changed.forgotten != forgotten;
        *self = Self { forgotten, ..changed };
        if is_outdated {
            self.clear_failures();
        }
    }

    pub(super) fn token_ensured(&mut self) {
        self.token = None;
        self.has_token = Some(true);
    }

    pub(super) fn token_deleted(&mut self) {
        self.has_token = Some(false);
    }

    /// The Machine may have a bootstrap token. `None` if an earlier process may have made one.
    pub(super) fn may_have_token(&self) -> Option<bool> {
        if self.wants_token == Some(false) { Some(false) } else { self.has_token }
    }

    pub(super) fn machine_refused(&mut self, patch: &Value, message: String, at: Timestamp) {
        let fields = patch::fields(patch);
        let count = self.refused.get(&fields).map_or(0, |refusal| refusal.count).saturating_add(1);
        self.refused.insert(fields, RefusedWrite { message, at, count });
    }

    pub(super) fn machine_written(&mut self, patch: &Value, at: Timestamp) {
        let fields = patch::fields(patch);
        self.refused.remove(&fields);
        self.written.retain(|_, written| !written.count.is_over(&REVERTED, at));
        let count = self.written.entry(fields.clone()).or_default().again(patch, at);
        if let Some(over) = count.checked_sub(ACCEPTED) {
            let message = format!("{fields}: the write was accepted {ACCEPTED} times, and {CHANGED_BACK}");
            self.refused.insert(fields, RefusedWrite { message, at, count: over.saturating_add(1) });
        }
    }

    /// The refusal of a write of the Machine, if the write must not be repeated yet.
    pub(super) fn refusal_of(&self, patch: &Value, now: Timestamp) -> Option<&RefusedWrite> {
        if self.refused.is_empty() {
            return None;
        }
        self.refused.get(&patch::fields(patch)).filter(|refusal| now < refusal.retry_at())
    }

    pub(super) fn node_named(&mut self, name: &str) {
        self.unlabelled_node = (!syntax::is_label_value(name)).then(|| name.to_owned());
    }

    /// The name of the VM's Node, if no label can store it.
    pub(super) fn unlabelled_node(&self) -> Option<&str> {
        self.unlabelled_node.as_deref()
    }

    pub(super) fn token_failed(&mut self, message: String, at: Timestamp) {
        let count = self.token.as_ref().map_or(0, |failure| failure.count).saturating_add(1);
        self.token = Some(NodeFailure { message, at, count, is_refused: false, generation: None });
        self.has_token = Some(true);
    }

    /// Disruption budgets that refused the last eviction of a pod, as `namespace/name`.
    pub(super) fn refusing_budgets(&self) -> BTreeSet<Arc<str>> {
        let single = self.refusals().filter(|refusal| !refusal.is_of_several);
        single.filter_map(|refusal| refusal.budget.as_deref().map(Arc::from)).collect()
    }

    /// The budgets that can never allow it.
    pub(super) fn never_met_budgets(&self) -> NeverMet<'_> {
        let named = |is: fn(&EvictionRefusal) -> bool| {
            let never_met = self.refusals().filter(move |refusal| is(refusal));
            never_met.filter_map(|refusal| refusal.budget.as_deref()).collect()
        };
        NeverMet { single: named(|it| it.is_misconfigured), several: named(|it| it.is_of_several) }
    }

    fn refusals(&self) -> impl Iterator<Item = &EvictionRefusal> {
        self.pods.values().filter_map(|attempt| match &attempt.answer {
            DrainAnswer::Refused(refusal) => Some(refusal),
            DrainAnswer::Accepted | DrainAnswer::Failed(_) => None,
        })
    }

    /// A drain is over, and its Machine stays.
    pub(super) fn drain_ended(&mut self) {
        self.pods.clear();
        self.listed.clear();
        self.rounds.restart();
        self.volumes = VolumeTracker::default();
    }

    /// The last failure to create the bootstrap token.
    pub(super) fn token_failure(&self) -> Option<&NodeFailure> {
        self.token.as_ref()
    }

    pub(super) fn call_failed(&mut self, call: VmCall, error: DriverError, at: Timestamp) {
        let before = self.calls.get(&call).filter(|failure| failure.error.code == error.code);
        let count = before.map_or(0, |failure| failure.count).saturating_add(1);
        self.calls.insert(call, CallFailure { error, at, count });
    }

    /// A VM was deleted: a creation that failed for lack of resources may be tried now. False if none waits.
    pub(super) fn resources_freed(&mut self) -> bool {
        let creation = self.calls.get_mut(&VmCall::Create);
        let waiting = creation.filter(|it| it.error.code == Code::ResourceExhausted && it.count > 0);
        waiting.map(|failure| failure.count = 0).is_some()
    }

    pub(super) fn call_succeeded(&mut self, call: VmCall) {
        self.calls.remove(&call);
    }

    pub(super) fn gave_up_vm(&mut self) {
        self.has_given_up_vm = true;
    }

    /// The VM does not exist because this controller deleted it before it joined.
    pub(super) const fn has_given_up_vm(&self) -> bool {
        self.has_given_up_vm
    }

    pub(super) fn failure_of(&self, call: VmCall) -> Option<&CallFailure> {
        self.calls.get(&call)
    }

    /// The last creation ended while the cloud still worked on it.
    pub(super) fn is_creating(&self) -> bool {
        self.failure_of(VmCall::Create).is_some_and(|failure| failure.error.call_again_in.is_some())
    }

    pub(super) fn node_failed(&mut self, write: NodeWrite, message: String, at: Timestamp) {
        let before = self.node.get(&write).filter(|failure| !failure.is_refused);
        let count = before.map_or(0, |failure| failure.count).saturating_add(1);
        self.node.insert(write, NodeFailure { message, at, count, is_refused: false, generation: None });
    }

    /// The write was refused for the Machine in this generation.
    pub(super) fn node_refused(&mut self, write: NodeWrite, message: String, at: Timestamp, generation: Option<i64>) {
        let before = self.node.get(&write).filter(|failure| failure.is_refused);
        let count = before.map_or(0, |failure| failure.count).saturating_add(1);
        self.node.insert(write, NodeFailure { message, at, count, is_refused: true, generation });
    }

    /// Drops refusals of an earlier generation of the Machine: its template may have been corrected.
    pub(super) fn of_generation(mut self, generation: Option<i64>) -> Self {
        self.node.retain(|_, failure| !failure.is_refused || failure.generation == generation);
        self.reverted.retain(|_, failure| failure.generation == generation);
        self
    }

    /// A patch of the Node was accepted: how often in a row.
    pub(super) fn node_accepted(&mut self, write: NodeWrite, patch: &Value, at: Timestamp) -> u32 {
        self.accepted.entry(write).or_default().again(patch, at)
    }

    /// A write that was reverted and was accepted again a moment ago, and when it counts as lasting.
    pub(super) fn lately_reverted(&self, now: Timestamp) -> Option<(NodeWrite, &NodeFailure, Timestamp)> {
        self.node.iter().filter(|(write, _)| self.reverted.contains_key(write)).find_map(|(write, failure)| {
            let until = failure.at.checked_add(LASTING).ok()?;
            (failure.at <= now && now < until).then_some((*write, failure, until))
        })
    }

    pub(super) fn node_written(&mut self, write: NodeWrite) {
        self.node.remove(&write);
    }

    /// The write was accepted several times in one reconcile, and the Node still differs.
    pub(super) fn node_reverted(&mut self, write: NodeWrite, at: Timestamp, generation: Option<i64>) {
        let message = format!("the write was accepted {ACCEPTED} times, and {CHANGED_BACK}");
        if let Some(before) = self.reverted.remove(&write) {
            self.node.insert(write, before);
        }
        self.node_refused(write, message, at, generation);
        self.reverted.extend(self.node.get(&write).map(|failure| (write, failure.clone())));
    }

    /// The write was refused, and the parts of it are written one by one.
    pub(super) fn is_refused(&self, write: NodeWrite) -> bool {
        self.node.get(&write).is_some_and(|failure| failure.is_refused)
    }

    /// The failure of a write to the Node, if it must not be retried yet.
    pub(super) fn node_failure_of(&self, write: NodeWrite, now: Timestamp) -> Option<&NodeFailure> {
        self.node.get(&write).filter(|failure| now < failure.retry_at())
    }
}

impl NodeFailure {
    /// When to retry: after 1, 2, 4, then every 5 seconds; a refused write after 5, 10, 20, … seconds, then every 10
    /// minutes.
    pub fn retry_at(&self) -> Timestamp {
        retry_after(self.at, self.count, if self.is_refused { REFUSED } else { FAILED })
    }
}

/// When to retry a write that failed so many times in a row: the pause doubles from the first to the longest.
fn retry_after(at: Timestamp, count: u32, backoff: Backoff) -> Timestamp {
    at.checked_add(backoff.after(count)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_count_up_until_a_success_or_another_code() {
        let mut memory = Memory::default();
        let fail = |memory: &mut Memory, code| {
            memory.call_failed(VmCall::Create, DriverError::new(code, "because"), Timestamp::UNIX_EPOCH);
            memory.failure_of(VmCall::Create).map(|failure| failure.count)
        };
        assert_eq!(fail(&mut memory, Code::Internal), Some(1));
        assert_eq!(fail(&mut memory, Code::Internal), Some(2));
        assert_eq!(fail(&mut memory, Code::Unavailable), Some(1));
        memory.call_succeeded(VmCall::Status);
        assert_eq!(fail(&mut memory, Code::Unavailable), Some(2), "the success of another call says nothing");
        memory.call_succeeded(VmCall::Create);
        assert_eq!(fail(&mut memory, Code::Unavailable), Some(1));
    }

    #[test]
    fn a_node_is_written_again_after_growing_time() {
        let mut memory = Memory::default();
        let waits: Vec<i64> = (0..5)
            .map(|_| {
                memory.node_failed(NodeWrite::Sync, "denied".to_owned(), Timestamp::UNIX_EPOCH);
                let failure = memory.node_failure_of(NodeWrite::Sync, Timestamp::UNIX_EPOCH);
                failure.map_or(0, |failure| failure.retry_at().as_second())
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        memory.forget_failures();
        assert_eq!(memory.node_failure_of(NodeWrite::Sync, Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn a_refused_write_is_repeated_ever_more_rarely_until_the_machine_changes() {
        let mut memory = Memory::default();
        let waits: Vec<i64> = (0..9)
            .map(|_| {
                memory.node_refused(NodeWrite::Sync, "invalid".to_owned(), Timestamp::UNIX_EPOCH, Some(1));
                let failure = memory.node_failure_of(NodeWrite::Sync, Timestamp::UNIX_EPOCH);
                failure.map_or(0, |failure| failure.retry_at().as_second())
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert!(memory.clone().of_generation(Some(1)).is_refused(NodeWrite::Sync));
        assert!(!memory.of_generation(Some(2)).is_refused(NodeWrite::Sync));
    }

    #[test]
    fn a_write_that_is_reverted_each_time_is_repeated_ever_more_rarely() {
        let mut memory = Memory::default();
        let waits: Vec<i64> = (0..4)
            .map(|_| {
                memory.node_written(NodeWrite::Sync);
                memory.node_reverted(NodeWrite::Sync, Timestamp::UNIX_EPOCH, None);
                let failure = memory.node_failure_of(NodeWrite::Sync, Timestamp::UNIX_EPOCH);
                failure.map_or(0, |failure| failure.retry_at().as_second())
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40]);
    }

    #[test]
    fn failures_are_retried_after_the_clock_was_set_back() {
        let mut memory = Memory::default();
        let [before, now] = [7_200, 3_600].map(|second| Timestamp::from_second(second).unwrap());
        memory.call_failed(VmCall::Create, DriverError::new(Code::Internal, "because"), before);
        memory.node_failed(NodeWrite::Sync, "denied".to_owned(), before);
        memory.token_failed("denied".to_owned(), before);
        let policy = super::super::MachinePolicy::default();
        let due = |memory: &Memory| {
            let call = memory.failure_of(VmCall::Create).unwrap();
            [
                super::super::retry::retry_at(VmCall::Create, call, &policy, false) <= now,
                memory.node_failure_of(NodeWrite::Sync, now).is_none(),
                memory.token_failure().unwrap().retry_at() <= now,
            ]
        };
        assert_eq!(due(&memory), [false; 3]);
        let memory = memory.at(now);
        assert_eq!(due(&memory), [true; 3]);
        assert_eq!(memory.failure_of(VmCall::Create).unwrap().count, 1, "it is not forgotten");
    }

    #[test]
    fn what_was_to_be_forgotten_during_a_call_does_not_come_back_with_its_answer() {
        let mut kept = Memory::default();
        let mut in_flight = kept.for_uid(Some("u"));
        kept.forget_failures();
        in_flight.call_failed(VmCall::Create, DriverError::new(Code::PermissionDenied, "old"), Timestamp::UNIX_EPOCH);
        kept.replace(in_flight);
        assert_eq!(
            kept.failure_of(VmCall::Create),
            None,
            "the credentials that it failed with were replaced meanwhile"
        );
        let mut next = kept.for_uid(Some("u"));
        next.call_failed(VmCall::Create, DriverError::new(Code::Internal, "new"), Timestamp::UNIX_EPOCH);
        kept.replace(next);
        assert!(kept.failure_of(VmCall::Create).is_some(), "later failures count again");
        assert_eq!(kept.for_uid(Some("another")).failure_of(VmCall::Create), None);
    }
}
