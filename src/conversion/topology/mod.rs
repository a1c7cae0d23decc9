//! Clusters with a topology: Cluster API core makes their workers from the worker classes of a ClusterClass, whose patches change
//! the templates. The worker classes of another provider become those of mcm: their templates describe a MachineClass, and the
//! patches set its fields.

mod change;
mod patches;
mod values;
mod worker;

use serde_json::{Value, json};

use super::{
    answers::TemplateQuestion,
    cloud,
    hybrid::{self, VERSION},
    input::{ConversionInput, SourceDocument},
    options::ConversionOptions,
    report::{ConversionReport, ObjectConversion},
};
use crate::types::{CORE_GROUP, MCMMachineSpec, MCMMachineTemplate, MCMMachineTemplateSpec, TemplateResource};
use mcm_api::machine::{ClassContent, SecretRef};
use worker::{CLUSTER_NAME, DEPLOYMENTS, ForeignWorker, OWNERS, REFERENCES, WorkerClass, class_of, items, workers_of};

/// A Cluster or ClusterClass has workers in its topology.
pub(super) fn has_workers(document: &SourceDocument<'_>) -> bool {
    let path = if document.kind == "ClusterClass" { "/spec/workers" } else { "/spec/topology/workers" };
    let workers = document.value.pointer(path);
    workers.is_some_and(|workers| OWNERS.iter().any(|name| items(&workers[*name]).next().is_some()))
}

/// An object is a ClusterClass with worker classes of another provider.
pub(super) fn has_foreign_workers(document: &SourceDocument<'_>) -> bool {
    is_class(document) && workers_of(document).iter().any(WorkerClass::is_foreign)
}

/// Paths of the worker classes of a ClusterClass, with the kinds of their infrastructure templates.
pub(super) fn worker_kinds<'a>(document: &SourceDocument<'a>) -> Vec<(String, &'a str)> {
    if !is_class(document) {
        return Vec::new();
    }
    workers_of(document).into_iter().map(|worker| (worker.path(), worker.kind)).collect()
}

/// A worker class of a ClusterClass refers to a template of another provider.
pub(super) fn uses(template: &SourceDocument<'_>, input: &ConversionInput<'_>) -> bool {
    users_of(template, input).next().is_some()
}

/// The ClusterClass of a Cluster with workers is not among the objects.
pub(super) fn is_incomplete(cluster: &SourceDocument<'_>, input: &ConversionInput<'_>) -> bool {
    has_workers(cluster) && classes(input).all(|class| class.name != class_of(cluster))
}

/// Refuses a Cluster whose ClusterClass is not among the objects.
pub(super) fn refuse_incomplete(cluster: &SourceDocument<'_>, report: &mut ConversionReport) {
    let reason = format!("its workers are those of ClusterClass {}, which is not among the objects", class_of(cluster));
    report.refuse("spec.topology", reason, "add it");
}

/// Refuses all workers of a topology, which MCM does not have.
pub(super) fn refuse_all(document: &SourceDocument<'_>, report: &mut ConversionReport) {
    let path = if document.kind == "ClusterClass" { "spec.workers" } else { "spec.topology" };
    let reason = "Cluster API makes the MachineDeployments of a topology from patches of its ClusterClass";
    report.refuse(
        path,
        reason,
        "convert the MachineDeployments of the running cluster, or use a template without a ClusterClass",
    );
}

/// The ClusterClass, as it was given, with worker classes of mcm.
pub(super) fn moved(
    document: &SourceDocument<'_>,
    given: &Value,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let (deployments, pools): (Vec<_>, Vec<_>) = workers_of(document)
        .into_iter()
        .filter(WorkerClass::is_foreign)
        .partition(|worker| worker.owner == DEPLOYMENTS);
    for worker in pools {
        let WorkerClass { class, kind, template, .. } = worker;
        let reason =
            format!("class {class} makes pools from {kind} {template}, and mcm converts machineDeployments only");
        report.refuse(worker.path(), reason, "convert the MachinePools of the running Clusters");
    }
    let of_worker = |worker| ForeignWorker::from_worker_class(worker, document, input, options, report);
    let sources: Vec<ForeignWorker<'_>> = deployments.into_iter().filter_map(of_worker).collect();
    let mut made = given.clone();
    for source in &sources {
        let WorkerClass { owner, number, .. } = source.worker;
        let Some(worker) = made.pointer_mut(&format!("/spec/workers/{owner}/{number}")) else { continue };
        for path in REFERENCES {
            if let Some(Value::Object(reference)) = worker.pointer_mut(path) {
                reference.insert("apiVersion".to_owned(), json!(VERSION));
                reference.insert("kind".to_owned(), json!("MCMMachineTemplate"));
            }
        }
        if source.provider.zone_is_of_subnet {
            leave_zone_to_subnet(worker, &source.worker.path(), report);
        }
    }
    let patches = patches::translated(given, &sources, report);
    if let Some(spec) = made["spec"].as_object_mut() {
        spec.remove("patches");
        spec.extend((!patches.is_empty()).then(|| ("patches".to_owned(), json!(patches))));
    }
    vec![made].into()
}

/// The Cluster as it was given, except for zones that a subnet determines.
pub(super) fn without_zones(
    document: &SourceDocument<'_>,
    given: &Value,
    input: &ConversionInput<'_>,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let is_of_subnet = |class: &Value| {
        let workers = classes(input).filter(|one| one.name == class_of(document)).flat_map(workers_of);
        let mut own = workers.filter(|worker| worker.owner == DEPLOYMENTS && *class == worker.class);
        own.any(|worker| worker.is_foreign() && cloud::zone_is_of_subnet(worker.kind))
    };
    let mut made = given.clone();
    let owners = made.pointer_mut("/spec/topology/workers/machineDeployments").and_then(Value::as_array_mut);
    for (number, owner) in owners.into_iter().flatten().enumerate() {
        if is_of_subnet(&owner["class"]) {
            leave_zone_to_subnet(owner, &format!("spec.topology.workers.machineDeployments[{number}]"), report);
        }
    }
    vec![made].into()
}

fn leave_zone_to_subnet(owner: &mut Value, path: &str, report: &mut ConversionReport) {
    if owner.as_object_mut().and_then(|fields| fields.remove("failureDomain")).is_some() {
        report.lose(format!("{path}.failureDomain"), "the subnet of the class determines the zone", "");
    }
}

/// The MCMMachineTemplates in place of a template that worker classes refer to.
pub(super) fn made(
    document: &SourceDocument<'_>,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let mut objects = Vec::new();
    for (class, worker) in users_of(document, input) {
        let Some(source) = ForeignWorker::from_worker_class(worker, class, input, options, report) else { continue };
        // Problems of all Clusters count; problems of only some are at least reported.
        let [least, most] = [false, true].map(|with_conditional| {
            let change::PatchedMachine { machine, cluster } = change::patched(class.value, &source, with_conditional);
            let mut report = ConversionReport::default();
            source.content(&machine, &cluster, &mut report);
            report
        });
        for one in least.refusals {
            report.refuse(one.path, one.reason, one.advice);
        }
        for one in most.losses {
            report.lose(one.path, one.reason, one.advice);
        }
        let content = source.content(&source.machine, &source.cluster, &mut ConversionReport::default());
        let (provider_spec, _) = values::split(&content.provider_spec, CLUSTER_NAME);
        report_constants(&provider_spec, document.name, options, report);
        let content = ClassContent { provider_spec, credentials_secret_ref: credentials(options, report), ..content };
        let spec = MCMMachineSpec { machine_class: Some(content), ..MCMMachineSpec::default() };
        let template = TemplateResource { spec, ..TemplateResource::default() };
        let metadata = cloud::metadata_of(document, report);
        let object = MCMMachineTemplate { metadata, spec: MCMMachineTemplateSpec { template }, status: None };
        objects.extend(serde_json::to_value(object));
    }
    objects.into()
}

/// The Secret in the namespace of each Cluster.
fn credentials(options: &ConversionOptions, report: &mut ConversionReport) -> Option<SecretRef> {
    if options.credentials.is_none() {
        report.lose("", "the class has no credentials", "set credentialsSecretRef in its machineClass");
    }
    options.credentials.clone().map(|name| SecretRef { name, namespace: String::new() })
}

/// Reports values of flags that would differ for Clusters in another network or region.
fn report_constants(provider_spec: &Value, name: &str, options: &ConversionOptions, report: &mut ConversionReport) {
    let questions =
        [TemplateQuestion::Image, TemplateQuestion::Subnet, TemplateQuestion::SecurityGroups, TemplateQuestion::Zone];
    let is_in_class = |question: &TemplateQuestion| {
        let answer = options.answers.get(*question, name);
        answer.is_some_and(|answer| answer.split(',').any(|one| values::contains(provider_spec, one)))
    };
    let flags: Vec<&str> = questions.into_iter().filter(is_in_class).map(TemplateQuestion::flag).collect();
    if !flags.is_empty() {
        let reason = format!("all Clusters of the class have the values of {}", flags.join(", "));
        report.lose("", reason, "patch machineClass for Clusters in another network, zone or region");
    }
}

/// The worker classes that refer to a template, with their ClusterClasses.
fn users_of<'a>(
    template: &'a SourceDocument<'_>,
    input: &'a ConversionInput<'_>,
) -> impl Iterator<Item = (&'a SourceDocument<'a>, WorkerClass<'a>)> {
    let beside = classes(input).filter(|class| class.namespace == template.namespace);
    let all = beside.flat_map(|class| workers_of(class).into_iter().map(move |worker| (class, worker)));
    all.filter(|(_, worker)| {
        worker.owner == DEPLOYMENTS
            && hybrid::is_foreign(worker.kind)
            && (worker.kind, worker.template) == (template.kind, template.name)
    })
}

fn classes<'a>(input: &'a ConversionInput<'_>) -> impl Iterator<Item = &'a SourceDocument<'a>> {
    input.documents.iter().filter(|one| is_class(one))
}

fn is_class(document: &SourceDocument<'_>) -> bool {
    document.group == CORE_GROUP && document.kind == "ClusterClass"
}
