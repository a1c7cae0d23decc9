//! The progress of a migration, line by line.

use std::{io, io::Write};

use super::report::AdoptReport;
use mcm_adopt::{Plan, apply::Event};

/// Progress of a migration for the user: each step, each write, and each wait.
#[derive(Default)]
pub(super) struct MigrationDisplay {
    step: usize,
    waits: Vec<String>,
}

impl MigrationDisplay {
    /// Shows what happens next.
    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Write(action) => say(&format!("    {action}")),
            Event::Round(plan) => self.round(plan),
        }
    }

    fn round(&mut self, plan: &Plan) {
        let total = plan.steps.len();
        match plan.current() {
            None => {
                plan.losses.iter().for_each(|loss| say(&format!("    warning: {loss}")));
                say(&format!("{}: {total} of {total} steps are done", plan.unit.name()));
            }
            Some((number, step)) => {
                if number != self.step {
                    say(&format!("{}: step {number} of {total}: {}", plan.unit.name(), step.title));
                    (self.step, self.waits) = (number, Vec::new());
                }
                if plan.todo.actions.is_empty() && plan.todo.waits != self.waits {
                    say(&format!("    waiting for {}", AdoptReport::shortened(&plan.todo.waits)));
                    self.waits.clone_from(&plan.todo.waits);
                }
            }
        }
    }
}

/// A closed standard output does not interrupt a migration.
pub(super) fn say(line: &str) {
    writeln!(io::stdout().lock(), "{line}").ok();
}
