//! The plan of the patch of a verb, which is made before the patch is written.

use super::{patch::ObjectPatch, verb::ChangeVerb};
use crate::cli::exit::ExitError;
use mcm_insight::plan::answer::{
    Action, BlockerRemedy, BlockerSeverity, MachinePlan, ObjectPlan, Plan, PlanBlocker, PlanSummary, PlanVerdict,
};
use mcm_rules::plan::{WaitKind, some_of};

/// The most names of machines in a line.
const MOST_NAMES: usize = 12;

/// A change with its plan, if it has one.
#[derive(Clone, Debug)]
pub(in crate::cli) struct PlannedPatch {
    pub patch: ObjectPatch,
    pub plan: Option<Plan>,
}

impl PlannedPatch {
    fn object(&self) -> Option<&ObjectPlan> {
        self.plan.as_ref()?.objects.first()
    }

    /// The effect to which a user consents: another one needs another consent.
    fn effect(&self) -> Option<(PlanVerdict, &str, PlanSummary, Vec<&str>)> {
        self.object().map(|plan| (plan.verdict, plan.headline.as_str(), plan.summary, self.deleted()))
    }

    /// Machines that are deleted without a replacement.
    pub fn deleted(&self) -> Vec<&str> {
        let machines = self.object().into_iter().flat_map(|plan| &plan.machines);
        machines.filter(|machine| machine.action == Action::Delete).map(|machine| machine.name.as_str()).collect()
    }

    /// Machines that are deleted, with a replacement or without one.
    pub fn leaving(&self) -> Vec<&str> {
        let machines = self.object().into_iter().flat_map(|plan| &plan.machines);
        let is_leaving = |machine: &&MachinePlan| matches!(machine.action, Action::Delete | Action::Replace);
        machines.filter(is_leaving).map(|machine| machine.name.as_str()).collect()
    }

    /// There is no plan of the change.
    pub fn is_unknown(&self) -> bool {
        self.object().is_none_or(|plan| plan.verdict == PlanVerdict::Unknown)
    }

    /// The plan names each machine that is deleted.
    pub fn is_exact(&self) -> bool {
        self.object().is_some_and(|plan| !plan.is_estimate && plan.verdict != PlanVerdict::Unknown)
    }

    /// The patch and its effect are those of another decision.
    pub fn is_same(&self, other: &Self) -> bool {
        self.patch.patch == other.patch.patch && self.effect() == other.effect()
    }

    /// The plan in one line, warnings, and if some are deleted without a replacement, all machines that are deleted.
    pub fn lines(&self) -> Vec<String> {
        let headline = self.object().map(|plan| {
            let reason = plan.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            // Its headline counts replaced machines alone.
            let deleted = match (plan.verdict, self.deleted().len()) {
                (PlanVerdict::Replaces, more) if more > 0 => format!(", DELETES {more}"),
                _ => String::new(),
            };
            format!("plan: {}{deleted}{reason}", plan.headline)
        });
        let leaving = if self.deleted().is_empty() { Vec::new() } else { self.leaving() };
        let names = if leaving.len() > MOST_NAMES { some_of(&leaving) } else { leaving.join(", ") };
        let deleted = (!leaving.is_empty()).then(|| format!("deletes: {names}"));
        let warnings = self.patch.warnings.iter().map(|warning| format!("warning: {warning}"));
        headline.into_iter().chain(deleted).chain(warnings).collect()
    }

    /// Refuses a change that the API server refuses, or that something blocks. An undo ends what holds the present rollout up, so
    /// only what is in the way of the earlier revision counts; the same holds for a machine that is replaced.
    ///
    /// # Errors
    /// The change is refused.
    pub fn permit(&self, verb: ChangeVerb, is_forced: bool) -> Result<(), ExitError> {
        let Some(plan) = self.object().filter(|_| !is_forced) else { return Ok(()) };
        let ObjectPlan { kind, namespace, name, .. } = plan;
        if plan.verdict == PlanVerdict::Refused {
            let reason = plan.reason.clone().unwrap_or_default();
            return Err(ExitError::no(
                format!("the change of {kind} {name} is refused: {reason}"),
                format!("mcm why {}/{name} -n {namespace}", kind.to_lowercase()),
            ));
        }
        let ends_present = matches!(verb, ChangeVerb::Undo(_) | ChangeVerb::Abort | ChangeVerb::Replace { .. });
        let is_scaling = matches!(verb, ChangeVerb::Scale(_) | ChangeVerb::Replace { is_given_up: true });
        let is_counted = |one: &&PlanBlocker| {
            one.severity == BlockerSeverity::Blocks
                && !(ends_present && one.is_now)
                && (!is_scaling || is_of_scaling(plan, one))
        };
        let Some(blocker) = plan.blockers.iter().find(is_counted) else { return Ok(()) };
        let remedy = blocker.remedies.first().map(|remedy| {
            let BlockerRemedy { command, danger } = remedy;
            format!("{command} ({}), or ", danger.text())
        });
        let remedy = remedy.unwrap_or_default();
        Err(ExitError::no(
            format!("this is in the way of the change of {kind} {name}: {}", blocker.text),
            format!("{remedy}add --force to go on"),
        ))
    }
}

/// What is in the way concerns a number of machines. A pause holds back a template and no number, and without a machine that leaves,
/// drains that are under way hold nothing back.
fn is_of_scaling(plan: &ObjectPlan, blocker: &PlanBlocker) -> bool {
    let is_of = |kind: WaitKind| blocker.wait_kind == format!("{kind:?}");
    let (is_pause, is_drain) = (is_of(WaitKind::Paused), is_of(WaitKind::Eviction));
    let drains = plan.machines.iter().any(|machine| machine.action != Action::Keep);
    !is_pause && (drains || !is_drain)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::cli::verbs::{decide::decide, verb::ScaleTarget};
    use mcm_insight::testing::blocked_pool;
    use mcm_rules::plan::guide::RemedyDanger;

    /// A restart with a plan of this headline, which something blocks.
    fn planned(headline: &str, blocks: Option<bool>) -> PlannedPatch {
        let facts = blocked_pool();
        let patch = decide(&facts, ChangeVerb::Restart, &facts.find("pool").unwrap()).unwrap();
        let blocker = |is_now| PlanBlocker {
            wait_kind: "Class".to_owned(),
            severity: BlockerSeverity::Blocks,
            subject: "MachineClass/gone".to_owned(),
            text: "class gone does not exist".to_owned(),
            remedies: Vec::new(),
            is_now,
        };
        let plan = ObjectPlan {
            headline: headline.to_owned(),
            blockers: blocks.map(blocker).into_iter().collect(),
            ..ObjectPlan::without_effect("MachineDeployment", "demo", "pool", PlanVerdict::Replaces)
        };
        let plan = Plan::from_objects(jiff::Timestamp::UNIX_EPOCH, vec![plan], Vec::new());
        PlannedPatch { patch, plan: Some(plan) }
    }

    #[rstest]
    #[case::nothing(ChangeVerb::Restart, None, false, true)]
    #[case::in_the_way(ChangeVerb::Restart, Some(false), false, false)]
    #[case::in_the_way_already(ChangeVerb::Resume, Some(true), false, false)]
    #[case::forced(ChangeVerb::Restart, Some(false), true, true)]
    #[case::an_undo_of_what_is_in_the_way_already(ChangeVerb::Undo(None), Some(true), false, true)]
    #[case::an_undo_to_a_revision_without_class(ChangeVerb::Undo(None), Some(false), false, false)]
    #[case::an_abort_of_what_is_in_the_way_already(ChangeVerb::Abort, Some(true), false, true)]
    #[case::a_machine_that_cannot_be_created(ChangeVerb::Replace { is_given_up: false }, Some(false), false, false)]
    fn a_change_that_something_blocks_is_refused(
        #[case] verb: ChangeVerb,
        #[case] blocks: Option<bool>,
        #[case] is_forced: bool,
        #[case] is_permitted: bool,
    ) {
        let answer = planned("REPLACES 2 of 2 machines", blocks).permit(verb, is_forced);
        assert_eq!(answer.is_ok(), is_permitted);
        if let Err(refusal) = answer {
            assert!(refusal.message.ends_with("class gone does not exist"), "{}", refusal.message);
            assert!(refusal.hint.contains("--force"), "{}", refusal.hint);
        }
    }

    /// A deployment with something in the way of this kind.
    fn held(wait_kind: &str, text: &str, actions: &[Action]) -> PlannedPatch {
        let mut planned = planned("SCALES 3 → 5", Some(false));
        let plan = &mut planned.plan.as_mut().unwrap().objects[0];
        let machine = |action: &Action| MachinePlan { name: "pool-a".to_owned(), action: *action, step: None };
        plan.machines = actions.iter().map(machine).collect();
        let (command, danger) = ("kubectl patch x".to_owned(), RemedyDanger::ReplacesMachines);
        let blocker = &mut plan.blockers[0];
        blocker.remedies = vec![BlockerRemedy { command, danger }];
        wait_kind.clone_into(&mut blocker.wait_kind);
        text.clone_into(&mut blocker.text);
        planned
    }

    #[rstest]
    #[case::a_pause("Paused", "the deployment is paused: a new template waits", &[Action::Delete], true)]
    #[case::a_drain_under_way("Eviction", "budget a allows no eviction now", &[Action::Keep], true)]
    #[case::a_drain_of_the_scale("Eviction", "budget a allows no eviction now", &[Action::Delete], false)]
    #[case::a_class("Class", "class gone does not exist", &[Action::Keep], false)]
    fn only_what_concerns_a_number_is_in_the_way_of_a_scale(
        #[case] wait_kind: &str,
        #[case] text: &str,
        #[case] actions: &[Action],
        #[case] is_permitted: bool,
    ) {
        let held = held(wait_kind, text, actions);
        let target = ScaleTarget { replicas: 5, current: None };
        for verb in [ChangeVerb::Scale(target), ChangeVerb::Replace { is_given_up: true }] {
            assert_eq!(held.permit(verb, false).is_ok(), is_permitted, "{verb:?}");
        }
        let refusal = held.permit(ChangeVerb::Restart, false).unwrap_err();
        assert_eq!(refusal.hint, "kubectl patch x (replaces machines), or add --force to go on");
    }

    #[test]
    fn all_machines_that_leave_are_named_if_some_are_not_replaced() {
        let mut one = planned("REPLACES 1 of 4 machines", None);
        let plan = &mut one.plan.as_mut().unwrap().objects[0];
        for (name, action) in [("a", Action::Replace), ("b", Action::Delete), ("c", Action::Keep)] {
            plan.machines.push(MachinePlan { name: name.to_owned(), action, step: None });
        }
        assert_eq!(one.lines(), ["plan: REPLACES 1 of 4 machines, DELETES 1", "deletes: a, b"]);
    }

    #[test]
    fn another_effect_of_the_same_patch_is_another_change() {
        let one = planned("REPLACES 2 of 2 machines", None);
        assert!(one.is_same(&planned("REPLACES 2 of 2 machines", None)));
        assert!(!one.is_same(&planned("REPLACES 6 of 6 machines", None)));
        let mut other = one.clone();
        other.patch.patch = json!({});
        assert!(!one.is_same(&other));
        assert_eq!(one.lines(), ["plan: REPLACES 2 of 2 machines"]);
    }

    #[test]
    fn machines_that_are_deleted_are_named_and_others_are_another_change() {
        let with = |name: &str| {
            let mut one = planned("SCALES 2 → 1", None);
            let machine = MachinePlan { name: name.to_owned(), action: Action::Delete, step: Some(1) };
            let plan = &mut one.plan.as_mut().unwrap().objects[0];
            plan.verdict = PlanVerdict::Scales;
            plan.machines.push(machine);
            one.patch.warnings.push("an autoscaler scales it back".to_owned());
            one
        };
        let expected = ["plan: SCALES 2 → 1", "deletes: pool-a", "warning: an autoscaler scales it back"];
        assert_eq!(with("pool-a").lines(), expected);
        assert!(!with("pool-a").is_same(&with("pool-b")));
        assert_eq!((with("pool-a").deleted(), with("pool-a").is_exact()), (vec!["pool-a"], true));
    }
}
