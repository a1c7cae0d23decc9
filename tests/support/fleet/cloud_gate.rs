//! The way of one replica to a simulated cloud, on which the requests that may change something are recorded.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;

/// Larger requests are none of a driver.
const BODY_LIMIT: usize = 1 << 20;

/// A request that may change something in the cloud.
#[derive(Clone, Debug)]
pub struct CloudCall {
    pub at: Timestamp,
    pub namespace: String,
    pub request: String,
}

/// Passes all requests on, for as long as the test runs.
pub struct CloudGate {
    pub url: String,
    calls: Arc<Mutex<Vec<CloudCall>>>,
    last: LastCalls,
}

/// The time of the last request of any kind, by namespace.
type LastCalls = Arc<Mutex<BTreeMap<String, Timestamp>>>;

#[derive(Clone)]
struct GateState {
    cloud: String,
    http: reqwest::Client,
    calls: Arc<Mutex<Vec<CloudCall>>>,
    last: LastCalls,
}

impl CloudGate {
    /// A gate to the cloud with this address.
    pub async fn to(cloud: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (calls, last) = (Arc::default(), LastCalls::default());
        let (recording, timing) = (Arc::clone(&calls), Arc::clone(&last));
        let state = GateState { cloud: cloud.to_owned(), http: reqwest::Client::new(), calls: recording, last: timing };
        let router = Router::new().fallback(pass).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, calls, last }
    }

    /// The arrival of the last request for a namespace. A request that only reads counts as well.
    pub fn last_call(&self, namespace: &str) -> Option<Timestamp> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).copied()
    }

    /// The calls since the last time.
    pub fn take_calls(&self) -> Vec<CloudCall> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn pass(State(gate): State<GateState>, request: Request) -> Response {
    let at = Timestamp::now();
    let (parts, body) = request.into_parts();
    // A caller that was killed sends a part.
    let Ok(body) = to_bytes(body, BODY_LIMIT).await else { return StatusCode::BAD_REQUEST.into_response() };
    let namespace = namespace_of(parts.uri.query().unwrap_or_default(), &body);
    gate.last.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.clone(), at);
    if parts.method != Method::GET {
        let call = CloudCall { at, namespace, request: format!("{} {}", parts.method, parts.uri) };
        gate.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
    let url = format!("{}{}", gate.cloud, parts.uri.path_and_query().unwrap());
    let call = gate.http.request(parts.method, url).header(header::CONTENT_TYPE, "application/json").body(body);
    match call.send().await {
        Ok(answer) => {
            let status = answer.status();
            (status, Body::from(answer.bytes().await.unwrap_or_default())).into_response()
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// The driver tags VMs with the namespace as their cluster: in the query of a deletion, and in the body of a creation.
fn namespace_of(query: &str, body: &[u8]) -> String {
    let in_query = query.split('&').find_map(|pair| pair.strip_prefix("cluster=")).map(str::to_owned);
    let in_body = || Some(serde_json::from_slice::<Value>(body).ok()?["cluster"].as_str()?.to_owned());
    in_query.or_else(in_body).unwrap_or_default()
}
