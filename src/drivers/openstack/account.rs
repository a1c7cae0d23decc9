//! The connections of one login: a token that all services share, and each service behind its endpoint.

use std::sync::Arc;

use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{CloudFailure, HttpAnswer, HttpClient, LruCache, RestCall, RestClient, TokenCache},
};
use reqwest::{Client, Url};
use serde::de::DeserializeOwned;

use super::{
    errors::failure_of,
    keystone::{Keystone, Service, Token, WithToken, WithoutToken},
    login::{Login, unverified},
};

/// More endpoints than any cloud has: some for each region.
const MOST_ENDPOINTS: usize = 64;

/// A cloud with the credentials of a Secret.
pub(crate) struct Account {
    http: Arc<HttpClient>,
    client: Client,
    slowest: f64,
    policy: SecretPolicy,
    /// The option of the Secret that switches the verification of certificates off.
    unverified: Option<&'static str>,
    tokens: Arc<TokenCache<Keystone>>,
    services: LruCache<Url, Arc<RestClient>>,
}

impl Account {
    /// `secret` is where the login is from.
    pub fn new(
        http: &Arc<HttpClient>,
        client: Client,
        slowest: f64,
        policy: &SecretPolicy,
        login: &Login,
        secret: &SecretData,
    ) -> Self {
        let keystone = Box::new(WithoutToken);
        let rest = RestClient::new(http, client.clone(), login.url.clone(), keystone, slowest, failure_of);
        let source = Keystone { rest, request: login.body(), secret: secret.clone() };
        let (http, policy, tokens) = (Arc::clone(http), policy.clone(), Arc::new(TokenCache::new(source)));
        let unverified = unverified(&login.tls);
        Self { http, client, slowest, policy, unverified, tokens, services: LruCache::new(MOST_ENDPOINTS) }
    }

    pub async fn token(&self) -> Result<Token, CloudFailure> {
        self.tokens.get().await
    }

    async fn service(&self, service: Service, region: &str) -> Result<Arc<RestClient>, CloudFailure> {
        let url = self.token().await?.endpoint(service, region, &self.policy, self.unverified);
        let url = url.map_err(CloudFailure::Credentials)?;
        self.services.get_or(&url, || {
            let authentication = Box::new(WithToken(Arc::clone(&self.tokens)));
            let rest =
                RestClient::new(&self.http, self.client.clone(), url.clone(), authentication, self.slowest, failure_of);
            Ok(Arc::new(rest))
        })
    }
}

/// The services of a region, for one Secret.
#[derive(Clone)]
pub(crate) struct Region {
    pub account: Arc<Account>,
    pub name: String,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Region {
    /// The answer of a call, in JSON.
    pub async fn call<T: DeserializeOwned>(&self, service: Service, call: &RestCall<'_>) -> Result<T, CloudFailure> {
        let rest = self.account.service(service, &self.name).await?;
        match rest.call(call).await {
            // The token was revoked, or has ended sooner than it said: the cloud did nothing, and the next one is new.
            Err(failure) if is_refusal(&failure) => rest.call(call).await,
            answer => answer,
        }
    }

    /// The answer of a call without a body.
    pub async fn answer(&self, service: Service, call: &RestCall<'_>) -> Result<HttpAnswer, CloudFailure> {
        let rest = self.account.service(service, &self.name).await?;
        match rest.answer(call).await {
            Err(failure) if is_refusal(&failure) => rest.answer(call).await,
            answer => answer,
        }
    }

    pub fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }
}

/// A service refused the token. Wrong credentials are [`Failure::Credentials`], and are not sent twice.
fn is_refusal(failure: &CloudFailure) -> bool {
    failure.code() == Code::Unauthenticated && !matches!(failure, CloudFailure::Credentials(_))
}
