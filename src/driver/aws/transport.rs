//! Sends requests: signs them, limits their time, and repeats what may be repeated.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use aws_smithy_runtime_api::client::http::{SharedHttpClient, SharedHttpConnector, http_client_fn};
use roxmltree::{Document, Node, ParsingOptions};
use tokio::time::timeout;

use super::{
    errors::{may_pass, named},
    query::{Query, error_in},
};
use crate::driver::cloud::{Failure, Http, Limiter, Limits, Requests, connector};

/// A page of 1000 VMs has some 300,000 nodes. Small nodes take much more memory than their text.
const MOST_NODES: u32 = 2_000_000;
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// A service in a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub name: &'static str,
    pub region: String,
    pub url: String,
}

/// Connections to all services.
pub(super) struct Transport {
    http: Http,
}

impl Transport {
    pub(super) fn new(limits: Limits, uses_proxy: bool, requests: Requests) -> Self {
        Self { http: Http::new(limits, uses_proxy, requests) }
    }

    /// Calls an action and reads its answer. What has no certain outcome is repeated: every action of this driver may be,
    /// creations because of their token.
    pub(super) async fn call<T>(
        &self,
        limiter: &Limiter,
        service: &Service,
        credentials: Option<&Credentials>,
        query: &Query,
        read: impl Fn(Node<'_, '_>) -> Option<T>,
    ) -> Result<T, Failure> {
        let once = || async {
            let (status, text) = self.once(limiter, service, credentials, query).await?;
            answer(query.action(), status, &text, &read)
        };
        self.http.repeat(limiter, query.service(), once, may_pass).await
    }

    async fn once(
        &self,
        limiter: &Limiter,
        service: &Service,
        credentials: Option<&Credentials>,
        query: &Query,
    ) -> Result<(u16, String), Failure> {
        let body = query.encoded();
        let mut request = http::Request::builder()
            .method("POST")
            .uri(format!("{}/", service.url.trim_end_matches('/')))
            .header("content-type", FORM)
            .body(String::new())
            .map_err(|error| Failure::Unsent(error.to_string()))?;
        if let Some(credentials) = credentials {
            add_signature(&mut request, &body, service, credentials)?;
        }
        self.http.send(limiter, request.map(|_| body)).await
    }
}

/// A client with the same connections for the credentials of the process.
pub(super) fn shared_client(uses_proxy: bool) -> SharedHttpClient {
    http_client_fn(move |settings, _| SharedHttpConnector::new(connector(settings.clone(), uses_proxy)))
}

/// Reads an answer: what it is for if it is a success, otherwise the error in it.
fn answer<T>(action: &str, status: u16, text: &str, read: impl Fn(Node<'_, '_>) -> Option<T>) -> Result<T, Failure> {
    if !(200..300).contains(&status) {
        return Err(match error_in(text) {
            Some((name, message)) => named(name, message, status),
            None => Failure::Status(status),
        });
    }
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|_| Failure::Unreadable(status))?;
    let root = document.root_element();
    // The page of a proxy must not pass for an empty list.
    let is_answer = root.tag_name().name().strip_suffix("Response") == Some(action);
    Some(root).filter(|_| is_answer).and_then(read).ok_or(Failure::Unreadable(status))
}

fn add_signature(
    request: &mut http::Request<String>,
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

/// Limits a call that is none of the query protocol.
pub(super) async fn within<T>(limits: Limits, call: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(limits.attempt, call).await.map_err(|_| Failure::NoAnswer)
}
