//! A cloud with a REST API: requests and answers in JSON, below one URL, with the authentication and the TLS options of an
//! account.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::{
    Client, Method, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    client::{Http, exchange, failed},
    failure::Failure,
    limiter::{Limiter, Limiters},
};
use crate::driver::{Code, DriverError};

/// Credentials in the form that a cloud asks for.
#[async_trait]
pub(crate) trait Authentication: Send + Sync + 'static {
    /// The headers of one attempt of a request. Signatures contain the time, so each attempt gets its own.
    ///
    /// # Errors
    /// [`Failure::Credentials`]: they cannot be made, for example because a token server refused the credentials.
    async fn headers(&self, request: &Unsigned<'_>) -> Result<HeaderMap, Failure>;

    /// The cloud refused the credentials of a request: a token that was fetched is forgotten.
    async fn refused(&self) {}
}

/// The parts of a request that signatures may cover.
pub(crate) struct Unsigned<'a> {
    pub method: &'a Method,
    #[allow(dead_code, reason = "for clouds that sign URLs")]
    pub url: &'a Url,
    #[allow(dead_code, reason = "for clouds that sign bodies")]
    pub body: &'a str,
}

/// A token that does not expire.
pub(crate) struct Bearer(HeaderMap);

impl Bearer {
    /// # Errors
    /// [`Code::InvalidArgument`]: no header can hold the token. `key` is its key in the Secret.
    pub(crate) fn new(key: &str, token: &str) -> Result<Self, DriverError> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            DriverError::new(Code::InvalidArgument, format!("{key} in the secret of the class is no token"))
        })?;
        value.set_sensitive(true);
        Ok(Self([(AUTHORIZATION, value)].into_iter().collect()))
    }
}

#[async_trait]
impl Authentication for Bearer {
    async fn headers(&self, _: &Unsigned<'_>) -> Result<HeaderMap, Failure> {
        Ok(self.0.clone())
    }
}

/// Whether a call changes something in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only reads, so it is repeated after every failure that may pass.
    Reads,
    /// It is repeated only if the cloud certainly did not carry it out.
    Writes,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    /// Its name in the metrics.
    pub service: &'static str,
    pub method: Method,
    pub effect: Effect,
    /// Parts of the path below the URL of the API. They are escaped, so none leads elsewhere.
    pub path: &'a [&'a str],
    pub query: &'a [(&'a str, &'a str)],
    pub body: Option<Value>,
}

impl<'a> Call<'a> {
    /// A call that only reads.
    pub(crate) fn read(service: &'static str, method: Method, path: &'a [&'a str]) -> Self {
        Self { service, method, effect: Effect::Reads, path, query: &[], body: None }
    }

    /// A call that changes something.
    pub(crate) fn write(service: &'static str, method: Method, path: &'a [&'a str]) -> Self {
        Self { effect: Effect::Writes, ..Self::read(service, method, path) }
    }

    /// The same call with a body.
    pub(crate) fn with(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }
}

/// Reads the body of an answer whose status is no success.
pub(crate) type FailureOf = fn(u16, &str) -> Failure;

/// The API of one account.
pub(crate) struct Rest {
    http: Arc<Http>,
    client: Client,
    base: Url,
    authentication: Box<dyn Authentication>,
    limiters: Limiters,
    failure_of: FailureOf,
}

impl Rest {
    /// The API below `base`, by way of `client`. `http` repeats and measures its calls, of which at least `slowest` are sent per
    /// second however much the cloud throttles.
    pub(crate) fn new(
        http: &Arc<Http>,
        client: Client,
        base: Url,
        authentication: Box<dyn Authentication>,
        slowest: f64,
        failure_of: FailureOf,
    ) -> Self {
        let limiters = Limiters::new(slowest);
        Self { http: Arc::clone(http), client, base, authentication, limiters, failure_of }
    }

    /// The answer of a call.
    ///
    /// # Errors
    /// The last failure, if no attempt succeeded.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, Failure> {
        let (url, body) = (self.url_of(call)?, call.body.as_ref().map(Value::to_string));
        let limiter = match call.effect {
            Effect::Reads => &self.limiters.reads,
            Effect::Writes => &self.limiters.writes,
        };
        let may_pass = |failure: &Failure| {
            failure.code().is_transient() && (call.effect == Effect::Reads || !failure.may_have_had_effect())
        };
        let once = || self.once(limiter, &call.method, &url, body.as_deref());
        let answer = self.http.repeat(limiter, call.service, once, may_pass).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            self.authentication.refused().await;
        }
        answer
    }

    fn url_of(&self, call: &Call<'_>) -> Result<Url, Failure> {
        let unsent = |text: &str| Failure::Unsent(text.to_owned());
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

    async fn once<T: DeserializeOwned>(
        &self,
        limiter: &Limiter,
        method: &Method,
        url: &Url,
        body: Option<&str>,
    ) -> Result<T, Failure> {
        let unsigned = Unsigned { method, url, body: body.unwrap_or_default() };
        let headers = self.authentication.headers(&unsigned).await?;
        let mut request = self.client.request(method.clone(), url.clone()).headers(headers);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_owned());
        }
        let request = request.build().map_err(|error| failed(&error))?;
        let (status, text) = exchange(&self.client, limiter, request).await?;
        if (200..300).contains(&status) {
            return serde_json::from_str(&text).map_err(|_| Failure::Unreadable(status));
        }
        Err((self.failure_of)(status, &text))
    }
}
