//! Requests that the crate of the Compute API does not send: for tokens, and reads of `class check --live`, whose nine services
//! would double its compile time.

use http::{
    Request,
    header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
    request::Builder,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::errors::failure_of;
use mcm_driver::cloud::{AGENT, AdaptiveLimiter, CloudFailure, HttpClient};

/// Reads what is at a URL.
pub(super) fn get(url: &str, token: &str) -> Result<Request<String>, CloudFailure> {
    with_body(authorized(Request::get(url), token), String::new())
}

/// Posts JSON.
pub(super) fn post(url: &str, token: &str, body: &Value) -> Result<Request<String>, CloudFailure> {
    with_body(authorized(Request::post(url), token).header(CONTENT_TYPE, "application/json"), body.to_string())
}

/// Posts a form.
pub(super) fn post_form(url: &str, pairs: &[(&str, &str)]) -> Result<Request<String>, CloudFailure> {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    with_body(Request::post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded"), body)
}

fn authorized(request: Builder, token: &str) -> Builder {
    request.header(AUTHORIZATION, format!("Bearer {token}"))
}

fn with_body(request: Builder, body: String) -> Result<Request<String>, CloudFailure> {
    request.header(USER_AGENT, AGENT).body(body).map_err(|error| CloudFailure::Unsent(error.to_string()))
}

/// Sends a request once and reads its answer.
pub(super) async fn once<T: DeserializeOwned>(
    http: &HttpClient,
    limiter: &AdaptiveLimiter,
    request: &Request<String>,
) -> Result<T, CloudFailure> {
    let answer = http.send(limiter, request.clone()).await?;
    if answer.is_success() { answer.json() } else { Err(failure_of(answer.status, &answer.text)) }
}
