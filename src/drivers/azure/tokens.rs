//! Tokens of an application, by OAuth 2 client credentials.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use mcm_driver::{
    Code, DriverError, SecretData,
    cloud::{
        CloudFailure, IssuedToken, RequestAuthenticator, RestCall, RestClient, TokenCache, TokenSource,
        UnsignedRequest, read_credential_file,
    },
};
use reqwest::{
    Method,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde::Deserialize;
use tokio::time::Instant;

use crate::login::{Credentials, Login};

const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The login host, which needs no credentials but those in the request.
pub(crate) struct Anonymous;

#[async_trait]
impl RequestAuthenticator for Anonymous {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok(HeaderMap::new())
    }
}

/// Gets tokens of one application.
struct Source {
    rest: RestClient,
    login: Login,
    /// Folders in which token files may be.
    folders: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    /// In seconds.
    expires_in: u64,
}

impl Source {
    async fn token(&self) -> Result<Answer, CloudFailure> {
        let Login { cloud, tenant, client, credentials, .. } = &self.login;
        let scope = format!("{}/.default", cloud.audience);
        let mut form = vec![("client_id", client.as_str()), ("scope", &scope), ("grant_type", "client_credentials")];
        let token;
        match credentials {
            Credentials::Secret(secret) => form.push(("client_secret", secret)),
            Credentials::TokenFile(path) => {
                token = read_credential_file(path, &self.folders).await.map_err(CloudFailure::Credentials)?;
                form.extend([("client_assertion_type", ASSERTION), ("client_assertion", &token)]);
            }
        }
        let path = [tenant.as_str(), "oauth2", "v2.0", "token"];
        // A second token does no harm.
        self.rest.call(&RestCall::read("token", Method::POST, &path).form(&form)).await
    }
}

#[async_trait]
impl TokenSource for Source {
    type Value = HeaderMap;

    async fn fetch(&self) -> Result<IssuedToken<HeaderMap>, CloudFailure> {
        let asked = Instant::now();
        // A failed login is no outcome of the request that needs its token.
        let failed = |failure: CloudFailure| {
            let nothing = SecretData::default();
            let error = failure.error(&format!("a login as application {}", self.login.client), &nothing);
            // The tenant, not the resource.
            let code = if failure.is_absence() { Code::Unauthenticated } else { error.code };
            CloudFailure::Credentials(DriverError { code, ..error })
        };
        let answer = self.token().await.map_err(failed)?;
        Ok(IssuedToken { value: bearer(&answer.access_token)?, expires: expiry(asked, answer.expires_in) })
    }
}

/// The header with a token.
fn bearer(token: &str) -> Result<HeaderMap, CloudFailure> {
    // The error could quote the token.
    let value = HeaderValue::try_from(format!("Bearer {token}"));
    let mut value = value.map_err(|_| CloudFailure::Unsent("the login host sent no token".to_owned()))?;
    value.set_sensitive(true);
    Ok([(AUTHORIZATION, value)].into_iter().collect())
}

/// The end of a token with this life, in seconds. A longer life than a day is not believed.
fn expiry(asked: Instant, seconds: u64) -> Instant {
    const DAY: u64 = 86_400;
    let life = Duration::from_secs(seconds.min(DAY));
    asked.checked_add(life).unwrap_or(asked)
}

/// The tokens of one application, fetched when they are needed.
#[derive(Clone)]
pub(crate) struct Tokens(Arc<TokenCache<Source>>);

impl Tokens {
    /// `rest` is the login host of the application.
    pub fn new(rest: RestClient, login: Login, folders: Vec<PathBuf>) -> Self {
        Self(Arc::new(TokenCache::new(Source { rest, login, folders })))
    }
}

#[async_trait]
impl RequestAuthenticator for Tokens {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        self.0.get().await
    }

    async fn refused(&self) {
        self.0.forget().await;
    }
}
