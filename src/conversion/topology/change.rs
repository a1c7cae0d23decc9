//! A field of the template of another provider that a patch sets, and the fields of a MachineClass that it determines. The
//! converter of templates finds them: it converts the template with and without the value of the patch.

use serde_json::{Value, json};

use super::{
    values::{contains, differences, parts, rendered, with, without},
    worker::{CLUSTER_NAME, ForeignWorker, items},
};
use crate::report::{ConversionLoss, ConversionRefusal, ConversionReport};

/// The content of the class in an MCMMachineTemplate.
pub const CLASS: &str = "/spec/template/spec/machineClass/providerSpec";
const SPEC: &str = "/spec/template/spec";
const METADATA: &str = "/spec/template/metadata";
const NO_COUNTERPART: &str = "it has no counterpart in a MachineClass";
/// A text that no template has.
const PROBE: &str = "{{ . }}";

/// One JSON patch of a ClusterClass.
pub struct ClassJsonPatch<'a> {
    pub given: &'a Value,
}

/// JSON patches for an MCMMachineTemplate.
#[derive(Debug, Default)]
pub struct TemplateJsonPatches {
    /// The value of a variable for which they apply; without one they always do.
    pub choice: Option<(String, &'static str)>,
    pub patches: Vec<Value>,
    pub losses: Vec<ConversionLoss>,
}

/// A machine and the infrastructure of its cluster, with values of patches.
#[derive(Clone, PartialEq)]
pub struct PatchedMachine {
    pub machine: Value,
    pub cluster: Value,
}

/// The JSON patches of the definitions that fit. Those with a condition, which not all Clusters meet, only if they are wanted.
fn changes<'a>(class: &'a Value, with_conditional: bool, fits: impl Fn(&Value) -> bool) -> Vec<ClassJsonPatch<'a>> {
    let is_wanted = |patch: &&Value| with_conditional || patch["enabledIf"].as_str().is_none_or(str::is_empty);
    let patches = items(&class["spec"]["patches"]).filter(is_wanted);
    let definitions = patches.flat_map(|patch| items(&patch["definitions"])).filter(|one| fits(&one["selector"]));
    definitions.flat_map(|one| items(&one["jsonPatches"])).map(|given| ClassJsonPatch { given }).collect()
}

impl ClassJsonPatch<'_> {
    pub fn path(&self) -> &str {
        self.given["path"].as_str().unwrap_or_default()
    }

    /// The pointer to the field in the spec of a machine or cluster. `None` for anything above or beside it.
    fn field(&self) -> Option<&str> {
        self.path().strip_prefix(SPEC).filter(|field| field.starts_with('/') && field.len() > 1)
    }

    fn is_of_metadata(&self) -> bool {
        self.path().starts_with(METADATA)
    }

    fn is_from_cluster(&self) -> bool {
        self.given["valueFrom"].is_object()
    }

    /// The constant, or a text in place of the value that only core has.
    fn value(&self) -> Value {
        let from = |name: &str| self.given["valueFrom"][name].as_str();
        match (from("variable"), from("template")) {
            (Some(variable), _) => json!(format!("{{{{ .{variable} }}}}")),
            (None, Some(template)) => json!(format!("{{{{ {template} }}}}")),
            (None, None) => self.given["value"].clone(),
        }
    }

    fn choices(&self, source: &ForeignWorker<'_>) -> Option<&'static [&'static str]> {
        let field = self.field().filter(|_| self.is_from_cluster())?;
        source.provider.choices.iter().find(|(choice, _)| *choice == field).map(|(_, texts)| *texts)
    }

    /// The counterparts of a patch of the template of machines.
    ///
    /// # Errors
    /// The text has the reason why the patch has no counterpart.
    pub fn of_machine(&self, source: &ForeignWorker<'_>) -> Result<Vec<TemplateJsonPatches>, String> {
        if self.is_of_metadata() {
            return Ok(Vec::new());
        }
        let field = self.field().ok_or("it sets more than single fields of the machine")?;
        if self.given["op"] == "remove" {
            return Err("a field of a MachineClass is set, not removed".to_owned());
        }
        let Some(texts) = self.choices(source) else {
            return Ok(vec![self.counterpart(field, &self.value(), self.is_from_cluster(), source)?]);
        };
        let variable = self.given["valueFrom"]["variable"].as_str().filter(|name| is_identifier(name));
        let variable = variable.ok_or("only a variable with a simple name has a counterpart here")?;
        let of_text = |text: &&'static str| {
            let made = self.counterpart(field, &json!(text), false, source)?;
            Ok(TemplateJsonPatches { choice: Some((variable.to_owned(), *text)), ..made })
        };
        texts.iter().map(of_text).collect()
    }

    fn counterpart(
        &self,
        field: &str,
        value: &Value,
        is_from_cluster: bool,
        source: &ForeignWorker<'_>,
    ) -> Result<TemplateJsonPatches, String> {
        let convert = |value: Value| converted(source, &with(&source.machine, field, value), &source.cluster);
        let (before, known) = converted(source, &source.machine, &source.cluster);
        let (after, report) = convert(value.clone());
        if let Some(refusal) = added_refusals(&known, &report).next() {
            return Err(refusal.reason.clone());
        }
        let mut found = differences(&before, &after);
        if found.is_empty() && !is_from_cluster {
            // The template may have the value already, and another patch a different one.
            let (after, report) = convert(json!(PROBE));
            if added_refusals(&known, &report).next().is_none() {
                let places = differences(&before, &after).into_iter().filter(|(_, there)| *there == Some(json!(PROBE)));
                found = places.map(|(place, _)| (place, Some(value.clone()))).collect();
            }
        }
        let losses: Vec<ConversionLoss> =
            report.losses.into_iter().filter(|loss| !known.losses.contains(loss)).collect();
        if found.is_empty() && losses.is_empty() && is_from_cluster {
            return Err(NO_COUNTERPART.to_owned());
        }
        let expected = is_from_cluster.then_some(value);
        let patches = found.into_iter().map(|(place, there)| self.patch(&place, there, expected));
        Ok(TemplateJsonPatches { choice: None, patches: patches.collect::<Result<_, _>>()?, losses })
    }

    /// The counterparts of a patch of the infrastructure of the cluster. Most of its fields determine nothing of a machine.
    ///
    /// # Errors
    /// The text has the reason why the patch has no counterpart.
    pub fn of_cluster(&self, source: &ForeignWorker<'_>, machine: &Value) -> Result<Vec<Value>, String> {
        if self.is_of_metadata() {
            return Ok(Vec::new());
        }
        let field = self.field().ok_or("it sets more than single fields of the cluster")?;
        let field = &in_cluster(field);
        let (before, known) = converted(source, machine, &source.cluster);
        let changed = |cluster: &Value| {
            let (after, report) = converted(source, machine, cluster);
            let refusal = added_refusals(&known, &report).next().map(|refusal| refusal.reason.clone());
            refusal.map_or_else(|| Ok(differences(&before, &after)), Err)
        };
        if self.given["op"] == "remove" {
            let is_unused = changed(&without(&source.cluster, field))?.is_empty();
            return if is_unused { Ok(Vec::new()) } else { Err(NO_COUNTERPART.to_owned()) };
        }
        let value = self.value();
        let found = changed(&with(&source.cluster, field, value.clone()))?;
        // A field that is an object or a list in the template is not read as a text.
        let others = [json!({ (PROBE): PROBE }), json!([PROBE])];
        if self.is_from_cluster() && found.is_empty() {
            for other in others {
                if !changed(&with(&source.cluster, field, other))?.is_empty() {
                    return Err(NO_COUNTERPART.to_owned());
                }
            }
        }
        let expected = self.is_from_cluster().then_some(&value);
        found.into_iter().map(|(place, there)| self.patch(&place, there, expected)).collect()
    }

    /// The JSON patch at a place of the class. `expected` is the placeholder of a value that core has.
    fn patch(&self, place: &str, there: Option<Value>, expected: Option<&Value>) -> Result<Value, String> {
        let parts = parts(place);
        let is_number = |part: &&String| part.parse::<usize>().is_ok();
        if parts.last().as_ref().is_some_and(is_number) || parts.iter().filter(is_number).any(|part| part != "0") {
            return Err("in a MachineClass it is an element of a list, which a patch cannot set".to_owned());
        }
        let path = format!("{CLASS}{place}");
        match (there, expected) {
            (Some(there), Some(expected)) if there == *expected => {
                Ok(json!({ "op": "add", "path": path, "valueFrom": self.given["valueFrom"] }))
            }
            (Some(there), None) if contains(&there, CLUSTER_NAME) => {
                let template = rendered(&there, CLUSTER_NAME);
                Ok(json!({ "op": "add", "path": path, "valueFrom": { "template": template } }))
            }
            (Some(there), None) => Ok(json!({ "op": "add", "path": path, "value": there })),
            _ => Err("its value has another form in a MachineClass".to_owned()),
        }
    }
}

/// The machine and the cluster with the values of all patches that have a counterpart: of those without a condition, or of all.
pub fn patched(class: &Value, source: &ForeignWorker<'_>, with_conditional: bool) -> PatchedMachine {
    let mut made = PatchedMachine { machine: source.machine.clone(), cluster: source.cluster.clone() };
    for change in changes(class, with_conditional, |selector| source.worker.is_selected(selector)) {
        if let (Some(field), Ok(_)) = (change.field(), change.of_machine(source)) {
            let chosen = change.choices(source).and_then(|texts| texts.first()).map(|text| json!(text));
            made.machine = with(&made.machine, field, chosen.unwrap_or_else(|| change.value()));
        }
    }
    for change in changes(class, with_conditional, |selector| source.is_of_cluster(selector)) {
        let is_set = change.given["op"] != "remove" && change.of_cluster(source, &made.machine).is_ok();
        if let Some(field) = change.field().filter(|_| is_set) {
            made.cluster = with(&made.cluster, &in_cluster(field), change.value());
        }
    }
    made
}

/// The pointer in the whole object, which a cluster is.
fn in_cluster(field: &str) -> String {
    format!("/spec{field}")
}

fn converted(source: &ForeignWorker<'_>, machine: &Value, cluster: &Value) -> (Value, ConversionReport) {
    let mut report = ConversionReport::default();
    (source.content(machine, cluster, &mut report).provider_spec, report)
}

/// The refusals that another report does not have. Their reasons may quote values.
fn added_refusals<'a>(
    known: &'a ConversionReport,
    report: &'a ConversionReport,
) -> impl Iterator<Item = &'a ConversionRefusal> {
    let is_known = |one: &&ConversionRefusal| {
        known.refusals.iter().any(|other| (&other.path, &other.advice) == (&one.path, &one.advice))
    };
    report.refusals.iter().filter(move |one| !is_known(one))
}

/// A variable has a name that a template can use.
fn is_identifier(name: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && word.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
    };
    name.split('.').all(is_word)
}
