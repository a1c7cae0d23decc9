//! How long a drain takes, in a world of which time is the only cost.

use super::{super::*, NOW, pod, round_with};

const PODS: usize = 100;
/// How many of them may be away at a time.
const AWAY: usize = 5;
/// Milliseconds until an evicted pod is terminated, and until its replacement is ready.
const TERMINATES: i64 = 3_000;
const REPLACED: i64 = 5_000;
const STEP: i64 = 100;

fn at(millisecond: i64) -> Timestamp {
    Timestamp::from_millisecond(NOW * 1_000 + millisecond).unwrap()
}

/// A budget that lets `AWAY` pods be away.
#[derive(Default)]
struct Budget {
    evicted_at: Vec<i64>,
    version: u64,
    last: usize,
}

impl Budget {
    fn allows(&mut self, now: i64) -> usize {
        let away = self.evicted_at.iter().filter(|evicted| now < *evicted + REPLACED).count();
        let allows = AWAY - away;
        if allows != self.last {
            self.version += 1;
            self.last = allows;
        }
        allows
    }
}

#[test]
fn a_drain_of_100_pods_under_a_budget_of_5_takes_as_long_as_the_budget_permits() {
    let mut left: Vec<PodFacts> = (0..PODS).map(|number| pod(&format!("p{number:03}"))).collect();
    let (mut attempts, mut budget, volumes) = (PodAttempts::new(), Budget::default(), VolumeTracker::default());
    let (mut evicted, mut rounds) = (BTreeMap::<Arc<str>, i64>::new(), DrainRounds::default());
    let (mut now, mut wake, mut seen, mut calls) = (0, 0, 0, 0);
    loop {
        assert!(now < 600_000, "no end: {} pods are left", left.len());
        let allows = budget.allows(now);
        let is_woken = allows > 0 && budget.version != seen;
        if now < wake && !is_woken {
            now += STEP;
            continue;
        }
        seen = budget.version;
        left.retain(|pod| evicted.get(&pod.pod.uid).is_none_or(|evicted| now < evicted + TERMINATES));
        attempts.retain(|uid, _| left.iter().any(|pod| pod.pod.uid == *uid));
        rounds.listed(&left);
        let allowance =
            DisruptionAllowance { version: budget.version.to_string(), disruptions: i32::try_from(allows).unwrap() };
        let mut allowances = BTreeMap::from([("ns/b".to_owned(), allowance)]);
        let plan = loop {
            let round =
                DrainRuleInput { allowances: &allowances, now: at(now), ..round_with(&attempts, &rounds, &volumes) };
            let plan = plan(&left, &round);
            if plan.calls.is_empty() {
                break plan;
            }
            for call in plan.calls {
                calls += 1;
                let answer = if budget.allows(now) > 0 {
                    budget.evicted_at.push(now);
                    evicted.insert(call.pod.uid.clone(), now);
                    DrainAnswer::Accepted
                } else {
                    let version = Some(budget.version.to_string());
                    let (message, budget) = ("no".to_owned(), Some("ns/b".to_owned()));
                    DrainAnswer::Refused(EvictionRefusal {
                        message,
                        budget,
                        version,
                        is_misconfigured: false,
                        is_of_several: false,
                    })
                };
                let before = attempts.get(&call.pod.uid);
                let count = before.map_or(0, |attempt| attempt.count) + 1;
                let since = before.and_then(|attempt| attempt.evicting_since).or(Some(at(now)));
                let attempt = DrainAttempt { method: call.method, at: at(now), count, answer, evicting_since: since };
                attempts.insert(call.pod.uid, attempt);
            }
            allowances.clear();
        };
        if plan.is_done() {
            break;
        }
        let until = plan.waits.iter().filter_map(|wait| wait.until).min().unwrap();
        wake = until.as_millisecond() - NOW * 1_000;
        now += STEP;
    }
    // Twenty times five pods, the last of which need no replacement.
    let least = REPLACED * i64::try_from(PODS / AWAY - 1).unwrap() + TERMINATES;
    assert!((least..=least + 1_000).contains(&now), "{now} ms, and the budget permits {least} ms");
    assert!(calls < 7 * PODS, "{calls} evictions");
}
