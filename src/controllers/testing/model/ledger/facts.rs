//! What the ledger knows of single objects.

use std::{collections::VecDeque, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use super::super::super::api_server::Object;
use crate::api::labels;

#[derive(Clone, Debug)]
pub(super) struct MachineFacts {
    pub uid: String,
    pub name: String,
    /// UID of its set.
    pub set: String,
    /// Name of its Node, if it says so.
    pub node: String,
    pub phase: String,
    pub phase_since: Value,
    /// Its health timeout began anew, because its Node could not report.
    pub is_reset: bool,
    pub provider_id: String,
    /// It has a deletion timestamp.
    pub is_deleted: bool,
    /// The autoscaler has chosen it.
    pub is_marked: bool,
    pub was_failed: bool,
    pub created_at: Instant,
    serves_since: Option<Instant>,
}

impl MachineFacts {
    pub(super) fn of(object: &Object, before: Option<&Self>, now: Instant) -> Self {
        let value = &object.value;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &value["status"]["currentStatus"];
        let owner = &value["metadata"]["ownerReferences"][0]["uid"];
        let mut facts = Self {
            uid: object.uid().to_owned(),
            name: object.name().to_owned(),
            set: text(owner),
            node: text(&value["metadata"]["labels"][labels::NODE]),
            phase: text(&status["phase"]),
            phase_since: status["lastUpdateTime"].clone(),
            is_reset: text(&value["status"]["lastOperation"]["description"])
                .starts_with("Machine Health Timeout was reset"),
            provider_id: text(&value["spec"]["providerID"]),
            is_deleted: object.is_terminating(),
            is_marked: !value["metadata"]["annotations"][labels::MARKED_FOR_DELETION_TIME].is_null(),
            was_failed: before.is_some_and(|before| before.was_failed || before.phase == "Failed"),
            created_at: before.map_or(now, |before| before.created_at),
            serves_since: None,
        };
        // While a Machine cannot be read it counts beyond maxUnavailable, so it may be surplus when it can be read again.
        let is_readable = value["spec"]["drainTimeout"].is_null();
        if facts.is_available() && is_readable {
            facts.serves_since = Some(before.and_then(|before| before.serves_since).unwrap_or(now));
        }
        facts
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.is_deleted || self.phase == "Terminating"
    }

    pub(super) fn is_available(&self) -> bool {
        matches!(&*self.phase, "Running" | "Available") && !self.is_terminating()
    }

    pub(super) fn has_served_for(&self, time: Duration) -> bool {
        self.serves_since.is_some_and(|since| since.elapsed() > time)
    }
}

#[derive(Debug, Default)]
pub(super) struct SetFacts {
    pub name: String,
    pub is_deleted: bool,
    /// Replicas, and until when they were asked for.
    former: VecDeque<(Instant, usize)>,
    replicas: usize,
}

impl SetFacts {
    pub(super) fn update(&mut self, set: &Object) {
        let replicas = set.value["spec"]["replicas"].as_u64().and_then(|count| usize::try_from(count).ok());
        let replicas = replicas.unwrap_or_default();
        if replicas != self.replicas {
            self.former.push_back((Instant::now(), self.replicas));
        }
        self.replicas = replicas;
        set.name().clone_into(&mut self.name);
        self.is_deleted = set.is_terminating();
    }

    fn recent(&self, within: Duration) -> impl Iterator<Item = usize> {
        let former = self.former.iter().filter(move |(until, _)| until.elapsed() <= within);
        former.map(|(_, replicas)| *replicas).chain([self.replicas])
    }

    pub(super) fn most_replicas(&self, within: Duration) -> usize {
        self.recent(within).max().unwrap_or_default()
    }

    pub(super) fn least_replicas(&self, within: Duration) -> usize {
        // Before it was made, it asked for none.
        self.recent(within).min().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct NodeFacts {
    pub provider_id: String,
    pub is_terminating: bool,
    /// When a Node of this name was last deleted.
    pub gone_at: Option<Instant>,
    ready_since: Option<Instant>,
}

impl NodeFacts {
    pub(super) fn update(&mut self, node: Option<&Object>, ready: &str) {
        let now = Instant::now();
        let Some(node) = node else {
            *self = Self { gone_at: Some(now), ..Self::default() };
            return;
        };
        self.provider_id = node.value["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
        self.is_terminating = node.is_terminating();
        self.ready_since = (ready == "True").then(|| self.ready_since.unwrap_or(now));
    }

    pub(super) fn has_been_ready_for(&self, time: Duration) -> bool {
        self.ready_since.is_some_and(|since| since.elapsed() > time)
    }
}
