//! Calls and TLS options against servers on this host.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, routing::get};
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;
use tokio::{net::TcpListener, time::timeout};

use super::*;
use crate::testing::{
    TestCa,
    server::{Fake, FakeCloud, Fault, Reply, Request, Shared, serve},
};
use crate::{
    cloud::{
        client::HttpLimits,
        requests::RequestReporter,
        tls::{TlsClientCache, TlsOptions},
    },
    guard::DriverGuards,
};

/// Responds with an empty object to everything.
struct Echo;

impl FakeCloud for Echo {
    fn call(&self, _: &Request) -> &'static str {
        "any"
    }

    fn answer(&mut self, _: &Request) -> Reply {
        Reply { status: 200, body: "{}".to_owned() }
    }
}

/// An authentication that counts.
#[derive(Clone, Default)]
struct Counting {
    seen: Arc<Mutex<Vec<String>>>,
    refusals: Arc<AtomicUsize>,
}

#[async_trait]
impl RequestAuthenticator for Counting {
    async fn headers(&self, request: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        let mut seen = self.seen.lock();
        let headers: String =
            request.headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        seen.push(format!("{} {} {headers}{}", request.method, request.url.path(), request.body));
        let number = HeaderValue::from(seen.len());
        Ok([(AUTHORIZATION, number)].into_iter().collect())
    }

    async fn refused(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }
}

fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    match answer.text.as_str() {
        "refused" => CloudFailure::Named { code: Code::Unavailable, name: "Busy".to_owned(), message: String::new() },
        _ => CloudFailure::Status(answer.status),
    }
}

fn rest(url: &str, tls: &TlsOptions, authentication: Box<dyn RequestAuthenticator>) -> Result<RestClient, DriverError> {
    let second = Duration::from_secs(1);
    let limits = HttpLimits {
        attempt: 20 * second,
        call: 60 * second,
        attempts: 3,
        pause: Duration::from_millis(1),
        slowest: 1000.0,
    };
    let http = Arc::new(HttpClient::new(
        limits,
        false,
        RequestReporter::for_provider("test", &DriverGuards::unobserved().observer),
    ));
    let client = TlsClientCache::new(limits.attempt, false).client(tls)?;
    Ok(RestClient::new(&http, client, url.parse().unwrap(), authentication, limits.slowest, failure_of))
}

/// A server with the path of its API, and the API.
async fn start(authentication: Counting) -> (Shared<Echo>, RestClient) {
    let fake = Fake::new(Echo);
    let url = serve(&fake).await + "/base/path/";
    let rest = rest(&url, &TlsOptions::default(), Box::new(authentication)).unwrap();
    (fake, rest)
}

const READ: [&str; 1] = ["things"];

fn read_call() -> RestCall<'static> {
    RestCall::read("thing_get", Method::GET, &READ)
}

fn write_call() -> RestCall<'static> {
    RestCall::write("thing_create", Method::POST, &READ).with(json!({"a": 1}))
}

#[tokio::test]
async fn no_part_of_a_path_leads_elsewhere() {
    let (fake, rest) = start(Counting::default()).await;
    let path = ["things", "a/../b?c#d", "e f"];
    let call = RestCall { query: &[("q", "a&b=c")], ..RestCall::read("thing_get", Method::GET, &path) };
    let _: Value = rest.call(&call).await.unwrap();
    let sent = &fake.lock().sent("any")[0];
    assert_eq!(
        (sent.path.as_str(), sent.query.as_str()),
        ("/base/path/things/a%2F..%2Fb%3Fc%23d/e%20f", "q=a%26b%3Dc")
    );
    assert_eq!(sent.headers["user-agent"], "machine-controller-manager");
}

#[rstest]
#[case("")]
#[case(".")]
#[case("..")]
#[tokio::test]
async fn a_part_of_a_path_that_would_vanish_is_not_sent(#[case] part: &str) {
    let (fake, rest) = start(Counting::default()).await;
    let failed: Result<Value, _> = rest.call(&RestCall::write("thing_delete", Method::DELETE, &["things", part])).await;
    assert!(matches!(failed, Err(CloudFailure::Unsent(_))), "{failed:?}");
    assert_eq!(fake.lock().count("any"), 0);
}

/// Front ends refuse a request that may have a body, and has neither a body nor a length.
#[rstest]
#[case::post(Method::POST, Some("0"))]
#[case::put(Method::PUT, Some("0"))]
#[case::patch(Method::PATCH, Some("0"))]
#[case::get(Method::GET, None)]
#[case::delete(Method::DELETE, None)]
#[tokio::test]
async fn a_request_without_a_body_has_a_length_where_it_may_have_a_body(
    #[case] method: Method,
    #[case] expected: Option<&str>,
) {
    let (fake, rest) = start(Counting::default()).await;
    let _: Value = rest.call(&RestCall::write("thing_register", method.clone(), &READ)).await.unwrap();
    let sent = fake.lock().sent("any");
    assert_eq!(sent[0].headers.get("content-length").map(String::as_str), expected);
    // A body has its own length, once.
    let _: Value = rest.call(&RestCall::write("thing_create", method, &READ).with(json!({"a": 1}))).await.unwrap();
    assert_eq!(fake.lock().sent("any")[1].headers["content-length"], "7");
}

#[tokio::test]
async fn each_attempt_is_authenticated_anew() {
    let authentication = Counting::default();
    let (fake, rest) = start(authentication.clone()).await;
    fake.lock().faults.push(("any", Fault::Status(503), 2));
    let _: Value = rest.call(&read_call()).await.unwrap();
    assert_eq!(*authentication.seen.lock(), vec!["GET /base/path/things "; 3]);
    let sent = fake.lock().sent("any");
    let numbers: Vec<&str> = sent.iter().map(|request| request.headers["authorization"].as_str()).collect();
    assert_eq!(numbers, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_body_is_sent_as_json_and_signed() {
    let authentication = Counting::default();
    let (fake, rest) = start(authentication.clone()).await;
    let _: Value = rest.call(&write_call()).await.unwrap();
    let sent = &fake.lock().sent("any")[0];
    assert_eq!((sent.body.as_str(), sent.headers["content-type"].as_str()), (r#"{"a":1}"#, "application/json"));
    assert_eq!(*authentication.seen.lock(), [r#"POST /base/path/things {"a":1}"#]);
}

#[tokio::test]
async fn headers_of_a_call_are_sent_and_signed() {
    let authentication = Counting::default();
    let (fake, rest) = start(authentication.clone()).await;
    let _: Value = rest.call(&read_call().header("x-action", "Look")).await.unwrap();
    assert_eq!(fake.lock().sent("any")[0].headers["x-action"], "Look");
    assert_eq!(*authentication.seen.lock(), ["GET /base/path/things x-action=Look"]);
    let failed: Result<Value, _> = rest.call(&read_call().header("x-action", "Look\nx-other: 1")).await;
    assert!(matches!(failed, Err(CloudFailure::Unsent(_))), "{failed:?}");
}

#[tokio::test]
async fn refused_credentials_are_forgotten_once_per_call() {
    let authentication = Counting::default();
    let (fake, rest) = start(authentication.clone()).await;
    fake.lock().faults.push(("any", Fault::Status(401), 1));
    let failed: Result<Value, _> = rest.call(&read_call()).await;
    assert_eq!(failed, Err(CloudFailure::Status(401)));
    assert_eq!(authentication.refusals.load(Relaxed), 1);
}

#[rstest]
#[case::no_answer_of_the_cloud(Fault::Status(502), 3, 1)]
#[case::lost_answer(Fault::LostAnswer, 3, 1)]
#[case::malformed(Fault::Malformed, 3, 1)]
#[case::refused_by_the_cloud(Fault::Error(Reply { status: 429, body: "refused".to_owned() }), 3, 3)]
#[case::it_does_not_pass(Fault::Status(403), 1, 1)]
#[case::endless(Fault::Endless, 1, 1)]
#[tokio::test]
async fn a_write_is_repeated_only_if_it_had_no_effect_or_is_idempotent(
    #[case] fault: Fault,
    #[case] reads: usize,
    #[case] writes: usize,
) {
    let once = RestCall::idempotent("thing_create", Method::POST, &READ);
    for (call, expected) in [(read_call(), reads), (write_call(), writes), (once, reads)] {
        let (fake, rest) = start(Counting::default()).await;
        fake.lock().faults.push(("any", fault.clone(), 99));
        let failed: Result<Value, _> = rest.call(&call).await;
        failed.unwrap_err();
        assert_eq!(fake.lock().count("any"), expected, "{call:?}");
    }
}

#[tokio::test]
async fn a_redirection_is_not_followed() {
    let router = Router::new()
        .route("/moved/things", get(|| async { axum::response::Redirect::temporary("/things") }))
        .route("/things", get(|| async { "{}" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/moved", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let rest = rest(&url, &TlsOptions::default(), Box::new(Counting::default())).unwrap();
    let answer: Result<Value, _> = rest.call(&read_call()).await;
    assert_eq!(answer, Err(CloudFailure::Status(307)));
}

#[tokio::test]
async fn a_server_that_asks_for_a_pause_gets_one() {
    let busy = || async { (axum::http::StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "20")], "busy") };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/things", get(busy))).await });
    let rest = rest(&url, &TlsOptions::default(), Box::new(Counting::default())).unwrap();
    let call = read_call();
    let answer = timeout(Duration::from_secs(2), rest.call::<Value>(&call)).await;
    assert!(answer.is_err(), "the second attempt waits");
}

#[tokio::test]
async fn a_request_that_reaches_no_server_had_no_effect() {
    // A port that is reserved and where nothing listens.
    let rest = rest("http://127.0.0.1:1", &TlsOptions::default(), Box::new(Counting::default())).unwrap();
    let failed: Result<Value, _> = rest.call(&write_call()).await;
    let failure = failed.unwrap_err();
    assert!(matches!(failure, CloudFailure::Unreachable(_)) && !failure.may_have_had_effect(), "{failure:?}");
}

#[test]
fn a_token_is_a_header_or_refused_without_a_quote() {
    let bearer = BearerToken::new("token", "abc").unwrap();
    assert_eq!(bearer.0[AUTHORIZATION], "Bearer abc");
    assert!(bearer.0[AUTHORIZATION].is_sensitive());
    let error = BearerToken::new("token", "a\nbc-secret").map(drop).unwrap_err();
    assert_eq!(error.message, "token in the secret of the class is no token");
}

/// A server with a certificate of the CA, which requires certificates of another one; returns its URL.
async fn serve_with(ca: &TestCa, clients: Option<&TestCa>) -> String {
    ca.serve(Router::new().route("/things", get(|| async { "{}" })), clients).await
}

/// A call to a server with these options succeeds.
async fn reaches(url: &str, tls: &TlsOptions) -> bool {
    let rest = rest(url, tls, Box::new(Counting::default())).unwrap();
    rest.call::<Value>(&read_call()).await.is_ok()
}

#[tokio::test]
async fn a_server_is_trusted_by_the_ca_of_the_options_or_not_verified_at_all() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let url = serve_with(&ca, None).await;
    let with_ca = |ca: &TestCa| TlsOptions { ca: Some(ca.pem.clone()), ..TlsOptions::default() };
    assert!(reaches(&url, &with_ca(&ca)).await);
    assert!(!reaches(&url, &with_ca(&other)).await);
    assert!(!reaches(&url, &TlsOptions::default()).await, "the system does not know the CA");
    assert!(reaches(&url, &TlsOptions { is_insecure: true, ..TlsOptions::default() }).await);
    let bundle = TlsOptions { ca: Some(format!("{}\n{}", other.pem, ca.pem)), ..TlsOptions::default() };
    assert!(reaches(&url, &bundle).await);
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_that_of_the_options() {
    let (ca, clients) = (TestCa::new(), TestCa::new());
    let url = serve_with(&ca, Some(&clients)).await;
    let tls = |identity| TlsOptions { ca: Some(ca.pem.clone()), identity, is_insecure: false };
    assert!(reaches(&url, &tls(Some(clients.issue()))).await);
    assert!(!reaches(&url, &tls(Some(ca.issue()))).await);
    assert!(!reaches(&url, &tls(None)).await);
}

#[tokio::test]
async fn accounts_with_the_same_tls_options_share_connections_and_wrong_ones_are_refused_without_a_quote() {
    let connections = TlsClientCache::new(Duration::from_secs(1), false);
    let (certificate, key) = TestCa::new().issue();
    let (_, other_key) = TestCa::new().issue();
    connections
        .client(&TlsOptions { identity: Some((certificate.clone(), key.clone())), ..TlsOptions::default() })
        .unwrap();
    for wrong in [
        TlsOptions { ca: Some("top-secret".to_owned()), ..TlsOptions::default() },
        TlsOptions { identity: Some((certificate.clone(), "top-secret".to_owned())), ..TlsOptions::default() },
        TlsOptions { identity: Some((certificate, other_key)), ..TlsOptions::default() },
    ] {
        let error = connections.client(&wrong).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(
            error.message.contains("in the secret of the class") && !error.message.contains("top-secret"),
            "{error}"
        );
    }
}
