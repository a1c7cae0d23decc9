//! The API server: it receives requests, and carries them out on its objects.

use std::{collections::BTreeMap, io, sync::Arc};

use axum::body::{Body, Bytes};
use http::{Request, Response, request::Parts};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::sleep};
use tower::BoxError;

#[cfg(any(test, feature = "testing"))]
use super::store::AdmissionHook;
use super::{
    answer,
    call::{ApiCall, ApiVerb},
    kinds::{self, Kind},
    network::{DeliveryOutcome, NetworkModel},
    object::ServerObject,
    refusal::RequestRefusal,
    signal::ChangeSignal,
    state::{ApiServerState, WriteRecord},
    store::{ObjectStore, RequestEffect},
    watch,
};
use mcm_runtime::clock::TimeSource;

/// Handle of an API server; clones share it.
#[derive(Clone)]
pub struct ApiServer {
    state: Arc<Mutex<ApiServerState>>,
    changed: Arc<BTreeMap<&'static str, ChangeSignal>>,
    clock: Arc<dyn TimeSource>,
    resumed: ChangeSignal,
}

impl ApiServer {
    pub fn new(clock: &(impl TimeSource + Clone), network: Arc<dyn NetworkModel>) -> Self {
        let state = ApiServerState {
            store: ObjectStore::default(),
            network,
            observer: None,
            #[cfg(any(test, feature = "testing"))]
            calls: Vec::new(),
            largest_page: usize::MAX,
            is_paused: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(kinds::ALL.map(|kind| (kind.plural, ChangeSignal::default())).into()),
            clock: Arc::new(clock.clone()),
            resumed: ChangeSignal::default(),
        }
    }

    /// A client with a separate name. Must be called in a runtime.
    pub fn client(&self, caller: &str) -> Client {
        let (server, caller) = (self.clone(), Arc::<str>::from(caller));
        let service = tower::service_fn(move |request| server.clone().receive(Arc::clone(&caller), request));
        Client::new(service, "default")
    }

    /// Calls `observer` after each write that arrived, before its answer.
    pub fn observe(&self, observer: impl Fn(&WriteRecord<'_>) + Send + Sync + 'static) {
        self.state().observer = Some(Arc::new(observer));
    }

    /// Changes each object that a client writes, before it is stored, or ends that.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_admission(&self, admission: Option<AdmissionHook>) {
        self.state().store.admission = admission;
    }

    /// Lists have pages of at most this size, regardless of the requested limit.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_largest_page(&self, size: usize) {
        self.state().largest_page = size;
    }

    /// Paused, it accepts requests and does not answer them.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_paused(&self, paused: bool) {
        self.state().is_paused = paused;
        self.resumed.send();
    }

    /// All watchers of this kind have to list it again.
    #[cfg(any(test, feature = "testing"))]
    pub fn forget_history(&self, kind: &Kind) {
        self.state().store.forget_history(kind);
        self.changed[kind.plural].send();
    }

    /// Every request that arrived.
    #[cfg(any(test, feature = "testing"))]
    pub fn calls(&self) -> Vec<Arc<ApiCall>> {
        self.state().calls.clone()
    }

    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<ServerObject>> {
        self.state().store.get(kind, namespace, name)
    }

    /// All objects of a kind, by namespace and name.
    pub fn all(&self, kind: &Kind) -> Vec<Arc<ServerObject>> {
        self.state().store.all(kind).cloned().collect()
    }

    /// Stores an object of another API server with its UID, times, owners and status.
    pub fn seed(&self, kind: &'static Kind, object: Value) {
        self.state().store.seed(kind, object);
        self.changed[kind.plural].send();
    }

    /// Creates an object from outside.
    pub fn create(&self, kind: &'static Kind, object: Value) -> Result<Arc<ServerObject>, RequestRefusal> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let mut call = ApiCall::from_outside(ApiVerb::Create, kind, &namespace, "", self.clock.now());
        let status = object.get("status").cloned();
        call.body = Arc::new(object);
        let created = self.write(&call, |store, now| store.write(&call, now))?;
        let missing = || RequestRefusal::new(404, "NotFound", "the object is gone");
        let created = created.after.ok_or_else(missing)?;
        match status.filter(|_| kind.is_custom && kind.has_status) {
            Some(status) => self.edit(kind, &namespace, created.name(), |object| object["status"] = status),
            None => Ok(created),
        }
    }

    /// Changes an object as another client would.
    pub fn edit(
        &self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<ServerObject>, RequestRefusal> {
        let call = ApiCall::from_outside(ApiVerb::Update, kind, namespace, name, self.clock.now());
        let effect = self.write(&call, |store, _| store.edit(&call, change))?;
        effect.answer.ok_or_else(|| RequestRefusal::new(404, "NotFound", "the object is gone"))
    }

    /// Deletes an object as another client would.
    pub fn delete(&self, kind: &'static Kind, namespace: &str, name: &str) -> Result<(), RequestRefusal> {
        let call = ApiCall::from_outside(ApiVerb::Delete, kind, namespace, name, self.clock.now());
        self.write(&call, |store, now| store.write(&call, now)).map(drop)
    }

    /// Deletes the object with this UID as another client would, without a grace period.
    pub fn delete_now(&self, kind: &'static Kind, object: &ServerObject) -> Result<(), RequestRefusal> {
        let namespace = object.value["metadata"]["namespace"].as_str().unwrap_or_default();
        let mut call = ApiCall::from_outside(ApiVerb::Delete, kind, namespace, object.name(), self.clock.now());
        call.body = Arc::new(json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": object.uid() } }));
        self.write(&call, |store, now| store.write(&call, now)).map(drop)
    }

    fn state(&self) -> MutexGuard<'_, ApiServerState> {
        self.state.lock()
    }

    fn network(&self) -> Arc<dyn NetworkModel> {
        Arc::clone(&self.state().network)
    }

    fn changes_of(&self, kind: &Kind) -> ChangeSignal {
        self.changed[kind.plural].clone()
    }

    async fn wait_until_resumed(&self) {
        loop {
            let seen = self.resumed.count();
            if !self.state().is_paused {
                return;
            }
            self.resumed.sent_after(seen).await;
        }
    }

    async fn receive(self, caller: Arc<str>, request: Request<kube::client::Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(Body::new(body), usize::MAX).await?;
        self.handle(&caller, &parts, &body).await
    }

    /// Handles a request of a caller. Requests beside objects are answered with 404.
    pub(super) async fn handle(
        self,
        caller: &Arc<str>,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Response<Body>, BoxError> {
        let call = match ApiCall::parse(caller, self.clock.now(), parts, body) {
            Ok(call) => call,
            Err(refusal) => return Ok(answer::refusal(None, &refusal)),
        };
        self.carry_out(call).await
    }

    /// Carries a request out. It arrives even if its sender is dropped.
    pub(super) async fn carry_out(self, call: ApiCall) -> Result<Response<Body>, BoxError> {
        let (send, answer) = oneshot::channel();
        tokio::spawn(async move { drop(send.send(self.arrive(call).await)) });
        answer.await?
    }

    /// The time of the server.
    pub(super) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    async fn arrive(self, call: ApiCall) -> Result<Response<Body>, BoxError> {
        let fate = self.network().fate(&call);
        sleep(fate.there).await;
        self.wait_until_resumed().await;
        #[cfg(any(test, feature = "testing"))]
        self.state().calls.push(Arc::new(call.clone()));
        let lost = || Err(io::Error::other("connection reset by peer").into());
        let answer = match fate.outcome {
            DeliveryOutcome::LostBefore => lost(),
            DeliveryOutcome::Refused(code) => Ok(refused(&call, code)),
            DeliveryOutcome::Silent if call.verb == ApiVerb::Watch => std::future::pending().await,
            DeliveryOutcome::Answered => Ok(self.execute(&call)),
            DeliveryOutcome::Overtaken => {
                self.touch(&call);
                Ok(self.execute(&call))
            }
            DeliveryOutcome::LostAfter => {
                drop(self.execute(&call));
                lost()
            }
            DeliveryOutcome::Silent => {
                drop(self.execute(&call));
                std::future::pending().await
            }
        };
        sleep(fate.back).await;
        answer
    }

    /// Writes it as another client, which changes only its version.
    fn touch(&self, call: &ApiCall) {
        let touched = self.edit(call.kind, &call.namespace, &call.name, |object| {
            let touches =
                object["metadata"]["annotations"]["touched"].as_str().and_then(|text| text.parse::<u64>().ok());
            object["metadata"]["annotations"]["touched"] = (touches.unwrap_or_default() + 1).to_string().into();
        });
        // There may be nothing to write.
        drop(touched);
    }

    fn execute(&self, call: &ApiCall) -> Response<Body> {
        self.attempt(call).unwrap_or_else(|refusal| answer::refusal(Some(call), &refusal))
    }

    fn attempt(&self, call: &ApiCall) -> Result<Response<Body>, RequestRefusal> {
        let now = self.clock.now();
        Ok(match call.verb {
            ApiVerb::Get => match self.get(call.kind, &call.namespace, &call.name) {
                Some(object) => answer::object(call, 200, &object, now),
                None => {
                    let message = format!("{} \"{}\" not found", call.kind.plural, call.name);
                    return Err(RequestRefusal::new(404, "NotFound", message));
                }
            },
            ApiVerb::List => {
                let mut state = self.state();
                let largest_page = state.largest_page;
                answer::list(call, &state.store.list(call, largest_page)?, now)
            }
            ApiVerb::Watch => {
                let (state, changes) = (Arc::clone(&self.state), self.changes_of(call.kind));
                let stream = watch::stream(state, changes, Arc::clone(&self.clock), call.clone())?;
                answer::respond(200, Body::from_stream(stream))
            }
            _ if call.is_dry_run() => answer::effect(call, &self.state().store.dry_run(call, now)?, now),
            _ => answer::effect(call, &self.write(call, |store, now| store.write(call, now))?, now),
        })
    }

    fn write(
        &self,
        call: &ApiCall,
        effect: impl FnOnce(&mut ObjectStore, jiff::Timestamp) -> Result<RequestEffect, RequestRefusal>,
    ) -> Result<RequestEffect, RequestRefusal> {
        let now = self.clock.now();
        let (result, observer) = {
            let mut state = self.state();
            (effect(&mut state.store, now), state.observer.clone())
        };
        if let Some(observer) = observer {
            let effect = result.as_ref().ok();
            observer(&WriteRecord {
                call,
                before: effect.and_then(|effect| effect.before.as_deref()),
                after: effect.and_then(|effect| effect.after.as_deref()),
                refusal: result.as_ref().err(),
            });
        }
        self.changed[call.kind.plural].send();
        result
    }
}

/// A refusal that does not depend on the stored objects.
fn refused(call: &ApiCall, code: u16) -> Response<Body> {
    let (reason, message) = match code {
        403 => ("Forbidden", "you must not do that"),
        404 => ("NotFound", "the server could not find the requested resource"),
        409 => ("Conflict", "the object has been modified"),
        429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "the server was unable to return a response in the time allotted"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    // The error for a kind that is not served names no object.
    answer::refusal(Some(call).filter(|_| code != 404), &RequestRefusal::new(code, reason, message))
}
