//! Fields that deployments and sets of Cluster API have in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{keys::MetadataMap, notes::ConversionNotes, report::ConversionReport};
use crate::types::{Deletion, MachineNaming, names};
use mcm_api::{labels, selector::Selector};

const REPLICAS: &str = "spec.replicas";
const MIN_READY: &str = "spec.template.spec.minReadySeconds";
const NATIVE_MIN_READY: &str = "spec.minReadySeconds";

/// The default of `replicas`: the autoscaler's minimum if there are both annotations, else 1.
pub(super) fn default_replicas(annotations: Option<&MetadataMap>) -> i32 {
    let size = |key: &str| annotations?.get(key)?.parse::<i32>().ok();
    match (size(names::AUTOSCALER_MIN), size(names::AUTOSCALER_MAX)) {
        (Some(min), Some(_)) => min,
        _ => 1,
    }
}

/// The number of machines.
pub(super) fn replicas_to_native(
    replicas: Option<i32>,
    annotations: Option<&MetadataMap>,
    notes: &mut ConversionNotes,
) -> i32 {
    let default = default_replicas(annotations);
    notes.cross(&replicas, REPLICAS, REPLICAS, |given| given.unwrap_or(default), |native| Some(*native))
}

/// The number of machines, always written.
pub(super) fn replicas_to_capi(
    replicas: i32,
    annotations: Option<&MetadataMap>,
    notes: &mut ConversionNotes,
) -> Option<i32> {
    let default = default_replicas(annotations);
    notes.cross(&replicas, REPLICAS, REPLICAS, |native| Some(*native), |given: &Option<i32>| given.unwrap_or(default))
}

/// `minReadySeconds`: a property of the template in Cluster API, of the set natively.
pub(super) fn min_ready_seconds_to_native(
    seconds: Option<i32>,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> i32 {
    if seconds.is_some_and(|seconds| seconds > 0) {
        let reason = "has no effect in MCM: a rollout goes on as soon as a machine is ready";
        report.lose(MIN_READY, reason, "");
    }
    notes.cross(&seconds, MIN_READY, NATIVE_MIN_READY, |given| given.unwrap_or(0), some_unless_zero)
}

/// The inverse of [`min_ready_seconds_to_native`].
pub(super) fn min_ready_seconds_to_capi(seconds: i32, notes: &mut ConversionNotes) -> Option<i32> {
    let back = |given: &Option<i32>| given.unwrap_or(0);
    notes.cross(&seconds, NATIVE_MIN_READY, MIN_READY, some_unless_zero, back)
}

fn some_unless_zero(seconds: &i32) -> Option<i32> {
    Some(*seconds).filter(|seconds| *seconds != 0)
}

/// Refuses a template that gives every machine the same VM.
pub(super) fn check_provider_id(id: &str, report: &mut ConversionReport) {
    if !id.is_empty() {
        report.refuse("spec.template.spec.providerID", "all machines would share one VM", "remove it");
    }
}

/// Refuses orders of deletion that native sets do not have, and notes the others.
pub(super) fn deletion_to_native(deletion: &Deletion, notes: &mut ConversionNotes, report: &mut ConversionReport) {
    match deletion.order.as_str() {
        "" | "Random" | "Oldest" => {}
        other => report.refuse(
            "spec.deletion.order",
            format!("{other} has no MCM equivalent: other machines would be deleted"),
            "use Random or Oldest",
        ),
    }
    if *deletion != Deletion::default() {
        notes.note("spec.deletion", deletion);
    }
}

/// Refuses names that native sets do not give.
pub(super) fn naming_to_native(naming: &MachineNaming, notes: &mut ConversionNotes, report: &mut ConversionReport) {
    if !["", names::DEFAULT_MACHINE_NAME].contains(&naming.template.as_str()) {
        report.refuse("spec.machineNaming.template", "MCM names a machine after its set and five letters", "remove it");
    }
    if *naming != MachineNaming::default() {
        notes.note("spec.machineNaming", naming);
    }
}

/// A native order and native names become the defaults, unless others were noted.
pub(super) fn from_notes(notes: &mut ConversionNotes) -> (Deletion, MachineNaming) {
    (notes.take("spec.deletion").unwrap_or_default(), notes.take("spec.machineNaming").unwrap_or_default())
}

/// Refuses a selector that selects everything or cannot be read.
pub(super) fn check_selector(selector: Option<&LabelSelector>, template: &MetadataMap, report: &mut ConversionReport) {
    let advice = "select by a label of the template";
    match Selector::parse(selector) {
        Err(error) => report.refuse("spec.selector", error.to_string(), "correct it"),
        Ok(_) if selector.is_none() => report.refuse("spec.selector", "is absent", advice),
        Ok(parsed) if parsed.selects_all() => {
            report.refuse("spec.selector", "selects every machine of the namespace", advice);
        }
        Ok(parsed) if !parsed.matches(Some(template)) => {
            report.refuse("spec.selector", "does not select the labels of the template", advice);
        }
        Ok(_) => {}
    }
}

/// A selector uses the label `name`.
pub(super) fn selects_name(selector: Option<&LabelSelector>) -> bool {
    selector.is_some_and(|selector| {
        selector.match_labels.iter().flatten().any(|(key, _)| key == labels::DEPLOYMENT_NAME)
            || selector.match_expressions.iter().flatten().any(|one| one.key == labels::DEPLOYMENT_NAME)
    })
}

/// A selector without a label.
pub(super) fn without_label(selector: &LabelSelector, key: &str, value: &str) -> LabelSelector {
    let mut selector = selector.clone();
    if let Some(labels) = &mut selector.match_labels {
        labels.retain(|other, given| other != key || given != value);
    }
    selector.match_labels = selector.match_labels.filter(|labels| !labels.is_empty());
    selector
}

/// A selector with a label.
pub(super) fn with_label(selector: &LabelSelector, key: &str, value: &str) -> LabelSelector {
    let mut selector = selector.clone();
    selector.match_labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    selector
}
