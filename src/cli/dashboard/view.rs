//! The contents of the page, from facts. Pure, except for the list of Events.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, api::ListParams};

use crate::{
    api::machine::MachineDeployment,
    cli::reading::story::{Answer, DEPLOYMENT, Facts, Manager, Verdict},
    plan::Subject,
};

/// Events that are read.
const MOST_EVENTS: u32 = 500;
/// Events that are shown.
const MOST_SHOWN: usize = 30;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub at: Timestamp,
    pub kind: String,
    pub name: String,
    pub reason: String,
    pub message: String,
    pub is_warning: bool,
    pub count: i32,
}

/// The Events of a namespace, the latest first.
pub(super) async fn occurrences(client: &Client, namespace: &str) -> kube::Result<Vec<Occurrence>> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default().limit(MOST_EVENTS)).await?;
    let mut all: Vec<Occurrence> = list.items.into_iter().filter_map(occurrence).collect();
    all.sort_by_key(|one| Reverse(one.at));
    Ok(all)
}

fn occurrence(event: Event) -> Option<Occurrence> {
    let at = event.last_timestamp.map(|time| time.0).or_else(|| event.event_time.map(|time| time.0))?;
    Some(Occurrence {
        at,
        kind: event.involved_object.kind.unwrap_or_default(),
        name: event.involved_object.name.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        is_warning: event.type_.as_deref() == Some("Warning"),
        count: event.count.unwrap_or(1),
    })
}

/// The page.
pub(super) struct View<'a> {
    pub namespace: &'a str,
    pub now: Timestamp,
    pub deployments: Vec<Row>,
    pub chosen: Option<Chosen<'a>>,
    pub managers: &'a [Manager],
    pub notes: &'a [String],
}

/// A deployment in the list.
pub(super) struct Row {
    pub name: String,
    pub verdict: Verdict,
    pub since: Option<Timestamp>,
    pub bar: Bar,
}

/// Machines of a deployment, by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bar {
    pub wanted: usize,
    pub new: usize,
    pub old: usize,
    /// Being deleted.
    pub going: usize,
    pub available: usize,
}

/// The deployment that is shown.
pub(super) struct Chosen<'a> {
    pub answer: Answer,
    pub bar: Bar,
    pub strategy: String,
    pub machines: Vec<Answer>,
    pub occurrences: Vec<&'a Occurrence>,
}

impl<'a> View<'a> {
    /// The page for a deployment, by default the worst.
    pub(super) fn of(
        facts: &'a Facts,
        occurrences: &'a [Occurrence],
        notes: &'a [String],
        chosen: Option<&str>,
    ) -> Self {
        let mut rows: Vec<Row> = facts.deployments.iter().map(|(name, one)| row(facts, name, one)).collect();
        rows.sort_by(|one, other| other.verdict.cmp(&one.verdict).then_with(|| one.name.cmp(&other.name)));
        let chosen = chosen.map(str::to_owned).or_else(|| rows.first().map(|row| row.name.clone()));
        let chosen = chosen.and_then(|name| {
            let deployment = facts.deployments.get(&name)?;
            Some(self::chosen(facts, &name, deployment, occurrences))
        });
        Self {
            namespace: &facts.namespace,
            now: facts.now,
            deployments: rows,
            chosen,
            managers: &facts.managers,
            notes,
        }
    }
}

fn subject(facts: &Facts, name: &str) -> Subject {
    Subject { kind: DEPLOYMENT.to_owned(), namespace: facts.namespace.clone(), name: name.to_owned() }
}

fn row(facts: &Facts, name: &str, deployment: &MachineDeployment) -> Row {
    let answer = facts.answer(&subject(facts, name));
    Row { name: name.to_owned(), verdict: answer.verdict, since: answer.since, bar: bar(facts, name, deployment) }
}

fn bar(facts: &Facts, name: &str, deployment: &MachineDeployment) -> Bar {
    let number = |count: i32| usize::try_from(count).unwrap_or(0);
    let status = deployment.status.clone().unwrap_or_default();
    let machines = facts.machines_below(&subject(facts, name));
    let is_going =
        |name: &String| facts.machines.get(name).is_some_and(|machine| machine.metadata.deletion_timestamp.is_some());
    let going = machines.iter().filter(|name| is_going(name)).count();
    let new = number(status.updated_replicas);
    let old = number(status.replicas).saturating_sub(new);
    Bar { wanted: number(deployment.spec.replicas), new, old, going, available: number(status.available_replicas) }
}

fn chosen<'a>(facts: &Facts, name: &str, deployment: &MachineDeployment, occurrences: &'a [Occurrence]) -> Chosen<'a> {
    let object = subject(facts, name);
    let names = facts.machines_below(&object);
    let mut machines: Vec<Answer> = names.iter().map(|name| facts.machine(name)).collect();
    machines
        .sort_by(|one, other| other.verdict.cmp(&one.verdict).then_with(|| one.object.name.cmp(&other.object.name)));
    let sets = facts.sets_of(name);
    let is_of_family = |one: &&Occurrence| {
        one.name == name && one.kind == DEPLOYMENT || names.contains(&one.name) || sets.contains(&one.name)
    };
    Chosen {
        answer: facts.answer(&object),
        bar: bar(facts, name, deployment),
        strategy: strategy(deployment),
        machines,
        occurrences: occurrences.iter().filter(is_of_family).take(MOST_SHOWN).collect(),
    }
}

/// The strategy with its bounds, as in the spec.
fn strategy(deployment: &MachineDeployment) -> String {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    let strategy = &deployment.spec.strategy;
    let bound = |name: &str, value: &Option<IntOrString>| {
        value.as_ref().map(|value| match value {
            IntOrString::Int(number) => format!(", {name} {number}"),
            IntOrString::String(text) => format!(", {name} {text}"),
        })
    };
    let bounds = match (&strategy.rolling_update, &strategy.in_place_update) {
        (Some(update), _) => [bound("maxSurge", &update.max_surge), bound("maxUnavailable", &update.max_unavailable)],
        (None, Some(update)) => {
            [bound("maxSurge", &update.max_surge), bound("maxUnavailable", &update.max_unavailable)]
        }
        (None, None) => [None, None],
    };
    format!("{}{}", strategy.type_, bounds.into_iter().flatten().collect::<String>())
}
