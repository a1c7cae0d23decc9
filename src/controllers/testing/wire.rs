//! The API server for tests of one executor: records requests as text, and gives the configured responses.

use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    api_server::{
        ApiServer, OUTSIDE,
        call::{ApiCall, ApiVerb},
        kinds::{self, Kind},
        network::{self, DeliveryOutcome, NetworkModel},
    },
    clock::VirtualClock,
};
use mcm_api::patch;

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    /// Carried out, and the answer is lost.
    Lost,
    /// The request is not executed, and its caller cannot find out.
    Unavailable,
    Refused,
    /// Never answered.
    Silent,
}

type Judge = Box<dyn FnMut(&str) -> Fate + Send>;

#[derive(Clone)]
pub(crate) struct Wire {
    server: ApiServer,
    judge: Arc<Mutex<Judge>>,
}

struct Judged(Arc<Mutex<Judge>>);

impl NetworkModel for Judged {
    fn fate(&self, call: &ApiCall) -> network::CallDelivery {
        let outcome = match (self.0.lock())(&line(call)) {
            Fate::Answered => DeliveryOutcome::Answered,
            Fate::Lost => DeliveryOutcome::LostAfter,
            Fate::Unavailable => DeliveryOutcome::Refused(503),
            Fate::Refused => DeliveryOutcome::Refused(403),
            Fate::Silent => DeliveryOutcome::Silent,
        };
        network::CallDelivery { there: std::time::Duration::ZERO, back: std::time::Duration::ZERO, outcome }
    }
}

/// `POST machines`, `PATCH machinesets/a/status`.
fn line(call: &ApiCall) -> String {
    let verb = match call.verb {
        ApiVerb::Get | ApiVerb::List | ApiVerb::Watch => "GET",
        ApiVerb::Create => "POST",
        ApiVerb::Update => "PUT",
        ApiVerb::MergePatch | ApiVerb::StrategicPatch | ApiVerb::JsonPatch | ApiVerb::Apply => "PATCH",
        ApiVerb::Delete => "DELETE",
    };
    let parts = [call.kind.plural, call.name.as_str(), call.subresource.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{verb} {}", parts.join("/"))
}

impl Wire {
    pub(crate) fn new() -> Self {
        let judge: Judge = Box::new(|_| Fate::Answered);
        let judge = Arc::new(Mutex::new(judge));
        let server = ApiServer::new(&VirtualClock::new(), Arc::new(Judged(Arc::clone(&judge))));
        Self { server, judge }
    }

    pub(crate) fn client(&self) -> Client {
        self.server.client("test")
    }

    /// Called before each request, which is written as `POST machines` or `PATCH machinesets/a/status`.
    pub(crate) fn judge(&self, judge: impl FnMut(&str) -> Fate + Send + 'static) {
        *self.judge.lock() = Box::new(judge);
    }

    /// Every request so far, without events.
    pub(crate) fn requests(&self) -> Vec<String> {
        let lines = self.server.calls().into_iter().map(|call| line(&call));
        lines.filter(|line| !line.contains(" events")).collect()
    }

    /// The requests of clients, without those of the test.
    pub(crate) fn own_requests(&self) -> Vec<String> {
        let calls = self.server.calls().into_iter().filter(|call| *call.caller != *OUTSIDE);
        calls.map(|call| line(&call)).filter(|line| !line.contains(" events")).collect()
    }

    /// How many requests begin so.
    pub(crate) fn count(&self, head: &str) -> usize {
        self.requests().iter().filter(|request| request.starts_with(head)).count()
    }

    /// An object by a path such as `machinesets/a`.
    pub(crate) fn get<K: DeserializeOwned>(&self, path: &str) -> Option<K> {
        let (kind, namespace, name) = find(path);
        let object = self.server.get(kind, namespace, name)?;
        Some(serde_json::from_value(Value::clone(&object.value)).unwrap())
    }

    /// How many objects of a kind there are.
    pub(crate) fn len(&self, plural: &str) -> usize {
        self.server.all(find(&format!("{plural}/")).0).len()
    }

    /// All objects of a kind.
    pub(crate) fn all<K: DeserializeOwned>(&self, plural: &str) -> Vec<K> {
        let objects = self.server.all(find(&format!("{plural}/")).0);
        objects.iter().map(|object| serde_json::from_value(Value::clone(&object.value)).unwrap()).collect()
    }

    /// Creates or changes an object as another client.
    pub(crate) fn put<K: DeserializeOwned>(&self, path: &str, change: &Value) -> K {
        let (kind, namespace, name) = find(path);
        if self.server.get(kind, namespace, name).is_some() {
            self.server.edit(kind, namespace, name, |object| patch::apply(object, change)).unwrap();
        } else {
            let mut object = json!({});
            patch::apply(&mut object, change);
            self.server.create(kind, object).unwrap();
        }
        self.get(path).unwrap()
    }

    /// Another client creates an object in the namespace that it names.
    pub(crate) fn create(&self, plural: &str, object: Value) {
        self.server.create(find(&format!("{plural}/")).0, object).unwrap();
    }

    /// Another client deletes an object of another namespace.
    pub(crate) fn remove_from(&self, namespace: &str, path: &str) {
        let (kind, _, name) = find(path);
        self.server.delete(kind, namespace, name).unwrap();
    }

    /// Another client deletes an object, regardless of its finalizers.
    pub(crate) fn remove(&self, path: &str) {
        let (kind, namespace, name) = find(path);
        // An edit of an object without finalizers would be one more event.
        if self.server.get(kind, namespace, name).is_some_and(|object| object.finalizers().next().is_some()) {
            self.server.edit(kind, namespace, name, |object| object["metadata"]["finalizers"] = json!([])).unwrap();
        }
        // A terminating object was deleted with its last finalizer.
        if self.server.get(kind, namespace, name).is_some() {
            self.server.delete(kind, namespace, name).unwrap();
        }
    }
}

fn find(path: &str) -> (&'static Kind, &'static str, &str) {
    let (plural, name) = path.split_once('/').unwrap();
    let kind = kinds::ALL.into_iter().find(|kind| kind.plural == plural).unwrap();
    (kind, if kind.is_namespaced { "shoot" } else { "" }, name)
}
