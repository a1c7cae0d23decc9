//! The responses of Compute Engine.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Json, Response},
};
use serde_json::{Value, json};

use super::{Changed, Gce, Goal, PROJECT, Sent, Vm, mask::Mask};

/// Carries a call out.
pub fn carry_out(gce: &mut Gce, sent: &Sent) -> Response {
    gce.advance();
    if !gce.tokens.contains(&sent.token) {
        return error("authError", 401, "Invalid Credentials");
    }
    if !["instances.", "zoneOperations.", "instanceGroups."].iter().any(|start| sent.call.starts_with(start)) {
        return look(gce, sent);
    }
    if sent.project != PROJECT {
        return nothing(sent);
    }
    let parts: Vec<&str> = sent.path.split('/').collect();
    match (sent.call, parts.as_slice()) {
        ("instances.insert", ["zones", zone, _]) => insert(gce, zone, sent),
        ("instances.list", ["zones", zone, _]) => list(gce, zone, sent),
        ("instances.get", ["zones", zone, _, name]) => match gce.vms.get(&key(zone, name)) {
            Some(vm) => Json(vm.resource.clone()).into_response(),
            None => not_found(zone, name),
        },
        ("instances.delete", ["zones", zone, _, name]) => delete(gce, zone, name),
        (call, ["zones", zone, "instanceGroups", name, verb]) if call.ends_with(verb) => {
            group(gce, zone, name, verb, sent)
        }
        ("zoneOperations.get", ["zones", _, _, name]) if gce.operations.contains_key(*name) => operation(gce, name),
        ("zoneOperations.list", ["zones", zone, _]) => list_operations(gce, zone, sent),
        _ => nothing(sent),
    }
}

/// Reads of resources.
fn look(gce: &Gce, sent: &Sent) -> Response {
    let path = format!("{}/{}", sent.project, sent.path);
    match gce.things.get(path.trim_end_matches('/')) {
        Some(thing) => Json(thing.clone()).into_response(),
        None => nothing(sent),
    }
}

fn nothing(sent: &Sent) -> Response {
    let text = format!("The resource 'projects/{}/{}' was not found", sent.project, sent.path);
    error("notFound", 404, &text)
}

fn insert(gce: &mut Gce, zone: &str, sent: &Sent) -> Response {
    let id = sent.query.get("requestId").cloned().unwrap_or_default();
    if let Some(name) = gce.request_ids.get(&id).cloned() {
        return operation(gce, &name);
    }
    let name = sent.body["name"].as_str().unwrap_or_default().to_owned();
    if gce.vms.contains_key(&key(zone, &name)) {
        let resource = format!("The resource 'projects/{PROJECT}/zones/{zone}/instances/{name}' already exists");
        return error("alreadyExists", 409, &resource);
    }
    if sent.body["labels"].as_object().is_some_and(|labels| labels.len() > 64) {
        return error("invalid", 400, "Invalid value for field 'resource.labels': too many labels");
    }
    gce.add(zone, &name, &sent.body, "PROVISIONING");
    let goal = gce.failing.pop_front().map_or(Goal::Run, Goal::Fail);
    let begun = gce.begin(zone, &name, goal);
    if gce.vanishing > 0 {
        gce.vanishing -= 1;
        gce.vms.remove(&key(zone, &name));
    }
    if !id.is_empty() {
        gce.request_ids.insert(id, begun.clone());
    }
    operation(gce, &begun)
}

fn list(gce: &mut Gce, zone: &str, sent: &Sent) -> Response {
    let Some(filter) = Filter::of(gce, sent) else {
        return error("invalid", 400, "Invalid value for field 'filter'");
    };
    let is_shown = |vm: &&mut Vm| vm.zone == zone && filter.passes(&vm.resource);
    let mut found = Vec::new();
    for vm in gce.vms.values_mut().filter(is_shown) {
        if vm.hidden > 0 {
            vm.hidden -= 1;
        } else {
            found.push(vm.resource.clone());
        }
    }
    page(gce, sent, ("compute#instanceList", zone), &found)
}

/// The members of an instance group, or an operation that changes them.
fn group(gce: &mut Gce, zone: &str, name: &str, verb: &str, sent: &Sent) -> Response {
    let Some(members) = gce.groups.get(&key(zone, name)) else {
        let text = format!("The resource 'projects/{PROJECT}/zones/{zone}/instanceGroups/{name}' was not found");
        return error("notFound", 404, &text);
    };
    let url = |instance: &String| format!("{}/projects/{PROJECT}/zones/{zone}/instances/{instance}", gce.url);
    if verb == "listInstances" {
        let members: Vec<Value> =
            members.iter().map(|one| json!({"instance": url(one), "status": "RUNNING"})).collect();
        return page(gce, sent, ("compute#instanceGroupsListInstances", zone), &members);
    }
    let instance = sent.body["instances"][0]["instance"].as_str().unwrap_or_default();
    let instance = instance.rsplit('/').next().unwrap_or_default().to_owned();
    let is_member = verb == "addInstances";
    if members.contains(&instance) == is_member {
        let (reason, text) = match is_member {
            true => ("memberAlreadyExists", "is already a member"),
            false => ("memberNotFound", "is not a member"),
        };
        return error(reason, 400, &format!("Instance '{instance}' {text} of '{name}'"));
    }
    if is_member && !gce.vms.contains_key(&key(zone, &instance)) {
        return not_found(zone, &instance);
    }
    let begun = gce.begin(zone, name, Goal::Member(instance, is_member));
    operation(gce, &begun)
}

fn list_operations(gce: &Gce, zone: &str, sent: &Sent) -> Response {
    let Some(filter) = Filter::of(gce, sent) else {
        return error("invalid", 400, "Invalid value for field 'filter'");
    };
    let of_zone = gce.operations.iter().filter(|(_, running)| running.zone == zone);
    let found: Vec<Value> =
        of_zone.map(|(name, _)| operation_of(gce, name)).filter(|operation| filter.passes(operation)).collect();
    page(gce, sent, ("compute#operationList", zone), &found)
}

/// The page of a list that was asked for.
fn page(gce: &Gce, sent: &Sent, (kind, zone): (&str, &str), found: &[Value]) -> Response {
    let first: usize = sent.query.get("pageToken").map_or(0, |token| token.parse().unwrap());
    let most = sent.query.get("maxResults").map_or(500, |most| most.parse().unwrap());
    let page: usize = gce.page.unwrap_or(most);
    let mut answer = json!({"kind": kind, "id": format!("projects/{PROJECT}/zones/{zone}")});
    let items: Vec<Value> = found.iter().skip(first).take(page).cloned().collect();
    if !items.is_empty() {
        answer["items"] = items.into();
    }
    if let Some(code) = gce.warning {
        answer["warning"] = json!({"code": code, "message": "as told"});
    }
    if gce.repeats_page {
        // In a circle.
        answer["nextPageToken"] = (first % 2 + 1).to_string().into();
    } else if gce.has_endless_pages || first + page < found.len() {
        answer["nextPageToken"] = (first + page).to_string().into();
    }
    match sent.query.get("fields").map(|fields| Mask::parse(fields)) {
        None => Json(answer).into_response(),
        Some(Some(mask)) => Json(mask.apply(&answer)).into_response(),
        Some(None) => error("invalidParameter", 400, "Invalid field selection"),
    }
}

/// Values of fields, one of which a resource must have. `None`: everything passes.
struct Filter(Option<Vec<(String, String)>>);

impl Filter {
    /// `None` if it is no filter of values.
    fn of(gce: &Gce, sent: &Sent) -> Option<Self> {
        let Some(filter) = sent.query.get("filter").filter(|_| !gce.ignores_filters) else { return Some(Self(None)) };
        let term = |term: &str| {
            let inner = term.trim().strip_prefix('(')?.strip_suffix(')')?;
            let (field, value) = inner.split_once('=')?;
            let value = value.trim().strip_prefix('"')?.strip_suffix('"')?;
            let is_known = ["name", "clientOperationId"].contains(&field.trim());
            is_known.then(|| (field.trim().to_owned(), value.to_owned()))
        };
        Some(Self(Some(filter.split(" OR ").map(term).collect::<Option<_>>()?)))
    }

    fn passes(&self, resource: &Value) -> bool {
        self.0.as_ref().is_none_or(|terms| terms.iter().any(|(field, value)| resource[field] == value.as_str()))
    }
}

fn delete(gce: &mut Gce, zone: &str, name: &str) -> Response {
    let Some(vm) = gce.vms.get_mut(&key(zone, name)) else { return not_found(zone, name) };
    if vm.resource["deletionProtection"] == true {
        let text = "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.";
        return error("invalidResourceUsage", 400, text);
    }
    vm.resource["status"] = "STOPPING".into();
    gce.changes.push(Changed::Deleted(name.to_owned()));
    let goal = match gce.overtaken.pop_front() {
        None => Goal::Delete,
        Some(is_gone) => {
            if is_gone {
                gce.vms.remove(&key(zone, name));
            }
            Goal::FindNothing
        }
    };
    let begun = gce.begin(zone, name, goal);
    operation(gce, &begun)
}

/// An operation as it is now.
fn operation(gce: &Gce, name: &str) -> Response {
    Json(operation_of(gce, name)).into_response()
}

fn operation_of(gce: &Gce, name: &str) -> Value {
    let running = &gce.operations[name];
    let is_done = running.left == 0;
    let mut answer = json!({
        "kind": "compute#operation", "name": name, "id": "1", "zone": running.zone,
        "operationType": if matches!(running.goal, Goal::Delete | Goal::FindNothing) { "delete" } else { "insert" },
        "status": if is_done { "DONE" } else { "RUNNING" }, "progress": if is_done { 100 } else { 0 },
        "targetLink": format!("projects/{PROJECT}/zones/{}/instances/{}", running.zone, running.target),
    });
    if let Some((id, _)) = gce.request_ids.iter().find(|(_, operation)| *operation == name) {
        answer["clientOperationId"] = id.as_str().into();
    }
    let codes = match &running.goal {
        Goal::Fail(codes) => codes.as_slice(),
        Goal::FindNothing => &["RESOURCE_NOT_FOUND"],
        _ => &[],
    };
    if is_done && !codes.is_empty() {
        let errors: Vec<Value> =
            codes.iter().map(|code| json!({"code": code, "message": "as told, with hunter2-hunter2"})).collect();
        answer["error"] = json!({ "errors": errors });
        answer["httpErrorStatusCode"] = 400.into();
        answer["httpErrorMessage"] = "BAD REQUEST".into();
    }
    answer
}

fn key(zone: &str, name: &str) -> (String, String) {
    (zone.to_owned(), name.to_owned())
}

fn not_found(zone: &str, name: &str) -> Response {
    let text = format!("The resource 'projects/{PROJECT}/zones/{zone}/instances/{name}' was not found");
    error("notFound", 404, &text)
}

/// An error in Google's form.
pub fn error(reason: &str, status: u16, message: &str) -> Response {
    let errors = json!([{"message": message, "domain": "global", "reason": reason}]);
    let body = json!({"error": {"code": status, "message": message, "errors": errors}});
    (StatusCode::from_u16(status).unwrap(), Json(body)).into_response()
}

/// An error in Google's newer form, with the time of the next call.
pub fn later() -> Response {
    let retry = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.500s"});
    let reason = "RATE_LIMIT_EXCEEDED";
    let info =
        json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"});
    let error =
        json!({"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED", "details": [info, retry]});
    (StatusCode::TOO_MANY_REQUESTS, Json(json!({ "error": error }))).into_response()
}
