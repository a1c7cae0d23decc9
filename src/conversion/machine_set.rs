//! MachineSet, if no deployment has it. The sets of a deployment are made by its controller.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{
    defaults,
    health_check::{self, OwnerMachineLabels},
    infrastructure,
    input::ConversionInput,
    metadata,
    notes::ConversionNotes,
    options::ConversionOptions,
    report::{ConversionReport, ObjectConversion},
    scalable,
    template::{self, CapiMachineTemplate, TemplateLocation, TemplateOwner},
};
use crate::types::{CORE, MachineSet, MachineSetSpec, MachineTemplate};
use mcm_api::machine::{self, API_VERSION, ClassSpec, MachineSetSpec as NativeSpec};

/// Converts a set of Cluster API. The first object of the result is the set.
pub(super) fn to_native(
    mut source: MachineSet,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    defaults::set(&mut source);
    let MachineSet { metadata, spec, status: _ } = source;
    let mut notes = ConversionNotes::on(&metadata, API_VERSION, report);
    let MachineSetSpec {
        cluster_name,
        replicas,
        selector,
        template: MachineTemplate { metadata: template_meta, spec: machine_spec },
        machine_naming,
        deletion,
    } = spec;
    let made = metadata::to_native(&metadata, &cluster_name, options, &mut notes, report);
    let place = TemplateLocation::new(TemplateOwner::Set, &metadata, &cluster_name, Some(&selector), options, input);
    scalable::deletion_to_native(&deletion, &mut notes, report);
    scalable::naming_to_native(&machine_naming, &mut notes, report);
    let replicas = scalable::replicas_to_native(replicas, metadata.annotations.as_ref(), &mut notes);
    let min_ready_seconds = scalable::min_ready_seconds_to_native(machine_spec.min_ready_seconds, &mut notes, report);
    let found = infrastructure::to_native(&machine_spec, &place, &mut notes, report);
    let coverage = OwnerMachineLabels::of_set(&template_meta.labels, place.name, &cluster_name);
    let checks = health_check::covering(&coverage, &place, &mut notes, report);
    scalable::check_provider_id(&machine_spec.provider_id, report);
    let source =
        CapiMachineTemplate { meta: template_meta, spec: machine_spec, node: found.node, checks, rollout_after: None };
    let template = template::to_native(&source, found.class, &place, &mut notes, report);
    scalable::check_selector(Some(&selector), &template.metadata.labels, report);
    let spec = NativeSpec {
        replicas,
        selector: Some(selector),
        // It repeats the class of the template.
        machine_class: notes.take::<ClassSpec>("spec.machineClass").unwrap_or_default(),
        template,
        min_ready_seconds,
        auto_preserve_failed_machine_max: notes.take("spec.autoPreserveFailedMachineMax").unwrap_or_default(),
    };
    let set = machine::MachineSet { metadata: made, spec, status: None };
    notes.finish(CORE, metadata.generation, set, found.objects.into(), report)
}

/// Converts a native set. Returns the set, its template, Secret and health check, and what is superseded.
pub(super) fn to_capi(
    source: machine::MachineSet,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let machine::MachineSet { metadata, spec, status: _ } = source;
    let mut notes = ConversionNotes::on(&metadata, CORE, report);
    let NativeSpec {
        replicas,
        selector,
        machine_class,
        template: native_template,
        min_ready_seconds,
        auto_preserve_failed_machine_max,
    } = spec;
    let (made, cluster_name) = metadata::to_capi(&metadata, options, &mut notes, report);
    let place = TemplateLocation::new(TemplateOwner::Set, &metadata, &cluster_name, selector.as_ref(), options, input);
    scalable::check_selector(selector.as_ref(), &native_template.metadata.labels, report);
    let advice = "failed machines are not kept";
    let reason = "is not known to Cluster API";
    notes.lose("spec.autoPreserveFailedMachineMax", &auto_preserve_failed_machine_max, report, reason, advice);
    if machine_class != ClassSpec::default() {
        notes.note("spec.machineClass", &machine_class);
    }
    let replicas = scalable::replicas_to_capi(replicas, made.annotations.as_ref(), &mut notes);
    let min_ready_seconds = scalable::min_ready_seconds_to_capi(min_ready_seconds, &mut notes);
    let (deletion, machine_naming) = scalable::from_notes(&mut notes);
    let (capi, class) = template::to_capi(&native_template, &place, &mut notes, report);
    let CapiMachineTemplate { meta: template_meta, spec: mut machine_spec, node, checks, rollout_after: _ } = capi;
    machine_spec.min_ready_seconds = min_ready_seconds;
    let mut outcome = infrastructure::to_capi(&class, node, &mut machine_spec, &place, &mut notes, report);
    let check = health_check::of_owner(checks, &place, &mut notes);
    let spec = MachineSetSpec {
        cluster_name: cluster_name.clone(),
        replicas,
        selector: selector.unwrap_or_else(LabelSelector::default),
        template: MachineTemplate { metadata: template_meta, spec: machine_spec },
        machine_naming,
        deletion,
    };
    let set = MachineSet { metadata: made, spec, status: None };
    outcome.objects.extend(check);
    notes.finish(API_VERSION, metadata.generation, set, outcome, report)
}
