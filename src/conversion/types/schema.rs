//! Shapes of fields of the core kinds, at least as strict as those of Cluster API.

use schemars::{Schema, SchemaGenerator, json_schema};

const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const QUALIFIED: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";

/// Name of a Cluster: also a label value.
pub(super) fn cluster_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 63 })
}

pub(super) fn subdomain(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253, "pattern": SUBDOMAIN })
}

pub(super) fn kind(_: &mut SchemaGenerator) -> Schema {
    let pattern = "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$";
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 63, "pattern": pattern })
}

pub(super) fn condition_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 316, "pattern": QUALIFIED })
}

pub(super) fn taint_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 317, "pattern": QUALIFIED })
}

pub(super) fn taint_value(_: &mut SchemaGenerator) -> Schema {
    let pattern = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 63, "pattern": pattern })
}

pub(super) fn taint_effect(_: &mut SchemaGenerator) -> Schema {
    one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"])
}

pub(super) fn taint_propagation(_: &mut SchemaGenerator) -> Schema {
    one_of(&["Always", "OnInitialization"])
}

pub(super) fn polarity(_: &mut SchemaGenerator) -> Schema {
    one_of(&["Positive", "Negative"])
}

pub(super) fn strategy_type(_: &mut SchemaGenerator) -> Schema {
    one_of(&["RollingUpdate", "OnDelete"])
}

pub(super) fn deletion_order(_: &mut SchemaGenerator) -> Schema {
    one_of(&["Random", "Newest", "Oldest"])
}

/// Conditions of a Machine that make it unhealthy, without the conditions that core computes from the health check.
pub(super) fn machine_conditions(_: &mut SchemaGenerator) -> Schema {
    let computed = "self in ['Ready', 'Available', 'HealthCheckSucceeded', 'OwnerRemediated', 'ExternallyRemediated']";
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 100, "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object", "required": ["status", "timeoutSeconds", "type"],
            "properties": {
                "type": {
                    "type": "string", "description": "Type of the condition.", "minLength": 1, "maxLength": 316,
                    "pattern": QUALIFIED, "x-kubernetes-validations": [{
                        "rule": format!("!({computed})"),
                        "message": "Cluster API computes this condition: name another one",
                    }],
                },
                "status": {
                    "type": "string", "description": "`True`, `False` or `Unknown`.",
                    "enum": ["True", "False", "Unknown"],
                },
                "timeoutSeconds": {
                    "type": "integer", "format": "int32", "minimum": 0, "description": "After how many seconds.",
                },
            },
        },
    })
}

/// A reference to a template with its version.
pub(super) fn template_ref(generator: &mut SchemaGenerator) -> Schema {
    const VERSIONED: &str =
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[a-z]([-a-z0-9]*[a-z0-9])?$";
    let described = |mut schema: Schema, description: &str| {
        schema.insert("description".to_owned(), description.into());
        schema
    };
    json_schema!({
        "type": "object", "required": ["apiVersion", "kind", "name"],
        "properties": {
            "apiVersion": {
                "type": "string", "description": "API group and version.", "minLength": 1, "maxLength": 317,
                "pattern": VERSIONED,
            },
            "kind": described(kind(generator), "Kind of the template."),
            "name": described(subdomain(generator), "Name of the template."),
        },
    })
}

fn one_of(values: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": values })
}
