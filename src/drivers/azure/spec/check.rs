//! Checks of fields that depend on each other, and of Azure's limits.

use std::collections::BTreeMap;

use mcm_driver::{
    cloud::ClassMarkers,
    spec::{ClassProblems, found, quotable},
};
use serde_json::Value;

use super::types::{Image, Spec};
use crate::names::{MARKERS, MOST_TAGS, OWN_TAGS, is_own, marker_keys};

const LONGEST_KEY: usize = 512;
const LONGEST_VALUE: usize = 256;
const NOT_IN_KEYS: &str = "<>%&\\?/";
const IMAGE_KINDS: &str = "exactly one of id, urn, communityGalleryImageID and sharedGalleryImageID";
const STORAGE: &str = "providerSpec.properties.storageProfile";
const RESERVATION: &str = "/providers/microsoft.compute/capacityreservationgroups/";

pub(super) fn spec(spec: &Spec, problems: &mut ClassProblems) {
    tags(&spec.tags, problems);
    image(&spec.image, &format!("{STORAGE}.imageReference"), problems);
    disks(spec, problems);
    places(spec, problems);
    if let Some(id) = spec.capacity_reservation.as_deref() {
        let is_group = id.starts_with("/subscriptions/") && id.to_ascii_lowercase().contains(RESERVATION);
        if !is_group {
            let path = "providerSpec.properties.capacityReservation.capacityReservationGroupID";
            problems.expected(path, "the resource ID of a capacity reservation group", &found(&Value::from(id)));
        }
    }
}

/// The effect of missing tags of mcm.
fn effect(missing: &[&str]) -> &'static str {
    match missing {
        [_] => "no VM shows its namespace, as with Gardener's driver",
        _ => "no VM shows its machine and its namespace, as with Gardener's driver",
    }
}

fn tags(tags: &BTreeMap<String, String>, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.tags";
    let keys = tags.keys().map(String::as_str);
    ClassMarkers::check(marker_keys(keys.clone()), MARKERS, PATH, problems);
    let count = keys.filter(|key| !is_own(key)).count();
    let missing = OWN_TAGS.get(MOST_TAGS.saturating_sub(count)..).unwrap_or_default();
    if count > MOST_TAGS {
        problems.expected(PATH, &format!("at most {MOST_TAGS} tags"), &count.to_string());
    } else if !missing.is_empty() {
        let text = format!("{count} tags leave no room for {}: {}", missing.join(" and "), effect(missing));
        problems.warning(PATH, text);
    }
    for (key, value) in tags {
        let path = format!("{PATH}.{}", quotable(key));
        if is_own(key) {
            problems.warning(path, "ignored: mcm sets this tag itself");
        } else if key.chars().any(|c| c.is_control() || NOT_IN_KEYS.contains(c)) || key.chars().count() > LONGEST_KEY {
            problems
                .error(path, format!("Azure takes keys of at most {LONGEST_KEY} characters, without {NOT_IN_KEYS}"));
        } else if value.chars().count() > LONGEST_VALUE {
            problems.error(path, format!("Azure takes values of at most {LONGEST_VALUE} characters"));
        }
    }
}

fn image(image: &Image, path: &str, problems: &mut ClassProblems) {
    match image.given() {
        1 => {}
        0 => problems.expected(path, IMAGE_KINDS, "none"),
        several => problems.expected(path, IMAGE_KINDS, &several.to_string()),
    }
    if let Some(urn) = &image.urn
        && image.urn().is_none()
    {
        let found = found(&Value::from(urn.as_str()));
        problems.expected(format!("{path}.urn"), "publisher:offer:sku:version", &found);
    }
}

fn disks(spec: &Spec, problems: &mut ClassProblems) {
    let mut luns = Vec::new();
    for (index, disk) in spec.data_disks.iter().enumerate() {
        let path = format!("{STORAGE}.dataDisks[{index}]");
        if luns.contains(&disk.lun) {
            problems.error(format!("{path}.lun"), format!("another disk has lun {}", disk.lun));
        }
        luns.push(disk.lun);
        if let Some(one) = &disk.image {
            image(one, &format!("{path}.imageRef"), problems);
        }
    }
}

/// A VM is in a zone, in an availability set or in a scale set.
fn places(spec: &Spec, problems: &mut ClassProblems) {
    let given = [spec.zone.is_some(), spec.availability_set.is_some(), spec.scale_set.is_some()];
    let count = given.iter().filter(|is_given| **is_given).count();
    if count != 1 {
        let expected = "exactly one of zone, availabilitySet.id and virtualMachineScaleSet.id";
        let found = if count == 0 { "none".to_owned() } else { count.to_string() };
        problems.expected("providerSpec.properties", expected, &found);
    }
}
