//! A machine of metal-stack that is allocated: a server in a rack.

use k8s_openapi::api::core::v1::NodeAddress;
use serde::{Deserialize, Deserializer};

use super::{
    names::{CLUSTER_TAG, IDS, OWNER_TAG, UID_TAG, UNLISTED_TAG, value_of},
    spec::{Scope, cluster_of},
};
use mcm_driver::{
    ListedVm, Vm,
    cloud::{CloudVm, VmOwnership},
};

/// The role of machines that are not firewalls.
const MACHINE: &str = "machine";

/// An allocated machine. Fields that metal-api always sends must be there: an answer without them is an error.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Server {
    pub id: String,
    partition: Partition,
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    pub allocation: Allocation,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Partition {
    id: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Allocation {
    /// Differs for each allocation of the machine.
    #[serde(rename = "allocationuuid")]
    pub uuid: String,
    name: String,
    hostname: String,
    project: String,
    role: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    #[serde(default, deserialize_with = "null_as_default")]
    networks: Vec<Network>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Network {
    #[serde(default, deserialize_with = "null_as_default")]
    ips: Vec<String>,
    #[serde(default)]
    private: bool,
}

/// Go programs send `null` for an empty list.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl Server {
    /// It is no firewall. A firewall of the cluster has the same tag.
    pub fn is_machine(&self) -> bool {
        self.allocation.role == MACHINE
    }

    /// Another infrastructure provider has taken it over.
    pub fn is_unlisted(&self) -> bool {
        self.value_of(UNLISTED_TAG).is_some()
    }

    pub fn provider_id(&self) -> String {
        IDS.node_form(&self.partition.id, &self.id)
    }

    pub fn vm(&self) -> Vm {
        Vm {
            provider_id: self.provider_id(),
            node_provider_id: None,
            node_name: self.allocation.name.clone(),
            zone: Some(self.partition.id.clone()),
            addresses: self.addresses(),
            last_known_state: None,
            halted: None,
        }
    }

    /// Its tags, with others in place of those with the same keys.
    pub fn tags_with(&self, tags: &[String], without: &[&str]) -> Vec<String> {
        let key = |tag: &str| tag.split('=').next().unwrap_or_default().to_owned();
        let is_kept = |tag: &&String| {
            !without.iter().any(|key| value_of(tag, key).is_some()) && !tags.iter().any(|other| key(other) == key(tag))
        };
        self.tags.iter().filter(is_kept).chain(tags).cloned().collect()
    }

    fn value_of(&self, key: &str) -> Option<&str> {
        self.tags.iter().find_map(|tag| value_of(tag, key))
    }

    /// Addresses in private networks, then others, then the name.
    fn addresses(&self) -> Vec<NodeAddress> {
        let of = |is_private: bool, kind: &'static str| {
            let networks = self.allocation.networks.iter().filter(move |network| network.private == is_private);
            networks.flat_map(|network| &network.ips).map(move |address| (kind, address.as_str()))
        };
        let found = of(true, "InternalIP").chain(of(false, "ExternalIP"));
        let found = found.chain([("Hostname", self.allocation.hostname.as_str())]);
        found.map(|(kind, address)| NodeAddress { type_: kind.to_owned(), address: address.to_owned() }).collect()
    }
}

impl CloudVm for Server {
    type Scope = Scope;

    /// A machine that was freed is allocated to others.
    const REUSES_IDS: bool = true;

    fn id(&self) -> &str {
        &self.id
    }

    fn machine_name(&self) -> &str {
        &self.allocation.name
    }

    fn machine_uid(&self) -> Option<&str> {
        self.value_of(UID_TAG)
    }

    fn owner(&self) -> Option<&str> {
        self.value_of(OWNER_TAG)
    }

    fn listed(&self) -> ListedVm {
        ListedVm::new(&self.allocation.hostname, self.owner().map(str::to_owned))
    }

    fn is_listed(&self, _: &Scope) -> bool {
        !self.is_unlisted()
    }

    fn belonging(&self, scope: &Scope) -> VmOwnership {
        if self.allocation.project != scope.project || !self.is_machine() {
            return VmOwnership::Foreign;
        }
        match cluster_of(&self.tags) {
            Some(cluster) if cluster == scope.cluster => VmOwnership::Ours,
            Some(_) => VmOwnership::Foreign,
            None => VmOwnership::Unmarked,
        }
    }
}

/// A machine, allocated or not.
#[derive(Deserialize)]
pub(super) struct Freed {
    /// Its allocation, while it has one.
    pub allocation: Option<Allocation>,
}

/// The tags of a Machine's allocation: those of the class, and ours.
pub(super) fn tags_of(of_class: &[String], uid: &str, owner: &str) -> Vec<String> {
    let owner = (!owner.is_empty()).then(|| format!("{OWNER_TAG}={owner}"));
    of_class.iter().cloned().chain([format!("{UID_TAG}={uid}")]).chain(owner).collect()
}

/// The tags by which a list finds a machine of a class.
pub(super) fn listing_tags(scope: &Scope, owner: &str) -> Vec<String> {
    let owner = (!owner.is_empty()).then(|| format!("{OWNER_TAG}={owner}"));
    [format!("{CLUSTER_TAG}={}", scope.cluster)].into_iter().chain(owner).collect()
}
