//! Requests and answers of Google's APIs.

use aws_smithy_types::body::SdkBody;
use serde::de::DeserializeOwned;

use super::errors::failure_of;
use crate::driver::cloud::{Failure, Http, Limiter, form};

const AGENT: &str = "machine-controller-manager";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Delete,
}

/// One request.
pub(super) struct Request<'a> {
    pub method: Method,
    pub url: String,
    pub token: Option<&'a str>,
    pub body: Option<String>,
    /// The body is a form, otherwise JSON.
    pub is_form: bool,
}

impl Request<'static> {
    /// A form that is posted.
    pub(super) fn form(url: &str, pairs: &[(&str, &str)]) -> Self {
        let body = Some(form(pairs.iter().copied()));
        Self { method: Method::Post, url: url.to_owned(), token: None, body, is_form: true }
    }
}

/// Sends a request once and reads its answer.
pub(super) async fn once<T: DeserializeOwned>(
    http: &Http,
    limiter: &Limiter,
    request: &Request<'_>,
) -> Result<T, Failure> {
    let (status, text) = http.send(limiter, encoded(request)?).await?;
    if (200..300).contains(&status) {
        return serde_json::from_str(&text).map_err(|_| Failure::Unreadable(status));
    }
    Err(failure_of(status, &text))
}

fn encoded(request: &Request<'_>) -> Result<http::Request<SdkBody>, Failure> {
    let method = match request.method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Delete => "DELETE",
    };
    let mut builder = http::Request::builder().method(method).uri(&request.url).header("user-agent", AGENT);
    if let Some(token) = request.token {
        builder = builder.header("authorization", format!("Bearer {token}"));
    }
    if request.body.is_some() {
        let kind = if request.is_form { "application/x-www-form-urlencoded" } else { "application/json" };
        builder = builder.header("content-type", kind);
    }
    let body = request.body.as_deref().map_or_else(SdkBody::empty, SdkBody::from);
    builder.body(body).map_err(|error| Failure::Unsent(error.to_string()))
}
