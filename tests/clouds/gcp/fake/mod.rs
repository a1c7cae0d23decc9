//! Compute Engine and Google's token endpoints in this process, behind HTTP. It remembers requests, lets operations take a
//! while, and fails as told. With Google's discovery document it refuses every request that does not fit it.
//!
//! The responses to valid requests are an assumption: states, errors and their order follow Google's documentation.

#![allow(dead_code, unused_imports, reason = "unit tests and tests of the program use different parts")]

mod answers;
mod document;
mod mask;
mod serve;
mod things;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::{Value, json};

pub use self::{
    document::Document,
    serve::serve,
    things::NODES,
    tokens::{EMAIL, PRIVATE_KEY, SUBJECT_TOKEN},
};

pub const PROJECT: &str = "my-project";

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out, and the answer breaks off.
    LostAnswer,
    /// It is carried out, and no answer comes.
    Unanswered,
    /// No answer.
    Timeout,
    /// An answer without end.
    Endless,
    /// An answer that is no JSON.
    Malformed,
    /// An answer in JSON that is not Google's.
    Foreign,
    /// Error of Google, with its HTTP status.
    Error(&'static str, u16),
    /// This answer in JSON, with its HTTP status.
    Reply(&'static str, u16),
    /// Google gets too many requests, and demands a pause of half a second.
    Later,
    /// The same request is to be sent to the same place.
    Moved,
    /// Error of something before Google.
    Status(u16),
    /// It is carried out after this time, whether the client still waits or not.
    Late(Duration),
    /// The answer breaks off at once, and it is carried out after this time.
    LostAndLate(Duration),
    /// It is carried out at once, and its answer comes after this time.
    Slow(Duration),
}

/// A request as it came, without what all requests have.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Such as `instances.insert`.
    pub call: &'static str,
    pub project: String,
    /// Path below the project.
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub body: Value,
    /// The token of the caller.
    pub token: String,
}

/// An instance as Google shows it.
#[derive(Clone, Debug)]
pub struct Vm {
    pub zone: String,
    pub resource: Value,
    /// So many look-ups do not show it.
    pub hidden: usize,
}

/// An instance became a member of a group, or left it, or its deletion began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Added(String),
    Removed(String),
    Deleted(String),
}

#[derive(Clone, Debug)]
enum Goal {
    Run,
    /// The instance is deleted, and the operation fails with these codes.
    Fail(Vec<&'static str>),
    Delete,
    /// Another client deletes it, and the operation finds nothing.
    FindNothing,
    /// The instance is, or is not, a member of the group that is the target.
    Member(String, bool),
}

#[derive(Clone, Debug)]
struct Running {
    zone: String,
    target: String,
    goal: Goal,
    /// Requests until it is done.
    left: usize,
    /// Instead, when it is done.
    until: Option<Instant>,
}

#[derive(Default)]
pub struct Gce {
    /// By zone and name.
    pub vms: BTreeMap<(String, String), Vm>,
    /// Members of instance groups, by zone and name.
    pub groups: BTreeMap<(String, String), BTreeSet<String>>,
    /// Changes of groups and deletions of instances that were carried out, in their order.
    pub changes: Vec<Changed>,
    /// Calls that wait in vain.
    pub unanswered: usize,
    /// Readable resources: by project and path below it, or by the email of a service account.
    pub things: BTreeMap<String, Value>,
    operations: BTreeMap<String, Running>,
    /// Operation by ID of the request.
    request_ids: BTreeMap<String, String>,
    pub sent: Vec<Sent>,
    /// Requests that do not fit the document.
    pub violations: Vec<String>,
    pub document: Option<Arc<Document>>,
    /// Each call of the name fails so, this many times.
    pub faults: Vec<(&'static str, Fault, usize)>,
    /// Four of ten calls fail, in these ways.
    pub storm: Vec<Fault>,
    /// Every n-th insert fails so.
    pub fails_every: Option<(usize, Fault)>,
    /// Calls that are carried out later.
    pub late: usize,
    pub inserts: usize,
    /// VMs that were ever there.
    pub added: u64,
    /// Codes of the next operations of insertions that fail.
    pub failing: VecDeque<Vec<&'static str>>,
    /// Requests until an operation is done, in addition to its first one.
    pub steps: usize,
    /// How long operations take, instead of a number of requests.
    pub operation_time: Option<Duration>,
    /// The next deletions report that the instance does not exist: whether that is so.
    pub overtaken: VecDeque<bool>,
    /// The most operations that ever ran at a time.
    pub most_running: usize,
    pub page: Option<usize>,
    pub repeats_page: bool,
    /// Each page of a list names another one.
    pub has_endless_pages: bool,
    pub ignores_filters: bool,
    /// The code of a warning of each list.
    pub warning: Option<&'static str>,
    /// The next insertions succeed, and their instances are deleted at once.
    pub vanishing: usize,
    tokens: BTreeSet<String>,
    issued: usize,
    /// How long tokens are valid, in seconds.
    pub token_lifetime: Option<u64>,
    url: String,
    /// The host takes no masks of fields.
    pub refuses_masks: bool,
}

pub type Shared = Arc<Mutex<Gce>>;

impl Gce {
    /// A cloud whose operations take a while. With a document it refuses what does not fit it.
    pub fn new(document: Option<Arc<Document>>) -> Self {
        Self { document, steps: 2, ..Self::default() }
    }

    pub fn names(&self) -> Vec<String> {
        self.vms.keys().map(|(_, name)| name.clone()).collect()
    }

    /// Bodies of the requests of a call.
    pub fn bodies(&self, call: &str) -> Vec<Value> {
        self.of_call(call).map(|sent| sent.body.clone()).collect()
    }

    pub fn queries(&self, call: &str) -> Vec<BTreeMap<String, String>> {
        self.of_call(call).map(|sent| sent.query.clone()).collect()
    }

    pub fn of_call<'a>(&'a self, call: &str) -> impl Iterator<Item = &'a Sent> {
        self.sent.iter().filter(move |sent| sent.call == call)
    }

    /// Puts an instance into the cloud without an insertion.
    pub fn put(&mut self, zone: &str, name: &str, tags: &[&str], labels: &Value, status: &str) {
        let body = json!({"name": name, "tags": {"items": tags}, "labels": labels, "networkInterfaces": [{}]});
        self.add(zone, name, &body, status);
    }

    pub fn set_status(&mut self, name: &str, status: &str) {
        for vm in self.vms.values_mut().filter(|vm| vm.resource["name"] == name) {
            vm.resource["status"] = status.into();
        }
    }

    /// A token of the service account of a VM, from its metadata service.
    pub fn issue_token(&mut self) -> String {
        tokens::new_token(self)
    }

    /// Takes all tokens back.
    pub fn revoke_tokens(&mut self) {
        self.tokens.clear();
    }

    fn add(&mut self, zone: &str, name: &str, body: &Value, status: &str) {
        self.added += 1;
        let number = self.vms.len() + 1;
        let mut resource = body.clone();
        resource["kind"] = "compute#instance".into();
        resource["id"] = (1_000_000 + number).to_string().into();
        resource["status"] = status.into();
        resource["zone"] = format!("{}/projects/{PROJECT}/zones/{zone}", self.url).into();
        for interface in resource["networkInterfaces"].as_array_mut().into_iter().flatten() {
            interface["networkIP"] = format!("10.0.{}.{}", number / 250, number % 250).into();
            let configs = interface.get_mut("accessConfigs").and_then(Value::as_array_mut);
            for config in configs.into_iter().flatten() {
                config["natIP"] = format!("198.51.100.{}", number % 250).into();
            }
        }
        let vm = Vm { zone: zone.to_owned(), resource, hidden: 0 };
        self.vms.insert((zone.to_owned(), name.to_owned()), vm);
    }

    /// Time advances with each request.
    fn advance(&mut self) {
        let mut done = Vec::new();
        for running in self.operations.values_mut().filter(|running| running.left > 0) {
            running.left = match running.until {
                Some(until) => usize::from(until > Instant::now()),
                None => running.left - 1,
            };
            if running.left == 0 {
                done.push(running.clone());
            }
        }
        for running in done {
            self.finish(&running);
        }
    }

    fn begin(&mut self, zone: &str, target: &str, goal: Goal) -> String {
        let name = format!("operation-{}", self.operations.len() + 1);
        let until = self.operation_time.map(|time| Instant::now() + time);
        let running = Running { zone: zone.to_owned(), target: target.to_owned(), goal, left: self.steps, until };
        self.operations.insert(name.clone(), running.clone());
        let running_now = self.operations.values().filter(|other| other.left > 0).count();
        self.most_running = self.most_running.max(running_now);
        if self.steps == 0 {
            self.finish(&running);
        }
        name
    }

    fn finish(&mut self, running: &Running) {
        let key = (running.zone.clone(), running.target.clone());
        match running.goal {
            Goal::Run => {
                if let Some(vm) = self.vms.get_mut(&key) {
                    vm.resource["status"] = "RUNNING".into();
                }
            }
            Goal::Fail(_) | Goal::Delete => drop(self.vms.remove(&key)),
            Goal::FindNothing => {}
            Goal::Member(ref instance, is_member) => {
                if let Some(members) = self.groups.get_mut(&key) {
                    let _ = if is_member { members.insert(instance.clone()) } else { members.remove(instance) };
                    let instance = instance.clone();
                    self.changes.push(if is_member { Changed::Added(instance) } else { Changed::Removed(instance) });
                }
            }
        }
    }
}
