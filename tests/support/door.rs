//! A proxy in front of an API server: it reads requests, and holds back responses on request.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, stream::unfold};
use http::{Method, StatusCode, Uri, header};
use kube::Client;
use mcm_driver::testing::serve_tls;
use serde_json::json;
use tokio::{net::TcpListener, sync::watch};

use super::control_plane::ControlPlane;

/// A request to an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: Method,
    pub path: String,
    /// As sent, without the question mark.
    pub query: String,
    pub is_watch: bool,
}

/// Selects calls.
pub type Which = fn(&Call) -> bool;

/// The status with which a call is refused.
pub type Refusal = fn(&Call) -> Option<StatusCode>;

/// A `Date` that a proxy puts into an answer.
pub type ProxyDate = fn() -> String;

/// The URI with which a request is passed on.
pub type Rewrite = fn(&Uri) -> Uri;

/// How a door treats each request.
#[derive(Clone, Copy)]
pub struct DoorRules {
    /// Requests that are recorded.
    pub records: Which,
    /// Recorded requests have the URI of the caller.
    pub rewrites: Rewrite,
}

impl Default for DoorRules {
    /// Records each request, and passes it on as it is.
    fn default() -> Self {
        Self { records: anything, rewrites: Uri::clone }
    }
}

/// Watches of Nodes.
pub fn node_watches(call: &Call) -> bool {
    call.path == "/api/v1/nodes" && call.is_watch
}

/// Requests that may change something.
pub fn writes(call: &Call) -> bool {
    call.method != Method::GET && call.method != Method::HEAD
}

/// Any request.
pub fn anything(_: &Call) -> bool {
    true
}

/// Serves plain HTTP to programs, or TLS, and uses TLS to the API server. The caller is identified by the token of each call.
pub struct Door {
    pub address: SocketAddr,
    /// `http` or `https`.
    scheme: &'static str,
    orders: watch::Sender<Orders>,
    ignored: Arc<AtomicUsize>,
    heard: Heard,
}

/// The recorded requests, each with its time.
type Heard = Arc<Mutex<Vec<(SystemTime, Call)>>>;

#[derive(Clone, Copy, Default)]
struct Orders {
    /// Watches of which nothing is passed on.
    held: Option<Which>,
    /// Calls that are never answered.
    ignored: Option<Which>,
    /// How many of them are not answered; those after them are.
    most: usize,
    /// How long each call but a watch waits before it is passed on.
    delay: Duration,
    /// Calls that are answered here.
    refused: Option<Refusal>,
    /// Each answer of so many has another `Date`.
    dates: Option<(usize, ProxyDate)>,
}

#[derive(Clone)]
struct Shared {
    client: Client,
    orders: watch::Receiver<Orders>,
    ignored: Arc<AtomicUsize>,
    heard: Heard,
    answers: Arc<AtomicUsize>,
    rules: DoorRules,
}

impl Door {
    /// A door on the loopback interface, for as long as the test runs.
    pub async fn to(server: &ControlPlane) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), server).await
    }

    /// A door on the loopback interface with other rules.
    pub async fn with_rules(server: &ControlPlane, rules: DoorRules) -> Self {
        Self::open_at((Ipv4Addr::LOCALHOST, 0).into(), server, rules).await
    }

    /// The same with TLS and the certificate of the API server. Only for a control plane that the tests started.
    pub async fn secured(server: &ControlPlane, rules: DoorRules) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (door, router) = Self::behind(&listener, "https", server, rules);
        let pki = server.folder().join("pki");
        let [certificate, key] = ["server.crt", "server.key"].map(|name| fs::read_to_string(pki.join(name)).unwrap());
        serve_tls(listener, router, &certificate, &key);
        door
    }

    /// A door at an address of this host.
    pub async fn at(address: SocketAddr, server: &ControlPlane) -> Self {
        Self::open_at(address, server, DoorRules::default()).await
    }

    async fn open_at(address: SocketAddr, server: &ControlPlane, rules: DoorRules) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (door, router) = Self::behind(&listener, "http", server, rules);
        tokio::spawn(async move { axum::serve(listener, router).await });
        door
    }

    fn behind(listener: &TcpListener, scheme: &'static str, server: &ControlPlane, rules: DoorRules) -> (Self, Router) {
        let address = listener.local_addr().unwrap();
        let (orders, receiver) = watch::channel(Orders::default());
        let ignored = Arc::<AtomicUsize>::default();
        // An answer such as 429 is for the caller.
        let mut config = server.anonymous();
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let heard = Heard::default();
        let answers = Arc::default();
        let (ignoring, hearing) = (Arc::clone(&ignored), Arc::clone(&heard));
        let shared = Shared { client, orders: receiver, ignored: ignoring, heard: hearing, answers, rules };
        let router = Router::new().fallback(pass).with_state(shared);
        (Self { address, scheme, orders, ignored, heard }, router)
    }

    /// How programs reach it.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// From now on these watches stay open and deliver nothing, including later ones.
    pub fn hold(&self, which: Which) {
        self.orders.send_replace(Orders { held: Some(which), ..Orders::default() });
    }

    /// Breaks such calls, and never sends a response to the next `most` of them.
    pub fn ignore(&self, which: Which, most: usize) {
        self.ignored.store(0, Ordering::SeqCst);
        self.orders.send_replace(Orders { ignored: Some(which), most, ..Orders::default() });
    }

    /// From now on each call but a watch is passed on so much later.
    pub fn slow(&self, delay: Duration) {
        self.orders.send_replace(Orders { delay, ..Orders::default() });
    }

    /// From now on such calls are refused, as an API server does.
    pub fn refuse(&self, which: Refusal) {
        self.orders.send_replace(Orders { refused: Some(which), ..Orders::default() });
    }

    /// From now on the first of `every` responses has another `Date`, as behind a proxy whose clock is wrong.
    pub fn change_dates(&self, every: usize, date: ProxyDate) {
        self.orders.send_replace(Orders { dates: Some((every, date)), ..Orders::default() });
    }

    /// The requests so far, each with the time of its arrival.
    pub fn heard(&self) -> Vec<(SystemTime, Call)> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, and forgets them.
    pub fn take_heard(&self) -> Vec<(SystemTime, Call)> {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on all is passed on, except for responses held back before: those calls end.
    pub fn open(&self) {
        self.orders.send_replace(Orders::default());
    }

    /// How many calls were not answered since [`Door::ignore`].
    pub fn ignored(&self) -> usize {
        self.ignored.load(Ordering::SeqCst)
    }
}

async fn pass(State(shared): State<Shared>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let call = Call { method, path, query: query.to_owned(), is_watch };
    if (shared.rules.records)(&call) {
        shared.heard.lock().unwrap_or_else(PoisonError::into_inner).push((SystemTime::now(), call.clone()));
    }
    let delay = shared.orders.borrow().delay;
    if !is_watch && !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let refused = shared.orders.borrow().refused;
    if let Some(status) = refused.and_then(|refused| refused(&call)) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
            "reason": status.canonical_reason(), "message": format!("{} {} is refused in this test", call.method, call.path),
        });
        return (status, Json(body)).into_response();
    }
    if shared.ignores(&call) {
        let mut orders = shared.orders.clone();
        let _ = orders.wait_for(|orders| orders.ignored.is_none()).await;
        return StatusCode::GATEWAY_TIMEOUT.into_response();
    }
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(header::HOST);
    parts.uri = (shared.rules.rewrites)(&parts.uri);
    // A caller that was killed sends a part.
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    match shared.client.send(http::Request::from_parts(parts, body.to_vec().into())).await {
        Ok(mut answer) => {
            if let Some(date) = shared.other_date() {
                answer.headers_mut().insert(header::DATE, date.parse().unwrap());
            }
            answer.map(|body| Body::from_stream(passed_on(call, Body::new(body), shared.orders)))
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

impl Shared {
    fn other_date(&self) -> Option<String> {
        let (every, date) = self.orders.borrow().dates?;
        let is_chosen = self.answers.fetch_add(1, Ordering::SeqCst).is_multiple_of(every);
        is_chosen.then(date)
    }

    fn ignores(&self, call: &Call) -> bool {
        let Orders { ignored, most, .. } = *self.orders.borrow();
        ignored.is_some_and(|which| which(call)) && self.ignored.fetch_add(1, Ordering::SeqCst) < most
    }
}

/// Passes on the answer piece by piece; it breaks on request.
fn passed_on(
    call: Call,
    body: Body,
    orders: watch::Receiver<Orders>,
) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let first = orders.borrow().ignored.is_some();
    let state = (body.into_data_stream(), orders, call, first);
    unfold(state, |(mut pieces, mut orders, call, was_ignored)| async move {
        let is_held = |orders: &Orders| orders.held.is_some_and(|which| which(&call));
        let is_cut = |orders: &Orders| !was_ignored && orders.ignored.is_some_and(|which| which(&call));
        loop {
            if is_held(&orders.borrow_and_update()) {
                // Events since then are lost, and with them the watch.
                let _ = orders.wait_for(|orders| !is_held(orders)).await;
                return None;
            }
            tokio::select! {
                changed = orders.changed() => {
                    if changed.is_err() || is_cut(&orders.borrow()) {
                        return None;
                    }
                }
                piece = pieces.next() => {
                    if !is_held(&orders.borrow()) {
                        return piece.map(|piece| (piece, (pieces, orders, call, was_ignored)));
                    }
                }
            }
        }
    })
}
