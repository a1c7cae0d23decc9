//! The common part of a MachineDeployment, a MachineSet and a Machine: labels, annotations and the spec of a machine.

mod checks;
mod place;
mod values;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    health::{MachineHealthSettings, NativeHealthFields},
    keys::{self, MetadataPair},
    notes::{self, ConversionNotes, annotation},
    report::ConversionReport,
    seconds::limit,
};
use crate::types::{Checks, MachineDeletion, MachineMeta, MachineSpec, NodeMeta, names};
use checks::{check_capi, check_native};
use mcm_api::{
    labels,
    machine::{self, ClassSpec, MachineConfiguration, NodeTemplate, TemplateMeta},
};
use values::{DeletedFirst, TemplateTaints};

pub use place::{TemplateLocation, TemplateOwner};
pub use values::class_spec;

const NODE_DELETION: &str = "nodeDeletionTimeoutSeconds";

/// The template on the side of Cluster API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapiMachineTemplate {
    pub meta: MachineMeta,
    pub spec: MachineSpec,
    /// Metadata of the Node from the infrastructure object.
    pub node: NodeMeta,
    /// Of the health check that covers the machines.
    pub checks: Option<Checks>,
    /// `rollout.after` of a deployment.
    pub rollout_after: Option<Time>,
}

/// Converts a template of Cluster API. Class, bootstrap data, zone and VM in its `spec` are read elsewhere.
pub fn to_native(
    source: &CapiMachineTemplate,
    class: ClassSpec,
    place: &TemplateLocation<'_>,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> machine::MachineTemplate {
    let at = place.prefix();
    let CapiMachineTemplate { meta, spec, node, checks, rollout_after } = source;
    // Each field is named, so that a new field does not compile without a decision about its conversion.
    let MachineSpec {
        cluster_name: _,
        bootstrap: _,
        infrastructure_ref: _,
        version,
        provider_id: _,
        failure_domain: _,
        min_ready_seconds,
        readiness_gates: _,
        deletion,
        taints,
    } = spec;
    let MachineDeletion {
        node_drain_timeout_seconds,
        node_volume_detach_timeout_seconds,
        node_deletion_timeout_seconds,
    } = deletion;
    check_capi(meta, spec, place, report);
    if place.owner == TemplateOwner::Machine {
        let reason = "MCM has it on sets and deployments";
        notes.lose(&format!("{at}spec.minReadySeconds"), min_ready_seconds, report, reason, "");
    }
    for (name, value, flag) in [
        ("nodeVolumeDetachTimeoutSeconds", node_volume_detach_timeout_seconds, "--machine-pv-detach-timeout applies"),
        (NODE_DELETION, node_deletion_timeout_seconds, "the Node is deleted without a time limit"),
    ] {
        let is_default = name == NODE_DELETION && *value == place.node_deletion_timeout();
        let noted = value.filter(|_| !is_default);
        notes.lose(&format!("{at}spec.deletion.{name}"), &noted, report, "is not a property of a machine", flag);
    }

    let labels_at = format!("{at}metadata.labels");
    let given = MetadataPair { machine: meta.labels.clone(), node: node.labels.clone() };
    let labels =
        notes.cross(&given, &labels_at, &labels_at, |pair| place.pair_to_native(pair), |pair| place.pair_to_capi(pair));

    let annotations_at = format!("{at}metadata.annotations");
    let (carried, noted) = keys::carry(&meta.annotations, &annotations_at, keys::of_capi_machine, notes, report);
    let domains = &names::NODE_ANNOTATION_DOMAINS;
    let annotations = notes.cross(
        &MetadataPair { machine: carried, node: node.annotations.clone() },
        &annotations_at,
        &annotations_at,
        |pair| pair.to_native(domains),
        |pair| pair.to_capi(domains),
    );
    let mut own = annotations.machine;
    own.extend(noted);
    let first = DeletedFirst {
        mark: meta.annotations.get(names::DELETE_MACHINE).cloned(),
        priority: meta.annotations.get(labels::PRIORITY).cloned(),
    };
    let priority = notes.cross(
        &first,
        &format!("{at}deletedFirst"),
        &format!("{at}deletedFirst"),
        DeletedFirst::to_native,
        DeletedFirst::of_native,
    );
    own.extend(priority.map(|priority| (labels::PRIORITY.to_owned(), priority)));
    if !version.is_empty() {
        own.insert(notes::VERSION.to_owned(), version.clone());
    }
    if let Some(after) = rollout_after {
        if place.options.now.is_some_and(|now| after.0 <= now) {
            own.insert(notes::ROLLOUT_AFTER.to_owned(), after.0.to_string());
        } else {
            notes.note("spec.rollout.after", after);
            report.lose("spec.rollout.after", "lies in the future", "convert again when it has passed");
        }
    }

    let health =
        MachineHealthSettings { checks: checks.clone(), skip: meta.annotations.get(names::SKIP_REMEDIATION).cloned() };
    let health = notes.cross(
        &health,
        &format!("{at}health"),
        &format!("{at}health"),
        MachineHealthSettings::to_native,
        |native| place.health_to_capi(native),
    );
    let drain_timeout = notes.cross(
        node_drain_timeout_seconds,
        &format!("{at}spec.deletion.nodeDrainTimeoutSeconds"),
        &format!("{at}spec.drainTimeout"),
        |given| Some(limit(given.unwrap_or(0))),
        |native| place.drain_to_capi(*native),
    );
    let class = notes.cross(
        &class.name.clone(),
        &format!("{at}class"),
        &format!("{at}spec.class"),
        |_| class.clone(),
        |native: &ClassSpec| native.name.clone(),
    );
    let node_spec = notes.cross(
        &TemplateTaints { machine: taints.clone(), infrastructure: node.taints.clone() },
        &format!("{at}spec.taints"),
        &format!("{at}spec.nodeTemplate.spec"),
        TemplateTaints::to_native,
        TemplateTaints::of_native,
    );

    let mut restore = |path: &str| notes.take(&format!("{at}{path}"));
    let configuration = MachineConfiguration {
        drain_timeout,
        health_timeout: health.health_timeout,
        creation_timeout: health.creation_timeout,
        in_place_update_timeout: restore("spec.inPlaceUpdateTimeout").and_then(from_note),
        machine_preserve_timeout: restore("spec.machinePreserveTimeout").and_then(from_note),
        disable_health_timeout: health.disable_health_timeout,
        max_evict_retries: restore("spec.maxEvictRetries").and_then(from_note),
        node_conditions: health.node_conditions,
    };
    let node_template = NodeTemplate {
        metadata: TemplateMeta {
            labels: labels.node,
            annotations: annotations.node,
            finalizers: restore("spec.nodeTemplate.metadata.finalizers").and_then(from_note).unwrap_or_default(),
            other: restore("spec.nodeTemplate.metadata").and_then(from_note).unwrap_or_default(),
        },
        spec: node_spec,
    };
    let metadata = TemplateMeta {
        labels: labels.machine,
        annotations: own,
        finalizers: restore("metadata.finalizers").and_then(from_note).unwrap_or_default(),
        other: restore("metadata").and_then(from_note).unwrap_or_default(),
    };
    let node_template = node_template.into();
    let spec = machine::MachineSpec { class, provider_id: String::new(), node_template, configuration };
    machine::MachineTemplate { metadata, spec }
}

/// Converts a native template. Class, bootstrap data, zone and VM are filled in elsewhere; `class` in the result is the
/// name of the class.
pub fn to_capi(
    source: &machine::MachineTemplate,
    place: &TemplateLocation<'_>,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> (CapiMachineTemplate, String) {
    let at = place.prefix();
    let machine::MachineTemplate {
        metadata: TemplateMeta { labels: given_labels, annotations: given_annotations, finalizers, other },
        spec: machine::MachineSpec { class, provider_id: _, node_template, configuration },
    } = source;
    let MachineConfiguration {
        drain_timeout,
        health_timeout: _,
        creation_timeout: _,
        in_place_update_timeout,
        machine_preserve_timeout,
        disable_health_timeout: _,
        max_evict_retries,
        node_conditions: _,
    } = configuration;
    let NodeTemplate { metadata: node_meta, spec: node_spec } = &**node_template;
    check_native(source, place, report);

    let reason = "has no place in Cluster API";
    if place.owner != TemplateOwner::Machine {
        notes.lose(&format!("{at}metadata.finalizers"), finalizers, report, reason, "");
        notes.lose(&format!("{at}metadata"), &without_nulls(other), report, reason, "");
    }
    notes.lose(&format!("{at}spec.nodeTemplate.metadata.finalizers"), &node_meta.finalizers, report, reason, "");
    let node_other = without_nulls(&node_meta.other);
    notes.lose(&format!("{at}spec.nodeTemplate.metadata"), &node_other, report, reason, "");
    let reason = "is not known to Cluster API";
    notes.lose(&format!("{at}spec.inPlaceUpdateTimeout"), in_place_update_timeout, report, reason, "");
    notes.lose(&format!("{at}spec.machinePreserveTimeout"), machine_preserve_timeout, report, reason, "");
    let advice = "Cluster API evicts pods until nodeDrainTimeoutSeconds have passed";
    notes.lose(&format!("{at}spec.maxEvictRetries"), max_evict_retries, report, reason, advice);

    let labels_at = format!("{at}metadata.labels");
    let labels = notes.cross(
        &MetadataPair { machine: given_labels.clone(), node: node_meta.labels.clone() },
        &labels_at,
        &labels_at,
        |pair| place.pair_to_capi(pair),
        |pair| place.pair_to_native(pair),
    );
    let annotations_at = format!("{at}metadata.annotations");
    let (carried, noted) = keys::carry(given_annotations, &annotations_at, keys::of_native_machine, notes, report);
    let domains = &names::NODE_ANNOTATION_DOMAINS;
    let annotations = notes.cross(
        &MetadataPair { machine: carried, node: node_meta.annotations.clone() },
        &annotations_at,
        &annotations_at,
        |pair| pair.to_capi(domains),
        |pair| pair.to_native(domains),
    );
    let mut own = annotations.machine;
    own.extend(noted);
    let first = notes.cross(
        &given_annotations.get(labels::PRIORITY).cloned(),
        &format!("{at}deletedFirst"),
        &format!("{at}deletedFirst"),
        DeletedFirst::of_native,
        DeletedFirst::to_native,
    );
    own.extend(first.mark.map(|mark| (names::DELETE_MACHINE.to_owned(), mark)));
    own.extend(first.priority.map(|priority| (labels::PRIORITY.to_owned(), priority)));

    let health = notes.cross(
        &NativeHealthFields::from_configuration(configuration),
        &format!("{at}health"),
        &format!("{at}health"),
        |native| place.health_to_capi(native),
        MachineHealthSettings::to_native,
    );
    own.extend(health.skip.map(|value| (names::SKIP_REMEDIATION.to_owned(), value)));
    let node_drain_timeout_seconds = notes.cross(
        drain_timeout,
        &format!("{at}spec.drainTimeout"),
        &format!("{at}spec.deletion.nodeDrainTimeoutSeconds"),
        |native| place.drain_to_capi(*native),
        |given| Some(limit(given.unwrap_or(0))),
    );
    let class_name = notes.cross(
        class,
        &format!("{at}spec.class"),
        &format!("{at}class"),
        |class| class.name.clone(),
        |name: &String| class_spec(name),
    );
    let taints = notes.cross(
        node_spec,
        &format!("{at}spec.nodeTemplate.spec"),
        &format!("{at}spec.taints"),
        TemplateTaints::of_native,
        TemplateTaints::to_native,
    );

    let mark = given_annotations.get(notes::ROLLOUT_AFTER);
    let after = mark.and_then(|text| text.parse::<Timestamp>().ok().filter(|after| after.to_string() == *text));
    let after = after.filter(|_| place.owner == TemplateOwner::Deployment).map(Time);
    if let (Some(mark), None) = (mark, &after) {
        notes.note(&annotation(at, notes::ROLLOUT_AFTER), mark);
    }
    let rollout_after = after.or_else(|| notes.take("spec.rollout.after"));
    let mut restore = |path: &str| notes.take(&format!("{at}{path}"));
    let spec = MachineSpec {
        cluster_name: place.cluster.to_owned(),
        version: given_annotations.get(notes::VERSION).cloned().unwrap_or_default(),
        min_ready_seconds: restore("spec.minReadySeconds").and_then(from_note),
        deletion: MachineDeletion {
            node_drain_timeout_seconds,
            node_volume_detach_timeout_seconds: restore("spec.deletion.nodeVolumeDetachTimeoutSeconds")
                .and_then(from_note),
            node_deletion_timeout_seconds: restore(&format!("spec.deletion.{NODE_DELETION}"))
                .and_then(from_note)
                .or(place.node_deletion_timeout()),
        },
        taints: taints.machine,
        ..MachineSpec::default()
    };
    let meta = MachineMeta { labels: labels.machine, annotations: own };
    let node = NodeMeta { labels: labels.node, annotations: annotations.node, taints: taints.infrastructure };
    (CapiMachineTemplate { meta, spec, node, checks: health.checks, rollout_after }, class_name)
}

fn from_note<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

fn without_nulls(fields: &Map<String, Value>) -> Map<String, Value> {
    fields.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), value.clone())).collect()
}
