//! How a driver calls its cloud: its limits, and what it keeps for each login.

use std::{hash::Hash, sync::Arc};

use reqwest::{Client, Url};

use super::{
    client::{HttpClient, HttpLimits},
    recent::LruCache,
    requests::RequestReporter,
    rest::{FailureOf, RequestAuthenticator, RestClient},
    tls::{TlsClientCache, TlsOptions},
};
use crate::{DriverEnvironment, DriverError, SecretPolicy};

/// Logins that a driver keeps, with their sessions, tokens and paces. More work, and log in anew each time.
pub const MOST_LOGINS: usize = 1024;

/// How a cloud is called.
#[derive(Clone)]
pub struct CloudAccess {
    /// The limits of its calls.
    pub limits: HttpLimits,
    /// Requests use the proxy that the environment names, if it names one.
    pub uses_proxy: bool,
    /// Restricts the Secrets of classes.
    pub secrets: SecretPolicy,
}

impl CloudAccess {
    /// The usual limits, with the settings of the process.
    pub fn from_environment(environment: &DriverEnvironment<'_>) -> Self {
        Self { limits: HttpLimits::default(), uses_proxy: true, secrets: environment.secrets.clone() }
    }
}

/// The connections of a driver, and the API `A` of each login `L`.
pub struct LoginCache<L, A = RestClient> {
    /// How the cloud is called.
    pub access: CloudAccess,
    /// Repeats and measures the calls.
    pub http: Arc<HttpClient>,
    connections: TlsClientCache,
    logins: LruCache<L, Arc<A>>,
}

impl<L: Clone + Eq + Hash, A> LoginCache<L, A> {
    /// Without logins.
    pub fn new(access: CloudAccess, requests: RequestReporter) -> Self {
        Self {
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests)),
            connections: TlsClientCache::new(access.limits.attempt, access.uses_proxy),
            logins: LruCache::new(MOST_LOGINS).warning_of("logins"),
            access,
        }
    }

    /// The API of a login; a new API for a new login.
    ///
    /// # Errors
    /// `open` failed.
    pub fn get_or(&self, login: &L, open: impl FnOnce() -> Result<A, DriverError>) -> Result<Arc<A>, DriverError> {
        self.logins.get_or(login, || open().map(Arc::new))
    }

    /// The connections with these options.
    ///
    /// # Errors
    /// As for [`TlsClientCache::client`].
    pub fn client(&self, tls: &TlsOptions) -> Result<Client, DriverError> {
        self.connections.client(tls)
    }

    /// An API in JSON below a URL.
    ///
    /// # Errors
    /// As for [`Self::client`].
    pub fn rest(
        &self,
        tls: &TlsOptions,
        url: &Url,
        authentication: Box<dyn RequestAuthenticator>,
        failure_of: FailureOf,
    ) -> Result<RestClient, DriverError> {
        let (client, slowest) = (self.client(tls)?, self.access.limits.slowest);
        Ok(RestClient::new(&self.http, client, url.clone(), authentication, slowest, failure_of))
    }
}
