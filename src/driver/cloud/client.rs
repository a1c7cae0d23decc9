//! HTTP for all clouds: connections with the TLS of the rest of the program, time limits, and repetition.

use std::time::Duration;

use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::{
    Connector,
    proxy::ProxyConfig,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings},
    orchestrator::HttpRequest,
    result::ConnectorError,
};
use aws_smithy_types::body::SdkBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use rand::Rng;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{failure::Failure, limiter::Limiter, requests::Requests};

const CONNECT: Duration = Duration::from_secs(5);
/// Most bytes in the body of an answer. A page of 1000 VMs has some 10 MB.
const LARGEST: usize = 64 << 20;

/// Calls wait so long for their turn while the cloud throttles.
const LONGEST_QUEUE: Duration = Duration::from_secs(240);

/// How long answers may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of one attempt of a call.
    pub attempt: Duration,
    /// Time limit of all attempts of a call. Below the deadline of a status look-up, so that its error contains the
    /// reason.
    pub call: Duration,
    pub attempts: u32,
    /// The mean of the first pause between two attempts; it doubles.
    pub pause: Duration,
    /// Calls per second that an account makes at least, however much the cloud throttles.
    pub slowest: f64,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { attempt: seconds(25), call: seconds(55), attempts: 3, pause: seconds(1), slowest: 0.5 }
    }
}

/// Connections to all services of a cloud.
pub(crate) struct Http {
    connector: Bounded,
    limits: Limits,
    requests: Requests,
}

impl Http {
    pub(crate) fn new(limits: Limits, uses_proxy: bool, requests: Requests) -> Self {
        let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT.min(limits.attempt)).build();
        Self { connector: connector(settings, uses_proxy), limits, requests }
    }

    /// Makes attempts until one succeeds, one fails in a way that does not pass, or there is no time left. Each waits for its
    /// turn, which costs the call no time. `service` is what the metrics call them.
    pub(crate) async fn repeat<T, F>(
        &self,
        limiter: &Limiter,
        service: &'static str,
        once: impl Fn() -> F,
        may_pass: impl Fn(&Failure) -> bool,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut deadline = Instant::now() + self.limits.call;
        let mut pause = self.limits.pause;
        let mut attempt = 1;
        loop {
            let queued = Instant::now();
            let permit = timeout(LONGEST_QUEUE, limiter.permit()).await.map_err(|_| Failure::Queued(LONGEST_QUEUE))?;
            deadline += queued.elapsed();
            let limit = deadline.min(Instant::now() + self.limits.attempt);
            let once = async { timeout_at(limit, once()).await.unwrap_or(Err(Failure::NoAnswer)) };
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
                Failure::Named { .. } => limiter.accepted(),
                _ => {}
            }
            let wait = pause.mul_f64(rand::rng().random_range(0.5..1.5));
            // Another answer would be as large.
            let may_pass = !matches!(failure, Failure::TooLarge(_)) && may_pass(&failure);
            if !may_pass || attempt >= self.limits.attempts || Instant::now() + wait >= deadline {
                return Err(failure);
            }
            sleep(wait).await;
            (attempt, pause) = (attempt + 1, pause * 2);
        }
    }

    /// The status and the text of an answer. If it requests a pause, the calls of the limiter wait.
    pub(crate) async fn send(
        &self,
        limiter: &Limiter,
        request: http::Request<SdkBody>,
    ) -> Result<(u16, String), Failure> {
        let request = HttpRequest::try_from(request).map_err(|error| Failure::Unsent(error.to_string()))?;
        let response = self.connector.call(request).await.map_err(|error| failed(&error))?;
        let status = response.status().as_u16();
        if let Some(pause) = response.headers().get("retry-after").and_then(|pause| pause.parse().ok())
            && [429, 503].contains(&status)
        {
            limiter.pause(Duration::from_secs(pause));
        }
        let body = response.into_body().collect().await.map_err(|error| match find::<LengthLimitError>(&*error) {
            Some(_) => Failure::TooLarge(LARGEST),
            None => Failure::Broken(causes(&*error)),
        })?;
        let text = String::from_utf8(body.to_bytes().into());
        Ok((status, text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())))
    }
}

/// Connections whose answers end with an error when they become too large.
#[derive(Debug)]
pub(crate) struct Bounded(Connector);

impl HttpConnector for Bounded {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let answer = self.0.call(request);
        HttpConnectorFuture::new(async move {
            Ok(answer.await?.map(|body| SdkBody::from_body_1_x(Limited::new(body, LARGEST))))
        })
    }
}

/// Connections, through the proxy that the environment names if there is one and it is used.
pub(crate) fn connector(settings: HttpConnectorSettings, uses_proxy: bool) -> Bounded {
    let mut connector = Connector::builder().connector_settings(settings).sleep_impl(TokioSleep::new());
    connector.set_proxy_config(uses_proxy.then(ProxyConfig::from_env));
    Bounded(connector.tls_provider(Provider::Rustls(CryptoMode::Ring)).build())
}

fn failed(error: &ConnectorError) -> Failure {
    if error.is_timeout() {
        Failure::NoAnswer
    } else if error.is_io() {
        Failure::Unreachable(causes(error))
    } else if error.is_user() {
        Failure::Unsent(causes(error))
    } else {
        Failure::Broken(causes(error))
    }
}

/// An error of this type among an error and its causes.
fn find<'a, E: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |one| one.source()).find_map(|one| one.downcast_ref())
}

/// The text of an error and of its causes, without repetitions.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut texts, mut next) = (vec![error.to_string()], error.source());
    while let Some(one) = next {
        let text = one.to_string();
        if !texts.iter().any(|other| other.contains(&text)) {
            texts.push(text);
        }
        next = one.source();
    }
    texts.join(": ")
}
