//! Machine.

use super::{
    cloud::provider_id,
    defaults,
    health_check::{self, OwnerMachineLabels},
    infrastructure,
    input::ConversionInput,
    keys::MetadataMap,
    metadata,
    notes::ConversionNotes,
    options::ConversionOptions,
    report::{ConversionReport, ObjectConversion},
    template::{self, CapiMachineTemplate, TemplateLocation, TemplateOwner},
};
use crate::types::{CORE, Machine, MachineMeta, MachineStatus, NodeRef, names};
use mcm_api::{
    labels,
    machine::{self, API_VERSION, TemplateMeta},
};

const ID: &str = "spec.providerID";

/// Converts a Machine of Cluster API. The first object of the result is the Machine.
pub(super) fn to_native(
    mut source: Machine,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    defaults::machine(&mut source);
    let Machine { metadata, spec, status } = source;
    let mut notes = ConversionNotes::on(&metadata, API_VERSION, report);
    let place = TemplateLocation::new(TemplateOwner::Machine, &metadata, &spec.cluster_name, None, options, input);
    let mut given = metadata.labels.clone().unwrap_or_default();
    let node = status.and_then(|status| status.node_ref).map(|node| node.name).filter(|name| !name.is_empty());
    if node.is_some() && given.get(labels::NODE) == node.as_ref() {
        given.remove(labels::NODE);
    }
    let checks =
        health_check::covering(&OwnerMachineLabels::of_machine(&given, &spec.cluster_name), &place, &mut notes, report);
    let found = infrastructure::to_native(&spec, &place, &mut notes, report);
    if !spec.provider_id.is_empty() && !found.provider_id.is_empty() && spec.provider_id != found.provider_id {
        let reason = format!("differs from {} of the infrastructure object", found.provider_id);
        report.refuse(ID, reason, "set both to the ID of its VM");
    }
    let id = if spec.provider_id.is_empty() { &found.provider_id } else { &spec.provider_id };
    let zone = Some(spec.failure_domain.clone()).filter(|zone| !zone.is_empty());
    let provider_id = notes.cross(
        id,
        ID,
        ID,
        |id| provider_id::to_native(id, &found.provider_spec),
        |native: &String| provider_id::to_node(native, zone.as_deref()).unwrap_or_default(),
    );
    let meta = MachineMeta { labels: given, annotations: metadata.annotations.clone().unwrap_or_default() };
    let source = CapiMachineTemplate { meta, spec: spec.clone(), node: found.node, checks, rollout_after: None };
    let template = template::to_native(&source, found.class, &place, &mut notes, report);
    let TemplateMeta { labels: mut own, annotations, finalizers: _, other: _ } = template.metadata;
    own.extend(node.map(|node| (labels::NODE.to_owned(), node)));
    let mut made = metadata::identity(&metadata, report);
    made.labels = metadata::filled(own);
    made.annotations = metadata::filled(annotations);
    let spec = machine::MachineSpec { provider_id, ..template.spec };
    let machine = machine::Machine { metadata: made, spec, status: None };
    notes.finish(CORE, metadata.generation, machine, found.objects.into(), report)
}

/// Converts a native Machine. Returns the Machine, its MCMMachine and Secret, and what is superseded.
pub(super) fn to_capi(
    source: machine::Machine,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let reported = source.node_provider_id().map(str::to_owned);
    let machine::Machine { metadata, spec, status: _ } = source;
    let mut notes = ConversionNotes::on(&metadata, CORE, report);
    let cluster_name = metadata::cluster_of(&metadata, options, report);
    let place = TemplateLocation::new(TemplateOwner::Machine, &metadata, &cluster_name, None, options, input);
    let mut given: MetadataMap = metadata.labels.clone().unwrap_or_default();
    let node = given.remove(labels::NODE).filter(|name| !name.is_empty());
    let template_metadata = TemplateMeta {
        labels: given,
        annotations: metadata.annotations.clone().unwrap_or_default(),
        ..TemplateMeta::default()
    };
    let given_id = spec.provider_id.clone();
    let template = machine::MachineTemplate { metadata: template_metadata, spec };
    let (capi, class) = template::to_capi(&template, &place, &mut notes, report);
    let CapiMachineTemplate {
        meta: MachineMeta { labels: mut own, annotations },
        spec: mut machine_spec,
        node: node_meta,
        ..
    } = capi;
    own.insert(names::CLUSTER_NAME.to_owned(), cluster_name.clone());

    let content = input.class(place.namespace, &class).as_ref().map(infrastructure::content_of);
    let zone = infrastructure::zone_of(content.as_ref());
    let provider_spec = content.map(|content| content.provider_spec).unwrap_or_default();
    let node_form = reported.or_else(|| provider_id::to_node(&given_id, zone.as_deref()));
    machine_spec.provider_id = notes.cross(
        &given_id,
        ID,
        ID,
        |_| node_form.clone().unwrap_or_default(),
        |id: &String| provider_id::to_native(id, &provider_spec),
    );
    if machine_spec.provider_id.is_empty() && !given_id.is_empty() {
        report.refuse(
            ID,
            format!("the ID of the Node has the zone of the VM, which {given_id:?} does not say"),
            "add the MachineClass, with the zone in its nodeTemplate",
        );
    }
    let outcome = infrastructure::to_capi(&class, node_meta, &mut machine_spec, &place, &mut notes, report);
    let mut made = metadata::identity(&metadata, report);
    made.labels = metadata::filled(own);
    made.annotations = metadata::filled(annotations);
    let status = node.map(|name| MachineStatus { node_ref: Some(NodeRef { name }), ..MachineStatus::default() });
    let machine = Machine { metadata: made, spec: machine_spec, status };
    notes.finish(API_VERSION, metadata.generation, machine, outcome, report)
}
