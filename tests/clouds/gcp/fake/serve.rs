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

/// Calls of the Compute API, as the discovery document names them: method of HTTP, collection, number of parts of the path
/// below the project, name.
const CALLS: [(&str, &str, usize, &str); 5] = [
    ("POST", "instances", 3, "instances.insert"),
    ("GET", "instances", 3, "instances.list"),
    ("GET", "instances", 4, "instances.get"),
    ("DELETE", "instances", 4, "instances.delete"),
    ("GET", "operations", 4, "zoneOperations.get"),
];

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
        if let Some(refused) = refuse(&mut gce, &sent) {
            return refused;
        }
        take_fault(&mut gce, sent.call)
    };
    match fault {
        None => carry_out(&gce, &sent),
        Some(Fault::LostAnswer) => {
            carry_out(&gce, &sent);
            let broken = futures::stream::iter([Ok("{\"kind\""), Err(io::Error::other("cut"))]);
            Body::from_stream(broken).into_response()
        }
        Some(Fault::Timeout) => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
        Some(Fault::Malformed) => "this is no JSON".into_response(),
        Some(Fault::Foreign) => r#"{"kind": "page#ofAProxy"}"#.into_response(),
        Some(Fault::Error(reason, status)) => {
            answers::error(reason, status, "as told, with hunter2-hunter2 [and brackets")
        }
        Some(Fault::Status(status)) => (StatusCode::from_u16(status).unwrap(), "<html></html>").into_response(),
    }
}

fn carry_out(gce: &Mutex<Gce>, sent: &Sent) -> Response {
    let mut gce = gce.lock();
    if sent.call.contains('.') { answers::carry_out(&mut gce, sent) } else { tokens::carry_out(&mut gce, sent) }
}

/// What Google says of a request that does not fit the document.
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
        if gce.lost_every.is_some_and(|every| gce.inserts.is_multiple_of(every)) {
            return Some(Fault::LostAnswer);
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
    let (call, path) = call_of(method.as_str(), uri.path())?;
    let Query(mut query) = Query::<BTreeMap<String, String>>::try_from_uri(uri).ok()?;
    query.remove("prettyPrint");
    query.remove("alt");
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let is_form = headers.get("content-type").is_some_and(|kind| kind.as_bytes().ends_with(b"urlencoded"));
    let body = match body {
        [] => Value::Null,
        _ if is_form => form(body)?,
        _ => serde_json::from_slice(body).ok()?,
    };
    Some(Sent { call, path, query, body, token: token.unwrap_or_default().to_owned() })
}

/// The name of a call, and the path below the project.
fn call_of(method: &str, path: &str) -> Option<(&'static str, String)> {
    if method == "POST" && path == "/token" {
        return Some(("token", String::new()));
    }
    if method == "POST" && path == "/v1/token" {
        return Some(("sts", String::new()));
    }
    if method == "POST" && path.starts_with("/v1/projects/-/serviceAccounts/") {
        return Some(("iam", path.to_owned()));
    }
    let below = path.strip_prefix("/compute/v1/projects/")?.strip_prefix(PROJECT)?.strip_prefix('/')?;
    let parts: Vec<&str> = below.split('/').collect();
    let is_it = |(verb, collection, count, _): &&(&str, &str, usize, &str)| {
        *verb == method && parts.len() == *count && parts.get(2) == Some(collection)
    };
    CALLS.iter().find(is_it).map(|(_, _, _, name)| (*name, below.to_owned()))
}

fn form(body: &[u8]) -> Option<Value> {
    let uri: Uri = format!("/?{}", std::str::from_utf8(body).ok()?).parse().ok()?;
    let Query(pairs) = Query::<BTreeMap<String, String>>::try_from_uri(&uri).ok()?;
    serde_json::to_value(pairs).ok()
}
