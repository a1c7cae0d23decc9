//! What the API server checks before it stores an object, beyond the types of its fields.
//!
//! A rule refuses what could only be stored and never acted on, and its message says what to write instead. No rule may
//! stand in the way of an object that was stored before the rule was installed, because its finalizers must come off and
//! its replicas must go down like those of any other. The API server helps: it does not check a value again that an update
//! leaves as it was. A rule over several fields cannot count on that, since any of them may change; such a rule is
//! [`tolerant`]. An expression must not fail either, whatever was stored: the API server never forgives that.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// Labels are bounded so that the cost of comparing them is known; the bound is that of any label's value.
const LABEL_VALUE_MAX: u32 = 63;
/// More than any real selector has.
const SELECTOR_LABELS_MAX: u32 = 256;
/// Suffix of a MachineSet's name (a dash and five characters) within the 253 characters of a name.
const DEPLOYMENT_NAME_MAX: u32 = 253 - 6;

const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

const BOUND: &str = "write a number of machines such as 1, or a percentage such as 20%";

/// Any fields at all.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE_MAX } })
}

pub(super) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "x-kubernetes-int-or-string": true, "pattern": QUANTITY },
    })
}

/// A number of machines or a percentage. Whether the text is well-formed is a rule of the strategy that uses it.
pub(super) fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "minimum": i32::MIN, "maximum": i32::MAX })
}

pub(super) fn selector(_: &mut SchemaGenerator) -> Schema {
    let values = ValidationRule {
        rule: "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 \
               : !has(self.values) || size(self.values) == 0"
            .into(),
        message: Some("In and NotIn need values; Exists and DoesNotExist take none".into()),
        field_path: Some(".values".into()),
        ..ValidationRule::default()
    };
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that a Machine must carry with exactly these values.",
                "type": "object",
                "maxProperties": SELECTOR_LABELS_MAX,
                "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE_MAX },
            },
            "matchExpressions": {
                "description": "Requirements on labels; all of them and all of matchLabels must hold.",
                "type": "array",
                "items": {
                    "description": "A requirement on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "x-kubernetes-validations": [values],
                    "properties": {
                        "key": { "description": "Key of the label.", "type": "string" },
                        "operator": {
                            "description": "How the label relates to the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values to compare with; needed by In and NotIn, not allowed otherwise.",
                            "type": "array",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
        },
    })
}

/// A Machine, MachineSet or MachineDeployment without a spec is storable as far as the types go.
pub(crate) fn root_rules() -> Vec<ValidationRule> {
    vec![required(".spec", "write a spec", |root| format!("has({root}.spec)"))]
}

/// Those of [`root_rules`], and that the names of its sets fit.
pub(crate) fn deployment_root_rules() -> Vec<ValidationRule> {
    let mut rules = root_rules();
    rules.push(ValidationRule {
        message: Some(format!("write a name of at most {DEPLOYMENT_NAME_MAX} characters; sets add 6 to it")),
        ..tolerant(".metadata.name", |root| format!("size({root}.metadata.name) <= {DEPLOYMENT_NAME_MAX}"))
    });
    rules
}

pub(super) fn machine_rules() -> Vec<ValidationRule> {
    let class = |field: &'static str| move |spec: &str| format!("has({spec}.class) && has({spec}.class.{field}) && {spec}.class.{field} != ''");
    vec![
        required(".class.kind", "write the kind of the class, which is MachineClass", class("kind")),
        required(".class.name", "write the name of the MachineClass that describes the VM", class("name")),
    ]
}

pub(super) fn set_rules() -> Vec<ValidationRule> {
    vec![
        required(".selector", "write matchLabels with labels that template.metadata.labels has too", |spec| {
            format!("has({spec}.selector)")
        }),
        ValidationRule {
            message: Some("write the same labels in template.metadata.labels, or fewer here".into()),
            ..tolerant(".selector.matchLabels", selects_template)
        },
        required(".template.spec", "write a spec whose class names a MachineClass", |spec| {
            format!("has({spec}.template) && has({spec}.template.spec)")
        }),
    ]
}

pub(super) fn deployment_rules() -> Vec<ValidationRule> {
    let mut rules = set_rules();
    rules.push(required(".strategy.type", "write RollingUpdate, Recreate or InPlaceUpdate", |spec| {
        format!("has({spec}.strategy) && has({spec}.strategy.type)")
    }));
    rules
}

/// Only the block that the type names is checked; what stands in the other is not read.
pub(super) fn strategy_rules() -> Vec<ValidationRule> {
    let mut rules = bounds("RollingUpdate", "rollingUpdate");
    rules.extend(bounds("InPlaceUpdate", "inPlaceUpdate"));
    rules.push(required(
        ".inPlaceUpdate.orchestrationType",
        "write Auto to let the controller select the nodes, or Manual to select them with a label",
        |strategy| {
            let block = format!("{strategy}.inPlaceUpdate");
            unless("InPlaceUpdate", strategy, &format!("has({block}) && has({block}.orchestrationType)"))
        },
    ));
    rules.push(one_value(
        "inPlaceUpdate.orchestrationType",
        "write Auto or Manual",
        |strategy| {
            let value = format!("{strategy}.inPlaceUpdate.orchestrationType");
            let block = format!("{strategy}.inPlaceUpdate");
            unless("InPlaceUpdate", strategy, &format!("!has({block}) || !has({value}) || {value} in ['Auto', 'Manual']"))
        },
    ));
    rules
}

pub(super) fn node_template_rules() -> Vec<ValidationRule> {
    vec![required(".capacity", "write cpu, gpu and memory, with 0 for what the VM does not have", |template| {
        format!("has({template}.capacity) && ['cpu', 'gpu', 'memory'].all(name, name in {template}.capacity)")
    })]
}

/// The text of a field that must not be empty.
pub(super) fn non_empty(_: &mut SchemaGenerator) -> Schema {
    let rule = ValidationRule {
        rule: "self != ''".into(),
        message: Some("write what the provider calls it".into()),
        reason: Some("FieldValueRequired".into()),
        ..ValidationRule::default()
    };
    json_schema!({ "type": "string", "x-kubernetes-validations": [rule] })
}

/// Both bounds are there, and each is well-formed.
fn bounds(type_: &str, block: &str) -> Vec<ValidationRule> {
    let mut rules = Vec::new();
    for field in ["maxSurge", "maxUnavailable"] {
        let path = format!("{block}.{field}");
        rules.push(required(&format!(".{path}"), BOUND, |strategy| {
            unless(type_, strategy, &format!("has({strategy}.{block}) && has({strategy}.{path})"))
        }));
        rules.push(one_value(&path, BOUND, |strategy| {
            let value = format!("{strategy}.{path}");
            let well_formed = format!(r"type({value}) == int ? {value} >= 0 : {value}.matches('^[+]?0*[0-9]{{1,9}}%$')");
            unless(type_, strategy, &format!("!has({strategy}.{block}) || !has({value}) || ({well_formed})"))
        }));
    }
    rules
}

fn selects_template(spec: &str) -> String {
    let wanted = format!("{spec}.selector.matchLabels");
    let labels = format!("{spec}.template.metadata.labels");
    format!(
        "!has({spec}.selector) || !has({wanted}) || {wanted}.all(key, has({spec}.template) && \
         has({spec}.template.metadata) && has({labels}) && key in {labels} && {labels}[key] == {wanted}[key])"
    )
}

fn unless(type_: &str, strategy: &str, holds: &str) -> String {
    format!("!has({strategy}.type) || {strategy}.type != '{type_}' || {holds}")
}

/// [`tolerant`], for a field that must be there.
fn required(field: &str, message: &str, holds: impl Fn(&str) -> String) -> ValidationRule {
    ValidationRule {
        message: Some(message.into()),
        reason: Some("FieldValueRequired".into()),
        ..tolerant(field, holds)
    }
}

/// [`tolerant`] only of the very value that was stored.
fn one_value(field: &str, message: &str, holds: impl Fn(&str) -> String) -> ValidationRule {
    let rule = tolerant(&format!(".{field}"), holds);
    ValidationRule {
        rule: format!("{} && oldSelf.value().{field} == self.{field}", rule.rule),
        message: Some(message.into()),
        ..rule
    }
}

/// A rule that an object may go on breaking if it did before. `holds` writes the condition for `self` or its old value.
fn tolerant(field: &str, holds: impl Fn(&str) -> String) -> ValidationRule {
    ValidationRule {
        rule: format!("({}) || oldSelf.hasValue() && !({})", holds("self"), holds("oldSelf.value()")),
        field_path: Some(field.into()),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    }
}
