//! `providerSpec` of the provider OpenStack: its fields as the reference names them, and their problems.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::IpAddr};

use mcm_driver::{
    Code, DriverError,
    cloud::{ClassMarkers, filled, number},
    spec::{ClassProblems, FieldReader, ScalarType, boolean, one_of, quotable, string, text},
};
use serde_json::Value;

use super::names::{MARKERS, is_own};

const API_VERSIONS: &[&str] = &["openstack.machine.gardener.cloud/v1alpha1"];
const KINDS: &[&str] = &["MachineProviderConfig"];
const TAGS: &str = "providerSpec.spec.tags";
const FIELDS: [&str; 18] = [
    "imageID",
    "imageName",
    "region",
    "availabilityZone",
    "flavorName",
    "keyName",
    "securityGroups",
    "tags",
    "networkID",
    "networks",
    "subnetID",
    "subnetIDs",
    "podNetworkCidr",
    "podNetworkCIDRs",
    "rootDiskSize",
    "rootDiskType",
    "useConfigDrive",
    "serverGroupID",
];
/// Nova takes no longer keys and values.
const LONGEST: usize = 255;

/// A resource by its ID or by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    Id(String),
    Name(String),
}

impl Default for Reference {
    fn default() -> Self {
        Self::Name(String::new())
    }
}

/// A network of the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    pub network: Reference,
    /// Its ports accept the addresses of pods.
    pub has_pods: bool,
}

/// A `providerSpec`. Fields that are wrong have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    pub image: Reference,
    pub region: String,
    pub zone: String,
    pub flavor: String,
    pub key_pair: String,
    /// Names.
    pub security_groups: Vec<String>,
    /// Metadata of servers and volumes, without keys that only mcm sets.
    pub tags: BTreeMap<String, String>,
    pub networks: Vec<Network>,
    /// Subnets of the only network, in order: with them a port is created before the server.
    pub subnets: Vec<String>,
    /// Addresses of pods, in order.
    pub pod_cidrs: Vec<String>,
    /// In GB; 0 boots from the image itself.
    pub disk_size: i32,
    /// With it a volume is created before the server.
    pub disk_type: Option<String>,
    pub config_drive: Option<bool>,
    pub server_group: Option<String>,
}

/// How servers of a class differ from others of the project.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub region: String,
    pub markers: ClassMarkers,
}

impl Spec {
    /// Reads a `providerSpec` and reports its problems.
    pub fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        if value.is_null() {
            problems.expected("providerSpec", "an object", "nothing");
            return Self::default();
        }
        let mut fields = FieldReader::of_spec(value, &["apiVersion", "kind", "spec"], problems);
        fields.required("apiVersion", &one_of(API_VERSIONS));
        fields.required("kind", &one_of(KINDS));
        let read = fields.required_object("spec", &FIELDS, |fields| Some(Read::from_fields(fields)));
        let Some(read) = read else { return Self::default() };
        read.check(problems);
        read.into_spec()
    }

    /// The parts that look-ups and deletions need. Other fields may be wrong: a server can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no region or no markers.
    pub fn scope(&self) -> Result<Scope, DriverError> {
        match ClassMarkers::from_keys(self.tags.keys().map(String::as_str), MARKERS) {
            Some(markers) if !self.region.is_empty() => Ok(Scope { region: self.region.clone(), markers }),
            _ => {
                let message = format!(
                    "the class needs providerSpec.spec.region and tags with the keys {}<cluster> and {}<role>: without them its \
                     servers could not be told from others",
                    MARKERS.cluster, MARKERS.role
                );
                Err(DriverError::new(Code::InvalidArgument, message))
            }
        }
    }

    /// The network in which a port is created before the server, if one is.
    pub fn network_of_port(&self) -> Option<&str> {
        match self.networks.as_slice() {
            [Network { network: Reference::Id(id), .. }] if !self.subnets.is_empty() => Some(id),
            _ => None,
        }
    }

    /// Ports of servers have to accept the addresses of pods.
    pub fn has_pods(&self) -> bool {
        !self.pod_cidrs.is_empty() && self.networks.iter().any(|network| network.has_pods)
    }
}

/// The fields before they are combined.
struct Read {
    spec: Spec,
    image: (Option<String>, Option<String>),
    network_id: Option<String>,
    /// IDs and names in a list of networks.
    networks: Vec<(Option<String>, Option<String>, bool)>,
    keys: Vec<String>,
}

impl Read {
    fn from_fields(fields: &mut FieldReader<'_>) -> Self {
        let image = (id(fields, "imageID"), filled(fields, "imageName"));
        let networks = fields.objects("networks", &["id", "name", "podNetwork"], |one| {
            let has_pods = one.optional("podNetwork", &boolean()).unwrap_or_default();
            Some((id(one, "id"), filled(one, "name"), has_pods))
        });
        let subnets = [id(fields, "subnetID")].into_iter().flatten();
        let subnets = subnets.chain(fields.list("subnetIDs", &uuid()).into_iter().filter(|id| !id.is_empty()));
        let cidrs = fields.optional("podNetworkCidr", &cidr()).into_iter();
        let cidrs = cidrs.chain(fields.list("podNetworkCIDRs", &cidr())).filter(|cidr| !cidr.is_empty());
        let tags = fields.map("tags", &tag());
        let mut required = |name| fields.required(name, &string()).unwrap_or_default();
        let (region, zone) = (required("region"), required("availabilityZone"));
        let (flavor, key_pair) = (required("flavorName"), required("keyName"));
        let spec = Spec {
            image: Reference::default(),
            region,
            zone,
            flavor,
            key_pair,
            security_groups: fields.list("securityGroups", &string()),
            networks: Vec::new(),
            subnets: in_order(subnets),
            pod_cidrs: in_order(cidrs),
            disk_size: fields.optional("rootDiskSize", &number(0, i32::MAX)).unwrap_or_default(),
            disk_type: fields.optional("rootDiskType", &text()),
            config_drive: fields.optional("useConfigDrive", &boolean()),
            server_group: id(fields, "serverGroupID"),
            tags: BTreeMap::new(),
        };
        let keys = tags.keys().cloned().collect();
        let tags = tags.into_iter().filter(|(key, _)| !is_own(key)).collect();
        Self { spec: Spec { tags, ..spec }, image, network_id: id(fields, "networkID"), networks, keys }
    }

    /// Reports what single fields do not show.
    fn check(&self, problems: &mut ClassProblems) {
        let path = |field: &str| format!("providerSpec.spec.{field}");
        match &self.image {
            (None, None) => problems.expected(path("imageName"), "imageID or imageName", "neither"),
            (Some(_), Some(_)) => problems.warning(path("imageName"), "ignored: imageID names the image"),
            _ => {}
        }
        match (&self.network_id, self.networks.is_empty()) {
            (None, true) => problems.expected(path("networkID"), "networkID or networks", "neither"),
            (Some(_), false) => problems.expected(path("networks"), "networkID or networks", "both"),
            _ => {}
        }
        for (index, (id, name, _)) in self.networks.iter().enumerate() {
            let found = match (id, name) {
                (None, None) => "neither",
                (Some(_), Some(_)) => "both",
                _ => continue,
            };
            problems.expected(path(&format!("networks[{index}]")), "id or name", found);
        }
        if self.spec.pod_cidrs.is_empty() {
            problems.expected(path("podNetworkCIDRs"), "podNetworkCIDRs or podNetworkCidr", "neither");
        }
        if self.network_id.is_none() && !self.spec.subnets.is_empty() {
            problems.warning(path("subnetIDs"), "ignored: subnets are used only with networkID");
        }
        if self.spec.disk_type.is_some() && self.spec.disk_size == 0 {
            problems.warning(path("rootDiskType"), "ignored: without rootDiskSize the server boots from its image");
        }
        self.check_keys(problems);
        ClassMarkers::check(self.keys.iter().map(String::as_str), MARKERS, TAGS, problems);
    }

    fn check_keys(&self, problems: &mut ClassProblems) {
        for key in &self.keys {
            let path = format!("{TAGS}.{}", quotable(key));
            if is_own(key) {
                problems.warning(path, "ignored: mcm sets this key itself");
            } else if !is_key(key) {
                let expected = format!("a key of at most {LONGEST} letters, digits, spaces and -_:.");
                problems.expected(path, &expected, &format!("{} characters", key.chars().count()));
            }
        }
    }

    fn into_spec(self) -> Spec {
        let image = match self.image {
            (Some(id), _) => Reference::Id(id),
            (None, name) => Reference::Name(name.unwrap_or_default()),
        };
        let listed = self.networks.into_iter().map(|(id, name, has_pods)| {
            let network = id.map_or_else(|| Reference::Name(name.unwrap_or_default()), Reference::Id);
            Network { network, has_pods }
        });
        let (networks, subnets) = match self.network_id {
            Some(id) => (vec![Network { network: Reference::Id(id), has_pods: true }], self.spec.subnets),
            None => (listed.collect(), Vec::new()),
        };
        Spec { image, networks, subnets, ..self.spec }
    }
}

/// The ID of a resource; an empty one counts as absent.
fn id(fields: &mut FieldReader<'_>, name: &'static str) -> Option<String> {
    fields.optional(name, &uuid()).filter(|id| !id.is_empty())
}

/// IDs of OpenStack are UUIDs; some services accept them without hyphens.
fn uuid() -> ScalarType<String> {
    let is_uuid = |text: &str| {
        let digits = text.bytes().filter(|byte| *byte != b'-');
        text.is_empty() || (digits.clone().count() == 32 && digits.into_iter().all(|byte| byte.is_ascii_hexdigit()))
    };
    ScalarType::new("a UUID", move |value| value.as_str().filter(|text| is_uuid(text)).map(str::to_owned))
}

/// An IP address, with or without the length of its prefix.
fn cidr() -> ScalarType<String> {
    let is_cidr = |text: &str| {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let most = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return text.is_empty(),
        };
        length.is_none_or(|length| length.parse::<u8>().is_ok_and(|length| length <= most))
    };
    ScalarType::new("an IP network such as 10.96.0.0/11", move |value| {
        value.as_str().filter(|text| is_cidr(text)).map(str::to_owned)
    })
}

/// A value of metadata.
fn tag() -> ScalarType<String> {
    let expected = format!("a string of at most {LONGEST} characters");
    ScalarType::new(expected, |value| value.as_str().filter(|text| text.chars().count() <= LONGEST).map(str::to_owned))
}

fn is_key(key: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_:. ".contains(c);
    (1..=LONGEST).contains(&key.len()) && key.chars().all(is_allowed)
}

fn in_order(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}
