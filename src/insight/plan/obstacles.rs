//! Obstacles of a change.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{
    answer::{Action, BlockerRemedy, BlockerSeverity, ObjectPlan, PlanBlocker, PlanVerdict},
    outcome::brief,
    rehearse::SecretFaults,
};
use crate::{
    advice,
    budget::BudgetState,
    family::is_frozen,
    rehearsal::record::{RehearsalCourse, RehearsalWait},
    story::{ExplainedWait, ObjectAnswer, ObjectRemedy, SET, UndecodableObject, filled},
};
use mcm_api::{
    GoDuration, labels,
    machine::{Machine, MachineClass, MachineDeployment, MachineSet, SecretRef, StrategyType},
};
use mcm_controllers::{
    machine::DrainReason,
    machine_class::secret_refs,
    machine_deployment::bounds_of,
    object::owner::controller_uid,
    overshoot::{OvershootPolicy, limits_of_set},
};
use mcm_driver_host::{DriverCatalogue, NotValidated};
use mcm_rules::plan::{
    SubjectRef, WaitKind, counted,
    guide::{RemedyDanger, WaitEnd},
};

/// The most texts of waits.
const MOST: usize = 5;

fn blocker(kind: &str, severity: BlockerSeverity, subject: String, text: String) -> PlanBlocker {
    PlanBlocker { wait_kind: kind.to_owned(), severity, subject, text, remedies: Vec::new(), is_now: false }
}

/// The waits at the end of a rehearsal that no controller ends, one for each text.
pub fn of_waits(waits: &[RehearsalWait], namespace: &str) -> Vec<PlanBlocker> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for told in waits {
        let guide = told.wait.kind.guide();
        let is_ours = matches!(guide.end, WaitEnd::Routine | WaitEnd::Controllers);
        // A rehearsed Node always joins: a Machine that waits for one waits for something else. A pause is in the way of the whole plan.
        let is_elsewhere = matches!(told.wait.kind, WaitKind::NodeJoin | WaitKind::Paused);
        if is_ours || is_elsewhere || !seen.insert((told.kind, told.wait.text.clone())) {
            continue;
        }
        let severity = if guide.end == WaitEnd::User { BlockerSeverity::Blocks } else { BlockerSeverity::Delays };
        let text = format!("at the end, {} waits for {}", told.name, told.wait.text);
        let object =
            SubjectRef { kind: told.kind.to_owned(), namespace: namespace.to_owned(), name: told.name.clone() };
        let remedies = guide.remedies.iter().filter_map(|remedy| filled(remedy, &object, None, &told.wait.text));
        let remedies = remedies.map(remedy_of_plan).collect();
        let subject = format!("{}/{}", told.kind, told.name);
        let wait_kind = format!("{:?}", told.wait.kind);
        found.push(PlanBlocker { wait_kind, severity, subject, text, remedies, is_now: false });
        if found.len() == MOST {
            break;
        }
    }
    found
}

/// Facts about the deployment and its machines.
pub fn of_objects(
    plan: &ObjectPlan,
    wanted: Option<&MachineDeployment>,
    machines: &[&Machine],
    now: Timestamp,
) -> Vec<PlanBlocker> {
    let mut found = Vec::new();
    let subject = format!("MachineDeployment/{}", plan.name);
    if let Some(wanted) = wanted {
        if wanted.spec.paused {
            let text = "the deployment is paused: a new template waits until spec.paused is false".to_owned();
            let command = format!(
                "kubectl patch machinedeployments.machine.sapcloud.io {} -n {} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'",
                plan.name, plan.namespace
            );
            let remedies = vec![BlockerRemedy { command, danger: RemedyDanger::ReplacesMachines }];
            // Without a new template, nothing waits for it.
            let severity = if plan.settles { BlockerSeverity::Delays } else { BlockerSeverity::Blocks };
            let kind = format!("{:?}", WaitKind::Paused);
            found.push(PlanBlocker { remedies, ..blocker(&kind, severity, subject.clone(), text) });
        }
        if let (PlanVerdict::Replaces | PlanVerdict::UpdatesInPlace, Ok(bounds)) = (plan.verdict, bounds_of(wanted))
            && is_without_room(wanted)
        {
            let text = format!(
                "maxSurge and maxUnavailable are both 0: the controllers take maxUnavailable {} instead",
                bounds.max_unavailable
            );
            found.push(blocker("", BlockerSeverity::Delays, subject.clone(), text));
        }
        let orchestration =
            wanted.spec.strategy.in_place_update.as_ref().map(|update| update.orchestration_type.as_str());
        if plan.verdict == PlanVerdict::UpdatesInPlace && orchestration == Some("Manual") {
            let text = format!("a user has to select each Node: label it with {}", labels::SELECTED_FOR_UPDATE);
            found.push(blocker("InPlaceUpdate", BlockerSeverity::Blocks, subject, text));
        }
    }
    let goes = plan.machines.iter().filter(|one| matches!(one.action, Action::Replace | Action::Delete));
    let goes: BTreeSet<&str> = goes.map(|one| one.name.as_str()).collect();
    for machine in machines {
        let name = machine.name_any();
        if let Some(until) = machine.preserved_until(now).filter(|_| goes.contains(name.as_str())) {
            let text = format!("{name} is preserved until {until:.0}: it is deleted last");
            found.push(blocker("Preservation", BlockerSeverity::Delays, format!("Machine/{name}"), text));
        }
    }
    found
}

/// The frozen sets that would create machines. The label of a deployment, which the controllers set beside that of its set, holds
/// nothing back.
pub fn of_frozen_sets(
    sets: &[&MachineSet],
    course: &RehearsalCourse,
    machines: &[&Machine],
    deployment: Option<&MachineDeployment>,
    policy: &OvershootPolicy,
) -> Vec<PlanBlocker> {
    let is_held_back = |set: &MachineSet| {
        let is_waiting = |told: &RehearsalWait| {
            told.kind == SET && told.wait.kind == WaitKind::ScaleUpBlocked && told.name == set.name_any()
        };
        let is_growing = set.uid().is_some_and(|uid| course.grown.contains(&uid));
        is_frozen(set) && (is_growing || course.waits.iter().any(is_waiting))
    };
    let told = |set: &MachineSet| {
        let (name, uid) = (set.name_any(), set.uid().unwrap_or_default());
        let count = machines.iter().filter(|machine| controller_uid(**machine) == uid).count();
        let most = limits_of_set(deployment, set, policy).map(|limits| limits.lower);
        let most = most.map(|most| format!(" once the set has at most {most} machines")).unwrap_or_default();
        let text = format!(
            "set {name} is frozen (label {}={}): it creates no machine until an overshoot check, every {}, removes the label{most}; \
             it has {count}",
            labels::FREEZE,
            labels::TRUE,
            brief(policy.period.into())
        );
        let kind = WaitKind::ScaleUpBlocked;
        let namespace = set.namespace().unwrap_or_default();
        let object = SubjectRef { kind: SET.to_owned(), namespace, name: name.clone() };
        let of_guide = kind.guide().remedies.into_iter().filter_map(|remedy| filled(&remedy, &object, None, &text));
        let unfreeze = advice::unfreeze(&name, &object.namespace);
        let remedies = [unfreeze].into_iter().chain(of_guide).map(remedy_of_plan).collect();
        let found = blocker(&format!("{kind:?}"), BlockerSeverity::Blocks, format!("{SET}/{name}"), text);
        PlanBlocker { remedies, ..found }
    };
    sets.iter().copied().filter(|set| is_held_back(set)).map(told).collect()
}

/// Both amounts are written as zero.
fn is_without_room(deployment: &MachineDeployment) -> bool {
    let strategy = &deployment.spec.strategy;
    let amounts = match strategy.kind() {
        Some(StrategyType::RollingUpdate) => {
            strategy.rolling_update.as_ref().map(|one| (&one.max_surge, &one.max_unavailable))
        }
        Some(StrategyType::InPlaceUpdate) => {
            strategy.in_place_update.as_ref().map(|one| (&one.max_surge, &one.max_unavailable))
        }
        _ => None,
    };
    let is_zero = |amount: &Option<IntOrString>| match amount {
        Some(IntOrString::Int(number)) => *number == 0,
        Some(IntOrString::String(text)) => text.trim_end_matches('%') == "0",
        None => false,
    };
    amounts.is_some_and(|(surge, unavailable)| is_zero(surge) && is_zero(unavailable))
}

/// Faults of the class of the machines that are created.
pub fn of_class(
    name: &str,
    class: Option<&MachineClass>,
    drivers: &DriverCatalogue,
    secrets: &SecretFaults,
) -> Vec<PlanBlocker> {
    let subject = format!("MachineClass/{name}");
    let Some(class) = class else {
        let text = format!("class {name} does not exist: no machine can be created");
        return vec![blocker("Class", BlockerSeverity::Blocks, subject, text)];
    };
    let mut found = Vec::new();
    match drivers.validate(class) {
        Ok(problems) => {
            if !problems.errors.is_empty() {
                let text = format!("class {name} is invalid: {}", problems.error_text());
                found.push(blocker("Class", BlockerSeverity::Blocks, subject.clone(), text));
            }
        }
        Err(NotValidated::Unknown(_)) => {
            let provider = &class.provider;
            let text = format!("class {name} was not checked: this build has no driver for provider {provider:?}");
            found.push(blocker("", BlockerSeverity::Delays, subject.clone(), text));
        }
        Err(NotValidated::NotYet) => {}
    }
    for secret in secret_refs(class).filter(|secret| secrets.missing.contains(&secret.name)) {
        let text = format!("Secret {} of class {name} does not exist: no machine can be created", secret.name);
        found.push(blocker("Secret", BlockerSeverity::Blocks, format!("Secret/{}", secret.name), text));
    }
    let without = |secret: &&SecretRef| secrets.without_user_data.contains(&secret.name);
    if let Some(secret) =
        secret_refs(class).next().filter(without).filter(|_| secret_refs(class).all(|one| without(&one)))
    {
        let text = format!("no Secret of class {name} has the key userData: no machine can be created");
        found.push(blocker("Secret", BlockerSeverity::Blocks, format!("Secret/{}", secret.name), text));
    }
    found
}

/// An object that cannot be decoded.
pub fn of_undecodable(one: &UndecodableObject, namespace: &str) -> PlanBlocker {
    let text = "a user has to correct it: the controllers leave it alone until then".to_owned();
    let remedies = vec![BlockerRemedy { command: one.correction(namespace), danger: RemedyDanger::Safe }];
    let (kind, subject) = (format!("{:?}", WaitKind::Unreadable), format!("{}/{}", one.kind, one.name));
    PlanBlocker { remedies, is_now: true, ..blocker(&kind, BlockerSeverity::Blocks, subject, text) }
}

/// A class of which the cloud creates no VM.
pub fn of_stock_out(class: &str) -> PlanBlocker {
    let text = format!("the cloud has no VM of class {class} left: no machine can be created");
    blocker("DriverRetry", BlockerSeverity::Blocks, format!("MachineClass/{class}"), text)
}

/// Waits of an object, and of its sets and machines, that no controller ends now. With `of_drains`, only drains under way and a
/// missing manager: a change of the object may end the other waits.
pub fn of_now(answer: &ObjectAnswer, of_drains: bool) -> Vec<PlanBlocker> {
    let all = [answer].into_iter().chain(&answer.sets).chain(&answer.machines);
    let waits = all.flat_map(|one| one.waits.iter().map(move |wait| (&one.object, wait)));
    let ended_elsewhere = waits.filter(|(_, wait)| matches!(wait.end, WaitEnd::User | WaitEnd::Others));
    let mut seen = BTreeSet::new();
    let is_counted = |(_, wait): &(&SubjectRef, &ExplainedWait)| {
        !of_drains && wait.end == WaitEnd::User || is_in_the_way(wait.kind, of_drains)
    };
    let mut in_the_way: Vec<(&SubjectRef, &ExplainedWait)> = ended_elsewhere.filter(is_counted).collect();
    in_the_way.sort_by_key(|(_, wait)| wait.end);
    in_the_way
        .into_iter()
        .filter(|(_, wait)| seen.insert((wait.kind, &wait.text)))
        .take(MOST)
        .map(blocker_now)
        .collect()
}

/// The first Machine whose Node takes much longer to join than others did, with the number of the others.
pub fn of_late_joins(answer: &ObjectAnswer, is_late: impl Fn(&SubjectRef) -> bool) -> Option<PlanBlocker> {
    let waits = answer.machines.iter().flat_map(|one| one.waits.iter().map(move |wait| (&one.object, wait)));
    let mut late = waits.filter(|(object, wait)| wait.kind == WaitKind::NodeJoin && is_late(object));
    let found = blocker_now(late.next()?);
    let others = match late.count() {
        0 => String::new(),
        1 => ", as 1 more machine does".to_owned(),
        more => format!(", as {more} more machines do"),
    };
    Some(PlanBlocker { text: format!("{}{others}", found.text), ..found })
}

/// A Node that joins in time and a cloud that works are what a plan is about.
const fn is_in_the_way(kind: WaitKind, of_drains: bool) -> bool {
    match kind {
        WaitKind::Eviction
        | WaitKind::PodTermination
        | WaitKind::VolumeAttachment
        | WaitKind::VolumeDetachment
        | WaitKind::NodesUnknown
        | WaitKind::Manager => true,
        WaitKind::NodeJoin | WaitKind::CloudOperation | WaitKind::Paused | WaitKind::InPlaceUpdate => false,
        _ => !of_drains,
    }
}

/// A wait that holds an object up now.
pub fn blocker_now((object, wait): (&SubjectRef, &ExplainedWait)) -> PlanBlocker {
    PlanBlocker {
        wait_kind: format!("{:?}", wait.kind),
        severity: if wait.end == WaitEnd::User { BlockerSeverity::Blocks } else { BlockerSeverity::Delays },
        subject: format!("{}/{}", object.kind, object.name),
        text: format!("now, {} waits for {}", object.name, wait.text),
        remedies: wait.remedies.iter().cloned().map(remedy_of_plan).collect(),
        is_now: true,
    }
}

fn remedy_of_plan(remedy: ObjectRemedy) -> BlockerRemedy {
    BlockerRemedy { command: remedy.text, danger: remedy.danger }
}

/// The budgets that hold the drains of a plan.
pub fn of_budgets(
    plan: &ObjectPlan,
    budgets: &[BudgetState],
    machines: &[&Machine],
    default_timeout: GoDuration,
) -> Vec<PlanBlocker> {
    let nodes: BTreeMap<String, &Machine> = machines.iter().map(|machine| (machine.name_any(), *machine)).collect();
    let planned = plan.machines.iter().filter(|machine| machine.action != Action::Keep);
    let planned = planned.filter_map(|machine| nodes.get(&machine.name).copied());
    // A plan does not list the machines that are on their way out.
    let under_way = machines.iter().copied().filter(|machine| DrainReason::for_machine(machine).is_some());
    let drained: BTreeMap<String, &Machine> =
        planned.chain(under_way).map(|machine| (machine.name_any(), machine)).collect();
    let mut found = Vec::new();
    for budget in budgets {
        let held: Vec<_> = drained
            .values()
            .filter(|machine| machine.node_name().is_some_and(|node| budget.nodes.contains(node)))
            .collect();
        let Some(first) = held.first() else { continue };
        let timeout = brief(first.spec.configuration.drain_timeout.unwrap_or(default_timeout));
        let (name, BudgetState { healthy, desired, expected, .. }) = (budget.title(), budget);
        let drains = counted(held.len(), "drain");
        let (severity, text) = if budget.is_never() {
            let why = match budget.counts_none() {
                true => "counts none of its pods, because they have no controller".to_owned(),
                false => format!("needs {desired} of {expected} pods"),
            };
            let text =
                format!("budget {name} {why}: it never allows an eviction. {drains} would be forced after {timeout}");
            (BlockerSeverity::Blocks, text)
        } else {
            let healthy = budget
                .shortage()
                .unwrap_or_else(|| format!("{desired} of {expected} pods have to be healthy, and {healthy} are"));
            let text =
                format!("budget {name} allows no eviction now: {healthy}. {drains} would be forced after {timeout}");
            (BlockerSeverity::Delays, text)
        };
        let node = first.node_name().filter(|_| held.len() == 1);
        let remedies = advice::of_budget(budget, node).into_iter().map(remedy_of_plan).collect();
        let found_here = blocker("Eviction", severity, format!("PodDisruptionBudget/{name}"), text);
        found.push(PlanBlocker { remedies, ..found_here });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_rules::plan::Wait;

    #[test]
    fn remedies_of_waits_are_for_the_object_that_waits() {
        let wait = Wait::new(WaitKind::ScaleUpBlocked, "the set to be unfrozen".to_owned(), None);
        let told = |kind: &'static str, name: &str| RehearsalWait { kind, name: name.to_owned(), wait: wait.clone() };
        let found = of_waits(&[told("MachineSet", "pool-1")], "demo");
        let commands: Vec<&str> = found[0].remedies.iter().map(|remedy| remedy.command.as_str()).collect();
        assert_eq!(commands[0], "kubectl get machinesets.machine.sapcloud.io pool-1 -n demo -o yaml");
        assert_eq!(of_waits(&[told("Machine", "pool-1-a")], "demo")[0].remedies, []);
    }
}
