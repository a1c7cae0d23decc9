//! A cloud with a REST API: requests and answers in JSON, below one URL, with the authentication and the TLS options of an
//! account.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::{
    Client, Method, Url,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    answer::HttpAnswer,
    client::{HttpClient, exchange, failed, retry_after},
    failure::CloudFailure,
    limiter::AccountLimiters,
};
use crate::{Code, DriverError};

/// Credentials in the form that a cloud requires.
#[async_trait]
pub trait RequestAuthenticator: Send + Sync + 'static {
    /// The headers of one attempt of a request. Signatures contain the time, so each attempt gets its own.
    ///
    /// # Errors
    /// [`Failure::Credentials`]: they cannot be made, for example because a token server refused the credentials.
    async fn headers(&self, request: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure>;

    /// The cloud refused the credentials of a request: a token that was fetched is forgotten.
    async fn refused(&self) {}
}

/// The parts of a request that signatures may cover.
pub struct UnsignedRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its URL, with the query.
    pub url: &'a Url,
    /// The headers that its call sets.
    pub headers: &'a HeaderMap,
    /// Its body; empty without one.
    pub body: &'a str,
}

/// A token that does not expire.
pub struct BearerToken(HeaderMap);

impl BearerToken {
    /// # Errors
    /// [`Code::InvalidArgument`]: no header can hold the token. `key` is its key in the Secret.
    pub fn new(key: &str, token: &str) -> Result<Self, DriverError> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            DriverError::new(Code::InvalidArgument, format!("{key} in the secret of the class is no token"))
        })?;
        value.set_sensitive(true);
        Ok(Self([(AUTHORIZATION, value)].into_iter().collect()))
    }
}

#[async_trait]
impl RequestAuthenticator for BearerToken {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok(self.0.clone())
    }
}

/// The effect of a call in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// It only reads, so it is repeated after every failure that may pass.
    Reads,
    /// It is repeated only if the cloud certainly did not carry it out.
    Writes,
    /// It changes something, but only once, however often it is sent: it has an idempotency token, or deletes. So it is repeated
    /// like a call that reads.
    WritesOnce,
}

/// The body of a call.
#[derive(Clone, Debug, PartialEq)]
enum RequestPayload {
    Nothing,
    Json(Value),
    /// The type of its content, and the content.
    Text(&'static str, String),
}

/// One call.
#[derive(Clone, Debug)]
pub struct RestCall<'a> {
    /// Its name in the metrics.
    pub service: &'static str,
    /// Its method.
    pub method: Method,
    /// Its effect in the cloud, which decides whether it may be repeated.
    pub effect: CallEffect,
    /// Parts of the path below the URL of the API. They are escaped, so none leads elsewhere.
    pub path: &'a [&'a str],
    /// Parameters, which are escaped.
    pub query: &'a [(&'a str, &'a str)],
    headers: Vec<(&'static str, String)>,
    payload: RequestPayload,
}

impl<'a> RestCall<'a> {
    /// A call that only reads.
    pub fn read(service: &'static str, method: Method, path: &'a [&'a str]) -> Self {
        Self {
            service,
            method,
            effect: CallEffect::Reads,
            path,
            query: &[],
            headers: Vec::new(),
            payload: RequestPayload::Nothing,
        }
    }

    /// A call that changes something.
    pub fn write(service: &'static str, method: Method, path: &'a [&'a str]) -> Self {
        Self { effect: CallEffect::Writes, ..Self::read(service, method, path) }
    }

    /// A call that changes something only once, however often it is sent.
    pub fn idempotent(service: &'static str, method: Method, path: &'a [&'a str]) -> Self {
        Self { effect: CallEffect::WritesOnce, ..Self::read(service, method, path) }
    }

    /// The same call with parameters.
    #[must_use]
    pub fn query(self, query: &'a [(&'a str, &'a str)]) -> Self {
        Self { query, ..self }
    }

    /// The same call with a body in JSON.
    #[must_use]
    pub fn with(self, body: Value) -> Self {
        Self { payload: RequestPayload::Json(body), ..self }
    }

    /// The same call with a form.
    #[must_use]
    pub fn form(self, pairs: &[(&str, &str)]) -> Self {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        self.text("application/x-www-form-urlencoded", form)
    }

    /// The same call with a text.
    #[must_use]
    pub fn text(self, content_type: &'static str, text: String) -> Self {
        Self { payload: RequestPayload::Text(content_type, text), ..self }
    }

    /// The same call with one more header, whose name is in lower case.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Its headers as a map.
    fn header_map(&self) -> Result<HeaderMap, CloudFailure> {
        let unsent = |error: InvalidHeaderValue| CloudFailure::Unsent(error.to_string());
        let header = |(name, value): &(&'static str, String)| {
            HeaderValue::try_from(value).map(|value| (HeaderName::from_static(name), value)).map_err(unsent)
        };
        self.headers.iter().map(header).collect()
    }

    /// Type and content of the body.
    fn body(&self) -> Option<(&'static str, String)> {
        match &self.payload {
            RequestPayload::Nothing => None,
            RequestPayload::Json(value) => Some(("application/json", value.to_string())),
            RequestPayload::Text(content_type, text) => Some((*content_type, text.clone())),
        }
    }
}

/// Reads an answer whose status is not a success.
pub type FailureOf = fn(&HttpAnswer) -> CloudFailure;

/// The API of one account.
pub struct RestClient {
    http: Arc<HttpClient>,
    client: Client,
    base: Url,
    authentication: Box<dyn RequestAuthenticator>,
    limiters: AccountLimiters,
    failure_of: FailureOf,
}

impl RestClient {
    /// The API below `base`, by way of `client`. `http` repeats and measures its calls, of which at least `slowest` are sent per
    /// second however much the cloud throttles.
    pub fn new(
        http: &Arc<HttpClient>,
        client: Client,
        base: Url,
        authentication: Box<dyn RequestAuthenticator>,
        slowest: f64,
        failure_of: FailureOf,
    ) -> Self {
        let limiters = AccountLimiters::new(slowest);
        Self { http: Arc::clone(http), client, base, authentication, limiters, failure_of }
    }

    /// The value in the answer of a call.
    ///
    /// # Errors
    /// The last failure, if no attempt succeeded.
    pub async fn call<T: DeserializeOwned>(&self, call: &RestCall<'_>) -> Result<T, CloudFailure> {
        self.attempts(call, |answer| answer.json()).await
    }

    /// The value in the answer of a call; `None` if the cloud reports that it does not exist.
    ///
    /// # Errors
    /// The last failure, if no attempt succeeded.
    pub async fn find<T: DeserializeOwned>(&self, call: &RestCall<'_>) -> Result<Option<T>, CloudFailure> {
        CloudFailure::found(self.call(call).await)
    }

    /// The answer of a call, whose status is a success.
    ///
    /// # Errors
    /// The last failure, if no attempt succeeded.
    pub async fn answer(&self, call: &RestCall<'_>) -> Result<HttpAnswer, CloudFailure> {
        self.attempts(call, |answer| Ok(answer.clone())).await
    }

    async fn attempts<T>(
        &self,
        call: &RestCall<'_>,
        read: impl Fn(&HttpAnswer) -> Result<T, CloudFailure>,
    ) -> Result<T, CloudFailure> {
        let (url, body) = (self.url_of(call)?, call.body());
        let limiter = match call.effect {
            CallEffect::Reads => &self.limiters.reads,
            CallEffect::Writes | CallEffect::WritesOnce => &self.limiters.writes,
        };
        let may_pass = |failure: &CloudFailure| {
            failure.code().is_transient() && (call.effect != CallEffect::Writes || !failure.may_have_had_effect())
        };
        let once = async || {
            let answer = self.once(call, &url, body.as_ref()).await?;
            let outcome = if answer.is_success() { read(&answer) } else { Err((self.failure_of)(&answer)) };
            match (retry_after(answer.status, &answer.headers), &outcome) {
                (Some(pause), Err(CloudFailure::Crowded { .. })) => limiter.pause_object(url.path(), pause),
                (Some(pause), _) => limiter.pause(pause),
                (None, _) => {}
            }
            outcome
        };
        let answer = self.http.repeat_about(limiter, url.path(), call.service, once, may_pass).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            self.authentication.refused().await;
        }
        answer
    }

    fn url_of(&self, call: &RestCall<'_>) -> Result<Url, CloudFailure> {
        let unsent = |text: &str| CloudFailure::Unsent(text.to_owned());
        // An API that gets a path without one of its parts could do something else.
        if call.path.iter().any(|part| ["", ".", ".."].contains(part)) {
            return Err(unsent("a part of the path is no name"));
        }
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| unsent("the URL of the API has no path"))?
            .pop_if_empty()
            .extend(call.path);
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query);
        }
        Ok(url)
    }

    async fn once(
        &self,
        call: &RestCall<'_>,
        url: &Url,
        body: Option<&(&'static str, String)>,
    ) -> Result<HttpAnswer, CloudFailure> {
        let (text, headers) = (body.map(|(_, text)| text.as_str()), call.header_map()?);
        let unsigned = UnsignedRequest { method: &call.method, url, headers: &headers, body: text.unwrap_or_default() };
        let authentication = self.authentication.headers(&unsigned).await.map_err(CloudFailure::of_login)?;
        let mut request =
            self.client.request(call.method.clone(), url.clone()).headers(authentication).headers(headers);
        if let Some((content_type, text)) = body {
            request = request.header(CONTENT_TYPE, *content_type).body(text.clone());
        } else if [Method::POST, Method::PUT, Method::PATCH].contains(&call.method) {
            // Front ends refuse such a request without a length (411), and the client sends none for an absent body.
            request = request.header(CONTENT_LENGTH, 0);
        }
        let request = request.build().map_err(|error| failed(&error))?;
        exchange(&self.client, request).await
    }
}
