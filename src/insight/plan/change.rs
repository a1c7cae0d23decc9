//! The changes that a user plans, and the objects as an API server would store them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use http::{Method, Request, header};
use kube::{Client, core::Status};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::fields::{patch_of_file, to_value};
use crate::{
    error::UsageError,
    read_only::ReadOnly,
    story::{CLASS, DEPLOYMENT, NamespaceFacts, SET},
};
use mcm_api::{
    kinds::{MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, ResourceKind, SECRETS},
    patch,
};
use mcm_runtime::{kubeconfig::sentence, paths::path_of};

/// The name under which the API server is asked. It stores nothing.
const MANAGER: &str = "mcm-plan";

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedChange {
    /// `MachineDeployment`, `MachineClass`, or, for a set without a deployment, `MachineSet`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The content of the change.
    pub wish: ChangeContent,
}

/// The content of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeContent {
    /// Nothing: what is about to happen anyway.
    Nothing,
    /// A merge patch.
    Patch(Value),
    /// The content of a file.
    File(Value),
    /// Its deletion.
    Delete,
}

/// An object before and after a change.
#[derive(Clone, Debug, Default)]
pub struct ChangedObject {
    /// The stored object; `None` if it does not exist.
    pub live: Option<Value>,
    /// As it will be; `None` if there will be none.
    pub wanted: Option<Value>,
    /// The API server refuses it.
    pub refused: Option<String>,
    /// Why the API server was not asked.
    pub note: Option<String>,
}

/// The kinds that a plan covers.
pub fn kind_of(object: &Value) -> Option<&'static str> {
    let is_ours = object["apiVersion"].as_str().is_some_and(|version| version.starts_with("machine.sapcloud.io/"));
    match object["kind"].as_str()? {
        DEPLOYMENT if is_ours => Some(DEPLOYMENT),
        CLASS if is_ours => Some(CLASS),
        _ => None,
    }
}

/// Requests an object before and after a change from the API server.
///
/// # Errors
/// The object cannot be read, or the change needs an object that does not exist.
pub async fn version(cell: &ReadOnly, facts: &NamespaceFacts, change: &PlannedChange) -> Result<ChangedObject> {
    let path = path(&cell.namespace, change.kind, &change.name)?;
    let live = match change.wish {
        ChangeContent::Nothing => known(facts, change),
        _ => read(&cell.control, &path).await?,
    };
    let (patch, is_file) = match (&change.wish, &live) {
        (ChangeContent::File(file), live) => (patch_of_file(live.as_ref().unwrap_or(&Value::Null), file), true),
        (_, None) => {
            let message = format!("there is no {} {} in namespace {}", change.kind, change.name, cell.namespace);
            let hint = format!("mcm plan -f FILE -n {} plans a new one", cell.namespace);
            return Err(UsageError { message, hint }.into());
        }
        (ChangeContent::Nothing, _) => {
            return Ok(ChangedObject { wanted: live.clone(), live, ..ChangedObject::default() });
        }
        (ChangeContent::Delete, _) => return Ok(ChangedObject { live, ..ChangedObject::default() }),
        (ChangeContent::Patch(patch), _) => (patch.clone(), false),
    };
    let asked = match &live {
        Some(_) => ask(&cell.control, &path, "application/merge-patch+json", &patch).await,
        None => ask(&cell.control, &path, "application/apply-patch+yaml", &patch).await,
    };
    let mut version = ChangedObject { live, ..ChangedObject::default() };
    match asked {
        Ok(stored) => version.wanted = Some(stored),
        Err(kube::Error::Api(status)) if is_refusal(&status) => {
            version.refused = Some(without_object(&status.message).to_owned());
        }
        Err(error) => {
            let mut merged = version.live.clone().unwrap_or_else(|| json!({}));
            patch::apply(&mut merged, &patch);
            version.wanted = Some(merged);
            version.note = Some(format!(
                "the API server was not asked what it would store as {} {}: {}",
                change.kind,
                change.name,
                sentence(&error)
            ));
        }
    }
    if is_file && let Some(wanted) = &mut version.wanted {
        wanted["metadata"]["namespace"] = json!(cell.namespace);
    }
    Ok(version)
}

/// A refusal without the whole object, which the API server quotes before the name of an unknown field.
fn without_object(message: &str) -> &str {
    const QUOTE: &str = "Invalid value: \"{";
    match message.rsplit_once("}\": ") {
        Some((before, reason)) if before.contains(QUOTE) && !reason.is_empty() => reason,
        _ => message,
    }
}

/// The API server refuses to store the object. Otherwise the kind is not served, the user may not send a dry run, or a webhook
/// does not take part in dry runs.
fn is_refusal(status: &Status) -> bool {
    let says = |words: &str| status.message.contains(words);
    match status.code {
        400 | 404 | 422 => !says("could not find the requested resource") && !says("does not support dry run"),
        // Webhooks and quotas also forbid.
        403 => !says(" cannot patch resource ") && !says(" cannot create resource "),
        _ => false,
    }
}

/// An object that was listed.
fn known(facts: &NamespaceFacts, change: &PlannedChange) -> Option<Value> {
    let name = &change.name;
    match change.kind {
        CLASS => facts.classes.get(name).map(to_value),
        SET => facts.sets.get(name).map(to_value),
        _ => facts.deployments.get(name).map(to_value),
    }
}

fn path(namespace: &str, kind: &str, name: &str) -> kube::Result<String> {
    let ResourceKind { group, version, plural, .. } = match kind {
        CLASS => MACHINE_CLASSES,
        SET => MACHINE_SETS,
        _ => MACHINE_DEPLOYMENTS,
    };
    path_of(&["apis", group, version, "namespaces", namespace, plural, name])
}

async fn read(client: &Client, path: &str) -> Result<Option<Value>> {
    let request = Request::get(path).body(Vec::new())?;
    match client.request::<Value>(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {path}")),
    }
}

/// A dry run.
async fn ask(client: &Client, path: &str, format: &str, patch: &Value) -> kube::Result<Value> {
    let force = if format.contains("apply") { "&force=true" } else { "" };
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?dryRun=All&fieldManager={MANAGER}&fieldValidation=Strict{force}"))
        .header(header::CONTENT_TYPE, format)
        .body(patch.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await
}

/// A Secret, as far as plans need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedSecret {
    Missing,
    WithoutUserData,
    Complete,
    /// It may not be read.
    Unread,
}

/// The keys of a Secret without their values.
#[derive(Debug, Deserialize)]
struct SecretKeys {
    data: Option<BTreeMap<String, IgnoredAny>>,
}

/// Reads whether a Secret exists and has user data. Its values are dropped.
pub async fn secret(client: &Client, namespace: &str, name: &str) -> PlannedSecret {
    let Ok(path) = path_of(&["api", "v1", "namespaces", namespace, SECRETS.plural, name]) else {
        return PlannedSecret::Missing;
    };
    let Ok(request) = Request::get(path).body(Vec::new()) else { return PlannedSecret::Unread };
    match client.request::<SecretKeys>(request).await {
        Ok(SecretKeys { data: Some(data) }) if data.contains_key("userData") => PlannedSecret::Complete,
        Ok(_) => PlannedSecret::WithoutUserData,
        Err(kube::Error::Api(status)) if status.code == 404 => PlannedSecret::Missing,
        Err(_) => PlannedSecret::Unread,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::unknown_field(
        r#""" is invalid: patch: Invalid value: "{\"metadata\":{\"name\":\"pool\"},\"spec\":{}}": strict decoding error: unknown field "spec.a""#,
        r#"strict decoding error: unknown field "spec.a""#
    )]
    #[case::another_value(
        r#"MachineDeployment "pool" is invalid: spec.replicas: Invalid value: -1"#,
        r#"MachineDeployment "pool" is invalid: spec.replicas: Invalid value: -1"#
    )]
    fn a_refusal_does_not_quote_the_object(#[case] message: &str, #[case] expected: &str) {
        assert_eq!(without_object(message), expected);
    }

    #[rstest]
    #[case::schema(422, r#"MachineDeployment "pool" is invalid: spec.replicas: Invalid value"#, true)]
    #[case::webhook(400, r#"admission webhook "a.example.com" denied the request: no"#, true)]
    #[case::webhook_that_forbids(403, r#"admission webhook "a.example.com" denied the request: no"#, true)]
    #[case::quota(403, r#"machinedeployments "pool" is forbidden: exceeded quota: pools"#, true)]
    #[case::no_right(
        403,
        r#"machinedeployments "pool" is forbidden: User "alice" cannot patch resource "machinedeployments""#,
        false
    )]
    #[case::webhook_without_dry_runs(400, r#"admission webhook "a.example.com" does not support dry run"#, false)]
    #[case::not_served(404, "the server could not find the requested resource", false)]
    #[case::server(500, "etcdserver: request timed out", false)]
    fn an_object_that_is_refused_is_told_from_a_question_that_is(
        #[case] code: u16,
        #[case] message: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(is_refusal(&Status::failure(message, "").with_code(code)), expected);
    }
}
