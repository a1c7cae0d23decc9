//! The objects of an API server, and the requests on them.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    call::{ApiCall, ApiVerb},
    filter::ObjectFilter,
    kinds::{BUDGETS, Kind, PODS, SECRETS},
    merge::{merge_strategically, patch_by_operations},
    object::ServerObject,
    refusal::RequestRefusal,
};
use mcm_api::patch::apply as merge;

/// A change as watches report it.
#[derive(Clone, Debug)]
pub(super) struct WatchChange {
    pub version: u64,
    pub at: Instant,
    pub what: &'static str,
    pub object: Arc<ServerObject>,
}

/// The effect of a request.
#[derive(Debug)]
pub(super) struct RequestEffect {
    pub before: Option<Arc<ServerObject>>,
    /// The stored object afterwards.
    pub after: Option<Arc<ServerObject>>,
    /// The object in the response; `None` for a status "success".
    pub answer: Option<Arc<ServerObject>>,
}

/// A mutating admission policy: it changes the object of a request. It does not see writes of subresources.
pub type AdmissionHook = Arc<dyn Fn(&ApiCall, &mut Value) + Send + Sync>;

type ObjectsByName = BTreeMap<(String, String), Arc<ServerObject>>;

#[derive(Default)]
pub(super) struct ObjectStore {
    version: u64,
    serial: u64,
    objects: BTreeMap<&'static str, ObjectsByName>,
    history: BTreeMap<&'static str, Vec<WatchChange>>,
    /// Changes up to this version are forgotten.
    forgotten: BTreeMap<&'static str, u64>,
    /// Changes objects before they are stored.
    pub(super) admission: Option<AdmissionHook>,
    /// The rest of lists that are read page by page.
    pages: BTreeMap<String, (u64, Vec<Arc<ServerObject>>)>,
    /// The last configuration of each applier, by the UID of the object.
    applied: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
}

/// The most changes of a kind that are kept for watches.
const LONGEST: usize = 20_000;

/// The most lists that are kept for their next pages.
const MOST_PAGES: usize = 256;

/// One page of a list.
pub(super) struct ObjectPage {
    pub version: u64,
    pub objects: Vec<Arc<ServerObject>>,
    pub rest: Option<String>,
}

impl ObjectStore {
    pub(super) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<ServerObject>> {
        self.objects.get(kind.plural)?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(super) fn all(&self, kind: &Kind) -> impl Iterator<Item = &Arc<ServerObject>> {
        self.objects.get(kind.plural).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn list(&mut self, call: &ApiCall, largest_page: usize) -> Result<ObjectPage, RequestRefusal> {
        let (version, mut objects) = match call.query.get("continue").filter(|token| !token.is_empty()) {
            Some(token) => {
                let expired = || RequestRefusal::new(410, "Expired", "The provided continue parameter is too old");
                self.pages.remove(token).ok_or_else(expired)?
            }
            None => {
                let filter = ObjectFilter::from_call(call)?;
                (self.version, self.all(call.kind).filter(|object| filter.selects(object)).cloned().collect())
            }
        };
        let limit = call.query.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
        let rest = objects.split_off(limit.unwrap_or(usize::MAX).min(largest_page).min(objects.len()));
        let rest = (!rest.is_empty()).then(|| {
            self.serial += 1;
            let token = format!("{version}-{:020}", self.serial);
            if self.pages.len() >= MOST_PAGES {
                self.pages.pop_first();
            }
            self.pages.insert(token.clone(), (version, rest));
            token
        });
        Ok(ObjectPage { version, objects, rest })
    }

    /// Changes of a kind after a version, or `None` if they are forgotten.
    pub(super) fn changes_after(&self, kind: &Kind, version: u64) -> Option<&[WatchChange]> {
        if self.forgotten.get(kind.plural).is_some_and(|forgotten| version < *forgotten) {
            return None;
        }
        let all = self.history.get(kind.plural).map(Vec::as_slice).unwrap_or_default();
        let first = all.partition_point(|change| change.version <= version);
        Some(&all[first..])
    }

    /// Watches have to list again.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn forget_history(&mut self, kind: &Kind) {
        self.version += 1;
        self.forgotten.insert(kind.plural, self.version);
        self.history.remove(kind.plural);
        self.pages.clear();
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn write(&mut self, call: &ApiCall, now: Timestamp) -> Result<RequestEffect, RequestRefusal> {
        match call.verb {
            ApiVerb::Create if call.subresource == "eviction" => self.evict(call, now),
            ApiVerb::Create => self.create(call, now),
            ApiVerb::Apply => self.apply(call, now),
            ApiVerb::Delete => self.delete(call, now),
            _ => self.patch(call),
        }
    }

    /// Stores an object of another API server with its metadata; only the resource version is new. Every object gets a UID, without
    /// which caches do not keep it.
    pub(super) fn seed(&mut self, kind: &Kind, mut value: Value) -> Option<Arc<ServerObject>> {
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(kind.name);
        let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let name = value["metadata"]["name"].as_str()?.to_owned();
        if !value["metadata"]["uid"].is_string() {
            value["metadata"]["uid"] = json!(format!("{}-{name}", kind.name.to_lowercase()));
        }
        Some(self.put(kind, (namespace, name), value, "ADDED"))
    }

    fn create(&mut self, call: &ApiCall, now: Timestamp) -> Result<RequestEffect, RequestRefusal> {
        let kind = call.kind;
        if !call.body["metadata"].is_object() {
            return Err(RequestRefusal::new(400, "BadRequest", "the object has no metadata"));
        }
        let mut value = Value::clone(&call.body);
        encode_texts(call.kind, &mut value);
        self.admit(call, &mut value);
        self.serial += 1;
        let serial = self.serial;
        let prefix = value["metadata"]["generateName"].as_str().map(str::to_owned);
        if let (None, Some(prefix)) = (value["metadata"]["name"].as_str(), prefix) {
            value["metadata"]["name"] = json!(format!("{prefix}{serial:05}"));
        }
        let Some(name) = value["metadata"]["name"].as_str().map(str::to_owned) else {
            return Err(RequestRefusal::new(422, "Invalid", "name or generateName is required"));
        };
        let key = (call.namespace.clone(), name.clone());
        if self.objects.get(kind.plural).is_some_and(|objects| objects.contains_key(&key)) {
            let message = format!("{} \"{name}\" already exists", kind.plural);
            return Err(RequestRefusal::new(409, "AlreadyExists", message));
        }
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(kind.name);
        if kind.is_custom && kind.has_status {
            set(&mut value, "status", Value::Null);
        }
        let meta = &mut value["metadata"];
        set(meta, "deletionTimestamp", Value::Null);
        set(meta, "uid", json!(format!("{}-{serial}", kind.name.to_lowercase())));
        set(meta, "creationTimestamp", json!(written(now)));
        if kind.is_custom {
            set(meta, "generation", json!(1));
        }
        if kind.is_namespaced {
            set(meta, "namespace", json!(call.namespace));
        }
        let object = self.put(kind, key, value, "ADDED");
        Ok(RequestEffect { before: None, after: Some(Arc::clone(&object)), answer: Some(object) })
    }

    /// A patch or an update.
    fn patch(&mut self, call: &ApiCall) -> Result<RequestEffect, RequestRefusal> {
        let (kind, name) = (call.kind, &call.name);
        let before = self.find(call)?;
        if call.uid().is_some_and(|uid| uid != before.uid()) {
            return Err(RequestRefusal::conflict(format!(
                "Precondition failed: UID in precondition: {:?}",
                call.uid()
            )));
        }
        if call.version().is_some_and(|version| version != before.version.to_string()) {
            return Err(RequestRefusal::conflict(format!(
                "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; please apply your changes to the latest version and try again",
                kind.plural
            )));
        }
        let is_scale = call.subresource == "scale";
        let mut after = match call.verb {
            ApiVerb::Update => Value::clone(&call.body),
            _ if is_scale => scale_of(&before),
            _ => before.value.clone(),
        };
        match call.verb {
            ApiVerb::MergePatch => merge(&mut after, &call.body),
            ApiVerb::StrategicPatch => merge_strategically(&mut after, &call.body),
            ApiVerb::JsonPatch => patch_by_operations(&mut after, &call.body)
                .map_err(|error| RequestRefusal::new(422, "Invalid", error.to_string()))?,
            _ => {}
        }
        if is_scale {
            after = scaled(&before.value, &after)?;
        }
        keep_what_is_not_written(call, &before.value, &mut after);
        encode_texts(call.kind, &mut after);
        self.admit(call, &mut after);
        if before.is_terminating() {
            let added =
                strings(&after["metadata"]["finalizers"]).find(|new| !before.finalizers().any(|old| old == *new));
            if let Some(added) = added {
                let message = format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers {added}"
                );
                return Err(RequestRefusal::new(422, "Invalid", message));
            }
        }
        Ok(self.store(call, before, after))
    }

    fn admit(&self, call: &ApiCall, object: &mut Value) {
        if let Some(admission) = self.admission.as_ref().filter(|_| call.subresource.is_empty()) {
            admission(call, object);
        }
    }

    /// The effect that a write would have.
    pub(super) fn dry_run(&self, call: &ApiCall, now: Timestamp) -> Result<RequestEffect, RequestRefusal> {
        let mut trial =
            Self { version: self.version, serial: self.serial, admission: self.admission.clone(), ..Self::default() };
        let needed = self.get(call.kind, &call.namespace, call.object_name()).map(|object| (call.kind, object));
        let budgets =
            self.all(&BUDGETS).filter(|_| call.subresource == "eviction").map(|budget| (&BUDGETS, Arc::clone(budget)));
        for (kind, object) in needed.into_iter().chain(budgets) {
            let namespace = object.value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            trial.applied.extend(self.applied.get_key_value(object.uid()).map(|(uid, all)| (uid.clone(), all.clone())));
            trial.objects.entry(kind.plural).or_default().insert((namespace, object.name().to_owned()), object);
        }
        trial.write(call, now)
    }

    /// A server-side apply: the object is created, or the configuration is merged into it. Fields that the same applier
    /// configured before and leaves out now are removed. No other applier causes a conflict.
    fn apply(&mut self, call: &ApiCall, now: Timestamp) -> Result<RequestEffect, RequestRefusal> {
        let manager = call.query.get("fieldManager").cloned().unwrap_or_default();
        let mut patch = call.clone();
        if !call.body["metadata"].is_object() {
            return Err(RequestRefusal::new(400, "BadRequest", "the configuration has no metadata"));
        }
        let effect = match self.get(call.kind, &call.namespace, &call.name) {
            None if call.subresource.is_empty() => {
                let mut body = Value::clone(&call.body);
                body["metadata"]["name"] = json!(call.name);
                patch.verb = ApiVerb::Create;
                patch.body = Arc::new(body);
                self.create(&patch, now)?
            }
            before => {
                let earlier = before.and_then(|before| self.applied.get(before.uid())?.get(&manager).cloned());
                let mut body = earlier.and_then(|earlier| left_out(&earlier, &call.body)).unwrap_or_else(|| json!({}));
                merge_over(&mut body, &call.body);
                patch.verb = if call.kind.is_custom { ApiVerb::MergePatch } else { ApiVerb::StrategicPatch };
                patch.body = Arc::new(body);
                self.patch(&patch)?
            }
        };
        if let Some(object) = effect.after.as_ref().filter(|_| call.subresource.is_empty()) {
            self.applied.entry(object.uid().to_owned()).or_default().insert(manager, Arc::clone(&call.body));
        }
        Ok(effect)
    }

    fn store(&mut self, call: &ApiCall, before: Arc<ServerObject>, mut after: Value) -> RequestEffect {
        if before.value == after {
            return RequestEffect {
                before: Some(Arc::clone(&before)),
                after: Some(Arc::clone(&before)),
                answer: Some(before),
            };
        }
        if call.kind.is_custom && call.subresource.is_empty() && without_meta(&before.value) != without_meta(&after) {
            let generation = before.value["metadata"]["generation"].as_i64().unwrap_or_default();
            after["metadata"]["generation"] = json!(generation + 1);
        }
        let key = (call.namespace.clone(), call.name.clone());
        let grace = after["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        let is_terminating = after["metadata"]["deletionTimestamp"].is_string();
        if is_terminating && grace == 0 && strings(&after["metadata"]["finalizers"]).next().is_none() {
            let object = self.remove(call.kind, &key, after);
            return RequestEffect { before: Some(before), after: None, answer: Some(object) };
        }
        let object = self.put(call.kind, key, after, "MODIFIED");
        RequestEffect { before: Some(before), after: Some(Arc::clone(&object)), answer: Some(object) }
    }

    fn delete(&mut self, call: &ApiCall, now: Timestamp) -> Result<RequestEffect, RequestRefusal> {
        let before = self.find(call)?;
        if call.uid().is_some_and(|uid| uid != before.uid()) {
            let message = format!(
                "Precondition failed: UID in precondition: {:?}, UID in object meta: {}",
                call.uid(),
                before.uid()
            );
            return Err(RequestRefusal::conflict(message));
        }
        if call.version().is_some_and(|version| version != before.version.to_string()) {
            return Err(RequestRefusal::conflict("Precondition failed: ResourceVersion in precondition"));
        }
        let grace = if call.kind == &PODS { grace_of(call, &before.value) } else { 0 };
        let held_grace = before.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if before.is_terminating() && (call.kind != &PODS || held_grace.is_some_and(|held| held <= grace)) {
            return Ok(RequestEffect {
                before: Some(Arc::clone(&before)),
                after: Some(Arc::clone(&before)),
                answer: Some(before),
            });
        }
        let mut after = before.value.clone();
        if grace == 0 && before.finalizers().next().is_none() {
            let key = (call.namespace.clone(), call.name.clone());
            self.remove(call.kind, &key, after);
            return Ok(RequestEffect { before: Some(before), after: None, answer: None });
        }
        let ends = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        after["metadata"]["deletionTimestamp"] = json!(written(ends));
        after["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        if let Some(generation) = after["metadata"]["generation"].as_i64() {
            after["metadata"]["generation"] = json!(generation + 1);
        }
        let key = (call.namespace.clone(), call.name.clone());
        let object = self.put(call.kind, key, after, "MODIFIED");
        Ok(RequestEffect { before: Some(before), after: Some(Arc::clone(&object)), answer: Some(object) })
    }

    /// A delete that budgets may refuse.
    fn evict(&mut self, call: &ApiCall, now: Timestamp) -> Result<RequestEffect, RequestRefusal> {
        let pod = self.find(call)?;
        let covering: Vec<Arc<ServerObject>> =
            self.all(&BUDGETS).filter(|budget| covers(&budget.value, &pod.value)).cloned().collect();
        if covering.len() > 1 {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(RequestRefusal::new(500, "InternalError", message));
        }
        let is_ready = !matches!(pod.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let budget = covering.first().filter(|_| is_ready && !pod.is_terminating());
        if let Some(budget) = budget {
            let allowed = budget.value["status"]["disruptionsAllowed"].as_i64().unwrap_or_default();
            if allowed <= 0 {
                let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                return Err(RequestRefusal::new(429, "TooManyRequests", message));
            }
        }
        let mut delete = call.clone();
        delete.verb = ApiVerb::Delete;
        delete.body = Arc::new(call.body["deleteOptions"].clone());
        let effect = self.delete(&delete, now)?;
        if let Some(budget) = budget {
            let mut after = budget.value.clone();
            let allowed = after["status"]["disruptionsAllowed"].as_i64().unwrap_or_default();
            after["status"]["disruptionsAllowed"] = json!(allowed - 1);
            after["status"]["disruptedPods"][pod.name()] = json!(written(now));
            let key = (call.namespace.clone(), budget.name().to_owned());
            self.put(&BUDGETS, key, after, "MODIFIED");
        }
        Ok(RequestEffect { answer: None, ..effect })
    }

    /// Changes an object from outside.
    pub(super) fn edit(
        &mut self,
        call: &ApiCall,
        change: impl FnOnce(&mut Value),
    ) -> Result<RequestEffect, RequestRefusal> {
        let before = self.find(call)?;
        let mut after = before.value.clone();
        change(&mut after);
        self.admit(call, &mut after);
        Ok(self.store(call, before, after))
    }

    fn find(&self, call: &ApiCall) -> Result<Arc<ServerObject>, RequestRefusal> {
        let found = self.get(call.kind, &call.namespace, &call.name);
        let message = || format!("{} \"{}\" not found", call.kind.plural, call.name);
        found.ok_or_else(|| RequestRefusal::new(404, "NotFound", message()))
    }

    fn put(&mut self, kind: &Kind, key: (String, String), mut value: Value, what: &'static str) -> Arc<ServerObject> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = ServerObject::new(value, self.version);
        let plural = plural_of(kind);
        self.objects.entry(plural).or_default().insert(key, Arc::clone(&object));
        self.report(plural, what, &object);
        object
    }

    fn remove(&mut self, kind: &Kind, key: &(String, String), mut value: Value) -> Arc<ServerObject> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = ServerObject::new(value, self.version);
        let plural = plural_of(kind);
        self.objects.entry(plural).or_default().remove(key);
        self.applied.remove(object.uid());
        self.report(plural, "DELETED", &object);
        object
    }

    fn report(&mut self, plural: &'static str, what: &'static str, object: &Arc<ServerObject>) {
        let change = WatchChange { version: self.version, at: Instant::now(), what, object: Arc::clone(object) };
        let history = self.history.entry(plural).or_default();
        history.push(change);
        if history.len() > LONGEST {
            // Watches that are this late list again.
            let forgotten = history.drain(..LONGEST / 2).next_back();
            self.forgotten.extend(forgotten.map(|change| (plural, change.version)));
        }
    }
}

const fn plural_of(kind: &Kind) -> &'static str {
    kind.plural
}

/// A write of an object leaves its status, a write of the status leaves everything else.
fn keep_what_is_not_written(call: &ApiCall, before: &Value, after: &mut Value) {
    if call.subresource == "status" {
        let status = after["status"].take();
        *after = before.clone();
        set(after, "status", status);
    } else if call.kind.has_status && (call.kind.is_custom || call.verb != ApiVerb::Create) {
        set(after, "status", before["status"].clone());
    }
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "name",
        "namespace",
        "resourceVersion",
    ] {
        let kept = before["metadata"][field].clone();
        set(&mut after["metadata"], field, kept);
    }
    set(after, "apiVersion", before["apiVersion"].clone());
    set(after, "kind", before["kind"].clone());
    for list in ["labels", "annotations"] {
        if after["metadata"][list].as_object().is_some_and(Map::is_empty) || after["metadata"][list].is_null() {
            set(&mut after["metadata"], list, Value::Null);
        }
    }
    if after["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        set(&mut after["metadata"], "finalizers", Value::Null);
    }
}

fn set(target: &mut Value, field: &str, value: Value) {
    let Value::Object(target) = target else { return };
    if value.is_null() {
        target.remove(field);
    } else {
        target.insert(field.to_owned(), value);
    }
}

fn without_meta(value: &Value) -> impl PartialEq + '_ {
    let fields = value.as_object().into_iter().flatten();
    fields.filter(|(key, _)| *key != "metadata" && *key != "status").collect::<Vec<_>>()
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn grace_of(call: &ApiCall, pod: &Value) -> i64 {
    let is_bound = pod["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty());
    let is_finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let asked = call.body["gracePeriodSeconds"].as_i64();
    if !is_bound || is_finished {
        return 0;
    }
    asked.unwrap_or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30))
}

fn covers(budget: &Value, pod: &Value) -> bool {
    let labels = &budget["spec"]["selector"]["matchLabels"];
    budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
        && labels
            .as_object()
            .is_some_and(|labels| labels.iter().all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value)))
}

/// Times are stored in whole seconds.
pub(super) fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The subresource `scale` of an object.
pub(super) fn scale_of(object: &ServerObject) -> Value {
    let (meta, spec, status) = (&object.value["metadata"], &object.value["spec"], &object.value["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {
            "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"],
        },
        "spec": { "replicas": number(&spec["replicas"]) },
        "status": { "replicas": number(&status["replicas"]) },
    })
}

/// The object with the replicas of a `Scale`.
fn scaled(before: &Value, scale: &Value) -> Result<Value, RequestRefusal> {
    let replicas = scale["spec"]["replicas"].as_i64().filter(|replicas| (0..=i64::from(i32::MAX)).contains(replicas));
    let invalid = || RequestRefusal::new(422, "Invalid", "spec.replicas: must be a number of replicas from 0 on");
    let mut after = before.clone();
    after["spec"]["replicas"] = json!(replicas.ok_or_else(invalid)?);
    Ok(after)
}

/// The `stringData` of a Secret becomes part of its `data`.
fn encode_texts(kind: &Kind, object: &mut Value) {
    let texts = object.as_object_mut().filter(|_| *kind == SECRETS).and_then(|object| object.remove("stringData"));
    for (key, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
        object["data"][key] = json!(BASE64_STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

/// The merge patch that removes the fields of an earlier configuration that a later one leaves out.
fn left_out(earlier: &Value, later: &Value) -> Option<Value> {
    let (Value::Object(earlier), Value::Object(later)) = (earlier, later) else { return None };
    let removal = |(key, value): (&String, &Value)| match later.get(key) {
        None => Some((key.clone(), Value::Null)),
        Some(later) => left_out(value, later).map(|removal| (key.clone(), removal)),
    };
    let removals: Map<String, Value> = earlier.iter().filter_map(removal).collect();
    (!removals.is_empty()).then_some(Value::Object(removals))
}

/// Merges a patch into another one, whose removals of other fields stay.
fn merge_over(patch: &mut Value, later: &Value) {
    match (patch, later) {
        (Value::Object(patch), Value::Object(later)) => {
            for (key, value) in later {
                merge_over(patch.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (patch, later) => *patch = later.clone(),
    }
}
