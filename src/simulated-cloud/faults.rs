//! Delays calls or makes them fail, as configured.

use std::collections::HashMap;

use jiff::Timestamp;

use super::control::{InjectedFault, SimulationSettings, ThrottleSettings};
use mcm_driver::operation::DriverOperation;

/// Decides about each call. The decision is a function of seed, settings, operation, Machine and the number of earlier
/// calls for that Machine, and of nothing else.
#[derive(Debug)]
pub(super) struct FaultInjector {
    seed: u64,
    /// How often each fault of the settings has struck.
    strikes: Vec<u64>,
    /// Number of calls so far; kept only while there is a fault that depends on it.
    calls: HashMap<(DriverOperation, String), u64>,
    bucket: Option<ThrottleBucket>,
}

#[derive(Debug)]
struct ThrottleBucket {
    tokens: f64,
    at: Timestamp,
}

impl FaultInjector {
    pub(super) fn seeded(seed: u64) -> Self {
        Self { seed, strikes: Vec::new(), calls: HashMap::new(), bucket: None }
    }

    /// Resets the counters, after the faults were changed.
    pub(super) fn reset(&mut self) {
        self.strikes.clear();
        self.calls.clear();
    }

    /// Starts with a full bucket; for when the throttle has changed.
    pub(super) fn refill(&mut self) {
        self.bucket = None;
    }

    /// One call more is beyond the throttle.
    pub(super) fn is_throttled(&mut self, throttle: &ThrottleSettings, now: Timestamp) -> bool {
        let burst = throttle.burst.unwrap_or(throttle.calls_per_second).max(1.0);
        let bucket = self.bucket.get_or_insert(ThrottleBucket { tokens: burst, at: now });
        let elapsed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + elapsed * throttle.calls_per_second).min(burst);
        bucket.at = now;
        let throttled = bucket.tokens < 1.0;
        if !throttled {
            bucket.tokens -= 1.0;
        }
        throttled
    }

    /// The fault that strikes this call.
    pub(super) fn strike(
        &mut self,
        control: &SimulationSettings,
        operation: DriverOperation,
        machine: &str,
    ) -> Option<InjectedFault> {
        if control.faults.is_empty() {
            return None;
        }
        let call = if control.faults.iter().any(|fault| fault.rate < 1.0) {
            let calls = self.calls.entry((operation, machine.to_owned())).or_default();
            *calls += 1;
            *calls
        } else {
            0
        };
        self.strikes.resize(control.faults.len(), 0);
        for (index, (fault, strikes)) in control.faults.iter().zip(&mut self.strikes).enumerate() {
            let applies = fault.operation.is_none_or(|wanted| wanted == operation)
                && fault.machines.matches(machine)
                && fault.count.is_none_or(|count| *strikes < count)
                && (fault.rate >= 1.0 || roll(self.seed, index, operation, machine, call) < fault.rate);
            if applies {
                *strikes += 1;
                return Some(fault.clone());
            }
        }
        None
    }
}

/// A pseudorandom number from 0 to below 1.
fn roll(seed: u64, index: usize, operation: DriverOperation, machine: &str, call: u64) -> f64 {
    let mut hash = mix(seed ^ mix(index as u64));
    for byte in operation.as_str().bytes().chain([0]).chain(machine.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (mix(hash ^ mix(call)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Spreads the bits of a number (splitmix64).
pub(super) const fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn control(faults: serde_json::Value) -> SimulationSettings {
        SimulationSettings::replaced(&SimulationSettings::default(), json!({ "faults": faults })).unwrap()
    }

    fn struck(
        seed: u64,
        control: &SimulationSettings,
        machines: impl IntoIterator<Item = usize>,
    ) -> Vec<(usize, Vec<bool>)> {
        let mut faults = FaultInjector::seeded(seed);
        let mut all: Vec<_> = machines
            .into_iter()
            .map(|number| {
                let name = format!("m-{number}");
                let mut call = || faults.strike(control, DriverOperation::Create, &name).is_some();
                (number, vec![call(), call(), call()])
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn the_same_seed_affects_the_same_calls_in_any_order() {
        let control = control(json!([{"rate": 0.3, "code": "Internal"}]));
        let forwards = struck(7, &control, 0..500);
        assert_eq!(forwards, struck(7, &control, (0..500).rev()));
        assert_ne!(forwards, struck(8, &control, 0..500));
        let share = forwards.iter().flat_map(|(_, calls)| calls).filter(|hit| **hit).count();
        assert!((350..550).contains(&share), "{share} of 1500 calls were struck at a rate of 0.3");
        assert!(forwards.iter().any(|(_, calls)| calls == &[true, false, false]), "a repeated call may fare better");
    }

    #[test]
    fn a_count_is_used_up_and_the_next_fault_takes_over() {
        let control = control(json!([
            {"count": 2, "code": "Internal"}, {"machines": "x-*", "code": "DataLoss"}
        ]));
        let mut faults = FaultInjector::seeded(0);
        let mut code = |machine| faults.strike(&control, DriverOperation::Delete, machine).and_then(|fault| fault.code);
        use mcm_driver::code::Code::{DataLoss, Internal};
        let seen = [code("x-1"), code("y-1"), code("x-1"), code("y-1")];
        assert_eq!(seen, [Some(Internal), Some(Internal), Some(DataLoss), None]);
    }

    #[test]
    fn a_fault_strikes_only_its_operation() {
        let control = control(json!([{"operation": "list", "code": "Internal"}]));
        let mut faults = FaultInjector::seeded(0);
        let hit = super::super::control::OPERATIONS.map(|operation| faults.strike(&control, operation, "").is_some());
        assert_eq!(hit, [false, false, false, false, true, false, false]);
    }

    #[test]
    fn a_throttle_lets_a_burst_pass_and_then_its_rate() {
        let throttle =
            ThrottleSettings { calls_per_second: 2.0, burst: Some(3.0), code: mcm_driver::code::Code::Unavailable };
        let mut faults = FaultInjector::seeded(0);
        let start = Timestamp::UNIX_EPOCH;
        let mut passed = |millis| {
            let now = start + jiff::SignedDuration::from_millis(millis);
            (0..5).filter(|_| !faults.is_throttled(&throttle, now)).count()
        };
        assert_eq!([passed(0), passed(400), passed(500), passed(1500)], [3, 0, 1, 2]);
    }
}
