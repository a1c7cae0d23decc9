//! Stores the results of calls in the snapshot and the memory.

use std::sync::Arc;

use serde_json::Value;

use super::{
    action::Action,
    conditions::{self, CopyPeriod},
    memory::{ACCEPTED, NodeWrite, VmCall},
    progress::DeletionProgress,
    snapshot::Snapshot,
    status,
    views::{
        DriverVmView, NodeAnswer, NodeLookup, NodeRead, PodCall, PodsView, SecretFacts, SecretView, TargetNodeView,
        TokenView,
    },
};
use mcm_api::machine::Machine;
use mcm_driver::{Code, DriverError, Vm};
use mcm_rules::{
    drain::{AttachmentState, ClaimFacts, ClaimRef, DrainAnswer, DrainAttempt, PodFacts, PodRef, PodRemovalMethod},
    safety::node_claim::{ReportedVm, VmReport},
};

impl Snapshot {
    /// Result of [`super::Action::ReadSecret`].
    pub fn secret_read(&mut self, answer: Result<SecretFacts, String>) {
        self.learned.secret = match answer {
            Ok(facts) => {
                self.memory.wants_token = Some(facts.wants_token);
                SecretView::Read(facts)
            }
            Err(message) => SecretView::Failed(message),
        };
    }

    /// Result of [`super::Action::EnsureBootstrapToken`].
    pub fn token_ensured(&mut self, answer: Result<(), String>) {
        match answer {
            Ok(()) => {
                self.memory.token_ensured();
                self.learned.token = TokenView::Ensured;
            }
            Err(message) => self.memory.token_failed(message, self.now),
        }
    }

    /// A bootstrap token was deleted, or did not exist.
    pub fn token_deleted(&mut self) {
        self.memory.token_deleted();
        self.learned.token = TokenView::NotEnsured;
    }

    /// The Machine was written; the response is in the cache.
    pub fn machine_written(&mut self, patch: &Value) {
        self.memory.machine_written(patch, self.now);
    }

    /// Result of [`super::Action::WriteStatus`].
    pub fn status_written(&mut self, written: Arc<Machine>) {
        let [before, after] = [&self.machine, &written].map(|machine| status::stored(machine));
        let is_copy = before.last_operation == after.last_operation && before.current_status == after.current_status;
        if is_copy && conditions::differ(&before.conditions, &after.conditions) {
            self.memory.copies = Some(CopyPeriod::after_write(self.memory.copies, self.now));
        }
        self.machine = written;
    }

    /// The API server refused a write of the Machine. A retry does not help before something changes.
    pub fn machine_refused(&mut self, patch: &Value, message: impl Into<String>) {
        self.memory.machine_refused(patch, message.into(), self.now);
    }

    /// Result of [`super::Action::GetNode`]: whether the Node exists. A Node that was found is in the cache.
    pub fn node_was_read(&mut self, key: NodeLookup, answer: Result<bool, String>) {
        let answer = match answer {
            Ok(true) => NodeAnswer::Found,
            Ok(false) => NodeAnswer::Gone,
            Err(message) => NodeAnswer::Failed(message),
        };
        self.learned.node_read = Some(NodeRead { key, answer });
    }

    /// Result of `Driver::status`.
    pub fn vm_status(&mut self, answer: Result<Vm, DriverError>) {
        let view = match answer {
            Ok(vm) => self.identified(vm, VmCall::Status).map(DriverVmView::Found),
            Err(error) => match error.code {
                Code::NotFound | Code::Unimplemented => {
                    let is_unsupported = error.code == Code::Unimplemented;
                    self.memory.report = if is_unsupported { VmReport::Unsupported } else { VmReport::Missing };
                    self.learned.no_vm = Some(error);
                    Some(DriverVmView::NotFound)
                }
                Code::Uninitialized => {
                    let vm = error.vm.map(|vm| *vm).unwrap_or_default();
                    self.identified(vm, VmCall::Status).map(DriverVmView::Uninitialized)
                }
                _ => {
                    self.memory.call_failed(VmCall::Status, error, self.now);
                    None
                }
            },
        };
        if let Some(view) = view {
            self.memory.looked_at = Some(self.now);
            self.memory.call_succeeded(VmCall::Status);
            self.learned.vm = view;
        }
    }

    /// Result of `Driver::create`.
    pub fn vm_created(&mut self, answer: Result<Vm, DriverError>) {
        match answer {
            Ok(vm) => {
                if let Some(vm) = self.identified(vm, VmCall::Create) {
                    self.memory.looked_at = Some(self.now);
                    self.memory.call_succeeded(VmCall::Create);
                    self.learned.vm = DriverVmView::Created(vm);
                }
            }
            Err(error) => {
                // The VM may exist all the same: it is looked up before the next attempt.
                self.learned.vm = DriverVmView::NotAsked;
                self.memory.call_failed(VmCall::Create, error, self.now);
            }
        }
    }

    /// Result of `Driver::initialize`. The VM keeps the identity it was created with.
    pub fn vm_initialized(&mut self, answer: Result<Vm, DriverError>) {
        let known = self.learned.vm.vm().cloned().unwrap_or_default();
        let vm = match answer {
            Ok(mut vm) => {
                vm.addresses.extend(known.addresses);
                let last_known_state = vm.last_known_state.or(known.last_known_state);
                Vm { provider_id: known.provider_id, node_name: known.node_name, last_known_state, ..vm }
            }
            Err(error) if error.code == Code::Unimplemented => known,
            Err(error) => return self.memory.call_failed(VmCall::Initialize, error, self.now),
        };
        self.memory.call_succeeded(VmCall::Initialize);
        self.learned.vm = DriverVmView::Initialized(vm);
    }

    /// The action gets no slot, and the reconcile ends. True if the plan has something to store before that: the next reconcile
    /// would drain the Node again.
    pub fn slot_refused(&mut self, action: &Action) -> bool {
        let is_drained = DeletionProgress::from_machine(&self.machine) >= DeletionProgress::DetachVolumes;
        let is_news = *action == Action::DeleteVm && self.is_deleting() && !is_drained && !self.learned.awaits_slot;
        self.learned.awaits_slot |= is_news;
        is_news
    }

    /// Result of `Driver::delete`.
    pub fn vm_deleted(&mut self, answer: Result<Option<String>, DriverError>) {
        if !self.is_deleting() {
            self.memory.gave_up_vm();
        }
        match answer {
            Err(error) if error.code != Code::NotFound => self.memory.call_failed(VmCall::Delete, error, self.now),
            Ok(_) | Err(_) => {
                self.memory.call_succeeded(VmCall::Delete);
                self.learned.vm = DriverVmView::Deleted;
                // The VM may have joined as a Node in the meantime.
                self.learned.node_read = None;
            }
        }
    }

    /// A patch of the Node succeeded; the response is in the cache.
    pub fn node_patched(&mut self, purpose: NodeWrite, patch: &Value) {
        self.node_written(purpose);
        if purpose.is_idempotent() && self.memory.node_accepted(purpose, patch, self.now) >= ACCEPTED {
            self.memory.node_reverted(purpose, self.now, self.machine.metadata.generation);
        }
    }

    /// A write to the Node succeeded; the response is in the cache.
    pub fn node_written(&mut self, purpose: NodeWrite) {
        self.memory.node_written(purpose);
        match purpose {
            // A drain begins, or one has ended and the Node may get new pods before the next one.
            NodeWrite::Cordon | NodeWrite::InPlaceUpdate | NodeWrite::Preserve => self.memory.rounds.restart(),
            NodeWrite::TellDrained => self.memory.drain_ended(),
            _ => {}
        }
    }

    /// The API server reported that the Node does not exist.
    pub fn node_gone(&mut self) {
        self.memory.node_written(NodeWrite::Delete);
        self.node_was_read(self.node_key(), Ok(false));
        self.node = TargetNodeView::Absent;
    }

    /// The API server refused a write to the Node; a retry does not help without a change.
    pub fn node_refused(&mut self, purpose: NodeWrite, message: impl Into<String>) {
        self.memory.node_refused(purpose, message.into(), self.now, self.machine.metadata.generation);
    }

    /// A write to the Node failed for another reason than a refusal, a conflict or a missing Node.
    pub fn node_failed(&mut self, purpose: NodeWrite, message: impl Into<String>) {
        self.memory.node_failed(purpose, message.into(), self.now);
    }

    /// Result of [`super::Action::ListPods`], together with the VolumeAttachments.
    pub fn pods_listed(&mut self, answer: Result<Vec<PodFacts>, String>, mut attachments: AttachmentState) {
        self.learned.unread_volumes = None;
        self.learned.pods = match answer {
            Ok(pods) => {
                self.memory.pods.retain(|uid, _| pods.iter().any(|pod| pod.pod.uid == *uid));
                self.memory.listed = pods.iter().filter(|pod| pod.is_drained()).map(|pod| pod.pod.clone()).collect();
                self.memory.rounds.listed(&pods);
                match &self.own_node() {
                    TargetNodeView::Present(node) => {
                        attachments.on_node = node.status.volumes_attached.iter().map(|it| it.name.clone()).collect();
                        self.memory.volumes.seen(&pods, &attachments, self.now);
                    }
                    // Pods of a Node that no longer exists are not evicted, so no pod keeps a volume in use.
                    TargetNodeView::Absent => {
                        self.memory.volumes.node_gone();
                        self.memory.volumes.seen(&[], &attachments, self.now);
                    }
                    TargetNodeView::Missing | TargetNodeView::Unknown | TargetNodeView::NoTarget => {}
                }
                PodsView::Listed(pods)
            }
            Err(message) => PodsView::Failed(message),
        };
    }

    /// Result of [`super::Action::ReadVolumes`]: the volume of each claim, or the error.
    pub fn volumes_read(&mut self, answers: Vec<(ClaimRef, Result<ClaimFacts, String>)>) {
        for (claim, answer) in answers {
            match answer {
                Ok(facts) => self.memory.volumes.read(claim, facts),
                Err(message) => self.learned.unread_volumes = Some(message),
            }
        }
    }

    /// Result of [`super::Action::DetachVolumes`]: how many VolumeAttachments of the Node were deleted. A failure is
    /// reported by [`Snapshot::node_failed`].
    pub fn volumes_detached(&mut self, count: usize) {
        self.memory.node_written(NodeWrite::DetachVolumes);
        self.learned.detached = Some(count);
    }

    /// Result of an eviction or a delete of a pod.
    pub fn pod_called(&mut self, method: PodRemovalMethod, pod: &PodRef, answer: PodCall) {
        let answer = match answer {
            PodCall::Answered(answer) => answer,
            PodCall::Doubtful(message) => {
                self.learned.pods = PodsView::NotListed;
                DrainAnswer::Failed(message)
            }
        };
        if answer == DrainAnswer::Accepted
            && let PodsView::Listed(pods) = &self.learned.pods
            && let Some(facts) = pods.iter().find(|facts| facts.pod == *pod)
            && facts.is_drained()
            && !facts.is_finished
        {
            self.memory.volumes.told_to_go(facts, self.now);
        }
        let before = self.memory.pods.get(&pod.uid);
        let count = before.filter(|attempt| attempt.method == method).map_or(0, |attempt| attempt.count);
        let evicting_since = before.and_then(|attempt| attempt.evicting_since);
        let attempt = DrainAttempt {
            method,
            at: self.now,
            count: count.saturating_add(1),
            answer,
            evicting_since: evicting_since.or_else(|| (method == PodRemovalMethod::Evict).then_some(self.now)),
        };
        self.memory.pods.insert(pod.uid.clone(), attempt);
    }

    /// Fills in values from the Machine that the driver left out. A VM without a provider ID is a bug of the driver.
    fn identified(&mut self, mut vm: Vm, call: VmCall) -> Option<Vm> {
        let reported = ReportedVm::from_vm(&vm);
        if vm.provider_id.is_empty() {
            vm.provider_id = self.machine.spec.provider_id.clone();
        }
        if vm.node_name.is_empty() {
            vm.node_name = self.machine.node_name().unwrap_or_default().to_owned();
        }
        if vm.provider_id.is_empty() {
            let error = DriverError::new(Code::Internal, "the driver returned a VM without a provider ID");
            self.memory.call_failed(call, error, self.now);
            return None;
        }
        self.memory.node_named(&vm.node_name);
        self.memory.report = VmReport::Found(reported);
        Some(vm)
    }
}
