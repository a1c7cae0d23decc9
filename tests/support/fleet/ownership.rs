//! Judges if replicas of a fleet acted only in control planes whose claims they held. Reads nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// The claims of a control plane: the Lease for machines, and the Lease for sets.
pub const CLAIMS: [&str; 2] = [MACHINES, "machine-controller-manager"];
const MACHINES: &str = "machine-controller";
/// A process that was stopped after it checked its membership, and before it sent its request, sends it when it continues.
const RESUMES_WITHIN: SignedDuration = SignedDuration::from_secs(3);

/// A write to an API server, or a request that may change something in a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetAct {
    /// Its arrival at the server.
    pub at: Timestamp,
    /// The name of the process.
    pub replica: String,
    pub namespace: String,
    pub place: ActPlace,
    /// Method and path.
    pub request: String,
}

/// The place of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ActPlace {
    Control,
    Target,
    Cloud,
}

/// A write of a Lease by a replica.
#[derive(Clone, Debug)]
pub struct LeaseWrite {
    pub begun: Timestamp,
    pub ended: Timestamp,
    pub replica: String,
    pub namespace: String,
    pub lease: String,
    /// Empty if the write releases the Lease.
    pub holder: String,
    /// False if the outcome is unknown.
    pub is_stored: bool,
}

/// A time in which a replica held a Lease, with the writes at both ends.
#[derive(Clone, Debug)]
struct LeaseHold {
    replica: String,
    from: Timestamp,
    until: Option<Timestamp>,
}

/// Acts without a claim, and how many acts were judged.
#[derive(Debug, Default)]
pub struct OwnershipVerdict {
    pub judged: BTreeMap<ActPlace, usize>,
    /// Acts of a replica without the claim.
    pub strangers: Vec<FleetAct>,
    /// Acts of a process that had just been continued.
    pub resumed: Vec<FleetAct>,
}

/// The Leases that replicas held, and their acts that are not judged yet.
#[derive(Debug, Default)]
pub struct OwnershipRecord {
    /// By namespace and Lease, in their order.
    holds: BTreeMap<(String, String), Vec<LeaseHold>>,
    acts: Vec<FleetAct>,
    lease_writes: usize,
    /// When processes continued, by replica: the times before and after the signal.
    continued: BTreeMap<String, (Timestamp, Option<Timestamp>)>,
}

impl OwnershipRecord {
    pub fn add_act(&mut self, act: FleetAct) {
        self.acts.push(act);
    }

    /// A replica that was stopped continues between these times. The second is `None` while the signal is being sent.
    pub fn add_resumption(&mut self, replica: &str, before: Timestamp, after: Option<Timestamp>) {
        self.continued.insert(replica.to_owned(), (before, after));
    }

    /// A write that may have been stored begins a hold and ends none. One that was stored also ends those of others.
    pub fn add_lease_write(&mut self, write: LeaseWrite) {
        self.lease_writes += 1;
        let LeaseWrite { begun, ended, replica, namespace, lease, holder, is_stored } = write;
        let is_claim = CLAIMS.contains(&lease.as_str());
        let holds = self.holds.entry((namespace, lease)).or_default();
        let is_release = holder.is_empty();
        for hold in holds.iter_mut().filter(|hold| is_stored && hold.until.is_none()) {
            let is_own = hold.replica == replica;
            // A replica releases its claims, and empties the memberships of others. Its writes may be recorded out of order.
            let ends = if is_release { is_own || !is_claim } else { !is_own };
            if ends {
                hold.until = Some(ended);
            }
        }
        let is_held = holds.iter().any(|hold| hold.until.is_none() && hold.replica == replica);
        if !is_release && !is_held {
            holds.push(LeaseHold { replica, from: begun, until: None });
        }
    }

    /// Judges the acts before a time, up to which all writes of Leases are recorded, and forgets them.
    pub fn judge_before(&mut self, horizon: Timestamp) -> OwnershipVerdict {
        let mut verdict = OwnershipVerdict::default();
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.acts).into_iter().partition(|act| act.at < horizon);
        self.acts = later;
        for act in due {
            *verdict.judged.entry(act.place).or_default() += 1;
            if self.may(&act) {
                continue;
            }
            match self.has_just_continued(&act) {
                true => verdict.resumed.push(act),
                false => verdict.strangers.push(act),
            }
        }
        verdict
    }

    /// The writes of Leases so far. One with an unknown outcome counts, and one that was refused does not.
    pub fn lease_writes(&self) -> usize {
        self.lease_writes
    }

    /// The replicas that hold a claim of a namespace.
    pub fn holders(&self, namespace: &str) -> BTreeSet<&str> {
        CLAIMS.iter().filter_map(|lease| self.holder(namespace, lease)).collect()
    }

    /// A replica holds a Lease in a namespace: that of its membership, in the namespace of the fleet.
    pub fn holds_any(&self, namespace: &str, replica: &str) -> bool {
        let mut leases = self.holds.keys().filter(|(of, _)| of == namespace);
        leases.any(|(_, lease)| self.holder(namespace, lease) == Some(replica))
    }

    /// How long each claim of a namespace had no holder, after a time at which it had one.
    pub fn gaps_after(&self, namespace: &str, since: Timestamp) -> Vec<SignedDuration> {
        let claims = CLAIMS.iter().filter_map(|lease| self.holds.get(&(namespace.to_owned(), (*lease).to_owned())));
        let gap = |pair: &[LeaseHold]| {
            let until = pair.first()?.until.filter(|until| *until >= since)?;
            Some(pair.last()?.from.duration_since(until).max(SignedDuration::ZERO))
        };
        claims.flat_map(|holds| holds.windows(2)).filter_map(gap).collect()
    }

    /// Writes for machines need the Lease for machines. A write to the control cluster may be of either role, and so may a patch of a
    /// Node: a rollout taints the Nodes of the old sets.
    fn may(&self, act: &FleetAct) -> bool {
        let is_of_either = match act.place {
            ActPlace::Control => true,
            ActPlace::Target => act.request.starts_with("PATCH "),
            ActPlace::Cloud => false,
        };
        let claims: &[&str] = if is_of_either { &CLAIMS } else { &[MACHINES] };
        let is_then = |hold: &LeaseHold| {
            hold.replica == act.replica && hold.from <= act.at && hold.until.is_none_or(|until| act.at <= until)
        };
        let holds = |lease: &&str| self.holds.get(&(act.namespace.clone(), (*lease).to_owned()));
        claims.iter().filter_map(holds).any(|holds| holds.iter().any(is_then))
    }

    fn has_just_continued(&self, act: &FleetAct) -> bool {
        self.continued.get(&act.replica).is_some_and(|(before, after)| {
            *before <= act.at && after.is_none_or(|after| act.at.duration_since(after) <= RESUMES_WITHIN)
        })
    }

    fn holder(&self, namespace: &str, lease: &str) -> Option<&str> {
        let holds = self.holds.get(&(namespace.to_owned(), lease.to_owned()))?;
        holds.iter().rev().find(|hold| hold.until.is_none()).map(|hold| hold.replica.as_str())
    }
}
