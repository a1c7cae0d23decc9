//! Resources that a deleted VM leaves: a creation that failed for lack of them is tried again at once.

use std::sync::Arc;

use kube::{ResourceExt, core::ObjectMeta};

use mcm_api::machine::{Machine, MachineClass, MachinePhase, OperationType};
use mcm_driver::{CloudAccount, Code};
use mcm_runtime::{
    cache::{Key, ObjectCache},
    handlers::HandlerList,
};

type FreedClassHandler = dyn Fn(&MachineClass) + Send + Sync;

/// Reports the VMs that a cell deleted. The kinds that delete VMs share it.
#[derive(Default)]
pub struct FreedResources(HandlerList<FreedClassHandler>);

impl FreedResources {
    /// Calls `handler` with the class of each VM that was deleted.
    pub fn on_delete(&self, handler: impl Fn(&MachineClass) + Send + Sync + 'static) {
        self.0.add(Box::new(handler));
    }

    /// A VM of this class was deleted.
    pub fn vm_deleted(&self, class: &MachineClass) {
        self.0.each(|handler| handler(class));
    }
}

/// The Machines whose creation failed for lack of resources in the account of a class. Those of the class come first, then
/// the older ones.
pub fn short_of_resources(
    machines: &ObjectCache<Machine>,
    classes: &ObjectCache<MachineClass>,
    freed: &MachineClass,
) -> Vec<Key> {
    let account = CloudAccount::from_class(freed);
    let class_of = |machine: &Machine| classes.get(&Key::beside(&machine.metadata, &machine.spec.class.name));
    let all = machines.all().into_iter().filter(|machine| is_short_of_resources(machine));
    let mut short: Vec<_> = all
        .filter(|machine| class_of(machine).is_some_and(|class| CloudAccount::from_class(&class) == account))
        .collect();
    let is_of_class = |machine: &Machine| machine.spec.class.name == freed.name_any();
    let created = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|time| time.0);
    short.sort_by_cached_key(|machine: &Arc<Machine>| {
        (!is_of_class(machine), created(&machine.metadata), machine.name_any())
    });
    short.iter().map(|machine| Key::from_meta(&machine.metadata)).collect()
}

fn is_short_of_resources(machine: &Machine) -> bool {
    let operation = machine.status.as_ref().map(|status| &status.last_operation);
    let is_exhausted = operation.is_some_and(|operation| {
        operation.type_ == Some(OperationType::Create) && operation.error_code == Code::ResourceExhausted.as_str()
    });
    is_exhausted && machine.phase() == MachinePhase::CrashLoopBackOff && !machine.is_terminating()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::merge;

    #[test]
    fn machines_of_the_class_then_of_the_account_are_tried_first_and_older_ones_before_younger_ones() {
        let (machines, classes) = (crate::machine::CACHE.empty(), crate::machine_class::CACHE.empty());
        for (name, secret) in [("small", "one"), ("large", "one"), ("other", "two")] {
            let class = json!({
                "metadata": { "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1" },
                "provider": "p", "providerSpec": {}, "secretRef": { "name": secret, "namespace": "ns" },
            });
            classes.wrote(serde_json::from_value(class).unwrap());
        }
        let status = |phase, code| json!({ "status": { "currentStatus": { "phase": phase }, "lastOperation": { "type": "Create", "state": "Failed", "errorCode": code, "description": "" } } });
        let short = || status("CrashLoopBackOff", "ResourceExhausted");
        for (name, class, created, change) in [
            ("large-old", "large", 1, short()),
            ("small-young", "small", 3, short()),
            ("small-old", "small", 2, short()),
            ("of-another-account", "other", 1, short()),
            ("of-no-class", "unknown", 1, short()),
            ("failed", "small", 1, status("Failed", "ResourceExhausted")),
            ("denied", "small", 1, status("CrashLoopBackOff", "PermissionDenied")),
            ("deleted", "small", 1, short()),
            ("new", "small", 1, json!({})),
        ] {
            let created = format!("2026-01-0{created}T00:00:00Z");
            let mut machine = json!({
                "metadata": { "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "creationTimestamp": created },
                "spec": { "class": { "kind": "MachineClass", "name": class } },
            });
            merge(&mut machine, &change);
            if name == "deleted" {
                machine["metadata"]["deletionTimestamp"] = Value::from("2026-01-09T00:00:00Z");
                machine["metadata"]["finalizers"] = json!(["f"]);
            }
            machines.wrote(serde_json::from_value(machine).unwrap());
        }
        let small = classes.get(&Key::new("ns", "small")).unwrap();
        let names: Vec<String> =
            short_of_resources(&machines, &classes, &small).into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["small-old", "small-young", "large-old"]);
    }
}
