//! The state of each object from its status. Pure.

use jiff::Timestamp;
use kube::ResourceExt;

use super::story::{DEPLOYMENT, MACHINE, NamespaceFacts, SET, budget_in};
use crate::{
    terminal::{ago, short},
    wording::{NEVER, error_of_cloud},
};
use mcm_api::{
    GoDuration,
    machine::{Machine, MachineDeployment, MachinePhase, MachineSet, OperationState, OperationType},
    reasons::{EventReason, MachineConditionType},
};
use mcm_controllers::machine::DrainReason;
use mcm_rules::plan::{SubjectRef, Wait, WaitKind};

impl NamespaceFacts {
    /// When the drain for which a wait of an object lasts is forced. Without a timeout in the Machine, the manager has it.
    pub fn drain_ends(&self, kind: WaitKind, object: &SubjectRef) -> Option<Timestamp> {
        let machine = self.machines.get(&object.name).filter(|_| object.kind == MACHINE && is_of_drain(kind))?;
        let timeout = machine.spec.configuration.drain_timeout.map(GoDuration::as_signed)?;
        let deleted = machine.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let selected = || {
            let is_updated = DrainReason::for_machine(machine) == Some(DrainReason::InPlaceUpdate);
            let mut conditions = machine.status.iter().flat_map(|status| &status.conditions).filter(|_| is_updated);
            conditions.find(|one| one.type_ == IN_PLACE_UPDATE)?.last_transition_time.map(Timestamp::from)
        };
        deleted.or_else(selected)?.checked_add(timeout).ok()
    }

    pub fn known(&self, object: &SubjectRef) -> ReportedState {
        let name = &object.name;
        let known = match object.kind.as_str() {
            DEPLOYMENT => self.deployments.get(name).map(of_deployment),
            SET => self.sets.get(name).map(|set| ReportedState { owners: self.owners(set), ..of_set(set) }),
            MACHINE => {
                let of = |machine| ReportedState { owners: self.owners(machine), ..of_machine(machine, self.now) };
                self.machines.get(name).map(of)
            }
            _ => None,
        };
        known.unwrap_or_default()
    }

    /// Owners, up to the deployment.
    fn owners(&self, object: &impl ResourceExt) -> Vec<SubjectRef> {
        let Some(owner) = object.owner_references().iter().find(|owner| owner.controller == Some(true)) else {
            return Vec::new();
        };
        let subject = self.subject(&owner.kind, &owner.name);
        let above = match owner.kind.as_str() {
            SET => self.sets.get(&owner.name).map(|set| self.owners(set)),
            _ => None,
        };
        [subject].into_iter().chain(above.unwrap_or_default()).collect()
    }
}

/// The condition of a Machine whose Node is updated in place.
const IN_PLACE_UPDATE: &str = "InPlaceUpdate";

const fn is_of_drain(kind: WaitKind) -> bool {
    use WaitKind::{Eviction, PodList, PodTermination, VolumeAttachment, VolumeDetachment, VolumeTurn, VolumesUnknown};
    matches!(
        kind,
        Eviction | PodList | PodTermination | VolumeAttachment | VolumeDetachment | VolumeTurn | VolumesUnknown
    )
}

/// The state of an object from its status.
#[derive(Default)]
pub struct ReportedState {
    pub state: String,
    pub since: Option<Timestamp>,
    pub failed: Option<String>,
    /// A wait that its status shows.
    pub shown: Option<Wait>,
    /// A write that the API server refuses, as a condition shows it.
    pub refused: Option<Wait>,
    /// The wait of a Machine whose creation failed: it holds up the creation of its replacement.
    pub failed_creation: Option<Wait>,
    pub owners: Vec<SubjectRef>,
}

/// The condition of a Machine whose drain makes no progress.
const DRAIN_BLOCKED: &str = MachineConditionType::DrainBlocked.as_str();

/// The beginning of `lastOperation.description` of a Machine whose creation needs something.
const NEEDS: &str = "Waiting for ";
/// The beginning of what it needs while its bootstrap token could not be created.
const TOKEN: &str = "a bootstrap token";
/// The end of `lastOperation.description` while a Node is drained.
const DRAINS: &str = "Initiate node drain";
/// The same while volumes are detached.
const DETACHES: &str = "Delete Volume Attachments";
/// The same while the Node is deleted.
const DELETES_NODE: &str = "Initiate node object deletion";
/// The part of the text of a drain whose pods were evicted, and do not end, such as those with a finalizer.
const NOT_ENDED: &str = "error when waiting for pod";
/// The part of the text of a drain whose pods could not be evicted.
const NOT_EVICTED: &str = "error when evicting pod";
/// The part of the text of a Machine whose Node did not join until the creation timeout.
const NOT_JOINED: &str = "failed to join the cluster in";
/// The part of the text of a drain whose Node could not be cordoned.
const NOT_CORDONED: &str = "failure in update of node conditions";

/// The wait that the status of a Machine shows: a drain without progress, something that its creation needs, or a failed call of
/// the cloud.
fn shown_wait(machine: &Machine) -> Option<Wait> {
    let status = machine.status.clone().unwrap_or_default();
    let deleted = machine.metadata.deletion_timestamp.as_ref();
    let eviction = |text: &str| Some(Wait::new(WaitKind::Eviction, eviction_text(text), None));
    let last = status.last_operation;
    let text = last.description.trim_end_matches(DRAINS).trim();
    if let Some(blocked) = status.conditions.iter().find(|one| one.type_ == DRAIN_BLOCKED && one.status == "True") {
        return eviction(blocked.message.as_deref().unwrap_or_default());
    }
    if deleted.is_some() && text.len() < last.description.len() && text.contains("disruption budget") {
        return eviction(text);
    }
    if let Some(needed) = text.strip_prefix(NEEDS) {
        let kind = match needed {
            // The token is a Secret of the target cluster that the manager creates.
            _ if needed.starts_with(TOKEN) => WaitKind::BootstrapToken,
            _ if needed.to_lowercase().contains("secret") => WaitKind::Secret,
            _ if needed.contains("MachineClass") => WaitKind::Class,
            _ => WaitKind::MachineWrite,
        };
        return Some(Wait::new(kind, short(needed), None));
    }
    (last.state == Some(OperationState::Failed)).then(|| failed_step(&last.description))
}

/// The wait for the cause of a failed creation, which outlasts the Machine.
fn failed_creation(machine: &Machine) -> Option<Wait> {
    let last = &machine.status.as_ref()?.last_operation;
    let is_of_creation = last.type_ == Some(OperationType::Create) && last.state == Some(OperationState::Failed);
    if !is_of_creation || machine.phase() != MachinePhase::Failed || machine.is_terminating() {
        return None;
    }
    if last.description.contains(NOT_JOINED) {
        let text = "the Node of its replacement to join: its own did not until the creation timeout";
        return Some(Wait::new(WaitKind::NodeJoin, text.to_owned(), None));
    }
    let (code, message) = error_of_cloud(&last.description)?;
    let text = format!("the creation of its replacement, after {code}: {}", short(message));
    Some(Wait::new(WaitKind::DriverRetry, text, None))
}

/// The wait for the next attempt of a step that failed, by the end of the text that names it.
fn failed_step(description: &str) -> Wait {
    if let Some((code, message)) = error_of_cloud(description) {
        return Wait::new(WaitKind::DriverRetry, format!("the next attempt, after {code}: {}", short(message)), None);
    }
    let of_step = |step| description.strip_suffix(step).map(str::trim);
    if let Some(text) = of_step(DRAINS) {
        if text.contains(NOT_ENDED) && !text.contains(NOT_EVICTED) {
            return Wait::new(WaitKind::PodTermination, format!("pods to terminate: {}", short(text)), None);
        }
        return match text.contains(NOT_CORDONED) {
            true => {
                Wait::new(WaitKind::NodeWriteRefused, format!("a write to the Node to succeed: {}", short(text)), None)
            }
            false => Wait::new(WaitKind::Eviction, eviction_text(text), None),
        };
    }
    let (kind, what, text) = match (of_step(DETACHES), of_step(DELETES_NODE)) {
        (Some(text), _) => (WaitKind::VolumeAttachment, "volumes to be detached", text),
        (_, Some(text)) => (WaitKind::NodeWriteRefused, "the deletion of the Node to succeed", text),
        _ => (WaitKind::DriverRetry, "the next attempt", description),
    };
    Wait::new(kind, format!("{what}: {}", short(text)), None)
}

/// The wait for an eviction. The name of the budget is first: narrow screens show the beginning.
fn eviction_text(text: &str) -> String {
    let Some((namespace, name)) = budget_in(text) else { return format!("pods to be evicted: {}", short(text)) };
    let is_never = ["although all its pods are healthy", "is misconfigured"].iter().any(|words| text.contains(words));
    let never = if is_never { NEVER } else { "" };
    format!("budget {namespace}/{name} to allow an eviction{never}")
}

fn of_deployment(deployment: &MachineDeployment) -> ReportedState {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas;
    let state = format!(
        "{} of {wanted} machines updated, {} available, {} in total",
        status.updated_replicas, status.available_replicas, status.replicas
    );
    let since = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
    let since = since.and_then(|condition| condition.last_update_time.as_ref()).map(|time| time.0);
    let failed = status.failed_machines.first().map(|summary| {
        let text = summary.last_operation.description.as_str();
        format!("{}: {}", summary.name, error_of_cloud(text).map_or(text, |(_, message)| message))
    });
    let conditions = status.conditions.iter();
    let refused = refused_write(conditions.map(|one| [&one.type_, &one.status, &one.reason, &one.message]));
    ReportedState { state, since, failed, refused, ..ReportedState::default() }
}

/// The write of a set or a Machine that the API server refuses, from conditions with type, status, reason and message.
fn refused_write<'a>(mut conditions: impl Iterator<Item = [&'a String; 4]>) -> Option<Wait> {
    let [.., message] = conditions.find(|[type_, status, reason, _]| match (type_.as_str(), status.as_str()) {
        ("ReplicaFailure", "True") => true,
        ("Progressing", "False") => reason.as_str() == EventReason::MachineSetCreateError.as_str(),
        _ => false,
    })?;
    let text = format!("the API server to accept a write: {}", short(message));
    Some(Wait::new(WaitKind::MachineWrite, text, None))
}

fn of_set(set: &MachineSet) -> ReportedState {
    let status = set.status.clone().unwrap_or_default();
    let state =
        format!("{} of {} machines, {} available", status.replicas, set.spec.replicas, status.available_replicas);
    let conditions = status.conditions.iter();
    let refused = refused_write(conditions.map(|one| [&one.type_, &one.status, &one.reason, &one.message]));
    ReportedState { state, refused, ..ReportedState::default() }
}

fn of_machine(machine: &Machine, now: Timestamp) -> ReportedState {
    let status = machine.status.clone().unwrap_or_default();
    let deleted = machine.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let phase = status.current_status.phase;
    let state = match (deleted, phase.as_str()) {
        (Some(_), _) => "Terminating".to_owned(),
        (None, "") => "new".to_owned(),
        (None, phase) => phase.to_owned(),
    };
    let since = deleted.or_else(|| status.current_status.last_update_time.as_ref().map(|time| time.0));
    let last = status.last_operation;
    let failed = (last.state == Some(OperationState::Failed)).then(|| {
        let age = last.last_update_time.as_ref().map(|time| format!(", {} ago", ago(now, time.0))).unwrap_or_default();
        let code = if last.error_code.is_empty() { String::new() } else { format!(" ({})", last.error_code) };
        let text = error_of_cloud(&last.description).map_or(last.description.as_str(), |(_, message)| message);
        format!("{}{code}{age}", short(text))
    });
    let since = since.or_else(|| machine.creation_timestamp().map(|time| time.0));
    let (shown, failed_creation) = (shown_wait(machine), failed_creation(machine));
    ReportedState { state, since, failed, shown, failed_creation, ..ReportedState::default() }
}
