//! Faults between the process and its API servers, and their rates. One seed decides all of them.

use std::{env, fmt, sync::Arc, time::Duration};

use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        api_server::{ApiCall, ApiVerb, CallDelivery, DeliveryOutcome, EVENTS, Kind, LEASES, NetworkModel, WatchFault},
        clock::{EPOCH, VirtualClock},
    },
    rng::Rng,
};
use mcm_runtime::clock::TimeSource;

/// Rates of faults, per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Requests that fail, or whose answer is lost.
    pub api: usize,
    /// Objects that another client changes at the same moment.
    pub overtaken: usize,
    /// Calls of the cloud that fail, or whose answer is lost.
    pub cloud: usize,
    /// Changes that watches show late.
    pub late: usize,
    /// Watches that end early.
    pub broken: usize,
    /// External events that are faults.
    pub mishaps: usize,
    /// Longest latency of a request, and of its answer, in milliseconds.
    pub latency: i64,
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api, overtaken, cloud, late, broken, mishaps, latency } = self;
        write!(
            f,
            "of 1000: API {api}, overtaken {overtaken}, cloud {cloud}, late {late}, broken {broken}, mishaps {mishaps}; {latency} ms"
        )
    }
}

impl Rates {
    pub(super) fn any(rng: &mut Rng) -> Self {
        let mut any = |of: &[usize]| *rng.pick(of).unwrap();
        Self {
            api: any(&[0, 0, 30, 120]),
            overtaken: any(&[0, 20, 80]),
            cloud: any(&[0, 0, 60, 250]),
            late: any(&[0, 0, 50, 200]),
            broken: any(&[0, 0, 100, 500]),
            mishaps: any(&[0, 0, 300, 600]),
            latency: *rng.pick(&[5, 50, 1000]).unwrap(),
        }
    }

    /// No more faults.
    pub(super) fn calm() -> Self {
        Self { latency: 5, ..Self::default() }
    }
}

/// The random numbers and the log of a run; injects faults into the network of both API servers.
pub(super) struct Faults {
    pub clock: VirtualClock,
    /// Ends the run.
    pub failed: CancellationToken,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    rates: Rates,
    log: Vec<String>,
    failure: Option<String>,
    script: Option<Script>,
    /// Kinds whose watches deliver changes late, with the delay.
    stalled: Vec<(&'static Kind, Duration)>,
}

/// The faults that a scenario injects into single requests.
type Script = Box<dyn FnMut(&ApiCall) -> Option<DeliveryOutcome> + Send>;

impl Faults {
    pub(super) fn new(rng: Rng, rates: Rates) -> Arc<Self> {
        Arc::new(Self {
            clock: VirtualClock::new(),
            failed: CancellationToken::new(),
            state: Mutex::new(State { rng, rates, log: Vec::new(), failure: None, script: None, stalled: Vec::new() }),
        })
    }

    pub(super) fn rates(&self) -> Rates {
        self.state.lock().rates
    }

    pub(super) fn set_rates(&self, rates: Rates) {
        self.state.lock().rates = rates;
    }

    /// Decides the fate of some requests.
    pub(super) fn script(&self, script: impl FnMut(&ApiCall) -> Option<DeliveryOutcome> + Send + 'static) {
        self.state.lock().script = Some(Box::new(script));
    }

    /// From now on watches of a kind show changes so late.
    pub(super) fn stall(&self, kind: &'static Kind, by: Duration) {
        self.state.lock().stalled.push((kind, by));
    }

    pub(super) fn rng<T>(&self, throw: impl FnOnce(&mut Rng) -> T) -> T {
        throw(&mut self.state.lock().rng)
    }

    pub(super) fn one_in(&self, count: usize) -> bool {
        self.rng(|rng| rng.one_in(count))
    }

    pub(super) fn per_mille(&self, rate: usize) -> bool {
        self.rng(|rng| rng.per_mille(rate))
    }

    pub(super) fn millis(&self, range: std::ops::Range<i64>) -> Duration {
        millis(&mut self.state.lock().rng, range)
    }

    pub(super) fn pick<T: Clone>(&self, all: &[T]) -> Option<T> {
        self.rng(|rng| rng.pick(all).cloned())
    }

    pub(super) fn say(&self, what: impl AsRef<str>) {
        let passed = self.clock.now().as_millisecond() - EPOCH * 1000;
        let line = format!("{:>8}.{:03} {}", passed / 1000, passed % 1000, what.as_ref());
        if env::var("MODEL_LIVE").is_ok() {
            eprintln!("{line}");
        }
        self.state.lock().log.push(line);
    }

    /// The first thing that must not be ends the run.
    pub(super) fn must(&self, holds: bool, what: impl FnOnce() -> String) {
        if holds {
            return;
        }
        let what = what();
        self.say(format!("!! {what}"));
        self.state.lock().failure.get_or_insert(what);
        self.failed.cancel();
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.state.lock().log.clone()
    }

    fn decide(&self, call: &ApiCall) -> CallDelivery {
        let State { rng, rates, script, .. } = &mut *self.state.lock();
        let there = millis(rng, 0..rates.latency);
        let mut back = millis(rng, 0..rates.latency);
        let is_spared = call.kind == &EVENTS || call.kind == &LEASES && !rng.one_in(4);
        let is_patch = matches!(call.verb, ApiVerb::MergePatch | ApiVerb::StrategicPatch);
        let scripted = script.as_mut().and_then(|script| script(call));
        let outcome = if let Some(outcome) = scripted {
            outcome
        } else if rng.per_mille(rates.api) && !is_spared {
            any_failure(rng, call.verb)
        } else if is_patch && rng.per_mille(rates.overtaken) && !is_spared {
            DeliveryOutcome::Overtaken
        } else {
            DeliveryOutcome::Answered
        };
        if matches!(outcome, DeliveryOutcome::LostBefore | DeliveryOutcome::LostAfter) && rng.one_in(4) {
            back += millis(rng, 1000..30_000);
        }
        CallDelivery { there, back, outcome }
    }
}

fn any_failure(rng: &mut Rng, verb: ApiVerb) -> DeliveryOutcome {
    let outcomes: &[DeliveryOutcome] = match verb {
        ApiVerb::Get | ApiVerb::List | ApiVerb::Watch => &[
            DeliveryOutcome::LostBefore,
            DeliveryOutcome::Refused(403),
            DeliveryOutcome::Refused(404),
            DeliveryOutcome::Refused(429),
            DeliveryOutcome::Refused(500),
            DeliveryOutcome::Refused(503),
            DeliveryOutcome::Refused(504),
        ],
        _ => &[
            DeliveryOutcome::LostBefore,
            DeliveryOutcome::LostAfter,
            DeliveryOutcome::LostAfter,
            DeliveryOutcome::LostAfter,
            DeliveryOutcome::Refused(403),
            DeliveryOutcome::Refused(404),
            DeliveryOutcome::Refused(409),
            DeliveryOutcome::Refused(429),
            DeliveryOutcome::Refused(500),
            DeliveryOutcome::Refused(503),
            DeliveryOutcome::Refused(504),
        ],
    };
    *rng.pick(outcomes).unwrap()
}

/// How long watches last, in milliseconds, that end early.
pub(super) const LONGEST_WATCH: i64 = 120_000;

fn millis(rng: &mut Rng, range: std::ops::Range<i64>) -> Duration {
    let millis: SignedDuration = rng.millis(range);
    Duration::try_from(millis).unwrap()
}

impl NetworkModel for Faults {
    fn fate(&self, call: &ApiCall) -> CallDelivery {
        let fate = self.decide(call);
        if fate.outcome != DeliveryOutcome::Answered {
            self.say(format!("  {}: {} {:?}", call.caller, call.subject(), fate.outcome));
        }
        fate
    }

    fn lag(&self, call: &ApiCall) -> Duration {
        let State { rng, rates, stalled, .. } = &mut *self.state.lock();
        if call.kind == &LEASES {
            return Duration::ZERO;
        }
        if let Some((_, by)) = stalled.iter().find(|(kind, _)| *kind == call.kind) {
            return *by;
        }
        if rng.per_mille(rates.late) { millis(rng, 1000..20_000) } else { millis(rng, 0..rates.latency) }
    }

    fn watch_lasts(&self, call: &ApiCall) -> Option<(Duration, WatchFault)> {
        let State { rng, rates, .. } = &mut *self.state.lock();
        if call.kind == &LEASES || !rng.per_mille(rates.broken) {
            return None;
        }
        let how = match rng.below(3) {
            0 => WatchFault::Silent,
            1 => WatchFault::Reset,
            _ => WatchFault::Closed,
        };
        Some((millis(rng, 1000..LONGEST_WATCH), how))
    }
}
