//! Endpoints over TLS, for users that the API server authorizes.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{Json, Router, extract::State, routing::post};
use kube::Client;
use rstest::rstest;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::super::*;

/// An API server with two users that counts its reviews.
struct Reviewer {
    client: Client,
    asked: Arc<AtomicUsize>,
    _server: AbortOnDropHandle<io::Result<()>>,
}

impl Reviewer {
    async fn start() -> Self {
        let asked = Arc::<AtomicUsize>::default();
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(token_review))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(access_review))
            .with_state(Arc::clone(&asked));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        Self { client, asked, _server: server }
    }
}

async fn token_review(
    State(asked): State<Arc<AtomicUsize>>,
    Json(mut review): Json<Value>,
) -> (StatusCode, Json<Value>) {
    asked.fetch_add(1, Ordering::SeqCst);
    review["status"] = match review["spec"]["token"].as_str().unwrap() {
        "reader" => json!({"authenticated": true, "user": {"username": "reader", "groups": ["monitors"]}}),
        "stranger" => json!({"authenticated": true, "user": {"username": "stranger"}}),
        _ => json!({"authenticated": false}),
    };
    (StatusCode::CREATED, Json(review))
}

async fn access_review(
    State(asked): State<Arc<AtomicUsize>>,
    Json(mut review): Json<Value>,
) -> (StatusCode, Json<Value>) {
    asked.fetch_add(1, Ordering::SeqCst);
    let spec = &review["spec"];
    let is_metrics = spec["nonResourceAttributes"] == json!({"path": "/metrics", "verb": "get"});
    let is_reader = spec["user"] == "reader" && spec["groups"] == json!(["monitors"]);
    review["status"] = json!({"allowed": is_metrics && is_reader});
    (StatusCode::CREATED, Json(review))
}

async fn serve(client: Client, certificate: TlsEndpoint) -> (String, RunningServer) {
    let endpoints = HttpEndpoints {
        metrics: MetricsRegistry::new(),
        readiness: ProcessReadiness::default(),
        shutdown: CancellationToken::new(),
        activity: ControllerActivity::default(),
        diagnostics: true,
        cells: Arc::default(),
        config: Arc::new(json!({ "mcm": {} })),
        readers: DiagnosticReaders::Local,
        profiling: false,
    };
    let server = EndpointServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let url = format!("https://localhost:{}", server.address().port());
    let serving = server.serve_with(endpoints, certificate, AccessReviewer::new(client)).unwrap();
    (url, serving)
}

/// Gets a path with a token; returns status and text. Trusts only `root`, or any certificate.
async fn get(url: &str, path: &str, token: Option<&str>, root: Option<Vec<u8>>) -> Result<(u16, String), kube::Error> {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.accept_invalid_certs = root.is_none();
    config.root_cert = root.map(|root| vec![root]);
    config.auth_info =
        serde_json::from_value(token.map_or_else(|| json!({}), |token| json!({"token": token}))).unwrap();
    config.default_retry = false;
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match Client::try_from(config).unwrap().request_text(request).await {
        Ok(text) => Ok((200, text)),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message.clone())),
        Err(error) => Err(error),
    }
}

#[rstest]
#[case::nobody(None, "/metrics", 401)]
#[case::unknown(Some("forged"), "/metrics", 401)]
#[case::without_the_right(Some("stranger"), "/metrics", 403)]
#[case::another_path(Some("reader"), "/configz", 403)]
#[case::texts_without_the_right(Some("reader"), "/explain", 403)]
#[case::with_the_right(Some("reader"), "/metrics", 200)]
#[tokio::test]
async fn diagnostics_are_served_to_authorized_users(
    #[case] token: Option<&str>,
    #[case] path: &str,
    #[case] expected: u16,
) {
    let reviewer = Reviewer::start().await;
    let (url, _serving) = serve(reviewer.client.clone(), certificate::endpoint(None, certificate::LOOK).unwrap()).await;
    let (status, text) = get(&url, path, token, None).await.unwrap();
    assert_eq!(status, expected, "{text}");
    assert_eq!(text.contains("\nprocess_cpu_seconds_total "), expected == 200, "{text}");
}

#[tokio::test]
async fn the_api_server_is_asked_once_for_requests_of_a_short_time() {
    let reviewer = Reviewer::start().await;
    let (url, _serving) = serve(reviewer.client.clone(), certificate::endpoint(None, certificate::LOOK).unwrap()).await;
    for _ in 0..3 {
        assert_eq!(get(&url, "/metrics", Some("reader"), None).await.unwrap().0, 200);
        assert_eq!(get(&url, "/metrics", Some("forged"), None).await.unwrap().0, 401);
    }
    assert_eq!(reviewer.asked.load(Ordering::SeqCst), 3, "two questions for the reader, one for the other");
}

#[tokio::test]
async fn long_tokens_and_paths_are_refused_without_a_question() {
    let reviewer = Reviewer::start().await;
    let access = AccessReviewer::new(reviewer.client.clone());
    let router = Router::new().fallback(|| async { "served" });
    let router = router.layer(from_fn_with_state(access, access::guard));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _server = AbortOnDropHandle::new(tokio::spawn(axum::serve(listener, router).into_future()));
    mcm_driver::tls::use_ring();
    let client = reqwest::Client::new();
    for (token, path, expected) in
        [("t".repeat(17 << 10), "a".to_owned(), 401), ("reader".to_owned(), "a".repeat(1 << 10), 403)]
    {
        let answer = client.get(format!("http://{address}/{path}")).bearer_auth(token).send().await.unwrap();
        assert_eq!(answer.status(), expected);
    }
    assert_eq!(reviewer.asked.load(Ordering::SeqCst), 0);
}

/// Unknown is not allowed.
#[tokio::test]
async fn nothing_is_served_while_the_api_server_does_not_answer() {
    let nowhere = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let (url, _serving) = serve(nowhere, certificate::endpoint(None, certificate::LOOK).unwrap()).await;
    assert_eq!(get(&url, "/metrics", Some("reader"), None).await.unwrap().0, 503);
    assert_eq!(get(&url, "/metrics", None, None).await.unwrap().0, 401);
}

/// Writes a new certificate into the files; the certificate.
fn renew(files: &CertificateFiles) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&files.cert, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    made.cert.der().to_vec()
}

#[tokio::test]
async fn a_certificate_is_replaced_without_a_restart() {
    let reviewer = Reviewer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles { cert: folder.path().join("tls.crt"), key: folder.path().join("tls.key") };
    let first = renew(&files);
    let certificate = certificate::endpoint(Some(files.clone()), Duration::ZERO).unwrap();
    let (url, _serving) = serve(reviewer.client.clone(), certificate).await;
    let get = async |root: &Vec<u8>| get(&url, "/metrics", Some("reader"), Some(root.clone())).await;
    assert_eq!(get(&first).await.unwrap().0, 200);
    let second = renew(&files);
    assert_eq!(get(&second).await.unwrap().0, 200);
    assert!(get(&first).await.is_err(), "the first one is not in use any more");
    fs::write(&files.cert, "half a file").unwrap();
    assert_eq!(get(&second).await.unwrap().0, 200, "a file that cannot be used changes nothing");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let files = CertificateFiles { cert: folder.path().join("tls.crt"), key: folder.path().join("tls.key") };
    let error = || certificate::endpoint(Some(files.clone()), certificate::LOOK).err().unwrap().to_string();
    assert!(error().contains("tls.crt"), "{}", error());
    renew(&files);
    fs::write(&files.key, "no key").unwrap();
    assert!(error().contains("tls.key has no key"), "{}", error());
}
