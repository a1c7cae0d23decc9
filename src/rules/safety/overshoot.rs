//! The overshoot freeze: when a set has so many Machines that it must not create more, and when it may again.

/// Distances of the limits (`--safety-up`, `--safety-down`), in Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OvershootMargins {
    /// How many Machines beyond the largest number that is planned for freeze a set.
    pub up: u32,
    /// How many Machines below that limit a set is unfrozen.
    pub down: u32,
}

impl Default for OvershootMargins {
    fn default() -> Self {
        Self { up: 2, down: 1 }
    }
}

/// The limits of one set, in Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OvershootLimits {
    /// So many freeze the set.
    pub upper: i64,
    /// So many or fewer unfreeze it. Less than `upper`, but not less than 0: otherwise a set would be frozen and
    /// unfrozen without end, or never unfrozen.
    pub lower: i64,
}

/// The decision about a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeDecision {
    /// It has too many Machines.
    Freeze,
    /// It has few enough Machines.
    Unfreeze,
    /// It stays as it is.
    Leave,
}

impl OvershootLimits {
    /// For a set of a deployment: replicas and maxSurge of the deployment, because one set may have all its Machines.
    pub fn of_deployment(replicas: i32, max_surge: i32, margins: OvershootMargins) -> Self {
        Self::beyond(i64::from(replicas) + i64::from(max_surge), margins)
    }

    /// For a set without a deployment.
    pub fn stand_alone(replicas: i32, margins: OvershootMargins) -> Self {
        Self::beyond(2 * i64::from(replicas), margins)
    }

    fn beyond(planned: i64, margins: OvershootMargins) -> Self {
        let upper = planned + i64::from(margins.up);
        let lower = (upper - i64::from(margins.down)).min(upper - 1).max(0);
        Self { upper, lower }
    }

    /// For a set with so many Machines, terminating ones included.
    pub fn judge(&self, machines: usize) -> FreezeDecision {
        let machines = i64::try_from(machines).unwrap_or(i64::MAX);
        if machines >= self.upper {
            FreezeDecision::Freeze
        } else if machines <= self.lower {
            FreezeDecision::Unfreeze
        } else {
            FreezeDecision::Leave
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const fn margins(up: u32, down: u32) -> OvershootMargins {
        OvershootMargins { up, down }
    }

    #[rstest]
    #[case::defaults(OvershootLimits::of_deployment(3, 1, OvershootMargins::default()), (6, 5))]
    #[case::scaled_down_from_6_to_2(OvershootLimits::of_deployment(2, 1, OvershootMargins::default()), (5, 4))]
    #[case::without_a_surge(OvershootLimits::of_deployment(3, 0, OvershootMargins::default()), (5, 4))]
    #[case::stand_alone(OvershootLimits::stand_alone(3, OvershootMargins::default()), (8, 7))]
    #[case::further_apart(OvershootLimits::of_deployment(3, 1, margins(4, 3)), (8, 5))]
    #[case::at_the_same_number(OvershootLimits::of_deployment(3, 1, margins(2, 0)), (6, 5))]
    #[case::beyond_zero(OvershootLimits::of_deployment(0, 0, margins(2, 9)), (2, 0))]
    #[case::no_margin_and_nothing_desired(OvershootLimits::of_deployment(0, 0, margins(0, 0)), (0, 0))]
    #[case::largest(OvershootLimits::stand_alone(i32::MAX, margins(u32::MAX, 0)), (8_589_934_589, 8_589_934_588))]
    fn limits_follow_replicas_surge_and_margins(#[case] limits: OvershootLimits, #[case] expected: (i64, i64)) {
        assert_eq!((limits.upper, limits.lower), expected);
    }

    #[rstest]
    #[case::at_the_upper_limit(8, FreezeDecision::Freeze)]
    #[case::beyond_it(80, FreezeDecision::Freeze)]
    #[case::below_it(7, FreezeDecision::Leave)]
    #[case::above_the_lower_limit(6, FreezeDecision::Leave)]
    #[case::at_the_lower_limit(5, FreezeDecision::Unfreeze)]
    #[case::none(0, FreezeDecision::Unfreeze)]
    fn a_set_is_judged_by_its_machines(#[case] machines: usize, #[case] expected: FreezeDecision) {
        assert_eq!(OvershootLimits::of_deployment(3, 1, margins(4, 3)).judge(machines), expected);
    }

    proptest! {
        /// A set within replicas and maxSurge is never frozen with a margin, and an empty one never stays frozen.
        #[test]
        fn planned_machines_cause_no_freeze_and_every_freeze_can_end(
            replicas in 0..i32::MAX, surge in 0..i32::MAX, up in 1_u32.., down in 0_u32.., machines in 0..usize::MAX,
        ) {
            let limits = OvershootLimits::of_deployment(replicas, surge, margins(up, down));
            if i64::try_from(machines).is_ok_and(|machines| machines <= i64::from(replicas) + i64::from(surge)) {
                prop_assert_ne!(limits.judge(machines), FreezeDecision::Freeze);
            }
            prop_assert_eq!(limits.judge(0), FreezeDecision::Unfreeze);
            prop_assert!(limits.lower < limits.upper);
        }
    }
}
