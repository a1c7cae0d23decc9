//! Sends requests: signs them, limits their time, and repeats what may be repeated.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use aws_smithy_http_client::{
    Builder, Connector,
    proxy::ProxyConfig,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorSettings, SharedHttpClient},
    orchestrator::HttpRequest,
    result::ConnectorError,
};
use aws_smithy_types::{body::SdkBody, byte_stream::ByteStream};
use rand::Rng;
use roxmltree::{Document, Node};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    errors::Failure,
    query::{Query, error_in},
};
use crate::driver::cloud::Requests;

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
const CONNECT: Duration = Duration::from_secs(5);

/// How long answers may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Of one attempt of a call.
    pub attempt: Duration,
    /// Of all attempts of a call. Below the deadline of a status look-up, so that its error says what is wrong.
    pub call: Duration,
    pub attempts: u32,
    /// The mean of the first pause between two attempts; it doubles.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { attempt: seconds(25), call: seconds(55), attempts: 3, pause: seconds(1) }
    }
}

/// A service in a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub name: &'static str,
    pub region: String,
    pub url: String,
}

/// Connections to all services.
pub(super) struct Transport {
    connector: Connector,
    limits: Limits,
    requests: Requests,
}

impl Transport {
    pub(super) fn new(limits: Limits, uses_proxy: bool, requests: Requests) -> Self {
        let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT.min(limits.attempt)).build();
        Self { connector: connector(settings, uses_proxy), limits, requests }
    }

    /// Calls an action and reads its answer. What has no certain outcome is repeated: every action of this driver may be,
    /// creations because of their token.
    pub(super) async fn call<T>(
        &self,
        service: &Service,
        credentials: Option<&Credentials>,
        query: &Query,
        read: impl Fn(Node<'_, '_>) -> Option<T>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.limits.call;
        let mut pause = self.limits.pause;
        let mut attempt = 1;
        loop {
            let limit = deadline.min(Instant::now() + self.limits.attempt);
            let once = async {
                let sent = timeout_at(limit, self.once(service, credentials, query)).await;
                let (status, text) = sent.unwrap_or(Err(Failure::NoAnswer))?;
                answer(query.action(), status, &text, &read)
            };
            let failure = match self.requests.measure(query.service(), once).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let wait = pause.mul_f64(rand::rng().random_range(0.5..1.5));
            if !failure.may_pass() || attempt >= self.limits.attempts || Instant::now() + wait >= deadline {
                return Err(failure);
            }
            sleep(wait).await;
            (attempt, pause) = (attempt + 1, pause * 2);
        }
    }

    async fn once(
        &self,
        service: &Service,
        credentials: Option<&Credentials>,
        query: &Query,
    ) -> Result<(u16, String), Failure> {
        let body = query.encoded();
        let mut request = http::Request::builder()
            .method("POST")
            .uri(format!("{}/", service.url.trim_end_matches('/')))
            .header("content-type", FORM)
            .body(SdkBody::from(body.as_str()))
            .map_err(|error| Failure::Unsent(error.to_string()))?;
        if let Some(credentials) = credentials {
            add_signature(&mut request, &body, service, credentials)?;
        }
        let request = HttpRequest::try_from(request).map_err(|error| Failure::Unsent(error.to_string()))?;
        let response = self.connector.call(request).await.map_err(|error| failed(&error))?;
        let status = response.status().as_u16();
        let body = ByteStream::new(response.into_body()).collect().await;
        let bytes = body.map_err(|error| Failure::Broken(causes(&error)))?.into_bytes();
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// A client with the same connections for the credentials of the process.
pub(super) fn shared_client(uses_proxy: bool) -> SharedHttpClient {
    Builder::new().build_with_connector_fn(move |settings, _| {
        connector(settings.cloned().unwrap_or_else(|| HttpConnectorSettings::builder().build()), uses_proxy)
    })
}

/// Connections with the TLS of the rest of the program.
fn connector(settings: HttpConnectorSettings, uses_proxy: bool) -> Connector {
    let mut connector = Connector::builder().connector_settings(settings);
    // The proxy that the environment names, if it names one.
    connector.set_proxy_config(uses_proxy.then(ProxyConfig::from_env));
    connector.tls_provider(Provider::Rustls(CryptoMode::Ring)).build()
}

/// Reads an answer: what it is for if it is a success, otherwise the error in it.
fn answer<T>(action: &str, status: u16, text: &str, read: impl Fn(Node<'_, '_>) -> Option<T>) -> Result<T, Failure> {
    if !(200..300).contains(&status) {
        return Err(match error_in(text) {
            Some((name, message)) => Failure::Named { name, message, status },
            None => Failure::Status(status),
        });
    }
    let document = Document::parse(text).map_err(|_| Failure::Unreadable(status))?;
    let root = document.root_element();
    // The page of a proxy must not pass for an empty list.
    let is_answer = root.tag_name().name().strip_suffix("Response") == Some(action);
    Some(root).filter(|_| is_answer).and_then(read).ok_or(Failure::Unreadable(status))
}

fn add_signature(
    request: &mut http::Request<SdkBody>,
    body: &str,
    service: &Service,
    credentials: &Credentials,
) -> Result<(), Failure> {
    let unsent = |error: &dyn std::error::Error| Failure::Unsent(error.to_string());
    let identity = credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(&service.region)
        .name(service.name)
        .time(SystemTime::now())
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| unsent(&error))?
        .into();
    let uri = request.uri().to_string();
    let headers = [("content-type", FORM)].into_iter();
    let signable = SignableRequest::new("POST", uri, headers, SignableBody::Bytes(body.as_bytes()))
        .map_err(|error| unsent(&error))?;
    let (instructions, _) = sign(signable, &params).map_err(|error| unsent(&error))?.into_parts();
    instructions.apply_to_request_http1x(request);
    Ok(())
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

/// The text of an error and of its causes, without those that only repeat.
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

/// Limits a call that is none of the query protocol.
pub(super) async fn within<T>(limits: Limits, call: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(limits.attempt, call).await.map_err(|_| Failure::NoAnswer)
}
