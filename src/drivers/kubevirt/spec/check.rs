//! Checks of fields that depend on each other, and of amounts.

use std::collections::BTreeSet;

use mcm_api::syntax::{is_label_value, is_qualified_name};
use mcm_driver::spec::{ClassProblems, found, quotable};
use serde_json::Value;

use super::{
    foreign::is_positive,
    types::{AdditionalVolume, SOURCES, Source, Spec},
};
use crate::{
    markers,
    names::{OWN_LABELS, ROOT_DISK},
};

pub(super) fn spec(spec: &Spec, problems: &mut ClassProblems) {
    for name in ["cpu", "memory"] {
        amount(&spec.resources, &format!("/requests/{name}"), "providerSpec.resources", problems);
    }
    data_volume(&spec.root_volume, "providerSpec.rootVolume", problems);
    for (index, volume) in spec.additional_volumes.iter().enumerate() {
        let path = format!("providerSpec.additionalVolumes[{index}]");
        match &volume.source {
            Source::DataVolume(volume) => data_volume(volume, &format!("{path}.dataVolume"), problems),
            Source::Existing(..) => {}
            Source::Unusable(found) => {
                let expected = format!("dataVolume, or volumeSource with one of {}", SOURCES.join(", "));
                problems.expected(path, &expected, found);
            }
        }
    }
    disks(&spec.devices.disks, &spec.additional_volumes, problems);
    networks(spec, problems);
    dns(spec, problems);
    tags(spec, problems);
}

/// An amount at a pointer below `path`.
fn amount(value: &Value, pointer: &str, path: &str, problems: &mut ClassProblems) {
    let amount = value.pointer(pointer);
    if !is_positive(amount) {
        let path = format!("{path}{}", pointer.replace('/', "."));
        problems.expected(path, "a quantity above zero", &amount.map_or_else(|| "nothing".to_owned(), found));
    }
}

fn data_volume(volume: &Value, path: &str, problems: &mut ClassProblems) {
    match volume.get("pvc") {
        Some(pvc) if pvc.is_object() => amount(volume, "/pvc/resources/requests/storage", path, problems),
        other => {
            let found = other.map_or_else(|| "nothing".to_owned(), found);
            problems.expected(format!("{path}.pvc"), "an object", &found);
        }
    }
}

fn disks(disks: &[Value], volumes: &[AdditionalVolume], problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.devices.disks";
    let most = volumes.len().saturating_add(1);
    if disks.len() > most {
        problems.expected(PATH, &format!("at most {most}, one for each volume"), &disks.len().to_string());
    }
    let mut names = BTreeSet::new();
    for (index, disk) in disks.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        if disk.get("bootOrder").is_some() {
            problems.error(format!("{path}.bootOrder"), "not allowed: the VM boots from its root volume");
        }
        let name = disk.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_of_volume = name == ROOT_DISK || volumes.iter().any(|volume| !name.is_empty() && volume.name == name);
        if !is_of_volume {
            let expected = format!("{ROOT_DISK}, or the name of an additional volume");
            let found = disk.get("name").map_or_else(|| "nothing".to_owned(), found);
            problems.expected(format!("{path}.name"), &expected, &found);
        } else if !names.insert(name) {
            problems.error(format!("{path}.name"), "given twice");
        }
    }
}

/// Multus has one default network.
fn networks(spec: &Spec, problems: &mut ClassProblems) {
    let defaults = spec.networks.iter().enumerate().filter(|(_, network)| network.is_default);
    for (index, _) in defaults.skip(1) {
        problems.error(format!("providerSpec.networks[{index}].default"), "another network is the default already");
    }
}

fn dns(spec: &Spec, problems: &mut ClassProblems) {
    let nameservers = spec.dns_config.as_ref().and_then(|config| config.get("nameservers")?.as_array());
    if spec.dns_policy == Some("None") && nameservers.is_none_or(Vec::is_empty) {
        problems.expected("providerSpec.dnsConfig.nameservers", "nameservers for dnsPolicy None", "none");
    }
}

fn tags(spec: &Spec, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.tags";
    for (key, value) in &spec.tags {
        let path = format!("{PATH}.{}", quotable(key));
        if OWN_LABELS.contains(&key.as_str()) {
            problems.warning(path, "ignored: mcm sets this label itself");
        } else if !is_qualified_name(key) {
            problems.error(path, "the key is not that of a label");
        } else if !is_label_value(value) {
            problems.expected(path, "a value of a label", &found(&Value::from(value.as_str())));
        }
    }
    markers::check(&spec.tags, PATH, problems);
}
