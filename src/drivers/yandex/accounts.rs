//! Accounts with their services: connections, endpoints and tokens are those of a login.

use std::sync::Arc;

use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudAccess, LoginCache, RequestAuthenticator, RequestReporter, RestClient, TlsOptions, TokenCache},
};
use reqwest::Url;
use tokio::sync::OnceCell;

use crate::{
    calls::Services,
    endpoints::{Endpoints, Service},
    errors::failure_of,
    login::Login,
    tokens::{Anonymous, Exchange, Tokens},
};

/// The accounts of a driver.
pub(crate) struct Accounts {
    /// The services of a login are known once the endpoints are listed.
    pub logins: LoginCache<Login, OnceCell<Arc<Services>>>,
}

impl Accounts {
    pub(crate) fn new(access: CloudAccess, requests: RequestReporter) -> Self {
        Self { logins: LoginCache::new(access, requests) }
    }

    /// The services of a login. A Secret with new credentials is another login, so it has another token.
    ///
    /// # Errors
    /// The endpoints cannot be listed, or one is not allowed.
    pub(crate) async fn services(&self, login: &Login) -> Result<Arc<Services>, DriverError> {
        let account = self.logins.get_or(login, || Ok(OnceCell::new()))?;
        account.get_or_try_init(|| self.open(login)).await.cloned()
    }

    async fn open(&self, login: &Login) -> Result<Arc<Services>, DriverError> {
        let endpoints = self.endpoints(login).await?;
        let url = |service| endpoints.url_of(service, &self.logins.access.secrets);
        let iam = self.rest(&url(Service::Iam)?, Anonymous)?;
        let exchange = Exchange { iam, key: login.key.clone(), audience: endpoints.audience() };
        let tokens = Tokens(Arc::new(TokenCache::new(exchange)));
        let rest = |service| self.rest(&url(service)?, tokens.clone());
        Ok(Arc::new(Services {
            compute: rest(Service::Compute)?,
            operation: rest(Service::Operation)?,
            resource_manager: rest(Service::ResourceManager)?,
            vpc: rest(Service::Vpc)?,
        }))
    }

    async fn endpoints(&self, login: &Login) -> Result<Endpoints, DriverError> {
        let Some(from) = &login.endpoint else { return Ok(Endpoints::Usual) };
        let listed = Endpoints::listed(&self.rest(from, Anonymous)?, from).await;
        // Without the endpoints nothing is known of any VM.
        listed.map_err(|failure| failure.error("list of endpoints at endpointURL", &SecretData::default()))
    }

    fn rest(&self, url: &Url, authentication: impl RequestAuthenticator) -> Result<RestClient, DriverError> {
        self.logins.rest(&TlsOptions::default(), url, Box::new(authentication), failure_of)
    }
}
