//! HTTP for all clouds: connections with the TLS of the rest of the program, limits of time and size, and repetition.

use std::{error, sync::OnceLock, time::Duration};

use http::HeaderMap;
use rand::Rng;
use reqwest::{Body, Client, ClientBuilder, redirect};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    answer::HttpAnswer, ca_bundle::CaBundle, failure::CloudFailure, limiter::AdaptiveLimiter, requests::RequestReporter,
};
use crate::tls::use_ring;

const CONNECT: Duration = Duration::from_secs(5);
/// Most bytes in the body of an answer. A page of 1000 VMs has some 10 MB.
pub const LARGEST: usize = 64 << 20;
/// Bytes that are read of the body of an answer without success: more than a message has. Drivers decode it into a tree of
/// values, which is much larger than the text.
pub const LARGEST_ERROR: usize = 64 << 10;

/// Calls wait so long for their turn while the cloud throttles.
const LONGEST_QUEUE: Duration = Duration::from_secs(240);

/// Time limits of calls.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Of one attempt of a call.
    pub attempt: Duration,
    /// Time limit of all attempts of a call. Below the deadline of a status look-up, so that its error contains the
    /// reason.
    pub call: Duration,
    /// The most attempts of a call.
    pub attempts: u32,
    /// The mean of the first pause between two attempts; it doubles.
    pub pause: Duration,
    /// Calls per second that an account makes at least, however much the cloud throttles.
    pub slowest: f64,
}

impl Default for HttpLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { attempt: seconds(25), call: seconds(55), attempts: 3, pause: seconds(1), slowest: 0.5 }
    }
}

/// Connections to all services of a cloud.
pub struct HttpClient {
    /// Created with the first request: it reads the certificates of the system. The error is a text.
    client: OnceLock<Result<Client, String>>,
    uses_proxy: bool,
    /// CA certificates in place of those of the system.
    bundle: Option<CaBundle>,
    limits: HttpLimits,
    requests: RequestReporter,
}

impl HttpClient {
    /// Requests go through the proxy that the environment names, if it names one and `uses_proxy` is true.
    pub fn new(limits: HttpLimits, uses_proxy: bool, requests: RequestReporter) -> Self {
        Self { client: OnceLock::new(), uses_proxy, bundle: None, limits, requests }
    }

    /// Servers are verified with these certificates, if there are any, in place of those of the system.
    #[must_use]
    pub fn trusting(self, bundle: Option<CaBundle>) -> Self {
        Self { bundle, ..self }
    }

    /// Makes attempts until one succeeds, one fails in a way that does not pass, or there is no time left. Each waits for its
    /// turn, which costs the call no time. `service` is what the metrics call them.
    pub async fn repeat<T, F>(
        &self,
        limiter: &AdaptiveLimiter,
        service: &'static str,
        once: impl Fn() -> F,
        may_pass: impl Fn(&CloudFailure) -> bool,
    ) -> Result<T, CloudFailure>
    where
        F: Future<Output = Result<T, CloudFailure>>,
    {
        self.repeat_about(limiter, "", service, once, may_pass).await
    }

    /// The same for a call about an object, such as a VM, of which the cloud may take no calls for a while.
    pub(super) async fn repeat_about<T, F>(
        &self,
        limiter: &AdaptiveLimiter,
        object: &str,
        service: &'static str,
        once: impl Fn() -> F,
        may_pass: impl Fn(&CloudFailure) -> bool,
    ) -> Result<T, CloudFailure>
    where
        F: Future<Output = Result<T, CloudFailure>>,
    {
        let mut deadline = Instant::now() + self.limits.call;
        let mut pause = self.limits.pause;
        let mut attempt = 1;
        loop {
            let queued = Instant::now();
            let permit = timeout(LONGEST_QUEUE, limiter.permit_for(object)).await;
            let permit = permit.map_err(|_| CloudFailure::Queued(LONGEST_QUEUE))?;
            deadline += queued.elapsed();
            let limit = deadline.min(Instant::now() + self.limits.attempt);
            let once = async { timeout_at(limit, once()).await.unwrap_or(Err(CloudFailure::NoAnswer)) };
            let answer = self.requests.measure(service, once).await;
            drop(permit);
            let failure = match answer {
                Ok(answer) => {
                    limiter.accepted();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            match &failure {
                failure if failure.is_throttling() => limiter.refused(),
                CloudFailure::Named { .. } | CloudFailure::Faulted { .. } | CloudFailure::Crowded { .. } => {
                    limiter.accepted();
                }
                _ => {}
            }
            let wait = pause.mul_f64(rand::rng().random_range(0.5..1.5));
            // Another answer would be as large.
            let may_pass = !matches!(failure, CloudFailure::TooLarge(_)) && may_pass(&failure);
            if !may_pass || attempt >= self.limits.attempts || Instant::now() + wait >= deadline {
                return Err(failure);
            }
            sleep(wait).await;
            (attempt, pause) = (attempt + 1, pause * 2);
        }
    }

    /// The answer of a request. If it requests a pause, the calls of the limiter wait. Redirections are
    /// not followed.
    pub async fn send<B: Into<Body>>(
        &self,
        limiter: &AdaptiveLimiter,
        request: http::Request<B>,
    ) -> Result<HttpAnswer, CloudFailure> {
        let request = reqwest::Request::try_from(request).map_err(|error| failed(&error))?;
        let answer = exchange(self.client()?, request).await?;
        if let Some(pause) = retry_after(answer.status, &answer.headers) {
            limiter.pause(pause);
        }
        Ok(answer)
    }

    fn client(&self) -> Result<&Client, CloudFailure> {
        let build = || {
            let builder = client_builder(self.limits.attempt, self.uses_proxy);
            match &self.bundle {
                Some(bundle) => bundle.apply(builder)?.build(),
                None => builder.build(),
            }
        };
        let client = self.client.get_or_init(|| build().map_err(|error| causes(&error)));
        client.as_ref().map_err(|error| CloudFailure::Unsent(error.clone()))
    }
}

/// Builder of a client with attempts of this length, through the proxy of the environment if `uses_proxy` is true. It follows
/// no redirection, because another host must not get the credentials.
pub(super) fn client_builder(attempt: Duration, uses_proxy: bool) -> ClientBuilder {
    use_ring();
    let builder = Client::builder().connect_timeout(CONNECT.min(attempt)).redirect(redirect::Policy::none());
    if uses_proxy { builder } else { builder.no_proxy() }
}

/// The answer of a request.
pub(super) async fn exchange(client: &Client, request: reqwest::Request) -> Result<HttpAnswer, CloudFailure> {
    let mut response = client.execute(request).await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
        if !response.status().is_success() && body.len() + chunk.len() > LARGEST_ERROR {
            body.extend_from_slice(&chunk[..LARGEST_ERROR - body.len()]);
            break;
        }
        if body.len() + chunk.len() > LARGEST {
            return Err(CloudFailure::TooLarge(LARGEST));
        }
        body.extend_from_slice(&chunk);
    }
    let text = String::from_utf8(body).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(HttpAnswer { status, headers, text })
}

/// The pause before the next call, from the headers of an answer with this status.
pub fn retry_after(status: u16, headers: &HeaderMap) -> Option<Duration> {
    pause_of(status, headers.get(http::header::RETRY_AFTER)?.to_str().ok()?)
}

/// The same for the value of the header `Retry-After`.
pub fn pause_of(status: u16, seconds: &str) -> Option<Duration> {
    let seconds = seconds.parse().ok()?;
    [429, 503].contains(&status).then(|| Duration::from_secs(seconds))
}

/// Classifies an error of an HTTP client.
pub fn failed(error: &reqwest::Error) -> CloudFailure {
    if error.is_timeout() {
        CloudFailure::NoAnswer
    } else if error.is_connect() {
        CloudFailure::Unreachable(causes(error))
    } else if error.is_builder() {
        CloudFailure::Unsent(causes(error))
    } else {
        CloudFailure::Broken(causes(error))
    }
}

/// An error of this type among an error and its causes.
pub fn find<'a, E: error::Error + 'static>(error: &'a (dyn error::Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |one| one.source()).find_map(|one| one.downcast_ref())
}

/// The text of an error and of its causes, without repetitions. The text of an HTTP client quotes the URL, which may be
/// long, so it is left out if there is a cause.
pub fn causes(error: &(dyn error::Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for one in std::iter::successors(Some(error), |one| one.source()) {
        let text = one.to_string();
        let quotes_url = one.is::<reqwest::Error>() && one.source().is_some();
        if !quotes_url && !texts.iter().any(|other| other.contains(&text)) {
            texts.push(text);
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use axum::{
        Router,
        body::{Body, Bytes},
        http::{StatusCode, header},
        response::IntoResponse,
        routing::get,
    };
    use tokio::net::TcpListener;

    use super::*;
    use crate::guard::DriverGuards;

    /// Sends a GET to a server that has some pages; also returns how long the next call must wait.
    async fn get_from_server(path: &str) -> (Result<(u16, String), CloudFailure>, bool) {
        let endless = || async {
            let chunk = Bytes::from(vec![b'x'; 1 << 20]);
            Body::from_stream(futures::stream::repeat_with(move || Ok::<_, Infallible>(chunk.clone())))
        };
        let moved = || async { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/here")], "moved") };
        let busy =
            || async { (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "20")], "busy").into_response() };
        let router = Router::new()
            .route("/here", get("here"))
            .route("/endless", get(endless))
            .route("/endless-error", get(move || async move { (StatusCode::BAD_REQUEST, endless().await) }))
            .route("/moved", get(moved))
            .route("/busy", get(busy));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let requests = RequestReporter::for_provider("test", &DriverGuards::unobserved().observer);
        let (http, limiter) = (HttpClient::new(HttpLimits::default(), false, requests), AdaptiveLimiter::new(1.0));
        let answer = http.send(&limiter, http::Request::get(url).body("").unwrap()).await;
        let answer = answer.map(|answer| (answer.status, answer.text));
        let is_paused = timeout(Duration::from_millis(50), limiter.permit()).await.is_err();
        (answer, is_paused)
    }

    #[tokio::test]
    async fn an_answer_is_read() {
        assert_eq!(get_from_server("/here").await, (Ok((200, "here".to_owned())), false));
    }

    #[tokio::test]
    async fn an_endless_answer_is_too_large() {
        assert_eq!(get_from_server("/endless").await.0, Err(CloudFailure::TooLarge(LARGEST)));
    }

    #[tokio::test]
    async fn an_endless_answer_without_success_is_read_as_far_as_a_message_goes() {
        let (answer, _) = get_from_server("/endless-error").await;
        assert_eq!(answer.map(|(status, text)| (status, text.len())), Ok((400, LARGEST_ERROR)));
    }

    #[tokio::test]
    async fn a_redirection_is_not_followed() {
        assert_eq!(get_from_server("/moved").await.0, Ok((307, "moved".to_owned())));
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_pause_gets_one() {
        assert_eq!(get_from_server("/busy").await, (Ok((503, "busy".to_owned())), true));
    }

    #[tokio::test]
    async fn the_url_is_not_part_of_the_text_of_an_error() {
        let requests = RequestReporter::for_provider("test", &DriverGuards::unobserved().observer);
        let http = Arc::new(HttpClient::new(HttpLimits::default(), false, requests));
        // A port that is reserved and where nothing listens.
        let request = http::Request::get("http://127.0.0.1:1/filter").body("").unwrap();
        let Err(CloudFailure::Unreachable(text)) = http.send(&AdaptiveLimiter::new(1.0), request).await else {
            panic!()
        };
        assert!(text.contains("Connection refused") && !text.contains("filter"), "{text}");
    }
}
