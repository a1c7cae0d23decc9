//! Trust in the caches of a target cluster.

use jiff::{SignedDuration, Timestamp};

/// Trust in a target cluster, as plain data: the runtime observes watches and API server, plans read the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetTrust {
    /// The caches are up to date.
    Trusted {
        /// The last interruption, if there was one.
        after: Option<TrustInterruption>,
    },
    /// The caches may be stale: nothing is concluded from them.
    Untrusted {
        /// Since when.
        since: Timestamp,
        /// The reason, as text.
        reason: String,
    },
}

/// A time in which a target cluster could not be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustInterruption {
    /// The last sign of life before it; the earliest time if there was none.
    pub began: Timestamp,
    /// When the caches became up to date again.
    pub ended: Timestamp,
}

impl TrustInterruption {
    /// The last of two, or both if they overlap.
    pub fn last(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        let (earlier, later) = if one.ended <= other.ended { (one, other) } else { (other, one) };
        let began = if earlier.ended < later.began { later.began } else { later.began.min(earlier.began) };
        Some(Self { began, ended: later.ended })
    }
}

/// After an interruption, how long Nodes may take to report before timeouts of their Machines count. A kubelet retries
/// every 10 s; a Node that could not register retries within 7 s.
const RECOVERY: SignedDuration = SignedDuration::from_mins(1);

impl Default for TargetTrust {
    fn default() -> Self {
        Self::Trusted { after: None }
    }
}

impl TargetTrust {
    /// When Nodes have had time to report after an interruption, if there was one.
    pub fn settled_at(&self) -> Option<Timestamp> {
        match self {
            Self::Trusted { after: Some(last) } => Some(last.ended.checked_add(RECOVERY).unwrap_or(Timestamp::MAX)),
            Self::Trusted { after: None } | Self::Untrusted { .. } => None,
        }
    }

    /// A state that lasts since then began during the last interruption. A state from before it is trusted.
    /// Stored times are whole seconds, so whole seconds are compared.
    pub fn interrupted(&self, since: Timestamp) -> bool {
        match self {
            Self::Trusted { after: Some(last) } => {
                (last.began.as_second()..last.ended.as_second()).contains(&since.as_second())
            }
            Self::Trusted { after: None } | Self::Untrusted { .. } => false,
        }
    }

    /// A deadline for something that only the target cluster can show: at the earliest `RECOVERY` after an
    /// interruption.
    pub fn put_off(&self, deadline: Timestamp) -> Timestamp {
        self.settled_at().map_or(deadline, |settled| deadline.max(settled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn between(began: i64, ended: i64) -> Option<TrustInterruption> {
        Some(TrustInterruption { began: at(began), ended: at(ended) })
    }

    #[test]
    fn deadlines_are_put_off_only_after_an_outage() {
        let back = TargetTrust::Trusted { after: between(20, 100) };
        assert_eq!(back.put_off(at(90)), at(160), "it passed while nobody could see what came of it");
        assert_eq!(back.put_off(at(500)), at(500));
        assert_eq!(TargetTrust::default().put_off(at(90)), at(90));
    }

    #[test]
    fn what_began_during_an_outage_was_interrupted_and_what_lasted_before_was_not() {
        let back = TargetTrust::Trusted { after: between(20, 100) };
        assert_eq!([19, 20, 99, 100].map(|second| back.interrupted(at(second))), [false, true, true, false]);
        assert!(!TargetTrust::default().interrupted(at(0)));
        let away = TargetTrust::Untrusted { since: at(0), reason: String::new() };
        assert!(!away.interrupted(at(0)), "nothing is known while it lasts");
    }

    #[test]
    fn of_two_outages_the_last_one_counts_and_two_that_overlap_are_one() {
        let last = |one, other| (TrustInterruption::last(one, other), TrustInterruption::last(other, one));
        assert_eq!(last(between(0, 10), between(20, 30)), (between(20, 30), between(20, 30)));
        assert_eq!(last(between(0, 25), between(20, 30)), (between(0, 30), between(0, 30)));
        assert_eq!(last(between(5, 40), between(20, 30)), (between(5, 40), between(5, 40)));
        assert_eq!(last(None, between(20, 30)), (between(20, 30), between(20, 30)));
    }
}
