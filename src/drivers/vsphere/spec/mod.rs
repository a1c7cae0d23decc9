//! `providerSpec` of the provider vsphere: its fields as the reference names them, and their problems.

mod scope;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use mcm_driver::{
    Code, DriverError,
    cloud::{filled, number},
    spec::{ClassProblems, FieldReader, ScalarType, boolean, string, text},
};
use serde_json::Value;

pub(crate) use self::scope::Scope;
use super::names::{CLUSTER_FIELD, OWN_FIELDS, ROLE_FIELD, extra};

const FIELDS: [&str; 23] = [
    "region",
    "datacenter",
    "datastore",
    "datastoreCluster",
    "computeCluster",
    "resourcePool",
    "hostSystem",
    "folder",
    "numCpus",
    "memory",
    "memoryReservationLockedToMax",
    "systemDisk",
    "extraConfig",
    "network",
    "switchUuid",
    "templateVM",
    "guestId",
    "vapp",
    "force",
    "waitForIP",
    "customization",
    "sshKeys",
    "tags",
];
/// vCenter takes names of custom fields up to this length.
const LONGEST_FIELD: usize = 256;
/// Largest disk of vSphere, in GB.
const LARGEST_DISK: i32 = 63_488;

/// A `providerSpec`. Fields that are wrong have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Only a part of provider IDs.
    pub region: String,
    pub places: Places,
    /// Virtual CPUs; `None` as the template.
    pub cpus: Option<i32>,
    /// In MB; `None` as the template.
    pub memory: Option<i32>,
    /// All memory is reserved; `None` as in the template.
    pub reserves_memory: Option<bool>,
    /// Size of the system disk in GB; `None` as the template.
    pub disk: Option<i32>,
    pub extra_config: BTreeMap<String, String>,
    pub guest_id: Option<String>,
    /// vApp properties; `None` if mcm makes them of the user data.
    pub properties: Option<BTreeMap<String, String>>,
    pub waits_for_ip: bool,
    pub ssh_keys: Vec<String>,
    /// Custom fields, without the fields of mcm.
    pub tags: BTreeMap<String, String>,
}

/// The objects of the inventory that VMs of a class need, by their names or paths. Classes with the same ones share look-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    /// Empty for the only one.
    pub datacenter: String,
    /// Below the VM folder of the datacenter; empty for that folder.
    pub folder: String,
    pub template: String,
    pub network: String,
    pub switch: Option<String>,
    pub datastore: Option<String>,
    pub storage_pod: Option<String>,
    pub cluster: Option<String>,
    pub pool: Option<String>,
    pub host: Option<String>,
    /// Name of a customization specification.
    pub customization: Option<String>,
}

impl Spec {
    /// The parts that look-ups and deletions need. Other fields may be wrong: a VM can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no markers.
    pub(crate) fn scope(&self) -> Result<Scope, DriverError> {
        Scope::from_custom_fields(&self.tags, &self.places.datacenter, &self.places.folder).ok_or_else(|| {
            let message = format!(
                "the class needs {CLUSTER_FIELD} and {ROLE_FIELD} in providerSpec.tags: without them its VMs could not be told \
                 from others"
            );
            DriverError::new(Code::InvalidArgument, message)
        })
    }

    /// Reads a `providerSpec` and reports its problems.
    pub(crate) fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        if value.is_null() {
            problems.expected("providerSpec", "an object", "nothing");
        }
        let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
        let places = Places {
            datacenter: filled(&mut fields, "datacenter").unwrap_or_default(),
            folder: filled(&mut fields, "folder").unwrap_or_default(),
            template: fields.required("templateVM", &string()).unwrap_or_default(),
            network: fields.required("network", &string()).unwrap_or_default(),
            switch: filled(&mut fields, "switchUuid"),
            datastore: filled(&mut fields, "datastore"),
            storage_pod: filled(&mut fields, "datastoreCluster"),
            cluster: filled(&mut fields, "computeCluster"),
            pool: filled(&mut fields, "resourcePool"),
            host: filled(&mut fields, "hostSystem"),
            customization: filled(&mut fields, "customization"),
        };
        // The reference takes a number that is not positive for none.
        let mut positive = |name| fields.optional(name, &whole()).filter(|number| *number > 0);
        let (cpus, memory) = (positive("numCpus"), positive("memory"));
        let all_tags = fields.map("tags", &text());
        let is_forced = fields.optional("force", &boolean()).unwrap_or_default();
        let spec = Self {
            region: filled(&mut fields, "region").unwrap_or_default(),
            cpus,
            memory,
            reserves_memory: fields.optional("memoryReservationLockedToMax", &boolean()),
            disk: fields.object("systemDisk", &["size"], |disk| disk.required("size", &number(1, LARGEST_DISK))),
            extra_config: fields.map("extraConfig", &text()),
            guest_id: filled(&mut fields, "guestId"),
            properties: fields.object("vapp", &["properties"], |vapp| Some(vapp.map("properties", &text()))),
            waits_for_ip: fields.optional("waitForIP", &boolean()).unwrap_or_default(),
            ssh_keys: fields.list("sshKeys", &text()).into_iter().map(|key| key.trim().to_owned()).collect(),
            tags: all_tags.iter().filter(|(key, _)| !is_own(key)).map(|(k, v)| (k.clone(), v.clone())).collect(),
            places,
        };
        if is_forced {
            problems.warning("providerSpec.force", "without effect: a clone never overwrites the files of another VM");
        }
        spec.check_places(problems);
        spec.check_texts(problems);
        check_tags(&all_tags, problems);
        spec
    }

    fn check_places(&self, problems: &mut ClassProblems) {
        let places = &self.places;
        let path = |field: &str| format!("providerSpec.{field}");
        if places.datastore.is_none() && places.storage_pod.is_none() {
            problems.expected(path("datastore"), "it or datastoreCluster", "neither");
        }
        if places.cluster.is_none() && places.pool.is_none() && places.host.is_none() {
            problems.expected(path("computeCluster"), "it, resourcePool or hostSystem", "none of them");
        }
        if places.datastore.is_some() && places.storage_pod.is_some() {
            problems.warning(path("datastore"), "ignored: datastoreCluster is given and decides");
        } else if places.datastore.is_some() && places.cluster.is_some() {
            let text =
                "ignored: with computeCluster, vSphere chooses the datastore; use hostSystem or resourcePool instead";
            problems.warning(path("datastore"), text);
        }
        if places.host.is_some() && (places.cluster.is_some() || places.pool.is_some()) {
            problems.warning(path("hostSystem"), "its resource pool is used, whatever the other fields say");
        } else if places.cluster.is_some() && places.pool.is_some() {
            problems.warning(path("resourcePool"), "ignored: computeCluster is given and decides");
        }
        if self.region.contains('/') {
            problems.expected(
                path("region"),
                "a text without /, as a part of provider IDs",
                &format!("{:?}", self.region),
            );
        }
        for (field, text) in places.all() {
            if text.split('/').any(|part| part == "..") {
                problems.expected(path(field), "a path that does not lead up", "one with ..");
            }
        }
    }

    /// XML holds no control characters.
    fn check_texts(&self, problems: &mut ClassProblems) {
        let none = BTreeMap::new();
        let maps = [
            ("tags", &self.tags),
            ("extraConfig", &self.extra_config),
            ("vapp.properties", self.properties.as_ref().unwrap_or(&none)),
        ];
        for (field, map) in maps {
            for (key, value) in map {
                if key.chars().any(char::is_control) || value.chars().any(is_no_xml) {
                    problems.error(format!("providerSpec.{field}"), "a key or value has control characters");
                }
            }
        }
        for (field, text) in self.places.all() {
            if text.chars().any(char::is_control) {
                problems.error(format!("providerSpec.{field}"), "it has control characters");
            }
        }
        for key in self.extra_config.keys().filter(|key| key.starts_with(extra::PREFIX)) {
            problems.error("providerSpec.extraConfig", format!("{key:?} is a key of mcm"));
        }
    }
}

impl Places {
    /// Fields with a value.
    fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let optional = [
            ("datastore", &self.datastore),
            ("datastoreCluster", &self.storage_pod),
            ("computeCluster", &self.cluster),
            ("resourcePool", &self.pool),
            ("hostSystem", &self.host),
            ("switchUuid", &self.switch),
            ("customization", &self.customization),
        ];
        let optional = optional.into_iter().filter_map(|(field, text)| Some((field, text.as_deref()?)));
        let required = [
            ("datacenter", self.datacenter.as_str()),
            ("folder", self.folder.as_str()),
            ("templateVM", self.template.as_str()),
            ("network", self.network.as_str()),
        ];
        required.into_iter().chain(optional)
    }
}

/// A whole number.
fn whole() -> ScalarType<i32> {
    ScalarType::new("a whole number", |value| i32::try_from(value.as_i64()?).ok())
}

fn is_no_xml(c: char) -> bool {
    c.is_control() && !['\t', '\n', '\r'].contains(&c)
}

fn is_own(key: &str) -> bool {
    OWN_FIELDS.contains(&key)
}

fn check_tags(tags: &BTreeMap<String, String>, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.tags";
    for key in tags.keys().filter(|key| is_own(key)) {
        problems.warning(PATH, format!("{key} is ignored: mcm sets this custom field itself"));
    }
    for key in tags.keys().filter(|key| key.is_empty() || key.len() > LONGEST_FIELD) {
        problems.expected(PATH, &format!("keys of 1 to {LONGEST_FIELD} characters"), &format!("one of {}", key.len()));
    }
    scope::check(tags, PATH, problems);
}
