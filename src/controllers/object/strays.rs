//! Objects that an owner created and that are not its own afterwards: the API server stored them with other labels or
//! another controller, or another client changed them. An owner that counts only its own objects would create more and
//! more of them.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::owner;
use mcm_api::{patch, selector::Selector};
use mcm_rules::plan::repeats::{ALTERED, REVERTED, RepeatCount};

/// How long an object that changed hands counts, and how many creations are remembered.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(20);
const MOST: usize = 100;
/// So many created objects may change hands without a pause.
const FEW: usize = 3;

/// An object belongs to an owner, or will be adopted by it.
pub(crate) fn is_own(meta: &ObjectMeta, owner: &str, selector: &Selector) -> bool {
    let controller = owner::controller_of(meta);
    selector.matches(meta.labels.as_ref()) && controller.is_none_or(|controller| controller.uid == owner)
}

/// The difference between a created object and what was sent, if the object does not belong to its owner for that reason.
pub(crate) fn difference(sent: &ObjectMeta, stored: &ObjectMeta, owner: &str, selector: &Selector) -> Option<String> {
    if is_own(stored, owner, selector) {
        return None;
    }
    let part = |meta: &ObjectMeta| -> Value {
        let owners = meta.owner_references.iter().flatten();
        let owners: Value = owners.map(|owner| format!("{}/{}", owner.kind, owner.name)).collect();
        json!({ "metadata": { "labels": meta.labels, "ownerReferences": owners } })
    };
    let found = patch::unmet(&part(sent), &part(stored));
    Some(found.first().map_or_else(|| "it has other owners".to_owned(), ToString::to_string))
}

/// Facts about the objects that an owner created, kept between its reconciles.
#[derive(Clone, Debug, Default)]
pub(crate) struct StrayMemory {
    /// The last creations, by UID: name and time.
    born: BTreeMap<String, (String, Timestamp)>,
    /// Names of objects that were stored so that they are not the owner's, by UID.
    altered: BTreeMap<String, String>,
    count: RepeatCount,
    difference: Option<String>,
    /// The API server does not answer what it would store.
    is_trial_refused: bool,
}

impl StrayMemory {
    /// An object was created, and belongs to its owner.
    pub(crate) fn created(&mut self, meta: &ObjectMeta, now: Timestamp) {
        self.accepted();
        let (Some(uid), Some(name)) = (&meta.uid, &meta.name) else { return };
        self.born.retain(|_, (_, at)| (SignedDuration::ZERO..REMEMBERED).contains(&now.duration_since(*at)));
        if self.born.len() >= MOST
            && let Some(oldest) = self.born.iter().min_by_key(|(_, (_, at))| *at).map(|(uid, _)| uid.clone())
        {
            self.born.remove(&oldest);
        }
        self.born.insert(uid.clone(), (name.clone(), now));
    }

    /// An object was created, and does not belong to its owner.
    pub(crate) fn altered(&mut self, meta: &ObjectMeta, difference: String, now: Timestamp) {
        if let (Some(uid), Some(name)) = (&meta.uid, &meta.name) {
            if self.altered.len() >= MOST {
                self.altered.pop_first();
            }
            self.altered.insert(uid.clone(), name.clone());
        }
        self.count.add(&ALTERED, now);
        self.difference = Some(difference);
    }

    /// The API server answered how it would store the next object; `None` if it would belong to its owner.
    pub(crate) fn tried(&mut self, difference: Option<String>, now: Timestamp) {
        self.is_trial_refused = false;
        match difference {
            None => self.accepted(),
            Some(difference) => {
                self.count.add(&ALTERED, now);
                self.difference = Some(difference);
            }
        }
    }

    /// The API server refused that question, so that only a creation can show it.
    pub(crate) fn trial_refused(&mut self) {
        self.is_trial_refused = true;
    }

    fn accepted(&mut self) {
        self.count = RepeatCount::default();
        self.difference = None;
        self.is_trial_refused = false;
    }

    /// The part that plans need. `find` returns the objects that exist.
    pub(crate) fn view<K: Resource<DynamicType = ()>>(
        &self,
        owner: &str,
        selector: &Selector,
        now: Timestamp,
        find: impl Fn(&str) -> Option<Arc<K>>,
    ) -> StrayView<K> {
        let foreign = |uid: &str, name: &str| {
            let found = find(name).filter(|found| found.meta().uid.as_deref() == Some(uid))?;
            let is_foreign = found.meta().deletion_timestamp.is_none() && !is_own(found.meta(), owner, selector);
            is_foreign.then_some(found)
        };
        let altered = self.altered.iter().filter_map(|(uid, name)| foreign(uid, name)).collect();
        let recent = self
            .born
            .iter()
            .filter(|(_, (_, at))| (SignedDuration::ZERO..REMEMBERED).contains(&now.duration_since(*at)));
        let lost: Vec<(Timestamp, String)> =
            recent.filter_map(|(uid, (name, at))| foreign(uid, name).map(|lost| (*at, lost.name_any()))).collect();
        let growth = match &self.difference {
            Some(difference) => match self.count.paused_until(&ALTERED, now) {
                Some(until) => CreationGate::Paused { why: differs::<K>(difference), until },
                None if self.is_trial_refused => CreationGate::Free,
                None => CreationGate::Tried { why: differs::<K>(difference) },
            },
            None => lost_growth::<K>(&lost, now),
        };
        StrayView { altered, growth }
    }
}

fn differs<K: Resource<DynamicType = ()>>(difference: &str) -> String {
    format!("the API server stores a new {} with other fields: {difference}", K::kind(&()))
}

fn lost_growth<K: Resource<DynamicType = ()>>(lost: &[(Timestamp, String)], now: Timestamp) -> CreationGate {
    let Some((newest, _)) = lost.iter().max().filter(|_| lost.len() >= FEW) else { return CreationGate::Free };
    let pause = REVERTED.pause(u32::try_from(lost.len()).unwrap_or(u32::MAX));
    match newest.checked_add(pause) {
        Ok(until) if now < until => {
            let names: Vec<&str> = lost.iter().take(FEW).map(|(_, name)| name.as_str()).collect();
            let why = format!(
                "another client changed the labels or the owner of {} new objects of kind {}, such as {}",
                lost.len(),
                K::kind(&()),
                names.join(", ")
            );
            CreationGate::Paused { why, until }
        }
        _ => CreationGate::Free,
    }
}

/// The gate of an owner's creations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CreationGate {
    Free,
    /// The last ones did not stay its own: first the API server is asked how it would store one.
    Tried {
        why: String,
    },
    /// Not before this time.
    Paused {
        why: String,
        until: Timestamp,
    },
}

impl CreationGate {
    /// Why objects that were created are not the owner's.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        match self {
            Self::Free => None,
            Self::Tried { why } | Self::Paused { why, .. } => Some(why),
        }
    }
}

/// The created objects that are not their owner's.
#[derive(Clone, Debug)]
pub(crate) struct StrayView<K> {
    /// Objects that the API server stored with other labels or owners. Their owner created them, so it deletes them.
    pub(crate) altered: Vec<Arc<K>>,
    /// The gate of further creations.
    pub(crate) growth: CreationGate,
}

impl<K> Default for StrayView<K> {
    fn default() -> Self {
        Self { altered: Vec::new(), growth: CreationGate::Free }
    }
}

impl<K: Resource> StrayView<K> {
    /// The owner created the object, and the API server stored it so that it is not the owner's.
    pub(crate) fn has(&self, object: &K) -> bool {
        let uid = object.meta().uid.as_deref();
        uid.is_some() && self.altered.iter().any(|altered| altered.meta().uid.as_deref() == uid)
    }
}

#[cfg(test)]
mod tests;
