//! Checks a plan before it is executed. A lint computes the result of a plan from the snapshot and the steps, without
//! the planner's arithmetic, and rejects a plan that would break a bound. Each kind has its own lint; the rules are here.

use std::fmt;

/// A bound that a plan would break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanViolation {
    pub rule: PlanRule,
    /// The numbers, with the names of their fields.
    pub text: String,
}

/// A bound that no plan may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanRule {
    /// An action on facts that were not read.
    ActsOnUnknown,
    /// Creations and deletions of Machines in one plan.
    CreatesAndDeletes,
    /// Deletion of an object that is still in use.
    DeletesInUse,
    /// Deletion of a preserved Machine.
    DeletesPreserved,
    /// Eviction of pods, or a cordon, without a deletion of the Machine, or its failure.
    DisturbsPods,
    /// The end of a preservation while it is requested, or while its Node shows it.
    EndsPreservation,
    /// Creation of Machines for a set that must not be scaled up.
    GrowsWhileFrozen,
    /// A leaked VM.
    LosesVm,
    /// Machines of two templates at the same time, where the strategy forbids it.
    Overlap,
    /// Fewer available Machines than replicas - maxUnavailable.
    TooFewAvailable,
    /// A Machine that becomes Failed before its timeout.
    TooEarly,
    /// Deletion of Machines that are not surplus, failed or chosen by the autoscaler.
    TooManyDeleted,
    /// More Machines than replicas + maxSurge.
    TooManyMachines,
    /// More replacements of unhealthy Machines than permitted.
    TooManyReplaced,
    /// A second VM for a Machine, or one that is not needed.
    TooManyVms,
    /// A change of an object of another owner.
    TouchesForeign,
}

impl PlanViolation {
    pub fn new(rule: PlanRule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl fmt::Display for PlanViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            PlanRule::ActsOnUnknown => "it would act on unknown facts",
            PlanRule::CreatesAndDeletes => "it would create and delete machines in one plan",
            PlanRule::DeletesInUse => "it would delete an object that is still in use",
            PlanRule::DeletesPreserved => "it would delete a preserved machine",
            PlanRule::DisturbsPods => "it would drain a node whose machine stays",
            PlanRule::EndsPreservation => "it would end a preservation",
            PlanRule::GrowsWhileFrozen => "it would create machines for a set that must not be scaled up",
            PlanRule::LosesVm => "it would leak a VM",
            PlanRule::Overlap => "it would create machines of two templates at the same time",
            PlanRule::TooEarly => "it would fail a machine before its timeout",
            PlanRule::TooFewAvailable => "it would leave too few machines available",
            PlanRule::TooManyDeleted => "it would delete too many machines",
            PlanRule::TooManyMachines => "it would create too many machines",
            PlanRule::TooManyReplaced => "it would replace too many unhealthy machines",
            PlanRule::TooManyVms => "it would create a VM too many",
            PlanRule::TouchesForeign => "it would change an object of another owner",
        };
        write!(f, "{rule}: {}", self.text)
    }
}
