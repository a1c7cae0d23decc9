//! The worker classes of a ClusterClass.

use serde_json::{Value, json};

use crate::{
    cloud::{
        self,
        provider::{InfrastructureProvider, MACHINE_SPEC, ProviderTemplate},
    },
    hybrid,
    input::{ConversionInput, SourceDocument},
    options::ConversionOptions,
    report::ConversionReport,
    types::{CONTROL_PLANE_GROUP, CORE_GROUP, INFRASTRUCTURE_GROUP},
};
use mcm_api::machine::ClassContent;

/// The lists of worker classes.
pub const OWNERS: [&str; 2] = [DEPLOYMENTS, "machinePools"];
pub const DEPLOYMENTS: &str = "machineDeployments";
/// The reference to an infrastructure template in a worker class, as either version has it.
pub const REFERENCES: [&str; 2] = ["/infrastructure/templateRef", "/template/infrastructure/ref"];
/// The name of the Cluster, in a value that Cluster API core renders for each.
pub const CLUSTER_NAME: &str = "{{ .builtin.cluster.name }}";

/// A worker class with the template of its machines or pools.
#[derive(Clone, Copy, Debug)]
pub struct WorkerClass<'a> {
    pub owner: &'static str,
    /// Its place in the list.
    pub number: usize,
    pub class: &'a str,
    pub kind: &'a str,
    pub template: &'a str,
    /// Of its machines, unless a Cluster names another one; empty for any.
    pub zone: &'a str,
}

impl WorkerClass<'_> {
    pub fn path(&self) -> String {
        format!("spec.workers.{}[{}]", self.owner, self.number)
    }

    /// Its machines belong to another provider. The machines of other kinds are not those of mcm either way.
    pub fn is_foreign(&self) -> bool {
        hybrid::is_foreign(self.kind) || self.kind.strip_suffix("Template").is_some_and(hybrid::is_foreign)
    }

    /// The selector of a patch selects its infrastructure template.
    pub fn is_selected(&self, selector: &Value) -> bool {
        let names = items(&selector["matchResources"]["machineDeploymentClass"]["names"]);
        let fits = |name: &str| match (name.strip_prefix('*'), name.strip_suffix('*')) {
            (Some(end), _) if self.class.ends_with(end) => true,
            (_, Some(start)) => self.class.starts_with(start),
            _ => name == self.class,
        };
        selector["kind"] == self.kind && names.filter_map(Value::as_str).any(fits)
    }
}

/// The worker classes of a ClusterClass, as either version describes them.
pub fn workers_of<'a>(class: &SourceDocument<'a>) -> Vec<WorkerClass<'a>> {
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    let of_owner = |owner: &'static str| {
        items(&class.value["spec"]["workers"][owner]).enumerate().filter_map(move |(number, one)| {
            let reference = REFERENCES.iter().find_map(|path| one.pointer(path))?;
            let (kind, template) = (text(&reference["kind"]), text(&reference["name"]));
            Some(WorkerClass {
                owner,
                number,
                class: text(&one["class"]),
                kind,
                template,
                zone: text(&one["failureDomain"]),
            })
        })
    };
    OWNERS.into_iter().flat_map(of_owner).collect()
}

/// The name of the ClusterClass of a Cluster, as either version has it.
pub fn class_of<'a>(cluster: &SourceDocument<'a>) -> &'a str {
    let named = ["/spec/topology/classRef/name", "/spec/topology/class"];
    named.iter().find_map(|path| cluster.value.pointer(path)?.as_str()).unwrap_or_default()
}

/// A worker class of another provider, whose template is among the objects, and all that determines its machines.
pub struct ForeignWorker<'a> {
    pub worker: WorkerClass<'a>,
    /// Of a machine.
    pub machine: Value,
    /// The infrastructure of its Clusters.
    pub cluster: Value,
    pub provider: &'static InfrastructureProvider,
    zones: Vec<String>,
    options: &'a ConversionOptions,
}

impl<'a> ForeignWorker<'a> {
    /// Of a worker class; what is missing is refused.
    pub fn from_worker_class(
        worker: WorkerClass<'a>,
        class: &SourceDocument<'a>,
        input: &'a ConversionInput<'a>,
        options: &'a ConversionOptions,
        report: &mut ConversionReport,
    ) -> Option<Self> {
        let WorkerClass { kind, template, .. } = worker;
        let Some(document) = input.find(INFRASTRUCTURE_GROUP, kind, class.namespace, template) else {
            report.refuse(worker.path(), format!("{kind} {template} is not among the objects"), "add it");
            return None;
        };
        // The template has a separate report.
        let mut problems = ConversionReport::new(kind, template);
        let provider = cloud::provider_for(document, &mut problems)?;
        let machine = cloud::machine_spec_of(document, &mut problems);
        let cluster = cluster_template(provider, class, input).map(made_of).unwrap_or_default();
        Some(Self { worker, machine, cluster, provider, zones: zones_of(worker, class, input), options })
    }

    /// The selector of a patch selects the template of the infrastructure of its Clusters.
    pub fn is_of_cluster(&self, selector: &Value) -> bool {
        let kind = selector["kind"].as_str().and_then(|kind| kind.strip_suffix("Template"));
        let resources = &selector["matchResources"];
        let is_meant = resources["infrastructureCluster"] == true || resources["controlPlane"] == true;
        is_meant && kind.is_some_and(|kind| self.cluster["kind"] == kind)
    }

    /// The content of the class for this machine and this infrastructure of the cluster.
    pub fn content(&self, machine: &Value, cluster: &Value, report: &mut ConversionReport) -> ClassContent {
        let template = ProviderTemplate {
            name: self.worker.template,
            machine_spec: machine,
            path: MACHINE_SPEC,
            cluster_name: CLUSTER_NAME,
            cluster,
            zones: &self.zones,
            version: "",
            answers: &self.options.answers,
            is_of_class: true,
        };
        cloud::content_of(self.provider, &template, report)
    }
}

/// The template of the infrastructure of the Clusters of a class, or of the control plane that the cloud manages, which then
/// describes the network.
fn cluster_template<'a>(
    provider: &InfrastructureProvider,
    class: &SourceDocument<'a>,
    input: &'a ConversionInput<'a>,
) -> Option<&'a SourceDocument<'a>> {
    let kinds = [(CONTROL_PLANE_GROUP, "controlPlane"), (INFRASTRUCTURE_GROUP, "infrastructure")];
    kinds.into_iter().find_map(|(group, field)| {
        let part = &class.value["spec"][field];
        let reference = ["templateRef", "ref"].iter().map(|name| &part[*name]).find(|one| one.is_object())?;
        let kinds = [provider.kinds.cluster.kind, provider.kinds.managed].map(|kind| format!("{kind}Template"));
        let kind = reference["kind"].as_str().filter(|kind| kinds.iter().any(|known| known == kind))?;
        input.find(group, kind, class.namespace, reference["name"].as_str()?)
    })
}

/// The infrastructure of a cluster that core makes of a template.
fn made_of(template: &SourceDocument<'_>) -> Value {
    let kind = template.kind.strip_suffix("Template");
    json!({ "kind": kind, "spec": template.value["spec"]["template"]["spec"] })
}

/// The zones of the machines of a worker class, each once: from the Clusters of the class, or else from the worker class.
fn zones_of(worker: WorkerClass<'_>, class: &SourceDocument<'_>, input: &ConversionInput<'_>) -> Vec<String> {
    let clusters = input
        .documents
        .iter()
        .filter(|one| one.group == CORE_GROUP && one.kind == "Cluster" && class_of(one) == class.name);
    let owners = clusters.flat_map(|one| items(&one.value["spec"]["topology"]["workers"][worker.owner]));
    let own = owners.filter(|owner| owner["class"] == worker.class);
    let mut zones: Vec<String> =
        own.map(|owner| owner["failureDomain"].as_str().unwrap_or(worker.zone).to_owned()).collect();
    zones.sort();
    zones.dedup();
    if zones.is_empty() { vec![worker.zone.to_owned()] } else { zones }
}

pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
