//! Provider IDs: the driver names location and VM, as the Go driver does, and Nodes have the resource ID of the VM. Only the
//! driver can tell the resource ID, because the subscription is in the Secret.

use serde_json::Value;

use crate::cloud::provider::IdForms;

pub const IDS: IdForms =
    IdForms { scheme: "azure://", to_native, to_node: |id, _zone| Some(id.to_owned()), identity, vm_name };

const PREFIX: &str = "azure:///";

/// A VM in another resource group than that of the class stays as it is, and is refused by the driver.
fn to_native(id: &str, spec: &Value) -> String {
    let field = |name: &str| spec[name].as_str().filter(|text| !text.is_empty());
    match (resource(id), field("location"), field("resourceGroup")) {
        (Some((group, vm)), Some(location), Some(of_class)) if group.eq_ignore_ascii_case(of_class) => {
            format!("{PREFIX}{location}/{vm}")
        }
        _ => id.to_owned(),
    }
}

/// Azure compares names without case.
fn identity(id: &str) -> String {
    vm_name(id).map_or_else(|| id.to_owned(), |vm| format!("{PREFIX}{}", vm.to_ascii_lowercase()))
}

fn vm_name(id: &str) -> Option<&str> {
    let of_driver = || match id.strip_prefix(PREFIX)?.split('/').collect::<Vec<_>>().as_slice() {
        [_, vm] => Some(*vm),
        _ => None,
    };
    resource(id).map(|(_, vm)| vm).or_else(of_driver).filter(|vm| !vm.is_empty())
}

/// Resource group and name of the VM with a resource ID.
fn resource(id: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = id.strip_prefix(PREFIX)?.split('/').collect();
    let [subscriptions, _, groups, group, providers, provider, kind, vm] = parts.as_slice() else { return None };
    let named = [(subscriptions, "subscriptions"), (groups, "resourceGroups"), (providers, "providers")];
    let is_vm = [(provider, "Microsoft.Compute"), (kind, "virtualMachines")];
    named.iter().chain(&is_vm).all(|(part, name)| part.eq_ignore_ascii_case(name)).then_some((*group, *vm))
}
