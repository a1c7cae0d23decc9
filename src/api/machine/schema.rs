//! Admission rules of the CRDs (CEL), beyond the types of the fields.
//!
//! A rule rejects a spec that could never work, and its message names what to write instead. A rule must not block
//! updates of an object that was stored before the rule was installed, because its finalizers must be removable and its
//! replicas reducible. The API server does not check a value again that an update leaves unchanged. That does not hold
//! for a rule over several fields, since any of them may change; such a rule is [`tolerant`]. An expression must not
//! fail either, whatever was stored, because the API server then rejects every update.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::duration;

/// A selector is bounded so that the cost of its rules is known. No object can have a label with a longer value.
const LABEL_VALUE_MAX: u32 = 63;
/// More than any real selector has.
const SELECTOR_LABELS_MAX: u32 = 256;
/// A MachineSet adds a dash and five characters to the name of its deployment, and no name has more than 253.
pub const DEPLOYMENT_NAME_MAX: i64 = 253 - 6;

/// The name of a Machine is the value of a label of its Node.
pub const MACHINE_NAME_MAX: i64 = 63;
/// Value of a label or taint; may be empty.
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Key of a label or taint, with or without a prefix.
const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";
const QUALIFIED_NAME_MAX: u32 = 253 + 1 + 63;
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

const STRATEGIES: &str = "write RollingUpdate, Recreate or InPlaceUpdate";

pub(super) const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Any fields at all.
pub fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// An object of quantities, such as `cpu: 500m`.
pub fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "x-kubernetes-int-or-string": true, "pattern": QUANTITY },
    })
}

/// A name that the provider defines; never empty.
pub(super) fn provider_name(_: &mut SchemaGenerator) -> Schema {
    let rule = value_rule("self != ''", "write what the provider calls it");
    json_schema!({ "type": "string", "x-kubernetes-validations": [rule] })
}

/// A number of machines or a percentage. Whether the text is well-formed is a rule of the strategy that uses it.
pub(super) fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "minimum": i32::MIN, "maximum": i32::MAX })
}

/// The selector of a deployment. Other labels would leave its sets, with their machines, without an owner.
pub(super) fn selector_of_deployment(generator: &mut SchemaGenerator) -> Schema {
    selector(generator, "")
}

/// The selector of a set. The deployment that adopts a set adds the hash of the template.
pub(super) fn selector_of_set(generator: &mut SchemaGenerator) -> Schema {
    selector(generator, " || key == 'machine-template-hash' && oldSelf.?matchLabels[?key].orValue('/') == '/'")
}

/// The same labels and expressions as before; `or_added` names labels that are added. Empty parts count as absent ones,
/// because Go writes none of them. A selector that never selected a machine may change: an empty or invalid one, which the
/// controllers refuse. So may one with empty values, which Go drops. The cost of `orValue` of a whole list is not bounded.
fn is_constant(or_added: &str) -> ValidationRule {
    let contains = |one: &str, other: &str, or: &str| {
        format!(
            "(!has({one}.matchLabels) || {one}.matchLabels.all(key, \
             {other}.?matchLabels[?key].orValue('/') == {one}.matchLabels[key]{or}))"
        )
    };
    let has_none = |one: &str| format!("(!has({one}.matchExpressions) || size({one}.matchExpressions) == 0)");
    let are_equal = format!(
        "(has(self.matchExpressions) && has(oldSelf.matchExpressions) \
         ? self.matchExpressions == oldSelf.matchExpressions : {} && {})",
        has_none("self"),
        has_none("oldSelf")
    );
    let was_empty = format!("(!has(oldSelf.matchLabels) || size(oldSelf.matchLabels) == 0) && {}", has_none("oldSelf"));
    let was_invalid = "has(oldSelf.matchExpressions) && oldSelf.matchExpressions.exists(one, \
                       one.operator in ['In', 'NotIn'] ? !has(one.values) || size(one.values) == 0 \
                       : !(one.operator in ['Exists', 'DoesNotExist']) || has(one.values))";
    value_rule(
        &format!(
            "{} && {} && {are_equal} || {was_empty} || {was_invalid}",
            contains("self", "oldSelf", or_added),
            contains("oldSelf", "self", "")
        ),
        "leave it as it is, because machines that it no longer selects would have no owner; \
         to select by other labels, create another object",
    )
}

fn selector(_: &mut SchemaGenerator, or_added: &str) -> Schema {
    let is_constant = is_constant(or_added);
    let operator =
        value_rule("self in ['In', 'NotIn', 'Exists', 'DoesNotExist']", "write In, NotIn, Exists or DoesNotExist");
    let values = ValidationRule {
        field_path: Some(".values".into()),
        ..value_rule(
            "self.operator in ['In', 'NotIn'] ? size(self.?values.orValue([])) > 0 \
             : !(self.operator in ['Exists', 'DoesNotExist']) || size(self.?values.orValue([])) == 0",
            "write values for In and NotIn, and none for Exists and DoesNotExist",
        )
    };
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [is_constant],
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
                "maxItems": SELECTOR_LABELS_MAX,
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
                            "x-kubernetes-validations": [operator],
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

pub(super) fn strategy_type(_: &mut SchemaGenerator) -> Schema {
    let rule = value_rule("self in ['RollingUpdate', 'Recreate', 'InPlaceUpdate']", STRATEGIES);
    json_schema!({ "type": "string", "x-kubernetes-validations": [rule] })
}

/// A Machine, MachineSet or MachineDeployment has a spec.
pub fn root_rules() -> Vec<ValidationRule> {
    vec![required(".spec", "write a spec", |root| format!("{root}.?spec.hasValue()"))]
}

pub(super) fn machine_rules() -> Vec<ValidationRule> {
    vec![
        required(".class.kind", "write the kind of the class, which is MachineClass", |spec| {
            format!("{spec}.?class.?kind.orValue('') != ''")
        }),
        required(".class.name", "write the name of the MachineClass that describes the VM", |spec| {
            format!("{spec}.?class.?name.orValue('') != ''")
        }),
    ]
}

pub(super) fn set_rules() -> Vec<ValidationRule> {
    vec![
        required(".selector", "write matchLabels with labels that are also in template.metadata.labels", |spec| {
            format!("{spec}.?selector.hasValue()")
        }),
        selects_template(),
        required(".template.spec", "write a spec whose class names a MachineClass", |spec| {
            format!("{spec}.?template.?spec.hasValue()")
        }),
    ]
}

pub(super) fn deployment_rules() -> Vec<ValidationRule> {
    let mut rules = set_rules();
    rules.push(required(".strategy.type", STRATEGIES, |spec| format!("{spec}.?strategy.?type.hasValue()")));
    rules
}

/// Checks the labels of the selector one by one. Tolerates a pair that was missing in the stored template already.
fn selects_template() -> ValidationRule {
    let wanted = "self.selector.matchLabels[key]";
    // No label value contains a slash, so it represents an absent label.
    let label = |spec: &str| format!("{spec}.?template.?metadata.?labels[?key].orValue('/')");
    let was_wanted = "oldSelf.?selector.?matchLabels[?key].orValue('/')";
    ValidationRule {
        rule: format!(
            "!has(self.selector) || !has(self.selector.matchLabels) || self.selector.matchLabels.all(key, \
             {} == {wanted} || {was_wanted} == {wanted} && {} != {wanted})",
            label("self"),
            label("oldSelf")
        ),
        message: Some("write the same labels in template.metadata.labels, or fewer here".into()),
        field_path: Some(".selector.matchLabels".into()),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    }
}

/// Checks only the block of the strategy that the type names.
pub(super) fn strategy_rules() -> Vec<ValidationRule> {
    const BOUND: &str = "write a number of machines such as 1, or a percentage such as 20%";
    const SELECTION: &str = "write Auto to let the controller select the nodes, or Manual to select them with a label";

    let bound_holds =
        |value: &str| format!("(type({value}) == int ? {value} >= 0 : {value}.matches('^[+]?0*[0-9]{{1,9}}%$'))");
    let selection_holds = |value: &str| format!("{value} in ['Auto', 'Manual']");
    let mut rules = Vec::new();
    for (type_, block) in [("RollingUpdate", "rollingUpdate"), ("InPlaceUpdate", "inPlaceUpdate")] {
        rules.extend(part_of_strategy(type_, block, "maxSurge", BOUND, bound_holds));
        rules.extend(part_of_strategy(type_, block, "maxUnavailable", BOUND, bound_holds));
    }
    rules.extend(part_of_strategy("InPlaceUpdate", "inPlaceUpdate", "orchestrationType", SELECTION, selection_holds));
    rules
}

/// The field that a strategy of this type requires is present, and `holds` for its value.
fn part_of_strategy(
    type_: &str,
    block: &str,
    part: &str,
    message: &str,
    holds: impl Fn(&str) -> String,
) -> [ValidationRule; 2] {
    let field = format!(".{block}.{part}");
    let value = format!("self{field}");
    let is_missing = required(&field, message, |strategy| {
        format!("{strategy}.?type.orValue('') != '{type_}' || {strategy}.?{block}.?{part}.hasValue()")
    });
    // Another invalid value is rejected; only the stored one is tolerated.
    let is_malformed = ValidationRule {
        rule: format!(
            "!has(self.type) || self.type != '{type_}' || !has(self.{block}) || !has({value}) || {} || \
             oldSelf.?type.orValue('') == self.type && oldSelf.?{block}.?{part}.hasValue() && \
             oldSelf.value().{block}.{part} == {value}",
            holds(&value)
        ),
        message: Some(message.into()),
        field_path: Some(field),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    };
    [is_missing, is_malformed]
}

/// Labels and taints that the API server would refuse on a Node. By patterns, because the number of labels has no limit
/// and so no rule over them a bounded cost; keys of labels are checked when they are applied.
pub fn restrict_node_template(template: &mut JSONSchemaProps) {
    let mut metadata = template.properties.iter_mut().filter_map(|fields| fields.get_mut("metadata"));
    let labels = metadata.find_map(|metadata| metadata.properties.as_mut()?.get_mut("labels"));
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = labels.and_then(|it| it.additional_properties.as_mut()) {
        restrict(value, LABEL_VALUE, LABEL_VALUE_MAX);
    }
    let spec = template.properties.as_mut().and_then(|fields| fields.get_mut("spec"));
    let taints = spec.and_then(|spec| spec.properties.as_mut()?.get_mut("taints"));
    if let Some(JSONSchemaPropsOrArray::Schema(taint)) = taints.and_then(|taints| taints.items.as_mut()) {
        for (field, part) in taint.properties.iter_mut().flatten() {
            match field.as_str() {
                "key" => restrict(part, QUALIFIED_NAME, QUALIFIED_NAME_MAX),
                "value" => restrict(part, LABEL_VALUE, LABEL_VALUE_MAX),
                "effect" => part.enum_ = Some(EFFECTS.map(|effect| JSON(effect.into())).to_vec()),
                _ => {}
            }
        }
    }
}

/// Durations of a machine that a user can mean: none is negative, and a machine needs some time to be created.
pub fn restrict_durations(machine: &mut BTreeMap<String, JSONSchemaProps>) {
    const DURATIONS: [&str; 5] =
        ["drainTimeout", "healthTimeout", CREATION_TIMEOUT, "inPlaceUpdateTimeout", "machinePreserveTimeout"];
    const CREATION_TIMEOUT: &str = "creationTimeout";
    for field in DURATIONS {
        let rules = machine.entry(field.to_owned()).or_default().x_kubernetes_validations.get_or_insert_default();
        rules.push(duration::is_not_negative());
        if field == CREATION_TIMEOUT {
            rules.push(duration::is_not_zero());
        }
    }
}

fn restrict(text: &mut JSONSchemaProps, pattern: &str, max: u32) {
    (text.pattern, text.max_length) = (Some(pattern.to_owned()), Some(max.into()));
}

pub(super) fn node_template_rules() -> Vec<ValidationRule> {
    vec![required(".capacity", "write cpu, gpu and memory, with 0 for what the VM does not have", |template| {
        format!("['cpu', 'gpu', 'memory'].all(name, {template}.?capacity[?name].hasValue())")
    })]
}

/// A rule about one value. The API server does not check it for an update that leaves the value unchanged.
pub(super) fn value_rule(rule: &str, message: &str) -> ValidationRule {
    ValidationRule { rule: rule.into(), message: Some(message.into()), ..ValidationRule::default() }
}

/// [`tolerant`], for a required field.
fn required(field: &str, message: &str, holds: impl Fn(&str) -> String) -> ValidationRule {
    ValidationRule {
        message: Some(message.into()),
        reason: Some("FieldValueRequired".into()),
        ..tolerant(field, holds)
    }
}

/// A rule that an object may still break if it did before. `holds` returns the condition for `self` and for `oldSelf`,
/// which is optional, so it uses `.?` on both.
fn tolerant(field: &str, holds: impl Fn(&str) -> String) -> ValidationRule {
    ValidationRule {
        rule: format!("{} || oldSelf.hasValue() && !({})", holds("self"), holds("oldSelf")),
        field_path: Some(field.into()),
        optional_old_self: Some(true),
        ..ValidationRule::default()
    }
}
