//! Accounts with their services: connections, endpoints and tokens are those of a login.

use std::sync::Arc;

use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{
        HttpClient, HttpLimits, LruCache, RequestAuthenticator, RequestReporter, RestClient, TlsClientCache,
        TlsOptions, TokenCache,
    },
};
use reqwest::{Client, Url};
use tokio::sync::OnceCell;

use crate::{
    calls::Services,
    endpoints::{Endpoints, Service},
    errors::failure_of,
    login::Login,
    tokens::{Anonymous, Exchange, Tokens},
};

/// More logins than any installation has.
const MOST_LOGINS: usize = 256;

/// How the cloud is called.
#[derive(Clone)]
pub(crate) struct Access {
    pub limits: HttpLimits,
    pub uses_proxy: bool,
    pub secrets: SecretPolicy,
}

/// The services of a login. They are known once the endpoints are listed.
type Account = Arc<OnceCell<Arc<Services>>>;

/// The accounts of a driver.
pub(crate) struct Accounts {
    pub access: Access,
    http: Arc<HttpClient>,
    connections: TlsClientCache,
    all: LruCache<Login, Account>,
}

impl Accounts {
    pub(crate) fn new(access: Access, requests: RequestReporter) -> Self {
        Self {
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests)),
            connections: TlsClientCache::new(access.limits.attempt, access.uses_proxy),
            all: LruCache::new(MOST_LOGINS),
            access,
        }
    }

    /// The services of a login. A Secret with new credentials is another login, so it has another token.
    ///
    /// # Errors
    /// The endpoints cannot be listed, or one is not allowed.
    pub(crate) async fn services(&self, login: &Login) -> Result<Arc<Services>, DriverError> {
        let account = self.all.get_or(login, || Ok::<_, DriverError>(Account::default()))?;
        account.get_or_try_init(|| self.open(login)).await.cloned()
    }

    async fn open(&self, login: &Login) -> Result<Arc<Services>, DriverError> {
        let client = self.connections.client(&TlsOptions::default())?;
        let endpoints = self.endpoints(&client, login).await?;
        let url = |service| endpoints.url_of(service, &self.access.secrets);
        let iam = self.rest(&client, url(Service::Iam)?, Anonymous);
        let exchange = Exchange { iam, key: login.key.clone(), audience: endpoints.audience() };
        let tokens = Tokens(Arc::new(TokenCache::new(exchange)));
        let rest = |service| Ok::<_, DriverError>(self.rest(&client, url(service)?, tokens.clone()));
        Ok(Arc::new(Services {
            compute: rest(Service::Compute)?,
            operation: rest(Service::Operation)?,
            resource_manager: rest(Service::ResourceManager)?,
            vpc: rest(Service::Vpc)?,
        }))
    }

    async fn endpoints(&self, client: &Client, login: &Login) -> Result<Endpoints, DriverError> {
        let Some(from) = &login.endpoint else { return Ok(Endpoints::Usual) };
        let listed = Endpoints::listed(&self.rest(client, from.clone(), Anonymous), from).await;
        listed.map_err(|failure| {
            let error = failure.error("list of endpoints at endpointURL", &SecretData::default());
            // Without the endpoints nothing is known of any VM.
            let code = if error.code == Code::NotFound { Code::Unknown } else { error.code };
            DriverError { code, ..error }
        })
    }

    fn rest(&self, client: &Client, url: Url, authentication: impl RequestAuthenticator) -> RestClient {
        let slowest = self.access.limits.slowest;
        RestClient::new(&self.http, client.clone(), url, Box::new(authentication), slowest, failure_of)
    }
}
