//! An API server for one executor: it records every call, checks preconditions and selectors, and responds as
//! configured.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::body::Body as Answer;
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::service_fn;

use crate::testing::{merge, merge_strategically};

/// One call, as it came over the wire.
#[derive(Clone, Debug)]
pub struct Call {
    pub verb: String,
    pub path: String,
    pub query: String,
    pub body: Value,
}

/// The answer of a test in place of the server.
pub enum Reply {
    Say(u16, Value),
    /// Executes the request, and loses the answer.
    DoAndLose,
    /// Does nothing and never responds.
    Hang,
}

type Rule = Box<dyn FnMut(&Call) -> Option<Reply> + Send>;

#[derive(Clone, Default)]
pub struct Api(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    calls: Vec<Call>,
    rules: Vec<Rule>,
    version: u64,
    in_flight: usize,
    most_in_flight: usize,
}

impl Call {
    pub fn is(&self, verb: &str, end: &str) -> bool {
        self.verb == verb && self.path.ends_with(end)
    }
}

impl Api {
    pub fn client(&self) -> Client {
        let api = self.clone();
        Client::new(service_fn(move |request| api.clone().serve(request)), "ns")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The first rule that has an answer wins.
    pub fn rule(&self, rule: impl FnMut(&Call) -> Option<Reply> + Send + 'static) {
        self.state().rules.push(Box::new(rule));
    }

    pub fn put(&self, path: &str, object: Value) -> Value {
        self.state().store(path, object)
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    pub fn remove(&self, path: &str) {
        self.state().objects.remove(path);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// `VERB last-part-of-path`, in order.
    pub fn told(&self) -> Vec<String> {
        self.calls().iter().map(|call| format!("{} {}", call.verb, call.path.rsplit('/').next().unwrap())).collect()
    }

    pub fn forget_calls(&self) {
        self.state().calls.clear();
    }

    pub fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Answer>, Infallible> {
        let (parts, body) = request.into_parts();
        if parts.uri.query().is_some_and(|query| query.contains("watch=true")) {
            // Nothing changes without a request.
            return std::future::pending().await;
        }
        let bytes = axum::body::to_bytes(Answer::new(body), usize::MAX).await.unwrap();
        let call = Call {
            verb: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let is_strategic = parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|it| it == "application/strategic-merge-patch+json");
        {
            let mut state = self.state();
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
        }
        tokio::task::yield_now().await;
        let mut rules = {
            let mut state = self.state();
            state.in_flight -= 1;
            state.calls.push(call.clone());
            std::mem::take(&mut state.rules)
        };
        let reply = rules.iter_mut().find_map(|rule| rule(&call));
        self.state().rules.extend(rules);
        if matches!(reply, Some(Reply::Hang)) {
            return std::future::pending().await;
        }
        let mut state = self.state();
        let (code, body) = match reply {
            Some(Reply::Say(code, body)) => (code, body),
            Some(Reply::DoAndLose) => {
                state.act(&call, is_strategic);
                (504, status(504, "Timeout", ""))
            }
            Some(Reply::Hang) | None => state.act(&call, is_strategic),
        };
        let body = Answer::from(body.to_string());
        Ok(Response::builder().status(code).header("content-type", "application/json").body(body).unwrap())
    }
}

/// A refusal about an object of this name.
pub fn status(code: u16, reason: &str, name: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("{reason} {name}"), "details": { "name": name },
    })
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn act(&mut self, call: &Call, is_strategic: bool) -> (u16, Value) {
        let path = call.path.trim_end_matches("/status").to_owned();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        match call.verb.as_str() {
            "GET" if is_collection(&path) => (200, self.list(call)),
            "POST" if path.ends_with("/eviction") => {
                let pod = path.trim_end_matches("/eviction");
                match self.objects.get(pod).cloned() {
                    None => (404, status(404, "NotFound", pod.rsplit('/').next().unwrap())),
                    Some(found) if found["metadata"]["uid"] != call.body["deleteOptions"]["preconditions"]["uid"] => {
                        (409, status(409, "Conflict", &name))
                    }
                    Some(_) => {
                        self.objects.remove(pod);
                        (201, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
                    }
                }
            }
            "POST" => {
                let name = call.body["metadata"]["name"].as_str().unwrap_or("generated").to_owned();
                (201, self.store(&format!("{path}/{name}"), call.body.clone()))
            }
            verb => {
                let Some(mut object) = self.objects.get(&path).cloned() else {
                    return (404, status(404, "NotFound", &name));
                };
                match verb {
                    "GET" => (200, object),
                    "DELETE" => {
                        let wanted = &call.body["preconditions"]["uid"];
                        if !wanted.is_null() && *wanted != object["metadata"]["uid"] {
                            return (409, status(409, "Conflict", &name));
                        }
                        self.objects.remove(&path);
                        (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
                    }
                    _ => {
                        for field in ["resourceVersion", "uid"] {
                            let wanted = &call.body["metadata"][field];
                            if !wanted.is_null() && *wanted != object["metadata"][field] {
                                return (409, status(409, "Conflict", &name));
                            }
                        }
                        if is_strategic {
                            merge_strategically(&mut object, &call.body);
                        } else {
                            merge(&mut object, &call.body);
                        }
                        let is_free = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
                        if object["metadata"].get("deletionTimestamp").is_some() && is_free {
                            self.objects.remove(&path);
                            return (200, object);
                        }
                        (200, self.store(&path, object))
                    }
                }
            }
        }
    }

    fn list(&self, call: &Call) -> Value {
        let plural = call.path.rsplit('/').next().unwrap_or_default();
        let query = call.query.replace("%3D", "=").replace("%2F", "/");
        let value_of = |start: &str| query.split('&').find_map(|part| part.strip_prefix(start)).map(str::to_owned);
        let (node, label) = (value_of("fieldSelector=spec.nodeName="), value_of("labelSelector="));
        let name = value_of("fieldSelector=metadata.name=");
        let scope = call.path.trim_end_matches(plural);
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(scope) && path.contains(&format!("/{plural}/")))
            .map(|(_, object)| object)
            .filter(|object| name.as_ref().is_none_or(|name| object["metadata"]["name"] == json!(name)))
            .filter(|object| node.as_ref().is_none_or(|node| object["spec"]["nodeName"] == json!(node)))
            .filter(|object| {
                label
                    .as_ref()
                    .and_then(|label| label.split_once('='))
                    .is_none_or(|(key, value)| object["metadata"]["labels"][key] == json!(value))
            })
            .collect();
        json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "1" }, "items": items })
    }
}

fn is_collection(path: &str) -> bool {
    const PLURALS: [&str; 8] = [
        "pods",
        "nodes",
        "poddisruptionbudgets",
        "secrets",
        "machines",
        "persistentvolumeclaims",
        "persistentvolumes",
        "volumeattachments",
    ];
    PLURALS.contains(&path.rsplit('/').next().unwrap_or_default())
}
