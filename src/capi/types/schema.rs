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

fn one_of(values: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": values })
}
