//! The contents of the page, from facts. Pure.

use jiff::Timestamp;

use crate::{api::machine::MachineDeployment, cli::events::EventLine};
use mcm_insight::story::{DEPLOYMENT, ManagerLease, NamespaceFacts, ObjectAnswer, ObjectVerdict};

/// Events that are shown.
const MOST_SHOWN: usize = 30;

/// The page.
pub(super) struct DashboardView<'a> {
    pub namespace: &'a str,
    pub cluster: &'a str,
    pub now: Timestamp,
    pub deployments: Vec<DashboardRow>,
    pub chosen: Option<ChosenDeployment<'a>>,
    pub managers: &'a [ManagerLease],
    pub notes: &'a [String],
}

/// A deployment in the list.
pub(super) struct DashboardRow {
    pub name: String,
    pub verdict: ObjectVerdict,
    pub since: Option<Timestamp>,
    pub bar: MachineBar,
}

/// Machines of a deployment, by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineBar {
    pub wanted: usize,
    pub new: usize,
    pub old: usize,
    /// Being deleted.
    pub going: usize,
    pub available: usize,
}

/// The deployment that is shown.
pub(super) struct ChosenDeployment<'a> {
    pub answer: ObjectAnswer,
    pub bar: MachineBar,
    pub strategy: String,
    pub machines: Vec<ObjectAnswer>,
    /// The latest first.
    pub events: Vec<&'a EventLine>,
}

impl<'a> DashboardView<'a> {
    /// The page for a deployment, by default the worst.
    pub(super) fn from_facts(
        facts: &'a NamespaceFacts,
        events: &'a [EventLine],
        notes: &'a [String],
        chosen: Option<&str>,
    ) -> Self {
        let mut rows: Vec<DashboardRow> = facts.deployments.iter().map(|(name, one)| row(facts, name, one)).collect();
        rows.sort_by(|one, other| other.verdict.cmp(&one.verdict).then_with(|| one.name.cmp(&other.name)));
        let chosen = chosen.map(str::to_owned).or_else(|| rows.first().map(|row| row.name.clone()));
        let chosen = chosen.and_then(|name| {
            let deployment = facts.deployments.get(&name)?;
            Some(self::chosen(facts, &name, deployment, events))
        });
        Self {
            namespace: &facts.namespace,
            cluster: &facts.place.cluster,
            now: facts.now,
            deployments: rows,
            chosen,
            managers: &facts.managers,
            notes,
        }
    }
}

fn row(facts: &NamespaceFacts, name: &str, deployment: &MachineDeployment) -> DashboardRow {
    let answer = facts.answer(&facts.subject(DEPLOYMENT, name));
    DashboardRow {
        name: name.to_owned(),
        verdict: answer.verdict,
        since: answer.since,
        bar: bar(facts, name, deployment),
    }
}

fn bar(facts: &NamespaceFacts, name: &str, deployment: &MachineDeployment) -> MachineBar {
    let number = |count: i32| usize::try_from(count).unwrap_or(0);
    let status = deployment.status.clone().unwrap_or_default();
    let machines = facts.machines_below(&facts.subject(DEPLOYMENT, name));
    let is_going =
        |name: &String| facts.machines.get(name).is_some_and(|machine| machine.metadata.deletion_timestamp.is_some());
    let going = machines.iter().filter(|name| is_going(name)).count();
    let new = number(status.updated_replicas);
    let old = machines.len().saturating_sub(new + going);
    MachineBar {
        wanted: number(deployment.spec.replicas),
        new,
        old,
        going,
        available: number(status.available_replicas),
    }
}

fn chosen<'a>(
    facts: &NamespaceFacts,
    name: &str,
    deployment: &MachineDeployment,
    events: &'a [EventLine],
) -> ChosenDeployment<'a> {
    let object = facts.subject(DEPLOYMENT, name);
    let names = facts.machines_below(&object);
    let mut machines: Vec<ObjectAnswer> = names.iter().map(|name| facts.machine(name)).collect();
    machines
        .sort_by(|one, other| other.verdict.cmp(&one.verdict).then_with(|| one.object.name.cmp(&other.object.name)));
    let sets = facts.sets_of(name);
    let is_of_family = |one: &&EventLine| {
        one.name == name && one.kind == DEPLOYMENT || names.contains(&one.name) || sets.contains(&one.name)
    };
    ChosenDeployment {
        answer: facts.answer(&object),
        bar: bar(facts, name, deployment),
        strategy: strategy(deployment),
        machines,
        events: events.iter().rev().filter(is_of_family).take(MOST_SHOWN).collect(),
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
