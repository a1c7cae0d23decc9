use std::fmt::Display;

use super::{Plan, SentPatch, SubjectRef, UndoneWrite};

/// The input of a plan: everything that a decision needs. The snapshot of each kind implements it, in its `plan.rs`.
pub trait PlanInput: Send + Sync {
    /// One operation of a plan.
    type Action: Display + Send;

    /// The next steps and waits.
    fn plan(&self) -> Plan<Self::Action>;

    /// The bound that a plan would break, computed without the planner's arithmetic.
    fn lint(&self, plan: &Plan<Self::Action>) -> Option<String> {
        let _ = plan;
        None
    }

    /// An action writes the status. A plan with nothing else may be delayed, to save writes.
    fn is_status(action: &Self::Action) -> bool {
        let _ = action;
        false
    }

    /// An action only reads, and the next plan needs its result.
    fn is_look(action: &Self::Action) -> bool {
        let _ = action;
        false
    }

    /// A step may only follow its predecessors. Otherwise a step that is held back holds up no other one.
    const STEPS_DEPEND_ON_ORDER: bool = true;

    /// The patch that an action sends to an API server. The loop does not send one again and again that is undone.
    fn sent_patch<'a>(&'a self, action: &'a Self::Action) -> Option<SentPatch<'a>> {
        let _ = action;
        None
    }

    /// Adds a step that shows which patches are undone, or that none is any more, unless the object shows that already.
    fn show_undone(&self, plan: &mut Plan<Self::Action>, undone: &[UndoneWrite]) {
        let _ = (plan, undone);
    }

    /// The object that an action changes or reads; `None` if it is that of the plan, or none of an API server.
    fn subject(action: &Self::Action) -> Option<SubjectRef> {
        let _ = action;
        None
    }
}

impl<S: PlanInput> PlanInput for Box<S> {
    type Action = S::Action;

    fn plan(&self) -> Plan<S::Action> {
        S::plan(self)
    }

    fn lint(&self, plan: &Plan<S::Action>) -> Option<String> {
        S::lint(self, plan)
    }

    fn is_status(action: &S::Action) -> bool {
        S::is_status(action)
    }

    fn is_look(action: &S::Action) -> bool {
        S::is_look(action)
    }

    const STEPS_DEPEND_ON_ORDER: bool = S::STEPS_DEPEND_ON_ORDER;

    fn sent_patch<'a>(&'a self, action: &'a S::Action) -> Option<SentPatch<'a>> {
        S::sent_patch(self, action)
    }

    fn show_undone(&self, plan: &mut Plan<S::Action>, undone: &[UndoneWrite]) {
        S::show_undone(self, plan, undone);
    }

    fn subject(action: &S::Action) -> Option<SubjectRef> {
        S::subject(action)
    }
}
