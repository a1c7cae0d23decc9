//! The services of the cloud and their addresses: the usual ones, or the ones in a list of endpoints.

use mcm_driver::{
    Code, DriverError, SecretPolicy,
    cloud::{CloudFailure, RestClient},
};
use reqwest::{Method, Url};
use serde::Deserialize;

use mcm_driver::cloud::RestCall;

/// Domains of the cloud, in Russia and in Kazakhstan.
pub(crate) const DOMAINS: [&str; 2] = ["cloud.yandex.net", "yandexcloud.kz"];
/// The usual domain of all services.
const USUAL: &str = "api.cloud.yandex.net";

/// A service, by its ID in the list of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Compute,
    Iam,
    Operation,
    ResourceManager,
    Vpc,
}

impl Service {
    const fn id(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Iam => "iam",
            Self::Operation => "operation",
            Self::ResourceManager => "resource-manager",
            Self::Vpc => "vpc",
        }
    }
}

/// Where the services are.
#[derive(Clone, Debug)]
pub(crate) enum Endpoints {
    Usual,
    Listed { from: Url, all: Vec<Endpoint> },
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Endpoint {
    id: String,
    /// A host with its port.
    address: String,
}

impl Endpoints {
    /// Reads the list at an endpoint, which needs no credentials.
    pub(crate) async fn listed(rest: &RestClient, from: &Url) -> Result<Self, CloudFailure> {
        #[derive(Deserialize)]
        struct Answer {
            endpoints: Vec<Endpoint>,
        }
        let answer: Answer = rest.call(&RestCall::read("endpoint_list", Method::GET, &["endpoints"])).await?;
        Ok(Self::Listed { from: from.clone(), all: answer.endpoints })
    }

    /// The URL of a service. Credentials are sent there, so a listed one has to be a host that the Secret itself may name.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the list has no such service, or one at a host that is not allowed.
    pub(crate) fn url_of(&self, service: Service, policy: &SecretPolicy) -> Result<Url, DriverError> {
        let id = service.id();
        let url = match self {
            Self::Usual => format!("https://{id}.{USUAL}"),
            Self::Listed { from, all } => {
                let Some(endpoint) = all.iter().find(|endpoint| endpoint.id == id) else {
                    let message = format!("endpointURL in the secret of the class lists no service {id}");
                    return Err(DriverError::new(Code::InvalidArgument, message));
                };
                let url = format!("{}://{}", from.scheme(), endpoint.address);
                policy.check_url(&format!("the address of service {id} at endpointURL"), &url, &DOMAINS)?;
                url
            }
        };
        Url::parse(&url)
            .map_err(|_| DriverError::new(Code::InvalidArgument, format!("service {id} has no valid address")))
    }

    /// The audience of requests for IAM tokens.
    pub(crate) fn audience(&self) -> String {
        let domain = match self {
            Self::Usual => USUAL,
            Self::Listed { from, .. } => from.host_str().unwrap_or(USUAL),
        };
        format!("https://iam.{domain}/iam/v1/tokens")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn listed(from: &str, address: &str) -> Endpoints {
        let endpoint = Endpoint { id: "resource-manager".to_owned(), address: address.to_owned() };
        Endpoints::Listed { from: from.parse().unwrap(), all: vec![endpoint] }
    }

    #[test]
    fn services_are_at_their_usual_hosts() {
        let url = |service| Endpoints::Usual.url_of(service, &SecretPolicy::default()).unwrap().to_string();
        assert_eq!(url(Service::Compute), "https://compute.api.cloud.yandex.net/");
        assert_eq!(url(Service::Iam), "https://iam.api.cloud.yandex.net/");
        assert_eq!(url(Service::Operation), "https://operation.api.cloud.yandex.net/");
        assert_eq!(url(Service::ResourceManager), "https://resource-manager.api.cloud.yandex.net/");
        assert_eq!(url(Service::Vpc), "https://vpc.api.cloud.yandex.net/");
        assert_eq!(Endpoints::Usual.audience(), "https://iam.api.cloud.yandex.net/iam/v1/tokens");
    }

    #[rstest]
    #[case(
        "https://api.yandexcloud.kz",
        "resource-manager.api.yandexcloud.kz:443",
        Some("https://resource-manager.api.yandexcloud.kz/")
    )]
    #[case::allowed("http://127.0.0.1:80", "127.0.0.1:8080", Some("http://127.0.0.1:8080/"))]
    #[case::elsewhere("https://api.cloud.yandex.net", "evil.example.com:443", None)]
    #[case::other_port("https://api.cloud.yandex.net", "x.cloud.yandex.net:8443", None)]
    #[case::user("https://api.cloud.yandex.net", "cloud.yandex.net@evil.example.com", None)]
    #[case::without_tls("http://127.0.0.1:80", "iam.api.cloud.yandex.net", None)]
    fn a_listed_service_is_at_an_allowed_host(
        #[case] from: &str,
        #[case] address: &str,
        #[case] expected: Option<&str>,
    ) {
        let found = listed(from, address).url_of(Service::ResourceManager, &mcm_driver::testing::secret_policy());
        assert_eq!(found.as_ref().ok().map(Url::as_str), expected, "{found:?}");
    }

    #[test]
    fn a_service_that_is_not_listed_is_named() {
        let endpoints = listed("https://api.yandexcloud.kz", "x.yandexcloud.kz");
        let error = endpoints.url_of(Service::Vpc, &SecretPolicy::default()).unwrap_err();
        assert_eq!(error.message, "endpointURL in the secret of the class lists no service vpc");
        assert_eq!(endpoints.audience(), "https://iam.api.yandexcloud.kz/iam/v1/tokens");
    }
}
