//! MachineDeployment.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};

use super::{
    defaults,
    health_check::{self, OwnerMachineLabels},
    infrastructure,
    input::ConversionInput,
    metadata,
    notes::ConversionNotes,
    options::ConversionOptions,
    report::{ConversionReport, ObjectConversion},
    scalable, strategy,
    template::{self, CapiMachineTemplate, TemplateLocation, TemplateOwner},
};
use crate::types::{CORE, MachineDeployment, MachineDeploymentSpec, MachineTemplate, MaxInFlight, Rollout, names};
use mcm_api::machine::{self, API_VERSION, MachineDeploymentSpec as NativeSpec};

/// Converts a deployment of Cluster API. The first object of the result is the deployment.
pub(super) fn to_native(
    mut source: MachineDeployment,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    defaults::deployment(&mut source);
    let MachineDeployment { metadata, spec, status: _ } = source;
    let mut notes = ConversionNotes::on(&metadata, API_VERSION, report);
    let MachineDeploymentSpec {
        cluster_name,
        replicas,
        rollout: Rollout { after, strategy: rollout_strategy },
        selector,
        template: MachineTemplate { metadata: template_meta, spec: machine_spec },
        machine_naming,
        remediation: MaxInFlight { max_in_flight },
        deletion,
        paused,
    } = spec;
    let made = metadata::to_native(&metadata, &cluster_name, options, &mut notes, report);
    let place =
        TemplateLocation::new(TemplateOwner::Deployment, &metadata, &cluster_name, Some(&selector), options, input);
    strategy::check_capi(&rollout_strategy, report);
    scalable::deletion_to_native(&deletion, &mut notes, report);
    scalable::naming_to_native(&machine_naming, &mut notes, report);
    match &max_in_flight {
        None => {}
        Some(IntOrString::Int(1)) => notes.note("spec.remediation.maxInFlight", &max_in_flight),
        Some(_) => report.refuse(
            "spec.remediation.maxInFlight",
            "MCM replaces one unhealthy machine at a time",
            "set 1, or remove it",
        ),
    }

    let replicas = scalable::replicas_to_native(replicas, metadata.annotations.as_ref(), &mut notes);
    let native_selector = notes.cross(
        &selector,
        "spec.selector",
        "spec.selector",
        |given| Some(scalable::without_label(given, names::CLUSTER_NAME, &cluster_name)),
        |native: &Option<LabelSelector>| selector_to_capi(native, &cluster_name),
    );
    let native_strategy = notes.cross(
        &rollout_strategy,
        "spec.rollout.strategy",
        "spec.strategy",
        strategy::to_native,
        strategy::to_capi,
    );
    let min_ready_seconds = scalable::min_ready_seconds_to_native(machine_spec.min_ready_seconds, &mut notes, report);
    let paused = notes.cross(
        &paused,
        "spec.paused",
        "spec.paused",
        |given| given.unwrap_or(false),
        |native| Some(*native).filter(|paused| *paused),
    );

    let found = infrastructure::to_native(&machine_spec, &place, &mut notes, report);
    let coverage = OwnerMachineLabels::of_deployment(&template_meta.labels, place.name, &cluster_name);
    let checks = health_check::covering(&coverage, &place, &mut notes, report);
    let source =
        CapiMachineTemplate { meta: template_meta, spec: machine_spec, node: found.node, checks, rollout_after: after };
    let template = template::to_native(&source, found.class, &place, &mut notes, report);
    scalable::check_selector(native_selector.as_ref(), &template.metadata.labels, report);
    scalable::check_provider_id(&source.spec.provider_id, report);

    let spec = NativeSpec {
        replicas,
        selector: native_selector,
        template,
        strategy: native_strategy,
        min_ready_seconds,
        revision_history_limit: notes.take("spec.revisionHistoryLimit"),
        paused,
        rollback_to: None,
        progress_deadline_seconds: notes.take("spec.progressDeadlineSeconds"),
        auto_preserve_failed_machine_max: notes.take("spec.autoPreserveFailedMachineMax").unwrap_or_default(),
    };
    let deployment = machine::MachineDeployment { metadata: made, spec, status: None };
    notes.finish(CORE, metadata.generation, deployment, found.objects.into(), report)
}

/// Converts a native deployment. Returns the deployment, its template, Secret and health check, and what is superseded.
pub(super) fn to_capi(
    source: machine::MachineDeployment,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let machine::MachineDeployment { metadata, spec, status: _ } = source;
    let mut notes = ConversionNotes::on(&metadata, CORE, report);
    let NativeSpec {
        replicas,
        selector,
        template: native_template,
        strategy: native_strategy,
        min_ready_seconds,
        revision_history_limit,
        paused,
        rollback_to,
        progress_deadline_seconds,
        auto_preserve_failed_machine_max,
    } = spec;
    let (made, cluster_name) = metadata::to_capi(&metadata, options, &mut notes, report);
    let place =
        TemplateLocation::new(TemplateOwner::Deployment, &metadata, &cluster_name, selector.as_ref(), options, input);
    strategy::check_native(&native_strategy, report);
    scalable::check_selector(selector.as_ref(), &native_template.metadata.labels, report);
    if rollback_to.is_some() {
        report.refuse("spec.rollbackTo", "a rollback is about to begin", "wait until the controller has cleared it");
    }
    let reason = "is not known to Cluster API";
    let advice = "old, empty sets are deleted at once";
    notes.lose("spec.revisionHistoryLimit", &revision_history_limit, report, reason, advice);
    notes.lose("spec.progressDeadlineSeconds", &progress_deadline_seconds, report, reason, "");
    let advice = "failed machines are not kept";
    notes.lose("spec.autoPreserveFailedMachineMax", &auto_preserve_failed_machine_max, report, reason, advice);

    let replicas = scalable::replicas_to_capi(replicas, made.annotations.as_ref(), &mut notes);
    let capi_selector = notes.cross(
        &selector,
        "spec.selector",
        "spec.selector",
        |native| selector_to_capi(native, &cluster_name),
        |given| Some(scalable::without_label(given, names::CLUSTER_NAME, &cluster_name)),
    );
    let rollout_strategy =
        notes.cross(&native_strategy, "spec.strategy", "spec.rollout.strategy", strategy::to_capi, strategy::to_native);
    let min_ready_seconds = scalable::min_ready_seconds_to_capi(min_ready_seconds, &mut notes);
    let paused = notes.cross(
        &paused,
        "spec.paused",
        "spec.paused",
        |native| Some(*native).filter(|paused| *paused),
        |given: &Option<bool>| given.unwrap_or(false),
    );
    let max_in_flight = notes.take("spec.remediation.maxInFlight");
    let (deletion, machine_naming) = scalable::from_notes(&mut notes);

    let (capi, class) = template::to_capi(&native_template, &place, &mut notes, report);
    let CapiMachineTemplate { meta: template_meta, spec: mut machine_spec, node, checks, rollout_after } = capi;
    machine_spec.min_ready_seconds = min_ready_seconds;
    let mut outcome = infrastructure::to_capi(&class, node, &mut machine_spec, &place, &mut notes, report);
    let check = health_check::of_owner(checks, &place, &mut notes);
    let spec = MachineDeploymentSpec {
        cluster_name: cluster_name.clone(),
        replicas,
        rollout: Rollout { after: rollout_after, strategy: rollout_strategy },
        selector: capi_selector,
        template: MachineTemplate { metadata: template_meta, spec: machine_spec },
        machine_naming,
        remediation: MaxInFlight { max_in_flight },
        deletion,
        paused,
    };
    let deployment = MachineDeployment { metadata: made, spec, status: None };
    outcome.objects.extend(check);
    notes.finish(API_VERSION, metadata.generation, deployment, outcome, report)
}

fn selector_to_capi(native: &Option<LabelSelector>, cluster: &str) -> LabelSelector {
    scalable::with_label(&native.clone().unwrap_or_default(), names::CLUSTER_NAME, cluster)
}
