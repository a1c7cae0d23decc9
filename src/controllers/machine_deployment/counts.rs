//! The Machines of one set as numbers. All arithmetic of a rollout works on these, without objects.
//!
//! Example: a set with `spec.replicas: 6` whose Machines are m1 Running, m2 Failed and preserved, m3 Pending, m4 being
//! deleted, m6 undecodable, m7 Running; the create call for m5 and the delete call for m7 are in flight.
//!
//! | Number | Meaning | Example |
//! |---|---|---|
//! | `replicas` | `spec.replicas`; 0 while the set is being deleted | 6 |
//! | `live` | Machines that exist, can be decoded, and are not being deleted | 4: m1 m2 m3 m7 |
//! | `deleting` | live Machines whose delete call is in flight: it may fail, so they count as existing; it may succeed, so they do not count as available | 1: m7 |
//! | `unreadable` | Machines that exist and cannot be decoded: a set never deletes them | 1: m6 |
//! | `creating` | Machines whose create call is in flight | 1: m5 |
//! | `terminating` | Machines that are being deleted | 1: m4 |
//! | `available` | live Machines that are available, except those in `deleting` and Machines that the autoscaler chose: their set deletes them whatever its replicas are | 1: m1 |
//! | `expendable` | live Machines that are not available and that the set deletes before any available one | 1: m3, not m2: it is preserved |
//! | `current()` | Machines that exist | 6 |
//! | `asked()` | Machines that stay or will be created: max(live + unreadable + creating, replicas) | 6 |
//! | `planned()` | counts against maxSurge: everything, including replacements of Machines being deleted | 8 |
//! | `available_after(2)` | available Machines, in the worst case, once `replicas` is 2: of m1 m2 m3 the set deletes m3 | 1 |
//! | `available_after(1)` | the same for 1: the set deletes m3 and m1 before m2 | 0 |
//! | `outliving()` | Machines that are not available and that the set may keep longer than available ones | 2: m2 m6 |

/// See the table above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplicaCounts {
    pub replicas: i32,
    pub live: i32,
    pub deleting: i32,
    pub unreadable: i32,
    pub creating: i32,
    pub terminating: i32,
    pub available: i32,
    pub expendable: i32,
}

impl std::iter::Sum for ReplicaCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| Self {
            replicas: sum.replicas + count.replicas,
            live: sum.live + count.live,
            deleting: sum.deleting + count.deleting,
            unreadable: sum.unreadable + count.unreadable,
            creating: sum.creating + count.creating,
            terminating: sum.terminating + count.terminating,
            available: sum.available + count.available,
            expendable: sum.expendable + count.expendable,
        })
    }
}

impl ReplicaCounts {
    pub(crate) const fn current(&self) -> i32 {
        self.live + self.unreadable + self.terminating
    }

    pub(crate) fn planned(&self) -> i32 {
        self.terminating + self.deleting + (self.staying() + self.unreadable + self.creating).max(self.replicas)
    }

    /// Machines that exist or are being created, without terminating ones.
    pub(crate) const fn present(&self) -> i32 {
        self.live + self.unreadable + self.creating
    }

    pub(crate) fn asked(&self) -> i32 {
        self.asked_after(self.replicas)
    }

    /// [`ReplicaCounts::asked`], once the set has this many replicas.
    pub(crate) fn asked_after(&self, replicas: i32) -> i32 {
        self.present().max(replicas)
    }

    /// Live Machines without a delete call in flight.
    pub(crate) const fn staying(&self) -> i32 {
        self.live - self.deleting
    }

    pub(crate) fn available_after(&self, replicas: i32) -> i32 {
        let deleted = (self.staying() - replicas).max(0);
        (self.available - (deleted - self.expendable).max(0)).max(0)
    }

    /// Available Machines, in the worst case, once the set has `spec.replicas` Machines.
    pub(crate) fn available_now(&self) -> i32 {
        self.available_after(self.replicas)
    }

    pub(crate) const fn outliving(&self) -> i32 {
        self.staying() + self.unreadable - self.available - self.expendable
    }

    /// The smallest number of replicas, not above the current one, at which `keep` Machines stay available. As long as the
    /// set has a surplus to delete which may take all that are available, keeping them is to wait for that.
    pub(crate) fn fewest_keeping(&self, keep: i32) -> i32 {
        let may_lose_all = self.available > 0 && self.available_now() == 0;
        if keep == 0 && may_lose_all {
            return self.replicas;
        }
        if keep <= 0 {
            return 0;
        }
        (self.staying() - self.expendable - (self.available - keep)).max(0).min(self.replicas)
    }
}

/// Examples that the tests of the arithmetic share.
#[cfg(test)]
pub(super) mod examples {
    use proptest::prelude::*;

    use crate::machine_deployment::counts::ReplicaCounts;

    pub(crate) fn healthy(replicas: i32) -> ReplicaCounts {
        ReplicaCounts { replicas, live: replicas, available: replicas, ..ReplicaCounts::default() }
    }

    pub(crate) fn booting(replicas: i32) -> ReplicaCounts {
        ReplicaCounts { replicas, live: replicas, expendable: replicas, ..ReplicaCounts::default() }
    }

    /// A set with replicas of which some are not available and not deleted first.
    pub(crate) fn with_outliving(replicas: i32, outliving: i32) -> ReplicaCounts {
        ReplicaCounts { available: replicas - outliving, ..healthy(replicas) }
    }

    prop_compose! {
        pub(crate) fn any_counts()(
            replicas in 0..8, available in 0..6, expendable in 0..4, other in 0..3, deleting in 0..2,
            unreadable in 0..2, creating in 0..3, terminating in 0..4,
        ) -> ReplicaCounts {
            ReplicaCounts { replicas, live: available + expendable + other + deleting, deleting, unreadable, creating, terminating, available, expendable }
        }
    }
}

/// The facts about a set that scaling needs. Sets are given oldest first. Sets being deleted are left out and count in
/// `Mode::departing`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScalableSet {
    pub counts: ReplicaCounts,
    /// Live Machines that the autoscaler marked for deletion.
    pub chosen: i32,
    /// The set has the current template.
    pub is_new: bool,
    /// Replicas of the deployment when the set was last sized, as annotated.
    pub desired: Option<i32>,
    /// Replicas plus surge when the set was last sized, as annotated.
    pub max: Option<i32>,
}

impl ScalableSet {
    pub(super) fn is_active(&self) -> bool {
        self.counts.replicas > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{examples::any_counts, *};
    use proptest::prelude::*;

    #[test]
    fn the_example_in_the_table_is_right() {
        let counts = ReplicaCounts {
            replicas: 6,
            live: 4,
            deleting: 1,
            unreadable: 1,
            creating: 1,
            terminating: 1,
            available: 1,
            expendable: 1,
        };
        assert_eq!((counts.current(), counts.asked(), counts.planned()), (6, 6, 8));
        assert_eq!((counts.available_after(2), counts.available_after(1), counts.outliving()), (1, 0, 2));
    }

    proptest! {
        #[test]
        fn the_fewest_replicas_are_exact(counts in any_counts(), keep in 1..6) {
            let fewest = counts.fewest_keeping(keep);
            prop_assert!(fewest <= counts.replicas);
            if counts.available_now() >= keep {
                prop_assert!(counts.available_after(fewest) >= keep);
                prop_assert!(fewest == 0 || counts.available_after(fewest - 1) < keep);
            }
        }
    }
}
