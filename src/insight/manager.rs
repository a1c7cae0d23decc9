//! The managers, as their Leases show them.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use crate::terminal::ago;

/// A manager renews its Lease every few seconds. One that is late by less than this may only be slow.
const LATE: SignedDuration = SignedDuration::from_secs(10);

/// The manager of a role, as its Lease shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagerLease {
    /// Name of the Lease.
    pub lease: String,
    /// `sets` or `machines`.
    pub role: String,
    /// Its holder; empty if no process holds it.
    pub holder: String,
    /// When it was last renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub renewed: Option<Timestamp>,
    /// How long a holder has it without a renewal.
    #[serde(skip)]
    #[schemars(skip)]
    pub lasts: SignedDuration,
    /// Whether there is a Lease.
    pub exists: bool,
    /// Since when and why its Machines are frozen, as its holder shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<ManagerFreeze>,
}

/// Since when and why a manager acts on no Machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ManagerFreeze {
    /// The start.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Timestamp,
    /// An error of an API server.
    pub why: String,
}

impl ManagerLease {
    /// A Lease exists that no process renews. Without a Lease a manager may run without leader election.
    pub fn is_gone(&self, now: Timestamp) -> bool {
        self.exists && !self.is_alive(now)
    }

    /// The holder renews the Lease.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        let age = self.renewed.map(|renewed| now.duration_since(renewed));
        !self.holder.is_empty() && age.is_some_and(|age| age <= self.lasts.saturating_add(LATE))
    }

    /// Since when and why its Machines are frozen; `None` if no process holds the Lease any more.
    pub fn freeze(&self, now: Timestamp) -> Option<&ManagerFreeze> {
        self.frozen.as_ref().filter(|_| self.is_alive(now))
    }

    /// The manager that an object waits for, in words; `None` if there is one, or none is needed.
    pub fn absence(&self, now: Timestamp) -> Option<String> {
        let state = self.is_gone(now).then(|| self.state(now))?;
        Some(format!("a manager: {}", state.strip_prefix("no manager runs: ").unwrap_or(&state)))
    }

    /// The manager in words.
    pub fn state(&self, now: Timestamp) -> String {
        let renewed = self.renewed.map(|at| ago(now, at)).unwrap_or_default();
        match (self.exists, self.is_alive(now)) {
            (false, _) => {
                format!("there is no Lease {}: no manager runs, or it runs without leader election", self.lease)
            }
            (true, true) => {
                let frozen = self
                    .freeze(now)
                    .map(|one| format!("; its machines are frozen since {:.0}: {}", one.since, one.why));
                format!(
                    "{} holds the Lease {}, renewed {renewed} ago{}",
                    self.holder,
                    self.lease,
                    frozen.unwrap_or_default()
                )
            }
            (true, false) if self.holder.is_empty() => {
                format!("no manager runs: no process holds the Lease {}", self.lease)
            }
            (true, false) => {
                format!("no manager runs: {} renewed the Lease {} {renewed} ago", self.holder, self.lease)
            }
        }
    }
}
