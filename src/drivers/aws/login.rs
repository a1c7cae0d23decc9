//! The credentials of an account, which are fetched and kept while they are valid.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_config::{Region, default_provider::credentials::DefaultCredentialsChain, provider_config::ProviderConfig};
use aws_credential_types::{
    Credentials as Keys,
    provider::{ProvideCredentials, error::CredentialsError, future},
};
use aws_sdk_sts::operation::assume_role_with_web_identity::AssumeRoleWithWebIdentityOutput as Assumed;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    client::Connections,
    credentials::Credentials,
    errors::{failure_of, may_pass},
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{AccountLimiters, CloudFailure, HttpClient, read_credential_file},
    code::Code,
};

/// Credentials that expire are fetched again so long before.
const AHEAD: Duration = Duration::from_secs(300);
/// Credentials without an expiry, such as those of a file, are read again after this time.
const READ_AGAIN: Duration = Duration::from_secs(300);
const SESSION: &str = "machine-controller-manager";

/// How an account gets its credentials.
pub(super) struct Login {
    pub credentials: Credentials,
    pub region: String,
    /// Where token files may be.
    pub folders: Vec<PathBuf>,
    /// The chain of the process may take so long.
    pub longest: Duration,
    pub connections: Connections,
    pub http: Arc<HttpClient>,
    pub limiters: Arc<AccountLimiters>,
    /// STS, without credentials.
    pub sts: aws_sdk_sts::Client,
    /// The keys that were fetched last, and when. A call that fetches new keys holds the lock, so that others wait for them.
    pub fetched: Mutex<Option<(Keys, Instant)>>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl ProvideCredentials for Login {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let failed = |failure: CloudFailure| {
            CredentialsError::provider_error(failure.error("fetching credentials", &SecretData::default()).message)
        };
        future::ProvideCredentials::new(async move { self.keys().await.map_err(failed) })
    }
}

impl Login {
    /// Credentials that are valid now.
    pub(super) async fn keys(&self) -> Result<Keys, CloudFailure> {
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
            Credentials::WebIdentity { token_file, role_arn } => self.assume_role(token_file, role_arn).await?,
            _ => self.of_process().await?,
        };
        Ok(fetched.insert((keys, Instant::now())).0.clone())
    }

    /// Drops credentials that AWS refused.
    pub(super) async fn forget(&self, refused: &Keys) {
        let mut fetched = self.fetched.lock().await;
        fetched.take_if(|(keys, _)| keys == refused);
    }

    /// Exchanges the token in a file for the credentials of a role.
    async fn assume_role(&self, file: &Path, role_arn: &str) -> Result<Keys, CloudFailure> {
        let token = read_credential_file(file, &self.folders).await.map_err(CloudFailure::Credentials)?;
        let once = || async {
            let request = self.sts.assume_role_with_web_identity().role_arn(role_arn).role_session_name(SESSION);
            let answer = request.web_identity_token(&token).send().await.map_err(|error| failure_of(&error))?;
            keys_of(answer).ok_or(CloudFailure::Unreadable(200))
        };
        let keys = self.http.repeat(&self.limiters.login, "assume_role_with_web_identity", once, may_pass).await;
        keys.map_err(|failure| {
            let secret = SecretData([("token".to_owned(), token.into_bytes())].into());
            CloudFailure::Credentials(failure.error("AssumeRoleWithWebIdentity", &secret))
        })
    }

    /// The credentials of the process: environment, profile, instance.
    async fn of_process(&self) -> Result<Keys, CloudFailure> {
        let config = ProviderConfig::without_region()
            .with_region(Some(Region::new(self.region.clone())))
            .with_http_client(self.connections.of_credentials());
        let fetch = async {
            let chain = DefaultCredentialsChain::builder().configure(config).build().await;
            chain.provide_credentials().await
        };
        let fetched = timeout(self.longest, fetch).await.map_err(|_| CloudFailure::NoAnswer)?;
        fetched.map_err(|error| {
            let message = format!("the secret of the class has no credentials, and the process has none: {error}");
            CloudFailure::Credentials(DriverError::new(Code::Unauthenticated, message))
        })
    }
}

/// The credentials in an answer of STS; `None` if they are not complete.
fn keys_of(answer: Assumed) -> Option<Keys> {
    let keys = answer.credentials?;
    let texts = [&keys.access_key_id, &keys.secret_access_key, &keys.session_token];
    let expiry = SystemTime::try_from(keys.expiration).ok()?;
    let is_complete = texts.iter().all(|text| !text.is_empty());
    let [id, secret, session] = texts;
    is_complete.then(|| Keys::new(id, secret, Some(session.clone()), Some(expiry), "workload identity"))
}

/// Credentials that were fetched some time ago can be used again.
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
