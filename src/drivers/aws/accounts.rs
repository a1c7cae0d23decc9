//! Accounts of AWS: a region, an endpoint and credentials. A Secret with new credentials is another account at once.

use std::sync::Arc;

use aws_config::{
    AppName, BehaviorVersion, Region, SdkConfig, identity::IdentityCache, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use tokio::sync::Mutex;

use super::{
    client::Connections,
    credentials::Credentials,
    endpoint::{Variant, check_region},
    iam::Iam,
    login::Login,
    names::APP,
    secrets_manager::SecretsManager,
    signed::Location,
    target_groups::TargetGroups,
};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    DriverError, OpenError, SecretData, SecretPolicy,
    cloud::{AccountLimiters, CaBundle, HttpClient, HttpLimits, LruCache, MOST_LOGINS, RequestReporter},
};

/// The variable with the path of a file of CA certificates.
const BUNDLE: &str = "AWS_CA_BUNDLE";

/// Where AWS is.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    /// The endpoint of EC2 for Secrets that name none; that of AWS if `None`.
    pub endpoint: Option<String>,
    /// The endpoint of STS and IAM; that of AWS if `None`. No Secret can change it: it gets the token of the process.
    pub sts_endpoint: Option<String>,
    /// The endpoint of load balancers for Secrets that name none; that of AWS if `None`.
    pub load_balancer_endpoint: Option<String>,
    /// The endpoint of Secrets Manager for Secrets that name none; that of AWS if `None`.
    pub secrets_manager_endpoint: Option<String>,
    /// Variant of the endpoints of AWS.
    pub variant: Variant,
    /// Calls use the proxy that the environment names, if it names one.
    pub uses_proxy: bool,
    /// CA certificates in place of those of the system.
    pub bundle: Option<CaBundle>,
    pub limits: HttpLimits,
    /// Features that Secrets may use.
    pub secrets: SecretPolicy,
}

impl Access {
    /// Settings from the environment variables that the SDKs of AWS read.
    ///
    /// # Errors
    /// `AWS_CA_BUNDLE` names a file without certificates.
    pub(super) fn from_environment(secrets: &SecretPolicy) -> Result<Self, OpenError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let first = |names: [&str; 2]| names.into_iter().find_map(variable);
        let bundle = variable(BUNDLE).map(|path| CaBundle::read(path.as_ref())).transpose();
        Ok(Self {
            endpoint: first(["AWS_ENDPOINT_URL_EC2", "AWS_ENDPOINT_URL"]),
            sts_endpoint: first(["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"]),
            load_balancer_endpoint: first(["AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2", "AWS_ENDPOINT_URL"]),
            secrets_manager_endpoint: first(["AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_ENDPOINT_URL"]),
            variant: Variant::of_environment(),
            uses_proxy: true,
            bundle: bundle.map_err(|error| OpenError::Variable { name: BUNDLE, source: error.into() })?,
            limits: HttpLimits::default(),
            secrets: secrets.clone(),
        })
    }
}

/// Fields that distinguish accounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AccountKey {
    region: String,
    /// The endpoint that the Secret names.
    pub endpoint: Option<String>,
    credentials: Credentials,
}

/// The services of AWS in a region, with credentials.
pub(super) struct Account {
    pub ec2: aws_sdk_ec2::Client,
    pub sts: aws_sdk_sts::Client,
    pub iam: Iam,
    pub target_groups: TargetGroups,
    pub secrets_manager: SecretsManager,
    pub login: Arc<Login>,
    pub limiters: Arc<AccountLimiters>,
    pub http: Arc<HttpClient>,
}

/// All accounts.
pub(super) struct Accounts {
    access: Access,
    connections: Connections,
    http: Arc<HttpClient>,
    all: LruCache<AccountKey, Arc<Account>>,
}

impl Accounts {
    pub(super) fn new(access: Access, requests: RequestReporter) -> Self {
        Self {
            connections: Connections::new(access.limits, access.uses_proxy, access.bundle.as_ref()),
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests).trusting(access.bundle.clone())),
            access,
            all: LruCache::new(MOST_LOGINS).warning_of("logins"),
        }
    }

    /// The account that the Secret of a class gives access to, in a region.
    ///
    /// # Errors
    /// Credentials are missing, or something in the Secret is not allowed.
    pub(super) fn key(
        &self,
        region: &str,
        class: &MachineClass,
        secret: &SecretData,
    ) -> Result<AccountKey, DriverError> {
        let policy = &self.access.secrets;
        let credentials = Credentials::from_secret(class, secret, policy)?;
        let endpoint = credentials.endpoint(secret, policy)?;
        Ok(AccountKey { region: region.to_owned(), endpoint, credentials })
    }

    /// The account of a key, with the credentials that it has, if they are still valid.
    ///
    /// # Errors
    /// The region is no word.
    pub(super) fn get(&self, key: &AccountKey) -> Result<Arc<Account>, DriverError> {
        self.all.get_or(key, || self.open(key).map(Arc::new))
    }

    fn open(&self, key: &AccountKey) -> Result<Account, DriverError> {
        let endpoint = key.endpoint.as_ref().or(self.access.endpoint.as_ref());
        let sts_endpoint = self.access.sts_endpoint.as_ref();
        let location = |endpoint: &Option<String>| Location {
            region: key.region.clone(),
            endpoint: key.endpoint.as_ref().or(endpoint.as_ref()).cloned(),
            variant: self.access.variant,
        };
        let load_balancers = location(&self.access.load_balancer_endpoint);
        let secrets = location(&self.access.secrets_manager_endpoint);
        let endpoints = [endpoint, sts_endpoint, load_balancers.endpoint.as_ref(), secrets.endpoint.as_ref()];
        if endpoints.iter().any(Option::is_none) {
            check_region(&key.region)?;
        }
        let limiters = Arc::new(AccountLimiters::new(self.access.limits.slowest));
        let login = Arc::new(Login {
            credentials: key.credentials.clone(),
            region: key.region.clone(),
            folders: self.access.secrets.folders.clone(),
            longest: self.access.limits.attempt,
            connections: self.connections.clone(),
            http: Arc::clone(&self.http),
            limiters: Arc::clone(&limiters),
            sts: aws_sdk_sts::Client::new(&self.config(&key.region, sts_endpoint, None)),
            fetched: Mutex::default(),
        });
        Ok(Account {
            ec2: aws_sdk_ec2::Client::new(&self.config(&key.region, endpoint, Some(&login))),
            sts: aws_sdk_sts::Client::new(&self.config(&key.region, sts_endpoint, Some(&login))),
            iam: Iam::new(&key.region, sts_endpoint, &login, &limiters, &self.http),
            target_groups: TargetGroups::new(load_balancers, &login, &limiters, &self.http),
            secrets_manager: SecretsManager::new(secrets, &login, &limiters, &self.http),
            login,
            limiters,
            http: Arc::clone(&self.http),
        })
    }

    /// The configuration of a client of the SDK, at an endpoint or at that of AWS. Attempts, time limits, the pace of calls and
    /// the life of credentials are the same for all clouds, so those of the SDK are off.
    fn config(&self, region: &str, endpoint: Option<&String>, login: Option<&Arc<Login>>) -> SdkConfig {
        let Variant { is_fips, is_dual_stack } = self.access.variant;
        let mut config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .http_client(self.connections.of_services())
            .identity_cache(IdentityCache::no_cache())
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .use_fips(is_fips && endpoint.is_none())
            .use_dual_stack(is_dual_stack && endpoint.is_none());
        config.set_endpoint_url(endpoint.cloned());
        config.set_app_name(AppName::new(APP).ok());
        config.set_credentials_provider(login.map(|login| {
            let login: Arc<dyn ProvideCredentials> = Arc::<Login>::clone(login);
            SharedCredentialsProvider::new(login)
        }));
        config.build()
    }
}
