//! Facts that all parts of a plan share.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{
    OrphanPolicy, Snapshot, VmListing,
    nodes::{NodeIndex, TargetNode},
};
use mcm_driver::VmsByProviderId;
use mcm_rules::safety::orphans::{VmClassification, identity};

/// The shortest pause between two lists.
pub(super) const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// The right without which others with the same cluster tag cannot be found.
pub(super) const MISSING_RIGHT: &str = "the right to list machineclasses.machine.sapcloud.io in all namespaces";

/// The verdict on each listed VM.
pub(super) type VmVerdicts<'a> = BTreeMap<&'a str, VmClassification>;

/// Other owners of VMs in a list, beside the namespace of the class.
pub(super) enum VmListSharing {
    /// No other namespace, as far as can be read.
    Alone,
    /// Other namespaces also have VMs in it; contains the evidence.
    Shared(String),
    /// This process may not find out.
    Unchecked,
    /// The other owners could not be read; contains the reason.
    Unknown(String),
}

/// A complete list, and the verdicts on it.
pub(super) struct OrphanPass<'a> {
    pub snapshot: &'a Snapshot,
    pub policy: &'a OrphanPolicy,
    pub list: &'a VmListing,
    pub vms: &'a VmsByProviderId,
    pub verdicts: VmVerdicts<'a>,
    pub sharing: VmListSharing,
    pub nodes: NodeIndex<'a>,
}

impl<'a> OrphanPass<'a> {
    /// A VM as users see it.
    pub(super) fn describe(&self, id: &str) -> String {
        identity(id, self.machine_of(id))
    }

    /// Name of the Machine that a VM was created for.
    pub(super) fn machine_of(&self, id: &str) -> &'a str {
        self.vms.get(id).map(|vm| vm.machine.as_str()).unwrap_or_default()
    }

    /// IDs of the VMs with a verdict.
    pub(super) fn with(&self, verdict: VmClassification) -> impl Iterator<Item = &'a str> {
        self.verdicts.iter().filter(move |(_, one)| **one == verdict).map(|(id, _)| *id)
    }

    /// The Node of a VM without a Machine.
    pub(super) fn node_of(&self, id: &str) -> Option<&'a TargetNode> {
        self.nodes.of_vm(id, self.vms.get(id)?)
    }

    /// Orphans without a Node.
    pub(super) fn bare(&self) -> impl Iterator<Item = &'a str> {
        self.with(VmClassification::Orphan).filter(|id| self.node_of(id).is_none())
    }

    /// Orphans with a Node.
    pub(super) fn serving(&self) -> impl Iterator<Item = (&'a str, &'a TargetNode)> {
        self.with(VmClassification::Orphan).filter_map(|id| Some((id, self.node_of(id)?)))
    }
}

/// Between two lists of a class.
pub(super) fn period_of(policy: &OrphanPolicy) -> SignedDuration {
    SignedDuration::try_from(policy.period).unwrap_or(SignedDuration::MAX).max(SHORTEST_PERIOD)
}

/// For how long a VM must have been without a Machine.
pub(super) fn patience(policy: &OrphanPolicy) -> SignedDuration {
    period_of(policy).max(policy.minimum_age)
}

/// For how long another manager may remove the annotation from the Node of a VM.
pub(super) fn probe(policy: &OrphanPolicy) -> SignedDuration {
    patience(policy).max(policy.claim_timeout)
}

pub(super) fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// At most a few of many.
pub(super) fn shortened(all: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
