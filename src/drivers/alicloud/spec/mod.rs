//! `providerSpec` of the provider Alicloud: its fields as the reference names them, and their problems.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::Ipv4Addr};

use mcm_driver::{
    Code, DriverError,
    cloud::{ClassMarkers, filled, is_word, known, number},
    spec::{ClassProblems, FieldReader, ScalarType, boolean, quotable, string, text},
};
use serde_json::Value;

use super::names::{MARKERS, MOST_TAGS, OWN_TAGS};

const FIELDS: [&str; 18] = [
    "apiVersion",
    "imageID",
    "instanceType",
    "region",
    "zoneID",
    "securityGroupID",
    "vSwitchID",
    "privateIPAddress",
    "systemDisk",
    "dataDisks",
    "instanceChargeType",
    "internetChargeType",
    "internetMaxBandwidthIn",
    "internetMaxBandwidthOut",
    "spotStrategy",
    "IoOptimized",
    "tags",
    "keyPairName",
];
const SYSTEM_DISK: [&str; 2] = ["category", "size"];
const DATA_DISK: [&str; 6] = ["name", "category", "description", "encrypted", "deleteWithInstance", "size"];
const CATEGORIES: [&str; 10] = [
    "cloud_efficiency",
    "cloud_ssd",
    "cloud_essd",
    "cloud_auto",
    "cloud_essd_entry",
    "cloud",
    "ephemeral_ssd",
    "ephemeral",
    "elastic_ephemeral_disk_standard",
    "elastic_ephemeral_disk_premium",
];
/// Disks of the host, which end with their VM in any case. The first is the reference's name, which ECS does not have.
const LOCAL: [&str; 3] = ["DiskEphemeralSSD", "ephemeral_ssd", "ephemeral"];
const MOST_DATA_DISKS: usize = 16;
/// Longest key or value of a tag, in characters.
const LONGEST_TAG: usize = 128;
pub(crate) const PREPAID: &str = "PrePaid";

/// A `providerSpec`. Fields that are wrong have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    pub image_id: String,
    pub instance_type: String,
    pub region: String,
    pub zone_id: Option<String>,
    pub security_group_id: Option<String>,
    pub v_switch_id: Option<String>,
    pub private_ip_address: Option<String>,
    pub system_disk: Option<SystemDisk>,
    pub data_disks: Vec<DataDisk>,
    pub instance_charge_type: Option<String>,
    pub internet_charge_type: Option<String>,
    /// In Mbit/s.
    pub internet_max_bandwidth_in: Option<i32>,
    /// In Mbit/s.
    pub internet_max_bandwidth_out: Option<i32>,
    pub spot_strategy: Option<String>,
    pub io_optimized: Option<String>,
    /// Without tags that only mcm sets.
    pub tags: BTreeMap<String, String>,
    pub key_pair_name: Option<String>,
}

/// The system disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SystemDisk {
    pub category: Option<String>,
    /// In GiB.
    pub size: Option<i32>,
}

/// A data disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataDisk {
    pub name: String,
    pub category: Option<String>,
    pub description: String,
    pub is_encrypted: bool,
    /// `None` for disks that end with the VM in any case.
    pub delete_with_instance: Option<bool>,
    /// In GiB.
    pub size: i32,
}

/// How VMs of a class differ from others: by their region, and by the keys and values of their markers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub region: String,
    pub markers: ClassMarkers,
    pub cluster_value: String,
    pub role_value: String,
}

impl Scope {
    /// The two tags that mark a VM of the class.
    pub fn tags(&self) -> [(&str, &str); 2] {
        [(&self.markers.cluster, &self.cluster_value), (&self.markers.role, &self.role_value)]
    }
}

impl Spec {
    /// Reads a `providerSpec` and reports its problems.
    pub fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        if value.is_null() {
            problems.expected("providerSpec", "an object", "nothing");
        }
        let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
        fields.optional("apiVersion", &text());
        let all_tags = fields.map("tags", &text());
        let spec = Self {
            image_id: fields.required("imageID", &string()).unwrap_or_default(),
            instance_type: fields.required("instanceType", &string()).unwrap_or_default(),
            region: fields.required("region", &word()).unwrap_or_default(),
            zone_id: filled(&mut fields, "zoneID"),
            security_group_id: filled(&mut fields, "securityGroupID"),
            v_switch_id: filled(&mut fields, "vSwitchID"),
            private_ip_address: fields.optional("privateIPAddress", &address()).filter(|address| !address.is_empty()),
            system_disk: fields.object("systemDisk", &SYSTEM_DISK, |disk| Some(system_disk(disk))),
            data_disks: fields.objects("dataDisks", &DATA_DISK, data_disk),
            instance_charge_type: known(&mut fields, "instanceChargeType", &[PREPAID, "PostPaid"]),
            internet_charge_type: known(&mut fields, "internetChargeType", &["PayByBandwidth", "PayByTraffic"]),
            internet_max_bandwidth_in: fields.optional("internetMaxBandwidthIn", &number(0, i32::MAX)),
            internet_max_bandwidth_out: fields.optional("internetMaxBandwidthOut", &number(0, i32::MAX)),
            spot_strategy: known(&mut fields, "spotStrategy", &["NoSpot", "SpotAsPriceGo", "SpotWithPriceLimit"]),
            io_optimized: known(&mut fields, "IoOptimized", &["none", "optimized"]),
            tags: all_tags
                .iter()
                .filter(|(key, _)| !is_own(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            key_pair_name: filled(&mut fields, "keyPairName"),
        };
        check_tags(&all_tags, problems);
        check_whole(&spec, problems);
        spec
    }

    /// The parts that look-ups and deletions need. Other fields may be wrong: a VM can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no region, or not both marker tags.
    pub fn scope(&self) -> Result<Scope, DriverError> {
        let markers = ClassMarkers::from_keys(self.tags.keys().map(String::as_str), MARKERS);
        let Some(markers) = markers.filter(|_| !self.region.is_empty()) else {
            let message = format!(
                "the class needs providerSpec.region and tags whose keys contain {} and {}: without them its VMs could not be told \
                 from others",
                MARKERS.cluster, MARKERS.role
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        };
        let value = |key: &String| self.tags.get(key).cloned().unwrap_or_default();
        let (cluster_value, role_value) = (value(&markers.cluster), value(&markers.role));
        Ok(Scope { region: self.region.clone(), markers, cluster_value, role_value })
    }
}

fn system_disk(disk: &mut FieldReader<'_>) -> SystemDisk {
    let size = disk.optional("size", &number(0, i32::MAX)).filter(|size| *size > 0);
    SystemDisk { category: known(disk, "category", &CATEGORIES), size }
}

fn data_disk(disk: &mut FieldReader<'_>) -> Option<DataDisk> {
    let category = known(disk, "category", &CATEGORIES);
    let delete_with_instance = disk.optional("deleteWithInstance", &boolean()).unwrap_or(true);
    let is_local = category.as_deref().is_some_and(|category| LOCAL.contains(&category));
    Some(DataDisk {
        name: disk.optional("name", &text()).unwrap_or_default(),
        description: disk.optional("description", &text()).unwrap_or_default(),
        is_encrypted: disk.optional("encrypted", &boolean()).unwrap_or_default(),
        delete_with_instance: (!is_local).then_some(delete_with_instance),
        size: disk.required("size", &number(1, i32::MAX))?,
        category,
    })
}

fn is_own(key: &str) -> bool {
    OWN_TAGS.contains(&key)
}

fn check_tags(tags: &BTreeMap<String, String>, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.tags";
    ClassMarkers::check(tags.keys().map(String::as_str), MARKERS, PATH, problems);
    let (own, others): (Vec<_>, Vec<_>) = tags.iter().partition(|(key, _)| is_own(key));
    for (key, _) in own {
        problems.warning(format!("{PATH}.{key}"), "ignored: mcm sets this tag itself");
    }
    if others.len() > MOST_TAGS {
        problems.expected(PATH, &format!("at most {MOST_TAGS}, as ECS"), &others.len().to_string());
    } else {
        let room = MOST_TAGS - others.len();
        if let Some(missing @ [_, ..]) = OWN_TAGS.get(room..) {
            let missing = missing.join(" and ");
            let text = format!("{} tags leave no room for {missing}: {}", others.len(), without(room));
            problems.warning(PATH, text);
        }
    }
    for (key, value) in others {
        let path = format!("{PATH}.{}", quotable(key));
        let is_url = |text: &str| text.contains("http://") || text.contains("https://");
        let is_long = |text: &str| text.chars().count() > LONGEST_TAG;
        if key.is_empty() || is_long(key) || key.starts_with("aliyun") || key.starts_with("acs:") || is_url(key) {
            let expected = format!(
                "a key with 1 to {LONGEST_TAG} characters, without aliyun or acs: at its beginning, and no URL"
            );
            problems.error(path, format!("expected {expected}"));
        } else if is_long(value) || is_url(value) {
            problems.error(path, format!("expected at most {LONGEST_TAG} characters, and no URL"));
        }
    }
}

/// The effect of tags of mcm that are missing.
fn without(room: usize) -> &'static str {
    match room {
        0 => {
            "a VM of an earlier machine of the same name counts as that of the machine, and VMs without a machine are deleted only where one namespace uses the cluster tag"
        }
        _ => "VMs without a machine are deleted only where one namespace uses the cluster tag",
    }
}

fn check_whole(spec: &Spec, problems: &mut ClassProblems) {
    if spec.data_disks.len() > MOST_DATA_DISKS {
        let (expected, found) = (format!("at most {MOST_DATA_DISKS}"), spec.data_disks.len().to_string());
        problems.expected("providerSpec.dataDisks", &expected, &found);
    }
    if spec.instance_charge_type.as_deref() == Some(PREPAID) {
        let text = "ECS refuses a prepaid VM without a period, for which there is no field, and does not delete one before it expires";
        problems.warning("providerSpec.instanceChargeType", text);
    }
    if spec.private_ip_address.is_some() {
        problems.warning("providerSpec.privateIPAddress", "only one machine of this class can have the address");
    }
}

/// Letters, digits and hyphens.
fn word() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().filter(|text| is_word(text)).map(str::to_owned);
    ScalarType::new("letters, digits and hyphens", parse)
}

/// An IPv4 address. An empty one counts as absent.
fn address() -> ScalarType<String> {
    let is_address = |text: &&str| text.is_empty() || text.parse::<Ipv4Addr>().is_ok();
    ScalarType::new("an IPv4 address", move |value: &Value| value.as_str().filter(is_address).map(str::to_owned))
}
