//! Which changes of a request need no other VM, and whether the provider has applied an update.

use serde::Deserialize;
use serde_json::{Value, json};

use super::hooks::{ExtensionHook, HookRequest, RequestObjects, UpdateProgress};
use crate::{
    object::{in_place, view::ObjectView},
    provider::class::in_zone,
};
use mcm_api::{
    machine::MachineClass,
    reasons::{PauseReason, ProviderCondition, ProviderReason},
};
use mcm_conversion::{
    content_in_zone,
    types::{INFRASTRUCTURE_GROUP, MCMCluster, MCMMachine, MCMMachineSpec},
};

/// Pause before core repeats the request while the provider applies a change, in seconds.
const SOON: u32 = 5;
/// The same while a user has to act.
const LATER: u32 = 30;

/// Fields of an MCMMachine from which a VM that exists does not depend: the one is about its creation, of the other only the
/// conversion reads something.
const FREE_FIELDS: [&str; 2] = ["creationTimeoutSeconds", "nodeTemplate"];

/// A change of the description of one or more VMs.
pub(super) struct DescriptionChange<'a> {
    /// Where the specs are in their objects.
    place: &'static str,
    current: DescribedVm<'a>,
    desired: DescribedVm<'a>,
    pub namespace: &'a str,
    pub cluster: &'a str,
    /// The failure domain of the Machines; empty for any.
    pub zone: &'a str,
}

/// The description of a VM.
struct DescribedVm<'a> {
    /// As in the request, with fields that this program may not know.
    raw: &'a Value,
    spec: MCMMachineSpec,
}

/// The classes that a change names.
pub(super) struct NamedClasses {
    pub current: ObjectView<MachineClass>,
    pub desired: ObjectView<MachineClass>,
}

impl<'a> DescriptionChange<'a> {
    /// The change of a request; `None` if it is not about MCMMachines, or about more than their description.
    pub(super) fn from_request(hook: ExtensionHook, request: &'a HookRequest) -> Option<Self> {
        let is_set = hook == ExtensionHook::CanUpdateMachineSet;
        let (place, kind) =
            if is_set { ("/spec/template/spec", "MCMMachineTemplate") } else { ("/spec", "MCMMachine") };
        let parts = |objects: &'a RequestObjects| {
            let RequestObjects { machine, machine_set, infrastructure_machine, infrastructure_machine_template } =
                objects;
            let (owner, infrastructure) = match is_set {
                true => (machine_set, infrastructure_machine_template),
                false => (machine, infrastructure_machine),
            };
            let is_ours = infrastructure["kind"] == kind && is_of_group(infrastructure);
            let raw = infrastructure.pointer(place).filter(|_| is_ours)?;
            let spec = MCMMachineSpec::deserialize(raw).ok()?;
            Some((owner, DescribedVm { raw, spec }))
        };
        let (owner, current) = parts(&request.current)?;
        let (next_owner, desired) = parts(&request.desired)?;
        let of_owner =
            |owner: &'a Value, field: &str| owner.pointer(&format!("{place}/{field}")).and_then(Value::as_str);
        let zone = of_owner(owner, "failureDomain").unwrap_or_default();
        let is_elsewhere = of_owner(next_owner, "failureDomain").unwrap_or_default() != zone;
        let namespace = owner["metadata"]["namespace"].as_str()?;
        let cluster = of_owner(owner, "clusterName").unwrap_or_default();
        (!is_elsewhere).then_some(Self { place, current, desired, namespace, cluster, zone })
    }

    /// The names of the classes, current and desired, if both name one and not the same.
    pub(super) fn named(&self, infrastructure: &ObjectView<MCMCluster>) -> Option<[String; 2]> {
        let [current, desired] = [&self.current.spec, &self.desired.spec].map(|spec| &spec.machine_class_ref);
        let is_named = ![current, desired].into_iter().any(|class| class.name.is_empty());
        (is_named && current != desired)
            .then(|| [current, desired].map(|class| in_zone(class, self.zone, infrastructure)))
    }

    /// The operations of a JSON patch for the fields for which the VMs stay.
    pub(super) fn claims(&self, classes: &NamedClasses) -> Vec<Value> {
        let described: &[&str] =
            if self.has_same_description() { &["machineClass/nodeTemplate", "zones"] } else { &[] };
        let named: &[&str] = if classes.have_same_vms() { &["machineClassRef"] } else { &[] };
        let fields = FREE_FIELDS.iter().chain(described).chain(named);
        fields.filter_map(|field| self.replacement(field)).collect()
    }

    /// Both objects describe their VM, and it is the same.
    fn has_same_description(&self) -> bool {
        let of_zone = |vm: &DescribedVm<'_>| {
            vm.spec.machine_class.as_ref().map(|content| content_in_zone(content, &vm.spec.zones, self.zone))
        };
        let both = of_zone(&self.current).zip(of_zone(&self.desired));
        both.is_some_and(|(current, desired)| in_place::difference(&current, &desired).is_none())
    }

    fn replacement(&self, field: &str) -> Option<Value> {
        let path = format!("{}/{field}", self.place);
        let [current, desired] = [&self.current, &self.desired].map(|vm| vm.raw.pointer(&format!("/{field}")));
        match (current, desired) {
            (current, desired) if current == desired => None,
            (_, Some(value)) => Some(json!({ "op": "add", "path": path, "value": value })),
            (_, None) => Some(json!({ "op": "remove", "path": path })),
        }
    }
}

impl NamedClasses {
    /// Of an object that names no class, or the same one.
    pub(super) const NONE: Self = Self { current: ObjectView::Missing, desired: ObjectView::Missing };

    /// Both exist, and a VM of the first can have the second.
    fn have_same_vms(&self) -> bool {
        let both = self.current.known().zip(self.desired.known());
        both.is_some_and(|(current, desired)| in_place::difference_of_classes(current, desired).is_none())
    }
}

/// Namespace and name of the MCMMachine that is updated; `None` for an object of another provider.
pub(super) fn updated(request: &HookRequest) -> Option<(&str, &str)> {
    let object = &request.desired.infrastructure_machine;
    let is_ours = object["kind"] == "MCMMachine" && is_of_group(object);
    let metadata = &object["metadata"];
    metadata["namespace"].as_str().zip(metadata["name"].as_str()).filter(|_| is_ours)
}

/// The progress of the update: the provider has applied it when it shows so for the current generation.
pub(super) fn progress(request: &HookRequest, object: &ObjectView<MCMMachine>) -> UpdateProgress {
    let in_progress = |message: &str, retry_after_seconds: u32| UpdateProgress::InProgress {
        message: message.to_owned(),
        retry_after_seconds,
    };
    let object = match object {
        ObjectView::Present(object) => object,
        ObjectView::Missing => return in_progress("the MCMMachine does not exist: delete the Machine", LATER),
        ObjectView::Unknown => return in_progress("the MCMMachine cannot be decoded: correct it", LATER),
    };
    let wanted = MCMMachineSpec::deserialize(&request.desired.infrastructure_machine["spec"]);
    if !wanted.is_ok_and(|wanted| wanted == object.spec) {
        return in_progress("the MCMMachine was changed after this request", SOON);
    }
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let find = |type_: ProviderCondition| conditions.iter().find(|condition| condition.type_ == type_.as_str());
    if let Some(paused) = find(ProviderCondition::Paused).filter(|one| one.reason == PauseReason::Paused.as_str()) {
        return in_progress(&format!("the MCMMachine is paused: {}", paused.message), LATER);
    }
    for type_ in [ProviderCondition::ClassResolved, ProviderCondition::MachineSynced] {
        let seen = find(type_).filter(|condition| condition.observed_generation >= object.metadata.generation);
        let Some(condition) = seen else {
            return in_progress("the provider has not applied the change yet: mcm capi-manager has to run", SOON);
        };
        if condition.status != "True" {
            let is_for_user = condition.reason == ProviderReason::NewVmRequired.as_str();
            return in_progress(&condition.message, if is_for_user { LATER } else { SOON });
        }
    }
    UpdateProgress::Done
}

fn is_of_group(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version.split_once('/').is_some_and(|(group, _)| group == INFRASTRUCTURE_GROUP)
}
