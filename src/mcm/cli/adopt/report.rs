//! Plans as tables and as JSON.

use std::collections::BTreeMap;

use serde_json::json;

use crate::cli::format::OutputFormat;
use mcm_adopt::{MigrationCheck, MigrationStage, OF_MACHINE, Plan, StayingPool, StepProgress};
use mcm_insight::table::table;

/// The most waits in a report.
const MOST_WAITS: usize = 3;

/// Reports as text or JSON.
pub(super) struct AdoptReport;

impl AdoptReport {
    /// Each plan with its checks, and the pools that stay.
    pub(super) fn plans(plans: &[Plan], pools: &[StayingPool], format: OutputFormat) -> String {
        let stays = |one: &StayingPool| format!("MachinePool {} stays: {}\n", one.machine_pool, one.reason);
        match format {
            OutputFormat::Json => format!("{:#}\n", json!({ "plans": plans, "stayingPools": pools })),
            OutputFormat::Text => plans.iter().map(plan).chain(pools.iter().map(stays)).collect::<Vec<_>>().join("\n"),
        }
    }

    /// Progress of each plan.
    pub(super) fn states(plans: &[Plan], format: OutputFormat) -> String {
        if format == OutputFormat::Json {
            let all: Vec<_> = plans.iter().map(|plan| json!({ "plan": plan, "waitingFor": plan.todo.waits })).collect();
            return format!("{:#}\n", json!({ "migrations": all }));
        }
        let row = |plan: &Plan| {
            let (number, total) = (plan.current().map_or(plan.steps.len(), |(number, _)| number), plan.steps.len());
            let title = plan.current().map_or("", |(_, step)| step.title);
            let step =
                if plan.stage == MigrationStage::Done { String::new() } else { format!("{number}/{total} {title}") };
            let waits =
                if plan.stage == MigrationStage::Fresh { String::new() } else { Self::shortened(&plan.todo.waits) };
            [plan.unit.to_string(), format!("{:?}", plan.to), format!("{:?}", plan.stage), step, waits]
        };
        table(&["what", "to", "stage", "step", "waiting for"], plans.iter().map(row))
    }

    /// The first of some waits.
    pub(super) fn shortened(waits: &[String]) -> String {
        let first = waits.iter().take(MOST_WAITS).cloned().collect::<Vec<_>>().join(", ");
        match waits.len().saturating_sub(MOST_WAITS) {
            0 => first,
            more => format!("{first}, and {more} more"),
        }
    }
}

fn plan(plan: &Plan) -> String {
    let mut text = format!("{} to {:?}\n", plan.unit, plan.to);
    let (of_deployment, of_machines): (Vec<&MigrationCheck>, Vec<&MigrationCheck>) =
        plan.checks.iter().partition(|check| check.machine.is_empty());
    if !of_deployment.is_empty() {
        let row = |check: &MigrationCheck| [check.check, verdict(check), &check.text].map(str::to_owned);
        text += &table(&["check", "result", "seen"], of_deployment.into_iter().map(row));
    }
    if !of_machines.is_empty() {
        let mut by_machine: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for check in of_machines {
            let seen =
                if check.passed { verdict(check).to_owned() } else { format!("{}: {}", verdict(check), check.text) };
            by_machine.entry(&check.machine).or_default().push(seen);
        }
        let rows = by_machine.into_iter().map(|(machine, seen)| [vec![machine.to_owned()], seen].concat());
        text += &table(&[&["machine"], &OF_MACHINE[..]].concat(), rows);
    }
    for loss in &plan.losses {
        text += &format!("warning: {loss}\n");
    }
    for (number, step) in (1..).zip(&plan.steps) {
        let mark = match step.progress {
            StepProgress::Done => "done",
            StepProgress::Current => "next",
            StepProgress::Later => "",
        };
        text += &format!("{number:>3}. {} {mark}\n", step.title);
    }
    for command in &plan.by_hand {
        text += &format!("by hand: {command}\n");
    }
    let failed = plan.failed().count();
    text + &match failed {
        0 => "every check passed\n".to_owned(),
        failed => format!("{failed} of {} checks failed: nothing would be started\n", plan.checks.len()),
    }
}

fn verdict(check: &MigrationCheck) -> &'static str {
    if check.passed { "ok" } else { "failed" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_waits_are_counted() {
        let waits: Vec<String> = (1..=5).map(|number| format!("m{number}")).collect();
        assert_eq!(AdoptReport::shortened(&waits), "m1, m2, m3, and 2 more");
        assert_eq!(AdoptReport::shortened(&waits[..2]), "m1, m2");
    }
}
