//! The plan of the patch of a verb, which is made before the patch is written.

use super::{decide::ObjectPatch, verb::ChangeVerb};
use crate::cli::exit::ExitError;
use mcm_insight::plan::answer::{BlockerSeverity, ObjectPlan, Plan, PlanBlocker, PlanSummary, PlanVerdict};

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
    fn effect(&self) -> Option<(PlanVerdict, &str, PlanSummary)> {
        self.object().map(|plan| (plan.verdict, plan.headline.as_str(), plan.summary))
    }

    /// The patch and its effect are those of another decision.
    pub fn is_same(&self, other: &Self) -> bool {
        self.patch.patch == other.patch.patch && self.effect() == other.effect()
    }

    /// The plan in one line.
    pub fn headline(&self) -> Option<String> {
        let plan = self.object()?;
        let reason = plan.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        Some(format!("plan: {}{reason}", plan.headline))
    }

    /// Refuses a change that the API server refuses, or that something blocks. An undo ends what holds the present rollout up, so
    /// only what is in the way of the earlier revision counts.
    ///
    /// # Errors
    /// The change is refused.
    pub fn permit(&self, verb: ChangeVerb, is_forced: bool) -> Result<(), ExitError> {
        let Some(plan) = self.object().filter(|_| !is_forced) else { return Ok(()) };
        let namespace = &self.patch.object.namespace;
        let name = &self.patch.object.name;
        if plan.verdict == PlanVerdict::Refused {
            let reason = plan.reason.clone().unwrap_or_default();
            return Err(ExitError::no(
                format!("the change of MachineDeployment {name} is refused: {reason}"),
                format!("mcm why {name} -n {namespace}"),
            ));
        }
        let is_undo = matches!(verb, ChangeVerb::Undo(_));
        let is_counted = |one: &&PlanBlocker| one.severity == BlockerSeverity::Blocks && !(is_undo && one.is_now);
        let Some(blocker) = plan.blockers.iter().find(is_counted) else { return Ok(()) };
        let remedy = blocker.remedies.first().map(|remedy| format!("{}, or ", remedy.command)).unwrap_or_default();
        Err(ExitError::no(
            format!("this is in the way of the change of MachineDeployment {name}: {}", blocker.text),
            format!("{remedy}add --force to go on"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::cli::verbs::decide::decide;
    use mcm_insight::testing::blocked_pool;

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

    #[test]
    fn another_effect_of_the_same_patch_is_another_change() {
        let one = planned("REPLACES 2 of 2 machines", None);
        assert!(one.is_same(&planned("REPLACES 2 of 2 machines", None)));
        assert!(!one.is_same(&planned("REPLACES 6 of 6 machines", None)));
        let mut other = one.clone();
        other.patch.patch = json!({});
        assert!(!one.is_same(&other));
        assert_eq!(one.headline().as_deref(), Some("plan: REPLACES 2 of 2 machines"));
    }
}
