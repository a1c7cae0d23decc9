//! The bounds of a rollout: maxSurge and maxUnavailable as numbers of Machines.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use mcm_api::machine::MOST_REPLICAS;

/// Desired replicas, and the bounds of a rollout around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaBounds {
    /// `spec.replicas`.
    pub desired: i32,
    /// How many may exist beyond `desired`.
    pub max_surge: i32,
    /// How many of `desired` may be unavailable.
    pub max_unavailable: i32,
}

impl ReplicaBounds {
    /// Bounds without surge and without unavailable Machines.
    pub(crate) const fn exact(desired: i32) -> Self {
        Self { desired, max_surge: 0, max_unavailable: 0 }
    }

    /// maxSurge is rounded up, maxUnavailable down. If both are 0, maxUnavailable is 1: otherwise no rollout could
    /// progress.
    pub(crate) fn resolve(desired: i32, max_surge: IntOrPercent, max_unavailable: IntOrPercent) -> Self {
        let max_surge = max_surge.scaled_value(desired, PercentRounding::Up).clamp(0, MOST_REPLICAS);
        let max_unavailable = match max_unavailable.scaled_value(desired, PercentRounding::Down).max(0) {
            0 if max_surge == 0 => 1,
            number => number,
        };
        Self { desired, max_surge, max_unavailable: max_unavailable.min(desired) }
    }

    /// desired + maxSurge.
    pub const fn max_replicas(&self) -> i32 {
        self.desired.saturating_add(self.max_surge)
    }

    /// desired - maxUnavailable.
    pub const fn min_available(&self) -> i32 {
        self.desired - self.max_unavailable
    }
}

/// A number of Machines, or a percentage of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    Int(i32),
    Percent(i32),
}

#[derive(Clone, Copy)]
enum PercentRounding {
    Up,
    Down,
}

impl IntOrPercent {
    /// `None` if it is a string that is not a percentage.
    pub(crate) fn parse(value: &IntOrString) -> Option<Self> {
        match value {
            IntOrString::Int(number) => Some(Self::Int(*number)),
            IntOrString::String(text) => text.strip_suffix('%')?.parse().ok().map(Self::Percent),
        }
    }

    /// Of so many replicas; a percentage is rounded up.
    pub(crate) fn rounded_up(self, replicas: i32) -> i32 {
        self.scaled_value(replicas, PercentRounding::Up)
    }

    fn scaled_value(self, whole: i32, rounding: PercentRounding) -> i32 {
        match self {
            Self::Int(number) => number,
            Self::Percent(percent) => {
                let product = i64::from(whole) * i64::from(percent);
                let rounded = match rounding {
                    PercentRounding::Up => (product + 99).div_euclid(100),
                    PercentRounding::Down => product.div_euclid(100),
                };
                i32::try_from(rounded).unwrap_or(i32::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::numbers(3, IntOrPercent::Int(1), IntOrPercent::Int(0), (1, 0))]
    #[case::surge_rounds_up(10, IntOrPercent::Percent(25), IntOrPercent::Percent(25), (3, 2))]
    #[case::exact_share(8, IntOrPercent::Percent(25), IntOrPercent::Percent(25), (2, 2))]
    #[case::both_zero(3, IntOrPercent::Int(0), IntOrPercent::Int(0), (0, 1))]
    #[case::both_round_to_zero(0, IntOrPercent::Percent(10), IntOrPercent::Percent(10), (0, 0))]
    #[case::unavailable_rounds_to_zero(3, IntOrPercent::Int(0), IntOrPercent::Percent(10), (0, 1))]
    #[case::capped_by_replicas(3, IntOrPercent::Int(0), IntOrPercent::Int(7), (0, 3))]
    #[case::nothing_desired(0, IntOrPercent::Int(2), IntOrPercent::Int(2), (2, 0))]
    #[case::negative(3, IntOrPercent::Int(-2), IntOrPercent::Int(-1), (0, 1))]
    #[case::beyond_all_numbers(2_000_000_000, IntOrPercent::Percent(2_000_000_000), IntOrPercent::Percent(0), (MOST_REPLICAS, 0))]
    #[case::more_than_anybody_can_have(3, IntOrPercent::Int(i32::MAX), IntOrPercent::Int(0), (MOST_REPLICAS, 0))]
    fn knobs_become_bounds(
        #[case] desired: i32,
        #[case] max_surge: IntOrPercent,
        #[case] max_unavailable: IntOrPercent,
        #[case] expected: (i32, i32),
    ) {
        let bounds = ReplicaBounds::resolve(desired, max_surge, max_unavailable);
        assert_eq!((bounds.max_surge, bounds.max_unavailable), expected);
    }
}
