//! The common part of both migrations between infrastructure providers. Core keeps its deployment, its set and its
//! Machines; only their references change, while core does not reconcile them.
//!
//! The templates of both providers have the same name, and so have the infrastructure objects of a machine. References
//! differ in their kinds only, so undoing restores the same objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::{
    object::{Kind, ObjectId, UnstructuredObject},
    snapshot::{MachineObjects, Snapshot},
    step::{Action, RemainingWork, detach, pause, resume},
    to_native,
};
use mcm_api::labels;
pub use {
    mcm_conversion as conversion,
    mcm_conversion::{
        ConversionResult, ProviderRole, provider_id,
        types::{INFRASTRUCTURE_GROUP, MigrationSide, names},
    },
};

/// The objects of core, whose controllers confirm a pause.
pub fn of_core(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let machines = s.members_of(MigrationSide::ClusterApi).into_iter().filter_map(|member| member.machine);
    let above = s.sets_of(MigrationSide::ClusterApi).into_iter().chain(s.deployment_of(MigrationSide::ClusterApi));
    machines.chain(above).chain(to_native::health_checks(s)).collect()
}

/// Name of the templates of both providers.
pub fn template_name(s: &Snapshot) -> &str {
    s.referring().map_or("", |one| one.text("/spec/template/spec/infrastructureRef/name"))
}

/// The template of the provider mcm.
pub fn own_template(s: &Snapshot) -> Option<&UnstructuredObject> {
    s.find(Kind::InfraTemplate, template_name(s))
}

/// The template of the other provider: the referenced one, or the template with the deployment's name. A pool is its own.
pub fn other_template(s: &Snapshot) -> Option<&UnstructuredObject> {
    if s.unit.is_pool() {
        return s.pool();
    }
    let referred = s.deployment_of(MigrationSide::ClusterApi)?.text("/spec/template/spec/infrastructureRef/kind");
    let found = || Kind::of_others(ProviderRole::Template).filter_map(|kind| s.find(kind, template_name(s)));
    found().find(|template| template.kind.resource().name == referred).or_else(|| found().next())
}

/// Kind of the infrastructure objects that core creates from a template.
pub const fn machine_kind_of(template: Kind) -> Kind {
    match template {
        Kind::Other(provider, _) => Kind::Other(provider, ProviderRole::Machine),
        _ => Kind::InfraMachine,
    }
}

/// The class of the machines, stored or derived.
pub fn class(s: &Snapshot) -> Option<Value> {
    let template = own_template(s).map(|template| template.at("/spec/template/spec")).unwrap_or_default();
    if let Value::Object(content) = &template["machineClass"] {
        let metadata = json!({ "name": template_name(s), "namespace": s.namespace });
        let described = [("metadata".to_owned(), metadata)].into_iter().chain(content.clone());
        return Some(described.collect::<Map<_, _>>().into());
    }
    let name = template["machineClassRef"]["name"].as_str().unwrap_or_else(|| template_name(s));
    match s.find(Kind::Class, name) {
        Some(class) => Some(class.value.clone()),
        None => class_made(s).objects.into_iter().next(),
    }
}

/// Name of the class of a machine.
pub fn class_name(s: &Snapshot, member: &MachineObjects<'_>) -> Option<String> {
    let of_native = member.native.map(|native| native.text("/spec/class/name").to_owned());
    of_native.or_else(|| Some(class(s)?["metadata"]["name"].as_str()?.to_owned()))
}

/// The class derived from the template of the other provider, if no class has its name yet.
pub fn class_made(s: &Snapshot) -> ConversionResult {
    let is_known = own_template(s).is_some() || s.find(Kind::Class, template_name(s)).is_some();
    let Some(template) = other_template(s).filter(|_| !is_known) else { return ConversionResult::default() };
    // The provider stores facts about its network in the status of its cluster.
    let clusters = Kind::of_others(ProviderRole::Cluster).flat_map(|kind| s.all(kind));
    let referring = s.referring().map(UnstructuredObject::as_written);
    let around: Vec<Value> = clusters.map(|one| one.value.clone()).chain(referring).collect();
    let mut written = template.as_written();
    // The provider has looked up the capacity, from which an autoscaler scales from zero.
    written["status"] = template.at("/status");
    let mut made = conversion::class_of_template(&written, &around, &s.answers);
    if let Some(secret) = &s.credentials {
        let reference = json!({ "name": secret, "namespace": s.namespace });
        made.objects.iter_mut().for_each(|class| class["credentialsSecretRef"] = reference.clone());
    }
    made
}

/// The template of the other provider derived from the class; empty if it exists.
pub fn template_made(s: &Snapshot) -> ConversionResult {
    if other_template(s).is_some() {
        return ConversionResult::default();
    }
    let Some(mut class) = class(s) else { return ConversionResult::default() };
    class["metadata"]["name"] = json!(template_name(s));
    conversion::template_of_class(&class, &s.cluster)
}

/// An infrastructure object for the existing VM of a machine. Core makes the Machine its owner.
pub fn infrastructure(from: &UnstructuredObject, kind: Kind, template: &UnstructuredObject) -> Value {
    let is_of_template = |key: &str| key.starts_with(names::CLONED_FROM) || key == labels::KUBECTL_LAST_APPLIED;
    let written = from.as_written();
    let annotations = written["metadata"]["annotations"].as_object().into_iter().flatten();
    let mut annotations: Map<String, Value> =
        annotations.filter(|(key, _)| !is_of_template(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    let group_kind = format!("{}.{INFRASTRUCTURE_GROUP}", template.kind.resource().name);
    annotations.insert(format!("{}name", names::CLONED_FROM), json!(template.name()));
    annotations.insert(format!("{}groupkind", names::CLONED_FROM), json!(group_kind));
    let mut spec = template.at("/spec/template/spec");
    spec["providerID"] = from.at("/spec/providerID");
    json!({
        "apiVersion": kind.api_version(), "kind": kind.resource().name,
        "metadata": { "name": from.name(), "labels": from.at("/metadata/labels"), "annotations": annotations },
        "spec": spec,
    })
}

/// Machines, set and deployment refer to the objects of the provider with this template.
pub fn refer(s: &Snapshot, template: Kind) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let reference = |kind: Kind, name: &str| json!({ "apiGroup": INFRASTRUCTURE_GROUP, "kind": kind.resource().name, "name": name });
    for member in s.recorded() {
        let Some(machine) = member.machine else {
            todo.expect(false, format!("the Machine of {}", member.name));
            continue;
        };
        let reference = reference(machine_kind_of(template), member.name);
        todo.want(machine, &json!({ "spec": { "infrastructureRef": reference } }));
    }
    let reference = reference(template, template_name(s));
    for above in s.sets_of(MigrationSide::ClusterApi).into_iter().chain(s.deployment_of(MigrationSide::ClusterApi)) {
        todo.want(above, &json!({ "spec": { "template": { "spec": { "infrastructureRef": reference } } } }));
    }
    todo
}

/// Undoes the creation of the objects of the provider with this template.
pub fn forget(s: &Snapshot, template: Kind) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let kinds = [machine_kind_of(template), template];
    let made = kinds.into_iter().flat_map(|kind| s.all(kind)).filter(|one| one.is_of_migration(s.name()));
    detach(&mut todo, made);
    todo
}

/// Excludes the VMs of these classes from orphan collection. There is no confirmation: a collector reads the class
/// before it deletes a VM, and only long after it first saw the VM.
pub fn hold(todo: &mut RemainingWork, s: &Snapshot) {
    for class in classes(s) {
        todo.want(class, &pause(class, s));
    }
}

/// Undoes [`hold`].
pub fn release(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let held = s.all(Kind::Class).filter(|class| class.is_of_migration(s.name()));
    held.for_each(|class| todo.want(class, &resume(class)));
    todo
}

/// The classes of the machines that are stored.
pub fn classes(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_under_core();
    let names: BTreeSet<String> = members.iter().filter_map(|member| class_name(s, member)).collect();
    names.iter().filter_map(|name| s.find(Kind::Class, name)).collect()
}

/// Adds the tags by which orphan collectors find the VMs of their class.
pub fn tag(s: &Snapshot) -> RemainingWork {
    list(s, true)
}

/// Removes these tags: without a native Machine a VM that is listed for a class would be deleted as an orphan.
pub fn untag(s: &Snapshot) -> RemainingWork {
    list(s, false)
}

fn list(s: &Snapshot, is_listed: bool) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let Some(cloud) = &s.cloud else {
        todo.asks_cloud = true;
        todo.expect(false, "a response of the cloud");
        return todo;
    };
    // Equal classes share a list.
    let mut known = BTreeMap::new();
    let mut identities = |vms: &Arc<BTreeMap<String, String>>| -> Arc<BTreeSet<String>> {
        let of_list = || Arc::new(vms.keys().map(|id| provider_id::identity(id)).collect());
        Arc::clone(known.entry(Arc::as_ptr(vms)).or_insert_with(of_list))
    };
    let listed: BTreeMap<&String, Result<Arc<BTreeSet<String>>, &String>> =
        cloud.listed.iter().map(|(class, listed)| (class, listed.as_ref().map(&mut identities))).collect();
    let mut unknown = BTreeSet::new();
    for member in s.recorded().filter(|member| !cloud.lacks(member)) {
        let (vm, own) = (member.vm(), class_name(s, &member));
        // An orphan collector checks all classes.
        let of_classes = listed.iter().filter(|(class, _)| !is_listed || own.as_deref() == Some(class.as_str()));
        let (mut is_shown, mut is_known) = (false, true);
        for (class, listed) in of_classes {
            match listed {
                Ok(vms) => is_shown |= vms.contains(&vm),
                Err(error) => {
                    is_known = false;
                    unknown.insert(format!("the VMs of MachineClass {class}, which cannot be listed: {error}"));
                }
            }
        }
        if is_shown != is_listed && (is_known || !is_listed) {
            todo.actions.push(Action::Tag { id: ObjectId::new(Kind::Machine, member.name), is_listed });
        }
    }
    unknown.into_iter().for_each(|class| todo.expect(false, class));
    todo
}
