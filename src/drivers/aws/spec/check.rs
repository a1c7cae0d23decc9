//! Checks of fields that depend on each other.

use serde_json::Value;

use super::types::{BlockDevice, MARKERS, ROOT_DEVICE, Spec};
use crate::names::{MOST_TAGS, OWNER_TAG, UID_TAG, tags_of};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    cloud::{ClassMarkers, is_word},
    spec::{ClassProblems, found, quotable},
};

/// Fields that the reference accepts and never sends. Sending them would change cost, encryption or permissions of pools
/// that exist.
const IGNORED: [&str; 2] = ["ebsOptimized", "monitoring"];
const IGNORED_OF_DEVICES: [&str; 2] = ["noDevice", "virtualName"];

/// In characters.
const LONGEST_TAG_KEY: usize = 128;
/// In characters.
const LONGEST_TAG_VALUE: usize = 256;
/// IOPS of a gp3 volume that names none.
const GP3_IOPS: i32 = 3000;
/// IOPS that a gp3 volume needs for each MiB/s.
const GP3_IOPS_PER_MIB: i32 = 4;
/// Least and greatest throughput of a gp3 volume, in MiB/s. The greatest has been raised once.
const GP3_THROUGHPUT: i32 = 125;
const GP3_MOST_THROUGHPUT: i32 = 2000;

/// Compares the zone of the `nodeTemplate` with the `providerSpec`: labels of Nodes and estimates of autoscalers follow from
/// the former.
pub(crate) fn node_template(spec: &Spec, class: &MachineClass, problems: &mut ClassProblems) {
    let Some(template) = &class.node_template else { return };
    let (region, zone) = (template.region.as_str(), template.zone.as_str());
    if !region.is_empty() && region != spec.region {
        problems.warning("nodeTemplate.region", format!("{region:?} is not providerSpec.region {:?}", spec.region));
    }
    if !zone.is_empty() && !zone.starts_with(&spec.region) {
        problems.warning("nodeTemplate.zone", format!("{zone:?} is no zone of providerSpec.region {:?}", spec.region));
    }
}

pub(super) fn spec(spec: &Spec, value: &Value, problems: &mut ClassProblems) {
    if !spec.region.is_empty() && !is_word(&spec.region) {
        let found = found(&Value::from(spec.region.as_str()));
        problems.expected("providerSpec.region", "letters, digits and hyphens", &found);
    }
    profile(spec, problems);
    block_devices(&spec.block_devices, problems);
    reservation(spec, problems);
    interfaces(spec, problems);
    market(spec, problems);
    cpu(spec, problems);
    placement(spec, problems);
    differences(spec, value, problems);
    tags(spec, problems);
    ClassMarkers::check(spec.tags.keys().map(String::as_str), MARKERS, "providerSpec.tags", problems);
    ignored(value, problems);
}

/// Reports fields that Gardener's driver treats differently.
fn differences(spec: &Spec, value: &Value, problems: &mut ClassProblems) {
    if value.is_null() {
        problems.difference("providerSpec", "Gardener's driver fails with Internal: unexpected end of JSON input");
    }
    if get(value, "blockDevices").is_some_and(|devices| devices.as_array().is_some_and(Vec::is_empty)) {
        let text = "Gardener's driver accepts the class, and every creation fails";
        problems.difference("providerSpec.blockDevices", text);
    }
    for (index, device) in spec.block_devices.iter().enumerate() {
        if device.volume_type == "io2" {
            let path = format!("providerSpec.blockDevices[{index}].ebs.volumeType");
            problems.difference(path, "Gardener's driver rejects io2");
        }
    }
    if spec.has_user_data_store {
        let text = "Gardener's driver ignores it, and sends the user data to EC2";
        problems.difference("providerSpec.userDataStore", text);
    }
    for marker in [MARKERS.cluster, MARKERS.role] {
        if spec.tags.keys().filter(|key| key.contains(marker)).count() > 1 {
            let text = format!("Gardener's driver may use any of the keys with {marker}, another one with each call");
            problems.difference("providerSpec.tags", text);
        }
    }
}

fn profile(spec: &Spec, problems: &mut ClassProblems) {
    match (&spec.profile_name, &spec.profile_arn) {
        (Some(_), Some(_)) => problems.expected("providerSpec.iam", "either name or arn", "both"),
        (None, None) => problems.expected("providerSpec.iam", "name or arn", "neither"),
        _ => {}
    }
}

fn block_devices(devices: &[BlockDevice], problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.blockDevices";
    if devices.is_empty() {
        problems.expected(PATH, "at least one block device", "none");
    }
    for (index, device) in devices.iter().enumerate() {
        if ["io1", "io2"].contains(&device.volume_type.as_str()) && device.iops == 0 {
            let expected = format!("more than 0 for volumeType {}", device.volume_type);
            problems.expected(format!("{PATH}[{index}].ebs.iops"), &expected, "nothing");
        }
    }
    for (index, device) in devices.iter().enumerate() {
        performance(device, &format!("{PATH}[{index}].ebs"), problems);
    }
    if devices.len() < 2 {
        return;
    }
    let roots = devices.iter().filter(|device| device.device_name == ROOT_DEVICE).count();
    if roots != 1 {
        problems.expected(PATH, &format!("one device with deviceName {ROOT_DEVICE}"), &roots.to_string());
    }
    for (index, device) in devices.iter().enumerate() {
        let path = format!("{PATH}[{index}].deviceName");
        let name = device.device_name.as_str();
        if name != ROOT_DEVICE && !is_data_device(name) {
            let expected = format!("{ROOT_DEVICE} or a name such as /dev/sdf or /dev/xvdba");
            problems.expected(path, &expected, &found(&Value::from(name)));
        } else if name != ROOT_DEVICE && devices.iter().take(index).any(|other| other.device_name == name) {
            problems.error(path, format!("{name} is there twice"));
        }
    }
}

/// Reports values that EC2 refuses for its older types of volumes. Newer types may have other limits, and maxima have risen
/// before.
fn performance(device: &BlockDevice, path: &str, problems: &mut ClassProblems) {
    let volume_type = device.volume_type.as_str();
    if ["gp2", "st1", "sc1", "standard"].contains(&volume_type) && device.iops > 0 {
        problems.error(format!("{path}.iops"), format!("a volume of type {volume_type} takes none"));
    }
    let Some(throughput) = device.throughput else { return };
    let path = format!("{path}.throughput");
    if ["gp2", "io1", "io2", "st1", "sc1", "standard"].contains(&volume_type) {
        problems.error(path, format!("a volume of type {volume_type} takes none"));
    } else if volume_type == "gp3" {
        let iops = if device.iops > 0 { device.iops } else { GP3_IOPS };
        let most = iops / GP3_IOPS_PER_MIB;
        if throughput < GP3_THROUGHPUT {
            problems.expected(path, &format!("at least {GP3_THROUGHPUT} MiB/s"), &throughput.to_string());
        } else if throughput > most {
            let expected = format!("at most {most} MiB/s with {iops} iops ({GP3_IOPS_PER_MIB} iops for each MiB/s)");
            problems.expected(path, &expected, &throughput.to_string());
        } else if throughput > GP3_MOST_THROUGHPUT {
            problems.warning(path, format!("EC2 documents at most {GP3_MOST_THROUGHPUT} MiB/s"));
        }
    }
}

/// `^/dev/(sd[a-z]|xvd[a-c][a-z]?)$`
fn is_data_device(name: &str) -> bool {
    let Some(name) = name.strip_prefix("/dev/") else { return false };
    if let Some(letters) = name.strip_prefix("sd") {
        return matches!(letters.as_bytes(), [b'a'..=b'z']);
    }
    name.strip_prefix("xvd")
        .is_some_and(|letters| matches!(letters.as_bytes(), [b'a'..=b'c'] | [b'a'..=b'c', b'a'..=b'z']))
}

fn reservation(spec: &Spec, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.capacityReservation";
    let Some(reservation) = &spec.capacity_reservation else { return };
    if reservation.id.is_some() && reservation.resource_group_arn.is_some() {
        let expected = "either capacityReservationId or capacityReservationResourceGroupArn";
        problems.expected(PATH, expected, "both");
    }
    if reservation.preference.is_some() && (reservation.id.is_some() || reservation.resource_group_arn.is_some()) {
        problems.expected(PATH, "either capacityReservationPreference or a reservation", "both");
    }
}

fn interfaces(spec: &Spec, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.networkInterfaces";
    if spec.network_interfaces.is_empty() {
        problems.expected(PATH, "at least one network interface", "none");
    }
    for (index, interface) in spec.network_interfaces.iter().enumerate() {
        if interface.security_group_ids.is_empty() {
            problems.expected(format!("{PATH}[{index}].securityGroupIDs"), "at least one security group", "none");
        }
        for (place, group) in interface.security_group_ids.iter().enumerate() {
            let path = format!("{PATH}[{index}].securityGroupIDs[{place}]");
            if !group.trim().is_empty() && !group.trim().starts_with("sg-") {
                problems.expected(path, "an ID such as sg-0123, not a name", &found(&Value::from(group.as_str())));
            } else if interface.security_group_ids.iter().take(place).any(|other| other == group) {
                problems.warning(path, "given twice");
            }
        }
        if interface.primary_ipv6.is_some() && interface.ipv6_address_count.is_none() {
            problems.warning(format!("{PATH}[{index}].primaryIpv6"), "ignored without ipv6AddressCount");
        }
    }
}

/// Limits of EC2 on tags.
fn tags(spec: &Spec, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.tags";
    let (count, sent) = (spec.tags.len(), tags_of(&spec.tags, "", Some(("uid", "owner"))));
    let missing = [UID_TAG, OWNER_TAG].into_iter().filter(|key| !sent.contains_key(key)).collect::<Vec<_>>();
    if sent.len() > MOST_TAGS {
        problems
            .error(PATH, format!("{count} tags and the name of the machine are {}: EC2 takes {MOST_TAGS}", sent.len()));
    } else if !missing.is_empty() {
        let effect = if missing.len() == 1 { "its namespace" } else { "its machine and its namespace" };
        let text = format!(
            "{count} tags leave no room for {}: no VM shows {effect}, as with Gardener's driver",
            missing.join(" and ")
        );
        problems.warning(PATH, text);
    }
    for (key, value) in &spec.tags {
        let path = format!("{PATH}.{}", quotable(key));
        if key.to_ascii_lowercase().starts_with("aws:") {
            problems.error(path, "keys that begin with aws: are reserved");
        } else if key.is_empty() || key.chars().count() > LONGEST_TAG_KEY {
            problems.error(path, format!("a key has 1 to {LONGEST_TAG_KEY} characters"));
        } else if value.chars().count() > LONGEST_TAG_VALUE {
            problems.error(path, format!("a value has at most {LONGEST_TAG_VALUE} characters"));
        }
    }
}

fn market(spec: &Spec, problems: &mut ClassProblems) {
    let is_price = |price: &str| price.parse::<f64>().is_ok_and(|price| price.is_finite() && price > 0.0);
    if let Some(price) = spec.spot_price.as_deref().filter(|price| !price.is_empty() && !is_price(price)) {
        problems.expected("providerSpec.spotPrice", "a price in dollars, more than 0", &found(&Value::from(price)));
    }
    if spec.market_type.is_some() && spec.spot_price.is_some() {
        problems.warning("providerSpec.spotPrice", "ignored, because instanceMarketOptions is set");
    }
}

fn cpu(spec: &Spec, problems: &mut ClassProblems) {
    let Some(cpu) = &spec.cpu_options else { return };
    if cpu.core_count.is_some() != cpu.threads_per_core.is_some() {
        problems.expected("providerSpec.cpuOptions", "both coreCount and threadsPerCore, or neither", "one");
    }
}

fn placement(spec: &Spec, problems: &mut ClassProblems) {
    let Some(placement) = &spec.placement else { return };
    if placement.host_id.is_some() && placement.tenancy.as_deref() != Some("host") {
        problems.error("providerSpec.placement.hostId", "needs tenancy host");
    }
}

fn ignored(value: &Value, problems: &mut ClassProblems) {
    const TEXT: &str = "accepted and not sent to AWS, as in Gardener's driver";
    let is_set = |value: &&Value| !matches!(value, Value::Null | Value::Bool(false)) && value.as_str() != Some("");
    let warn = |problems: &mut ClassProblems, object: &Value, names: &[&str], path: &str| {
        for name in names {
            if get(object, name).filter(is_set).is_some() {
                problems.warning(format!("{path}.{name}"), TEXT);
            }
        }
    };
    warn(problems, value, &IGNORED, "providerSpec");
    let devices = get(value, "blockDevices").and_then(Value::as_array);
    for (index, device) in devices.into_iter().flatten().enumerate() {
        let path = format!("providerSpec.blockDevices[{index}]");
        warn(problems, device, &IGNORED_OF_DEVICES, &path);
        if let Some(ebs) = get(device, "ebs") {
            warn(problems, ebs, &["kmsKeyID"], &format!("{path}.ebs"));
        }
    }
}

fn get<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
