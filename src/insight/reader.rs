//! Reads the objects of a namespace, with the plans that the controllers would make for them. Nothing is written, and no manager is
//! needed, so it works on control planes of the Go programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{
    error::{UnreadError, UsageError},
    manager::{ManagerFreeze, ManagerPark},
    memory,
    place::CallTarget,
    place_counts::PlaceCounts,
    read_only::{MembershipReading, PATIENCE, ReadOnly, RoleLease, provider_leadership},
    story::{
        self, ByName, CONTROLLERS, DEPLOYMENT, MACHINE, ManagerLease, NamespaceFacts, OwnedMachines, SET,
        UndecodableObject,
    },
    terminal::short,
};
use mcm_api::{
    kinds::LEASES,
    labels,
    machine::{Machine, MachineClass, MachineDeployment, MachineSet},
    node::Node,
};
use mcm_rules::plan::{SubjectRef, shell::resource_name};
use mcm_runtime::{
    cell::{UnreadCause, UnreadKind},
    freeze::{FreezeCause, PublishedFreeze},
    guard::GuardedObject,
    kind_cache::CachedKind,
    refusal::forbidden,
};

/// Duration of a Lease without one in its spec.
const LEASE: i32 = 15;

/// Objects of a page of a list.
const PAGE: u32 = 500;

/// The objects of a kind, decoded or not.
pub struct DecodedList<K> {
    pub objects: ByName<K>,
    pub unreadable: Vec<UndecodableObject>,
}

/// Lists the objects of a kind.
///
/// # Errors
/// The API server refuses the list, or cannot be reached.
pub async fn list<K>(control: &Client, namespace: &str) -> Result<DecodedList<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<GuardedObject<K>> = Api::namespaced(control.clone(), namespace);
    let (mut objects, mut unreadable) = (BTreeMap::new(), Vec::new());
    for object in pages(&api, ListParams::default()).await? {
        let name = object.name_any();
        match object {
            GuardedObject::Readable(object) => drop(objects.insert(name, object)),
            GuardedObject::Unreadable { metadata, error } => {
                unreadable.push(UndecodableObject::from_meta(&K::kind(&()), &metadata, error));
            }
        }
    }
    Ok(DecodedList { objects, unreadable })
}

/// All objects of a list, page by page: a part of a list is no answer.
///
/// # Errors
/// The API server refuses the list, or cannot be reached.
pub async fn pages<K>(api: &Api<K>, params: ListParams) -> Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    all_pages(api, params).await.with_context(|| format!("list {}", K::plural(&())))
}

/// Hands over the objects of a list, of which only a page is in memory.
///
/// # Errors
/// As for [`pages`].
pub async fn each<K>(api: &Api<K>, params: ListParams, take: impl FnMut(K)) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    each_object(api, params, take).await.with_context(|| format!("list {}", K::plural(&())))
}

pub(crate) async fn all_pages<K: Clone + DeserializeOwned + std::fmt::Debug>(
    api: &Api<K>,
    params: ListParams,
) -> kube::Result<Vec<K>> {
    let mut found = Vec::new();
    each_object(api, params, |object| found.push(object)).await?;
    Ok(found)
}

async fn each_object<K: Clone + DeserializeOwned + std::fmt::Debug>(
    api: &Api<K>,
    params: ListParams,
    mut take: impl FnMut(K),
) -> kube::Result<()> {
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// The API server forbids the read.
pub fn is_forbidden(error: &anyhow::Error) -> bool {
    error.downcast_ref().and_then(forbidden).is_some()
}

/// The objects of a kind; none if the user may not list them, which [`ReadOnly::unread`] shows.
async fn permitted<K>(cell: &ReadOnly) -> Result<DecodedList<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match list(&cell.control, &cell.namespace).await {
        Err(error) if is_forbidden(&error) => Ok(DecodedList { objects: BTreeMap::new(), unreadable: Vec::new() }),
        listed => listed,
    }
}

/// Reads the objects of the namespace, and plans each.
///
/// # Errors
/// A kind cannot be listed.
pub async fn facts(cell: &ReadOnly) -> Result<NamespaceFacts> {
    Ok(planned(cell, unplanned(cell).await?))
}

/// Reads the objects of the namespace, without plans for them.
///
/// # Errors
/// A kind cannot be listed.
pub async fn unplanned(cell: &ReadOnly) -> Result<NamespaceFacts> {
    let lists = tokio::try_join!(permitted(cell), permitted(cell), permitted(cell), permitted(cell))?;
    let facts = listed(&cell.namespace, cell.clock.now(), lists);
    let managers = managers(cell).await;
    Ok(NamespaceFacts {
        place: cell.place.clone(),
        unread: unread(cell, &managers),
        zones: zones(cell),
        managers,
        ..facts
    })
}

/// Reads the objects of a namespace, without plans for them.
///
/// # Errors
/// A kind cannot be listed.
pub async fn objects(control: &Client, namespace: &str, now: Timestamp) -> Result<NamespaceFacts> {
    let lists = tokio::try_join!(
        list(control, namespace),
        list(control, namespace),
        list(control, namespace),
        list(control, namespace)
    )?;
    Ok(listed(namespace, now, lists))
}

/// Reads the objects of a namespace but its classes, without plans for them.
///
/// # Errors
/// A kind cannot be listed.
pub async fn objects_without_classes(control: &Client, namespace: &str, now: Timestamp) -> Result<NamespaceFacts> {
    let (deployments, sets, machines) =
        tokio::try_join!(list(control, namespace), list(control, namespace), list(control, namespace))?;
    let classes = DecodedList { objects: BTreeMap::new(), unreadable: Vec::new() };
    Ok(listed(namespace, now, (deployments, sets, machines, classes)))
}

type KindLists =
    (DecodedList<MachineDeployment>, DecodedList<MachineSet>, DecodedList<Machine>, DecodedList<MachineClass>);

fn listed(namespace: &str, now: Timestamp, (deployments, sets, machines, classes): KindLists) -> NamespaceFacts {
    NamespaceFacts {
        now,
        namespace: namespace.to_owned(),
        place: CallTarget::default(),
        unreadable: [deployments.unreadable, sets.unreadable, machines.unreadable, classes.unreadable].concat(),
        deployments: deployments.objects,
        sets: sets.objects,
        machines: machines.objects,
        classes: classes.objects,
        previews: BTreeMap::new(),
        unread: Vec::new(),
        unserved: BTreeSet::new(),
        memory: memory::Memory::default(),
        budgets: BTreeMap::new(),
        zones: BTreeMap::new(),
        owned: OwnedMachines::default(),
        places: PlaceCounts::default(),
        managers: Vec::new(),
    }
}

/// The zones of the Nodes that have one.
fn zones(cell: &ReadOnly) -> ByName<String> {
    let zone = |node: &Arc<Node>| Some((node.name_any(), node.labels().get(labels::ZONE)?.to_string()));
    cell.nodes().iter().flatten().filter_map(zone).collect()
}

/// Kinds that could not be read. There are managers, alive or not, unless their Leases could not.
fn unread(cell: &ReadOnly, managers: &[ManagerLease]) -> Vec<String> {
    let leases = managers.is_empty().then(|| LEASES.plural.to_owned());
    cell.unread.iter().map(|unread| unread.kind.clone()).chain(leases).collect()
}

/// The managers, as their Leases show them; none if these cannot be read.
pub async fn managers(cell: &ReadOnly) -> Vec<ManagerLease> {
    cell.leaderships().await.map(|all| all.iter().map(manager).collect()).unwrap_or_default()
}

/// The manager of the provider for Cluster API, if its Lease is found.
pub async fn provider(control: &Client) -> Option<ManagerLease> {
    provider_leadership(control).await.as_ref().map(manager)
}

/// The same facts from the caches, which are up to date, without a request.
pub fn cached(cell: &ReadOnly, managers: Vec<ManagerLease>) -> NamespaceFacts {
    let facts = NamespaceFacts {
        now: cell.clock.now(),
        namespace: cell.namespace.clone(),
        place: cell.place.clone(),
        deployments: by_name(cell),
        sets: by_name(cell),
        machines: by_name(cell),
        classes: by_name(cell),
        unreadable: [
            undecodable::<MachineDeployment>(cell),
            undecodable::<MachineSet>(cell),
            undecodable::<Machine>(cell),
            undecodable::<MachineClass>(cell),
        ]
        .concat(),
        previews: BTreeMap::new(),
        unread: unread(cell, &managers),
        unserved: BTreeSet::new(),
        memory: memory::Memory::default(),
        budgets: BTreeMap::new(),
        zones: zones(cell),
        owned: OwnedMachines::default(),
        places: PlaceCounts::default(),
        managers,
    };
    planned(cell, facts)
}

fn by_name<K: CachedKind>(cell: &ReadOnly) -> ByName<K> {
    cell.cached::<K>().into_iter().map(|object| (object.name_any(), Arc::unwrap_or_clone(object))).collect()
}

fn undecodable<K: CachedKind>(cell: &ReadOnly) -> Vec<UndecodableObject> {
    let of_cache = cell.unreadable::<K>().into_iter();
    of_cache.map(|one| UndecodableObject::from_meta(&K::kind(&()), &one.meta, one.error)).collect()
}

fn planned(cell: &ReadOnly, mut facts: NamespaceFacts) -> NamespaceFacts {
    let names_of = |facts: &NamespaceFacts, kind: &str| facts.names(kind).cloned().collect();
    plan_named(cell, &mut facts, names_of);
    facts
}

/// Plans objects of the facts, and the sets and machines below them.
pub fn plan_below(cell: &ReadOnly, facts: &mut NamespaceFacts, objects: &[SubjectRef]) {
    plan_named(cell, facts, |facts, kind| {
        let below = |object: &SubjectRef| match (object.kind.as_str(), kind) {
            (of_object, of_plan) if of_object == of_plan => vec![object.name.clone()],
            (DEPLOYMENT, SET) => facts.sets_of(&object.name),
            (DEPLOYMENT | SET, MACHINE) => facts.machines_below(object),
            _ => Vec::new(),
        };
        objects.iter().flat_map(below).collect()
    });
}

/// Plans the named objects of each kind.
fn plan_named(cell: &ReadOnly, facts: &mut NamespaceFacts, names_of: impl Fn(&NamespaceFacts, &str) -> Vec<String>) {
    let is_unserved = |class: &MachineClass| cell.settings.drivers.get(class).is_err();
    facts.unserved =
        facts.classes.iter().filter(|(_, class)| is_unserved(class)).map(|(name, _)| name.clone()).collect();
    for (kind, controller) in CONTROLLERS {
        let names = names_of(facts, kind).into_iter();
        let previews =
            names.filter_map(|name| cell.preview(controller, &name).map(|preview| (name, preview))).collect();
        facts.previews.insert(kind, previews);
    }
}

/// The manager of a Lease.
pub fn manager(leadership: &RoleLease) -> ManagerLease {
    let spec = leadership.lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let published = leadership.lease.as_ref().and_then(|lease| lease.annotations().get(labels::FROZEN));
    let published = published.and_then(|text| serde_json::from_str::<PublishedFreeze>(text).ok());
    // A Go program that takes the Lease over keeps the annotation.
    let own = published.filter(|freeze| spec.holder_identity.as_ref() == Some(&freeze.identity));
    let frozen =
        own.map(|PublishedFreeze { cause: FreezeCause { since, why }, .. }| ManagerFreeze { since, why: short(&why) });
    let namespace = leadership.lease.as_ref().and_then(ResourceExt::namespace).unwrap_or_default();
    let mut manager = ManagerLease {
        frozen,
        parked: leadership.parked.map(|cause| ManagerPark::new(cause, &namespace)),
        lease: leadership.role.lease.to_owned(),
        role: leadership.role.name.to_owned(),
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0),
        lasts: SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(LEASE))),
        exists: leadership.lease.is_some(),
    };
    if let MembershipReading::Read(membership) = &leadership.membership {
        manager.show_membership(membership.as_deref());
    }
    manager
}

/// Facts that the answer could not take into account.
pub fn notes(cell: &ReadOnly, facts: &NamespaceFacts) -> Vec<String> {
    let mut notes = Vec::new();
    if !cell.unread.is_empty() {
        let unread: Vec<String> = cell.unread.iter().map(unread_text).collect();
        notes.push(format!("not read, so unknown: {}", unread.join(", ")));
    }
    if facts.managers.is_empty() {
        notes.push("the Leases of the managers could not be read".to_owned());
    }
    if let Some(name) = facts.unserved.iter().next() {
        let provider = facts.classes.get(name).map(|class| class.provider.as_str()).unwrap_or_default();
        notes.push(format!("this build has no driver for provider {provider:?} of class {name}: what its machines need of it is unknown"));
    }
    let correction = |(one, command): (&UndecodableObject, String)| {
        format!("{one}: it is left alone until it is corrected: {command}")
    };
    notes.extend(facts.corrections().map(correction));
    notes.extend(facts.park_note());
    let frozen = facts.managers.iter().find_map(|manager| Some((manager, manager.freeze(facts.now)?)));
    if let Some((manager, freeze)) = frozen {
        notes.push(format!("the machines of {} are frozen since {:.0}: {}", manager.holder, freeze.since, freeze.why));
    }
    notes.extend(facts.ownerless());
    notes.extend(facts.memory.problems.iter().cloned());
    notes
}

/// A kind that was not read, with the user who may not, such as `secrets (alice may not list secrets)`.
fn unread_text(unread: &UnreadKind) -> String {
    let kind = &unread.kind;
    match &unread.cause {
        UnreadCause::Silence => format!("{kind} (no answer within {} s)", PATIENCE.as_secs()),
        UnreadCause::Refusal(refusal) => format!("{kind} ({})", refused(refusal, kind)),
        UnreadCause::OtherCluster(text) => format!("{kind} ({text})"),
    }
}

/// A refusal of the API server with the user whom it names, such as `alice may not list secrets`.
pub fn refused(refusal: &str, kind: &str) -> String {
    let user = refusal.split_once("User \"").and_then(|(_, rest)| rest.split_once('"')).map(|(user, _)| user);
    format!("{} may not list {kind}", user.unwrap_or("this user"))
}

/// Finds an object by `NAME` or `KIND/NAME`.
///
/// # Errors
/// No object has the name, or its kind could not be read.
pub fn find(facts: &NamespaceFacts, wanted: &str) -> Result<SubjectRef> {
    facts.find(wanted).ok_or_else(|| unknown(wanted, facts))
}

/// Finds a MachineDeployment by `NAME` or `KIND/NAME`.
///
/// # Errors
/// No MachineDeployment has the name, or they could not be read.
pub fn find_deployment(facts: &NamespaceFacts, wanted: &str) -> Result<SubjectRef> {
    let kind = if wanted.contains('/') { "" } else { "machinedeployment/" };
    let found = facts.find(&format!("{kind}{wanted}")).ok_or_else(|| unknown(wanted, facts))?;
    if found.kind == DEPLOYMENT {
        return Ok(found);
    }
    let message = format!("{} {} is no MachineDeployment", found.kind, found.name);
    let hint = format!("kubectl get {} -n {}", resource_name(DEPLOYMENT), facts.namespace);
    Err(UsageError { message, hint }.into())
}

/// No object has the name, as far as they were read, or that object cannot be decoded.
fn unknown(wanted: &str, facts: &NamespaceFacts) -> anyhow::Error {
    let namespace = &facts.namespace;
    if let Some((kind, _)) = wanted.split_once('/')
        && story::kind_of(kind).is_none()
    {
        let message = format!("{kind} is no kind that mcm reads");
        let hint =
            "the kinds are machinedeployment, machineset, machine, machineclass and node; mcm why and mcm tree also read those of \
             Cluster API, such as cluster and machine.cluster.x-k8s.io, and mcm why pdb"
                .to_owned();
        return UsageError { message, hint }.into();
    }
    let name = wanted.rsplit('/').next().unwrap_or(wanted);
    let kind = wanted.split_once('/').and_then(|(kind, _)| story::kind_of(kind));
    let is_it = |one: &&UndecodableObject| one.name == name && kind.is_none_or(|kind| kind == one.kind.as_str());
    if let Some(one) = facts.unreadable.iter().find(is_it) {
        let hint = format!("{} corrects it", one.correction(namespace));
        return UnreadError { message: one.to_string(), hint }.into();
    }
    let unread = facts.unread_kinds();
    if let [kind, ..] = unread.as_slice() {
        let message = format!(
            "whether there is {wanted} in namespace {namespace} is unknown: {} could not be read",
            unread.join(", ")
        );
        return UnreadError { message, hint: format!("kubectl auth can-i list {kind} -n {namespace}") }.into();
    }
    let alike = facts.all_names().map(|known| (strsim::jaro_winkler(known, name), known));
    let alike = alike.filter(|(score, _)| *score > 0.8).max_by(|one, other| one.0.total_cmp(&other.0));
    let hint = match alike {
        Some((_, known)) => format!("did you mean {known}?"),
        None => format!("mcm why -n {namespace} lists what waits"),
    };
    UsageError { message: format!("there is no {wanted} in namespace {namespace}"), hint }.into()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_list_is_read_to_its_last_page() {
        let server = service_fn(|request: Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            assert!(query.contains("limit=500") && query.contains("labelSelector=a"), "{query}");
            let (name, next) = if query.contains("continue=second") { ("b", "") } else { ("a", "second") };
            let page = json!({
                "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"continue": next},
                "items": [{"metadata": {"name": name}}],
            });
            Ok::<_, BoxError>(Response::new(Body::from(page.to_string().into_bytes())))
        });
        let maps: Api<ConfigMap> = Api::namespaced(Client::new(server, "demo"), "demo");
        let found = pages(&maps, ListParams::default().labels("a")).await.unwrap();
        assert_eq!(found.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_kind_that_was_not_read_is_named_with_the_user_who_may_not() {
        let refusal = "secrets is forbidden: User \"alice\" cannot list resource \"secrets\" in API group \"\"";
        let unread = |cause: UnreadCause| unread_text(&UnreadKind { kind: "secrets".to_owned(), cause });
        let refused = |refusal: &str| unread(UnreadCause::Refusal(refusal.to_owned()));
        assert_eq!(refused(refusal), "secrets (alice may not list secrets)");
        assert_eq!(refused("none of your business"), "secrets (this user may not list secrets)");
        assert_eq!(unread(UnreadCause::Silence), "secrets (no answer within 20 s)");
        let elsewhere = UnreadCause::OtherCluster("none of 3 is in the cluster".to_owned());
        assert_eq!(unread(elsewhere), "secrets (none of 3 is in the cluster)");
    }
}
