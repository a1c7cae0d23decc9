//! The capacity that clouds report for types of VMs. Each is read once a day. Pure.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};

use mcm_api::{backoff::Backoff, machine::MachineClass};
use mcm_driver::{CloudAccount, Code, DriverError, VmCapacity};

/// A capacity is read again after this time. Clouds do not change their types, but operators of OpenStack replace flavors.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Pauses between attempts of a read that fails.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(1800));

/// A type of VMs of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::provider) struct CapacityKey {
    pub account: CloudAccount,
    /// As the driver names it.
    pub name: String,
}

/// A class without `nodeTemplate`, whose driver reads the capacity of its VMs.
#[derive(Clone, Debug)]
pub(in crate::provider) struct VmType {
    pub class: Arc<MachineClass>,
    pub key: CapacityKey,
}

/// The last reads of a type.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::provider) struct CapacityReading {
    /// The answer of the last read that succeeded.
    pub capacity: Option<VmCapacity>,
    /// The error of the last read, if it failed.
    pub failure: Option<String>,
    /// Failures in a row.
    count: u32,
    /// The time of the next read.
    pub until: Timestamp,
}

impl CapacityReading {
    /// The reading after the answer to a read. A failure changes no capacity.
    pub fn after(before: Option<Self>, answer: Result<VmCapacity, DriverError>, now: Timestamp) -> Self {
        let later = |pause: SignedDuration| now.checked_add(pause).unwrap_or(Timestamp::MAX);
        match answer {
            Ok(capacity) => Self { capacity: Some(capacity), failure: None, count: 0, until: later(DAY) },
            // A driver in another process returns it for each class.
            Err(error) if error.code == Code::Unimplemented => {
                Self { capacity: None, failure: None, count: 0, until: later(DAY) }
            }
            Err(error) => {
                let count = before.as_ref().map_or(0, |before| before.count).saturating_add(1);
                let capacity = before.and_then(|before| before.capacity);
                Self { capacity, failure: Some(error.to_string()), count, until: later(RETRIES.after(count)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(cpus: u64) -> Result<VmCapacity, DriverError> {
        Ok(VmCapacity { cpus, ..VmCapacity::default() })
    }

    fn failure() -> Result<VmCapacity, DriverError> {
        Err(DriverError::new(Code::PermissionDenied, "not allowed"))
    }

    #[test]
    fn a_capacity_lasts_a_day_and_a_failure_changes_none() {
        let now = Timestamp::UNIX_EPOCH;
        let first = CapacityReading::after(None, answer(2), now);
        assert_eq!((first.until, first.failure.as_ref()), (now + DAY, None));
        let failed = CapacityReading::after(Some(first), failure(), now + DAY);
        assert_eq!(failed.capacity.as_ref().map(|capacity| capacity.cpus), Some(2));
        assert!(failed.failure.as_ref().is_some_and(|text| text.contains("not allowed")));
        let pause = failed.until.duration_since(now + DAY);
        let again = CapacityReading::after(Some(failed), failure(), now + DAY);
        assert!(again.until.duration_since(now + DAY) > pause, "failures in a row");
        let read = CapacityReading::after(Some(again), answer(4), now + DAY);
        assert_eq!((read.capacity.map(|capacity| capacity.cpus), read.failure), (Some(4), None));
        let cannot = CapacityReading::after(None, Err(DriverError::new(Code::Unimplemented, "cannot")), now);
        assert_eq!((cannot.until, cannot.capacity, cannot.failure), (now + DAY, None, None));
    }
}
