//! The objects that a VM of a class needs, and where it is put.

use mcm_driver::{Code, DriverError, cloud::CloudFailure};
use roxmltree::Node;

use super::{
    calls::{Api, Found, Placement},
    device::{disk_change, nic_change},
    filter::Filter,
    inventory::{CLUSTER, DATASTORE, HOST, NETWORK, POOL, STORAGE_POD, TEMPLATE},
    login::Login,
    soap::{Ref, Xml, children, flag, number_of, reference_of, text_of},
    spec::Places,
};

/// Look-ups with the same key have the same answer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct TargetKey {
    pub login: Login,
    pub places: Places,
    pub disk: Option<i32>,
}

/// A vApp property of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    pub key: i64,
    pub id: String,
    pub is_configurable: bool,
    pub default: String,
}

/// The objects that a VM of a class needs.
#[derive(Debug)]
pub(crate) struct Target {
    pub folder: Ref,
    pub template: Ref,
    pub guest_id: String,
    /// `None` if the template has no vApp configuration.
    pub properties: Option<Vec<Property>>,
    /// The change of the first network card, or one that is added.
    pub nic: Xml,
    /// The change of the first disk.
    pub disk: Option<Xml>,
    pub pool: Ref,
    pub host: Option<Ref>,
    pub storage: Storage,
    pub customization: Option<Xml>,
}

/// Where the disks of a VM are put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Datastore(Ref),
    /// A datastore of this storage pod that vSphere recommends.
    Pod(Ref),
    /// Where vSphere recommends in this cluster.
    Cluster(Ref),
}

impl Target {
    /// Finds all objects.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: one is absent, or not of use.
    pub(crate) async fn find(api: &Api, places: &Places, disk: Option<i32>) -> Result<Self, DriverError> {
        let (datacenter, folder) = api.folder(&places.datacenter, &places.folder).await?;
        let find = |kind, text| api.find(&datacenter, kind, text);
        let template = find(TEMPLATE, &places.template).await?;
        let network = network_of(api, &datacenter, places).await?;
        let backing = backing_of(api, &network).await?;
        let cluster = match &places.cluster {
            Some(cluster) => Some(find(CLUSTER, cluster).await?),
            None => None,
        };
        let host = match &places.host {
            Some(host) => Some(find(HOST, host).await?),
            None => None,
        };
        let pool = match (&host, &cluster, &places.pool) {
            (Some(host), ..) => pool_of_host(api, host).await?,
            (_, Some(cluster), _) => pool_of_cluster(api, cluster).await?,
            (.., Some(pool)) => find(POOL, pool).await?,
            _ => return Err(wrong("the class has neither computeCluster nor resourcePool nor hostSystem")),
        };
        let storage = match (&places.storage_pod, cluster, &places.datastore) {
            (Some(pod), ..) => Storage::Pod(find(STORAGE_POD, pod).await?),
            (_, Some(cluster), _) => Storage::Cluster(cluster),
            (.., Some(datastore)) => Storage::Datastore(find(DATASTORE, datastore).await?),
            _ => return Err(wrong("the class has neither datastore nor datastoreCluster")),
        };
        let customization = match &places.customization {
            Some(name) => Some(customization_of(api, name).await?),
            None => None,
        };
        let described = describe_template(api, &template, &backing, disk).await?;
        let Description { guest_id, properties, nic, disk } = described;
        Ok(Self { folder, template, guest_id, properties, nic, disk, pool, host, storage, customization })
    }

    /// Where vSphere puts a clone with this specification.
    ///
    /// # Errors
    /// [`Failure::Named`] with [`Code::ResourceExhausted`]: it has no place.
    pub(crate) async fn placement(
        &self,
        api: &Api,
        name: &str,
        clone: &CloneSpec<'_>,
    ) -> Result<Placement, CloudFailure> {
        let none = |of: &str| {
            let message = format!("vSphere recommends no place for VM {name} in the {of}");
            CloudFailure::Named { code: Code::ResourceExhausted, name: "NoRecommendation".to_owned(), message }
        };
        let (host, template) = (self.host.clone(), &self.template);
        match &self.storage {
            Storage::Datastore(datastore) => Ok(Placement { host, datastore: Some(datastore.clone()) }),
            Storage::Pod(pod) => {
                let unplaced = clone(&Placement { host: host.clone(), datastore: None });
                let spec = Xml::new()
                    .text("type", "clone")
                    .reference("vm", template)
                    .tag("podSelectionSpec", &Xml::new().reference("storagePod", pod))
                    .tag("cloneSpec", &unplaced)
                    .text("cloneName", name)
                    .reference("folder", &self.folder);
                let found = api.recommend_datastore(&spec).await?;
                Ok(Placement { host, datastore: Some(found.ok_or_else(|| none("storage pod"))?) })
            }
            Storage::Cluster(cluster) => {
                let unplaced = clone(&Placement { host: host.clone(), datastore: None });
                let spec = Xml::new()
                    .reference("vm", template)
                    .text("placementType", "clone")
                    .tag("cloneSpec", &unplaced)
                    .text("cloneName", name);
                let found = api.place(cluster, &spec).await?.ok_or_else(|| none("cluster"))?;
                Ok(Placement { host: host.or(found.host), datastore: found.datastore })
            }
        }
    }
}

/// Makes a clone specification for a placement.
pub(crate) type CloneSpec<'a> = dyn Fn(&Placement) -> Xml + Send + Sync + 'a;

async fn customization_of(api: &Api, name: &str) -> Result<Xml, DriverError> {
    api.customization(name).await.map_err(|failure| {
        let error = api.error(&failure, &format!("a look at customization {name}"));
        if failure.is("NotFound") { wrong(&format!("there is no customization {name}")) } else { error }
    })
}

/// The network of a class. Networks of several switches may have one name.
pub(crate) async fn network_of(api: &Api, datacenter: &str, places: &Places) -> Result<Ref, DriverError> {
    let (name, Some(switch)) = (&places.network, &places.switch) else {
        return api.find(datacenter, NETWORK, &places.network).await;
    };
    let mut found = api.search(datacenter, NETWORK, name.rsplit('/').next().unwrap_or(name)).await?;
    if found.len() > 1 {
        let mut on_switch = Vec::new();
        for network in found {
            if switch_of(api, &network).await?.is_some_and(|(_, uuid)| uuid.eq_ignore_ascii_case(switch)) {
                on_switch.push(network);
            }
        }
        found = on_switch;
    }
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(wrong(&format!("there is no network {name} on a switch with switchUuid {switch}"))),
        (Some(_), _) => Err(wrong(&format!("several networks {name} are on the switch with switchUuid {switch}"))),
    }
}

/// The key of a port group, and the UUID of its switch.
async fn switch_of(api: &Api, network: &Ref) -> Result<Option<(String, String)>, DriverError> {
    const SWITCH: &str = "config.distributedVirtualSwitch";
    if network.kind != "DistributedVirtualPortgroup" {
        return Ok(None);
    }
    // Types of switches are derived from this one.
    let next = ("DistributedVirtualSwitch", ["uuid"].as_slice());
    let filter = Filter::with_next(network.clone(), &["key", SWITCH], SWITCH, next);
    let read = |found: Found<'_, '_>| Some(Some((found.text("key"), found.text("uuid"))));
    let found = looked(api, network, api.retrieve(&[filter], read).await)?;
    let key = found.iter().find_map(|(key, _)| key.clone());
    let uuid = found.iter().find_map(|(_, uuid)| uuid.clone());
    match (key, uuid) {
        (Some(key), Some(uuid)) => Ok(Some((key, uuid))),
        _ => Err(DriverError::new(Code::Unknown, format!("network {} has no switch that can be read", network.id))),
    }
}

/// How a network card is connected to a network.
async fn backing_of(api: &Api, network: &Ref) -> Result<Xml, DriverError> {
    let backing = |kind: &str, content: &Xml| Xml::new().typed("backing", kind, content);
    let port = |port: &Xml| {
        let content = Xml::new().tag("port", port);
        backing("VirtualEthernetCardDistributedVirtualPortBackingInfo", &content)
    };
    match network.kind.as_str() {
        "DistributedVirtualPortgroup" => match switch_of(api, network).await? {
            Some((key, uuid)) => Ok(port(&Xml::new().text("switchUuid", &uuid).text("portgroupKey", &key))),
            None => Err(wrong(&format!("network {} has no switch", network.id))),
        },
        "OpaqueNetwork" => {
            const SUMMARY: &str = "summary";
            let read = |found: Found<'_, '_>| {
                let summary = found.value(SUMMARY)?;
                Some(Some((text_of(summary, "opaqueNetworkId")?, text_of(summary, "opaqueNetworkType")?)))
            };
            let (id, kind) = one(api, network, &[SUMMARY], read).await?;
            let content = Xml::new().text("opaqueNetworkId", &id).text("opaqueNetworkType", &kind);
            Ok(backing("VirtualEthernetCardOpaqueNetworkBackingInfo", &content))
        }
        "Network" => {
            let name = one(api, network, &["name"], |found| Some(found.text("name"))).await?;
            let content = Xml::new().text("deviceName", &name).reference("network", network);
            Ok(backing("VirtualEthernetCardNetworkBackingInfo", &content))
        }
        _ => {
            let uuid = one(api, network, &["uuid"], |found| Some(found.text("uuid"))).await?;
            Ok(port(&Xml::new().text("switchUuid", &uuid)))
        }
    }
}

async fn pool_of_cluster(api: &Api, cluster: &Ref) -> Result<Ref, DriverError> {
    let read = |found: Found<'_, '_>| found.value("resourcePool").and_then(reference_of).map(Some);
    one(api, cluster, &["resourcePool"], read).await
}

/// The root pool of the cluster of a host, or of the host.
async fn pool_of_host(api: &Api, host: &Ref) -> Result<Ref, DriverError> {
    let read = |found: Found<'_, '_>| found.value("parent").and_then(reference_of).map(Some);
    let parent = one(api, host, &["parent"], read).await?;
    pool_of_cluster(api, &parent).await
}

/// The parts of a template that its clones change.
struct Description {
    guest_id: String,
    properties: Option<Vec<Property>>,
    nic: Xml,
    disk: Option<Xml>,
}

async fn describe_template(
    api: &Api,
    template: &Ref,
    backing: &Xml,
    disk: Option<i32>,
) -> Result<Description, DriverError> {
    const DEVICES: &str = "config.hardware.device";
    const GUEST: &str = "config.guestId";
    const VAPP: &str = "config.vAppConfig";
    let read = |found: Found<'_, '_>| {
        let devices = found.value(DEVICES)?;
        let disk = disk.map(|size| disk_change(devices, size)).transpose();
        Some(Some(disk.map(|disk| Description {
            guest_id: found.text(GUEST).unwrap_or_default(),
            properties: found.value(VAPP).map(properties_of),
            nic: nic_change(devices, backing),
            disk,
        })))
    };
    one(api, template, &[DEVICES, GUEST, VAPP], read).await?.map_err(|problem| wrong(&problem))
}

/// The properties of a vApp configuration.
pub(crate) fn properties_of(vapp: Node<'_, '_>) -> Vec<Property> {
    let property = |node: Node<'_, '_>| {
        Some(Property {
            key: number_of(node, "key")?,
            id: text_of(node, "id")?,
            is_configurable: flag(node, "userConfigurable"),
            default: text_of(node, "defaultValue").unwrap_or_default(),
        })
    };
    children(vapp, "property").filter_map(property).collect()
}

/// Reads an object that was found before.
async fn one<T>(
    api: &Api,
    object: &Ref,
    properties: &[&'static str],
    read: impl FnMut(Found<'_, '_>) -> Option<Option<T>>,
) -> Result<T, DriverError> {
    let found = looked(api, object, api.retrieve(&[Filter::for_object(object.clone(), properties)], read).await)?;
    let nothing = || DriverError::new(Code::Unknown, format!("{} {} cannot be read", object.kind, object.id));
    found.into_iter().next().ok_or_else(nothing)
}

fn looked<T>(api: &Api, object: &Ref, found: Result<T, CloudFailure>) -> Result<T, DriverError> {
    found.map_err(|failure| api.error(&failure, &format!("a look at {} {}", object.kind, object.id)))
}

fn wrong(text: &str) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}
