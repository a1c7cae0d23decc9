//! Objects of one kind, with the rules of an API server that plans rely on.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::api_server::merge;

/// The time, and a number that never repeats.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    pub now: Timestamp,
    serial: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { now: Timestamp::from_second(1_700_000_000).unwrap(), serial: 0 }
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

/// Why a write was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NotFound,
    AlreadyExists,
    Conflict,
}

/// All objects of a kind, by name.
#[derive(Clone, Debug)]
pub(crate) struct Store<K>(BTreeMap<String, Arc<K>>);

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + PartialEq + Serialize + DeserializeOwned,
{
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.0.values()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<K>> {
        self.0.get(name)
    }

    /// UID, generation, creation time and resource version are the server's; `generateName` gets a number.
    pub(crate) fn create(&mut self, clock: &mut Clock, mut object: K) -> Result<Arc<K>, Refused> {
        let serial = clock.serial();
        let meta = object.meta_mut();
        if let (None, Some(prefix)) = (&meta.name, &meta.generate_name) {
            meta.name = Some(format!("{prefix}{serial:05}"));
        }
        meta.uid = Some(format!("uid-{serial}"));
        meta.generation = Some(1);
        meta.creation_timestamp = Some(Time(clock.now));
        meta.resource_version = Some(serial.to_string());
        let name = object.name_any();
        if self.0.contains_key(&name) {
            return Err(Refused::AlreadyExists);
        }
        let object = Arc::new(object);
        self.0.insert(name, object.clone());
        Ok(object)
    }

    /// A JSON merge patch of anything but the status, on the version that was seen.
    pub(crate) fn patch(&mut self, clock: &mut Clock, seen: &K, patch: &Value) -> Result<Arc<K>, Refused> {
        let object = self.0.get(&seen.name_any()).ok_or(Refused::NotFound)?;
        if object.resource_version() != seen.resource_version() || object.uid() != seen.uid() {
            return Err(Refused::Conflict);
        }
        let before = serde_json::to_value(object.as_ref()).unwrap();
        let mut after = before.clone();
        let mut patch = patch.clone();
        patch.as_object_mut().unwrap().remove("status");
        merge(&mut after, &patch);
        assert_ne!(before, after, "a patch that changes nothing: {patch}");
        Ok(self.store(clock, &before, after))
    }

    /// The status as a whole.
    pub(crate) fn write_status(
        &mut self,
        clock: &mut Clock,
        name: &str,
        status: impl Serialize,
    ) -> Result<Arc<K>, Refused> {
        let object = self.0.get(name).ok_or(Refused::NotFound)?;
        let before = serde_json::to_value(object.as_ref()).unwrap();
        let mut after = before.clone();
        after["status"] = serde_json::to_value(status).unwrap();
        assert_ne!(before, after, "a status that says nothing new");
        Ok(self.store(clock, &before, after))
    }

    /// Changes an object as another client.
    pub(crate) fn edit(&mut self, clock: &mut Clock, name: &str, change: impl FnOnce(&mut K)) {
        let object = self.0.get(name).unwrap();
        let before = serde_json::to_value(object.as_ref()).unwrap();
        let mut changed = K::clone(object);
        change(&mut changed);
        self.store(clock, &before, serde_json::to_value(changed).unwrap());
    }

    /// Deletes the object at once, or when its last finalizer is removed.
    pub(crate) fn delete(&mut self, clock: &mut Clock, name: &str) -> Result<(), Refused> {
        let object = self.0.get(name).ok_or(Refused::NotFound)?;
        if object.meta().deletion_timestamp.is_some() {
            return Ok(());
        }
        let now = clock.now;
        let generation = object.meta().generation.unwrap_or_default() + 1;
        self.edit(clock, name, |object| {
            object.meta_mut().deletion_timestamp = Some(Time(now));
            object.meta_mut().generation = Some(generation);
        });
        Ok(())
    }

    /// Stores the object and returns it as it was written, also if that removed it.
    fn store(&mut self, clock: &mut Clock, before: &Value, mut after: Value) -> Arc<K> {
        if before.get("spec") != after.get("spec") {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or_default();
            after["metadata"]["generation"] = json!(generation + 1);
        }
        after["metadata"]["resourceVersion"] = json!(clock.serial().to_string());
        let object: Arc<K> = Arc::new(serde_json::from_value(after).unwrap());
        let name = object.name_any();
        if object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty() {
            self.0.remove(&name);
        } else {
            self.0.insert(name, Arc::clone(&object));
        }
        object
    }
}
