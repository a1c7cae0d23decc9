//! Changes of the description of a VM that exists. Cluster API core writes them for an in-place update; what needs another VM is
//! refused.

use serde_json::json;

use super::{Action, Snapshot};
use crate::{
    object::{conditions::ConditionVerdict, in_place, view::ObjectView},
    provider::class::ClassResolution,
};
use mcm_api::{
    machine::ClassContent,
    reasons::{ProviderCondition, ProviderReason as Reason},
};
use mcm_controllers::object::draft::{DraftPatch, ObjectDraft};
use mcm_conversion::{content_in_zone, types::MCMMachine};

/// The description may differ from that of the VM: core updates the object in place, or an update was refused.
pub(super) fn may_differ(object: &MCMMachine) -> bool {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_refused = conditions.iter().any(|condition| {
        condition.type_ == ProviderCondition::ClassResolved.as_str()
            && condition.reason == Reason::NewVmRequired.as_str()
    });
    in_place::is_updated(object) || is_refused
}

impl Snapshot {
    /// The description of the VM in the object itself, for its zone.
    pub(super) fn description(&self) -> Option<ClassContent> {
        let spec = &self.object.spec;
        spec.machine_class.as_ref().map(|content| content_in_zone(content, &spec.zones, self.zone()))
    }

    /// The reason for which the VM that exists cannot get the class; `None` if it can, or has it.
    pub(super) fn refusal(&self, class: &ClassResolution) -> Option<ConditionVerdict> {
        let native = self.own_native().filter(|_| !self.is_member() && may_differ(&self.object))?;
        let ClassResolution::Usable { name, is_inline, .. } = class else { return None };
        let current = &native.spec.class.name;
        if *is_inline {
            let field = in_place::difference_of_description(self.own_class.known()?, &self.description()?)?;
            return Some(another_vm(format!("{field} of machineClass is another one than that of the VM")));
        }
        if name == current {
            return None;
        }
        let unknown = |reason, text: &str| {
            let text =
                format!("MachineClass {current} of the VM {text}, so it cannot be compared with {name}: create it");
            Some(ConditionVerdict::no(reason, text))
        };
        match &self.vm_class {
            ObjectView::Missing => unknown(Reason::ClassMissing, "does not exist"),
            ObjectView::Unknown => unknown(Reason::Unreadable, "cannot be read"),
            ObjectView::Present(of_vm) => {
                let field = in_place::difference_of_classes(of_vm, self.class.known()?)?;
                let text =
                    format!("{field} of MachineClass {name} is another one than that of {current}, which the VM has");
                Some(another_vm(text))
            }
        }
    }

    /// The write with which an in-place update is applied, and its reason; `None` if it is applied.
    pub(super) fn applied_in_place(&self, class: &ClassResolution) -> Option<(Action, String)> {
        let native = self.own_native().filter(|_| !self.is_member() && may_differ(&self.object))?;
        let ClassResolution::Usable { name, content, is_inline } = class else { return None };
        if *is_inline {
            let own = self.own_class.known().filter(|_| !self.is_own_class_taken())?;
            let mut draft = ObjectDraft::new(own.clone());
            draft.edit("the nodeTemplate of machineClass was changed in place", |own| {
                own.node_template.clone_from(&content.node_template);
            });
            let DraftPatch { current, patch, reason, .. } = draft.finish()?;
            return Some((Action::PatchClass { class: current, patch }, reason));
        }
        let patch = json!({ "spec": { "class": { "name": name } } });
        let action = Action::PatchNative { machine: native.clone(), patch };
        (*name != native.spec.class.name)
            .then(|| (action, "the class was changed in place, and the VM can stay".to_owned()))
    }
}

fn another_vm(what: String) -> ConditionVerdict {
    let text = format!(
        "{what}, and an update extension has it changed in place: delete the Machine, which is replaced with a VM of its \
         description, and let the extension leave such changes to rollouts"
    );
    ConditionVerdict::no(Reason::NewVmRequired, text)
}
