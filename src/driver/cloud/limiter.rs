//! The pace of calls to a cloud that throttles: calls that it would refuse are not sent.
//!
//! Until the first refusal only the number of calls in flight is limited, and grows with each success. From then on calls have
//! a rate: a refusal cuts it, each success raises it a little. Calls wait in the order in which they came.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as Queue, Notify},
    time::{Instant, sleep_until},
};

/// Calls in flight before the first success; each success allows one more.
const FIRST_IN_FLIGHT: usize = 10;
/// A refusal multiplies the rate by this.
const DECREASE: f64 = 0.7;
/// A success adds this to the rate, in calls per second.
const INCREASE: f64 = 0.05;
/// From this rate on calls have none, in calls per second.
const FASTEST: f64 = 100.0;
/// The last rate of successes is measured over this time, and refusals within this time after a cut belong to it.
const MEASURE: Duration = Duration::from_secs(1);
/// A refusal so long ago does not count any more.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// No cloud makes us wait longer with one answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// The limits of one account.
pub struct AccountLimiters {
    /// Calls that only read.
    pub reads: AdaptiveLimiter,
    /// Calls that change something.
    pub writes: AdaptiveLimiter,
    /// Calls that get tokens.
    pub login: AdaptiveLimiter,
}

impl AccountLimiters {
    /// As for [`Limiter::new`].
    pub fn new(slowest: f64) -> Self {
        Self {
            reads: AdaptiveLimiter::new(slowest),
            writes: AdaptiveLimiter::new(slowest),
            login: AdaptiveLimiter::new(slowest),
        }
    }
}

/// The calls of one account that share a limit of the cloud.
pub struct AdaptiveLimiter {
    /// The first in the queue decides when it may go.
    queue: Queue<()>,
    state: Mutex<LimiterState>,
    /// Objects about which the cloud takes no call before a time, such as VMs by the paths of their calls.
    paused: Mutex<HashMap<String, Instant>>,
    /// A call in flight ended.
    ended: Notify,
}

/// A call that may be sent. It is in flight until this is dropped.
pub struct CallPermit<'a>(&'a AdaptiveLimiter);

impl AdaptiveLimiter {
    /// At least `slowest` calls per second are sent, however often the cloud refuses.
    pub fn new(slowest: f64) -> Self {
        Self {
            queue: Queue::default(),
            state: Mutex::new(LimiterState::new(slowest, Instant::now())),
            paused: Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// Waits until a call may be sent.
    pub async fn permit(&self) -> CallPermit<'_> {
        let _first = self.queue.lock().await;
        loop {
            let turn = self.state.lock().turn(Instant::now());
            match turn {
                NextCallTime::Now => return CallPermit(self),
                NextCallTime::At(time) => sleep_until(time).await,
                NextCallTime::AfterAnother => self.ended.notified().await,
            }
        }
    }

    /// Waits until a call about an object may be sent.
    pub async fn permit_for(&self, object: &str) -> CallPermit<'_> {
        while let Some(time) = self.paused_until(object) {
            sleep_until(time).await;
        }
        self.permit().await
    }

    fn paused_until(&self, object: &str) -> Option<Instant> {
        self.paused.lock().get(object).copied().filter(|time| *time > Instant::now())
    }

    /// The cloud accepted a call, with any outcome.
    pub fn accepted(&self) {
        self.state.lock().accepted(Instant::now());
    }

    /// The cloud refused a call because there are too many.
    pub fn refused(&self) {
        self.state.lock().refused(Instant::now());
    }

    /// The cloud requested a pause.
    pub fn pause(&self, pause: Duration) {
        self.state.lock().pause(Instant::now(), pause);
    }

    /// The cloud requested a pause of the calls about one object. Others go on.
    pub fn pause_object(&self, object: &str, pause: Duration) {
        let now = Instant::now();
        let mut paused = self.paused.lock();
        paused.retain(|_, time| *time > now);
        paused.insert(object.to_owned(), now + pause.min(LONGEST_PAUSE));
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.0.state.lock().in_flight -= 1;
        self.0.ended.notify_one();
    }
}

/// When the next call may be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NextCallTime {
    Now,
    At(Instant),
    AfterAnother,
}

struct LimiterState {
    slowest: f64,
    /// Calls per second; `None` without a recent refusal.
    rate: Option<f64>,
    /// The next call is not sent before.
    next: Instant,
    most_in_flight: usize,
    in_flight: usize,
    last_cut: Option<Instant>,
    /// Times of accepted calls within [`MEASURE`].
    accepted: VecDeque<Instant>,
}

impl LimiterState {
    fn new(slowest: f64, now: Instant) -> Self {
        Self {
            slowest,
            rate: None,
            next: now,
            most_in_flight: FIRST_IN_FLIGHT,
            in_flight: 0,
            last_cut: None,
            accepted: VecDeque::new(),
        }
    }

    /// Counts a call if it may be sent now.
    fn turn(&mut self, now: Instant) -> NextCallTime {
        if self.last_cut.is_some_and(|cut| now.duration_since(cut) > FORGOTTEN) {
            (self.rate, self.last_cut, self.most_in_flight) = (None, None, FIRST_IN_FLIGHT);
        }
        if now < self.next {
            return NextCallTime::At(self.next);
        }
        match self.rate {
            Some(rate) => self.next = now + Duration::from_secs_f64(1.0 / rate),
            None if self.in_flight >= self.most_in_flight => return NextCallTime::AfterAnother,
            None => {}
        }
        self.in_flight += 1;
        NextCallTime::Now
    }

    fn accepted(&mut self, now: Instant) {
        self.forget_accepted(now);
        self.accepted.push_back(now);
        match &mut self.rate {
            Some(rate) => *rate += INCREASE,
            None => self.most_in_flight = self.most_in_flight.saturating_add(1),
        }
        self.rate = self.rate.filter(|rate| *rate < FASTEST);
    }

    fn refused(&mut self, now: Instant) {
        if self.last_cut.is_some_and(|cut| now.duration_since(cut) < MEASURE) {
            return;
        }
        self.forget_accepted(now);
        let accepted = f64::from(u32::try_from(self.accepted.len()).unwrap_or(u32::MAX)) / MEASURE.as_secs_f64();
        let rate = (DECREASE * self.rate.map_or(accepted, |rate| rate.min(accepted))).max(self.slowest);
        (self.rate, self.last_cut) = (Some(rate), Some(now));
        self.next = self.next.max(now + Duration::from_secs_f64(1.0 / rate));
    }

    fn pause(&mut self, now: Instant, pause: Duration) {
        self.next = self.next.max(now + pause.min(LONGEST_PAUSE));
    }

    fn forget_accepted(&mut self, now: Instant) {
        while self.accepted.front().is_some_and(|time| now.duration_since(*time) > MEASURE) {
            self.accepted.pop_front();
        }
    }
}

/// The name of a cloud's error means that there are too many calls.
pub fn is_throttling(name: &str) -> bool {
    const PARTS: [&str; 6] = ["throttl", "ratelimit", "rateexceeded", "requestlimit", "toomanyrequests", "slowdown"];
    let plain = name.replace('_', "").to_ascii_lowercase();
    PARTS.iter().any(|part| plain.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use rstest::rstest;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio::time::{advance, sleep, timeout};

    const SECOND: Duration = Duration::from_secs(1);

    /// A request bucket as EC2 has one for each call.
    struct Bucket {
        most: f64,
        per_second: f64,
        state: Mutex<(f64, Instant)>,
        calls: AtomicUsize,
    }

    impl Bucket {
        fn new(most: f64, per_second: f64) -> Self {
            Self { most, per_second, state: Mutex::new((most, Instant::now())), calls: AtomicUsize::new(0) }
        }

        async fn call(&self) -> bool {
            self.calls.fetch_add(1, Relaxed);
            sleep(Duration::from_millis(20)).await;
            let mut state = self.state.lock();
            let now = Instant::now();
            let (tokens, filled) = *state;
            let tokens = (tokens + now.duration_since(filled).as_secs_f64() * self.per_second).min(self.most);
            let is_accepted = tokens >= 1.0;
            *state = (if is_accepted { tokens - 1.0 } else { tokens }, now);
            is_accepted
        }
    }

    /// Calls until accepted.
    async fn insist(limiter: &AdaptiveLimiter, bucket: &Bucket) {
        loop {
            let permit = limiter.permit().await;
            let is_accepted = bucket.call().await;
            drop(permit);
            if is_accepted {
                return limiter.accepted();
            }
            limiter.refused();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_the_cloud_pauses_holds_up_no_other_one() {
        let limiter = AdaptiveLimiter::new(1.0);
        limiter.pause_object("/vms/a", 20 * SECOND);
        assert!(timeout(19 * SECOND, limiter.permit_for("/vms/a")).await.is_err());
        assert!(timeout(SECOND / 2, limiter.permit_for("/vms/b")).await.is_ok());
        assert!(timeout(2 * SECOND, limiter.permit_for("/vms/a")).await.is_ok());
        limiter.pause_object("/vms/b", 100_000 * SECOND);
        assert_eq!(limiter.paused.lock().len(), 1, "pauses that are over are forgotten");
        assert!(timeout(LONGEST_PAUSE + SECOND, limiter.permit_for("/vms/b")).await.is_ok());
    }

    /// The best possible time is (calls - most) / per_second.
    #[rstest]
    #[case::like_run_instances(5.0, 2.0, 100, 48)]
    #[case::twice_as_many(5.0, 2.0, 200, 98)]
    #[case::slow(2.0, 0.7, 50, 69)]
    #[case::fast(100.0, 20.0, 1000, 45)]
    #[tokio::test(start_paused = true)]
    async fn throttled_calls_are_few_and_lose_little_time(
        #[case] most: f64,
        #[case] per_second: f64,
        #[case] calls: usize,
        #[case] best: u64,
    ) {
        let (limiter, bucket) = (AdaptiveLimiter::new(0.5), Bucket::new(most, per_second));
        let start = Instant::now();
        join_all((0..calls).map(|_| insist(&limiter, &bucket))).await;
        let (sent, took) = (bucket.calls.load(Relaxed), start.elapsed().as_secs());
        assert!(sent <= calls * 5 / 4 + FIRST_IN_FLIGHT, "{sent} calls for {calls}");
        assert!(took <= best * 3 / 2, "{took} s instead of {best} s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_does_not_throttle_gets_all_calls() {
        let (limiter, bucket) = (AdaptiveLimiter::new(0.5), Bucket::new(1e9, 1e9));
        let start = Instant::now();
        join_all((0..1000).map(|_| insist(&limiter, &bucket))).await;
        assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    }

    #[rstest]
    #[case::without_a_rate(None, 7.0)]
    #[case::fewer_successes_than_the_rate(Some(50.0), 7.0)]
    #[case::more_successes_than_the_rate(Some(4.0), 2.8)]
    fn a_refusal_cuts_the_rate_or_the_successes_if_those_are_fewer(#[case] rate: Option<f64>, #[case] expected: f64) {
        let now = Instant::now();
        let accepted = VecDeque::from([now; 10]);
        let mut state = LimiterState { rate, accepted, ..LimiterState::new(0.5, now) };
        state.refused(now);
        assert!((state.rate.unwrap() - expected).abs() < 1e-9, "{:?}", state.rate);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_cloud_asks_for_is_kept() {
        let limiter = AdaptiveLimiter::new(0.5);
        limiter.pause(20 * SECOND);
        assert!(timeout(19 * SECOND, limiter.permit()).await.is_err());
        assert!(timeout(2 * SECOND, limiter.permit()).await.is_ok());
        limiter.pause(Duration::from_secs(1_000_000));
        assert!(timeout(LONGEST_PAUSE + SECOND, limiter.permit()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_makes_room_for_the_next() {
        let limiter = AdaptiveLimiter::new(0.5);
        let permits = join_all((0..FIRST_IN_FLIGHT).map(|_| limiter.permit())).await;
        assert!(timeout(SECOND, limiter.permit()).await.is_err(), "so many are in flight");
        drop(permits);
        assert!(timeout(SECOND, limiter.permit()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_refusal_is_forgotten() {
        let limiter = AdaptiveLimiter::new(0.5);
        limiter.refused();
        advance(FORGOTTEN + 2 * SECOND).await;
        let start = Instant::now();
        join_all((0..5).map(|_| limiter.permit())).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[rstest]
    #[case("RequestLimitExceeded", true)]
    #[case("Throttling.User", true)]
    #[case("EC2ThrottledException", true)]
    #[case("TooManyRequestsException", true)]
    #[case("rateLimitExceeded", true)]
    #[case("RATE_LIMIT_EXCEEDED", true)]
    #[case("SlowDown", true)]
    #[case("VcpuLimitExceeded", false)]
    #[case("quotaExceeded", false)]
    #[case("", false)]
    fn throttling_has_many_names(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_throttling(name), expected);
    }
}
