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
    Kind, MachineObjects, MigrationDirection, ObjectId, Snapshot, UnstructuredObject,
    step::{MigrationWrite, RemainingWork, detach, each, make, wait, want, write},
};
use mcm_api::{labels, patch};
use mcm_conversion::{
    self as conversion, ConversionResult, ProviderRole, provider_id,
    types::{INFRASTRUCTURE_GROUP, MigrationSide, names},
};

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

/// The object that a migration in this direction derives: the class, or the template of the other provider.
pub fn converted(s: &Snapshot, way: MigrationDirection) -> ConversionResult {
    if way == MigrationDirection::ToOther { template_made(s) } else { class_made(s) }
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

/// The template of the provider mcm, with a reference to the class; `None` without a class or a name.
pub fn template_wanted(s: &Snapshot) -> Option<Value> {
    let (class, name) = (class(s)?, template_name(s));
    let spec = json!({ "machineClassRef": { "name": class["metadata"]["name"] } });
    (!name.is_empty()).then(|| {
        json!({
            "apiVersion": Kind::InfraTemplate.api_version(), "kind": "MCMMachineTemplate",
            "metadata": { "name": name }, "spec": { "template": { "spec": spec } },
        })
    })
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

/// An infrastructure object as core creates it from a template, with the ID of a VM that exists.
pub fn instance_of(template: &Value, name: &str, provider_id: &Value) -> Value {
    let group_kind = format!("{}.{INFRASTRUCTURE_GROUP}", template["kind"].as_str().unwrap_or_default());
    let annotations = json!({
        (format!("{}name", names::CLONED_FROM)): template["metadata"]["name"],
        (format!("{}groupkind", names::CLONED_FROM)): group_kind,
    });
    let mut spec = template["spec"]["template"]["spec"].clone();
    spec["providerID"] = provider_id.clone();
    json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec })
}

/// An infrastructure object for the VM of that of another provider. Core makes the Machine its owner.
fn infrastructure(from: &UnstructuredObject, template: &UnstructuredObject) -> Value {
    let is_of_template = |key: &str| key.starts_with(names::CLONED_FROM) || key == labels::KUBECTL_LAST_APPLIED;
    let mut made = json!({ "metadata": { "labels": from.at("/metadata/labels") } });
    let written = from.as_written();
    for (key, value) in written["metadata"]["annotations"].as_object().into_iter().flatten() {
        if !is_of_template(key) {
            made["metadata"]["annotations"][key] = value.clone();
        }
    }
    patch::apply(&mut made, &instance_of(&template.value, from.name(), &from.at("/spec/providerID")));
    made
}

/// Creates the infrastructure objects of a provider with this template from those of the other provider, which each machine has.
pub fn describe<'a>(
    s: &'a Snapshot,
    template: &UnstructuredObject,
    missing: &str,
    from: impl Fn(&MachineObjects<'a>) -> Option<&'a UnstructuredObject>,
) -> RemainingWork {
    let kind = machine_kind_of(template.kind);
    each(s.recorded(), |member| match from(&member) {
        Some(from) => make(s, kind, &infrastructure(from, template)),
        None => wait(format!("{missing} {}", member.name)),
    })
}

/// Machines, set and deployment refer to the objects of the provider with this template.
pub fn refer(s: &Snapshot, template: Kind) -> RemainingWork {
    let reference = |kind: Kind, name: &str| {
        let kind = kind.resource().name;
        json!({ "infrastructureRef": { "apiGroup": INFRASTRUCTURE_GROUP, "kind": kind, "name": name } })
    };
    let machines = each(s.recorded(), |member| match member.machine {
        Some(machine) => want(machine, &json!({ "spec": reference(machine_kind_of(template), member.name) })),
        None => wait(format!("the Machine of {}", member.name)),
    });
    let side = MigrationSide::ClusterApi;
    let above = s.sets_of(side).into_iter().chain(s.deployment_of(side));
    let of_machines = json!({ "spec": { "template": { "spec": reference(template, template_name(s)) } } });
    machines.and(each(above, |above| want(above, &of_machines)))
}

/// Undoes the creation of the objects of the provider with this template.
pub fn forget(s: &Snapshot, template: Kind) -> RemainingWork {
    detach([machine_kind_of(template), template].into_iter().flat_map(|kind| s.held(kind)))
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
    let Some(cloud) = &s.cloud else {
        return RemainingWork { asks_cloud: true, ..wait("a response of the cloud") };
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
    let tags = each(s.recorded().filter(|member| !cloud.lacks(member)), |member| {
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
        match is_shown != is_listed && (is_known || !is_listed) {
            true => write(ObjectId::new(Kind::Machine, member.name), MigrationWrite::Tag { is_listed }),
            false => RemainingWork::default(),
        }
    });
    tags.and(each(unknown, wait))
}
