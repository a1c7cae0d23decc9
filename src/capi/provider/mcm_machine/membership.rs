//! The membership of a control plane VM in the load balancer that the MCMCluster names.
//!
//! `status.loadBalancers` lists every load balancer in which the VM is or may be registered. An entry is written before the
//! VM is registered, and removed after it was deregistered. So neither a crash nor a failed call hides a member.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::{Action, McmMachineSession, Memory, Snapshot, UnfinishedCall, native};
use crate::{
    object::{conditions::ConditionVerdict, gate::GatedSnapshot, view::ObjectView},
    provider::class::ClassResolution,
};
use mcm_api::{
    backoff::Backoff,
    load_balancer::LoadBalancer,
    machine::{Machine, MachineStatus},
    reasons::{FulfilledReason, ProviderCondition, ProviderReason as Reason},
};
use mcm_conversion::types::{ControlPlaneRegistration, INFRASTRUCTURE_GROUP, names};
use mcm_driver::{Code, DriverError};
use mcm_rules::plan::{Plan, WaitKind};

/// Pauses between attempts of a call that fails.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(300));

/// The membership of the VM, and the next call that changes it.
#[derive(Default)]
pub(super) struct LoadBalancerMembership {
    /// The load balancers in which the VM is or may be registered.
    pub recorded: Vec<LoadBalancer>,
    /// The condition; `None` if the VM never belonged to a load balancer.
    pub verdict: Option<ConditionVerdict>,
    /// The VM has to be registered before the object is provisioned.
    pub is_needed: bool,
    /// The next call.
    call: Option<Action>,
    /// Completes "waiting for", until the last call has succeeded.
    wait: Option<String>,
    /// When a failed call is repeated.
    until: Option<Timestamp>,
}

/// The load balancer to which the VM belongs.
enum WantedLoadBalancer<'a> {
    Nowhere,
    In(&'a LoadBalancer),
    /// The reason why it is not known.
    Unknown(String),
}

impl Memory {
    /// Remembers the result of a call.
    pub(super) fn answered(&mut self, action: &Action, answer: &Result<(), DriverError>, now: Timestamp) {
        let count = self.failed_before(action).map_or(0, |failed| failed.count);
        self.failed = match answer {
            Err(error) if !is_gone(action, error) => {
                let is_working = error.call_again_in.is_some();
                let count = if is_working { 0 } else { count.saturating_add(1) };
                let work = error.call_again_in.and_then(|pause| SignedDuration::try_from(pause).ok());
                let pause = work.unwrap_or_else(|| RETRIES.after(count));
                let until = now.checked_add(pause).unwrap_or(Timestamp::MAX);
                let (code, message) = (error.code, error.message.clone());
                Some(UnfinishedCall { action: action.clone(), code, message, is_working, count, until })
            }
            _ => None,
        };
    }

    #[cfg(test)]
    pub(super) fn is_working(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.is_working)
    }

    fn failed_before(&self, action: &Action) -> Option<&UnfinishedCall> {
        self.failed.as_ref().filter(|failed| failed.action == *action)
    }
}

impl McmMachineSession {
    /// Stores the result of a call for the next plan.
    pub(super) fn answered(&mut self, action: &Action, answer: &Result<(), DriverError>) {
        match (action, answer) {
            (Action::Register(balancer), Ok(())) => self.registered = Some(balancer.clone()),
            (Action::Deregister(balancer), Ok(())) => self.deregistered.push((balancer.clone(), String::new())),
            (Action::Deregister(balancer), Err(error)) if is_gone(action, error) => {
                self.deregistered.push((balancer.clone(), error.message.clone()));
            }
            _ => {}
        }
    }
}

/// The load balancer does not exist, according to a clear answer of the cloud, so nothing is registered in it.
fn is_gone(action: &Action, error: &DriverError) -> bool {
    matches!(action, Action::Deregister(_)) && error.code == Code::NotFound
}

impl LoadBalancerMembership {
    /// The membership of the VM. `has_vm`: it exists and its ID is stored.
    pub(super) fn from_snapshot(snapshot: &Snapshot, has_vm: bool) -> Self {
        let is_deleting = snapshot.object.metadata.deletion_timestamp.is_some();
        let wanted = snapshot.wanted();
        match wanted {
            WantedLoadBalancer::Unknown(text) => Self::unknown(snapshot, text),
            _ if is_deleting || snapshot.is_released() => Self::left(snapshot, &wanted),
            WantedLoadBalancer::Nowhere => Self::without(snapshot, snapshot.recorded()),
            WantedLoadBalancer::In(balancer) => Self::within(snapshot, balancer, has_vm),
        }
    }

    /// Adds the next call, or the wait for its repetition, to a plan. False if there is neither.
    pub(super) fn proceed(self, plan: &mut Plan<Action>) -> bool {
        match (self.call, self.wait) {
            (Some(call), _) => {
                let reason = match call {
                    Action::Deregister(_) => "a VM leaves the load balancer before it is deleted",
                    _ => "a control plane machine is provisioned once its VM is registered",
                };
                plan.then(call, reason);
            }
            (None, Some(wait)) => {
                plan.wait(WaitKind::DriverRetry, wait, self.until);
            }
            (None, None) => return false,
        }
        true
    }

    /// The list or the condition has to be written.
    pub(super) fn has_changed(&self, snapshot: &Snapshot) -> bool {
        self.recorded != snapshot.stored().load_balancers || self.wait.is_some()
    }

    /// Nothing changes until it is known to which load balancer the VM belongs.
    fn unknown(snapshot: &Snapshot, text: String) -> Self {
        let (recorded, is_needed) = (snapshot.stored().load_balancers, true);
        if snapshot.is_registered() {
            let (verdict, wait) = (Some(ConditionVerdict::yes(FulfilledReason::Registered)), Some(text));
            return Self { recorded, verdict, is_needed, wait, ..Self::default() };
        }
        let verdict = Some(ConditionVerdict::unknown(Reason::Unreadable, text.clone()));
        Self { recorded, verdict, is_needed, wait: Some(text), ..Self::default() }
    }

    /// The VM is about to be deleted. After a move of the cluster the status, and so the list, may be empty: then the VM
    /// may be registered where it belongs.
    fn left(snapshot: &Snapshot, wanted: &WantedLoadBalancer<'_>) -> Self {
        let mut recorded = snapshot.recorded();
        if let WantedLoadBalancer::In(balancer) = wanted
            && !recorded.contains(balancer)
            && snapshot.vm_id_exists()
            && snapshot.is_served(balancer)
            && !snapshot.was_deregistered(balancer)
        {
            recorded.push((*balancer).clone());
        }
        Self::without(snapshot, recorded)
    }

    /// The VM belongs to no load balancer, and may still be registered in some.
    fn without(snapshot: &Snapshot, recorded: Vec<LoadBalancer>) -> Self {
        let Some(first) = recorded.first().cloned() else {
            let gone = snapshot.session.deregistered.iter().map(|(_, gone)| gone.as_str());
            let gone = gone.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
            let stored = snapshot.condition().map(|condition| (condition.reason.as_str(), condition.message.as_str()));
            let verdict = match stored {
                Some((reason, message))
                    if reason == Reason::Deregistered.as_str() && snapshot.session.deregistered.is_empty() =>
                {
                    Some(message)
                }
                Some(_) => Some(gone.as_str()),
                None if !snapshot.session.deregistered.is_empty() => Some(gone.as_str()),
                None => None,
            };
            let verdict = verdict.map(|text| ConditionVerdict::no(Reason::Deregistered, text));
            return Self { verdict, ..Self::default() };
        };
        let verdict = ConditionVerdict::no(Reason::Deregistering, format!("the VM has to leave {first}"));
        let wait = format!("its VM to leave {first}");
        Self { recorded, ..Self::attempt(snapshot, Action::Deregister(first), verdict, wait) }
    }

    /// The VM belongs to a load balancer, and may still be registered in others.
    fn within(snapshot: &Snapshot, balancer: &LoadBalancer, has_vm: bool) -> Self {
        let mut recorded = snapshot.recorded();
        let is_needed = true;
        let pending = |text: String| Some(ConditionVerdict::no(Reason::Registering, text));
        let is_registered =
            snapshot.session.registered.as_ref() == Some(balancer) || snapshot.is_registered_in(balancer);
        if !has_vm && !is_registered {
            let verdict = pending(format!("the VM is registered in {balancer} once it runs"));
            return Self { recorded, verdict, is_needed, ..Self::default() };
        }
        if !snapshot.is_served(balancer) {
            let verdict = Some(ConditionVerdict::no(Reason::LoadBalancerUnsupported, snapshot.unserved(balancer)));
            return Self { recorded, verdict, is_needed, ..Self::default() };
        }
        let is_new = !recorded.contains(balancer);
        if let Some(text) = snapshot.on_node().filter(|_| is_new && !is_registered) {
            let text = format!("the VM is registered in {balancer} after {text}");
            let verdict = Some(ConditionVerdict::no(Reason::WaitingForNode, text));
            return Self { recorded, verdict, ..Self::default() };
        }
        if is_new {
            recorded.push(balancer.clone());
            let verdict = pending(format!("the VM is being registered in {balancer}"));
            return Self { recorded, verdict, is_needed, ..Self::default() };
        }
        let attempt = match recorded.iter().find(|other| *other != balancer).cloned() {
            _ if !is_registered => {
                let verdict =
                    ConditionVerdict::no(Reason::Registering, format!("the VM is being registered in {balancer}"));
                let wait = format!("its VM to be registered in {balancer}");
                Self::attempt(snapshot, Action::Register(balancer.clone()), verdict, wait)
            }
            Some(other) => {
                let wait = format!("its VM to leave {other}");
                let left = Self::attempt(
                    snapshot,
                    Action::Deregister(other),
                    ConditionVerdict::yes(FulfilledReason::Registered),
                    wait,
                );
                let failure = left.verdict.as_ref().map(|verdict| verdict.message.clone()).unwrap_or_default();
                Self { verdict: Some(ConditionVerdict::whether(true, FulfilledReason::Registered, failure)), ..left }
            }
            None => Self { verdict: Some(ConditionVerdict::yes(FulfilledReason::Registered)), ..Self::default() },
        };
        Self { recorded, is_needed, ..attempt }
    }

    /// A call, unless it failed a short time ago, or the cloud still works on it. The condition shows which of them.
    fn attempt(snapshot: &Snapshot, action: Action, verdict: ConditionVerdict, wait: String) -> Self {
        let Some(failed) = snapshot.memory.failed_before(&action) else {
            return Self { verdict: Some(verdict), call: Some(action), wait: Some(wait), ..Self::default() };
        };
        let reason = if failed.is_working { verdict.reason.as_str() } else { failed.code.as_str() };
        let verdict = Some(ConditionVerdict::no(reason, failed.message.clone()));
        let until = Some(failed.until).filter(|until| *until > snapshot.now);
        Self { verdict, call: until.is_none().then_some(action), wait: Some(wait), until, ..Self::default() }
    }
}

impl Snapshot {
    /// The load balancer to which the VM belongs. The machines of a pool are never those of a control plane.
    fn wanted(&self) -> WantedLoadBalancer<'_> {
        if self.is_member() || !self.is_control_plane() {
            return WantedLoadBalancer::Nowhere;
        }
        match &self.infrastructure {
            ObjectView::Unknown => WantedLoadBalancer::Unknown("the MCMCluster to become readable".to_owned()),
            ObjectView::Present(cluster) => match &cluster.spec.control_plane_load_balancer {
                Some(balancer) if balancer.is_named() => WantedLoadBalancer::In(balancer),
                _ => WantedLoadBalancer::Nowhere,
            },
            ObjectView::Missing => {
                let named = self.cluster.known().map(|cluster| &cluster.spec.infrastructure_ref);
                let ours = named.filter(|one| one.kind == "MCMCluster" && one.api_group == INFRASTRUCTURE_GROUP);
                let is_deleting = self.object.metadata.deletion_timestamp.is_some();
                match ours.filter(|_| !is_deleting) {
                    Some(reference) => WantedLoadBalancer::Unknown(format!("MCMCluster {} to exist", reference.name)),
                    None => WantedLoadBalancer::Nowhere,
                }
            }
        }
    }

    /// Completes "the VM is registered after", until a machine that joins through the load balancer may be its member.
    /// The first machine of a cluster reaches its API server only as a member.
    fn on_node(&self) -> Option<&'static str> {
        let is_late = self.infrastructure.known().is_some_and(|cluster| {
            cluster.spec.control_plane_registration == Some(ControlPlaneRegistration::AfterNode)
        });
        let is_joining = self.cluster.known().is_some_and(|cluster| cluster.is_control_plane_initialized());
        if !is_late || !is_joining {
            return None;
        }
        let status = self.owner.known().and_then(|machine| machine.status.as_ref());
        let Some(status) = status.filter(|status| status.node_ref.is_some()) else {
            return Some("Cluster API core has found its Node");
        };
        // Only the control plane provider of kubeadm writes it.
        let api_server = status.conditions.iter().find(|condition| condition.type_ == names::API_SERVER_POD_HEALTHY);
        api_server.filter(|condition| condition.status != "True").map(|_| "its API server is healthy")
    }

    fn is_control_plane(&self) -> bool {
        let owner = self.owner.known().is_some_and(|machine| machine.labels().contains_key(names::CONTROL_PLANE));
        owner || self.object.labels().contains_key(names::CONTROL_PLANE)
    }

    /// The deletion of the native Machine is let through, so its VM is about to be deleted.
    fn is_released(&self) -> bool {
        self.own_native().is_some_and(|machine| native::is_released(machine))
    }

    /// The list of the status, without the load balancers that the VM left in this reconcile.
    fn recorded(&self) -> Vec<LoadBalancer> {
        let mut all = self.stored().load_balancers;
        all.retain(|one| !self.session.deregistered.iter().any(|(left, _)| left == one));
        all
    }

    fn condition(&self) -> Option<&Condition> {
        let conditions = self.object.status.as_ref().map(|status| &status.conditions);
        conditions?.iter().find(|condition| condition.type_ == ProviderCondition::LoadBalancerRegistered.as_str())
    }

    fn is_registered(&self) -> bool {
        self.condition().is_some_and(|condition| condition.status == "True")
    }

    /// The condition is about the load balancer: with another entry of the list it is written as False.
    fn is_registered_in(&self, balancer: &LoadBalancer) -> bool {
        self.is_registered() && self.stored().load_balancers.contains(balancer)
    }

    fn was_deregistered(&self, balancer: &LoadBalancer) -> bool {
        self.session.deregistered.iter().any(|(left, _)| left == balancer)
            || self.condition().is_some_and(|condition| condition.reason == Reason::Deregistered.as_str())
    }

    /// The driver of the VM serves load balancers of this kind. A missing class is a failure of the call.
    fn is_served(&self, balancer: &LoadBalancer) -> bool {
        !matches!(self.vm_class, ObjectView::Present(_)) || self.served == Some(balancer.kind())
    }

    fn unserved(&self, balancer: &LoadBalancer) -> String {
        let class = self.vm_class.known().map(|class| class.name_any()).unwrap_or_default();
        let advice = match self.served {
            Some(kind) => format!("write {kind} in spec.controlPlaneLoadBalancer of the MCMCluster"),
            None => "remove spec.controlPlaneLoadBalancer of the MCMCluster".to_owned(),
        };
        format!("the driver of MachineClass {class} cannot register a VM in {balancer}: {advice}")
    }

    fn vm_id_exists(&self) -> bool {
        let of_native = self.own_native().is_some_and(|machine| !machine.spec.provider_id.is_empty());
        of_native || !self.object.spec.provider_id.is_empty()
    }

    /// The Machine for calls about the VM. If the native Machine was removed by force, it is made from the object.
    pub(super) fn machine_of_vm(&self) -> Option<Arc<Machine>> {
        let own = self.own_native().filter(|machine| !machine.spec.provider_id.is_empty());
        own.cloned().or_else(|| {
            let ClassResolution::Usable { name, content, .. } = self.described() else { return None };
            let machine = native::machine(self, &name, &content);
            let addresses = self.stored().addresses;
            let status = Some(MachineStatus { addresses, ..MachineStatus::default() });
            (!machine.spec.provider_id.is_empty()).then(|| Arc::new(Machine { status, ..machine }))
        })
    }
}
