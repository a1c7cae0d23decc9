//! The time of API servers, measured from their responses.
//!
//! API servers stamp objects (`creationTimestamp`) and judge the expiry of tokens by their own clock. Ages of objects are
//! therefore computed with the time of the API server that stores them: with the clock of this host, a difference of
//! some minutes would fail each new Machine, or delete each token at once.
//!
//! The stamp of an object that we wrote comes from the clock that stamps the others. A leader renews its Lease every two
//! seconds, so its clock is measured all the time. `Date` may be that of a proxy: it counts only until the first stamp,
//! and before a later `Date` is believed it must have been measured for some minutes.

mod estimate;
mod layer;

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use parking_lot::Mutex;

use super::{
    clock::{SteadyClock, SystemClock, TimeSource},
    metrics::{MetricDesc, SeriesGroup, TextExposition},
};
use estimate::{ClockBounds, ClockEstimate};

const SKEW: MetricDesc<1> = MetricDesc::gauge(
    "mcm_clock_skew_seconds",
    "How far the clock of an API server is ahead of the clock of this host, by its responses.",
    ["server"],
);
const DISAGREEMENT: MetricDesc<1> = MetricDesc::gauge(
    "mcm_clock_disagreement_seconds",
    "How far a time in a response of an API server differed from the time that ages are computed with, in the last ten minutes.",
    ["server"],
);

/// Differences up to this are noise. They are not corrected, so that the time does not jump.
pub(super) const NOISE: SignedDuration = SignedDuration::from_secs(2);
/// Larger differences are logged.
const WORTH_A_WARNING: SignedDuration = SignedDuration::from_secs(30);
const WARN_AGAIN: SignedDuration = SignedDuration::from_hours(1);
/// A time that differed is reported for so long.
const REPORTED_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The clocks of all API servers of a process, by host.
#[derive(Debug)]
pub(crate) struct ServerClocks {
    own: Arc<dyn TimeSource>,
    host: Arc<dyn TimeSource>,
    clocks: Mutex<BTreeMap<Arc<str>, ServerClock>>,
}

impl Default for ServerClocks {
    fn default() -> Self {
        Self { own: Arc::new(SteadyClock::default()), host: Arc::new(SystemClock), clocks: Mutex::default() }
    }
}

impl ServerClocks {
    /// The clock of the API server at this host.
    pub fn clock_for(&self, server: &Arc<str>) -> ServerClock {
        let new = || ServerClock::new(server, &self.own, &self.host);
        self.clocks.lock().entry(Arc::clone(server)).or_insert_with(new).clone()
    }

    pub fn collect(&self, out: &mut TextExposition) {
        for (server, clock) in &*self.clocks.lock() {
            let Some(skew) = clock.skew() else { continue };
            let disagreement = clock.disagreement();
            let is_wrong = skew.abs() > NOISE || disagreement > NOISE;
            out.details_unless(is_wrong, SeriesGroup::Clusters, |out| {
                out.sample(&SKEW, [server], skew.as_secs_f64());
                out.sample(&DISAGREEMENT, [server], disagreement.as_secs_f64());
            });
        }
    }
}

/// The clock of one API server. Until its first response it is that of this process. Clones share the measurements.
#[derive(Clone, Debug)]
pub struct ServerClock(Arc<ServerClockState>);

#[derive(Debug)]
struct ServerClockState {
    server: Arc<str>,
    /// Never jumps.
    own: Arc<dyn TimeSource>,
    /// The time of the host, for logs.
    host: Arc<dyn TimeSource>,
    measured: Mutex<ClockMeasurement>,
}

#[derive(Debug)]
struct ClockMeasurement {
    /// From the stamps of objects that we wrote.
    stamps: ClockEstimate,
    /// From the `Date` of responses.
    dates: ClockEstimate,
    /// There was a response with a time.
    is_measured: bool,
    /// The correction that is added to our clock.
    applied: SignedDuration,
    /// The last time that differed from ours: by how much, and when.
    differed: Option<(SignedDuration, Timestamp)>,
    warned_of_skew: Option<Timestamp>,
    warned_of_disagreement: Option<Timestamp>,
}

impl Default for ClockMeasurement {
    fn default() -> Self {
        Self {
            stamps: ClockEstimate::default(),
            dates: ClockEstimate::assumed(ClockBounds::EQUAL),
            is_measured: false,
            applied: SignedDuration::ZERO,
            differed: None,
            warned_of_skew: None,
            warned_of_disagreement: None,
        }
    }
}

impl TimeSource for ServerClock {
    fn now(&self) -> Timestamp {
        let ahead = self.0.measured.lock().applied;
        let own = self.0.own.now();
        own.checked_add(ahead).unwrap_or(own)
    }
}

impl ServerClock {
    fn new(server: &Arc<str>, own: &Arc<dyn TimeSource>, host: &Arc<dyn TimeSource>) -> Self {
        let (server, own, host) = (Arc::clone(server), Arc::clone(own), Arc::clone(host));
        Self(Arc::new(ServerClockState { server, own, host, measured: Mutex::default() }))
    }

    /// The clock of an API server that created an object at this time, for a process with this clock.
    #[cfg(any(test, feature = "testing"))]
    pub fn that_created_at(stamp: Timestamp, own: &super::clock::ManualClock) -> Self {
        let time: Arc<dyn TimeSource> = Arc::new(own.clone());
        let clock = Self::new(&Arc::from("target"), &time, &time);
        clock.creates_at(stamp);
        clock
    }

    /// The API server creates an object at this time.
    #[cfg(any(test, feature = "testing"))]
    pub fn creates_at(&self, stamp: Timestamp) {
        self.stamped(stamp, self.sent(), self.sent());
    }

    /// The time by our own clock, for [`Self::observe`] and [`Self::stamped`].
    fn sent(&self) -> Timestamp {
        self.0.own.now()
    }

    /// A response to a request that was sent at this time arrived.
    fn observe(&self, headers: &HeaderMap, sent: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|text| rfc2822::parse(text).ok()) else { return };
        let received = self.sent();
        let bounds = ClockBounds::measured(date.timestamp(), sent, received);
        self.measure(bounds, received, |measured| measured.dates.measure(bounds, received));
    }

    /// The API server stored an object with this time, for a request that was sent and answered at these times.
    fn stamped(&self, stamp: Timestamp, sent: Timestamp, received: Timestamp) {
        let bounds = ClockBounds::measured(stamp, sent, received);
        self.measure(bounds, received, |measured| measured.stamps.measure(bounds, received));
    }

    fn measure(&self, bounds: ClockBounds, now: Timestamp, add: impl FnOnce(&mut ClockMeasurement)) {
        {
            let mut measured = self.0.measured.lock();
            add(&mut measured);
            measured.is_measured = true;
            let ahead = measured.stamps.ahead().or(measured.dates.ahead()).unwrap_or_default();
            if ahead.saturating_sub(measured.applied).abs() > NOISE {
                measured.applied = if ahead.abs() > NOISE { ahead } else { SignedDuration::ZERO };
            }
            let difference = bounds.distance(measured.applied);
            if difference >= WORTH_A_WARNING {
                measured.differed = Some((difference, now));
            }
        }
        self.warn();
    }

    /// How far the server is ahead of the clock of this host; `None` before its first response.
    fn skew(&self) -> Option<SignedDuration> {
        if !self.0.measured.lock().is_measured {
            return None;
        }
        Some(self.now().duration_since(self.0.host.now()))
    }

    /// How far a time of the server differed from ours lately.
    fn disagreement(&self) -> SignedDuration {
        let (now, differed) = (self.sent(), self.0.measured.lock().differed);
        let recent = differed.filter(|(_, at)| now.duration_since(*at) < REPORTED_FOR);
        recent.map(|(difference, _)| difference).unwrap_or_default()
    }

    fn warn(&self) {
        let (skew, disagreement) = (self.skew().unwrap_or_default(), self.disagreement());
        let (server, own) = (&*self.0.server, self.sent());
        let is_due = |warned_at: &mut Option<Timestamp>| {
            let is_due = warned_at.is_none_or(|at| own.duration_since(at) >= WARN_AGAIN);
            if is_due {
                *warned_at = Some(own);
            }
            is_due
        };
        if skew.abs() >= WORTH_A_WARNING && is_due(&mut self.0.measured.lock().warned_of_skew) {
            let ahead_by_seconds = skew.as_secs();
            tracing::warn!(
                server,
                ahead_by_seconds,
                "the clocks of an API server and of this host differ: ages and expiry are computed with the API server's; \
                 synchronize both"
            );
        }
        if disagreement >= WORTH_A_WARNING && is_due(&mut self.0.measured.lock().warned_of_disagreement) {
            let seconds = disagreement.as_secs();
            tracing::warn!(
                server,
                seconds,
                "the times in the responses of an API server contradict each other: ages are computed with the stamps of \
                 its objects, or with the earlier time; synchronize all API servers behind this address, and the proxies \
                 before them"
            );
        }
    }
}

#[cfg(test)]
mod tests;
