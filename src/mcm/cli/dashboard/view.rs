//! The contents of the page, from facts. Pure.

use jiff::Timestamp;

use crate::{
    api::{machine::MachineDeployment, reasons::EventReason},
    cli::events::EventLine,
};
use mcm_insight::{
    progress::RolloutProgress,
    story::{DEPLOYMENT, ManagerLease, NamespaceFacts, ObjectAnswer, ObjectVerdict, SET},
};
use mcm_rules::plan::{WaitKind, guide::WaitEnd};

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
    pub silence: Option<ServerSilence>,
    /// Machines without a set and sets without a deployment.
    pub ownerless: Vec<ObjectAnswer>,
    /// Reports of managers about VMs without a machine, the latest first.
    pub orphans: Vec<&'a EventLine>,
    /// The command that lists all VMs.
    pub vms: String,
}

/// The control cluster does not answer, and the page shows its last state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerSilence {
    /// The time of that state.
    pub since: Timestamp,
    pub error: String,
}

/// A deployment in the list.
pub(super) struct DashboardRow {
    pub name: String,
    pub verdict: ObjectVerdict,
    pub urgency: RowUrgency,
    pub since: Option<Timestamp>,
    pub bar: MachineBar,
}

/// The order of the list. A deliberate pause hurries less than anything that waits without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowUrgency {
    Settled,
    Progressing,
    Paused,
    Waiting,
    Unknown,
    Blocked,
}

/// Machines of a deployment, by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineBar {
    pub wanted: i32,
    /// Of the current template, and available.
    pub new: i32,
    /// Of the current template, and not available yet.
    pub starting: i32,
    pub old: i32,
    /// Being deleted.
    pub going: i32,
    pub available: i32,
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
        silence: Option<ServerSilence>,
        chosen: Option<&str>,
    ) -> Self {
        let mut rows: Vec<DashboardRow> = facts.deployments.keys().map(|name| row(facts, name)).collect();
        rows.sort_by(|one, other| other.urgency.cmp(&one.urgency).then_with(|| one.name.cmp(&other.name)));
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
            silence,
            ownerless: ownerless(facts),
            orphans: events.iter().rev().filter(is_of_orphan).take(MOST_SHOWN).collect(),
            vms: facts.place.call.addressed(&format!("mcm vms -n {}", facts.namespace), false),
        }
    }
}

fn row(facts: &NamespaceFacts, name: &str) -> DashboardRow {
    let answer = facts.answer(&facts.subject(DEPLOYMENT, name));
    DashboardRow {
        name: name.to_owned(),
        verdict: answer.verdict,
        urgency: urgency(&answer),
        since: answer.since,
        bar: bar(facts, name),
    }
}

fn urgency(answer: &ObjectAnswer) -> RowUrgency {
    let all = [answer].into_iter().chain(&answer.sets).chain(&answer.machines);
    let mut of_user = all.clone().flat_map(|one| &one.waits).filter(|wait| wait.end == WaitEnd::User).peekable();
    let is_paused = of_user.peek().is_some() && of_user.all(|wait| wait.kind == WaitKind::Paused);
    // Without the pause the worst of the rest counts, such as a drain that a budget holds up.
    let verdict = match is_paused {
        true => answer.machines.iter().chain(&answer.sets).map(|one| one.verdict).max(),
        false => Some(answer.verdict),
    };
    match verdict {
        Some(ObjectVerdict::Blocked) => RowUrgency::Blocked,
        Some(ObjectVerdict::Unknown) => RowUrgency::Unknown,
        Some(ObjectVerdict::Waiting) => RowUrgency::Waiting,
        _ if is_paused => RowUrgency::Paused,
        Some(ObjectVerdict::Progressing) => RowUrgency::Progressing,
        Some(ObjectVerdict::Settled) | None => RowUrgency::Settled,
    }
}

fn bar(facts: &NamespaceFacts, name: &str) -> MachineBar {
    let progress = facts.progress(name).unwrap_or_default();
    let RolloutProgress { wanted, new, starting, old, going, up, .. } = progress;
    MachineBar { wanted, new, starting, old, going, available: up }
}

fn ownerless(facts: &NamespaceFacts) -> Vec<ObjectAnswer> {
    let machines = facts.machines.iter().filter(|(_, machine)| machine.is_ownerless());
    let machines = machines.map(|(name, _)| facts.machine(name));
    let sets = facts.sets.iter().filter(|(_, set)| set.is_ownerless());
    machines.chain(sets.map(|(name, _)| facts.answer(&facts.subject(SET, name)))).take(MOST_SHOWN).collect()
}

/// A VM without a machine was found, kept, drained or deleted.
fn is_of_orphan(line: &&EventLine) -> bool {
    use EventReason::{OrphanDeleted, OrphanDraining, OrphanFound, OrphanKept};
    [OrphanFound, OrphanKept, OrphanDraining, OrphanDeleted].iter().any(|reason| line.reason == reason.as_str())
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
        bar: bar(facts, name),
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

#[cfg(test)]
mod tests;
