//! The overshoot freeze: when a set has so many Machines that it must not create more, and when it may again.

/// Distances of the limits (`--safety-up`, `--safety-down`), in Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Margins {
    /// How many Machines beyond the largest number that is planned for freeze a set.
    pub up: u32,
    /// How many Machines below that limit a set is unfrozen.
    pub down: u32,
}

impl Default for Margins {
    fn default() -> Self {
        Self { up: 2, down: 1 }
    }
}

/// The limits of one set, in Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many freeze the set.
    pub upper: i64,
    /// So many or fewer unfreeze it. Less than `upper`, but not less than 0: otherwise a set would be frozen and
    /// unfrozen without end, or never unfrozen.
    pub lower: i64,
}

/// The decision about a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has too many Machines.
    Freeze,
    /// It has few enough Machines.
    Unfreeze,
    /// It stays as it is.
    Leave,
}

impl Limits {
    /// For a set of a deployment: replicas and maxSurge of the deployment, because one set may have all its Machines.
    pub fn of_deployment(replicas: i32, max_surge: i32, margins: Margins) -> Self {
        Self::beyond(i64::from(replicas) + i64::from(max_surge), margins)
    }

    /// For a set without a deployment.
    pub fn stand_alone(replicas: i32, margins: Margins) -> Self {
        Self::beyond(2 * i64::from(replicas), margins)
    }

    fn beyond(planned: i64, margins: Margins) -> Self {
        let upper = planned + i64::from(margins.up);
        let lower = (upper - i64::from(margins.down)).min(upper - 1).max(0);
        Self { upper, lower }
    }

    /// For a set with so many Machines, terminating ones included.
    pub fn judge(&self, machines: usize) -> Verdict {
        let machines = i64::try_from(machines).unwrap_or(i64::MAX);
        if machines >= self.upper {
            Verdict::Freeze
        } else if machines <= self.lower {
            Verdict::Unfreeze
        } else {
            Verdict::Leave
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const fn margins(up: u32, down: u32) -> Margins {
        Margins { up, down }
    }

    #[rstest]
    #[case::defaults(Limits::of_deployment(3, 1, Margins::default()), (6, 5))]
    #[case::scaled_down_from_6_to_2(Limits::of_deployment(2, 1, Margins::default()), (5, 4))]
    #[case::without_a_surge(Limits::of_deployment(3, 0, Margins::default()), (5, 4))]
    #[case::stand_alone(Limits::stand_alone(3, Margins::default()), (8, 7))]
    #[case::further_apart(Limits::of_deployment(3, 1, margins(4, 3)), (8, 5))]
    #[case::at_the_same_number(Limits::of_deployment(3, 1, margins(2, 0)), (6, 5))]
    #[case::beyond_zero(Limits::of_deployment(0, 0, margins(2, 9)), (2, 0))]
    #[case::no_margin_and_nothing_desired(Limits::of_deployment(0, 0, margins(0, 0)), (0, 0))]
    #[case::largest(Limits::stand_alone(i32::MAX, margins(u32::MAX, 0)), (8_589_934_589, 8_589_934_588))]
    fn limits_follow_replicas_surge_and_margins(#[case] limits: Limits, #[case] expected: (i64, i64)) {
        assert_eq!((limits.upper, limits.lower), expected);
    }

    #[rstest]
    #[case::at_the_upper_limit(8, Verdict::Freeze)]
    #[case::beyond_it(80, Verdict::Freeze)]
    #[case::below_it(7, Verdict::Leave)]
    #[case::above_the_lower_limit(6, Verdict::Leave)]
    #[case::at_the_lower_limit(5, Verdict::Unfreeze)]
    #[case::none(0, Verdict::Unfreeze)]
    fn a_set_is_judged_by_its_machines(#[case] machines: usize, #[case] expected: Verdict) {
        assert_eq!(Limits::of_deployment(3, 1, margins(4, 3)).judge(machines), expected);
    }

    proptest! {
        /// A set within replicas and maxSurge is never frozen with a margin, and an empty one never stays frozen.
        #[test]
        fn planned_machines_cause_no_freeze_and_every_freeze_can_end(
            replicas in 0..i32::MAX, surge in 0..i32::MAX, up in 1_u32.., down in 0_u32.., machines in 0..usize::MAX,
        ) {
            let limits = Limits::of_deployment(replicas, surge, margins(up, down));
            if i64::try_from(machines).is_ok_and(|machines| machines <= i64::from(replicas) + i64::from(surge)) {
                prop_assert_ne!(limits.judge(machines), Verdict::Freeze);
            }
            prop_assert_eq!(limits.judge(0), Verdict::Unfreeze);
            prop_assert!(limits.lower < limits.upper);
        }
    }
}
