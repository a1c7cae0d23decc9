//! Endpoints of Google, limits of requests, and what Secrets may use.

use super::credentials::{IAM_HOST, STS_URL};
use mcm_driver::{SecretPolicy, cloud::HttpLimits};

const IAM_URL: &str = "https://iam.googleapis.com";
const COMPUTE_URL: &str = "https://compute.googleapis.com";

/// Where Google is.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The Compute API for Secrets that name none, with or without its path.
    pub compute: String,
    /// URL of the exchange of the token of the process. No Secret can change it.
    pub sts: String,
    /// Beginning of the URLs that impersonate service accounts. No Secret can change it.
    pub iam: String,
    /// URL of the list of service accounts, unless a Secret names a private cloud.
    pub accounts: String,
    /// Requests use the proxy that the environment names, if it names one.
    pub uses_proxy: bool,
    pub limits: HttpLimits,
    /// Features that Secrets may use.
    pub secrets: SecretPolicy,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            compute: COMPUTE_URL.to_owned(),
            sts: STS_URL.to_owned(),
            iam: IAM_HOST.to_owned(),
            accounts: IAM_URL.to_owned(),
            uses_proxy: true,
            limits: HttpLimits::default(),
            secrets: SecretPolicy::default(),
        }
    }
}

impl Access {
    /// Settings from the environment variables that Google's command line reads.
    pub(super) fn of_environment(secrets: &SecretPolicy) -> Self {
        let given = |service: &str| {
            let name = format!("CLOUDSDK_API_ENDPOINT_OVERRIDES_{service}");
            std::env::var(name).ok().filter(|url| !url.is_empty())
        };
        let default = Self::default();
        Self {
            compute: given("COMPUTE").unwrap_or(default.compute),
            sts: given("STS").map_or(default.sts, |url| format!("{}/v1/token", url.trim_end_matches('/'))),
            iam: given("IAMCREDENTIALS").unwrap_or(default.iam),
            accounts: given("IAM").unwrap_or(default.accounts),
            secrets: secrets.clone(),
            ..default
        }
    }
}
