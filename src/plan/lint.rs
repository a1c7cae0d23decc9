//! Checks a plan before it is executed. A lint computes the result of a plan from the snapshot and the steps, without
//! the planner's arithmetic, and rejects a plan that would break a bound. Each kind has its own lint; the rules are here.

use std::fmt;

/// A bound that a plan would break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub rule: Rule,
    /// The numbers, with the names of their fields.
    pub text: String,
}

/// A bound that no plan may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    /// Conclude anything from what was not read.
    ActsOnUnknown,
    /// Create Machines and delete surplus ones at once.
    CreatesAndDeletes,
    /// Delete an object that others still use.
    DeletesInUse,
    /// Delete a Machine that is preserved.
    DeletesPreserved,
    /// Take pods off a Node that stays.
    DisturbsPods,
    /// Create Machines for a set that must not grow.
    GrowsWhileFrozen,
    /// Leave a VM to which no Machine leads.
    LosesVm,
    /// Have Machines of two templates at once, where the strategy forbids it.
    Overlap,
    /// Leave fewer Machines available than replicas - maxUnavailable.
    TooFewAvailable,
    /// Give a Machine up before its timeout.
    TooEarly,
    /// Delete Machines beyond the surplus, those that failed and those that the autoscaler chose.
    TooManyDeleted,
    /// Have more Machines than replicas + maxSurge.
    TooManyMachines,
    /// Give up more unhealthy Machines at once than permitted.
    TooManyReplaced,
    /// Have two VMs for one Machine, or one that nobody asked for.
    TooManyVms,
    /// Change an object of another owner.
    TouchesForeign,
}

impl Violation {
    pub(crate) fn new(rule: Rule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::ActsOnUnknown => "it would act on what is not known",
            Rule::CreatesAndDeletes => "it would create and delete machines at once",
            Rule::DeletesInUse => "it would delete an object that is still in use",
            Rule::DeletesPreserved => "it would delete a machine that is preserved",
            Rule::DisturbsPods => "it would take pods off a node that stays",
            Rule::GrowsWhileFrozen => "it would create machines for a set that must not grow",
            Rule::LosesVm => "it would lose a VM",
            Rule::Overlap => "it would have machines of two templates at once",
            Rule::TooEarly => "it would give a machine up too early",
            Rule::TooFewAvailable => "it would leave too few machines available",
            Rule::TooManyDeleted => "it would delete too many machines",
            Rule::TooManyMachines => "it would have too many machines",
            Rule::TooManyReplaced => "it would replace too many machines at once",
            Rule::TooManyVms => "it would have a VM too many",
            Rule::TouchesForeign => "it would change an object of another owner",
        };
        write!(f, "{rule}: {}", self.text)
    }
}
