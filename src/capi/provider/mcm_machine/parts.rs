//! Computes one verdict for each condition of the machine.

use kube::ResourceExt;
use serde_json::Value;

use super::{Action, Snapshot, membership::LoadBalancerMembership, native};
use crate::{
    object::{
        conditions::ConditionVerdict,
        gate::GatedSnapshot,
        view::{ObjectView, OwnerView},
    },
    provider::{
        class::{ClassResolution, VmDescription},
        observe::pool_of,
    },
};
use mcm_api::{
    labels,
    machine::{ClassContent, Machine, MachinePhase, OperationState},
    reasons::{FulfilledReason, MachineConditionType, ProviderReason as Reason},
};
pub use mcm_conversion::{
    ProviderKinds, network_provider, provider_id,
    types::{ClassRef, INFRASTRUCTURE_GROUP},
    with_network, zone_of,
};

/// A verdict for each condition.
pub(super) struct MachineConditionVerdicts {
    /// The infrastructure of the Cluster.
    pub cluster: ConditionVerdict,
    /// The class.
    pub class: ConditionVerdict,
    /// The bootstrap data of the VM.
    pub bootstrap: ConditionVerdict,
    /// The native Machine.
    pub native: ConditionVerdict,
    /// The VM.
    pub vm: ConditionVerdict,
    /// The VM existed, and ended or stopped.
    pub is_vm_away: bool,
    /// The membership of the VM in the load balancer of its control plane.
    pub membership: LoadBalancerMembership,
}

impl MachineConditionVerdicts {
    pub(super) fn from_snapshot(snapshot: &Snapshot, class: &ClassResolution) -> Self {
        let vm = vm(snapshot, class);
        Self {
            membership: LoadBalancerMembership::from_snapshot(snapshot, vm.is_true()),
            cluster: cluster(snapshot),
            class: match class {
                ClassResolution::Usable { name, content, .. } => in_its_zone(snapshot, name, content),
                ClassResolution::Problem(problem) => problem.clone(),
            },
            bootstrap: bootstrap(snapshot),
            native: native_machine(snapshot),
            is_vm_away: snapshot.own_native().is_some_and(|machine| unavailable(machine).is_some()),
            vm,
        }
    }

    /// Everything that a native Machine needs exists.
    pub(super) fn may_create(&self) -> bool {
        [&self.cluster, &self.class, &self.bootstrap].into_iter().all(|part| part.is_true())
    }

    /// The first verdict that is not true, in the order in which they become true.
    pub(super) fn summary(&self) -> ConditionVerdict {
        let before_vm = [&self.cluster, &self.class, &self.bootstrap, &self.native];
        // A VM that exists or existed needs none of the others.
        let needs_them = !self.vm.is_true() && !self.is_vm_away;
        let first = before_vm.into_iter().filter(|_| needs_them).chain([&self.vm]);
        let first = first.chain(self.needed_membership()).find(|part| !part.is_true());
        first.unwrap_or(&self.vm).clone()
    }

    /// Everything that Cluster API core waits for exists.
    pub(super) fn is_provisioned(&self) -> bool {
        self.vm.is_true() && self.needed_membership().is_none_or(ConditionVerdict::is_true)
    }

    fn needed_membership(&self) -> Option<&ConditionVerdict> {
        self.membership.verdict.as_ref().filter(|_| self.membership.is_needed)
    }
}

impl Snapshot {
    /// It shows a native Machine of an MCMMachinePool, which creates and replaces it.
    pub(super) fn is_member(&self) -> bool {
        pool_of(&self.object.metadata).is_some()
    }

    /// The required zone of the Machine; empty for any.
    pub(super) fn zone(&self) -> &str {
        self.owner.known().map_or("", |machine| machine.spec.failure_domain.as_str())
    }

    /// The class of the VM, which exists or is created.
    pub(super) fn described(&self) -> ClassResolution {
        let class = self.named_or_inline();
        self.refusal(&class).map_or(class, ClassResolution::Problem)
    }

    fn named_or_inline(&self) -> ClassResolution {
        let object = &self.object;
        let content = object.spec.machine_class.as_ref();
        let description = VmDescription {
            named: &object.spec.machine_class_ref,
            inline: content.map(|content| (object.name_any(), content, &object.spec.zones)),
            zone: self.zone(),
            infrastructure: &self.infrastructure,
            class: &self.class,
        };
        match (description.resolve(), &self.session.network) {
            (ClassResolution::Usable { name, content, is_inline: true }, Some(cluster)) => {
                self.in_network(name, &content, cluster)
            }
            (class, _) => class,
        }
    }

    /// The class in the network that its Cluster has from another provider.
    fn in_network(&self, name: String, content: &ClassContent, cluster: &Value) -> ClassResolution {
        let Some((kinds, reference)) = self.network_of(content) else {
            return ClassResolution::Usable { name, content: Box::new(content.clone()), is_inline: true };
        };
        let zone = zone_of(Some(content)).unwrap_or_else(|| self.zone().to_owned());
        match with_network(content, &zone, cluster) {
            Ok(content) => ClassResolution::Usable { name, content: Box::new(content), is_inline: true },
            Err(lack) => {
                let kind = kinds.cluster.kind;
                let text = format!("machineClass names no subnet or security groups, and {kind} {reference}: {lack}");
                ClassResolution::Problem(ConditionVerdict::no(Reason::WaitingForClusterNetwork, text))
            }
        }
    }

    /// The infrastructure of the Cluster, of another provider, that has the network of a class which names none.
    fn network_of(&self, content: &ClassContent) -> Option<(&'static ProviderKinds, &str)> {
        let reference = &self.cluster.known()?.spec.infrastructure_ref;
        let kinds = network_provider(&reference.kind, content)?;
        (reference.api_group == INFRASTRUCTURE_GROUP).then_some((kinds, reference.name.as_str()))
    }

    /// The live read that the class of the object needs before it is created.
    pub(super) fn missing_network(&self, class: &ClassResolution) -> Option<Action> {
        let ClassResolution::Usable { content, is_inline: true, .. } = class else { return None };
        if self.session.network.is_some() || self.is_member() || !matches!(self.own_class, ObjectView::Missing) {
            return None;
        }
        let (kinds, name) = self.network_of(content)?;
        Some(Action::ReadNetwork { kinds, name: name.to_owned() })
    }

    /// Name of the Cluster.
    pub(super) fn cluster_name(&self) -> Option<&str> {
        let labels = self.object.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get(mcm_conversion::types::names::CLUSTER_NAME));
        let of_owner = || self.owner.known().map(|machine| machine.spec.cluster_name.as_str());
        label.map(String::as_str).or_else(of_owner)
    }

    /// Name of the Secret with bootstrap data, if the Machine names one.
    pub(super) fn bootstrap_secret(&self) -> Option<&str> {
        let name = self.owner.known()?.spec.bootstrap.data_secret_name.as_deref()?;
        (!name.is_empty()).then_some(name)
    }

    /// The native Machine, if it belongs to the object.
    pub(super) fn own_native(&self) -> Option<&std::sync::Arc<Machine>> {
        self.native.known().filter(|machine| native::belongs(self, machine))
    }

    /// The ID of the VM in the form of its Node, from the native Machine.
    pub(super) fn node_form(&self, class: &ClassResolution) -> Option<String> {
        let machine = self.own_native()?;
        let zone = vm_zone(machine, class);
        provider_id::of_node(machine, zone.as_deref()).filter(|id| !id.is_empty())
    }
}

/// The zone of the VM: as reported by the cloud, or else the zone of its class.
pub(super) fn vm_zone(machine: &Machine, class: &ClassResolution) -> Option<String> {
    let of_class = || match class {
        ClassResolution::Usable { content, .. } => zone_of(Some(content)),
        ClassResolution::Problem(_) => None,
    };
    machine.vm_zone().map(str::to_owned).or_else(of_class)
}

/// The zone in the class is that of the VM. On AWS the subnet decides.
fn in_its_zone(snapshot: &Snapshot, name: &str, content: &ClassContent) -> ConditionVerdict {
    let said = zone_of(Some(content));
    match (snapshot.own_native().and_then(|machine| machine.vm_zone()), said.as_deref()) {
        (Some(zone), Some(said)) if zone != said => {
            let text =
                format!("the VM is in zone {zone}, but class {name} has zone {said}: correct its nodeTemplate.zone");
            ConditionVerdict::no(Reason::FailureDomainUnavailable, text)
        }
        _ => ConditionVerdict::yes(FulfilledReason::Resolved),
    }
}

fn cluster(snapshot: &Snapshot) -> ConditionVerdict {
    if snapshot.cluster.known().is_some_and(|cluster| cluster.is_provisioned()) {
        return ConditionVerdict::yes(FulfilledReason::Provisioned);
    }
    let name = snapshot.cluster_name().unwrap_or_default();
    ConditionVerdict::no(
        Reason::WaitingForClusterInfrastructure,
        format!("the infrastructure of Cluster {name} is not provisioned"),
    )
}

/// An object with the ID of a VM needs no bootstrap data, nor does a Machine of a pool, which names an empty Secret.
fn bootstrap(snapshot: &Snapshot) -> ConditionVerdict {
    if snapshot.own_native().is_some() || !snapshot.object.spec.provider_id.is_empty() {
        return ConditionVerdict::yes(FulfilledReason::Available);
    }
    let named = match &snapshot.owner {
        OwnerView::Named(ObjectView::Present(machine)) => machine.spec.bootstrap.data_secret_name.as_deref(),
        OwnerView::None | OwnerView::Named(_) => None,
    };
    let waiting = |text: String| ConditionVerdict::no(Reason::WaitingForBootstrapData, text);
    match (named, &snapshot.bootstrap) {
        (Some(""), _) | (Some(_), ObjectView::Present(_)) => ConditionVerdict::yes(FulfilledReason::Available),
        (Some(name), ObjectView::Missing) => waiting(format!("Secret {name} does not exist")),
        (Some(name), ObjectView::Unknown) => waiting(format!("Secret {name} cannot be read")),
        (None, _) => waiting("spec.bootstrap.dataSecretName of the Machine is not set".to_owned()),
    }
}

fn native_machine(snapshot: &Snapshot) -> ConditionVerdict {
    let name = snapshot.object.metadata.name.as_deref().unwrap_or_default();
    let taken = |kind: &str| {
        let text = format!("another object has {kind} {name}: delete or rename one of them");
        ConditionVerdict::no(Reason::NameTaken, text)
    };
    match &snapshot.native {
        ObjectView::Unknown => ConditionVerdict::no(Reason::Unreadable, format!("MCM Machine {name} cannot be read")),
        ObjectView::Present(machine) if native::belongs(snapshot, machine) => synced(snapshot, machine),
        ObjectView::Present(machine) if native::is_deserted(snapshot, machine) => {
            let id = &machine.spec.provider_id;
            let text = format!(
                "MCM Machine {name} keeps VM {id} of an MCMMachine that was removed by force: remove its finalizers \
                 to release the VM, or annotate it with {} to delete the VM",
                labels::DELETE_VM
            );
            ConditionVerdict::no(Reason::NameTaken, text)
        }
        ObjectView::Present(_) => taken("MCM Machine"),
        ObjectView::Missing if snapshot.is_own_class_taken() => taken("MachineClass"),
        ObjectView::Missing if snapshot.is_vm_lost() => ConditionVerdict::no(
            Reason::VmLost,
            "the VM existed, but its ID and its MCM Machine are lost, so no other VM is created: delete the Machine",
        ),
        ObjectView::Missing if snapshot.rival.is_some() => {
            let rival = snapshot.rival.as_deref().unwrap_or_default();
            let text =
                format!("MCM Machine {rival} also has VM {}: delete one of them", snapshot.object.spec.provider_id);
            ConditionVerdict::no(Reason::VmTaken, text)
        }
        ObjectView::Missing => {
            ConditionVerdict::no(Reason::NotProvisioned, format!("MCM Machine {name} does not exist yet"))
        }
    }
}

/// A direct deletion of the native Machine changes nothing about its VM.
fn synced(snapshot: &Snapshot, machine: &Machine) -> ConditionVerdict {
    let is_released = snapshot.is_member() || machine.annotations().contains_key(labels::DELETE_VM);
    if machine.is_terminating() && !is_released {
        let text = "the MCM Machine was deleted directly; its VM is kept until the CAPI Machine is deleted";
        return ConditionVerdict::no(Reason::Deleting, text);
    }
    ConditionVerdict::yes(FulfilledReason::Synced)
}

impl Snapshot {
    /// The object needs a class, but another object has a class of that name.
    pub(super) fn is_own_class_taken(&self) -> bool {
        let uid = self.object.metadata.uid.as_deref().unwrap_or_default();
        let is_foreign = |class: &std::sync::Arc<mcm_api::machine::MachineClass>| {
            !mcm_controllers::object::owner::is_controlled_by(&class.metadata, uid)
        };
        self.object.spec.machine_class.is_some() && self.own_class.known().is_some_and(is_foreign)
    }

    /// There was a VM of which nothing is known any more.
    pub(super) fn is_vm_lost(&self) -> bool {
        self.stored().initialization.provisioned == Some(true) && self.object.spec.provider_id.is_empty()
    }
}

fn vm(snapshot: &Snapshot, class: &ClassResolution) -> ConditionVerdict {
    let Some(machine) = snapshot.own_native() else {
        return ConditionVerdict::no(Reason::NotProvisioned, "there is no VM yet");
    };
    let operation = machine.status.as_ref().map(|status| status.last_operation.clone()).unwrap_or_default();
    if let Some(lost) = unavailable(machine) {
        return lost;
    }
    match machine.phase() {
        MachinePhase::Available | MachinePhase::Running if !snapshot.object.spec.provider_id.is_empty() => {
            ConditionVerdict::yes(FulfilledReason::Provisioned)
        }
        MachinePhase::Available | MachinePhase::Running if snapshot.node_form(class).is_none() => ConditionVerdict::no(
            Reason::ProviderIdUnknown,
            format!("the zone of VM {} is not known: set nodeTemplate.zone of its class", machine.spec.provider_id),
        ),
        _ if operation.state == Some(OperationState::Failed) => {
            let code = if operation.error_code.is_empty() { Reason::Failed.as_str() } else { &operation.error_code };
            ConditionVerdict::no(code, operation.description)
        }
        _ => ConditionVerdict::no(Reason::Creating, operation.description),
    }
}

/// The VM existed and no longer runs, according to the native Machine.
fn unavailable(machine: &Machine) -> Option<ConditionVerdict> {
    let conditions = &machine.status.as_ref()?.conditions;
    let found = conditions
        .iter()
        .find(|one| one.type_ == MachineConditionType::VmAvailable.as_str() && one.status == "False")?;
    let reason = found.reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or(Reason::VmLost.as_str());
    Some(ConditionVerdict::no(reason, found.message.as_deref().unwrap_or_default()))
}

/// The reference to the native Machine.
pub(super) fn reference(machine: &Machine) -> ClassRef {
    ClassRef { name: machine.metadata.name.clone().unwrap_or_default() }
}
