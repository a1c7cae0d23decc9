//! A fake of the API server of a cluster with KubeVirt: it keeps VirtualMachines and Secrets, and refuses every request that does not
//! fit the definitions of KubeVirt's OpenAPI document.
//!
//! Names, UIDs, versions, preconditions, pages, merge patches, owners and finalizers follow Kubernetes; states of VMs follow
//! virt-controller 1.5.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use reqwest::Url;
use serde_json::{Value, json};

use super::kit::{
    server::{FakeCloud, Reply, Request},
    swagger::Definitions,
};

pub const NAMESPACE: &str = "vms";
pub const TOKEN: &str = "bearer-top-secret";
pub const REGION: &str = "region-1";
pub const ZONE: &str = "zone-1";

/// The state that a VM gets after its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// It runs at the next look.
    #[default]
    Now,
    /// It is provisioned for so many reads.
    AfterLooks(usize),
    /// It stays in a state, with the kind and the message of a condition.
    Never(&'static str, &'static str, &'static str),
}

/// An API server with its objects.
pub struct Kubernetes {
    definitions: Definitions,
    pub vms: BTreeMap<String, Value>,
    pub secrets: BTreeMap<String, Value>,
    /// VMs that were ever created.
    pub created: u64,
    /// Requests that do not fit the document.
    pub violations: Vec<String>,
    pub start: Start,
    /// So many VMs find room on a Node.
    pub room: usize,
    /// The namespace may have so many VMs.
    pub quota: usize,
    /// A deleted VM is shown by so many reads.
    pub lingers: usize,
    /// Objects of one page of a list.
    pub page: usize,
    /// The token of the next page has expired.
    pub has_expired: bool,
    /// Kinds of objects that are not there.
    pub absent: Vec<&'static str>,
    /// Verbs and resources that the credentials do not allow.
    pub denied: Vec<&'static str>,
    /// Reads of a VM since its creation or deletion, by its name.
    looks: BTreeMap<String, usize>,
    version: u64,
}

impl Kubernetes {
    pub fn new() -> Self {
        Self {
            definitions: Definitions::of(include_str!("kubevirt.json")),
            vms: BTreeMap::new(),
            secrets: BTreeMap::new(),
            created: 0,
            violations: Vec::new(),
            start: Start::Now,
            room: usize::MAX,
            quota: usize::MAX,
            lingers: 0,
            page: usize::MAX,
            has_expired: false,
            absent: Vec::new(),
            denied: Vec::new(),
            looks: BTreeMap::new(),
            version: 0,
        }
    }

    /// Creates a VM behind the back of mcm.
    pub fn put(&mut self, name: &str, labels: &Value) {
        let template = json!({"spec": {"domain": {"devices": {}}}});
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name, "labels": labels},
            "spec": {"running": true, "template": template},
        });
        let vm = self.stored(vm);
        self.vms.insert(name.to_owned(), vm);
    }

    /// The same in another namespace, to which no path of a request leads.
    pub fn put_in_other_namespace(&mut self, name: &str, labels: &Value) {
        let own = self.vms.remove(name);
        self.put(name, labels);
        let mut other = self.vms.remove(name).unwrap();
        other["metadata"]["namespace"] = "others".into();
        self.vms.insert(format!("others/{name}"), other);
        self.vms.extend(own.map(|own| (name.to_owned(), own)));
    }

    /// Removes a VM behind the back of mcm, with the Secrets that it owns.
    pub fn take(&mut self, name: &str) {
        let Some(vm) = self.vms.remove(name) else { return };
        let uid = vm["metadata"]["uid"].clone();
        let is_owned = |secret: &Value| {
            let owners = secret["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
        };
        self.secrets.retain(|_, secret| !is_owned(secret));
    }

    /// VMs that are there, and not only shown.
    pub fn alive(&self) -> Vec<&Value> {
        self.vms.values().filter(|vm| vm["metadata"]["deletionTimestamp"].is_null()).collect()
    }

    /// An error of the API server about an object.
    pub fn error(status: u16, reason: &str, message: &str, kind: &str, name: &str) -> Reply {
        let details = json!({"name": name, "kind": kind});
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
            "details": details, "code": status,
        });
        Reply { status, body: body.to_string() }
    }

    fn stored(&mut self, mut object: Value) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["uid"] = format!("00000000-0000-4000-8000-{:012}", self.version).into();
        metadata["creationTimestamp"] = now();
        metadata["namespace"] = NAMESPACE.into();
        metadata["resourceVersion"] = self.version.to_string().into();
        object
    }

    fn create_vm(&mut self, mut vm: Value, is_dry: bool) -> Reply {
        if let Err(problem) = checked_vm(&vm) {
            self.violations.push(problem.clone());
            return Self::error(422, "Invalid", &problem, "VirtualMachine", "");
        }
        // Only virt-controller sets a status.
        vm.as_object_mut().unwrap().remove("status");
        let name = vm["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if is_dry {
            vm["metadata"]["uid"] = "dry".into();
            return Reply { status: 201, body: vm.to_string() };
        }
        if self.vms.contains_key(&name) {
            return already_exists("virtualmachines", &name);
        }
        if self.vms.len() >= self.quota {
            let message =
                format!("virtualmachines.kubevirt.io {name:?} is forbidden: exceeded quota: vms, requested: count=1");
            return Self::error(403, "Forbidden", &message, "virtualmachines", &name);
        }
        if let Some(secret) = secret_of(&vm)
            && !self.secrets.contains_key(secret)
        {
            self.violations.push(format!("VM {name} is created before its Secret {secret}"));
        }
        let vm = self.stored(vm);
        self.created += 1;
        self.looks.remove(&name);
        self.vms.insert(name.clone(), vm.clone());
        Reply { status: 201, body: vm.to_string() }
    }

    fn create_secret(&mut self, secret: Value) -> Reply {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.secrets.contains_key(&name) {
            return already_exists("secrets", &name);
        }
        let secret = self.stored(secret);
        self.secrets.insert(name, secret.clone());
        Reply { status: 201, body: secret.to_string() }
    }

    fn get_vm(&mut self, name: &str) -> Reply {
        match self.shown(name) {
            Some(vm) => Reply { status: 200, body: vm.to_string() },
            None => not_found("virtualmachines", name),
        }
    }

    /// A VM with its status, which changes with each look.
    fn shown(&mut self, name: &str) -> Option<Value> {
        let mut vm = self.vms.get(name)?.clone();
        let looks = self.looks.entry(name.to_owned()).or_default();
        *looks += 1;
        let looks = *looks;
        if !vm["metadata"]["deletionTimestamp"].is_null() {
            if looks > self.lingers {
                self.take(name);
                return None;
            }
            vm["status"] = json!({"printableStatus": "Terminating"});
            return Some(vm);
        }
        let number = self.vms.keys().position(|other| other == name).unwrap_or_default();
        vm["status"] = match &self.start {
            Start::Never(state, kind, message) => failed(state, kind, message),
            _ if number >= self.room => {
                failed("ErrorUnschedulable", "PodScheduled", "0/3 nodes are available: 3 Insufficient memory.")
            }
            Start::AfterLooks(least) if looks <= *least => json!({"printableStatus": "Provisioning", "created": false}),
            Start::Now | Start::AfterLooks(_) => json!({"printableStatus": "Running", "created": true, "ready": true}),
        };
        self.definitions.check("v1.VirtualMachine", &vm).unwrap();
        Some(vm)
    }

    fn list_vms(&mut self, request: &Request) -> Reply {
        let query = query_of(request);
        let text = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        if !text("continue").is_empty() && self.has_expired {
            return Self::error(410, "Expired", "The provided continue parameter is too old", "", "");
        }
        let selector: Vec<(&str, &str)> =
            text("labelSelector").split(',').filter_map(|part| part.split_once('=')).collect();
        let is_selected = |vm: &Value| {
            vm["metadata"]["namespace"] == NAMESPACE
                && selector.iter().all(|(key, value)| vm["metadata"]["labels"][*key] == **value)
        };
        let after = text("continue");
        let names =
            self.vms.iter().filter(|(name, vm)| name.as_str() > after && is_selected(vm)).map(|(name, _)| name.clone());
        let names: Vec<String> = names.collect();
        let most = text("limit").parse().unwrap_or(usize::MAX).min(self.page);
        let page: Vec<String> = names.iter().take(most).cloned().collect();
        let next = if names.len() > most { page.last().cloned().unwrap_or_default() } else { String::new() };
        let items: Vec<Value> = page.iter().filter_map(|name| self.shown(name)).collect();
        let list = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineList", "items": items,
            "metadata": {"resourceVersion": self.version.to_string(), "continue": next},
        });
        Reply { status: 200, body: list.to_string() }
    }

    fn delete_vm(&mut self, name: &str, options: &Value) -> Reply {
        let Some(vm) = self.vms.get_mut(name) else { return not_found("virtualmachines", name) };
        if let Some(conflict) = conflict(vm, &options["preconditions"]["uid"], "virtualmachines", name) {
            return conflict;
        }
        if vm["metadata"]["deletionTimestamp"].is_null() {
            vm["metadata"]["deletionTimestamp"] = now();
            vm["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            self.looks.remove(name);
        }
        let shown = vm.clone();
        if self.lingers == 0 {
            self.take(name);
        }
        Reply { status: 200, body: shown.to_string() }
    }

    fn delete_secret(&mut self, name: &str, options: &Value) -> Reply {
        let Some(secret) = self.secrets.get(name) else { return not_found("secrets", name) };
        if let Some(conflict) = conflict(secret, &options["preconditions"]["uid"], "secrets", name) {
            return conflict;
        }
        self.secrets.remove(name);
        let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        Reply { status: 200, body: success.to_string() }
    }

    fn patch(&mut self, is_vm: bool, name: &str, patch: &Value) -> Reply {
        let (objects, kind, definition) = if is_vm {
            (&mut self.vms, "virtualmachines", "v1.VirtualMachine")
        } else {
            (&mut self.secrets, "secrets", "io.k8s.api.core.v1.Secret")
        };
        let Some(object) = objects.get_mut(name) else { return not_found(kind, name) };
        if let Some(conflict) = conflict(object, &patch["metadata"]["uid"], kind, name) {
            return conflict;
        }
        let mut patched = object.clone();
        merge(&mut patched, patch);
        if let Err(problem) = self.definitions.check(definition, &patched).and_then(|()| checked_labels(&patched)) {
            self.violations.push(format!("patch of {kind}: {problem}"));
            return Self::error(422, "Invalid", &problem, kind, name);
        }
        *object = patched.clone();
        Reply { status: 200, body: patched.to_string() }
    }

    fn review(&self, body: &Value) -> Reply {
        let attributes = &body["spec"]["resourceAttributes"];
        let text = |name: &str| attributes[name].as_str().unwrap_or_default();
        let asked = format!("{} {}", text("verb"), text("resource"));
        let mut answer = body.clone();
        answer["status"] = json!({"allowed": !self.denied.contains(&asked.as_str()) && text("namespace") == NAMESPACE});
        Reply { status: 201, body: answer.to_string() }
    }

    fn nodes(&self, request: &Request) -> Reply {
        let selector = query_of(request).remove("labelSelector").unwrap_or_default();
        let known = [format!("topology.kubernetes.io/region={REGION}"), format!("topology.kubernetes.io/zone={ZONE}")];
        let items = if known.contains(&selector) && !self.absent.contains(&"nodes") { json!([{}]) } else { json!([]) };
        Reply {
            status: 200,
            body: json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}).to_string(),
        }
    }

    fn other(&self, kind: &str, name: &str) -> Reply {
        if self.absent.contains(&kind) {
            return not_found(kind, name);
        }
        Reply { status: 200, body: json!({"metadata": {"name": name, "uid": "1"}}).to_string() }
    }

    /// Reads the body of a request, which has to fit its definition.
    fn body(&mut self, definition: &str, request: &Request) -> Result<Value, Reply> {
        let checked = match serde_json::from_str::<Value>(&request.body) {
            Ok(value) => {
                self.definitions.check(definition, &value).and_then(|()| checked_labels(&value)).map(|()| value)
            }
            Err(error) => Err(error.to_string()),
        };
        checked.map_err(|problem| {
            self.violations.push(format!("{definition}: {problem}"));
            Self::error(400, "BadRequest", &problem, "", "")
        })
    }

    fn object_of(&mut self, request: &Request) -> Result<Value, Reply> {
        let definition =
            if request.path.contains("/secrets") { "io.k8s.api.core.v1.Secret" } else { "v1.VirtualMachine" };
        self.body(definition, request)
    }

    fn options_of(&mut self, request: &Request) -> Result<Value, Reply> {
        self.body("k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions", request)
    }

    fn patch_of(&mut self, request: &Request) -> Result<Value, Reply> {
        let is_merge = request.headers.get("content-type").is_some_and(|kind| kind == "application/merge-patch+json");
        let patch = serde_json::from_str(&request.body).ok().filter(|_| is_merge);
        patch.ok_or_else(|| {
            self.violations.push(format!("this is not a merge patch: {}", request.body));
            Self::error(415, "UnsupportedMediaType", "not a merge patch", "", "")
        })
    }

    fn carry_out(&mut self, request: &Request) -> Result<Reply, Reply> {
        let call = self.call(request);
        let parts: Vec<String> = request.path.split('/').map(str::to_owned).collect();
        let name = parts.last().cloned().unwrap_or_default();
        Ok(match call {
            "vm.get" => self.get_vm(&name),
            "vm.list" => self.list_vms(request),
            "vm.create" => {
                let vm = self.object_of(request)?;
                self.create_vm(vm, false)
            }
            "vm.dryRun" => {
                let vm = self.object_of(request)?;
                self.create_vm(vm, true)
            }
            "vm.delete" => {
                let options = self.options_of(request)?;
                self.delete_vm(&name, &options)
            }
            "vm.patch" => {
                let patch = self.patch_of(request)?;
                self.patch(true, &name, &patch)
            }
            "secret.get" => match self.secrets.get(&name) {
                Some(secret) => Reply { status: 200, body: secret.to_string() },
                None if name.starts_with("userdata-") => not_found("secrets", &name),
                None => self.other("secrets", &name),
            },
            "secret.create" => {
                let secret = self.object_of(request)?;
                self.create_secret(secret)
            }
            "secret.delete" => {
                let options = self.options_of(request)?;
                self.delete_secret(&name, &options)
            }
            "secret.patch" => {
                let patch = self.patch_of(request)?;
                self.patch(false, &name, &patch)
            }
            "access.review" => self.review(&serde_json::from_str(&request.body).unwrap()),
            "node.list" => self.nodes(request),
            "object.get" => self.other(&parts[parts.len() - 2], &name),
            _ => Reply { status: 404, body: "404 page not found".to_owned() },
        })
    }
}

impl FakeCloud for Kubernetes {
    fn call(&self, request: &Request) -> &'static str {
        let path: Vec<&str> = request.path.split('/').skip(1).collect();
        let is_dry = request.query.contains("dryRun=All");
        match (request.method.as_str(), path.as_slice()) {
            (method, ["apis", "kubevirt.io", "v1", "namespaces", NAMESPACE, "virtualmachines", rest @ ..]) => {
                match (method, rest) {
                    ("GET", []) => "vm.list",
                    ("POST", []) if is_dry => "vm.dryRun",
                    ("POST", []) => "vm.create",
                    ("GET", [_]) => "vm.get",
                    ("DELETE", [_]) => "vm.delete",
                    ("PATCH", [_]) => "vm.patch",
                    _ => "unknown",
                }
            }
            (method, ["api", "v1", "namespaces", NAMESPACE, "secrets", rest @ ..]) => match (method, rest) {
                ("POST", []) => "secret.create",
                ("GET", [_]) => "secret.get",
                ("DELETE", [_]) => "secret.delete",
                ("PATCH", [_]) => "secret.patch",
                _ => "unknown",
            },
            ("POST", ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]) => "access.review",
            ("GET", ["api", "v1", "nodes"]) => "node.list",
            ("GET", ["apis", "storage.k8s.io", "v1", "storageclasses", _])
            | ("GET", ["apis", "k8s.cni.cncf.io", "v1", "namespaces", _, "network-attachment-definitions", _])
            | ("GET", ["api", "v1", "namespaces", NAMESPACE, "persistentvolumeclaims" | "configmaps", _]) => {
                "object.get"
            }
            _ => "unknown",
        }
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let authorization = request.headers.get("authorization").map(String::as_str).unwrap_or_default();
        if authorization != format!("Bearer {TOKEN}") {
            return Self::error(401, "Unauthorized", "Unauthorized", "", "");
        }
        let (Ok(reply) | Err(reply)) = self.carry_out(request);
        reply
    }
}

fn now() -> Value {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}

fn failed(state: &str, kind: &str, message: &str) -> Value {
    json!({"printableStatus": state, "conditions": [{"type": kind, "status": "False", "message": message}]})
}

fn not_found(kind: &str, name: &str) -> Reply {
    Kubernetes::error(404, "NotFound", &format!("{kind} {name:?} not found"), kind, name)
}

fn already_exists(kind: &str, name: &str) -> Reply {
    Kubernetes::error(409, "AlreadyExists", &format!("{kind} {name:?} already exists"), kind, name)
}

/// The refusal of a request with the UID of another object of that name.
fn conflict(object: &Value, uid: &Value, kind: &str, name: &str) -> Option<Reply> {
    let is_same = uid.is_null() || object["metadata"]["uid"] == *uid;
    (!is_same).then(|| {
        Kubernetes::error(409, "Conflict", "the UID in the precondition is that of another object", kind, name)
    })
}

/// The Secret with the user data of a VM.
fn secret_of(vm: &Value) -> Option<&str> {
    let volumes = vm.pointer("/spec/template/spec/volumes")?.as_array()?;
    volumes.iter().find_map(|volume| volume.pointer("/cloudInitNoCloud/secretRef/name")?.as_str())
}

/// Rules of KubeVirt's webhook for a VM.
fn checked_vm(vm: &Value) -> Result<(), String> {
    let (spec, template) = (&vm["spec"], &vm["spec"]["template"]["spec"]);
    if spec["running"].is_null() == spec["runStrategy"].is_null() {
        return Err("spec has not exactly one of running and runStrategy".to_owned());
    }
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let names = |value: &Value| items(value).iter().map(|one| one["name"].to_string()).collect::<Vec<_>>();
    let (volumes, disks) = (names(&template["volumes"]), names(&template["domain"]["devices"]["disks"]));
    let unique: BTreeSet<&String> = volumes.iter().collect();
    if unique.len() != volumes.len() || volumes != disks {
        return Err(format!("disks {disks:?} are not those of volumes {volumes:?}"));
    }
    if let Some(volume) =
        items(&template["volumes"]).iter().find(|one| one.as_object().is_some_and(|one| one.len() != 2))
    {
        return Err(format!("volume {volume} has not exactly one source"));
    }
    let (interfaces, networks) = (names(&template["domain"]["devices"]["interfaces"]), names(&template["networks"]));
    if interfaces != networks {
        return Err(format!("interfaces {interfaces:?} are not those of networks {networks:?}"));
    }
    let templates = items(&spec["dataVolumeTemplates"]);
    let templates: Vec<&Value> = templates.iter().map(|one| &one["metadata"]["name"]).collect();
    let volumes = items(&template["volumes"]);
    let used = volumes.iter().map(|one| &one["dataVolume"]["name"]).filter(|name| !name.is_null()).collect::<Vec<_>>();
    if templates != used {
        return Err(format!("templates {templates:?} are not those of volumes {used:?}"));
    }
    Ok(())
}

/// Labels have short values without spaces, and keys with at most one slash.
fn checked_labels(object: &Value) -> Result<(), String> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_value = |text: &str| {
        let is_end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
        text.len() <= 63 && text.chars().all(is_inner) && is_end(text.chars().next()) && is_end(text.chars().last())
    };
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        let name = key.rsplit('/').next().unwrap_or_default();
        if key.matches('/').count() > 1 || name.is_empty() || !is_value(name) || !value.as_str().is_some_and(is_value) {
            return Err(format!("{key}={value} is not a label"));
        }
    }
    Ok(())
}

fn query_of(request: &Request) -> BTreeMap<String, String> {
    let url = Url::parse(&format!("http://a/?{}", request.query)).unwrap();
    url.query_pairs().into_owned().collect()
}

/// A merge patch, RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}
