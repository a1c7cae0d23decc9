//! Patches that were accepted and have to be sent again, because the API server stores something else or another client
//! changes them back. The reconcile loop keeps a log for each object that it reconciles, and holds such patches back.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Plan, PlanInput, SubjectRef, UndoneWrite, WaitKind,
    repeats::{ALTERED, REVERTED, RepeatCount},
};
use mcm_api::{hash::fnv1a_64, patch};

/// The fields and the content of a patch, the same for all objects that get it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WriteContent {
    fields: String,
    hash: u64,
}

impl WriteContent {
    fn from_patch(patch: &Value) -> Self {
        Self { fields: patch::fields(patch), hash: fnv1a_64(patch.to_string().bytes()) }
    }
}

/// The results of the writes of one content.
#[derive(Clone, Debug, Default)]
struct ContentHistory {
    /// Accepted as it was sent, by UID of the object.
    accepted: BTreeMap<String, RepeatCount>,
    /// Objects that were stored otherwise.
    altered: BTreeSet<String>,
    /// How often it was undone, of all objects.
    undone: RepeatCount,
    /// It was undone, and wanted again by the plan after that.
    is_confirmed: bool,
    /// UID of the object that got it last.
    tried: Option<String>,
    /// The object and the difference that a plan showed last.
    shown: Option<(SubjectRef, String)>,
}

impl ContentHistory {
    fn is_over(&self, now: Timestamp) -> bool {
        self.undone.is_over(&ALTERED, now) && self.accepted.values().all(|count| count.is_over(&REVERTED, now))
    }

    /// From when on it no longer counts as undone, unless it is wanted again.
    fn lasts_at(&self) -> Option<Timestamp> {
        self.undone.last()?.checked_add(LASTING).ok()
    }

    fn was_undone(&self, uid: &str) -> bool {
        self.altered.contains(uid)
            || self.accepted.get(uid).is_some_and(|count| count.count() >= FREE && self.undone.count() > 0)
    }
}

/// The accepted patches of one reconciled object.
#[derive(Clone, Debug, Default)]
pub struct WriteLog(BTreeMap<WriteContent, ContentHistory>);

/// How often a patch may be accepted as it was sent until it counts as undone each time.
const FREE: u32 = 3;
/// Patches of several objects within this time are one attempt.
const ONE_ATTEMPT: SignedDuration = SignedDuration::from_secs(1);
/// How long a patch must last until it no longer counts as undone.
const LASTING: SignedDuration = SignedDuration::from_secs(10);

impl WriteLog {
    /// A patch of an object was accepted; `stored` is the answer.
    pub fn accepted(&mut self, uid: &str, patch: &Value, stored: &Value, now: Timestamp) {
        let history = self.0.entry(WriteContent::from_patch(patch)).or_default();
        history.tried = Some(uid.to_owned());
        if patch::unmet(patch, stored).is_empty() {
            history.altered.remove(uid);
            let count = history.accepted.entry(uid.to_owned()).or_default();
            count.add(&REVERTED, now);
            if count.count() < FREE {
                if history.is_confirmed {
                    // The API server keeps it now, so that it may be sent for the other objects.
                    history.undone = RepeatCount::default();
                    history.is_confirmed = false;
                    history.altered.clear();
                }
                return;
            }
        } else {
            history.altered.insert(uid.to_owned());
        }
        let is_same_attempt = history
            .undone
            .last()
            .is_some_and(|last| (SignedDuration::ZERO..ONE_ATTEMPT).contains(&now.duration_since(last)));
        if !is_same_attempt {
            history.undone.add(&ALTERED, now);
        }
    }

    /// Removes the steps of a plan that would repeat an undone patch too early, waits instead, and returns all undone
    /// patches. Of several objects that get the same patch, one is tried first.
    pub fn hold_back<S: PlanInput>(
        &mut self,
        snapshot: &S,
        plan: &mut Plan<S::Action>,
        now: Timestamp,
    ) -> Vec<UndoneWrite> {
        self.0.retain(|_, history| !history.is_over(now));
        if self.0.is_empty() {
            return Vec::new();
        }
        self.confirm(snapshot, plan, now);
        let mut undone = Vec::new();
        let mut tried = BTreeSet::new();
        let mut is_held_back = false;
        plan.steps.retain(|step| {
            if is_held_back && S::STEPS_DEPEND_ON_ORDER && !S::is_status(&step.action) {
                return false;
            }
            let Some(sent) = snapshot.sent_patch(&step.action) else { return true };
            let content = WriteContent::from_patch(&sent.patch);
            let Some(history) = self.0.get_mut(&content).filter(|history| history.is_confirmed) else { return true };
            let object = sent.object;
            let differences = patch::unmet(&sent.patch, &(sent.stored)());
            let difference = differences.first().map_or_else(|| content.fields.clone(), ToString::to_string);
            history.shown = Some((object.clone(), difference.clone()));
            let until = history.undone.paused_until(&ALTERED, now);
            let is_next = until.is_none() && tried.insert(content);
            is_held_back |= !is_next;
            undone.push(UndoneWrite { object, difference, until });
            is_next
        });
        for history in self.0.values().filter(|history| history.is_confirmed) {
            let Some(((object, difference), until)) = history.shown.as_ref().zip(history.lasts_at()) else { continue };
            if now < until && !undone.iter().any(|write| write.object == *object) {
                undone.push(UndoneWrite { object: object.clone(), difference: difference.clone(), until: Some(until) });
            }
        }
        if let Some(text) = text_of(&undone) {
            let until = undone.iter().filter_map(|write| write.until).min();
            plan.wait(WaitKind::WriteUndone, text, until);
        }
        undone
    }

    /// Confirms the histories of patches that the plan repeats, and drops those of patches that last.
    fn confirm<S: PlanInput>(&mut self, snapshot: &S, plan: &Plan<S::Action>, now: Timestamp) {
        let mut wanted: BTreeSet<(WriteContent, String)> = BTreeSet::new();
        for sent in plan.steps.iter().filter_map(|step| snapshot.sent_patch(&step.action)) {
            wanted.insert((WriteContent::from_patch(&sent.patch), sent.uid.to_owned()));
        }
        for (content, uid) in &wanted {
            if let Some(history) = self.0.get_mut(content) {
                history.is_confirmed |= history.was_undone(uid);
            }
        }
        self.0.retain(|content, history| {
            let is_wanted = history.tried.as_ref().is_some_and(|uid| wanted.contains(&(content.clone(), uid.clone())));
            !history.is_confirmed || is_wanted || history.lasts_at().is_some_and(|at| now < at)
        });
    }
}

/// The undone patches in one line; `None` if there are none. Completes "waiting for".
pub fn text_of(undone: &[UndoneWrite]) -> Option<String> {
    let first = undone.first()?;
    let SubjectRef { kind, name, .. } = &first.object;
    let more = match undone.len() {
        1 => String::new(),
        count => format!(" ({} more writes are undone)", count - 1),
    };
    Some(format!("the API server, or another client, to keep a write of {kind} {name}: {}{more}", first.difference))
}

#[cfg(test)]
mod tests;
