//! Facts that the ledger records about single objects.

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::super::{super::api_server::ServerObject, desired_state::POOL, in_place, kubelet::ready_status};
use mcm_api::{labels, machine::PreserveMode};

#[derive(Clone, Debug)]
pub(super) struct MachineFacts {
    pub uid: String,
    pub name: String,
    /// UID of its set.
    pub set: String,
    /// Name of its Node, if known.
    pub node: String,
    pub phase: String,
    pub phase_since: Value,
    /// Its health timeout was restarted, because its Node could not report.
    pub is_reset: bool,
    pub provider_id: String,
    /// Its labels are those of the pool.
    pub is_in_pool: bool,
    pub priority: i64,
    /// Since when it has this priority.
    pub priority_since: Instant,
    /// Its deletion is forced.
    pub is_forced: bool,
    /// It has a deletion timestamp.
    pub is_deleted: bool,
    /// Since when.
    pub deleted_at: Option<Instant>,
    /// The autoscaler has chosen it.
    pub is_marked: bool,
    pub was_failed: bool,
    pub created_at: Instant,
    pub phase_entered_at: Instant,
    /// Until when it is preserved, and when that was stored.
    pub kept_until: Option<Timestamp>,
    pub kept_since: Option<Instant>,
    /// The preservation that the annotation of its Node requested when it was last copied, and that of its
    /// annotation.
    pub copied_request: Option<PreserveMode>,
    pub own_request: Option<PreserveMode>,
    /// Since when both are so.
    pub requested_since: Instant,
    /// Until when it could not be decoded.
    pub unreadable_until: Option<Instant>,
    /// It can be decoded.
    pub is_readable: bool,
    /// A set that has too many may choose it.
    pub may_be_chosen: bool,
    serves_since: Option<Instant>,
}

impl MachineFacts {
    pub(super) fn of(object: &ServerObject, before: Option<&Self>, now: Instant) -> Self {
        let value = &object.value;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let status = &value["status"]["currentStatus"];
        let owner = &value["metadata"]["ownerReferences"][0]["uid"];
        let request = |key: &str| PreserveMode::parse(value["metadata"]["annotations"][key].as_str()?);
        // While a Machine cannot be read it counts beyond maxUnavailable, so it may be surplus when it can be read again.
        let is_readable = value["spec"]["drainTimeout"].is_null();
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
            is_in_pool: value["metadata"]["labels"][labels::DEPLOYMENT_NAME] == POOL,
            priority: text(&value["metadata"]["annotations"][labels::PRIORITY]).parse().unwrap_or(3),
            priority_since: now,
            is_forced: value["metadata"]["labels"][labels::FORCE_DELETION] == labels::TRUE,
            is_deleted: object.is_terminating(),
            deleted_at: None,
            is_marked: !value["metadata"]["annotations"][labels::MARKED_FOR_DELETION_TIME].is_null(),
            was_failed: before.is_some_and(|before| before.was_failed || before.phase == "Failed"),
            created_at: before.map_or(now, |before| before.created_at),
            phase_entered_at: now,
            kept_until: status["preserveExpiryTime"].as_str().and_then(|time| time.parse().ok()),
            kept_since: None,
            copied_request: request(labels::LAST_NODE_PRESERVE),
            own_request: request(labels::PRESERVE),
            requested_since: now,
            is_readable,
            unreadable_until: before.and_then(|it| if it.is_readable { it.unreadable_until } else { Some(now) }),
            may_be_chosen: is_readable && value["metadata"]["labels"][labels::UPDATE_RESULT].is_null(),
            serves_since: None,
        };
        if let Some(before) =
            before.filter(|before| before.phase == facts.phase && before.phase_since == facts.phase_since)
        {
            facts.phase_entered_at = before.phase_entered_at;
        }
        let requests = |it: &Self| (it.copied_request, it.own_request);
        if let Some(before) = before.filter(|before| requests(before) == requests(&facts)) {
            facts.requested_since = before.requested_since;
        }
        if let Some(before) = before.filter(|before| before.priority == facts.priority) {
            facts.priority_since = before.priority_since;
        }
        facts.deleted_at = facts.is_deleted.then(|| before.and_then(|before| before.deleted_at).unwrap_or(now));
        facts.kept_since = facts.kept_until.map(|_| before.and_then(|before| before.kept_since).unwrap_or(now));
        if facts.is_available() && is_readable {
            facts.serves_since = Some(before.and_then(|before| before.serves_since).unwrap_or(now));
        }
        facts
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.is_deleted || self.phase == "Terminating"
    }

    pub(super) fn is_available(&self) -> bool {
        matches!(&*self.phase, "Running" | "Available") && !self.is_terminating() && self.is_in_pool
    }

    /// Preserved, or a preservation is requested.
    pub(super) fn is_to_be_kept(&self) -> bool {
        let asks = |mode: Option<PreserveMode>| mode.is_some_and(|mode| mode != PreserveMode::Never);
        self.kept_until.is_some() || asks(self.copied_request) || asks(self.own_request)
    }

    /// It is out of service because its Node is updated in place.
    pub(super) fn is_being_updated(&self) -> bool {
        matches!(&*self.phase, "InPlaceUpdating" | "InPlaceUpdateSuccessful" | "InPlaceUpdateFailed")
    }

    pub(super) fn has_served_for(&self, time: Duration) -> bool {
        self.serves_since.is_some_and(|since| since.elapsed() > time)
    }
}

#[derive(Debug, Default)]
pub(super) struct SetFacts {
    pub name: String,
    /// When its deletion began.
    pub deleted_at: Option<Instant>,
    /// Since when it is frozen.
    pub frozen_since: Option<Instant>,
    /// Replicas, and the end of the time for which they were requested.
    former: VecDeque<(Instant, usize)>,
    replicas: usize,
}

impl SetFacts {
    pub(super) fn update(&mut self, set: &ServerObject) {
        let replicas = set.value["spec"]["replicas"].as_u64().and_then(|count| usize::try_from(count).ok());
        let replicas = replicas.unwrap_or_default();
        if replicas != self.replicas {
            self.former.push_back((Instant::now(), self.replicas));
        }
        self.replicas = replicas;
        set.name().clone_into(&mut self.name);
        self.deleted_at = set.is_terminating().then(|| self.deleted_at.unwrap_or_else(Instant::now));
        let is_frozen = set.value["metadata"]["labels"][labels::FREEZE] == labels::TRUE;
        self.frozen_since = is_frozen.then(|| self.frozen_since.unwrap_or_else(Instant::now));
    }

    fn recent(&self, within: Duration) -> impl Iterator<Item = usize> {
        let former = self.former.iter().filter(move |(until, _)| until.elapsed() <= within);
        former.map(|(_, replicas)| *replicas).chain([self.replicas])
    }

    pub(super) fn most_replicas(&self, within: Duration) -> usize {
        self.recent(within).max().unwrap_or_default()
    }

    pub(super) fn least_replicas(&self, within: Duration) -> usize {
        // Before it was created, it requested none.
        self.recent(within).min().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
pub(super) struct NodeFacts {
    pub provider_id: String,
    pub is_terminating: bool,
    pub is_cordoned: bool,
    /// It is to be updated in place.
    pub is_selected: bool,
    /// How far its in-place update is.
    pub progress: String,
    /// The result that the agent reported.
    pub result: String,
    /// When a Node of this name was last deleted.
    pub gone_at: Option<Instant>,
    pub ready_since: Option<Instant>,
    updated_at: Option<Instant>,
}

impl NodeFacts {
    pub(super) fn of(node: Option<&ServerObject>, before: Option<&Self>) -> Self {
        let now = Instant::now();
        let Some(node) = node else { return Self { gone_at: Some(now), ..Self::default() } };
        let result = in_place::result_of(node);
        let (ready_since, updated_at) =
            before.map(|before| (before.ready_since, before.updated_at)).unwrap_or_default();
        Self {
            provider_id: node.value["spec"]["providerID"].as_str().unwrap_or_default().to_owned(),
            is_terminating: node.is_terminating(),
            is_cordoned: node.value["spec"]["unschedulable"] == true,
            is_selected: in_place::is_selected(node),
            progress: in_place::progress(node).to_owned(),
            result: result.to_owned(),
            gone_at: before.and_then(|before| before.gone_at),
            ready_since: (ready_status(node) == "True").then(|| ready_since.unwrap_or(now)),
            updated_at: (result == labels::SUCCESSFUL).then(|| updated_at.unwrap_or(now)),
        }
    }

    pub(super) fn has_been_ready_for(&self, time: Duration) -> bool {
        self.ready_since.is_some_and(|since| since.elapsed() > time)
    }

    /// Its agent reported success so long ago.
    pub(super) fn has_been_updated_for(&self, time: Duration) -> bool {
        self.updated_at.is_some_and(|since| since.elapsed() > time)
    }

    /// Its in-place update is under way, or is over and not tidied up.
    pub(super) fn is_being_updated(&self) -> bool {
        self.is_selected || !self.result.is_empty()
    }
}
