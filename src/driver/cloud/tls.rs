//! Connections with TLS options: which servers are trusted, and which certificate they are shown.

use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Identity};

use super::{
    client::{causes, client_builder},
    recent::LruCache,
};
use crate::{Code, DriverError};

/// User agent of requests to clouds.
pub const AGENT: &str = "machine-controller-manager";
/// More TLS options than any installation has.
const MOST_CLIENTS: usize = 64;

/// The TLS options of an account. Certificates and keys are in PEM form. There is no `Debug`, because of the key.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsOptions {
    /// CA certificates. If there are any, those of the system are not trusted.
    pub ca: Option<String>,
    /// Certificate with its chain, and its key, for servers that ask for a certificate.
    pub identity: Option<(String, String)>,
    /// Servers are not verified at all.
    pub is_insecure: bool,
}

impl TlsOptions {
    fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, DriverError> {
        if let Some(ca) = &self.ca {
            let certificates = Certificate::from_pem_bundle(ca.as_bytes()).ok().filter(|all| !all.is_empty());
            let certificates = certificates
                .ok_or_else(|| unusable("the CA in the secret of the class is not a certificate in PEM form"))?;
            builder = builder.tls_certs_only(certificates);
        }
        if let Some((certificate, key)) = &self.identity {
            // An error of the parser could quote the key.
            let identity = Identity::from_pem(format!("{certificate}\n{key}").as_bytes()).map_err(|_| {
                unusable("the client certificate in the secret of the class, or its key, is not in PEM form")
            })?;
            builder = builder.identity(identity);
        }
        Ok(builder.tls_danger_accept_invalid_certs(self.is_insecure))
    }
}

/// The connections of a driver. Accounts with the same TLS options share them.
pub struct TlsClientCache {
    /// How long an attempt of a call takes.
    attempt: Duration,
    uses_proxy: bool,
    clients: LruCache<TlsOptions, Client>,
}

impl TlsClientCache {
    /// They go through the proxy that the environment names, if it names one and `uses_proxy` is true.
    pub fn new(attempt: Duration, uses_proxy: bool) -> Self {
        Self { attempt, uses_proxy, clients: LruCache::new(MOST_CLIENTS) }
    }

    /// The connections with these options.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: a certificate or key cannot be used. The text does not quote it.
    pub fn client(&self, tls: &TlsOptions) -> Result<Client, DriverError> {
        self.clients.get_or(tls, || {
            let builder = client_builder(self.attempt, self.uses_proxy).user_agent(AGENT);
            let refused = |error: reqwest::Error| {
                let text = match tls.identity {
                    Some(_) => "the client certificate in the secret of the class does not fit its key".to_owned(),
                    None => format!("connections with TLS cannot be made: {}", causes(&error)),
                };
                unusable(&text)
            };
            tls.apply(builder)?.build().map_err(refused)
        })
    }
}

fn unusable(text: &str) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}
