//! A second look at a plan before it is carried out. A lint works out from the snapshot and the steps alone what the plan
//! would lead to, with none of the planner's arithmetic, and refuses a plan that would break a bound.

use std::fmt;

/// A bound that a plan would break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub rule: Rule,
    /// The numbers, with the names of the knobs.
    pub text: String,
}

/// What a plan must never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    /// Have more Machines than replicas + maxSurge.
    TooManyMachines,
    /// Leave fewer Machines available than replicas - maxUnavailable.
    TooFewAvailable,
    /// Have Machines of two templates at once, where the strategy forbids it.
    Overlap,
    /// Delete an object that others still belong to.
    DeletesOwner,
}

impl Violation {
    pub(crate) fn new(rule: Rule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::TooManyMachines => "it would have too many machines",
            Rule::TooFewAvailable => "it would leave too few machines available",
            Rule::Overlap => "it would have machines of two templates at once",
            Rule::DeletesOwner => "it would delete an object that is still in use",
        };
        write!(f, "{rule}: {}", self.text)
    }
}
