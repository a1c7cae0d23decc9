//! The fake behind HTTP.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

use super::{Fault, Gce, PROJECT, Sent, Shared, answers, tokens};

/// Calls of the Compute API: method of HTTP, path below the project, and the name in the discovery document.
const CALLS: [(&str, &str, &str); 20] = [
    ("POST", "zones/*/instances", "instances.insert"),
    ("GET", "zones/*/instances", "instances.list"),
    ("GET", "zones/*/instances/*", "instances.get"),
    ("DELETE", "zones/*/instances/*", "instances.delete"),
    ("GET", "zones/*/operations/*", "zoneOperations.get"),
    ("GET", "zones/*/operations", "zoneOperations.list"),
    ("GET", "", "projects.get"),
    ("GET", "zones", "zones.list"),
    ("GET", "zones/*", "zones.get"),
    ("GET", "regions/*", "regions.get"),
    ("GET", "zones/*/machineTypes/*", "machineTypes.get"),
    ("GET", "zones/*/diskTypes/*", "diskTypes.get"),
    ("GET", "zones/*/acceleratorTypes/*", "acceleratorTypes.get"),
    ("GET", "global/images/*", "images.get"),
    ("GET", "global/images/family/*", "images.getFromFamily"),
    ("GET", "global/networks/*", "networks.get"),
    ("GET", "regions/*/subnetworks/*", "subnetworks.get"),
    ("POST", "zones/*/instanceGroups/*/listInstances", "instanceGroups.listInstances"),
    ("POST", "zones/*/instanceGroups/*/addInstances", "instanceGroups.addInstances"),
    ("POST", "zones/*/instanceGroups/*/removeInstances", "instanceGroups.removeInstances"),
];

/// Where service accounts are.
const SERVICE_ACCOUNTS: &str = "/v1/projects/-/serviceAccounts/";

/// Serves a cloud; returns its URL. The Compute API is below `/compute/v1`, tokens of service accounts come from `/token`,
/// those of external accounts from `/v1/token`.
pub async fn serve(gce: &Shared) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    gce.lock().url.clone_from(&url);
    let router = Router::new().fallback(answer).with_state(Arc::clone(gce));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn answer(State(gce): State<Shared>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let Some(sent) = read(&method, &uri, &headers, &body) else {
        return answers::error("notFound", 404, &format!("no such method: {method} {}", uri.path()));
    };
    let fault = {
        let mut gce = gce.lock();
        gce.sent.push(sent.clone());
        if gce.refuses_masks && sent.query.contains_key("fields") {
            return answers::error("invalidParameter", 400, "Invalid value for header X-Goog-FieldMask");
        }
        if let Some(refused) = refuse(&mut gce, &sent) {
            return refused;
        }
        let fault = take_fault(&mut gce, sent.call);
        gce.late += usize::from(matches!(fault, Some(Fault::Late(_) | Fault::LostAndLate(_))));
        fault
    };
    match fault {
        None => carry_out(&gce, &sent),
        Some(Fault::LostAnswer) => {
            carry_out(&gce, &sent);
            cut()
        }
        Some(Fault::Unanswered) => {
            carry_out(&gce, &sent);
            no_answer(&gce).await
        }
        Some(Fault::Timeout) => no_answer(&gce).await,
        Some(Fault::Endless) => {
            let chunk = Bytes::from(vec![b' '; 1 << 20]);
            Body::from_stream(futures::stream::repeat_with(move || Ok::<_, io::Error>(chunk.clone()))).into_response()
        }
        Some(Fault::Malformed) => "this is no JSON".into_response(),
        Some(Fault::Foreign) => r#"{"kind": "page#ofAProxy"}"#.into_response(),
        Some(Fault::Error(reason, status)) => {
            answers::error(reason, status, "as told, with hunter2-hunter2 [and brackets")
        }
        Some(Fault::Reply(body, status)) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        Some(Fault::Later) => answers::later(),
        Some(Fault::Moved) => {
            let url = gce.lock().url.clone();
            (StatusCode::TEMPORARY_REDIRECT, [("location", format!("{url}{uri}"))]).into_response()
        }
        Some(Fault::Status(status)) => (StatusCode::from_u16(status).unwrap(), "<html></html>").into_response(),
        Some(Fault::Late(pause)) => tokio::spawn(carry_out_late(gce, sent, pause)).await.unwrap(),
        Some(Fault::LostAndLate(pause)) => {
            tokio::spawn(carry_out_late(gce, sent, pause));
            cut()
        }
        Some(Fault::Slow(pause)) => {
            let answer = carry_out(&gce, &sent);
            tokio::time::sleep(pause).await;
            answer
        }
    }
}

async fn carry_out_late(gce: Shared, sent: Sent, pause: Duration) -> Response {
    tokio::time::sleep(pause).await;
    let answer = carry_out(&gce, &sent);
    gce.lock().late -= 1;
    answer
}

/// An answer that breaks off.
fn cut() -> Response {
    let broken = futures::stream::iter([Ok("{\"kind\""), Err(io::Error::other("cut"))]);
    Body::from_stream(broken).into_response()
}

/// The caller waits in vain.
async fn no_answer(gce: &Mutex<Gce>) -> Response {
    gce.lock().unanswered += 1;
    tokio::time::sleep(Duration::from_secs(600)).await;
    StatusCode::GATEWAY_TIMEOUT.into_response()
}

fn carry_out(gce: &Mutex<Gce>, sent: &Sent) -> Response {
    let mut gce = gce.lock();
    if sent.call.contains('.') { answers::carry_out(&mut gce, sent) } else { tokens::carry_out(&mut gce, sent) }
}

/// Google's answer to a request that does not fit the document.
fn refuse(gce: &mut Gce, sent: &Sent) -> Option<Response> {
    let problems = gce.document.clone()?.check(sent);
    if problems.is_empty() {
        return None;
    }
    let text = format!("{}: {}", sent.call, problems.join("; "));
    gce.violations.push(text.clone());
    Some(answers::error("invalid", 400, &text))
}

fn take_fault(gce: &mut Gce, call: &str) -> Option<Fault> {
    if call == "instances.insert" {
        gce.inserts += 1;
        if let Some((_, fault)) = gce.fails_every.filter(|(every, _)| gce.inserts.is_multiple_of(*every)) {
            return Some(fault);
        }
    }
    let number = gce.sent.len();
    if number.wrapping_mul(2_654_435_761) / 128 % 10 < 4 && !gce.storm.is_empty() {
        return gce.storm.get(number % gce.storm.len()).copied();
    }
    let fault = gce.faults.iter_mut().find(|(name, _, left)| *name == call && *left > 0)?;
    fault.2 -= 1;
    Some(fault.1)
}

fn read(method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Option<Sent> {
    let (call, project, path) = call_of(method.as_str(), uri.path())?;
    let Query(mut query) = Query::<BTreeMap<String, String>>::try_from_uri(uri).ok()?;
    for name in ["prettyPrint", "alt", "$alt", "$apiVersion"] {
        query.remove(name);
    }
    if let Some(mask) = headers.get("x-goog-fieldmask") {
        query.insert("fields".to_owned(), mask.to_str().ok()?.to_owned());
    }
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let is_form = headers.get("content-type").is_some_and(|kind| kind.as_bytes().ends_with(b"urlencoded"));
    let body = match body {
        [] => Value::Null,
        _ if is_form => form(body)?,
        _ => serde_json::from_slice(body).ok()?,
    };
    Some(Sent { call, project, path, query, body, token: token.unwrap_or_default().to_owned() })
}

/// The name of a call, its project, and the path below that.
fn call_of(method: &str, path: &str) -> Option<(&'static str, String, String)> {
    let other = |name, path: &str| Some((name, PROJECT.to_owned(), path.to_owned()));
    match (method, path) {
        ("POST", "/token") => return other("token", ""),
        ("POST", "/v1/token") => return other("sts", ""),
        ("POST", _) if path.starts_with(SERVICE_ACCOUNTS) => return other("iam", path),
        ("GET", _) if path.starts_with(SERVICE_ACCOUNTS) => return other("account", path),
        _ => {}
    }
    let below = path.strip_prefix("/compute/v1/projects/")?;
    let (project, below) = below.split_once('/').unwrap_or((below, ""));
    let is_it = |template: &str| {
        let (parts, expected) = (below.split('/'), template.split('/'));
        parts.clone().count() == expected.clone().count()
            && parts.zip(expected).all(|(part, expected)| expected == "*" || part == expected)
    };
    let found = CALLS.iter().find(|(verb, template, _)| *verb == method && is_it(template));
    found.map(|(_, _, name)| (*name, project.to_owned(), below.to_owned()))
}

fn form(body: &[u8]) -> Option<Value> {
    let uri: Uri = format!("/?{}", std::str::from_utf8(body).ok()?).parse().ok()?;
    let Query(pairs) = Query::<BTreeMap<String, String>>::try_from_uri(&uri).ok()?;
    serde_json::to_value(pairs).ok()
}
