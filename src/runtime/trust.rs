//! Trust in a cache, as one value. It is computed from the time at which its API server last sent anything.
//!
//! Everything that concludes something from an object *missing* in a cache checks this first. `/readyz`, a metric and
//! the log show it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

/// Trust in the content of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheTrust {
    /// The cache was never filled.
    Unknown {
        /// The reason.
        why: String,
    },
    /// The content is at most as old as the limit.
    Trusted,
    /// The content may be older: a missing object may exist, and a cached one may be deleted.
    Untrusted {
        /// When the API server last sent anything.
        since: Timestamp,
        /// The reason.
        why: String,
    },
}

impl CacheTrust {
    /// A missing object may be treated as absent.
    pub fn is_trusted(&self) -> bool {
        *self == Self::Trusted
    }

    /// The problem as text; `None` if the cache is trusted.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Trusted => None,
            Self::Unknown { why } => Some(why.clone()),
            Self::Untrusted { since, why } => Some(format!("not trusted since {since:.0}: {why}")),
        }
    }
}

/// Timing of a watch. For a kind without changes, the signs of life are the API server's bookmarks (about one a minute)
/// and the end of the watch after its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchTiming {
    /// The API server ends a watch after this long, in whole seconds. Each end costs one call.
    pub watch_timeout: Duration,
    /// A watch that is silent for this long is opened again.
    pub idle_timeout: Duration,
    /// The response to a new watch must begin within this time.
    pub open_timeout: Duration,
    /// The cache becomes untrusted after this much silence.
    pub limit: Duration,
}

impl WatchTiming {
    /// For Nodes, because Machines fail and drains are skipped on their account.
    pub const TARGET: Self = Self {
        watch_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(33),
        open_timeout: Duration::from_secs(10),
        limit: Duration::from_secs(45),
    };
    /// For kinds of the control cluster, whose writes are guarded by resource versions.
    pub const CONTROL: Self = Self {
        watch_timeout: Duration::from_secs(290),
        idle_timeout: Duration::from_secs(90),
        open_timeout: Duration::from_secs(15),
        limit: Duration::from_secs(120),
    };
}

/// After a silence, how long a resumed watch may take to deliver the missed changes.
const SETTLE: Duration = Duration::from_secs(3);
/// At the limit itself a cache is still trusted.
const PAST: Duration = Duration::from_millis(1);

/// A point in time by two clocks. The monotonic clock stops while the computer is suspended, and the wall clock may be
/// set, so the longer of both durations is used.
#[derive(Clone, Copy, Debug)]
struct TwoClockInstant {
    monotonic: Instant,
    wall: Timestamp,
}

impl TwoClockInstant {
    fn now() -> Self {
        Self { monotonic: Instant::now(), wall: Timestamp::now() }
    }

    fn since(self, earlier: Self) -> Duration {
        let wall = Duration::try_from(self.wall.duration_since(earlier.wall)).unwrap_or_default();
        self.monotonic.saturating_duration_since(earlier.monotonic).max(wall)
    }
}

/// State of the connection between a cache and its API server.
#[derive(Debug, Default)]
struct LivenessRecord {
    /// `None` without a watch: the content is only listed.
    limit: Option<Duration>,
    /// A list is complete.
    is_filled: bool,
    /// A relist is running; only its end counts as a sign of life.
    is_listing: bool,
    heard: Option<TwoClockInstant>,
    /// The last silence beyond the limit: when it began and ended.
    silence: Option<(TwoClockInstant, TwoClockInstant)>,
    /// The last silence beyond the limit, also if a relist ended it: when it began and ended.
    outage: Option<(TwoClockInstant, TwoClockInstant)>,
    failure: Option<String>,
    /// The API server refused the last list for lack of a right, in its words.
    refusal: Option<String>,
    /// The bound that the objects exceed, until a list is within it.
    over_limit: Option<String>,
}

impl LivenessRecord {
    /// True if this ends a silence beyond the limit.
    fn heard(&mut self, now: TwoClockInstant) -> bool {
        if self.is_listing {
            return false;
        }
        let silence = self.heard.filter(|heard| self.limit.is_some_and(|limit| now.since(*heard) > limit));
        if let Some(heard) = silence {
            self.silence = Some((heard, now));
            self.outage = self.silence;
        }
        self.heard = Some(now);
        self.failure = None;
        silence.is_some()
    }

    fn listed(&mut self, now: TwoClockInstant) {
        if let (Some(heard), Some(limit)) = (self.heard, self.limit)
            && now.since(heard) > limit
        {
            self.outage = Some((heard, now));
        }
        self.is_listing = false;
        self.is_filled = true;
        self.heard = Some(now);
        self.silence = None;
        self.failure = None;
        self.refusal = None;
        self.over_limit = None;
    }

    fn trust(&self, now: TwoClockInstant) -> CacheTrust {
        let failure = || self.failure.as_ref().map(|failure| format!(": {failure}")).unwrap_or_default();
        let (true, Some(heard)) = (self.is_filled, self.heard) else {
            let why = self.over_limit.as_ref().map_or_else(failure, |why| format!(": {why}"));
            return CacheTrust::Unknown { why: format!("not read yet{why}") };
        };
        if let Some(why) = &self.over_limit {
            return CacheTrust::Untrusted { since: heard.wall, why: why.clone() };
        }
        let Some(limit) = self.limit else { return CacheTrust::Trusted };
        if now.since(heard) > limit {
            let limit = limit.as_secs();
            let why = format!("no response from the API server for more than {limit} s{}", failure());
            return CacheTrust::Untrusted { since: heard.wall, why };
        }
        match self.silence {
            Some((began, ended)) if now.since(ended) < SETTLE => CacheTrust::Untrusted {
                since: began.wall,
                why: "the API server was silent, missed changes are being read".to_owned(),
            },
            _ => CacheTrust::Trusted,
        }
    }

    /// Time for which the trust stays as it is without a sign of life; `None` if for ever.
    fn holds_for(&self, now: TwoClockInstant) -> Option<Duration> {
        let left = |limit: Duration, since| limit.checked_sub(now.since(since));
        let settles = self.silence.and_then(|(_, ended)| left(SETTLE, ended)).filter(|left| !left.is_zero());
        settles.or_else(|| left(self.limit?, self.heard?).map(|left| left + PAST))
    }
}

/// The liveness of one cache.
#[derive(Debug, Default)]
pub(super) struct CacheLiveness {
    record: Mutex<LivenessRecord>,
    silence_ended: Notify,
}

impl CacheLiveness {
    /// Sets the limit of silence.
    pub fn expect(&self, limit: Duration) {
        self.record.lock().limit = Some(limit);
    }

    /// A sign of life of the watch.
    pub fn heard(&self) {
        if self.record.lock().heard(TwoClockInstant::now()) {
            self.silence_ended.notify_one();
        }
    }

    /// A relist begins.
    pub fn listing(&self) {
        self.record.lock().is_listing = true;
    }

    /// The relist is complete.
    pub fn listed(&self) {
        self.record.lock().listed(TwoClockInstant::now());
    }

    /// Stores an error, which is shown until the next sign of life. True if it is new.
    pub fn failed(&self, failure: String) -> bool {
        self.record.lock().failure.replace(failure).is_none()
    }

    /// The API server refuses to list.
    pub fn refused(&self, refusal: String) {
        self.record.lock().refusal = Some(refusal);
    }

    /// Why the API server refuses to list, until a list is complete.
    pub fn refusal(&self) -> Option<String> {
        self.record.lock().refusal.clone()
    }

    /// The objects exceed a bound, until a list is complete. True if that is new.
    pub fn over_limit(&self, why: String) -> bool {
        self.record.lock().over_limit.replace(why).is_none()
    }

    /// The objects exceed a bound.
    pub fn is_over_limit(&self) -> bool {
        self.record.lock().over_limit.is_some()
    }

    /// A list is complete.
    pub fn is_filled(&self) -> bool {
        self.record.lock().is_filled
    }

    pub fn trust(&self) -> CacheTrust {
        self.record.lock().trust(TwoClockInstant::now())
    }

    /// Returns when the trust may have changed, other than by a relist.
    pub async fn changes(&self) {
        let holds_for = self.record.lock().holds_for(TwoClockInstant::now());
        let expires = async {
            match holds_for {
                Some(time) => sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.silence_ended.notified() => {}
            () = expires => {}
        }
    }

    /// How long ago the last silence beyond the limit began and ended, if there was one.
    pub fn last_silence(&self) -> Option<(Duration, Duration)> {
        let now = TwoClockInstant::now();
        self.record.lock().outage.map(|(began, ended)| (now.since(began), now.since(ended)))
    }

    /// Time since the API server last sent anything.
    pub fn age(&self) -> Option<Duration> {
        let record = self.record.lock();
        record.limit?;
        record.heard.map(|heard| TwoClockInstant::now().since(heard))
    }
}

/// A cache that watches an API server.
pub trait MonitoredCache: Send + Sync {
    /// The kind, in the plural.
    fn plural(&self) -> String;
    /// Trust in its content.
    fn trust(&self) -> CacheTrust;
    /// Time since the API server last sent anything; `None` if it never did, or without a watch.
    fn age(&self) -> Option<Duration>;
    /// Number of objects that cannot be decoded.
    fn unreadable(&self) -> usize {
        0
    }
    /// The API server sends more than the cache may hold.
    fn is_over_limit(&self) -> bool;
}

/// The work that a process can do without a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheNeed {
    /// It is not ready while the cache has problems.
    Required,
    /// Only some of its objects need the cache.
    Optional,
}

/// All caches of the process, for `/readyz` and `/metrics`. A dropped cache is removed.
#[derive(Default)]
pub struct CacheRegistry(Mutex<Vec<RegisteredCache>>);

struct RegisteredCache {
    cluster: String,
    need: CacheNeed,
    cache: Weak<dyn MonitoredCache>,
}

impl CacheRegistry {
    /// Adds the cache of a cluster.
    pub fn add(&self, cluster: &str, cache: &Arc<impl MonitoredCache + 'static>, need: CacheNeed) {
        let cache: Arc<dyn MonitoredCache> = cache.clone();
        self.0.lock().push(RegisteredCache { cluster: cluster.to_owned(), need, cache: Arc::downgrade(&cache) });
    }

    /// The problems, one line for each cache that is required.
    pub fn problems(&self) -> Vec<String> {
        let problem = |(cluster, cache): (String, Arc<dyn MonitoredCache>)| {
            cache.trust().problem().map(|problem| format!("{} of {cluster}: {problem}", cache.plural()))
        };
        self.alive(|need| need == CacheNeed::Required).into_iter().filter_map(problem).collect()
    }

    /// The clusters of caches that are required and not trusted.
    pub fn clusters_in_trouble(&self) -> Vec<String> {
        let all = self.alive(|need| need == CacheNeed::Required).into_iter();
        all.filter(|(_, cache)| cache.trust().problem().is_some()).map(|(cluster, _)| cluster).collect()
    }

    /// All caches with their clusters.
    pub fn all(&self) -> Vec<(String, Arc<dyn MonitoredCache>)> {
        self.alive(|_| true)
    }

    fn alive(&self, counts: impl Fn(CacheNeed) -> bool) -> Vec<(String, Arc<dyn MonitoredCache>)> {
        let mut caches = self.0.lock();
        caches.retain(|one| one.cache.strong_count() > 0);
        let counted = caches.iter().filter(|one| counts(one.need));
        counted.filter_map(|one| Some((one.cluster.clone(), one.cache.upgrade()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        record: LivenessRecord,
        now: TwoClockInstant,
    }

    impl World {
        fn new() -> Self {
            let mut record = LivenessRecord { limit: Some(Duration::from_secs(45)), ..LivenessRecord::default() };
            let now = TwoClockInstant { monotonic: Instant::now(), wall: Timestamp::UNIX_EPOCH };
            record.is_listing = true;
            record.listed(now);
            Self { record, now }
        }

        fn pass(&mut self, seconds: u64) {
            let time = Duration::from_secs(seconds);
            self.now = TwoClockInstant { monotonic: self.now.monotonic + time, wall: self.now.wall + time };
        }

        fn trust(&self) -> CacheTrust {
            self.record.trust(self.now)
        }
    }

    #[test]
    fn a_cache_that_was_never_complete_is_unknown_and_says_why() {
        let mut record = LivenessRecord { limit: Some(Duration::from_secs(45)), ..LivenessRecord::default() };
        let now = TwoClockInstant::now();
        record.heard(now);
        record.failure = Some("nodes is forbidden".to_owned());
        assert_eq!(record.trust(now).problem().unwrap(), "not read yet: nodes is forbidden");
    }

    #[test]
    fn silence_up_to_the_limit_is_trusted_and_beyond_it_is_not() {
        let mut world = World::new();
        world.pass(45);
        assert_eq!(world.trust(), CacheTrust::Trusted);
        world.pass(1);
        let CacheTrust::Untrusted { since, why } = world.trust() else { panic!("{:?}", world.trust()) };
        assert_eq!(since, Timestamp::UNIX_EPOCH);
        assert_eq!(why, "no response from the API server for more than 45 s");
    }

    #[test]
    fn the_end_of_a_silence_beyond_the_limit_is_remembered_however_it_ends() {
        let heard = |record: &mut LivenessRecord, now| assert_eq!(record.heard(now), record.outage.is_some());
        for end in [heard, LivenessRecord::listed] {
            let mut world = World::new();
            world.pass(45);
            end(&mut world.record, world.now);
            assert!(world.record.outage.is_none(), "it was trusted all the time");
            let last_heard = world.now.wall;
            world.pass(46);
            end(&mut world.record, world.now);
            let outage = world.record.outage.map(|(began, ended)| (began.wall, ended.wall));
            assert_eq!(outage, Some((last_heard, world.now.wall)));
        }
    }

    #[test]
    fn the_trust_lasts_exactly_for_the_reported_time() {
        let mut world = World::new();
        let mut seen = vec![world.trust().is_trusted()];
        let mut let_pass = |world: &mut World| {
            let time = world.record.holds_for(world.now).unwrap();
            world.now.monotonic += time - PAST;
            seen.push(world.trust().is_trusted());
            world.now.monotonic += PAST;
            seen.push(world.trust().is_trusted());
        };
        let_pass(&mut world);
        assert_eq!(world.record.holds_for(world.now), None);
        assert!(world.record.heard(world.now), "the silence is over");
        assert!(!world.record.heard(world.now));
        let_pass(&mut world);
        let_pass(&mut world);
        assert_eq!(seen, [true, true, false, false, true, true, false]);
    }

    #[test]
    fn after_a_silence_missed_events_get_time_to_arrive() {
        let mut world = World::new();
        world.pass(60);
        world.record.heard(world.now);
        assert!(!world.trust().is_trusted());
        world.pass(1);
        world.record.heard(world.now);
        assert!(!world.trust().is_trusted(), "more signs of life do not make it earlier");
        world.pass(2);
        assert_eq!(world.trust(), CacheTrust::Trusted);
    }

    #[test]
    fn during_a_relist_only_its_end_counts() {
        let mut world = World::new();
        world.record.is_listing = true;
        for _ in 0..5 {
            world.pass(10);
            world.record.heard(world.now);
        }
        assert!(!world.trust().is_trusted());
        world.record.listed(world.now);
        assert_eq!(world.trust(), CacheTrust::Trusted);
    }

    #[test]
    fn caches_are_not_trusted_after_the_computer_was_suspended() {
        let mut world = World::new();
        world.now.wall += Duration::from_secs(3600);
        assert!(!world.trust().is_trusted());
        world.record.heard(world.now);
        world.pass(4);
        assert_eq!(world.trust(), CacheTrust::Trusted);
        world.now.wall = Timestamp::UNIX_EPOCH;
        assert_eq!(world.trust(), CacheTrust::Trusted, "a clock that is set back is no silence");
    }

    #[test]
    fn an_unwatched_cache_is_trusted_once_it_is_filled() {
        let mut world = World::new();
        world.record.limit = None;
        world.pass(3600);
        assert_eq!(world.trust(), CacheTrust::Trusted);
    }
}
