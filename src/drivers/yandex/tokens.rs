//! IAM tokens of a service account.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use mcm_driver::{
    Code, DriverError, SecretData,
    cloud::{
        CloudFailure, IssuedToken, RequestAuthenticator, RestCall, RestClient, TokenCache, TokenSource, UnsignedRequest,
    },
};
use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::{jwt::Signer, login::Key};

/// How long the request of a token is valid, in seconds.
const LIFETIME: i64 = 3600;
/// A token does not live longer.
const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// Exchanges signed requests of a service account for tokens.
pub(crate) struct Exchange {
    pub iam: RestClient,
    pub key: Key,
    pub audience: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    iam_token: String,
    expires_at: Timestamp,
}

#[async_trait]
impl TokenSource for Exchange {
    /// The header of requests.
    type Value = HeaderValue;

    async fn fetch(&self) -> Result<IssuedToken<HeaderValue>, CloudFailure> {
        let jwt = self.request().map_err(CloudFailure::Credentials)?;
        let call = RestCall::read("token_get", Method::POST, &["iam", "v1", "tokens"]).with(json!({"jwt": jwt}));
        let token: Token = self.iam.call(&call).await.map_err(|failure| self.refused(&failure, &jwt))?;
        let left: Duration = token.expires_at.duration_since(Timestamp::now()).try_into().unwrap_or_default();
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.iam_token)).map_err(|_| {
            let message = format!("the IAM token of service account {} cannot be sent", self.key.account);
            CloudFailure::Credentials(DriverError::new(Code::Unauthenticated, message))
        })?;
        value.set_sensitive(true);
        Ok(IssuedToken { value, expires: Instant::now() + left.min(LONGEST) })
    }
}

impl Exchange {
    fn request(&self) -> Result<String, DriverError> {
        let now = Timestamp::now().as_second();
        // Clocks differ a little.
        let issued = now.saturating_sub(10);
        let expires = issued.saturating_add(LIFETIME);
        let claims = json!({"iss": self.key.account, "aud": self.audience, "iat": issued, "exp": expires});
        Signer::from_pem(&self.key.private_key)?.signed(&self.key.id, &claims)
    }

    /// The failure of a request. It is never an absence: the service account may be absent, which is no VM.
    fn refused(&self, failure: &CloudFailure, jwt: &str) -> CloudFailure {
        let sent = SecretData([("jwt".to_owned(), jwt.as_bytes().to_vec())].into());
        let error = failure.error(&format!("IAM token of service account {}", self.key.account), &sent);
        let is_passing = error.code.is_transient() && !failure.is_absence();
        let code = if is_passing { error.code } else { Code::Unauthenticated };
        CloudFailure::Credentials(DriverError { code, ..error })
    }
}

/// The tokens of an account, for all services.
#[derive(Clone)]
pub(crate) struct Tokens(pub Arc<TokenCache<Exchange>>);

#[async_trait]
impl RequestAuthenticator for Tokens {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok([(AUTHORIZATION, self.0.get().await?)].into_iter().collect())
    }

    async fn refused(&self) {
        self.0.forget().await;
    }
}

/// Calls without credentials, by which credentials are fetched.
pub(crate) struct Anonymous;

#[async_trait]
impl RequestAuthenticator for Anonymous {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok(HeaderMap::new())
    }
}
