//! `providerSpec` of the provider kubevirt: its fields as the reference names them, and their problems.
//!
//! Parts of the APIs of KubeVirt, CDI and Kubernetes are not interpreted: the cluster may be newer than this program.

mod check;
mod foreign;
#[cfg(test)]
mod tests;
mod types;

use mcm_driver::{
    Code, DriverError,
    spec::{ClassProblems, FieldReader, ScalarType, boolean, found, one_of, string, text},
};
use serde_json::Value;

pub(crate) use self::types::{AdditionalVolume, Devices, Network, Source, Spec};
use self::{
    foreign::{amounts, object, volume},
    types::SOURCES,
};
use super::markers::Scope;

const FIELDS: [&str; 13] = [
    "region",
    "zone",
    "resources",
    "devices",
    "rootVolume",
    "additionalVolumes",
    "sshKeys",
    "networks",
    "cpu",
    "memory",
    "dnsPolicy",
    "dnsConfig",
    "tags",
];
const DEVICES: [&str; 4] = ["disks", "rng", "blockMultiQueue", "networkInterfaceMultiqueue"];
impl Spec {
    /// Reads a `providerSpec` and reports its problems.
    pub fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        if value.is_null() {
            problems.expected("providerSpec", "an object", "nothing");
        }
        let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
        let spec = Self {
            region: fields.required("region", &string()).unwrap_or_default(),
            zone: fields.required("zone", &string()).unwrap_or_default(),
            resources: fields.with("resources", resources).unwrap_or_default(),
            devices: fields.object("devices", &DEVICES, devices).unwrap_or_default(),
            root_volume: fields.with("rootVolume", volume).unwrap_or_default(),
            additional_volumes: fields.objects(
                "additionalVolumes",
                &["name", "dataVolume", "volumeSource"],
                additional_volume,
            ),
            ssh_keys: fields.list("sshKeys", &line()),
            // Gardener's extension writes the hash of a network, so that a change of the network makes a new class.
            networks: fields.objects("networks", &["name", "default", "sha"], network),
            cpu: fields.with("cpu", object),
            memory: fields.with("memory", object),
            dns_policy: dns_policy(&mut fields),
            dns_config: fields.with("dnsConfig", dns_config),
            tags: fields.map("tags", &text()),
        };
        check::spec(&spec, problems);
        spec
    }

    /// The parts that look-ups and deletions need. Other fields may be wrong: a VM can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no markers.
    pub fn scope(&self) -> Result<Scope, DriverError> {
        Scope::from_tags(&self.tags).ok_or_else(|| {
            let message = "the class needs providerSpec.tags with mcm.gardener.cloud/cluster and mcm.gardener.cloud/role: \
                           without them its VMs could not be told from others";
            DriverError::new(Code::InvalidArgument, message)
        })
    }
}

fn resources(path: &str, value: &Value, problems: &mut ClassProblems) -> Option<Value> {
    let read = object(path, value, problems)?;
    Some(amounts(read, &["requests", "limits", "overcommitGuestOverhead"]))
}

fn devices(fields: &mut FieldReader<'_>) -> Option<Devices> {
    Some(Devices {
        disks: fields.with("disks", disks).unwrap_or_default(),
        rng: fields.with("rng", object),
        block_multi_queue: fields.optional("blockMultiQueue", &boolean()).unwrap_or_default(),
        network_interface_multiqueue: fields.optional("networkInterfaceMultiqueue", &boolean()).unwrap_or_default(),
    })
}

fn disks(path: &str, value: &Value, problems: &mut ClassProblems) -> Option<Vec<Value>> {
    let Value::Array(items) = value else {
        problems.expected(path, "a list", &found(value));
        return None;
    };
    let read = |(index, item)| object(&format!("{path}[{index}]"), item, problems);
    let disks = items.iter().enumerate().filter_map(read);
    Some(disks.map(|disk| foreign::respelled(disk, &["name", "bootOrder"])).collect())
}

fn additional_volume(fields: &mut FieldReader<'_>) -> Option<AdditionalVolume> {
    let name = fields.required("name", &string()).unwrap_or_default();
    let data_volume = fields.with("dataVolume", volume);
    let existing = fields.object("volumeSource", &SOURCES, |fields| {
        Some(SOURCES.iter().filter_map(|name| Some((*name, fields.with(name, object)?))).collect::<Vec<_>>())
    });
    let source = match (data_volume, existing.unwrap_or_default().as_slice()) {
        // It takes precedence in the reference.
        (Some(volume), _) => Source::DataVolume(volume),
        (None, [(name, value)]) => Source::Existing(name, value.clone()),
        (None, []) => Source::Unusable("none"),
        (None, _) => Source::Unusable("several"),
    };
    Some(AdditionalVolume { name, source })
}

fn network(fields: &mut FieldReader<'_>) -> Option<Network> {
    let name = fields.required("name", &string()).unwrap_or_default();
    Some(Network { name, is_default: fields.optional("default", &boolean()).unwrap_or_default() })
}

/// An empty policy counts as absent.
fn dns_policy(fields: &mut FieldReader<'_>) -> Option<&'static str> {
    const POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    let is_empty = fields.with("dnsPolicy", |_, value, _| Some(value == "")).unwrap_or_default();
    if is_empty { None } else { fields.optional("dnsPolicy", &one_of(&POLICIES)) }
}

fn dns_config(path: &str, value: &Value, problems: &mut ClassProblems) -> Option<Value> {
    Some(foreign::respelled(object(path, value, problems)?, &["nameservers"]))
}

/// A text without a line break, because it becomes one line of YAML.
fn line() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().filter(|text| !text.trim().contains(['\n', '\r'])).map(str::to_owned);
    ScalarType::new("a string of one line", parse)
}
