//! Clusters with a topology: Cluster API makes their workers from the worker classes of a ClusterClass, and its patches change the
//! templates. A worker class serves any Cluster, and a MachineClass has the region and the network of one. So workers of another
//! provider are refused, each with the reason.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    hybrid,
    input::{Document, Input},
    report::Report,
};
use crate::capi::types::CORE_GROUP;

const OWNERS: [&str; 2] = ["machineDeployments", "machinePools"];
const ADVICE: &str = "write its worker classes with MCMMachineTemplates, as the flavours aws-topology and gcp-topology do, or \
                      convert the MachineDeployments of the running Cluster";

/// A worker class with the template of its machines or pools.
struct Worker<'a> {
    path: String,
    class: &'a str,
    kind: &'a str,
    template: &'a str,
}

impl Worker<'_> {
    /// Whether its machines belong to another provider. The machines of other kinds are not those of mcm either way.
    fn is_foreign(&self) -> bool {
        hybrid::is_foreign(self.kind) || self.kind.strip_suffix("Template").is_some_and(hybrid::is_foreign)
    }

    /// The fields of the template that patches set.
    fn patched<'a>(&self, class: &'a Value) -> BTreeSet<&'a str> {
        let definitions = items(&class["spec"]["patches"]).flat_map(|patch| items(&patch["definitions"]));
        let own = definitions.filter(|one| {
            let matched = &one["selector"]["matchResources"];
            let names = ["machineDeploymentClass", "machinePoolClass"].map(|key| items(&matched[key]["names"]));
            let is_meant = |name: &Value| name.as_str().is_some_and(|name| name == "*" || name == self.class);
            one["selector"]["kind"] == self.kind && names.into_iter().flatten().any(is_meant)
        });
        let paths = own.flat_map(|one| items(&one["jsonPatches"])).filter_map(|patch| patch["path"].as_str());
        paths.map(|path| path.strip_prefix("/spec/template/spec/").unwrap_or(path)).collect()
    }
}

/// Whether a Cluster or ClusterClass has workers in its topology.
pub(super) fn has_workers(document: &Document<'_>) -> bool {
    let path = if document.kind == "ClusterClass" { "/spec/workers" } else { "/spec/topology/workers" };
    let workers = document.value.pointer(path);
    workers.is_some_and(|workers| OWNERS.iter().any(|name| items(&workers[*name]).next().is_some()))
}

/// Whether a Cluster or ClusterClass may have workers of another provider in its topology.
pub(super) fn has_foreign_workers(document: &Document<'_>, input: &Input<'_>) -> bool {
    match document.kind {
        "ClusterClass" => workers_of(document).iter().any(Worker::is_foreign),
        _ => has_workers(document) && !has_class(document, input),
    }
}

/// Refuses the workers of another provider.
pub(super) fn refuse_foreign(document: &Document<'_>, report: &mut Report) {
    if document.kind != "ClusterClass" {
        let reason =
            format!("its workers are those of ClusterClass {}, which is not among the objects", class_of(document));
        report.refuse("spec.topology", reason, "add it");
        return;
    }
    for worker in workers_of(document).iter().filter(|worker| worker.is_foreign()) {
        let Worker { path, class, kind, template } = worker;
        let patched: Vec<&str> = worker.patched(document.value).into_iter().collect();
        let reason = match patched.is_empty() {
            true => format!(
                "class {class} makes machines from {kind} {template} for any Cluster, and a MachineClass has the network of one"
            ),
            false => format!(
                "class {class} makes machines from {kind} {template}, in which patches set {}",
                patched.join(", ")
            ),
        };
        report.refuse(path, reason, ADVICE);
    }
}

/// Refuses all workers of a topology, which MCM does not have.
pub(super) fn refuse_all(document: &Document<'_>, report: &mut Report) {
    let path = if document.kind == "ClusterClass" { "spec.workers" } else { "spec.topology" };
    let reason = "Cluster API makes the MachineDeployments of a topology from patches of its ClusterClass";
    report.refuse(
        path,
        reason,
        "convert the MachineDeployments of the running cluster, or use a template without a ClusterClass",
    );
}

fn has_class(cluster: &Document<'_>, input: &Input<'_>) -> bool {
    let name = class_of(cluster);
    input.documents.iter().any(|one| one.group == CORE_GROUP && one.kind == "ClusterClass" && one.name == name)
}

/// The ClusterClass of a Cluster, as either version names it.
fn class_of<'a>(cluster: &Document<'a>) -> &'a str {
    let named = ["/spec/topology/classRef/name", "/spec/topology/class"];
    named.iter().find_map(|path| cluster.value.pointer(path)?.as_str()).unwrap_or_default()
}

/// The worker classes of a ClusterClass, as either version describes them.
fn workers_of<'a>(class: &Document<'a>) -> Vec<Worker<'a>> {
    let worker = |owner: &str, number: usize, one: &'a Value| {
        let references = ["/infrastructure/templateRef", "/template/infrastructure/ref"];
        let reference = references.iter().find_map(|path| one.pointer(path))?;
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        let path = format!("spec.workers.{owner}[{number}]");
        Some(Worker {
            path,
            class: text(&one["class"]),
            kind: text(&reference["kind"]),
            template: text(&reference["name"]),
        })
    };
    let of_owner = |owner: &'static str| {
        let all = items(&class.value["spec"]["workers"][owner]);
        all.enumerate().filter_map(move |(number, one)| worker(owner, number, one))
    };
    OWNERS.into_iter().flat_map(of_owner).collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
