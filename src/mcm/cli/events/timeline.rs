//! Events of a family of objects, deduplicated and in order. Pure.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::rollout::history::revisions;
use mcm_api::reasons::EventReason;
use mcm_insight::{
    family::TemplateChange,
    story::{CLASS, DEPLOYMENT, MACHINE, NODE, NamespaceFacts, SET},
    terminal::{StatusMark, TerminalLook, cut, cut_inside, wrapped},
};
use mcm_rules::plan::SubjectRef;

/// From this age on, a time has its date.
const DAY: SignedDuration = SignedDuration::from_hours(12);

/// The least columns for messages beside the other columns.
const LEAST_MESSAGE: usize = 40;
/// Column of a message below the other columns.
const BELOW: usize = 10;

/// An event, with how often it occurred: a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Event")]
pub(in crate::cli) struct EventLine {
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub first: Timestamp,
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last: Timestamp,
    pub kind: String,
    /// Empty for a Node.
    pub namespace: String,
    pub name: String,
    /// The namespace is shown with the name.
    #[serde(skip)]
    pub is_named_fully: bool,
    pub is_warning: bool,
    pub reason: String,
    pub message: String,
    pub count: i32,
}

impl EventLine {
    /// By time. Most events have whole seconds, so those of one second are in the order of the life of a machine.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let key = |one: &Self| (one.last.as_second(), stage(&one.reason), one.last);
        key(self).cmp(&key(other)).then_with(|| (&self.name, &self.reason).cmp(&(&other.name, &other.reason)))
    }

    /// The event in a list of several namespaces.
    pub(super) fn with_namespace_in_name(self) -> Self {
        Self { is_named_fully: !self.namespace.is_empty(), ..self }
    }

    /// The name of the object as users read it.
    fn title(&self) -> Cow<'_, str> {
        match self.is_named_fully {
            true => Cow::Owned(format!("{}/{}", self.namespace, self.name)),
            false => Cow::Borrowed(&self.name),
        }
    }

    /// Differs for each time that the event occurred.
    pub(super) fn occurrence(&self) -> (String, String, String, String, i32) {
        let Self { kind, name, reason, message, count, .. } = self.clone();
        (kind, name, reason, message, count)
    }
}

/// The place of a reason in the life of a machine and its deployment.
fn stage(reason: &str) -> usize {
    LIFE.iter().position(|stage| stage.contains(&reason)).unwrap_or(OTHERS)
}

/// Reasons in the order of their first occurrence.
const LIFE: [&[&str]; 9] = [
    &["Changed"],
    &[
        EventReason::ScalingMachineSet.as_str(),
        EventReason::FrozeMachineSet.as_str(),
        EventReason::UnfrozeMachineSet.as_str(),
        EventReason::DeploymentRollback.as_str(),
    ],
    &[EventReason::SuccessfulCreate.as_str(), EventReason::FailedCreate.as_str(), EventReason::CreateFailed.as_str()],
    &[EventReason::Created.as_str()],
    &[EventReason::Joined.as_str(), EventReason::Recovered.as_str()],
    &[
        EventReason::InPlaceUpdating.as_str(),
        EventReason::Unhealthy.as_str(),
        EventReason::Failed.as_str(),
        EventReason::VmMissing.as_str(),
    ],
    &[
        EventReason::SuccessfulDelete.as_str(),
        EventReason::FailedDelete.as_str(),
        EventReason::Draining.as_str(),
        EventReason::DrainBlocked.as_str(),
    ],
    &[
        EventReason::Drained.as_str(),
        EventReason::DeleteFailed.as_str(),
        EventReason::InPlaceUpdated.as_str(),
        EventReason::InPlaceUpdateFailed.as_str(),
    ],
    &[EventReason::Deleted.as_str()],
];
/// The stage of other reasons: beside those of a machine that runs.
const OTHERS: usize = 5;

/// The objects whose events are shown.
pub(super) struct EventSubjects {
    objects: BTreeSet<(String, String)>,
    /// Names of deployments and sets, whose sets and machines may have been deleted since.
    deployments: BTreeSet<String>,
    sets: BTreeSet<String>,
}

impl EventSubjects {
    /// An object with everything below it; everything if it is `None`.
    pub(super) fn for_object(facts: &NamespaceFacts, object: Option<&SubjectRef>) -> Self {
        let roots: Vec<SubjectRef> = match object {
            Some(object) => vec![object.clone()],
            None => {
                let of_kind = |kind: &'static str| facts.names(kind).map(|name| facts.subject(kind, name));
                [DEPLOYMENT, SET, MACHINE, CLASS].into_iter().flat_map(of_kind).collect()
            }
        };
        let mut members = Self { objects: BTreeSet::new(), deployments: BTreeSet::new(), sets: BTreeSet::new() };
        for root in roots {
            members.add(facts, &root);
        }
        members
    }

    fn add(&mut self, facts: &NamespaceFacts, object: &SubjectRef) {
        if !self.objects.insert((object.kind.clone(), object.name.clone())) {
            return;
        }
        match object.kind.as_str() {
            DEPLOYMENT => {
                self.deployments.insert(object.name.clone());
                let sets = facts.family(&object.name).map(|family| family.sets).unwrap_or_default();
                for set in sets.into_iter().filter_map(|set| set.metadata.name.as_deref()) {
                    self.add(facts, &facts.subject(SET, set));
                }
            }
            SET => {
                self.sets.insert(object.name.clone());
                let machines: Vec<String> = facts.machines_of(object).cloned().collect();
                for machine in machines {
                    self.add(facts, &facts.subject(MACHINE, &machine));
                }
            }
            MACHINE => {
                let node = facts.machines.get(&object.name).and_then(|machine| machine.node_name());
                self.objects.extend(node.map(|node| (NODE.to_owned(), node.to_owned())));
            }
            _ => {}
        }
    }

    fn contain(&self, kind: &str, name: &str) -> bool {
        let is_child =
            |parents: &BTreeSet<String>| name.rsplit_once('-').is_some_and(|(parent, _)| parents.contains(parent));
        self.objects.contains(&(kind.to_owned(), name.to_owned()))
            || kind == MACHINE && is_child(&self.sets)
            || kind == SET && is_child(&self.deployments)
    }
}

/// The events of members, with one line for equal events.
pub(super) fn lines(members: &EventSubjects, events: &[Event]) -> Vec<EventLine> {
    let mut found: BTreeMap<(String, String, String, String), EventLine> = BTreeMap::new();
    for event in events {
        let about = &event.involved_object;
        let (kind, name) = (about.kind.clone().unwrap_or_default(), about.name.clone().unwrap_or_default());
        if !members.contain(&kind, &name) {
            continue;
        }
        let Some((first, last)) = times(event) else { continue };
        let series = event.series.as_ref().and_then(|series| series.count);
        let count = series.or(event.count).unwrap_or(1).max(1);
        let (reason, message) = (event.reason.clone().unwrap_or_default(), event.message.clone().unwrap_or_default());
        let key = (kind.clone(), name.clone(), reason.clone(), message.clone());
        let is_warning = event.type_.as_deref() == Some("Warning");
        let namespace = about.namespace.clone().filter(|_| kind != NODE).unwrap_or_default();
        let is_named_fully = false;
        let line =
            EventLine { first, last, kind, namespace, name, is_named_fully, is_warning, reason, message, count: 0 };
        let line = found.entry(key).or_insert(line);
        line.first = line.first.min(first);
        line.last = line.last.max(last);
        line.count = line.count.saturating_add(count);
    }
    found.into_values().collect()
}

/// When it occurred first and last.
fn times(event: &Event) -> Option<(Timestamp, Timestamp)> {
    let micro = event.event_time.as_ref().map(|time| time.0);
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let first = event.first_timestamp.as_ref().map(|time| time.0).or(micro);
    let last = series.or(event.last_timestamp.as_ref().map(|time| time.0)).or(micro);
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let last = last.or(first).or(created)?;
    Some((first.unwrap_or(last), last))
}

/// Changes of templates, which have no event.
pub(super) fn changes(facts: &NamespaceFacts, members: &EventSubjects) -> Vec<EventLine> {
    let families = members.deployments.iter().filter_map(|name| facts.family(name).map(|family| (name, family)));
    let mut found = Vec::new();
    for (name, family) in families {
        for revision in revisions(facts, &family) {
            let Some(created) = revision.created.filter(|_| !revision.changes.is_empty()) else { continue };
            let by = if revision.by.is_empty() { String::new() } else { format!(" ({})", revision.by) };
            let fields = revision.changes.iter().map(TemplateChange::to_string).collect::<Vec<_>>().join(", ");
            found.push(EventLine {
                first: created,
                last: created,
                kind: DEPLOYMENT.to_owned(),
                namespace: facts.namespace.clone(),
                name: name.clone(),
                is_named_fully: false,
                is_warning: false,
                reason: "Changed".to_owned(),
                message: format!("revision {}: {fields}{by}", revision.revision),
                count: 1,
            });
        }
    }
    found
}

/// Lines for people: time, object, reason and message, which is wrapped on a terminal; in a pipe each event has one line.
pub(in crate::cli) fn text(look: TerminalLook, lines: &[EventLine], now: Timestamp) -> String {
    let widest =
        |text: fn(&EventLine) -> usize, most: usize| lines.iter().map(text).max().unwrap_or_default().min(most);
    let name = widest(|line| line.title().chars().count(), look.width / 3);
    let reason = widest(|line| line.reason.chars().count(), 24);
    let mut text = String::new();
    for line in lines {
        let time = if now.duration_since(line.last) < DAY { "%H:%M:%S" } else { "%m-%d %H:%M" };
        let mark = if line.is_warning { look.mark(StatusMark::Look) } else { " ".to_owned() };
        let count = if line.count > 1 { format!("  ×{}", line.count) } else { String::new() };
        let time = line.last.strftime(time).to_string();
        let title = if look.is_terminal { cut_inside(&line.title(), name) } else { line.title().into_owned() };
        let head = format!("{time}  {title:<name$}  ");
        let message = format!("{}{count}", line.message.split_whitespace().collect::<Vec<_>>().join(" "));
        if !look.is_terminal {
            let _ = writeln!(text, "{head}{mark} {:<reason$}  {message}", line.reason);
            continue;
        }
        let column = head.chars().count() + reason + 4;
        let mut rest = wrapped(&message, look.width.saturating_sub(column)).into_iter();
        // Where the columns before it leave no room, the message has lines of its width.
        let is_below = look.width.saturating_sub(column) < LEAST_MESSAGE;
        if is_below {
            let _ = writeln!(text, "{head}{mark} {}", line.reason);
            rest = wrapped(&message, look.width - BELOW).into_iter();
        } else {
            let _ = writeln!(text, "{head}{mark} {:<reason$}  {}", line.reason, rest.next().unwrap_or_default());
        }
        let indent = if is_below { BELOW } else { column };
        for more in rest {
            let _ = writeln!(text, "{:indent$}{}", "", cut(&more, look.width.saturating_sub(indent)));
        }
    }
    look.written(&text)
}

/// One JSON document in each line.
pub(super) fn json_lines(lines: &[EventLine]) -> String {
    let line = |line: &EventLine| serde_json::to_string(line).map(|text| format!("{text}\n")).unwrap_or_default();
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
