//! A device of Equinix Metal: a server that is provisioned for a project.

use k8s_openapi::api::core::v1::NodeAddress;
use mcm_driver::{
    Vm,
    cloud::{CloudVm, VmOwnership},
};
use serde::{Deserialize, Deserializer};

use crate::{
    names::{IDS, MARKERS, OWNER_TAG, UID_TAG, value_of},
    spec::Scope,
};

/// State of a device whose deletion has begun: it may run for a moment, then its server is wiped.
const LEAVING: &str = "deprovisioning";
/// State of a deleted device.
const GONE: &str = "deleted";
/// States of a device that does not run.
const HALTED: [&str; 3] = ["inactive", "powering_off", "failed"];

/// A device. Fields that the API always sends must be there: an answer without them is an error.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Device {
    pub id: String,
    hostname: String,
    state: String,
    metro: Metro,
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// It cannot be deleted.
    #[serde(default, rename = "locked", deserialize_with = "null_as_default")]
    pub is_locked: bool,
    project: Option<Project>,
    #[serde(default, deserialize_with = "null_as_default")]
    ip_addresses: Vec<Address>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Metro {
    code: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Project {
    href: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Address {
    address: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    public: bool,
}

fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl Device {
    pub fn is_gone(&self) -> bool {
        self.state == GONE
    }

    pub fn provider_id(&self) -> String {
        IDS.node_form(&self.metro.code, &self.id)
    }

    pub fn vm(&self) -> Vm {
        Vm {
            provider_id: self.provider_id(),
            node_provider_id: None,
            node_name: self.hostname.clone(),
            zone: Some(self.metro.code.clone()),
            addresses: self.addresses(),
            last_known_state: None,
            halted: HALTED.contains(&self.state.as_str()).then(|| self.state.clone()),
        }
    }

    fn value_of(&self, key: &str) -> Option<&str> {
        self.tags.iter().find_map(|tag| value_of(tag, key))
    }

    fn tags(&self) -> impl Iterator<Item = &str> + Clone {
        self.tags.iter().map(String::as_str)
    }

    /// Private addresses, then public ones, then the name.
    fn addresses(&self) -> Vec<NodeAddress> {
        let of = |is_public: bool, kind: &'static str| {
            let some = self.ip_addresses.iter().filter(move |one| one.public == is_public);
            some.filter_map(move |one| Some((kind, one.address.as_deref()?)))
        };
        let found = of(false, "InternalIP").chain(of(true, "ExternalIP")).chain([("Hostname", self.hostname.as_str())]);
        found.map(|(kind, address)| NodeAddress { type_: kind.to_owned(), address: address.to_owned() }).collect()
    }
}

impl CloudVm for Device {
    type Scope = Scope;

    const REUSES_IDS: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn machine_name(&self) -> &str {
        &self.hostname
    }

    fn machine_uid(&self) -> Option<&str> {
        self.value_of(UID_TAG)
    }

    fn is_leaving(&self) -> bool {
        self.state == LEAVING
    }

    fn owner(&self) -> Option<&str> {
        self.value_of(OWNER_TAG)
    }

    /// A device without the markers of any cluster belongs to mcm only with the UID of a Machine: a project has devices of other
    /// users.
    fn belonging(&self, scope: &Scope) -> VmOwnership {
        let is_elsewhere = self.project.as_ref().is_some_and(|project| !is_below(&project.href, &scope.project));
        let has_cluster = self.tags().any(|tag| tag == scope.markers.cluster);
        let is_foreign = scope.markers.are_foreign(self.tags(), MARKERS);
        if is_elsewhere || is_foreign {
            VmOwnership::Foreign
        } else if scope.markers.are_on(self.tags()) {
            VmOwnership::Ours
        } else if has_cluster || self.machine_uid().is_some() {
            VmOwnership::Unmarked
        } else {
            VmOwnership::Foreign
        }
    }
}

/// A link ends with an ID.
fn is_below(href: &str, id: &str) -> bool {
    href.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(id))
}

/// The tags of a Machine's device: those of the class, and ours.
pub(crate) fn tags_of(of_class: &[String], uid: &str, owner: &str) -> Vec<String> {
    of_class.iter().cloned().chain([format!("{UID_TAG}={uid}")]).chain(owner_tag(owner)).collect()
}

/// The tags of a device after which a list of its class contains it.
pub(crate) fn listed_tags(tags: &[String], scope: &Scope, owner: &str) -> Vec<String> {
    let markers = [&scope.markers.cluster, &scope.markers.role];
    let is_kept = |tag: &&String| value_of(tag, OWNER_TAG).is_none() && !markers.contains(tag);
    let added = markers.into_iter().cloned().chain(owner_tag(owner));
    tags.iter().filter(is_kept).cloned().chain(added).collect()
}

/// The tags of a device after which no list contains it. The marker of the cluster stays.
pub(crate) fn unlisted_tags(tags: &[String], scope: &Scope) -> Vec<String> {
    let is_kept = |tag: &&String| value_of(tag, OWNER_TAG).is_none() && **tag != scope.markers.role;
    tags.iter().filter(is_kept).cloned().collect()
}

fn owner_tag(owner: &str) -> Option<String> {
    (!owner.is_empty()).then(|| format!("{OWNER_TAG}={owner}"))
}
