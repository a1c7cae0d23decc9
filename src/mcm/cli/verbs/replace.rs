//! `mcm machine replace`: takes one step after the other, each of which is one patch, and waits in between.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::{
    look::PlannedPatch,
    patch::ObjectPatch,
    replacement::{ReplacementState, ReplacementStep, next, next_to_stop, state_of},
    run::{VerbRun, carry_out},
};
use crate::{
    api::machine::Machine,
    cli::{
        exit::{CommandAnswer, CommandExit, ExitError},
        terminal::print,
    },
};
use mcm_insight::{
    error::error_line,
    reader,
    story::{MACHINE, NamespaceFacts},
};

/// Time between two readings of the objects.
const LOOK: Duration = Duration::from_secs(1);

/// Replaces a machine, or gives that up.
///
/// # Errors
/// The machine cannot be replaced, the user declines, a step cannot be written, or the time ends.
pub(super) async fn run(
    run: &VerbRun,
    machine: &str,
    is_given_up: bool,
    limit: Option<Duration>,
) -> Result<CommandAnswer> {
    let facts = objects(run).await?;
    let wanted = if machine.contains('/') { machine.to_owned() } else { format!("{MACHINE}/{machine}") };
    let name = reader::find(&facts, &wanted)?.name;
    print(&run.place.head(&run.namespace))?;
    let mut course =
        ReplacementCourse { run, name: &name, is_given_up, begun: None, shown: String::new(), agreed: false };
    let Some(limit) = limit else { return course.run_to_its_end().await };
    timeout(limit, course.run_to_its_end()).await.unwrap_or_else(|_| {
        let message = format!("Machine {name} is not replaced after {limit:?} (--timeout)");
        let command = format!("mcm machine replace {name} -n {}", run.namespace);
        let hint = format!("the same command continues: {command}; or {command} --stop");
        Err(ExitError { message, hint, exit: CommandExit::TimedOut }.into())
    })
}

async fn objects(run: &VerbRun) -> Result<NamespaceFacts> {
    reader::objects(&run.client, &run.namespace, Timestamp::now()).await
}

/// The machines that a step may delete.
#[derive(Debug)]
enum StepDeletion {
    /// The plan of the step is shown with the question.
    Planned,
    /// The machine that is replaced, and no other one.
    Replaced,
    /// The machine that was added, if there is one, and never the machine that stays.
    Added(Option<String>),
}

/// The replacement of a machine, as far as this process has read it.
struct ReplacementCourse<'a> {
    run: &'a VerbRun,
    name: &'a str,
    is_given_up: bool,
    begun: Option<ReplacementState>,
    /// The last wait that was printed.
    shown: String,
    /// The user agreed to it.
    agreed: bool,
}

impl ReplacementCourse<'_> {
    async fn run_to_its_end(&mut self) -> Result<CommandAnswer> {
        let mut facts = objects(self.run).await?;
        loop {
            self.begun = state_of(&facts, self.name).or_else(|| self.begun.take());
            match self.step(&facts).map_err(|error| self.with_way_back(error))? {
                ReplacementStep::Write(patch) => {
                    // The obstacles of its drain are found before another machine is created.
                    let drained = facts.machines.get(self.name).filter(|_| !self.is_given_up);
                    self.write(patch, drained, StepDeletion::Planned).await?;
                }
                ReplacementStep::Release(patch) => self.write(patch, None, StepDeletion::Replaced).await?,
                ReplacementStep::GiveUp { patch, added } => {
                    self.write(patch, None, StepDeletion::Added(added)).await?;
                }
                ReplacementStep::Last(patch) => {
                    self.write(patch, None, StepDeletion::Planned).await?;
                    return Ok(self.answer("done"));
                }
                ReplacementStep::Wait(text) => {
                    self.wait(&text)?;
                    sleep(LOOK).await;
                }
                ReplacementStep::Done(text) => return Ok(self.answer(&text)),
            }
            if self.run.writing.dry_run {
                return Ok(self.answer("dry run: the API server accepts the step, and nothing was changed"));
            }
            facts = self.look().await;
        }
    }

    fn step(&self, facts: &NamespaceFacts) -> Result<ReplacementStep, ExitError> {
        match self.is_given_up {
            true => next_to_stop(facts, self.name),
            false => next(facts, self.name, self.begun.as_ref()),
        }
    }

    /// The objects, after the API server has answered.
    async fn look(&self) -> NamespaceFacts {
        loop {
            match objects(self.run).await {
                Ok(facts) => return facts,
                Err(error) => eprintln!("warning: {}", error_line(&error)),
            }
            sleep(LOOK).await;
        }
    }

    /// Writes a step, unless its plan deletes another machine. The first needs consent. Its plan has the obstacles of the drain of a
    /// machine that a later step deletes.
    async fn write(&mut self, patch: ObjectPatch, drained: Option<&Machine>, deletion: StepDeletion) -> Result<()> {
        let planned = self.run.planned(patch, drained).await?;
        let permitted = planned.permit(self.run.verb, self.run.is_forced());
        let permitted = permitted.and_then(|()| match &deletion {
            StepDeletion::Planned => Ok(()),
            StepDeletion::Replaced => self.deletes_no_other(&planned),
            StepDeletion::Added(added) => self.keeps_machine(&planned, added.as_deref()),
        });
        permitted.map_err(|error| self.with_way_back(error))?;
        if planned.patch.needs_consent && !self.agreed {
            self.run.consent(&planned)?;
            self.agreed = true;
        }
        let again = async || {
            let facts = objects(self.run).await?;
            match self.step(&facts)? {
                ReplacementStep::Write(patch)
                | ReplacementStep::Release(patch)
                | ReplacementStep::GiveUp { patch, .. }
                | ReplacementStep::Last(patch) => self.run.planned(patch, None).await,
                ReplacementStep::Wait(_) | ReplacementStep::Done(_) => {
                    let message = format!("Machine {} was changed meanwhile, so nothing was written", self.name);
                    Err(ExitError { message, hint: "try again".to_owned(), exit: CommandExit::Failed }.into())
                }
            }
        };
        carry_out(&self.run.client, &planned, self.run.writing.dry_run, again).await?;
        let kubectl = self.run.place.call.addressed(&planned.patch.kubectl(), false);
        let effect: String = planned.lines().iter().map(|line| format!("  {line}\n")).collect();
        print(&format!("{} {}\n{effect}  the same with kubectl: {kubectl}\n", clock(), planned.patch.says))?;
        Ok(())
    }

    fn deletes_no_other(&self, planned: &PlannedPatch) -> Result<(), ExitError> {
        let deleted = planned.deleted();
        if !planned.is_exact() || deleted == [self.name] {
            return Ok(());
        }
        let others = if deleted.is_empty() { "no machine".to_owned() } else { deleted.join(", ") };
        Err(ExitError::no(
            format!("one machine less would delete {others} instead of {}, so both stay", self.name),
            format!("mcm why machine/{} -n {}", self.name, self.run.namespace),
        ))
    }

    fn keeps_machine(&self, planned: &PlannedPatch, added: Option<&str>) -> Result<(), ExitError> {
        keeps_machine(planned, self.name, added, self.run.is_forced()).map_err(|message| {
            ExitError::no(message, format!("mcm why machine/{} -n {}", self.name, self.run.namespace))
        })
    }

    /// A refusal with the command that gives the replacement up, if it has begun.
    fn with_way_back(&self, error: ExitError) -> ExitError {
        if self.is_given_up || self.begun.is_none() {
            return error;
        }
        let hint = format!(
            "{}; or give the replacement up: mcm machine replace {} -n {} --stop",
            error.hint, self.name, self.run.namespace
        );
        ExitError { hint, ..error }
    }

    fn wait(&mut self, text: &str) -> Result<()> {
        if self.shown != text {
            print(&format!("{} waits for {text}\n", clock()))?;
            text.clone_into(&mut self.shown);
        }
        Ok(())
    }

    fn answer(&self, text: &str) -> CommandAnswer {
        let next = format!("mcm tree machine/{} -n {}", self.name, self.run.namespace);
        let next = self.run.place.call.addressed(&next, false);
        CommandAnswer { text: format!("{text}\nnext: {next}\n"), exit: CommandExit::Good }
    }
}

/// Refuses a plan that deletes another machine than the added one. Without a plan, only `--force` goes on.
fn keeps_machine(planned: &PlannedPatch, name: &str, added: Option<&str>, is_forced: bool) -> Result<(), String> {
    let (leaving, expected) = (planned.leaving(), added.into_iter().collect::<Vec<_>>());
    let stays = match added {
        Some(added) => format!("instead of {added}, which the replacement of Machine {name} added"),
        None => format!("although the replacement of Machine {name} added none"),
    };
    if leaving.contains(&name) || planned.is_exact() && planned.deleted() != expected {
        let deleted = if leaving.is_empty() { "no machine".to_owned() } else { leaving.join(", ") };
        return Err(format!("one machine less would delete {deleted} {stays}, so the number stays"));
    }
    if planned.is_unknown() && !is_forced {
        return Err(format!("it is unknown which machine the set of {name} would delete, so the number stays"));
    }
    Ok(())
}

/// The time of the day, UTC.
fn clock() -> String {
    Timestamp::now().strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::cli::verbs::{decide::decide, verb::ChangeVerb};
    use mcm_insight::{
        plan::answer::{Action, MachinePlan, ObjectPlan, Plan, PlanVerdict},
        testing::blocked_pool,
    };

    /// A change whose plan deletes and replaces these machines.
    fn planned(verdict: PlanVerdict, machines: &[(&str, Action)]) -> PlannedPatch {
        let facts = blocked_pool();
        let patch = decide(&facts, ChangeVerb::Restart, &facts.find("pool").unwrap()).unwrap();
        let machine =
            |(name, action): &(&str, Action)| MachinePlan { name: (*name).to_owned(), action: *action, step: Some(1) };
        let plan = ObjectPlan {
            machines: machines.iter().map(machine).collect(),
            ..ObjectPlan::without_effect("MachineDeployment", "demo", "pool", verdict)
        };
        let plan = Plan::from_objects(Timestamp::UNIX_EPOCH, vec![plan], Vec::new());
        PlannedPatch { patch, plan: Some(plan) }
    }

    #[rstest]
    #[case::the_added_one(PlanVerdict::Scales, &[("d", Action::Delete)], Some("d"), "")]
    #[case::none_is_there_yet(PlanVerdict::Scales, &[("a", Action::Keep)], None, "")]
    #[case::the_machine(PlanVerdict::Scales, &[("a", Action::Delete)], Some("d"), "would delete a instead of d")]
    #[case::another_old_one(PlanVerdict::Scales, &[("b", Action::Delete)], Some("d"), "would delete b instead of d")]
    #[case::an_old_one_without_an_added_one(PlanVerdict::Scales, &[("b", Action::Delete)], None, "added none")]
    #[case::none(PlanVerdict::Scales, &[], Some("d"), "would delete no machine instead of d")]
    #[case::a_rollout(PlanVerdict::Replaces, &[("a", Action::Replace), ("d", Action::Delete)], Some("d"), "a, d")]
    #[case::no_plan(PlanVerdict::Unknown, &[], Some("d"), "it is unknown which machine")]
    fn a_replacement_is_given_up_only_if_the_machine_stays(
        #[case] verdict: PlanVerdict,
        #[case] machines: &[(&str, Action)],
        #[case] added: Option<&str>,
        #[case] expected: &str,
    ) {
        let answer = keeps_machine(&planned(verdict, machines), "a", added, false);
        match expected {
            "" => assert_eq!(answer, Ok(())),
            _ => assert!(answer.as_ref().is_err_and(|text| text.contains(expected)), "{answer:?}"),
        }
    }
}
