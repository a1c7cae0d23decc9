//! The time of API servers, measured from the `Date` of their responses.
//!
//! API servers stamp objects (`creationTimestamp`) and judge the expiry of tokens by their own clock. Ages of objects are
//! therefore computed with the time of the API server that stores them: with the clock of this host, a difference of
//! some minutes would fail each new Machine, or delete each token at once.

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use parking_lot::Mutex;

use super::{
    clock::{Clock, SteadyClock, SystemClock},
    metrics::{Desc, Exposition, Gauges},
};

const SKEW: Desc<1> = Desc::gauge(
    "mcm_clock_skew_seconds",
    "How far the clock of an API server is ahead of the clock of this host, by its responses.",
    ["server"],
);

/// A `Date` has whole seconds, rounded down.
const PRECISION: SignedDuration = SignedDuration::from_secs(1);
/// Differences up to this are noise. They are not corrected, so that the time does not jump.
pub(super) const NOISE: SignedDuration = SignedDuration::from_secs(2);
/// Larger differences are logged.
const WORTH_A_WARNING: SignedDuration = SignedDuration::from_secs(30);
const WARN_AGAIN: SignedDuration = SignedDuration::from_hours(1);

/// The clocks of all API servers of a process, by host.
#[derive(Debug)]
pub(crate) struct ServerClocks {
    own: Arc<dyn Clock>,
    host: Arc<dyn Clock>,
    clocks: Mutex<BTreeMap<Arc<str>, ServerClock>>,
}

impl Default for ServerClocks {
    fn default() -> Self {
        Self { own: Arc::new(SteadyClock::default()), host: Arc::new(SystemClock), clocks: Mutex::default() }
    }
}

impl ServerClocks {
    /// The clock of the API server at this host.
    pub fn of(&self, server: &Arc<str>) -> ServerClock {
        let new = || ServerClock::new(server, &self.own, &self.host);
        self.clocks.lock().entry(Arc::clone(server)).or_insert_with(new).clone()
    }

    pub fn collect(&self, out: &mut Exposition) {
        let skews = Gauges::default();
        for (server, clock) in &*self.clocks.lock() {
            if let Some(skew) = clock.skew() {
                skews.set([&**server], skew.as_secs_f64());
            }
        }
        skews.collect(&SKEW, out);
    }
}

/// The clock of one API server. Until its first response it is that of this process. Clones share the measurements.
#[derive(Clone, Debug)]
pub struct ServerClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Arc<str>,
    /// Never jumps.
    own: Arc<dyn Clock>,
    /// The time of the host, for logs.
    host: Arc<dyn Clock>,
    measured: Mutex<Measured>,
}

#[derive(Debug, Default)]
struct Measured {
    /// The server is ahead of our clock by at least and at most this much.
    bounds: Option<(SignedDuration, SignedDuration)>,
    /// The correction that is added to our clock.
    applied: SignedDuration,
    warned_at: Option<Timestamp>,
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let ahead = self.0.measured.lock().applied;
        let own = self.0.own.now();
        own.checked_add(ahead).unwrap_or(own)
    }
}

impl ServerClock {
    fn new(server: &Arc<str>, own: &Arc<dyn Clock>, host: &Arc<dyn Clock>) -> Self {
        let (server, own, host) = (Arc::clone(server), Arc::clone(own), Arc::clone(host));
        Self(Arc::new(Inner { server, own, host, measured: Mutex::default() }))
    }

    /// The clock of an API server that answered with this `Date`, seen by a process with this clock.
    #[cfg(test)]
    pub fn that_answered(date: &str, own: &super::clock::ManualClock) -> Self {
        let time: Arc<dyn Clock> = Arc::new(own.clone());
        let clock = Self::new(&Arc::from("target"), &time, &time);
        let headers = [(DATE, http::HeaderValue::from_str(date).unwrap_or(http::HeaderValue::from_static("")))];
        clock.observe(&headers.into_iter().collect(), clock.sent());
        clock
    }

    /// When a request is sent, for [`Self::observe`].
    pub(super) fn sent(&self) -> Timestamp {
        self.0.own.now()
    }

    /// A response to a request that was sent at this time arrived.
    pub(super) fn observe(&self, headers: &HeaderMap, sent: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|text| rfc2822::parse(text).ok()) else { return };
        self.measure(date.timestamp(), sent, self.0.own.now());
        self.warn();
    }

    /// The server's clock was within a second after `date` at some time between `sent` and `received`.
    fn measure(&self, date: Timestamp, sent: Timestamp, received: Timestamp) {
        let (low, high) = (date.duration_since(received), date.duration_since(sent).saturating_add(PRECISION));
        let mut measured = self.0.measured.lock();
        let known = measured.bounds.map(|(least, most)| (least.max(low), most.min(high)));
        // Bounds that contradict each other show that a clock was set.
        let (least, most) = known.filter(|(least, most)| least <= most).unwrap_or((low, high));
        measured.bounds = Some((least, most));
        let ahead = least.saturating_add(most) / 2;
        if ahead.saturating_sub(measured.applied).abs() > NOISE {
            measured.applied = if ahead.abs() > NOISE { ahead } else { SignedDuration::ZERO };
        }
    }

    /// How far the server is ahead of the clock of this host; `None` before its first response.
    fn skew(&self) -> Option<SignedDuration> {
        self.0.measured.lock().bounds?;
        Some(self.now().duration_since(self.0.host.now()))
    }

    fn warn(&self) {
        let Some(skew) = self.skew().filter(|skew| skew.abs() >= WORTH_A_WARNING) else { return };
        let own = self.0.own.now();
        let mut measured = self.0.measured.lock();
        if measured.warned_at.is_some_and(|at| own.duration_since(at) < WARN_AGAIN) {
            return;
        }
        measured.warned_at = Some(own);
        let (server, ahead_by_seconds) = (&*self.0.server, skew.as_secs());
        tracing::warn!(
            server,
            ahead_by_seconds,
            "the clocks of an API server and of this host differ: ages and expiry are computed with the API server's; \
             synchronize both"
        );
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::runtime::clock::ManualClock;

    const START: i64 = 1_700_000_000;

    fn at(second: f64) -> Timestamp {
        let millis = (second * 1e3) as i64;
        Timestamp::from_millisecond(START * 1000 + millis).unwrap()
    }

    fn clock() -> (ManualClock, ServerClock) {
        let own = ManualClock::at(at(0.0));
        let time: Arc<dyn Clock> = Arc::new(own.clone());
        (own, ServerClock::new(&Arc::from("api.example"), &time, &time))
    }

    fn response(date: &str) -> HeaderMap {
        [(DATE, date.parse().unwrap())].into_iter().collect()
    }

    #[rstest]
    #[case::ahead("Tue, 14 Nov 2023 22:38:20 GMT", 1500)]
    #[case::behind("Tue, 14 Nov 2023 21:48:20 GMT", -1500)]
    #[case::the_same("Tue, 14 Nov 2023 22:13:20 GMT", 0)]
    #[case::noise("Tue, 14 Nov 2023 22:13:21 GMT", 0)]
    #[case::not_a_date("tomorrow", 0)]
    fn the_time_is_that_of_the_responses(#[case] date: &str, #[case] ahead: i64) {
        let (own, clock) = clock();
        let sent = clock.sent();
        clock.observe(&response(date), sent);
        let skew = |clock: &ServerClock| clock.now().duration_since(own.now()).as_secs_f64();
        assert!((skew(&clock) - ahead as f64).abs() <= 1.0, "{}", skew(&clock));
        own.advance(SignedDuration::from_hours(1));
        assert!((skew(&clock) - ahead as f64).abs() <= 1.0, "it goes on with the own clock");
    }

    #[test]
    fn slow_responses_do_not_change_the_measured_clock() {
        let (_, clock) = clock();
        clock.measure(at(1500.0), at(0.0), at(0.1));
        let before = clock.now();
        // The server answered at once, and the response took a minute.
        clock.measure(at(1510.0), at(10.0), at(70.0));
        assert_eq!(clock.now(), before);
        assert!(clock.now().duration_since(at(1500.0)).abs() <= PRECISION);
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let (_, clock) = clock();
        clock.measure(at(1500.0), at(0.0), at(0.1));
        clock.measure(at(10.0), at(10.0), at(10.1));
        assert_eq!(clock.now(), at(0.0), "both agree now");
        clock.measure(at(320.0), at(20.0), at(20.1));
        assert!(clock.now().duration_since(at(300.0)).abs() <= PRECISION);
    }

    #[test]
    fn the_difference_is_exported_once_it_is_known() {
        let time: Arc<dyn Clock> = Arc::new(ManualClock::at(at(0.0)));
        let clocks = ServerClocks { own: Arc::clone(&time), host: time, clocks: Mutex::default() };
        let clock = clocks.of(&Arc::from("api.example"));
        let text = || {
            let mut out = Exposition::default();
            clocks.collect(&mut out);
            out.finish()
        };
        assert!(!text().contains("api.example"), "{}", text());
        clock.measure(at(-600.0), at(0.0), at(0.0));
        assert!(text().contains("\nmcm_clock_skew_seconds{server=\"api.example\"} -599.5\n"), "{}", text());
    }
}
