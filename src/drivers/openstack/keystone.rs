//! Tokens of Keystone, and the catalogue in the same answer: the endpoints of the other services.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{
        CloudFailure, IssuedToken, RequestAuthenticator, RestCall, RestClient, TokenCache, TokenSource, UnsignedRequest,
    },
};
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

const TOKEN: &str = "x-auth-token";
const ISSUED: &str = "x-subject-token";
/// Endpoints for clients outside the cloud.
const PUBLIC: &str = "public";

/// A service that machines need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    Compute,
    Network,
    BlockStorage,
    /// Only for load balancers of control planes.
    LoadBalancer,
}

impl Service {
    /// Its name in metrics, as in those of the reference.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "nova",
            Self::Network => "neutron",
            Self::BlockStorage => "cinder",
            Self::LoadBalancer => "octavia",
        }
    }

    /// Its types in catalogues. The newest version of block storage is the first.
    const fn types(self) -> &'static [&'static str] {
        match self {
            Self::Compute => &["compute"],
            Self::Network => &["network"],
            Self::BlockStorage => &["block-storage", "volumev3", "block-store", "volumev2", "volume"],
            Self::LoadBalancer => &["load-balancer"],
        }
    }

    /// The URL of its API, below its endpoint, which some catalogues have without the version of the API.
    fn below(self, mut endpoint: Url, project: &str) -> Url {
        let (version, longest_end): (&[&str], _) = match self {
            Self::Network | Self::LoadBalancer => (&["v2.0"], 1),
            // The project may follow the version.
            Self::Compute => (&["v2.1"], 2),
            Self::BlockStorage => (&["v3", project], 2),
        };
        let parts: Vec<&str> = endpoint.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).collect();
        if parts.iter().rev().take(longest_end).any(|part| is_version(part)) {
            return endpoint;
        }
        if let Ok(mut parts) = endpoint.path_segments_mut() {
            parts.pop_if_empty().extend(version);
        }
        endpoint
    }
}

/// The name of a version, such as `v2.1`.
fn is_version(part: &str) -> bool {
    let number = part.strip_prefix('v').unwrap_or_default();
    number.starts_with(|c: char| c.is_ascii_digit()) && number.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// A token with the endpoints that it is for.
#[derive(Clone)]
pub(crate) struct Token {
    header: HeaderValue,
    body: Arc<Body>,
}

/// The description of a token in the answer.
#[derive(Deserialize)]
struct Answered {
    token: Body,
}

#[derive(Deserialize)]
struct Body {
    expires_at: Timestamp,
    /// Nothing without a project.
    #[serde(default)]
    catalog: Vec<Entry>,
    user: Owner,
    project: Option<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    #[serde(default)]
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    interface: String,
    region: Option<String>,
    region_id: Option<String>,
    url: String,
}

impl Token {
    /// The user and the project, as texts.
    pub fn owner(&self) -> String {
        let user = &self.body.user.name;
        match &self.body.project {
            Some(project) => format!("user {user} in project {}", project.name),
            None => format!("user {user}"),
        }
    }

    /// The URL of a service in a region. `unverified` is the option that switches the verification of its certificate off.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the catalogue has no URL of it, or one that is not allowed. Whoever writes a Secret chooses the
    /// catalogue.
    pub fn endpoint(
        &self,
        service: Service,
        region: &str,
        policy: &SecretPolicy,
        unverified: Option<&str>,
    ) -> Result<Url, DriverError> {
        let of_type = |kind| self.body.catalog.iter().filter(move |entry| entry.kind == kind);
        let mut endpoints = service.types().iter().flat_map(|kind| of_type(*kind)).flat_map(|entry| &entry.endpoints);
        let is_region = |one: &Option<String>| one.as_deref() == Some(region);
        let found =
            endpoints.find(|one| one.interface == PUBLIC && (is_region(&one.region) || is_region(&one.region_id)));
        let Some(found) = found else {
            let kinds = service.types().join(" or ");
            let message =
                format!("the catalogue of Keystone has no public endpoint of type {kinds} in region {region:?}");
            return Err(DriverError::new(Code::InvalidArgument, message));
        };
        let key = format!("the {} endpoint in the catalogue of authURL", service.name());
        let project = self.body.project.as_ref().map_or("", |project| &project.id);
        Ok(service.below(policy.check_own_url(&key, &found.url, unverified)?, project))
    }
}

/// Requests tokens with the credentials of a Secret.
pub(crate) struct Keystone {
    pub rest: RestClient,
    /// The request, which contains the credentials.
    pub request: Value,
    /// Its values appear in no text.
    pub secret: SecretData,
}

#[async_trait]
impl TokenSource for Keystone {
    type Value = Token;

    async fn fetch(&self) -> Result<IssuedToken<Token>, CloudFailure> {
        // A token that nobody uses expires, so a request may be repeated.
        let call = RestCall::read("keystone", Method::POST, &["v3", "auth", "tokens"]).with(self.request.clone());
        let answer = self.rest.answer(&call).await.map_err(|failure| self.refused(failure))?;
        let unreadable = || CloudFailure::Unreadable(answer.status);
        let mut header = answer.headers.get(ISSUED).cloned().ok_or_else(unreadable)?;
        header.set_sensitive(true);
        let Answered { token } = serde_json::from_str(&answer.text).map_err(|_| unreadable())?;
        let left = token.expires_at.duration_since(Timestamp::now());
        let left = Duration::try_from(left).unwrap_or_default();
        Ok(IssuedToken { value: Token { header, body: Arc::new(token) }, expires: Instant::now() + left })
    }
}

impl Keystone {
    /// Distinguishes wrong credentials from a token that a service does not accept any more. A 404 of Keystone does not
    /// prove that a server is absent.
    fn refused(&self, failure: CloudFailure) -> CloudFailure {
        match failure.code() {
            Code::NotFound => CloudFailure::Status(404),
            Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument => {
                CloudFailure::Credentials(failure.error("the request of a token", &self.secret))
            }
            _ => failure,
        }
    }
}

/// Requests of other services carry the token.
pub(crate) struct WithToken(pub Arc<TokenCache<Keystone>>);

#[async_trait]
impl RequestAuthenticator for WithToken {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        let token = self.0.get().await?;
        Ok([(reqwest::header::HeaderName::from_static(TOKEN), token.header)].into_iter().collect())
    }

    async fn refused(&self) {
        self.0.forget().await;
    }
}

/// Requests of tokens carry nothing but their body.
pub(crate) struct WithoutToken;

#[async_trait]
impl RequestAuthenticator for WithoutToken {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok(HeaderMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn token(catalog: Value) -> Token {
        let body = json!({"token": {
            "expires_at": "2026-11-27T00:00:00.000000Z", "catalog": catalog, "user": {"name": "u"}, "project": {"id": "i", "name": "p"},
        }});
        let Answered { token } = serde_json::from_value(body).unwrap();
        Token { header: HeaderValue::from_static("t"), body: Arc::new(token) }
    }

    fn entry(kind: &str, interface: &str, region: &str, url: &str) -> Value {
        json!({"type": kind, "name": "", "endpoints": [{"interface": interface, "region": region, "region_id": region, "url": url}]})
    }

    #[rstest]
    #[case(Service::Compute, "one", "https://nova.example.com/v2.1")]
    #[case(Service::Compute, "two", "https://nova.two.example.com/v2.1")]
    #[case(Service::Network, "one", "https://neutron.example.com/v2.0")]
    #[case::with_its_version(Service::Network, "two", "https://neutron.two.example.com/v2.0/")]
    #[case(Service::LoadBalancer, "one", "https://octavia.example.com/load-balancer/v2.0")]
    #[case::with_its_version(Service::LoadBalancer, "two", "https://octavia.two.example.com/v2")]
    #[case::newest_version(Service::BlockStorage, "one", "https://cinder.example.com/v3/p")]
    #[case::under_another_name(Service::BlockStorage, "two", "https://cinder.two.example.com/v3/p")]
    #[case::without_a_version(Service::Compute, "three", "https://three.example.com/compute/v2.1")]
    #[case::without_a_version(Service::BlockStorage, "three", "https://three.example.com/volume/v3/i")]
    #[case::with_the_project(Service::Compute, "four", "https://four.example.com/v2/p")]
    fn an_endpoint_is_that_of_its_type_region_and_interface(
        #[case] service: Service,
        #[case] region: &str,
        #[case] expected: &str,
    ) {
        let token = token(json!([
            entry("compute", "internal", "one", "https://10.0.0.1/v2.1"),
            entry("compute", "public", "one", "https://nova.example.com/v2.1"),
            entry("compute", "public", "two", "https://nova.two.example.com/v2.1"),
            entry("network", "public", "one", "https://neutron.example.com"),
            entry("network", "public", "two", "https://neutron.two.example.com/v2.0/"),
            entry("load-balancer", "public", "one", "https://octavia.example.com/load-balancer"),
            entry("load-balancer", "public", "two", "https://octavia.two.example.com/v2"),
            entry("volumev2", "public", "one", "https://cinder.example.com/v2/p"),
            entry("volumev3", "public", "one", "https://cinder.example.com/v3/p"),
            entry("block-storage", "public", "two", "https://cinder.two.example.com/v3/p"),
            entry("compute", "public", "three", "https://three.example.com/compute"),
            entry("block-storage", "public", "three", "https://three.example.com/volume/"),
            entry("compute", "public", "four", "https://four.example.com/v2/p"),
        ]));
        assert_eq!(token.endpoint(service, region, &SecretPolicy::default(), None).unwrap().as_str(), expected);
        assert_eq!(token.owner(), "user u in project p");
    }

    #[rstest]
    #[case::other_region("elsewhere", "no public endpoint of type compute in region \"elsewhere\"")]
    #[case::without_tls("one", "the nova endpoint in the catalogue of authURL")]
    fn an_endpoint_that_cannot_be_used_is_named(#[case] region: &str, #[case] expected: &str) {
        let token = token(json!([entry("compute", "public", "one", "http://169.254.169.254/v2.1")]));
        let error = token.endpoint(Service::Compute, region, &SecretPolicy::default(), None).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains(expected), "{error}");
    }

    /// Keystone may be allowed, and names another host.
    #[rstest]
    #[case("https://nova.example.com/v2.1", true)]
    #[case("https://10.0.0.1/v2.1", false)]
    fn an_endpoint_is_verified_unless_it_is_allowed(#[case] url: &str, #[case] is_allowed: bool) {
        let token = token(json!([entry("compute", "public", "one", url)]));
        let endpoints = vec!["nova.example.com".parse().unwrap()];
        let policy = SecretPolicy { endpoints, ..SecretPolicy::default() };
        let found = token.endpoint(Service::Compute, "one", &policy, Some("insecure"));
        assert_eq!(found.is_ok(), is_allowed, "{found:?}");
    }
}
