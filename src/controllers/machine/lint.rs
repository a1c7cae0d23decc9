//! Rejects a plan that would break a bound: about VMs, Nodes, pods, and replacements. It computes what is allowed from
//! the snapshot alone, without the planner's results.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Action, MachinePolicy, Snapshot,
    memory::{NodeWrite, VmCall},
    policy::{after, created_at},
    progress::DeletionProgress,
    views::{ClassView, DriverVmView, NodeAnswer, PodsView, SecretView, TargetNodeView},
};
use crate::object::{
    finalizer,
    in_place::{self, UpdateResult},
};
use mcm_api::{
    labels,
    machine::{AUTO_PRESERVED, Machine, MachinePhase, MachineStatus},
    node::Node,
    reasons::InPlaceUpdateReason,
};
use mcm_rules::{
    drain::{PodRef, policy as drain_policy},
    plan::{
        Step,
        lint::{PlanRule, PlanViolation},
    },
    safety::{meltdown::ReplacementPermit, trust::TargetTrust},
};

/// The bounds that the steps would break.
pub(super) fn lint(snapshot: &Snapshot, policy: &MachinePolicy, steps: &[Step<Action>]) -> Vec<PlanViolation> {
    let facts =
        MachineLintFacts { snapshot, policy, steps, progress: DeletionProgress::from_machine(&snapshot.machine) };
    let broken = steps.iter().filter_map(|step| facts.check(&step.action));
    facts.forgets_vm().into_iter().chain(broken).collect()
}

/// The Machine and the steps of its plan.
struct MachineLintFacts<'a> {
    snapshot: &'a Snapshot,
    policy: &'a MachinePolicy,
    steps: &'a [Step<Action>],
    /// Progress of its deletion, from the status.
    progress: DeletionProgress,
}

type LintResult = Result<(), PlanViolation>;

fn refuse(rule: PlanRule, text: impl Into<String>) -> LintResult {
    Err(PlanViolation::new(rule, text))
}

impl MachineLintFacts<'_> {
    fn check(&self, action: &Action) -> Option<PlanViolation> {
        let verdict = match action {
            Action::CreateVm => self.create_vm(),
            Action::InitializeVm => self.initialize_vm(),
            Action::DeleteVm => self.delete_vm(),
            Action::PatchMachine(patch) => self.remove_finalizer(patch).and_then(|()| self.change_vm(patch)),
            Action::WriteStatus(next) => {
                let verdict = self.give_up(next).and_then(|()| self.fail_update(next));
                let verdict = verdict.and_then(|()| self.become_unknown(next)).and_then(|()| self.advance(next));
                verdict.and_then(|()| self.end_preservation(next))
            }
            Action::EvictPod(pod) => self.take_pod(pod, false),
            Action::DeletePod(pod) => self.take_pod(pod, self.snapshot.memory.listed.contains(pod)),
            Action::DeleteNode(node) => self.delete_node(node),
            Action::DetachVolumes { node } => self.detach_volumes(node),
            Action::PatchNode { node, purpose, .. }
            | Action::StrategicPatchNode { node, purpose, .. }
            | Action::PatchNodeStatus { node, purpose, .. } => match purpose {
                NodeWrite::Sync | NodeWrite::SyncPart(_) | NodeWrite::Capacity => Ok(()),
                NodeWrite::InPlaceUpdate => self.owns(node).and_then(|()| self.release_to_agent(action)),
                NodeWrite::Announce | NodeWrite::Cordon => self.close_node(node),
                NodeWrite::Preserve | NodeWrite::TellPreserved | NodeWrite::EndPreservation => {
                    self.mark_preserved(node)
                }
                NodeWrite::TellDrained => self.mark_preserved(node).and_then(|()| self.are_pods_listed(node)),
                NodeWrite::DetachVolumes | NodeWrite::RemoveFinalizer | NodeWrite::Delete => self.delete_node(node),
            },
            Action::WaivePermit(dead) => self.waive_permit(dead),
            Action::GetVmStatus => self.get_vm_status(),
            Action::ReadSecret
            | Action::GetNode(_)
            | Action::EnsureBootstrapToken(_)
            | Action::DeleteBootstrapToken { .. }
            | Action::ListPods { .. }
            | Action::ReadVolumes(_)
            | Action::LookAtPermit(_)
            | Action::TakePermit(_) => Ok(()),
        };
        verdict.err()
    }

    fn create_vm(&self) -> LintResult {
        let Snapshot { machine, target, learned, .. } = self.snapshot;
        let phase = machine.phase();
        let may_have_none = matches!(
            phase,
            MachinePhase::New | MachinePhase::CrashLoopBackOff | MachinePhase::Pending | MachinePhase::Terminating
        );
        if self.is_deleting() {
            return refuse(PlanRule::TooManyVms, "the machine is being deleted");
        }
        if !machine.spec.provider_id.is_empty() {
            return refuse(PlanRule::TooManyVms, format!("spec.providerID is {}", machine.spec.provider_id));
        }
        if !may_have_none {
            return refuse(PlanRule::TooManyVms, format!("a machine in phase {} had a VM", phase.as_str()));
        }
        if self.steps.iter().filter(|step| step.action == Action::CreateVm).count() > 1 {
            return refuse(PlanRule::TooManyVms, "two VMs in one plan");
        }
        let continues = learned.vm == DriverVmView::NotAsked && self.snapshot.memory.is_creating();
        if learned.vm != DriverVmView::NotFound && !continues {
            return refuse(PlanRule::ActsOnUnknown, "the driver did not report NotFound in this reconcile");
        }
        if let TargetTrust::Untrusted { since, .. } = target {
            return refuse(PlanRule::ActsOnUnknown, format!("the target cluster is not trusted since {since:.0}"));
        }
        if !finalizer::has(&machine.metadata, labels::FINALIZER) {
            return refuse(PlanRule::LosesVm, "the machine has no finalizer, so it can be deleted before its VM");
        }
        self.has_class_and_secrets()
    }

    /// A VM that is found belongs to the Machine, which needs the finalizer from then on.
    fn get_vm_status(&self) -> LintResult {
        if !finalizer::has(&self.snapshot.machine.metadata, labels::FINALIZER) {
            return refuse(PlanRule::LosesVm, "the machine has no finalizer, and its VM may be found");
        }
        self.has_secrets()
    }

    fn initialize_vm(&self) -> LintResult {
        match &self.snapshot.learned.vm {
            DriverVmView::Created(_) | DriverVmView::Uninitialized(_) => self.has_class_and_secrets(),
            _ => refuse(PlanRule::ActsOnUnknown, "the driver did not report Uninitialized in this reconcile"),
        }
    }

    fn has_class_and_secrets(&self) -> LintResult {
        if !matches!(self.snapshot.class, ClassView::Present { .. }) {
            return refuse(PlanRule::ActsOnUnknown, "the class is unknown");
        }
        self.has_secrets()
    }

    fn has_secrets(&self) -> LintResult {
        match &self.snapshot.learned.secret {
            SecretView::Read(facts) if facts.missing.is_empty() => Ok(()),
            SecretView::Read(facts) => {
                let missing = facts.missing.join(", ");
                refuse(PlanRule::ActsOnUnknown, format!("the driver would be called without {missing}"))
            }
            _ => refuse(PlanRule::ActsOnUnknown, "the Secrets of the class were not read in this reconcile"),
        }
    }

    fn waive_permit(&self, dead: &Machine) -> LintResult {
        let shares_node = self.snapshot.rivals.readable.iter().any(|rival| rival.metadata.uid == dead.metadata.uid);
        if dead.phase() == MachinePhase::Unknown && shares_node {
            return Ok(());
        }
        refuse(
            PlanRule::TooManyReplaced,
            "only an unhealthy machine with the same Node name needs no replacement permit",
        )
    }

    /// The provider ID of a created VM must be stored in the next step, unless the API server refused it.
    fn forgets_vm(&self) -> Option<PlanViolation> {
        let Snapshot { machine, learned, memory, now, .. } = self.snapshot;
        let DriverVmView::Created(vm) = &learned.vm else { return None };
        let records = |step: &Step<Action>| match &step.action {
            Action::PatchMachine(patch) => patch.pointer("/spec/providerID").is_some_and(|id| *id == vm.provider_id),
            _ => false,
        };
        let alone = json!({ "spec": { "providerID": vm.provider_id } });
        let is_refused = memory.refusal_of(&alone, *now).is_some();
        let is_owed =
            machine.spec.provider_id.is_empty() && !is_refused && !self.is_deleting() && !self.steps.is_empty();
        (is_owed && !self.steps.first().is_some_and(records)).then(|| {
            PlanViolation::new(
                PlanRule::LosesVm,
                format!("{} was created, and the next step does not store its ID", vm.provider_id),
            )
        })
    }

    fn delete_vm(&self) -> LintResult {
        if self.is_deleting() {
            return match self.progress {
                DeletionProgress::DetachVolumes | DeletionProgress::DeleteVm => self.has_secrets(),
                _ if self.is_node_empty() => self.has_secrets(),
                _ => refuse(PlanRule::DeletesInUse, "the status does not show that the node is drained"),
            };
        }
        if self.is_node_of_another_vm() {
            return Ok(());
        }
        let text = "the machine is not being deleted, and no node of an earlier VM has the name of its VM";
        refuse(PlanRule::DeletesInUse, text)
    }

    /// The Node is cordoned, and the list of this reconcile shows no pod that a drain removes.
    fn is_node_empty(&self) -> bool {
        let Snapshot { learned, memory, now, .. } = self.snapshot;
        let is_cordoned = matches!(self.snapshot.own_node(), TargetNodeView::Present(node) if node.spec.unschedulable);
        let has_pods = match &learned.pods {
            PodsView::Listed(pods) => pods.iter().any(|pod| !pod.is_mirror && !pod.is_daemon),
            PodsView::NotListed | PodsView::Failed(_) => true,
        };
        is_cordoned && !has_pods && !memory.volumes.are_moving(self.policy.volumes, *now)
    }

    /// A Node of an earlier VM has the name of this VM, which therefore cannot join.
    fn is_node_of_another_vm(&self) -> bool {
        let Snapshot { machine, node, learned, .. } = self.snapshot;
        let (TargetNodeView::Present(node), Some(vm)) = (node, learned.vm.vm()) else { return false };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let is_its_name = name == vm.node_name && machine.node_name().is_none();
        let is_of_another = match node.spec.provider_id.rsplit('/').next().unwrap_or_default() {
            "" => {
                let born = node.metadata.creation_timestamp.as_ref();
                born.is_some_and(|born| born.0 < created_at(machine))
            }
            id => vm.provider_id.rsplit('/').next() != Some(id),
        };
        is_its_name && is_of_another && machine.metadata.name.as_deref() != Some(name)
    }

    /// The VM is deleted, so its identity is not needed any more.
    fn is_vm_gone(&self) -> bool {
        self.snapshot.learned.vm == DriverVmView::Deleted || self.progress >= DeletionProgress::DeleteNode
    }

    fn remove_finalizer(&self, patch: &Value) -> LintResult {
        let machine = &self.snapshot.machine;
        let Some(kept) = patch.pointer("/metadata/finalizers") else { return Ok(()) };
        let keeps = kept.as_array().into_iter().flatten().any(|one| one == labels::FINALIZER);
        if keeps || !finalizer::has(&machine.metadata, labels::FINALIZER) {
            return Ok(());
        }
        if !self.is_deleting() {
            return refuse(PlanRule::LosesVm, "it removes the finalizer, and the machine is not being deleted");
        }
        if !self.is_vm_gone() {
            return refuse(PlanRule::LosesVm, "it removes the finalizer, and the VM was not deleted");
        }
        let is_unknown = matches!(self.snapshot.own_node(), TargetNodeView::Unknown | TargetNodeView::Missing);
        let is_unknown = is_unknown && self.snapshot.unproven().is_none();
        match machine.node_name() {
            Some(node) if is_unknown && self.progress < DeletionProgress::Release => {
                refuse(PlanRule::ActsOnUnknown, format!("it removes the finalizer, and node {node} may exist"))
            }
            _ => Ok(()),
        }
    }

    fn change_vm(&self, patch: &Value) -> LintResult {
        let stored = &self.snapshot.machine.spec.provider_id;
        match patch.pointer("/spec/providerID") {
            Some(id) if !stored.is_empty() && id != stored => {
                refuse(PlanRule::LosesVm, format!("spec.providerID is {stored} and would change to {id}"))
            }
            _ => Ok(()),
        }
    }

    /// A Machine that becomes Failed: its set deletes it together with its VM.
    fn give_up(&self, next: &MachineStatus) -> LintResult {
        let Snapshot { machine, learned, memory, now, .. } = self.snapshot;
        let phase = machine.phase();
        if next.current_status.phase != MachinePhase::Failed || phase == MachinePhase::Failed {
            return Ok(());
        }
        let deletes_failed = memory.failure_of(VmCall::Delete).is_some();
        let is_deleted = match learned.vm {
            DriverVmView::Deleted => true,
            DriverVmView::NotFound => memory.has_given_up_vm() && !machine.spec.provider_id.is_empty(),
            _ => self.is_node_of_another_vm() && deletes_failed,
        };
        if is_deleted && !self.is_deleting() {
            return Ok(());
        }
        let (deadline, timeout) = match &phase {
            MachinePhase::New | MachinePhase::CrashLoopBackOff | MachinePhase::Pending | MachinePhase::Terminating => {
                let timeout = self.policy.creation_timeout_of(machine);
                (after(created_at(machine), timeout.as_signed()), format!("creationTimeout {timeout}"))
            }
            MachinePhase::Unknown | MachinePhase::InPlaceUpdateFailed => match self.policy.health_timeout_of(machine) {
                Some(timeout) => (after(self.phase_since(), timeout.as_signed()), format!("healthTimeout {timeout}")),
                None => return refuse(PlanRule::TooEarly, "disableHealthTimeout is set"),
            },
            phase => return refuse(PlanRule::TooEarly, format!("phase {} has no timeout", phase.as_str())),
        };
        let has_vm = machine.node_name().is_some() && !machine.spec.provider_id.is_empty();
        let is_guarded = matches!(phase, MachinePhase::Unknown | MachinePhase::InPlaceUpdateFailed);
        let may_serve = is_guarded || phase == MachinePhase::Pending && has_vm;
        let deadline = if may_serve { self.snapshot.target.put_off(deadline) } else { deadline };
        if *now < deadline {
            return refuse(PlanRule::TooEarly, format!("{timeout} ends at {deadline}, now is {now}"));
        }
        if may_serve && !self.is_node_read() {
            return refuse(PlanRule::ActsOnUnknown, format!("{} was not read live in this reconcile", self.node()));
        }
        if is_guarded { self.is_permitted() } else { Ok(()) }
    }

    /// An in-place update fails when the agent reports it, or at its timeout after a live read.
    fn fail_update(&self, next: &MachineStatus) -> LintResult {
        let Snapshot { machine, target, now, .. } = self.snapshot;
        let falls = next.current_status.phase == MachinePhase::InPlaceUpdateFailed
            && machine.phase() != MachinePhase::InPlaceUpdateFailed;
        let is_reported = matches!(&self.snapshot.own_node(), TargetNodeView::Present(node)
            if in_place::result_of(node) == Some(UpdateResult::Failed));
        if !falls || is_reported {
            return Ok(());
        }
        let timeout = self.policy.in_place_update_timeout_of(machine);
        let deadline = target.put_off(after(self.phase_since(), timeout.as_signed()));
        if *now < deadline {
            return refuse(
                PlanRule::TooEarly,
                format!("inPlaceUpdateTimeout {timeout} ends at {deadline}, now is {now}"),
            );
        }
        if self.is_node_read() {
            return Ok(());
        }
        refuse(PlanRule::ActsOnUnknown, format!("{} was not read live in this reconcile", self.node()))
    }

    /// The agent on the Node begins at `ReadyForUpdate`, so the pods must be terminated or terminating.
    fn release_to_agent(&self, action: &Action) -> LintResult {
        let Action::PatchNodeStatus { node, patch, .. } = action else { return Ok(()) };
        let progress = in_place::progress_of(&node.status.conditions);
        let is_updating = self.snapshot.machine.phase() == MachinePhase::InPlaceUpdating;
        let is_listed = matches!(self.snapshot.learned.pods, PodsView::Listed(_));
        let next = patch.pointer("/status/conditions/0/reason").and_then(Value::as_str).unwrap_or_default();
        let is_drained = match next {
            next if next == InPlaceUpdateReason::ReadyForUpdate.as_str() => {
                progress == Some(InPlaceUpdateReason::DrainSuccessful)
            }
            next if next == InPlaceUpdateReason::DrainSuccessful.as_str() => {
                progress == Some(InPlaceUpdateReason::SelectedForUpdate) && is_updating && is_listed
            }
            _ => true,
        };
        if is_drained {
            return Ok(());
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        refuse(PlanRule::DisturbsPods, format!("node {name} would be updated, and it was not drained"))
    }

    /// The Node is selected for an in-place update, and no other reason lets its pods go while the Machine stays.
    fn is_selected(&self) -> bool {
        match self.snapshot.own_node() {
            TargetNodeView::Present(node) => {
                let progress = in_place::progress_of(&node.status.conditions);
                progress == Some(InPlaceUpdateReason::SelectedForUpdate)
            }
            _ => false,
        }
    }

    /// Since when the Machine is in its phase.
    fn phase_since(&self) -> Timestamp {
        let machine = &self.snapshot.machine;
        let status = machine.status.clone().unwrap_or_default();
        let since = status.current_status.last_update_time.or(status.last_operation.last_update_time);
        since.map_or_else(|| created_at(machine), |time| time.0)
    }

    fn is_permitted(&self) -> LintResult {
        let limits = &self.policy.unhealthy_replacements;
        let Some(key) = limits.permits_of(&self.snapshot.machine).into_iter().next() else { return Ok(()) };
        match &self.snapshot.learned.permit {
            ReplacementPermit::Held(groups) => groups.iter().try_for_each(|group| {
                let Some(blockers) = group.blocked_by(limits) else { return Ok(()) };
                let (name, limit) = (group.group(), limits.group_limit(group.group()));
                refuse(PlanRule::TooManyReplaced, format!("out of service of {name}: {blockers}; the limit is {limit}"))
            }),
            ReplacementPermit::NotAsked | ReplacementPermit::Free | ReplacementPermit::Refused { .. } => {
                refuse(PlanRule::TooManyReplaced, format!("it does not hold the permit of {key}"))
            }
        }
    }

    fn become_unknown(&self, next: &MachineStatus) -> LintResult {
        let falls = next.current_status.phase == MachinePhase::Unknown
            && self.snapshot.machine.phase() == MachinePhase::Running;
        let is_seen = matches!(self.snapshot.node, TargetNodeView::Present(_)) || self.is_node_read();
        if falls && !is_seen {
            return refuse(PlanRule::ActsOnUnknown, format!("{} was not read live in this reconcile", self.node()));
        }
        Ok(())
    }

    /// The progress in the status: the next process continues from there.
    fn advance(&self, next: &MachineStatus) -> LintResult {
        let is_terminating = next.current_status.phase == MachinePhase::Terminating;
        let next = if is_terminating {
            DeletionProgress::of_text(&next.last_operation.description)
        } else {
            DeletionProgress::Start
        };
        if next >= DeletionProgress::DeleteNode && !self.is_vm_gone() {
            return refuse(PlanRule::LosesVm, "the status would show that the VM is deleted, and it was not");
        }
        let skips = next >= DeletionProgress::DetachVolumes && self.progress < DeletionProgress::DetachVolumes;
        if !skips || self.is_vm_gone() || self.is_forced() {
            return Ok(());
        }
        let Snapshot { memory, now, .. } = self.snapshot;
        if memory.volumes.are_moving(self.policy.volumes, *now)
            && matches!(self.snapshot.own_node(), TargetNodeView::Present(_))
        {
            return refuse(PlanRule::DeletesInUse, "the drain would end, and volumes of its pods are still awaited");
        }
        let is_linked = self.snapshot.machine.node_name().is_some();
        let is_known = match self.snapshot.own_node() {
            TargetNodeView::NoTarget | TargetNodeView::Absent => true,
            TargetNodeView::Unknown | TargetNodeView::Missing => false,
            TargetNodeView::Present(_) => {
                let are_pods_listed = matches!(self.snapshot.learned.pods, PodsView::Listed(_));
                are_pods_listed || !is_linked && self.is_node_read()
            }
        };
        if is_known {
            return Ok(());
        }
        refuse(PlanRule::ActsOnUnknown, format!("the drain would end, and {} or its pods are unknown", self.node()))
    }

    /// The drain deadline has passed, the Node has been broken for long enough, or the label forces the drain.
    fn is_forced(&self) -> bool {
        let Snapshot { machine, now, .. } = self.snapshot;
        let Some(since) = &machine.metadata.deletion_timestamp else { return false };
        let label = machine.metadata.labels.as_ref().and_then(|all| all.get(labels::FORCE_DELETION));
        let seen = match self.snapshot.own_node() {
            TargetNodeView::Present(node) if !node.status.conditions.is_empty() => node.status.conditions.clone(),
            _ => machine.status.clone().unwrap_or_default().conditions,
        };
        label.is_some_and(|text| drain_policy::is_go_true(text))
            || *now >= after(since.0, self.policy.drain_timeout_of(machine).as_signed())
            || drain_policy::broken_from(&seen).is_some_and(|from| *now >= self.snapshot.by_control(from))
    }

    /// Only a preserved Machine's own Node shows a preservation.
    fn mark_preserved(&self, node: &Node) -> LintResult {
        if self.is_deleting() || self.snapshot.machine.preserve_expiry().is_none() {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            return refuse(PlanRule::TouchesForeign, format!("the machine of node {name} is not preserved"));
        }
        self.owns(node)
    }

    fn are_pods_listed(&self, node: &Node) -> LintResult {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        match self.snapshot.learned.pods {
            PodsView::Listed(_) => Ok(()),
            PodsView::NotListed | PodsView::Failed(_) => refuse(
                PlanRule::ActsOnUnknown,
                format!("node {name} would be shown as drained, and its pods were not listed"),
            ),
        }
    }

    /// The Machine failed and is kept, and its Node gets no new pods: it may be drained.
    fn is_drained_and_kept(&self) -> bool {
        let Snapshot { machine, now, .. } = self.snapshot;
        let is_tainted = match self.snapshot.own_node() {
            TargetNodeView::Present(node) => node.spec.taints.iter().any(|taint| taint.key == labels::PRESERVED_TAINT),
            _ => false,
        };
        is_tainted && machine.phase() == MachinePhase::Failed && machine.preserved_until(*now).is_some()
    }

    /// Its time is cleared last: otherwise the remaining changes would never be undone.
    fn end_preservation(&self, next: &MachineStatus) -> LintResult {
        let Snapshot { machine, now, .. } = self.snapshot;
        let Some(expiry) = machine.preserve_expiry() else { return Ok(()) };
        let is_kept =
            next.current_status.preserve_expiry_time.is_some() || next.current_status.phase != machine.phase();
        if is_kept || self.is_deleting() {
            return Ok(());
        }
        let annotation = |key: &str| machine.metadata.annotations.as_ref()?.get(key).cloned();
        let mut word = annotation(labels::PRESERVE);
        match self.snapshot.own_node() {
            TargetNodeView::Unknown | TargetNodeView::Missing if machine.node_name().is_some() => {
                return refuse(
                    PlanRule::ActsOnUnknown,
                    format!("it ends a preservation, and {} may exist", self.node()),
                );
            }
            TargetNodeView::Present(node) if machine.node_name().is_some() => {
                let is_shown = node.spec.taints.iter().any(|taint| taint.key == labels::PRESERVED_TAINT)
                    || node.status.conditions.iter().any(|it| it.type_ == "Preserved" && it.status == "True");
                if is_shown && node.metadata.deletion_timestamp.is_none() {
                    return refuse(PlanRule::EndsPreservation, format!("{} still shows it", self.node()));
                }
                let copied = annotation(labels::LAST_NODE_PRESERVE).filter(|word| !word.is_empty());
                let of_node = node.annotations().get(labels::PRESERVE).filter(|word| !word.is_empty());
                word = of_node.map(ToString::to_string).or(if copied.is_some() { None } else { word });
            }
            _ => {}
        }
        let asks = match word.as_deref() {
            Some("now") => true,
            Some("when-failed" | AUTO_PRESERVED) => machine.phase() == MachinePhase::Failed,
            _ => false,
        };
        if asks && expiry > *now {
            return refuse(
                PlanRule::EndsPreservation,
                format!("{} asks for it until {expiry}", word.unwrap_or_default()),
            );
        }
        Ok(())
    }

    /// `was_listed`: the last list had it.
    fn take_pod(&self, pod: &PodRef, was_listed: bool) -> LintResult {
        if !self.is_deleting() && !self.is_selected() && !self.is_drained_and_kept() {
            return refuse(
                PlanRule::DisturbsPods,
                format!("pod {pod} would be removed, and the machine is not being deleted"),
            );
        }
        if !matches!(self.snapshot.own_node(), TargetNodeView::Present(_)) {
            return refuse(PlanRule::TouchesForeign, format!("pod {pod} is not on a node of this machine"));
        }
        let is_listed = match &self.snapshot.learned.pods {
            PodsView::Listed(pods) => pods.iter().any(|listed| listed.pod == *pod),
            PodsView::NotListed | PodsView::Failed(_) => false,
        };
        if is_listed || was_listed {
            Ok(())
        } else {
            refuse(PlanRule::ActsOnUnknown, format!("pod {pod} was not listed"))
        }
    }

    fn close_node(&self, node: &Node) -> LintResult {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if !self.is_deleting() && !self.is_selected() {
            return refuse(
                PlanRule::DisturbsPods,
                format!("node {name} would be cordoned, and the machine is not being deleted"),
            );
        }
        self.owns(node)
    }

    fn detach_volumes(&self, node: &str) -> LintResult {
        if !self.is_deleting() || self.progress != DeletionProgress::DetachVolumes {
            return refuse(PlanRule::DisturbsPods, format!("volumes of node {node}, and its drain was not forced"));
        }
        match self.snapshot.own_node() {
            TargetNodeView::Present(own) if own.metadata.name.as_deref() == Some(node) => Ok(()),
            _ => refuse(PlanRule::TouchesForeign, format!("node {node} does not belong to this machine")),
        }
    }

    fn delete_node(&self, node: &Node) -> LintResult {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if !self.is_deleting() {
            return refuse(PlanRule::DeletesInUse, format!("node {name}, and the machine is not being deleted"));
        }
        if !self.is_vm_gone() {
            return refuse(PlanRule::DeletesInUse, format!("node {name}, and its VM was not deleted"));
        }
        self.owns(node)
    }

    fn owns(&self, node: &Node) -> LintResult {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        match self.snapshot.own_node() {
            TargetNodeView::Present(own) if own.metadata.name == node.metadata.name => Ok(()),
            _ if self.snapshot.own_other_node().is_some_and(|own| own.metadata.name == node.metadata.name) => Ok(()),
            _ => refuse(PlanRule::TouchesForeign, format!("node {name} does not belong to this machine")),
        }
    }

    fn is_node_read(&self) -> bool {
        let key = self.snapshot.node_key();
        match self.snapshot.node {
            TargetNodeView::NoTarget | TargetNodeView::Absent => true,
            TargetNodeView::Unknown | TargetNodeView::Missing => false,
            TargetNodeView::Present(_) => {
                let read = self.snapshot.learned.node_read.as_ref();
                read.is_some_and(|read| read.key == key && read.answer == NodeAnswer::Found)
            }
        }
    }

    fn node(&self) -> String {
        match self.snapshot.machine.node_name() {
            Some(name) => format!("node {name}"),
            None => "the node of the machine".to_owned(),
        }
    }

    fn is_deleting(&self) -> bool {
        self.snapshot.machine.metadata.deletion_timestamp.is_some()
    }
}
