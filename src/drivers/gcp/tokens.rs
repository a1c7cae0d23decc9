//! Tokens of one account.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use http::Request;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use super::{
    access::Access,
    credentials::{Credentials, TOKEN_TYPE},
    errors::failure_of,
    jwt::signed,
    rest::{once, post, post_form},
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{AccountLimiters, CloudFailure, HttpClient, IssuedToken, TokenCache, TokenSource, read_credential_file},
};

/// How long the token of a service account is valid, in seconds.
const LIFETIME: u64 = 3600;
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The token of an account.
pub(super) type Tokens = TokenCache<Google>;

/// Google's servers, which issue tokens for credentials.
pub(super) struct Google {
    access: Access,
    credentials: Credentials,
    http: Arc<HttpClient>,
    limiters: Arc<AccountLimiters>,
}

#[async_trait]
impl TokenSource for Google {
    type Value = String;

    async fn fetch(&self) -> Result<IssuedToken<String>, CloudFailure> {
        self.issued().await.map_err(CloudFailure::Credentials)
    }
}

impl Google {
    /// Nothing is sent.
    pub(super) fn new(
        access: Access,
        credentials: Credentials,
        http: Arc<HttpClient>,
        limiters: Arc<AccountLimiters>,
    ) -> Self {
        Self { access, credentials, http, limiters }
    }

    /// Email address of the service account, or audience of the external account.
    pub(super) fn identity(&self) -> &str {
        match &self.credentials {
            Credentials::ServiceAccount { email, .. } => email,
            Credentials::ExternalAccount { audience, .. } => audience,
        }
    }

    async fn issued(&self) -> Result<IssuedToken<String>, DriverError> {
        match &self.credentials {
            Credentials::ServiceAccount { email, key_id, private_key, token_uri } => {
                let assertion = signed(private_key, key_id.as_deref(), &claims(email, token_uri))?;
                self.of_assertion(token_uri, &assertion).await
            }
            Credentials::ExternalAccount { token_file, audience, impersonation } => {
                let token = self.exchanged(token_file, audience).await?;
                match impersonation {
                    Some(path) => self.impersonated(path, &token.value).await,
                    None => Ok(token),
                }
            }
        }
    }

    /// Exchanges the token in the file for one of Google.
    async fn exchanged(&self, file: &Path, audience: &str) -> Result<IssuedToken<String>, DriverError> {
        let subject = read_credential_file(file, &self.access.secrets.folders).await?;
        let pairs = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", audience),
            ("scope", SCOPE),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", TOKEN_TYPE),
            ("subject_token", subject.as_str()),
        ];
        let request = post_form(&self.access.sts, &pairs);
        let answer: Answer = self.ask("the exchange of the workload identity token", request, &subject).await?;
        Ok(answer.into())
    }

    /// Exchanges a token for one of a service account.
    async fn impersonated(&self, path: &str, token: &str) -> Result<IssuedToken<String>, DriverError> {
        let url = format!("{}{path}", self.access.iam.trim_end_matches('/'));
        let request = post(&url, token, &json!({ "scope": [SCOPE], "lifetime": format!("{LIFETIME}s") }));
        let answer: Impersonated = self.ask("the impersonation of the service account", request, token).await?;
        let left = answer.expire_time.duration_since(jiff::Timestamp::now());
        Ok(IssuedToken { value: answer.access_token, expires: Instant::now() + left.try_into().unwrap_or_default() })
    }

    async fn of_assertion(&self, token_uri: &str, assertion: &str) -> Result<IssuedToken<String>, DriverError> {
        let pairs = [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", assertion)];
        let request = post_form(token_uri, &pairs);
        let answer: Answer = self.ask("the token of the service account", request, assertion).await?;
        Ok(answer.into())
    }

    /// The answer of a token endpoint. `sent` is what no text may contain.
    async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        request: Result<Request<String>, CloudFailure>,
        sent: &str,
    ) -> Result<T, DriverError> {
        let (http, limiter) = (&*self.http, &self.limiters.login);
        let may_pass = |failure: &CloudFailure| failure.code().is_transient();
        let answer = match request {
            Ok(request) => {
                let once = || once(http, limiter, request.clone(), failure_of);
                http.repeat(limiter, "token_get", once, may_pass).await
            }
            Err(failure) => Err(failure),
        };
        answer.map_err(|failure| {
            let secret = SecretData([("sent".to_owned(), sent.as_bytes().to_vec())].into());
            failure.error(what, &secret)
        })
    }
}

/// Claims with which a service account requests a token.
fn claims(email: &str, token_uri: &str) -> serde_json::Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // Clocks differ a little.
    let issued = now.saturating_sub(10);
    json!({ "iss": email, "scope": SCOPE, "aud": token_uri, "iat": issued, "exp": issued + LIFETIME })
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    /// In seconds.
    #[serde(default)]
    expires_in: u64,
}

impl From<Answer> for IssuedToken<String> {
    fn from(answer: Answer) -> Self {
        let life = Duration::from_secs(answer.expires_in.min(86_400));
        Self { value: answer.access_token, expires: Instant::now() + life }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: String,
    expire_time: jiff::Timestamp,
}
