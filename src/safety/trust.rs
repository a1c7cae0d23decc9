//! Whether the caches of a target cluster can be trusted.

use jiff::{SignedDuration, Timestamp};

/// Trust in a target cluster, as plain data: the runtime observes watches and API server, plans read the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetTrust {
    /// The caches are up to date.
    Trusted {
        /// When they became up to date again after an interruption; `None` if there was none.
        again_since: Option<Timestamp>,
    },
    /// The caches may be stale: nothing is concluded from them.
    Untrusted {
        /// Since when.
        since: Timestamp,
        /// The reason, as text.
        reason: String,
    },
}

/// After an interruption, how long Nodes may take to report before timeouts of their Machines count. A kubelet retries
/// every 10 s; a Node that could not register retries within 7 s.
const RECOVERY: SignedDuration = SignedDuration::from_mins(1);

impl Default for TargetTrust {
    fn default() -> Self {
        Self::Trusted { again_since: None }
    }
}

impl TargetTrust {
    /// When Nodes have had time to report after an interruption, if there was one.
    pub fn settled_at(&self) -> Option<Timestamp> {
        match self {
            Self::Trusted { again_since: Some(since) } => Some(since.checked_add(RECOVERY).unwrap_or(Timestamp::MAX)),
            Self::Trusted { again_since: None } | Self::Untrusted { .. } => None,
        }
    }

    /// Whether something that lasts since then was interrupted: it began before the last interruption ended. Stored times
    /// are whole seconds, so whole seconds are compared.
    pub fn interrupted(&self, since: Timestamp) -> bool {
        matches!(self, Self::Trusted { again_since: Some(again) } if since.as_second() < again.as_second())
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

    #[test]
    fn deadlines_are_put_off_only_after_an_outage() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let back = TargetTrust::Trusted { again_since: Some(at(100)) };
        assert_eq!(back.put_off(at(90)), at(160), "it passed while nobody could see what came of it");
        assert_eq!(back.put_off(at(500)), at(500));
        assert_eq!(TargetTrust::default().put_off(at(90)), at(90));
    }

    #[test]
    fn what_began_before_the_end_of_an_outage_was_interrupted() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let back = TargetTrust::Trusted { again_since: Some(at(100)) };
        assert!(back.interrupted(at(99)) && !back.interrupted(at(100)));
        assert!(!TargetTrust::default().interrupted(at(0)));
        let away = TargetTrust::Untrusted { since: at(0), reason: String::new() };
        assert!(!away.interrupted(at(0)), "nothing is known while it lasts");
    }
}
