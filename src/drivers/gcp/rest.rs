//! Requests over HTTP. The clients of Google's crate would read an answer without end, so the driver uses the types of the crate alone.

use http::{
    Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
    request::Builder,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use mcm_driver::cloud::{AGENT, AdaptiveLimiter, CloudFailure, HttpAnswer, HttpClient};

/// Most objects of an answer. Even an empty one is a structure of Google's crate. A page of 500 VMs has some 20,000.
const MOST_OBJECTS: usize = 100_000;
/// Most entries of all objects and lists of an answer.
const MOST_ENTRIES: usize = 2_000_000;

/// A request with a token and JSON, or without a body.
pub(super) fn request(method: Method, url: &str, token: &str, body: String) -> Result<Request<String>, CloudFailure> {
    let request = Request::builder().method(method).uri(url).header(AUTHORIZATION, format!("Bearer {token}"));
    let request = if body.is_empty() { request } else { request.header(CONTENT_TYPE, "application/json") };
    with_body(request, body)
}

/// Posts JSON.
pub(super) fn post(url: &str, token: &str, body: &Value) -> Result<Request<String>, CloudFailure> {
    request(Method::POST, url, token, body.to_string())
}

/// The path consists of names only.
pub(super) fn is_path(path: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:@/".contains(&byte);
    path.bytes().all(is_part) && !["..", "//"].iter().any(|part| path.contains(part)) && !path.ends_with('/')
}

/// Posts a form.
pub(super) fn post_form(url: &str, pairs: &[(&str, &str)]) -> Result<Request<String>, CloudFailure> {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    with_body(Request::post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded"), body)
}

fn with_body(request: Builder, body: String) -> Result<Request<String>, CloudFailure> {
    request.header(USER_AGENT, AGENT).body(body).map_err(|error| CloudFailure::Unsent(error.to_string()))
}

/// Sends a request once and reads its answer.
pub(super) async fn once<T: DeserializeOwned>(
    http: &HttpClient,
    limiter: &AdaptiveLimiter,
    request: Request<String>,
    failure_of: impl Fn(&HttpAnswer) -> CloudFailure,
) -> Result<T, CloudFailure> {
    let answer = http.send(limiter, request).await?;
    if !answer.is_success() {
        return Err(failure_of(&answer));
    }
    if is_bounded(&answer.text) { answer.json() } else { Err(CloudFailure::Unreadable(answer.status)) }
}

/// An answer in JSON has no more parts than Google would send. Parts without content take much more memory than their text.
fn is_bounded(text: &str) -> bool {
    let (mut objects, mut entries) = (0, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        let was_escaped = std::mem::take(&mut is_escaped);
        match byte {
            b'"' if !was_escaped => is_text = !is_text,
            b'\\' if is_text => is_escaped = !was_escaped,
            b'{' if !is_text => objects += 1,
            b',' if !is_text => entries += 1,
            _ => {}
        }
    }
    objects <= MOST_OBJECTS && entries <= MOST_ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::objects("{}", MOST_OBJECTS, true)]
    #[case::too_many_objects("{}", MOST_OBJECTS + 1, false)]
    #[case::entries("1", MOST_ENTRIES + 1, true)]
    #[case::too_many_entries("1", MOST_ENTRIES + 2, false)]
    #[case::in_a_text(r#""{{{{\"{\\""#, MOST_OBJECTS / 2, true)]
    #[case::beside_texts(r#"{"\\": "\""}"#, MOST_OBJECTS + 1, false)]
    fn parts_without_content_are_bounded(#[case] part: &str, #[case] count: usize, #[case] expected: bool) {
        assert_eq!(is_bounded(&format!("[{}]", vec![part; count].join(","))), expected);
    }
}
