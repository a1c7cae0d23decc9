//! Slows down the replacement of Machines that fail soon after their creation, whatever the clocks show: their age is
//! measured with the monotonic clock of this process, for the Machines that this process created.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

use mcm_api::{backoff::Backoff, machine::Machine};

/// The minimum age at which a failed Machine is replaced, after so many replacements of young ones in a row: 20 s twice,
/// then 40, 80, 160 s and 5 min.
pub(super) const AGES: Backoff = Backoff::new(Duration::from_secs(20), Duration::from_mins(5));

/// The failed Machines of a set that this process created minutes ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct YoungFailures {
    /// The age of each, by UID.
    pub ages: BTreeMap<String, SignedDuration>,
    /// How many times in a row such Machines were replaced.
    pub replacements: u32,
}

impl YoungFailures {
    /// The age at which a failed Machine is replaced.
    pub(super) fn replaced_at_age(&self) -> SignedDuration {
        AGES.after(self.replacements)
    }

    /// The time from which a Machine may be replaced; `None` if that is now.
    pub(super) fn replaced_at(&self, machine: &Machine, now: Timestamp) -> Option<Timestamp> {
        let age = self.ages.get(machine.metadata.uid.as_deref()?)?;
        let left = self.replaced_at_age().saturating_sub(*age);
        if left.is_positive() { now.checked_add(left).ok() } else { None }
    }
}
