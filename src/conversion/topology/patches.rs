//! The patches of a ClusterClass whose worker classes were those of another provider.

use serde_json::{Value, json};

use super::{
    change::{CLASS, ClassJsonPatch, TemplateJsonPatches, patched},
    values::split,
    worker::{CLUSTER_NAME, ForeignWorker, items},
};
use crate::{hybrid::VERSION, report::ConversionReport};

/// The name of the patch with values that differ for each Cluster.
const OWN: &str = "mcm";

/// The definitions of one patch for MCMMachineTemplates: JSON patches, and the worker classes that have the same ones.
#[derive(Default)]
struct PatchDefinitions<'a>(Vec<(Vec<Value>, Vec<&'a str>)>);

impl<'a> PatchDefinitions<'a> {
    fn add(&mut self, class: &'a str, patches: Vec<Value>) {
        match self.0.iter_mut().find(|(known, _)| *known == patches) {
            _ if patches.is_empty() => {}
            Some((_, classes)) => classes.push(class),
            None => self.0.push((patches, vec![class])),
        }
    }

    fn written(self) -> impl Iterator<Item = Value> {
        self.0.into_iter().map(|(patches, classes)| {
            json!({
                "selector": {
                    "apiVersion": VERSION, "kind": "MCMMachineTemplate",
                    "matchResources": { "machineDeploymentClass": { "names": classes } },
                },
                "jsonPatches": patches,
            })
        })
    }
}

/// The patches for MCMMachineTemplates in place of those for the templates of these workers. All others stay.
pub fn translated(class: &Value, sources: &[ForeignWorker<'_>], report: &mut ConversionReport) -> Vec<Value> {
    let given: Vec<&Value> = items(&class["spec"]["patches"]).collect();
    let names: Vec<&str> = given.iter().filter_map(|patch| patch["name"].as_str()).collect();
    let mut made = Vec::new();
    let mut own = PatchDefinitions::default();
    for source in sources {
        own.add(source.worker.class, of_each_cluster(source));
    }
    made.extend(with_definitions(json!({ "name": unused(OWN, &names) }), own.written().collect()));
    for (number, patch) in given.into_iter().enumerate() {
        made.extend(translated_patch(class, patch, &format!("spec.patches[{number}]"), sources, report));
    }
    made
}

/// The JSON patches for values that differ for each Cluster.
fn of_each_cluster(source: &ForeignWorker<'_>) -> Vec<Value> {
    let content = source.content(&source.machine, &source.cluster, &mut ConversionReport::default());
    let (_, templates) = split(&content.provider_spec, CLUSTER_NAME);
    let patch = |(place, template)| json!({ "op": "add", "path": format!("{CLASS}{place}"), "valueFrom": { "template": template } });
    templates.into_iter().map(patch).collect()
}

/// One patch with definitions for MCMMachineTemplates, and the patches that variables select.
fn translated_patch(
    class: &Value,
    patch: &Value,
    path: &str,
    sources: &[ForeignWorker<'_>],
    report: &mut ConversionReport,
) -> Vec<Value> {
    let name = patch["name"].as_str().unwrap_or_default();
    if !patch["external"].is_null() {
        let reason = format!("patch {name} is a runtime extension, which patches the templates of another provider");
        report.refuse(path, reason, "patch the worker classes in the ClusterClass");
        return Vec::new();
    }
    let mut definitions = Vec::new();
    let mut choices = VariablePatches::default();
    for (number, definition) in items(&patch["definitions"]).enumerate() {
        let place = LocatedDefinition { name, path: format!("{path}.definitions[{number}]"), definition };
        let selector = &definition["selector"];
        let mut made = PatchDefinitions::default();
        let selected: Vec<&ForeignWorker<'_>> = sources.iter().filter(|one| one.worker.is_selected(selector)).collect();
        for source in &selected {
            made.add(source.worker.class, of_workers(&place, source, &mut choices, report));
        }
        for source in sources.iter().filter(|one| one.is_of_cluster(selector)) {
            made.add(source.worker.class, of_cluster(&place, source, class, report));
        }
        definitions.extend(without_workers(definition, selected.is_empty()));
        definitions.extend(made.written());
    }
    let all = with_definitions(patch.clone(), definitions).into_iter();
    all.chain(choices.written(name, patch["enabledIf"].as_str())).collect()
}

/// The JSON patches of a definition for the machines of a worker class.
fn of_workers<'a>(
    place: &LocatedDefinition<'_>,
    source: &ForeignWorker<'a>,
    choices: &mut VariablePatches<'a>,
    report: &mut ConversionReport,
) -> Vec<Value> {
    let mut always = Vec::new();
    for (number, change) in place.changes() {
        let counterparts = change.of_machine(source).unwrap_or_else(|reason| {
            place.refuse(number, &change, &reason, report);
            Vec::new()
        });
        for TemplateJsonPatches { choice, patches, losses } in counterparts {
            let Some(choice) = choice else {
                // The report on the template has the losses.
                always.extend(patches);
                continue;
            };
            choices.add(choice, source.worker.class, patches);
            for loss in losses {
                report.lose(&place.path, format!("patch {}: {}", place.name, loss.reason), loss.advice);
            }
        }
    }
    always
}

/// The JSON patches of a definition for the infrastructure of the cluster, as far as it determines the machines.
fn of_cluster(
    place: &LocatedDefinition<'_>,
    source: &ForeignWorker<'_>,
    class: &Value,
    report: &mut ConversionReport,
) -> Vec<Value> {
    let machine = patched(class, source, false).machine;
    let mut always = Vec::new();
    for (number, change) in place.changes() {
        match change.of_cluster(source, &machine) {
            Ok(patches) => always.extend(patches),
            Err(reason) => place.refuse(number, &change, &reason, report),
        }
    }
    always
}

/// A definition of a patch, and where it is.
struct LocatedDefinition<'a> {
    /// Of the patch.
    name: &'a str,
    path: String,
    definition: &'a Value,
}

impl LocatedDefinition<'_> {
    fn changes(&self) -> impl Iterator<Item = (usize, ClassJsonPatch<'_>)> {
        items(&self.definition["jsonPatches"]).map(|given| ClassJsonPatch { given }).enumerate()
    }

    /// Once for all worker classes.
    fn refuse(&self, number: usize, change: &ClassJsonPatch<'_>, reason: &str, report: &mut ConversionReport) {
        let path = format!("{}.jsonPatches[{number}]", self.path);
        if report.refusals.iter().any(|one| one.path == path) {
            return;
        }
        let kind = self.definition["selector"]["kind"].as_str().unwrap_or_default();
        let reason = format!("patch {} sets {} of {kind}: {reason}", self.name, change.path());
        report.refuse(path, reason, "remove it, or write it for an MCMMachineTemplate");
    }
}

/// The patches of one patch that apply for one value of a variable.
#[derive(Default)]
struct VariablePatches<'a>(Vec<((String, &'static str), PatchDefinitions<'a>)>);

impl<'a> VariablePatches<'a> {
    fn add(&mut self, choice: (String, &'static str), class: &'a str, patches: Vec<Value>) {
        match self.0.iter_mut().find(|(known, _)| *known == choice) {
            Some((_, definitions)) => definitions.add(class, patches),
            None => {
                let mut definitions = PatchDefinitions::default();
                definitions.add(class, patches);
                self.0.push((choice, definitions));
            }
        }
    }

    fn written(self, name: &str, condition: Option<&str>) -> impl Iterator<Item = Value> {
        let condition = condition.filter(|text| !text.is_empty()).unwrap_or("true");
        self.0.into_iter().filter_map(move |((variable, text), definitions)| {
            let condition = format!("{{{{ if eq .{variable} {text:?} }}}}{condition}{{{{ end }}}}");
            let patch = json!({ "name": format!("{name}-{text}"), "enabledIf": condition });
            with_definitions(patch, definitions.written().collect())
        })
    }
}

/// A definition for all but the worker classes. `None` if it selects nothing else.
fn without_workers(definition: &Value, is_other: bool) -> Option<Value> {
    let mut made = definition.clone();
    if is_other {
        return Some(made);
    }
    let resources = made.pointer_mut("/selector/matchResources")?.as_object_mut()?;
    resources.remove("machineDeploymentClass");
    let is_enabled = |value: &Value| *value == true || items(&value["names"]).next().is_some();
    resources.values().any(is_enabled).then_some(made)
}

/// The patch with these definitions, if there are any.
fn with_definitions(mut patch: Value, definitions: Vec<Value>) -> Option<Value> {
    let has_any = !definitions.is_empty();
    patch["definitions"] = Value::Array(definitions);
    has_any.then_some(patch)
}

/// A name that is not in use.
fn unused(name: &str, used: &[&str]) -> String {
    let others = (2..).map(|number| format!("{name}-{number}"));
    let mut all = std::iter::once(name.to_owned()).chain(others);
    all.find(|one| !used.contains(&one.as_str())).unwrap_or_default()
}
