//! Reads the API servers and the clouds, without changing anything.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::DynamicResourceScope,
};

use super::{
    Kind, MachineObjects, MigrationDirection, MigrationUnit, Snapshot, UnstructuredObject, snapshot::CloudAnswers, swap,
};
use mcm_api::machine::{Machine, MachineClass};
use mcm_controllers::machine;
use mcm_conversion::{
    UserAnswers,
    types::{self, MigrationSide, names},
};
use mcm_driver::{Code, Driver, MachineRequest, SecretData, VmsByProviderId};
use mcm_driver_host::DriverCatalogue;
use mcm_runtime::{objects::chain, owners::VmOwners, secrets::SecretCache};

/// Concurrent calls of the cloud.
const CALLS: usize = 8;

/// The driver of a class, and the data of its Secrets; an error is a text for users.
type ClassAccess = Result<(Arc<dyn Driver>, SecretData), String>;
/// The classes of machines by name.
type ClassesByName = BTreeMap<String, (Arc<MachineClass>, ClassAccess)>;

/// The two API servers and the cloud of a migration.
pub struct MigrationEnvironment {
    /// The management cluster.
    pub management: Client,
    /// The cluster of the Nodes.
    pub workload: Client,
    /// Namespace of the objects.
    pub namespace: String,
    /// The drivers.
    pub drivers: DriverCatalogue,
    /// Secret with the credentials for a class that is derived from the template of another provider.
    pub credentials: Option<String>,
    /// Values that this template leaves to its provider.
    pub answers: UserAnswers,
}

/// Something cannot be read. Nothing is concluded from it.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// An API server does not know the kind.
    #[error("the management cluster does not serve {kind}: install Cluster API core and the provider mcm")]
    NotServed {
        /// The kind.
        kind: Kind,
    },
    /// Objects cannot be listed.
    #[error("list {kind} objects")]
    List {
        /// Their kind.
        kind: Kind,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object cannot be read.
    #[error("get {kind} {name}{}", remedy(*kind))]
    Get {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

const fn remedy(kind: Kind) -> &'static str {
    match kind {
        Kind::Namespace => ": the user needs the ClusterRole mcm-adopt-hand-over in this namespace",
        _ => "",
    }
}

impl MigrationEnvironment {
    /// The objects of a kind.
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        self.api_of(kind)
    }

    /// The objects of a kind, decoded as a type that has only some of its fields.
    pub fn api_of<K>(&self, kind: Kind) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let resource = kind.resource().api_resource();
        match kind {
            Kind::Node => Api::all_with(self.workload.clone(), &resource),
            Kind::Namespace => Api::all_with(self.management.clone(), &resource),
            _ => Api::namespaced_with(self.management.clone(), &self.namespace, &resource),
        }
    }

    /// An empty snapshot.
    pub fn nothing(&self, cluster: &str, unit: &MigrationUnit) -> Snapshot {
        Snapshot {
            namespace: self.namespace.clone(),
            cluster: cluster.to_owned(),
            unit: unit.clone(),
            objects: BTreeMap::new(),
            credentials: self.credentials.clone(),
            answers: self.answers.clone(),
            cloud: None,
            now: Timestamp::now(),
        }
    }

    /// Reads everything that a plan needs, except for the cloud.
    ///
    /// # Errors
    /// Something cannot be read.
    pub async fn observe(
        &self,
        cluster: &str,
        unit: &MigrationUnit,
        way: MigrationDirection,
    ) -> Result<Snapshot, NotRead> {
        let mut snapshot = self.nothing(cluster, unit);
        for kind in way.everything(unit) {
            self.read(kind, &mut snapshot).await?;
        }
        Ok(snapshot)
    }

    /// Reads all objects of a kind again; of Secrets only referenced ones, and of Namespaces only that of the objects.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn read(&self, kind: Kind, snapshot: &mut Snapshot) -> Result<(), NotRead> {
        let names = match kind {
            Kind::Secret => Some(snapshot.secret_names()),
            Kind::Namespace => Some([self.namespace.clone()].into()),
            _ => None,
        };
        let read = match names {
            Some(names) => self.get(kind, names).await?,
            None => match self.list(kind).await {
                // A provider that is not installed has no objects.
                Err(NotRead::NotServed { .. }) if kind.is_of_other() => Vec::new(),
                listed => listed?,
            },
        };
        snapshot.objects.retain(|id, _| id.kind != kind);
        snapshot.objects.extend(read.into_iter().map(|object| (object.id(), object)));
        Ok(())
    }

    async fn get(&self, kind: Kind, names: BTreeSet<String>) -> Result<Vec<UnstructuredObject>, NotRead> {
        let mut read = Vec::new();
        for name in names {
            let found = self.api(kind).get_opt(&name).await;
            let found = found.map_err(|source| NotRead::Get { kind, name, source: Box::new(source) })?;
            read.extend(found.and_then(|one| stored(kind, &one)));
        }
        Ok(read)
    }

    /// All objects of a kind.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn list(&self, kind: Kind) -> Result<Vec<UnstructuredObject>, NotRead> {
        match self.api(kind).list(&ListParams::default()).await {
            Ok(list) => Ok(list.iter().filter_map(|one| stored(kind, one)).collect()),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(NotRead::NotServed { kind }),
            Err(source) => Err(NotRead::List { kind, source: Box::new(source) }),
        }
    }

    /// Calls the drivers for the machines of a side: for each VM, and for the VMs of each class.
    pub async fn ask_cloud(&self, s: &Snapshot, way: MigrationDirection, side: MigrationSide) -> CloudAnswers {
        let machines: Vec<Machine> =
            asked_for(s, side).iter().filter_map(|member| machine_of(s, member, way)).collect();
        // An orphan collector checks all classes.
        let of_all =
            s.all(Kind::Class).filter(|_| way.keeps_core()).filter_map(UnstructuredObject::decoded::<MachineClass>);
        // Without a watch, so each Secret is read live.
        let secrets = SecretCache::new(mcm_controllers::secret::CACHE.empty(), &self.management);
        let of_machines = machines.iter().filter_map(|machine| class_of(s, machine, way));
        // Without machines, only the class of the pool shows its group.
        let of_pool = s.pool().and_then(|_| serde_json::from_value::<MachineClass>(swap::class(s)?).ok());
        let all = of_machines.chain(of_all).chain(of_pool).map(|class| (class.name_any(), Arc::new(class)));
        let all: BTreeMap<String, Arc<MachineClass>> = all.collect();
        let ask = async |class: &MachineClass| {
            let access = self.access(class, &secrets).await;
            let listed = match &access {
                Ok((driver, secret)) => driver.list(class, secret).await.map_err(|error| error.message),
                Err(error) => Err(error.clone()),
            };
            let named = |vms: VmsByProviderId| vms.into_iter().map(|(id, vm)| (id, vm.machine)).collect();
            (access, listed.map(|vms| Arc::<BTreeMap<String, String>>::new(named(vms))))
        };
        let answers = shared(all.values(), ask).await;
        let (mut classes, mut listed) = (ClassesByName::new(), BTreeMap::new());
        for ((name, class), (access, vms)) in all.into_iter().zip(answers.into_values()) {
            classes.insert(name.clone(), (class, access));
            listed.insert(name, vms);
        }
        let known = &classes;
        let find = |machine: Machine| async move { (machine.name_any(), find_vm(machine, known).await) };
        let found = stream::iter(machines).map(find).buffer_unordered(CALLS).collect().await;
        CloudAnswers { found, listed, members: members_of_group(s, &classes).await }
    }

    async fn access(&self, class: &MachineClass, secrets: &SecretCache) -> ClassAccess {
        let name = class.name_any();
        let driver = self.drivers.get(class).map_err(|error| error.to_string())?;
        let merged = machine::secrets_of_class(class, secrets).await;
        let merged =
            merged.map_err(|error| format!("cannot read the Secrets of MachineClass {name}: {}", chain(&error)))?;
        let secret = merged.complete().map_err(|missing| format!("MachineClass {name} needs {missing}"))?;
        Ok((driver, secret))
    }

    /// Adds the tags of its class and the marker of the namespace to the VM of a machine, or removes the marker and the
    /// tags by which it is listed.
    ///
    /// # Errors
    /// The VM cannot be tagged; a text for users.
    pub async fn tag(&self, s: &Snapshot, way: MigrationDirection, name: &str, is_listed: bool) -> Result<(), String> {
        let member = s.recorded().find(|member| member.name == name);
        let machine = member.and_then(|member| machine_of(s, &member, way));
        let machine = machine.ok_or_else(|| format!("the machine of VM {name} is unknown"))?;
        let class = class_of(s, &machine, way).ok_or_else(|| format!("the class of VM {name} cannot be read"))?;
        let secrets = SecretCache::new(mcm_controllers::secret::CACHE.empty(), &self.management);
        let merged = machine::secrets_of_class(&class, &secrets).await.map_err(|error| chain(&error))?;
        let secret = merged.complete().map_err(|missing| format!("VM {name} cannot be tagged without {missing}"))?;
        let driver = self.drivers.get(&class).map_err(|error| error.to_string())?;
        let owner = VmOwners::new(&self.management)
            .namespace_owner(&self.namespace)
            .await
            .map_err(|error| error.to_string())?;
        let (machine, class, owner) = (Arc::new(machine), Arc::new(class), owner.marker().to_owned());
        let request = MachineRequest { machine, class, secret, owner, may_pause: false };
        driver.tag(&request, is_listed).await.map_err(|error| error.message)
    }

    /// Names of the Clusters in a namespace.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn clusters(management: &Client, namespace: &str) -> Result<Vec<String>, kube::Error> {
        let clusters: Api<types::Cluster> = Api::namespaced(management.clone(), namespace);
        Ok(clusters.list_metadata(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect())
    }

    /// The kubeconfig of a Cluster, from its Secret.
    ///
    /// # Errors
    /// The Secret cannot be read.
    pub async fn kubeconfig_of(
        management: &Client,
        namespace: &str,
        cluster: &str,
    ) -> Result<Option<Vec<u8>>, NotRead> {
        let name = format!("{cluster}-kubeconfig");
        let secrets: Api<Secret> = Api::namespaced(management.clone(), namespace);
        let found = secrets.get_opt(&name).await;
        let found = found.map_err(|source| NotRead::Get { kind: Kind::Secret, name, source: Box::new(source) })?;
        Ok(found.and_then(|secret| secret.data?.remove(names::KUBECONFIG_KEY)).map(|value| value.0))
    }
}

/// ID of the VM of a machine; `None` if the cloud has none.
async fn find_vm(machine: Machine, classes: &ClassesByName) -> Result<Option<String>, String> {
    let name = &machine.spec.class.name;
    let missing = || format!("MachineClass {name} does not exist or cannot be read");
    let (class, access) = classes.get(name).ok_or_else(missing)?;
    let (driver, secret) = access.clone()?;
    let (class, machine) = (Arc::clone(class), Arc::new(machine));
    let request = MachineRequest { machine, class, secret, owner: String::new(), may_pause: false };
    match driver.status(&request).await {
        Ok(vm) => Ok(Some(vm.provider_id)),
        Err(error) if error.code == Code::NotFound => Ok(None),
        Err(error) => Err(error.message),
    }
}

/// The members of the group of the migrated pool.
async fn members_of_group(s: &Snapshot, classes: &ClassesByName) -> Option<Result<BTreeSet<String>, String>> {
    let pool = s.pool()?;
    let class = swap::class(s).and_then(|class| Some(class["metadata"]["name"].as_str()?.to_owned()));
    Some(match class.and_then(|class| classes.get(&class)) {
        None => Err("its MachineClass is not known".to_owned()),
        Some((_, Err(error))) => Err(error.clone()),
        Some((class, Ok((driver, secret)))) => {
            driver.members_of_group(class, secret, pool.name()).await.map_err(|error| error.message)
        }
    })
}

/// The class of a machine, stored or derived.
fn class_of(s: &Snapshot, machine: &Machine, way: MigrationDirection) -> Option<MachineClass> {
    let stored = s.find(Kind::Class, &machine.spec.class.name).map(|class| class.value.clone());
    let class = stored.or_else(|| swap::class(s).filter(|_| way.keeps_core()))?;
    serde_json::from_value(class).ok()
}

/// The answer for each class, by name. Classes that differ only by their names share one, such as those of MCMMachines that
/// describe their VM.
async fn shared<T: Clone>(
    classes: impl Iterator<Item = &Arc<MachineClass>>,
    ask: impl AsyncFn(&MachineClass) -> T,
) -> BTreeMap<String, T> {
    let (mut known, mut answers) = (BTreeMap::new(), BTreeMap::new());
    for class in classes.map(Arc::as_ref) {
        let content = MachineClass { metadata: ObjectMeta::default(), ..class.clone() };
        let answer = match known.entry(serde_json::to_string(&content).unwrap_or_default()) {
            Entry::Occupied(known) => T::clone(known.get()),
            Entry::Vacant(unknown) => unknown.insert(ask(class).await).clone(),
        };
        answers.insert(class.name_any(), answer);
    }
    answers
}

/// The machines of a side. VMs of a pool may be those of no machine for a while.
fn asked_for(s: &Snapshot, side: MigrationSide) -> Vec<MachineObjects<'_>> {
    let mut all = s.members_of(side);
    let known: BTreeSet<&str> = all.iter().map(|member| member.name).collect();
    let recorded = s.recorded().filter(|member| s.unit.is_pool() && !known.contains(member.name));
    let recorded: Vec<MachineObjects<'_>> = recorded.collect();
    all.extend(recorded);
    all
}

/// The machine in a request to its driver: the native one, or one with its future name and VM.
fn machine_of(s: &Snapshot, member: &MachineObjects<'_>, way: MigrationDirection) -> Option<Machine> {
    if member.native.is_some() || !way.keeps_core() {
        return member.native?.decoded();
    }
    let mut machine = Machine::default();
    machine.metadata.name = Some(member.name.to_owned());
    machine.metadata.namespace = Some(s.namespace.clone());
    machine.spec.class.name = swap::class_name(s, member)?;
    machine.spec.provider_id = member.driver_id();
    Some(machine)
}

/// Adds the type, which lists leave out.
fn stored(kind: Kind, object: &DynamicObject) -> Option<UnstructuredObject> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = kind.api_version().into();
    value["kind"] = kind.resource().name.into();
    Some(UnstructuredObject { kind, value })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A deployment of a thousand MCMMachines may have a thousand classes with one content.
    #[tokio::test]
    async fn classes_that_differ_by_name_only_are_asked_about_once() {
        let class = |name: &str, provider: &str| {
            let mut class = MachineClass { provider: provider.to_owned(), ..MachineClass::default() };
            class.metadata.name = Some(name.to_owned());
            Arc::new(class)
        };
        let classes = [class("a", "AWS"), class("b", "AWS"), class("c", "GCP")];
        let asked = RefCell::new(Vec::new());
        let answers = shared(classes.iter(), async |class: &MachineClass| {
            asked.borrow_mut().push(class.name_any());
            class.provider.clone()
        });
        let answers = answers.await;
        assert_eq!(asked.take(), ["a", "c"]);
        assert_eq!(
            answers.into_iter().collect::<Vec<_>>(),
            [("a", "AWS"), ("b", "AWS"), ("c", "GCP")].map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        );
    }
}
