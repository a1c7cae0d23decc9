use axum::{Json, Router, extract::State, response::IntoResponse, routing::any};
use http::{HeaderValue, Method};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node},
};
use kube::{Api, Config, api::PostParams};
use rstest::rstest;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::{
    body::ResponseLimits, client, clock::ManualClock, kubeconfig::ClusterConfig, limiter::RequestRate,
    metrics::MetricsRegistry,
};

const START: i64 = 1_700_000_000;
const MINUTES_AHEAD: SignedDuration = SignedDuration::from_mins(30);

fn at(second: f64) -> Timestamp {
    let millis = (second * 1e3) as i64;
    Timestamp::from_millisecond(START * 1000 + millis).unwrap()
}

fn clock() -> (ManualClock, ServerClock) {
    let own = ManualClock::at(at(0.0));
    let time: Arc<dyn TimeSource> = Arc::new(own.clone());
    (own, ServerClock::new(&Arc::from("api.example"), &time, &time))
}

fn response(date: &str) -> HeaderMap {
    [(DATE, date.parse().unwrap())].into_iter().collect()
}

fn date(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The seconds that the clock is ahead after responses with this date for some minutes.
fn ahead_after(minutes: i64, date_of: impl Fn(i64, Timestamp) -> String) -> i64 {
    let (own, clock) = clock();
    for second in 0..minutes * 60 {
        clock.observe(&response(&date_of(second, own.now())), clock.sent());
        own.advance(SignedDuration::from_secs(1));
    }
    clock.now().duration_since(own.now()).as_secs()
}

#[rstest]
#[case::behind("Tue, 14 Nov 2023 21:48:20 GMT", -1500)]
#[case::the_same("Tue, 14 Nov 2023 22:13:20 GMT", 0)]
#[case::noise("Tue, 14 Nov 2023 22:13:21 GMT", 0)]
#[case::ahead("Tue, 14 Nov 2023 22:38:20 GMT", 0)]
#[case::year_9999("Fri, 31 Dec 9999 23:59:59 GMT", 0)]
#[case::not_a_date("tomorrow", 0)]
fn one_date_never_makes_the_time_later(#[case] date: &str, #[case] ahead: i64) {
    let (own, clock) = clock();
    clock.observe(&response(date), clock.sent());
    let skew = |clock: &ServerClock| clock.now().duration_since(own.now()).as_secs_f64();
    assert!((skew(&clock) - ahead as f64).abs() <= 1.0, "{}", skew(&clock));
    own.advance(SignedDuration::from_hours(1));
    assert!((skew(&clock) - ahead as f64).abs() <= 1.0, "it goes on with the own clock");
}

#[test]
fn dates_that_agree_for_minutes_are_the_time_of_a_server_without_a_stamp() {
    let later = |_, now: Timestamp| date(now.checked_add(MINUTES_AHEAD).unwrap());
    assert_eq!(ahead_after(4, later), 0);
    assert_eq!(ahead_after(6, later), 1800);
}

/// Covers a proxy, and two API servers behind one address.
#[rstest]
#[case::every_second(2)]
#[case::every_third(3)]
#[case::every_fiftieth(50)]
fn dates_of_which_some_are_wrong_never_make_the_time_later(#[case] every: i64) {
    for wrong in [at(1_800.0), Timestamp::from_second(253_402_207_200).unwrap()] {
        let offset = wrong.duration_since(at(0.0));
        let mixed = |second, now: Timestamp| match second % every {
            0 => date(now.checked_add(offset).unwrap_or(Timestamp::MAX)),
            _ => date(now),
        };
        assert_eq!(ahead_after(60, mixed), 0);
    }
}

#[test]
fn a_stamp_counts_more_than_dates() {
    for (stamped, dated) in [(0, 1_800), (0, -1_800), (10_800, 0), (-10_800, 0)] {
        let (own, clock) = clock();
        let shifted = |by| own.now().checked_add(SignedDuration::from_secs(by)).unwrap();
        for _ in 0..3_600 {
            clock.observe(&response(&date(shifted(dated))), clock.sent());
            clock.stamped(shifted(stamped), clock.sent(), clock.sent());
            let ahead = clock.now().duration_since(own.now()).as_secs();
            assert!((ahead - stamped).abs() <= 1, "{ahead} instead of {stamped}");
            own.advance(SignedDuration::from_secs(1));
        }
    }
}

#[test]
fn slow_responses_do_not_change_the_measured_clock() {
    let (own, clock) = clock();
    clock.stamped(at(1500.0), at(0.0), at(0.1));
    let before = clock.now();
    // The server answered at once, and the response took a minute.
    clock.stamped(at(1510.0), at(10.0), at(70.0));
    assert_eq!(clock.now(), before);
    assert!(clock.now().duration_since(at(1500.0)).abs() <= SignedDuration::from_secs(1), "{own:?}");
}

#[test]
fn a_clock_that_is_set_is_followed() {
    let (own, clock) = clock();
    clock.stamped(at(1500.0), at(0.0), at(0.1));
    clock.stamped(at(10.0), at(10.0), at(10.1));
    assert_eq!(clock.now(), at(0.0), "both agree now");
    for second in 20..340 {
        let now = f64::from(second);
        clock.stamped(at(now + 300.0), at(now), at(now + 0.1));
    }
    assert!(clock.now().duration_since(at(300.0)).abs() <= SignedDuration::from_secs(1), "{own:?}");
}

#[test]
fn differences_are_exported_once_they_are_known() {
    let own = ManualClock::at(at(0.0));
    let time: Arc<dyn TimeSource> = Arc::new(own.clone());
    let clocks = ServerClocks { own: Arc::clone(&time), host: time, clocks: Mutex::default() };
    let clock = clocks.clock_for(&Arc::from("api.example"));
    let text = || {
        let mut out = TextExposition::default();
        clocks.collect(&mut out);
        out.finish()
    };
    assert!(!text().contains("api.example"), "{}", text());
    clock.stamped(at(-600.0), at(0.0), at(0.0));
    assert!(text().contains("\nmcm_clock_skew_seconds{server=\"api.example\"} -599.5\n"), "{}", text());
    assert!(text().contains("\nmcm_clock_disagreement_seconds{server=\"api.example\"} 0\n"), "{}", text());
    clock.observe(&response(&date(at(0.0))), at(0.0));
    assert!(text().contains("\nmcm_clock_disagreement_seconds{server=\"api.example\"} 599.5\n"), "{}", text());
    own.advance(REPORTED_FOR);
    assert!(text().contains("\nmcm_clock_disagreement_seconds{server=\"api.example\"} 0\n"), "{}", text());
}

#[test]
fn with_many_servers_only_clocks_that_differ_have_series() {
    let time: Arc<dyn TimeSource> = Arc::new(ManualClock::at(at(0.0)));
    let clocks = ServerClocks { own: Arc::clone(&time), host: time, clocks: Mutex::default() };
    for (server, stamp) in [("right.example", 0.0), ("wrong.example", -600.0)] {
        clocks.clock_for(&Arc::from(server)).stamped(at(stamp), at(0.0), at(0.0));
    }
    let mut out = TextExposition::aggregating([SeriesGroup::Clusters]);
    clocks.collect(&mut out);
    assert_eq!(out.omitted().collect::<Vec<_>>(), [(SeriesGroup::Clusters, 2)]);
    let text = out.finish();
    assert!(text.contains("wrong.example") && !text.contains("right.example"), "{text}");
}

/// An API server whose clock is ahead by `stamped`, behind a proxy that puts in a `Date` that is ahead by `dated`.
async fn server(stamped: SignedDuration, dated: SignedDuration) -> (Config, AbortOnDropHandle<std::io::Result<()>>) {
    async fn answer(
        State((stamped, dated)): State<(SignedDuration, SignedDuration)>,
        method: Method,
    ) -> impl IntoResponse {
        let ahead = |by| Timestamp::now().checked_add(by).unwrap();
        let stamp = ahead(stamped).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (created, managed): (Value, Value) = match method {
            Method::POST => (json!(stamp), json!([])),
            Method::PUT => (
                json!("2020-01-01T00:00:00Z"),
                json!([{ "manager": "mcm", "operation": "Update", "time": stamp, "fieldsV1": {} }]),
            ),
            _ => (json!("2020-01-01T00:00:00Z"), json!([])),
        };
        let object = json!({ "metadata": { "name": "a", "namespace": "n", "creationTimestamp": created, "managedFields": managed }, "involvedObject": {} });
        ([(DATE, HeaderValue::from_str(&date(ahead(dated))).unwrap())], Json(object))
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(any(answer)).with_state((stamped, dated));
    let server = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
    (Config::new(url.parse().unwrap()), server)
}

#[rstest]
#[case::a_lying_proxy(0, 1_800)]
#[case::a_proxy_of_another_year(0, 250_000_000_000)]
#[case::a_server_that_is_ahead(10_800, 10_800)]
#[case::a_server_that_is_behind(-10_800, 0)]
#[tokio::test]
async fn the_time_is_that_of_written_objects(#[case] stamped: i64, #[case] dated: i64) {
    for is_lease in [false, true] {
        let [stamps, dates] = [stamped, dated].map(SignedDuration::from_secs);
        let (config, _server) = server(stamps, dates).await;
        let metrics = MetricsRegistry::new();
        let cluster = ClusterConfig::from(config);
        let clock = metrics.requests().clock(&cluster.config.cluster_url);
        let ahead = || clock.now().duration_since(Timestamp::now()).as_secs();
        assert_eq!(ahead(), 0, "before the first response");
        let rate = RequestRate { qps: 20.0, burst: 30 };
        let connections = client::connections(&cluster).unwrap();
        let client =
            client::client(&connections, "mcm/v1 (linux)", ResponseLimits::CONTROL, rate, None, metrics.requests())
                .unwrap();
        Api::<Node>::all(client.clone()).get("a").await.unwrap();
        assert!(ahead() <= 1, "a read makes no time later: {}", ahead());
        if is_lease {
            let leases = Api::<Lease>::namespaced(client, "n");
            leases.replace("a", &PostParams::default(), &Lease::default()).await.unwrap();
        } else {
            let events = Api::<Event>::namespaced(client, "n");
            events.create(&PostParams::default(), &Event::default()).await.unwrap();
        }
        assert!((ahead() - stamped).abs() <= 2, "{} instead of {stamped}", ahead());
    }
}
