//! Checks a plan before it is executed. A lint computes the result of a plan from the snapshot and the steps, without
//! the planner's arithmetic, and rejects a plan that would break a bound.

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
    /// More Machines than replicas + maxSurge.
    TooManyMachines,
    /// Fewer available Machines than replicas - maxUnavailable.
    TooFewAvailable,
    /// Machines of two templates at the same time, where the strategy forbids it.
    Overlap,
    /// Deletion of an object that owns others.
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
            Rule::TooManyMachines => "it would create too many machines",
            Rule::TooFewAvailable => "it would leave too few machines available",
            Rule::Overlap => "it would create machines of two templates at the same time",
            Rule::DeletesOwner => "it would delete an object that is still in use",
        };
        write!(f, "{rule}: {}", self.text)
    }
}
