//! The held Leases, computed from reads at different times.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::object::gate::ManagerObstacle;

/// Names of the Leases of a Machine Controller Manager.
pub(super) const NAMES: [&str; 2] = ["machine-controller-manager", "machine-controller"];

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NativeManagerLease {
    pub namespace: String,
    pub name: String,
    /// The identity of its holder; empty if it was released.
    pub holder: String,
    /// Its resource version, which each renewal changes.
    pub version: String,
    /// How long it is valid without a renewal.
    pub validity: SignedDuration,
}

/// A Lease, and the time of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrackedLease {
    pub lease: NativeManagerLease,
    pub since: Timestamp,
}

/// The state after a poll. A Lease that is seen for the first time may just have been renewed.
pub(super) fn known(before: &[TrackedLease], read: Vec<NativeManagerLease>, now: Timestamp) -> Vec<TrackedLease> {
    let since = |lease: &NativeManagerLease| {
        let same = before.iter().find(|known| known.lease == *lease);
        same.map_or(now, |known| known.since)
    };
    read.into_iter().map(|lease| TrackedLease { since: since(&lease), lease }).collect()
}

/// The held Leases, except of holders that manage only native Machines of the provider.
pub(super) fn held(
    known: &[TrackedLease],
    is_harmless: fn(&str) -> bool,
    now: Timestamp,
) -> impl Iterator<Item = &NativeManagerLease> {
    let is_held = move |known: &&TrackedLease| {
        let holder = &known.lease.holder;
        let is_valid = known.since.checked_add(known.lease.validity).is_ok_and(|end| now < end);
        !holder.is_empty() && !is_harmless(holder) && is_valid
    };
    known.iter().filter(is_held).map(|known| &known.lease)
}

/// The obstacle in each namespace.
pub(super) fn obstacles<'a>(held: impl Iterator<Item = &'a NativeManagerLease>) -> BTreeMap<String, ManagerObstacle> {
    let obstacle = |NativeManagerLease { namespace, name, holder, .. }: &NativeManagerLease| {
        let on = format!(
            "Lease {name} of {holder} to expire: that program manages every MCM Machine of namespace {namespace}; \
             stop it, or start this one with --replaces-machine-controller-manager"
        );
        (namespace.clone(), ManagerObstacle { on, is_certain: true })
    };
    held.map(obstacle).collect()
}
