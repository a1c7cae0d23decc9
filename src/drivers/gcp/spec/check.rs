//! Checks of fields that depend on each other.

use serde_json::Value;

use super::types::{Disk, SCRATCH, Spec};
use crate::{
    names::{MARKERS, MOST_LABELS, OWN_LABELS, is_network, is_subnetwork},
    user_data::USER_DATA,
};
use mcm_driver::{
    cloud::{ClassMarkers, is_word},
    spec::{ClassProblems, found},
};

const SCRATCH_INTERFACES: [&str; 2] = ["NVME", "SCSI"];

pub(super) fn spec(spec: &Spec, problems: &mut ClassProblems) {
    for (name, value) in [("region", &spec.region), ("zone", &spec.zone)] {
        if !value.is_empty() && !is_word(value) {
            let found = found(&Value::from(value.as_str()));
            problems.expected(format!("providerSpec.{name}"), "letters, digits and hyphens", &found);
        }
    }
    labels(spec, problems);
    disks(&spec.disks, problems);
    interfaces(spec, problems);
    for (index, (key, _)) in spec.metadata.iter().enumerate() {
        if key == USER_DATA {
            problems
                .error(format!("providerSpec.metadata[{index}].key"), "user-data is for the user data of the secret");
        }
    }
    if spec.gpu.is_some() && spec.scheduling.on_host_maintenance == "MIGRATE" {
        problems.expected("providerSpec.scheduling.onHostMaintenance", "TERMINATE for a VM with a GPU", "MIGRATE");
    }
    shielded(spec, problems);
    ClassMarkers::check(spec.tags.iter().map(String::as_str), MARKERS, "providerSpec.tags", problems);
}

/// The labels that the driver adds are left out if there is no room.
fn labels(spec: &Spec, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.labels";
    let count = spec.labels.keys().filter(|key| !OWN_LABELS.contains(&key.as_str())).count();
    let missing = OWN_LABELS.get(MOST_LABELS.saturating_sub(count)..).unwrap_or_default();
    if count > MOST_LABELS {
        problems.expected(PATH, &format!("at most {MOST_LABELS} labels"), &count.to_string());
    } else if !missing.is_empty() {
        let effect = if missing.len() == 1 { "its namespace" } else { "its machine and its namespace" };
        let text = format!(
            "{count} labels leave no room for {}: no VM shows {effect}, as with Gardener's driver",
            missing.join(" and ")
        );
        problems.warning(PATH, text);
    }
}

fn disks(disks: &[Disk], problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.disks";
    if disks.is_empty() {
        problems.expected(PATH, "at least one disk", "none");
    }
    for (index, disk) in disks.iter().enumerate() {
        let interface = disk.interface.as_deref().unwrap_or_default();
        if disk.kind == SCRATCH && !SCRATCH_INTERFACES.contains(&interface) {
            let expected = format!("one of {} for type {SCRATCH}", SCRATCH_INTERFACES.join(", "));
            problems.expected(format!("{PATH}[{index}].interface"), &expected, &found(&Value::from(interface)));
        }
        if disk.boot && disk.image.is_none() {
            problems.expected(format!("{PATH}[{index}].image"), "an image for a boot disk", "nothing");
        }
    }
}

fn interfaces(spec: &Spec, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.networkInterfaces";
    if spec.network_interfaces.is_empty() {
        problems.expected(PATH, "at least one network interface", "none");
    }
    for (index, interface) in spec.network_interfaces.iter().enumerate() {
        if interface.network.is_none() && interface.subnetwork.is_none() {
            problems.expected(format!("{PATH}[{index}]"), "network or subnetwork", "neither");
        }
        let named = [
            ("network", &interface.network, "projects/HOST/global/networks/NAME"),
            (
                "subnetwork",
                &interface.subnetwork,
                "projects/HOST/regions/REGION/subnetworks/NAME in the region of the class",
            ),
        ];
        for (name, value, form) in named {
            let is_valid = |text: &String| match name {
                "network" => is_network(text),
                _ => is_subnetwork(text, &spec.region),
            };
            if let Some(text) = value.as_ref().filter(|text| !is_valid(text)) {
                let expected = format!("a name, or {form}");
                problems.expected(format!("{PATH}[{index}].{name}"), &expected, &found(&Value::from(text.as_str())));
            }
        }
        let unsent = [
            ("ipv6accessType", &interface.ipv6_access_type),
            ("ipCidrRange", &interface.ip_cidr_range),
            ("subnetworkRangeName", &interface.range_name),
        ];
        for (name, _) in unsent.into_iter().filter(|(_, value)| value.is_some() && !interface.has_ranges()) {
            problems.warning(format!("{PATH}[{index}].{name}"), "ignored without useAliasIPs or stackType IPV4_IPV6");
        }
    }
}

fn shielded(spec: &Spec, problems: &mut ClassProblems) {
    let Some(shielded) = &spec.shielded else { return };
    for (name, value) in [("integrityMonitoring", shielded.integrity_monitoring), ("vtpm", shielded.vtpm)] {
        if value == Some(false) {
            let text = "false is not sent to Google, as in Gardener's driver: it stays on";
            problems.warning(format!("providerSpec.shieldedInstanceConfiguration.{name}"), text);
        }
    }
}
