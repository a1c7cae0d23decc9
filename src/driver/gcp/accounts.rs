//! Accounts of Google: an endpoint and credentials. A Secret with new credentials is another account at once.

use std::{
    convert::Infallible,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::{sync::Mutex, time::Instant};

use super::{
    credentials::{Credentials, IAM_HOST, Login, STS_URL, TOKEN_TYPE},
    jwt::signed,
    rest::{Method, Request, once},
};
use crate::driver::{
    DriverError, SecretData, SecretPolicy,
    cloud::{Failure, Http, Limiters, Limits, Recent, read_credential_file},
};

/// More than any installation has.
const MOST_ACCOUNTS: usize = 256;
/// Tokens that expire are fetched again so long before.
const AHEAD: Duration = Duration::from_secs(300);
/// How long the token of a service account is valid, in seconds.
const LIFETIME: u64 = 3600;
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const IAM_URL: &str = "https://iam.googleapis.com";
const COMPUTE_URL: &str = "https://compute.googleapis.com/compute/v1";

/// Where Google is.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The Compute API for Secrets that name none.
    pub compute: String,
    /// What exchanges the token of the process. No Secret can change it.
    pub sts: String,
    /// What impersonates service accounts: the beginning of its URLs. No Secret can change it.
    pub iam: String,
    /// What lists service accounts, unless a Secret names a private cloud.
    pub accounts: String,
    /// Whether calls go through the proxy that the environment names, if it names one.
    pub uses_proxy: bool,
    pub limits: Limits,
    /// What Secrets may use.
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
            limits: Limits::default(),
            secrets: SecretPolicy::default(),
        }
    }
}

impl Access {
    /// What the environment says, as for Google's command line.
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

/// What makes an account differ from another.
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
    /// The beginning of all URLs, without a slash at the end.
    pub url: String,
    /// The same of what lists service accounts. No token goes there from a private cloud.
    pub iam: Option<String>,
    access: Access,
    pub limiters: Limiters,
    credentials: Credentials,
    /// The token that was fetched last. Who fetches a new one holds the lock, so that others wait for it.
    fetched: Mutex<Option<Token>>,
}

struct Token {
    text: String,
    expires: Instant,
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

    /// What a Secret gives access to.
    ///
    /// # Errors
    /// Those of [`Login::of`].
    pub(super) fn login(&self, secret: &SecretData) -> Result<Login, DriverError> {
        Login::of(secret, &self.access.secrets)
    }

    /// The account of a key, with the token that it has, if it is still valid.
    pub(super) fn get(&self, key: &AccountKey) -> Arc<Account> {
        let endpoint = key.endpoint.as_ref().unwrap_or(&self.access.compute);
        let account = self.all.get_or(key, || {
            let iam = key.endpoint.is_none().then(|| self.access.accounts.trim_end_matches('/').to_owned());
            Ok::<_, Infallible>(Arc::new(Account {
                url: endpoint.trim_end_matches('/').to_owned(),
                iam,
                access: self.access.clone(),
                limiters: Limiters::new(self.access.limits.slowest),
                credentials: key.credentials.clone(),
                fetched: Mutex::default(),
            }))
        });
        account.unwrap_or_else(|never| match never {})
    }
}

impl Account {
    /// Whose credentials these are.
    pub(super) fn identity(&self) -> &str {
        match &self.credentials {
            Credentials::ServiceAccount { email, .. } => email,
            Credentials::ExternalAccount { audience, .. } => audience,
        }
    }

    /// A token that is valid now.
    pub(super) async fn token(&self, http: &Http) -> Result<String, Failure> {
        let mut fetched = self.fetched.lock().await;
        if let Some(token) = fetched.as_ref().filter(|token| token.expires > Instant::now() + AHEAD) {
            return Ok(token.text.clone());
        }
        let token = match &self.credentials {
            Credentials::ServiceAccount { email, key_id, private_key, token_uri } => {
                let claims = claims(email, token_uri);
                let assertion = signed(private_key, key_id.as_deref(), &claims).map_err(Failure::Credentials)?;
                self.of_assertion(http, token_uri, &assertion).await?
            }
            Credentials::ExternalAccount { token_file, audience, impersonation } => {
                let token = self.exchanged(http, token_file, audience).await?;
                match impersonation {
                    Some(path) => self.impersonated(http, path, &token.text).await?,
                    None => token,
                }
            }
        };
        Ok(fetched.insert(token).text.clone())
    }

    /// Forgets a token that Google refused.
    pub(super) async fn forget(&self, text: &str) {
        let mut fetched = self.fetched.lock().await;
        fetched.take_if(|token| token.text == text);
    }

    /// Exchanges the token in the file for one of Google.
    async fn exchanged(&self, http: &Http, file: &Path, audience: &str) -> Result<Token, Failure> {
        let subject = read_credential_file(file, &self.access.secrets.folders).await.map_err(Failure::Credentials)?;
        let pairs = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("audience", audience),
            ("scope", SCOPE),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token_type", TOKEN_TYPE),
            ("subject_token", subject.as_str()),
        ];
        let request = Request::form(&self.access.sts, &pairs);
        let answer: Issued =
            self.fetch(http, "the exchange of the workload identity token", &request, &subject).await?;
        Ok(answer.into())
    }

    /// Exchanges a token for one of a service account.
    async fn impersonated(&self, http: &Http, path: &str, token: &str) -> Result<Token, Failure> {
        let url = format!("{}{path}", self.access.iam.trim_end_matches('/'));
        let body = json!({ "scope": [SCOPE], "lifetime": format!("{LIFETIME}s") });
        let request =
            Request { method: Method::Post, url, token: Some(token), body: Some(body.to_string()), is_form: false };
        let answer: Impersonated =
            self.fetch(http, "the impersonation of the service account", &request, token).await?;
        let left = answer.expire_time.duration_since(jiff::Timestamp::now());
        Ok(Token { text: answer.access_token, expires: Instant::now() + left.try_into().unwrap_or_default() })
    }

    async fn of_assertion(&self, http: &Http, token_uri: &str, assertion: &str) -> Result<Token, Failure> {
        let pairs = [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", assertion)];
        let request = Request::form(token_uri, &pairs);
        let answer: Issued = self.fetch(http, "the token of the service account", &request, assertion).await?;
        Ok(answer.into())
    }

    /// The answer of a token endpoint. `sent` is what no text may contain.
    async fn fetch<T: DeserializeOwned>(
        &self,
        http: &Http,
        what: &str,
        request: &Request<'_>,
        sent: &str,
    ) -> Result<T, Failure> {
        let limiter = &self.limiters.login;
        let may_pass = |failure: &Failure| failure.code().is_transient();
        let answer = http.repeat(limiter, "token_get", || once(http, limiter, request), may_pass).await;
        answer.map_err(|failure| {
            let secret = SecretData([("sent".to_owned(), sent.as_bytes().to_vec())].into());
            Failure::Credentials(failure.error(what, &secret))
        })
    }
}

/// What a service account says to get a token.
fn claims(email: &str, token_uri: &str) -> serde_json::Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // Clocks differ a little.
    let issued = now.saturating_sub(10);
    json!({ "iss": email, "scope": SCOPE, "aud": token_uri, "iat": issued, "exp": issued + LIFETIME })
}

#[derive(Deserialize)]
struct Issued {
    access_token: String,
    /// In seconds.
    #[serde(default)]
    expires_in: u64,
}

impl From<Issued> for Token {
    fn from(issued: Issued) -> Self {
        Self { text: issued.access_token, expires: Instant::now() + Duration::from_secs(issued.expires_in.min(86_400)) }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: String,
    expire_time: jiff::Timestamp,
}
