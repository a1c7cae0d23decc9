//! Probes of an API server. One that does not respond for too long freezes Machines.
//!
//! Watches of a cache show most outages. A probe reads from storage, so it also shows that an API server accepts no
//! writes, while it serves watches from memory.

use jiff::{SignedDuration, Timestamp};

use super::trust::{TargetTrust, TrustInterruption};

/// Timing of the probes, from the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTiming {
    /// How long probes must fail before Machines are frozen (`--machine-safety-apiserver-statuscheck-timeout`).
    pub timeout: SignedDuration,
    /// Time between probes (`--machine-safety-apiserver-statuscheck-period`).
    pub period: SignedDuration,
}

impl Default for ProbeTiming {
    fn default() -> Self {
        Self { timeout: SignedDuration::from_secs(30), period: SignedDuration::from_mins(1) }
    }
}

/// The shortest time between two probes.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);

/// The health of an API server according to its probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiServerHealth {
    /// Since when every probe failed, and the first error. A success clears it.
    pub failing: Option<(Timestamp, String)>,
    /// Machines are frozen.
    pub is_frozen: bool,
    /// When it last answered.
    pub answered_at: Option<Timestamp>,
    /// The last outage that froze Machines.
    pub last_outage: Option<TrustInterruption>,
}

impl ApiServerHealth {
    /// After one more probe.
    pub fn after(&self, probe: &Result<(), String>, now: Timestamp, probing: &ProbeTiming) -> Self {
        let Err(error) = probe else {
            let outage = TrustInterruption { began: self.answered_at.unwrap_or(Timestamp::MIN), ended: now };
            let last_outage = if self.is_frozen { Some(outage) } else { self.last_outage };
            return Self { failing: None, is_frozen: false, answered_at: Some(now), last_outage };
        };
        let (since, first) = self.failing.clone().unwrap_or_else(|| (now, error.clone()));
        let is_frozen = self.is_frozen || now.duration_since(since) > probing.timeout;
        Self { failing: Some((since, first)), is_frozen, ..*self }
    }

    /// When to probe again: sooner while probes fail.
    pub fn next_probe(&self, probing: &ProbeTiming) -> SignedDuration {
        let pause = match self.failing {
            None => probing.period,
            Some(_) => (probing.timeout / 5).min(probing.period),
        };
        pause.max(SHORTEST)
    }

    /// Trust in a target cluster, if this is one of the API servers that it depends on.
    pub fn limit(&self, trust: TargetTrust) -> TargetTrust {
        match (trust, &self.failing) {
            (TargetTrust::Trusted { .. }, Some((since, error))) if self.is_frozen => {
                TargetTrust::Untrusted { since: *since, reason: error.clone() }
            }
            (TargetTrust::Trusted { after }, _) => {
                TargetTrust::Trusted { after: TrustInterruption::last(after, self.last_outage) }
            }
            (untrusted, _) => untrusted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// After probes at these times.
    fn probed(probes: &[(i64, bool)]) -> ApiServerHealth {
        let result = |is_up: bool| if is_up { Ok(()) } else { Err("refused".to_owned()) };
        probes.iter().fold(ApiServerHealth::default(), |health, (second, up)| {
            health.after(&result(*up), at(*second), &ProbeTiming::default())
        })
    }

    #[test]
    fn only_probes_that_fail_for_longer_than_the_timeout_freeze() {
        assert!(!probed(&[(0, true), (60, false)]).is_frozen);
        assert!(!probed(&[(60, false), (90, false)]).is_frozen);
        assert!(probed(&[(60, false), (90, false), (91, false)]).is_frozen);
    }

    fn between(began: i64, ended: i64) -> Option<TrustInterruption> {
        Some(TrustInterruption { began: at(began), ended: at(ended) })
    }

    #[test]
    fn a_success_ends_everything_and_an_old_failure_does_not_count() {
        assert!(!probed(&[(0, false), (6, true), (3600, false)]).is_frozen);
        let back = probed(&[(0, true), (60, false), (91, false), (97, true)]);
        let (answered_at, last_outage) = (Some(at(97)), between(0, 97));
        assert_eq!(back, ApiServerHealth { failing: None, is_frozen: false, answered_at, last_outage });
        let later = probed(&[(0, true), (60, false), (91, false), (97, true), (157, true)]);
        assert_eq!(later.last_outage, last_outage, "since it last answered before");
    }

    #[test]
    fn an_outage_that_was_there_at_the_start_may_have_begun_at_any_time() {
        let back = probed(&[(0, false), (31, false), (37, true)]);
        assert_eq!(back.last_outage, Some(TrustInterruption { began: Timestamp::MIN, ended: at(37) }));
    }

    #[test]
    fn probes_are_more_frequent_while_they_fail() {
        let probing = ProbeTiming::default();
        assert_eq!(probed(&[(0, true)]).next_probe(&probing).as_secs(), 60);
        assert_eq!(probed(&[(0, false)]).next_probe(&probing).as_secs(), 6);
        assert_eq!(probed(&[(0, false), (31, false)]).next_probe(&probing).as_secs(), 6, "the end is noticed soon");
        let none = ProbeTiming { timeout: SignedDuration::ZERO, period: SignedDuration::ZERO };
        assert_eq!(ApiServerHealth::default().next_probe(&none), SHORTEST);
    }

    #[test]
    fn trust_in_a_target_is_limited_by_its_api_servers() {
        let trusted = |after| TargetTrust::Trusted { after };
        let frozen = probed(&[(0, false), (31, false)]);
        let away = TargetTrust::Untrusted { since: at(0), reason: "refused".to_owned() };
        assert_eq!(frozen.limit(trusted(None)), away);
        assert_eq!(probed(&[(0, false)]).limit(trusted(between(1, 3))), trusted(between(1, 3)));
        let back = probed(&[(0, true), (6, false), (37, false), (38, true)]);
        assert_eq!(back.limit(trusted(None)), trusted(between(0, 38)));
        assert_eq!(back.limit(trusted(between(80, 90))), trusted(between(80, 90)));
        let untrusted = TargetTrust::Untrusted { since: at(1), reason: "silent".to_owned() };
        assert_eq!(frozen.limit(untrusted.clone()), untrusted);
    }
}
