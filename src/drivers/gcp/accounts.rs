//! Accounts of Google: an endpoint and credentials. A Secret with new credentials is another account at once.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::AtomicBool},
};

use super::{
    access::Access,
    credentials::{Credentials, Login},
    tokens::{Google, Tokens},
};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    DriverError, SecretData,
    cloud::{AccountLimiters, AdaptiveLimiter, HttpClient, LruCache, MOST_LOGINS},
};

/// The path that the URLs of all resources begin with.
const COMPUTE_PATH: &str = "/compute/v1";

/// Fields that distinguish accounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AccountKey {
    endpoint: Option<String>,
    credentials: Credentials,
}

impl From<&Login> for AccountKey {
    fn from(login: &Login) -> Self {
        Self { endpoint: login.endpoint.clone(), credentials: login.credentials.clone() }
    }
}

/// The Compute API with credentials.
pub(super) struct Account {
    /// URL of the Compute API, without a slash at the end.
    compute: String,
    /// URL of the list of service accounts. `None` for a private cloud, so that Google receives none of its tokens.
    pub iam: Option<String>,
    pub http: Arc<HttpClient>,
    pub limiters: Arc<AccountLimiters>,
    /// Lists have their own quota.
    pub lists: AdaptiveLimiter,
    /// Look-ups of operations have their own quota.
    pub operations: AdaptiveLimiter,
    pub tokens: Tokens,
    /// Lists have a mask of fields. The host of the API may refuse it.
    pub takes_masks: AtomicBool,
}

impl Account {
    /// The URL of what is at a path of the Compute API.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.compute)
    }
}

/// All accounts.
pub(super) struct Accounts {
    access: Access,
    http: Arc<HttpClient>,
    all: LruCache<AccountKey, Arc<Account>>,
}

impl Accounts {
    pub(super) fn new(access: Access, http: Arc<HttpClient>) -> Self {
        Self { access, http, all: LruCache::new(MOST_LOGINS).warning_of("logins") }
    }

    /// Reads the project and the credentials in the Secret of a class.
    ///
    /// # Errors
    /// Errors of [`Login::of`].
    pub(super) fn login(&self, class: &MachineClass, secret: &SecretData) -> Result<Login, DriverError> {
        Login::from_secret(secret, &self.access.secrets.for_class(class))
    }

    /// The account of a key, with the token that it has, if it is still valid.
    pub(super) fn get(&self, key: &AccountKey) -> Arc<Account> {
        let account = self.all.get_or(key, || Ok::<_, Infallible>(Arc::new(self.create(key))));
        account.unwrap_or_else(|never| match never {})
    }

    fn create(&self, key: &AccountKey) -> Account {
        let Self { access, http, .. } = self;
        let limiters = Arc::new(AccountLimiters::new(access.limits.slowest));
        let google = Google::new(access.clone(), key.credentials.clone(), Arc::clone(http), Arc::clone(&limiters));
        let url = key.endpoint.as_ref().unwrap_or(&access.compute).trim_end_matches('/');
        let url = format!("{}{COMPUTE_PATH}", url.strip_suffix(COMPUTE_PATH).unwrap_or(url));
        Account {
            compute: url,
            iam: key.endpoint.is_none().then(|| access.accounts.trim_end_matches('/').to_owned()),
            http: Arc::clone(http),
            limiters,
            lists: AdaptiveLimiter::new(access.limits.slowest),
            operations: AdaptiveLimiter::new(access.limits.slowest),
            tokens: Tokens::new(google),
            takes_masks: AtomicBool::new(true),
        }
    }
}
