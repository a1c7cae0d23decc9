//! The managers, as their Leases show them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{story::ObjectRemedy, terminal::ago};
use mcm_rules::plan::{guide::RemedyDanger, shell::CommandCluster};
use mcm_runtime::engaged::switch::{DEPLOYMENT, ParkCause};

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
    /// Why it acts on nothing, if its namespace is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked: Option<ManagerPark>,
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

/// The Deployment for which the manager of a parked namespace waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ManagerPark {
    /// Completes "waits for".
    pub why: String,
    /// A step of a user that ends it.
    #[serde(skip)]
    #[schemars(skip)]
    pub remedy: ObjectRemedy,
}

impl ManagerPark {
    /// The wait of the manager of a namespace, and the remedy.
    pub fn new(cause: ParkCause, namespace: &str) -> Self {
        let (text, note, danger) = match cause {
            ParkCause::Missing | ParkCause::Terminating => {
                ("let gardenlet reconcile the shoot".to_owned(), "it creates the Deployment", RemedyDanger::Safe)
            }
            ParkCause::NoReplicas => (
                format!("kubectl scale deployment {DEPLOYMENT} -n {namespace} --replicas=1"),
                "the manager acts again; leave it if it was scaled down on purpose, as in a hibernation or a migration",
                RemedyDanger::ReplacesMachines,
            ),
        };
        let remedy = ObjectRemedy { text, note, danger, cluster: CommandCluster::Control };
        Self { why: cause.obstacle(namespace), remedy }
    }
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

    /// Shows the renewals of the membership of its holder, a replica of a fleet: it renews its claims rarely. Without a membership,
    /// or with one of another process, the holder acts no more.
    pub fn show_membership(&mut self, membership: Option<&Lease>) {
        let spec = membership.and_then(|lease| lease.spec.as_ref());
        let spec = spec.filter(|spec| spec.holder_identity.as_deref() == Some(&self.holder));
        self.renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        let lasts = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        self.lasts = SignedDuration::from_secs(lasts.into());
    }

    /// Since when and why its Machines are frozen; `None` if no process holds the Lease any more, or the namespace is parked.
    pub fn freeze(&self, now: Timestamp) -> Option<&ManagerFreeze> {
        self.frozen.as_ref().filter(|_| self.is_alive(now) && self.parked.is_none())
    }

    /// The end of a sentence about a manager that runs.
    pub fn park_clause(&self) -> &'static str {
        if self.parked.is_some() { "; the namespace is parked" } else { "" }
    }

    /// The manager that an object waits for, in words; `None` if there is one, or none is needed.
    pub fn absence(&self, now: Timestamp) -> Option<String> {
        Some(format!("a manager, and none runs: {}", self.vacancy(now)?))
    }

    /// Why no process holds the Lease, in words; `None` if one does, or there is no Lease.
    pub fn vacancy(&self, now: Timestamp) -> Option<String> {
        let state = self.is_gone(now).then(|| self.state(now))?;
        Some(state.strip_prefix("no manager runs: ").unwrap_or(&state).to_owned())
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
                    "{} holds the Lease {}, renewed {renewed} ago{}{}",
                    self.holder,
                    self.lease,
                    frozen.unwrap_or_default(),
                    self.park_clause()
                )
            }
            (true, false) if self.holder.is_empty() => {
                format!("no manager runs: no process holds the Lease {}", self.lease)
            }
            (true, false) if self.renewed.is_none() => {
                format!("no manager runs: {}, which holds the Lease {}, has ended", self.holder, self.lease)
            }
            (true, false) => {
                format!("no manager runs: {} renewed the Lease {} {renewed} ago", self.holder, self.lease)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{at, held_lease};

    const HOLDER: &str = "pod@mcm-system/mcm-fleet-one-0000000a_0123456789abcdef0123456789abcdef";

    /// A claim of the replica that was renewed at second 0, with the membership of a holder that was renewed at second 240.
    fn claim(membership: Option<&str>) -> ManagerLease {
        let held = held_lease("machine-controller", "machines", HOLDER, at(0));
        let mut claim = ManagerLease { lasts: SignedDuration::from_secs(900), ..held };
        let lease = membership.map(|holder| {
            let renewed = format!("{:.6}", at(240));
            let spec = json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15});
            serde_json::from_value::<Lease>(json!({ "spec": spec })).unwrap()
        });
        claim.show_membership(lease.as_ref());
        claim
    }

    #[test]
    fn a_claim_is_as_old_as_the_last_renewal_of_its_replica() {
        let claim = claim(Some(HOLDER));
        assert!(claim.is_alive(at(250)) && claim.is_gone(at(300)), "{claim:?}");
    }

    #[test]
    fn a_claim_of_a_replica_that_ended_or_was_expelled_has_no_manager() {
        for membership in
            [None, Some(""), Some("pod@mcm-system/mcm-fleet-one-0000000a_ffffffffffffffffffffffffffffffff")]
        {
            let claim = claim(membership);
            assert!(claim.is_gone(at(1)), "{membership:?}: {claim:?}");
            assert_eq!(claim.renewed, None);
        }
    }
}
