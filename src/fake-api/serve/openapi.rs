//! OpenAPI v3 as far as kubectl reads it: schemas for `kubectl explain`, and that the server validates fields, so that
//! `kubectl apply` leaves that to it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    definitions::schema_of,
    kinds::{ALL, Kind},
};

const ROOT: &str = "openapi/v3";

/// The document at a path; `None` if the path has no document.
pub(super) fn document(path: &str) -> Option<Value> {
    let path = path.trim_matches('/');
    if path == ROOT {
        let paths: BTreeMap<String, Value> = ALL
            .into_iter()
            .map(|kind| (root_of(kind), json!({ "serverRelativeURL": format!("/{ROOT}/{}", root_of(kind)) })))
            .collect();
        return Some(json!({ "paths": paths }));
    }
    let version = path.strip_prefix(ROOT)?.strip_prefix('/')?;
    let kinds: Vec<&Kind> = ALL.into_iter().filter(|kind| root_of(kind) == version).collect();
    (!kinds.is_empty()).then(|| described(&kinds))
}

/// The path of the version of a kind.
fn root_of(kind: &Kind) -> String {
    let prefix = if kind.group.is_empty() { "api" } else { "apis" };
    format!("{prefix}/{}", kind.api_version())
}

fn described(kinds: &[&Kind]) -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for kind in kinds {
        schemas.insert(schema_name(kind), schema(kind));
        let namespace = if kind.is_namespaced { "namespaces/{namespace}/" } else { "" };
        let list = format!("/{}/{namespace}{}", root_of(kind), kind.plural);
        paths.insert(format!("{list}/{{name}}"), operations(kind, &["get", "put", "patch", "delete"]));
        paths.insert(list, operations(kind, &["get", "post"]));
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "mcm", "version": "unversioned" },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn operations(kind: &Kind, methods: &[&str]) -> Value {
    let parameter =
        |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } });
    let parameters = |method: &str| match method {
        "put" | "patch" | "post" => vec![parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        _ => Vec::new(),
    };
    let content = json!({ "schema": { "$ref": format!("#/components/schemas/{}", schema_name(kind)) } });
    let operation = |method: &str| {
        json!({
            "description": "", "parameters": parameters(method), "x-kubernetes-group-version-kind": identity(kind),
            "responses": { "200": { "description": "OK", "content": { "application/json": content } } },
        })
    };
    methods.iter().map(|method| ((*method).to_owned(), operation(method))).collect::<Map<_, _>>().into()
}

fn identity(kind: &Kind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.name })
}

/// Reversed group, version and kind, as definitions are named.
fn schema_name(kind: &Kind) -> String {
    let group: Vec<&str> = if kind.group.is_empty() { vec!["core"] } else { kind.group.rsplit('.').collect() };
    format!("{}.{}.{}", group.join("."), kind.version, kind.name)
}

/// The schema of a custom resource. That of a built-in kind allows every field.
fn schema(kind: &Kind) -> Value {
    let description = format!("{} as Kubernetes defines it; this server checks none of its fields.", kind.name);
    let any = || json!({ "type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true });
    let mut schema = schema_of(kind).cloned().unwrap_or_else(any);
    let text = |description: &str| json!({ "type": "string", "description": description });
    schema["properties"]["apiVersion"] = text("Group and version of the kind.");
    schema["properties"]["kind"] = text("Kind of the object.");
    schema["properties"]["metadata"] = json!({
        "type": "object", "description": "Metadata of the object.", "x-kubernetes-preserve-unknown-fields": true,
    });
    schema["x-kubernetes-group-version-kind"] = json!([identity(kind)]);
    schema
}
