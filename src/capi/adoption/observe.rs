//! Reads the API servers and asks the cloud, both without changing anything.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};

use super::{
    object::{Id, Kind, Object},
    snapshot::{Cloud, Snapshot},
};
use crate::{
    api::machine::{Machine, MachineClass},
    capi::types::{Side, names},
    controllers::{machine, secret::MetadataOfSecret},
    driver::{Catalogue, MachineRequest, SecretData},
    runtime::{cell::Kept, objects::chain, secrets::Secrets},
};

/// Calls of the cloud at a time.
const CALLS: usize = 8;

/// The classes of machines by name, and the data of their Secrets; an error is a text for people.
type Classes = BTreeMap<String, (Arc<MachineClass>, Result<SecretData, String>)>;

/// The two API servers and the cloud of a migration.
pub struct World {
    /// The management cluster.
    pub management: Client,
    /// The cluster of the Nodes.
    pub workload: Client,
    /// Namespace of the objects.
    pub namespace: String,
    /// The drivers.
    pub drivers: Catalogue,
}

/// Something cannot be read. Nothing follows from that.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// An API server does not know the kind.
    #[error("the management cluster does not serve {kind}: install core of Cluster API and the provider mcm")]
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
    /// A Secret cannot be read.
    #[error("get Secret {name}")]
    Secret {
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

impl World {
    /// The objects of a kind.
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let (group, version, name, plural) = kind.resource();
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
        match kind {
            Kind::Node => Api::all_with(self.workload.clone(), &resource),
            _ => Api::namespaced_with(self.management.clone(), &self.namespace, &resource),
        }
    }

    /// Everything that a plan needs but the cloud.
    ///
    /// # Errors
    /// Something cannot be read.
    pub async fn observe(&self, cluster: &str, deployment: &str) -> Result<Snapshot, NotRead> {
        let mut snapshot = Snapshot {
            namespace: self.namespace.clone(),
            cluster: cluster.to_owned(),
            deployment: deployment.to_owned(),
            objects: BTreeMap::new(),
            cloud: None,
            now: Timestamp::now(),
        };
        for kind in Kind::LISTED.into_iter().chain([Kind::Node]) {
            let objects = self.list(kind).await?;
            snapshot.objects.extend(objects.into_iter().map(|object| (object.id(), object)));
        }
        for name in snapshot.secret_names() {
            let found = self.api(Kind::Secret).get_opt(&name).await;
            let found = found.map_err(|source| NotRead::Secret { name: name.clone(), source: Box::new(source) })?;
            let object = found.and_then(|one| stored(Kind::Secret, &one));
            snapshot.objects.extend(object.map(|object| (Id::new(Kind::Secret, &name), object)));
        }
        Ok(snapshot)
    }

    /// All objects of a kind.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn list(&self, kind: Kind) -> Result<Vec<Object>, NotRead> {
        match self.api(kind).list(&ListParams::default()).await {
            Ok(list) => Ok(list.iter().filter_map(|one| stored(kind, one)).collect()),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(NotRead::NotServed { kind }),
            Err(source) => Err(NotRead::List { kind, source: Box::new(source) }),
        }
    }

    /// What drivers say of the machines of a side: whether they find each VM, and which VMs each class has.
    pub async fn ask_cloud(&self, s: &Snapshot, side: Side) -> Cloud {
        let members = s.members_of(side);
        let natives: Vec<Machine> = members.iter().filter_map(|member| member.native?.decoded()).collect();
        // Without a watch, so each Secret is read live.
        let secrets = Secrets::new(MetadataOfSecret::cache(), &self.management);
        let mut classes = Classes::new();
        for machine in &natives {
            let name = &machine.spec.class.name;
            let class = s.find(Kind::Class, name).and_then(Object::decoded::<MachineClass>);
            if let Some(class) = class.filter(|_| !classes.contains_key(name)) {
                let merged = machine::secrets_of_class(&class, &secrets).await;
                let secret = merged
                    .map(|merged| merged.data)
                    .map_err(|error| format!("cannot read the Secrets of MachineClass {name}: {}", chain(&error)));
                classes.insert(name.clone(), (Arc::new(class), secret));
            }
        }
        let found = stream::iter(natives).map(|machine| self.find_vm(machine, &classes)).buffer_unordered(CALLS);
        let found = found.collect().await;
        let mut listed = BTreeMap::new();
        for (name, (class, secret)) in &classes {
            let vms = match (self.drivers.get(class), secret) {
                (Ok(driver), Ok(secret)) => driver.list(class, secret).await.map_err(|error| error.message),
                (Err(error), _) => Err(error.to_string()),
                (_, Err(error)) => Err(error.clone()),
            };
            listed.insert(name.clone(), vms);
        }
        Cloud { found, listed }
    }

    async fn find_vm(&self, machine: Machine, classes: &Classes) -> (String, Result<String, String>) {
        let name = machine.name_any();
        let Some((class, secret)) = classes.get(&machine.spec.class.name) else {
            return (name, Err(format!("MachineClass {} does not exist or cannot be read", machine.spec.class.name)));
        };
        let (driver, secret) = match (self.drivers.get(class), secret) {
            (Ok(driver), Ok(secret)) => (driver, secret),
            (Err(error), _) => return (name, Err(error.to_string())),
            (_, Err(error)) => return (name, Err(error.clone())),
        };
        let request = MachineRequest { machine: Arc::new(machine), class: Arc::clone(class), secret: secret.clone() };
        let answer = driver.status(&request).await;
        (name, answer.map(|vm| vm.provider_id).map_err(|error| error.message))
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
        let found = found.map_err(|source| NotRead::Secret { name, source: Box::new(source) })?;
        Ok(found.and_then(|secret| secret.data?.remove(names::KUBECONFIG_KEY)).map(|value| value.0))
    }
}

/// With its type, which lists leave out.
fn stored(kind: Kind, object: &DynamicObject) -> Option<Object> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = kind.api_version().into();
    value["kind"] = kind.resource().2.into();
    Some(Object { kind, value })
}
