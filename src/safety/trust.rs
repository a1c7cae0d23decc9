//! Whether what is known of a target cluster can be believed.

use jiff::{SignedDuration, Timestamp};

/// Plain data: the runtime observes the watches and the API server, plans read what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetTrust {
    /// The caches follow the API server.
    Trusted {
        /// When that was so again after it was not; `None` if it always was.
        again_since: Option<Timestamp>,
    },
    /// The caches may be behind by any time: nothing is concluded from them.
    Untrusted {
        /// Since when.
        since: Timestamp,
        /// Why, as a person would say it.
        reason: String,
    },
}

/// How long Nodes have to report after their API server is back before their Machines are judged. A kubelet tries every
/// 10 s; a Node that could not register tries within 7 s.
const RECOVERY: SignedDuration = SignedDuration::from_mins(1);

impl Default for TargetTrust {
    fn default() -> Self {
        Self::Trusted { again_since: None }
    }
}

impl TargetTrust {
    /// A deadline for something that only the target cluster can show, put off while nobody could see it.
    pub fn put_off(&self, deadline: Timestamp) -> Timestamp {
        match self {
            Self::Trusted { again_since: Some(since) } => {
                deadline.max(since.checked_add(RECOVERY).unwrap_or(Timestamp::MAX))
            }
            Self::Trusted { again_since: None } | Self::Untrusted { .. } => deadline,
        }
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
}
