//! Clients of the Compute API, with our own tokens.

use std::{fmt, sync::Arc};

use google_cloud_auth::{
    credentials::{CacheableResource, Credentials, CredentialsProvider, EntityTag},
    errors::CredentialsError,
};
use google_cloud_compute_v1::client::{Instances, ZoneOperations};
use google_cloud_gax::{
    client_builder::{ClientBuilder, Error, internal::with_follow_redirects},
    retry_policy::NeverRetry,
};
use http::{
    Extensions, HeaderMap,
    header::{AUTHORIZATION, HeaderValue},
};

use super::tokens::Tokens;
use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, causes},
    tls::use_ring,
};

/// The clients of one account. They make one attempt per call: limits, repetition and metrics are ours.
#[derive(Debug)]
pub(super) struct Clients {
    pub instances: Instances,
    pub operations: ZoneOperations,
}

impl Clients {
    /// `endpoint` has no path of the Compute API. Nothing is sent.
    ///
    /// # Errors
    /// [`Failure::Unsent`]: the endpoint is not a URL, or TLS has no certificates.
    pub(super) async fn new(endpoint: &str, tokens: &Arc<Tokens>) -> Result<Self, CloudFailure> {
        use_ring();
        let credentials = Credentials::from(Bearer(Arc::clone(tokens)));
        let unsent = |error: Error| CloudFailure::Unsent(causes(&error));
        Ok(Self {
            instances: single(Instances::builder(), endpoint, &credentials).build().await.map_err(unsent)?,
            operations: single(ZoneOperations::builder(), endpoint, &credentials).build().await.map_err(unsent)?,
        })
    }
}

/// A client that sends each request once, to this endpoint and to no other.
fn single<F>(
    builder: ClientBuilder<F, Credentials>,
    endpoint: &str,
    credentials: &Credentials,
) -> ClientBuilder<F, Credentials> {
    with_follow_redirects(builder, false)
        .with_endpoint(endpoint)
        .with_credentials(credentials.clone())
        .with_retry_policy(NeverRetry)
}

/// Adds the token of an account to each request.
struct Bearer(Arc<Tokens>);

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer")
    }
}

impl CredentialsProvider for Bearer {
    async fn headers(&self, _: Extensions) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        // The call has fetched a token before its attempts.
        let token = self.0.get_unexpired().await;
        let token =
            token.map_err(|failure| CredentialsError::from_source(failure.code().is_transient(), error_of(failure)))?;
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| CredentialsError::from_msg(false, "the token is not a header value"))?;
        value.set_sensitive(true);
        let data = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        Ok(CacheableResource::New { entity_tag: EntityTag::new(), data })
    }

    /// That of Google; Secrets can name no other.
    async fn universe_domain(&self) -> Option<String> {
        None
    }
}

/// The error of a token that was not issued.
fn error_of(failure: CloudFailure) -> DriverError {
    match failure {
        CloudFailure::Credentials(error) => error,
        failure => failure.error("the token", &SecretData::default()),
    }
}
