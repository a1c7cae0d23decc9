//! `providerSpec` of the provider Yandex: its fields as the reference names them, and their problems.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::Ipv4Addr};

use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, DriverError,
    cloud::{ClassMarkers, choice, filled, number},
    spec::{ClassProblems, FieldReader, ScalarType, boolean, string, text},
};
use serde_json::Value;

use crate::names::{MARKERS, OWN_LABELS, USER_DATA, is_label_key, is_label_value};

const FIELDS: [&str; 12] = [
    "apiVersion",
    "labels",
    "metadata",
    "regionID",
    "zoneID",
    "platformID",
    "resourcesSpec",
    "bootDiskSpec",
    "networkInterfaceSpecs",
    "schedulingPolicy",
    "networkType",
    "secretRef",
];
const RESOURCES: [&str; 4] = ["cores", "coreFraction", "memory", "gpus"];
const BOOT_DISK: [&str; 4] = ["autoDelete", "typeID", "size", "imageID"];
const INTERFACE: [&str; 3] = ["subnetID", "assignPublicIPAddress", "publicIPAddresses"];
const NETWORK_TYPES: [&str; 2] = ["STANDARD", "SOFTWARE_ACCELERATED"];

/// The smallest memory of a VM, in bytes. A class with gigabytes instead of bytes is far below.
const LEAST_MEMORY: i64 = 256 << 20;
/// The smallest disk, in bytes.
const LEAST_DISK: i64 = 4 << 20;
/// An instance has no more labels, ours included.
const MOST_LABELS: usize = 64;
/// Value of a marker that only the labels of the MachineClass have.
const MARKED: &str = "1";

/// A `providerSpec`. Fields that are wrong have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Labels of VMs with the markers, without labels that only mcm sets.
    pub labels: BTreeMap<String, String>,
    /// `None`: the class lacks them.
    pub markers: Option<ClassMarkers>,
    /// Without the user data.
    pub metadata: BTreeMap<String, String>,
    pub zone: String,
    pub platform: String,
    pub resources: Resources,
    pub boot_disk: BootDisk,
    pub interfaces: Vec<Interface>,
    pub is_preemptible: bool,
    pub network_type: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub cores: i64,
    /// In percent.
    pub core_fraction: i64,
    /// In bytes.
    pub memory: i64,
    pub gpus: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BootDisk {
    pub is_auto_deleted: bool,
    pub kind: Option<String>,
    /// In bytes.
    pub size: i64,
    pub image: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub subnet: String,
    pub has_public_address: bool,
    /// The public address is one of these; without any, it is a new one.
    pub public_addresses: Vec<String>,
}

/// How VMs of a class differ from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub folder: String,
    pub markers: ClassMarkers,
}

impl Spec {
    /// Reads the `providerSpec` of a class and reports its problems. The markers may also be labels of the MachineClass, where the
    /// reference reads them.
    pub(crate) fn read(class: &MachineClass, problems: &mut ClassProblems) -> Self {
        let value = &class.provider_spec;
        if value.is_null() {
            problems.expected("providerSpec", "an object", "nothing");
        }
        let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
        let given = fields.map("labels", &text());
        let metadata = fields.map("metadata", &text());
        let zone = fields.required("zoneID", &string()).unwrap_or_default();
        let platform = fields.required("platformID", &string()).unwrap_or_default();
        let resources = fields.required_object("resourcesSpec", &RESOURCES, resources).unwrap_or_default();
        let boot_disk = fields.required_object("bootDiskSpec", &BOOT_DISK, boot_disk).unwrap_or_default();
        let has_interfaces = fields.has("networkInterfaceSpecs");
        let interfaces = fields.objects("networkInterfaceSpecs", &INTERFACE, interface);
        let preemptible = |policy: &mut FieldReader<'_>| policy.optional("preemptible", &boolean());
        let is_preemptible = fields.object("schedulingPolicy", &["preemptible"], preemptible).unwrap_or_default();
        let network_type = choice(&mut fields, "networkType", &NETWORK_TYPES);
        for name in ["apiVersion", "regionID"] {
            fields.optional(name, &text());
        }
        if !has_interfaces || (interfaces.is_empty() && is_empty_list(value)) {
            problems.expected("providerSpec.networkInterfaceSpecs", "at least one", "none");
        }
        let of_class = class.metadata.labels.clone().unwrap_or_default();
        let markers = markers_of(&given, &of_class);
        check_markers(&given, &of_class, problems);
        check_labels(&given, problems);
        check_metadata(&metadata, problems);
        if !boot_disk.is_auto_deleted {
            let text = "is not true: the boot disk stays, and is paid for, when its VM is deleted";
            problems.warning("providerSpec.bootDiskSpec.autoDelete", text);
        }
        warn_of_addresses(&interfaces, problems);
        let added = markers.iter().flat_map(|markers| [&markers.cluster, &markers.role]);
        let mut labels: BTreeMap<_, _> = added.map(|key| (key.clone(), MARKED.to_owned())).collect();
        labels.extend(given.into_iter().filter(|(key, _)| !OWN_LABELS.contains(&key.as_str())));
        let metadata = metadata.into_iter().filter(|(key, _)| key != USER_DATA).collect();
        Self {
            labels,
            markers,
            metadata,
            zone,
            platform,
            resources,
            boot_disk,
            interfaces,
            is_preemptible,
            network_type,
        }
    }

    /// The parts that look-ups and deletions need. Other fields may be wrong: a VM can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no markers.
    pub(crate) fn scope(&self, folder: &str) -> Result<Scope, DriverError> {
        match &self.markers {
            Some(markers) => Ok(Scope { folder: folder.to_owned(), markers: markers.clone() }),
            None => {
                let message = format!(
                    "the class needs labels whose keys contain {} and {}: without them its VMs could not be told from others",
                    MARKERS.cluster, MARKERS.role
                );
                Err(DriverError::new(Code::InvalidArgument, message))
            }
        }
    }
}

/// The markers in the labels of VMs, or else in those of the MachineClass.
fn markers_of(given: &BTreeMap<String, String>, of_class: &BTreeMap<String, String>) -> Option<ClassMarkers> {
    let of = |labels: &BTreeMap<String, String>| ClassMarkers::from_keys(labels.keys().map(String::as_str), MARKERS);
    of(given).or_else(|| of(of_class).filter(|found| [&found.cluster, &found.role].iter().all(|key| is_label_key(key))))
}

fn check_markers(given: &BTreeMap<String, String>, of_class: &BTreeMap<String, String>, problems: &mut ClassProblems) {
    let has_markers = |labels: &BTreeMap<String, String>| {
        ClassMarkers::from_keys(labels.keys().map(String::as_str), MARKERS).is_some()
    };
    if has_markers(given) || markers_of(given, of_class).is_none() {
        return ClassMarkers::check(given.keys().map(String::as_str), MARKERS, "providerSpec.labels", problems);
    }
    ClassMarkers::check(of_class.keys().map(String::as_str), MARKERS, "metadata.labels", problems);
}

fn check_labels(labels: &BTreeMap<String, String>, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.labels";
    for (key, value) in labels {
        let path = format!("{PATH}.{}", mcm_driver::spec::quotable(key));
        if OWN_LABELS.contains(&key.as_str()) {
            problems.warning(path, "ignored: mcm sets this label itself");
        } else if !is_label_key(key) {
            let expected = "a key of at most 63 lower-case letters, digits and any of -_./\\@, a letter first";
            problems.expected(path, expected, "another");
        } else if !is_label_value(value) {
            let expected = "a value of at most 63 lower-case letters, digits and any of -_./\\@";
            problems.expected(path, expected, "another");
        }
    }
    let most = MOST_LABELS - OWN_LABELS.len();
    if labels.len() > most {
        problems.expected(PATH, &format!("at most {most}"), &labels.len().to_string());
    }
}

fn check_metadata(metadata: &BTreeMap<String, String>, problems: &mut ClassProblems) {
    if metadata.contains_key(USER_DATA) {
        let text = "ignored: userData in the Secret of the class take its place";
        problems.warning(format!("providerSpec.metadata.{USER_DATA}"), text);
    }
}

fn warn_of_addresses(interfaces: &[Interface], problems: &mut ClassProblems) {
    for (index, interface) in interfaces.iter().enumerate() {
        if !interface.has_public_address && !interface.public_addresses.is_empty() {
            let path = format!("providerSpec.networkInterfaceSpecs[{index}].publicIPAddresses");
            problems.warning(path, "has no effect without assignPublicIPAddress");
        }
    }
}

/// The list of interfaces itself is empty, and not only without a valid entry.
fn is_empty_list(spec: &Value) -> bool {
    let fields = spec.as_object().into_iter().flatten();
    let mut interfaces = fields.filter(|(key, _)| key.eq_ignore_ascii_case("networkInterfaceSpecs"));
    interfaces.any(|(_, value)| value.as_array().is_some_and(Vec::is_empty))
}

fn resources(fields: &mut FieldReader<'_>) -> Option<Resources> {
    Some(Resources {
        cores: fields.required("cores", &number(1, i64::MAX)).unwrap_or_default(),
        core_fraction: fields.optional("coreFraction", &number(0, 100)).unwrap_or_default(),
        memory: fields.required("memory", &bytes(LEAST_MEMORY)).unwrap_or_default(),
        gpus: fields.optional("gpus", &number(0, i64::MAX)).unwrap_or_default(),
    })
}

fn boot_disk(fields: &mut FieldReader<'_>) -> Option<BootDisk> {
    Some(BootDisk {
        is_auto_deleted: fields.optional("autoDelete", &boolean()).unwrap_or_default(),
        kind: filled(fields, "typeID"),
        size: fields.required("size", &bytes(LEAST_DISK)).unwrap_or_default(),
        image: fields.required("imageID", &string()).unwrap_or_default(),
    })
}

fn interface(fields: &mut FieldReader<'_>) -> Option<Interface> {
    Some(Interface {
        subnet: fields.required("subnetID", &string()).unwrap_or_default(),
        has_public_address: fields.optional("assignPublicIPAddress", &boolean()).unwrap_or_default(),
        public_addresses: fields.list("publicIPAddresses", &address()),
    })
}

/// A size in bytes.
fn bytes(least: i64) -> ScalarType<i64> {
    let parse = move |value: &Value| value.as_i64().filter(|size| *size >= least);
    ScalarType::new(format!("a number of bytes of at least {least}"), parse)
}

/// A public address.
fn address() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().filter(|text| text.parse::<Ipv4Addr>().is_ok()).map(str::to_owned);
    ScalarType::new("an IPv4 address", parse)
}
