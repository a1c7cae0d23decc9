//! Accounts of AWS: a region, an endpoint and credentials. A Secret with new credentials is another account at once.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_config::{default_provider::credentials::DefaultCredentialsChain, provider_config::ProviderConfig};
use aws_credential_types::{Credentials as Keys, provider::ProvideCredentials};
use roxmltree::Node;
use tokio::{sync::Mutex, time::Instant};

use super::{
    credentials::Credentials,
    endpoint::{Variant, iam_of, url_of},
    query::{Query, child, text_of},
    transport::{Service, Transport, shared_client, within},
};
use crate::api::machine::MachineClass;
use crate::driver::{
    DriverError, SecretData, SecretPolicy,
    cloud::{Failure, Limiters, Limits, Recent, read_credential_file},
    code::Code,
};

/// More than any installation has.
const MOST_ACCOUNTS: usize = 256;
/// Credentials that expire are fetched again so long before.
const AHEAD: Duration = Duration::from_secs(300);
/// Credentials without an expiry, such as those of a file, are read again after this time.
const READ_AGAIN: Duration = Duration::from_secs(300);
const SESSION: &str = "machine-controller-manager";
const STS_VERSION: &str = "2011-06-15";

/// Where AWS is.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    /// The endpoint of EC2 for Secrets that name none; that of AWS if `None`.
    pub endpoint: Option<String>,
    /// The endpoint of STS and IAM; that of AWS if `None`. No Secret can change it: the token of the process goes there.
    pub sts_endpoint: Option<String>,
    /// Which endpoints of AWS are used.
    pub variant: Variant,
    /// Whether calls go through the proxy that the environment names, if it names one.
    pub uses_proxy: bool,
    pub limits: Limits,
    /// What Secrets may use.
    pub secrets: SecretPolicy,
}

impl Access {
    /// What the environment says, as for other programs that use AWS.
    pub(super) fn of_environment(secrets: &SecretPolicy) -> Self {
        let first =
            |names: [&str; 2]| names.iter().filter_map(|name| std::env::var(name).ok()).find(|url| !url.is_empty());
        Self {
            endpoint: first(["AWS_ENDPOINT_URL_EC2", "AWS_ENDPOINT_URL"]),
            sts_endpoint: first(["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"]),
            variant: Variant::of_environment(),
            uses_proxy: true,
            limits: Limits::default(),
            secrets: secrets.clone(),
        }
    }
}

/// What makes an account differ from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AccountKey {
    region: String,
    endpoint: Option<String>,
    credentials: Credentials,
}

/// EC2 in a region, with credentials.
pub(super) struct Account {
    pub service: Service,
    pub sts: Service,
    pub iam: Service,
    credentials: Credentials,
    access: Access,
    pub limiters: Limiters,
    /// Those that were fetched last, and when. Who fetches new ones holds the lock, so that others wait for them.
    fetched: Mutex<Option<(Keys, Instant)>>,
}

/// All accounts.
pub(super) struct Accounts {
    access: Access,
    all: Recent<AccountKey, Arc<Account>>,
}

impl Accounts {
    pub(super) fn new(access: Access) -> Self {
        Self { access, all: Recent::new(MOST_ACCOUNTS) }
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
        let credentials = Credentials::of(class, secret, policy)?;
        let endpoint = credentials.endpoint(secret, policy)?;
        Ok(AccountKey { region: region.to_owned(), endpoint, credentials })
    }

    /// The account of a key, with the credentials that it has, if they are still valid.
    ///
    /// # Errors
    /// The region is no word.
    pub(super) fn get(&self, key: &AccountKey) -> Result<Arc<Account>, DriverError> {
        let service = |name, endpoint: Option<&String>| {
            let url = endpoint.map_or_else(|| url_of(name, &key.region, self.access.variant), |url| Ok(url.clone()))?;
            Ok::<_, DriverError>(Service { name, region: key.region.clone(), url })
        };
        self.all.get_or(key, || {
            let (iam_region, iam_url) = iam_of(&key.region);
            let iam_url = self.access.sts_endpoint.clone().unwrap_or_else(|| iam_url.to_owned());
            Ok(Arc::new(Account {
                service: service("ec2", key.endpoint.as_ref().or(self.access.endpoint.as_ref()))?,
                sts: service("sts", self.access.sts_endpoint.as_ref())?,
                iam: Service { name: "iam", region: iam_region.to_owned(), url: iam_url },
                credentials: key.credentials.clone(),
                access: self.access.clone(),
                limiters: Limiters::new(self.access.limits.slowest),
                fetched: Mutex::default(),
            }))
        })
    }
}

impl Account {
    /// Credentials that are valid now.
    pub(super) async fn keys(&self, transport: &Transport) -> Result<Keys, Failure> {
        if let Credentials::Static { key_id, secret_key } = &self.credentials {
            return Ok(Keys::new(key_id, secret_key, None, None, "secret of the class"));
        }
        let mut fetched = self.fetched.lock().await;
        if let Some((keys, since)) = fetched.as_ref()
            && is_valid(keys, SystemTime::now(), since.elapsed())
        {
            return Ok(keys.clone());
        }
        let keys = match &self.credentials {
            Credentials::WebIdentity { token_file, role_arn } => {
                self.assume_role(transport, token_file, role_arn).await?
            }
            _ => self.of_process().await?,
        };
        Ok(fetched.insert((keys, Instant::now())).0.clone())
    }

    /// Forgets credentials that AWS refused.
    pub(super) async fn forget(&self, refused: &Keys) {
        let mut fetched = self.fetched.lock().await;
        fetched.take_if(|(keys, _)| keys == refused);
    }

    /// Exchanges the token in a file for the credentials of a role.
    async fn assume_role(
        &self,
        transport: &Transport,
        file: &std::path::Path,
        role_arn: &str,
    ) -> Result<Keys, Failure> {
        const ACTION: &str = "AssumeRoleWithWebIdentity";
        let token = read_credential_file(file, &self.access.secrets.folders).await.map_err(Failure::Credentials)?;
        let mut query = Query::new(ACTION, STS_VERSION, "assume_role_with_web_identity");
        query.set("RoleArn", role_arn);
        query.set("RoleSessionName", SESSION);
        query.set("WebIdentityToken", &token);
        let read = |answer: Node<'_, '_>| {
            let keys = child(child(answer, "AssumeRoleWithWebIdentityResult")?, "Credentials")?;
            let expiry: jiff::Timestamp = text_of(keys, "Expiration")?.parse().ok()?;
            Some(Keys::new(
                text_of(keys, "AccessKeyId")?,
                text_of(keys, "SecretAccessKey")?,
                Some(text_of(keys, "SessionToken")?.to_owned()),
                Some(SystemTime::from(expiry)),
                "workload identity",
            ))
        };
        transport.call(&self.limiters.login, &self.sts, None, &query, read).await.map_err(|failure| {
            let secret = SecretData([("token".to_owned(), token.into_bytes())].into());
            Failure::Credentials(failure.error(ACTION, &secret))
        })
    }

    /// The credentials of the process: environment, profile, instance.
    async fn of_process(&self) -> Result<Keys, Failure> {
        let config = ProviderConfig::without_region()
            .with_region(Some(aws_config::Region::new(self.service.region.clone())))
            .with_http_client(shared_client(self.access.uses_proxy));
        let fetch = async {
            let chain = DefaultCredentialsChain::builder().configure(config).build().await;
            chain.provide_credentials().await
        };
        within(self.access.limits, fetch).await?.map_err(|error| {
            let message = format!("the secret of the class has no credentials, and the process has none: {error}");
            Failure::Credentials(DriverError::new(Code::Unauthenticated, message))
        })
    }
}

/// Whether credentials that were fetched some time ago are used again.
fn is_valid(keys: &Keys, now: SystemTime, age: Duration) -> bool {
    match keys.expiry() {
        Some(expiry) => expiry.duration_since(now).is_ok_and(|left| left > AHEAD),
        None => age < READ_AGAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::new(None, 0, true)]
    #[case::of_a_file_that_may_have_changed(None, 301, false)]
    #[case::that_expire(Some(3600), 3000, true)]
    #[case::that_expire_soon(Some(299), 0, false)]
    fn credentials_are_used_while_they_are_valid(
        #[case] expires_in: Option<u64>,
        #[case] age: u64,
        #[case] expected: bool,
    ) {
        let now = SystemTime::now();
        let expiry = expires_in.map(|seconds| now + Duration::from_secs(seconds));
        let keys = Keys::new("AK", "SK", None, expiry, "test");
        assert_eq!(is_valid(&keys, now, Duration::from_secs(age)), expected);
    }
}
