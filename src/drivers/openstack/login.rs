//! The Secret of a class: which cloud, as whom, and with which TLS options.

use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{SecretReader, TlsOptions},
};
use reqwest::Url;
use serde_json::{Value, json};

const AUTH_URL: &str = "authURL";
const USER: &str = "username";
const PASSWORD: &str = "password";
const DOMAIN: [&str; 2] = ["domainName", "domainID"];
const USER_DOMAIN: [&str; 2] = ["userDomainName", "userDomainID"];
const PROJECT: [&str; 2] = ["tenantName", "tenantID"];
const APPLICATION: [&str; 2] = ["applicationCredentialName", "applicationCredentialID"];
const APPLICATION_SECRET: &str = "applicationCredentialSecret";
const CA: &str = "caCert";
const CERTIFICATE: &str = "clientCert";
const KEY: &str = "clientKey";
const INSECURE: &str = "insecure";
/// The versions of the identity API that a URL may end with.
const VERSIONS: [&str; 2] = ["v3", "v2.0"];

/// A resource of Keystone, by its name or ID, as requests hold it.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Named {
    Name(String),
    Id(String),
}

impl Named {
    /// The value of the first of two keys, or of the second. The reference reads names only, so a name takes precedence.
    fn from_keys(secrets: SecretReader<'_>, [name, id]: [&str; 2]) -> Option<Self> {
        secrets.trimmed(&[name]).map(Self::Name).or_else(|| secrets.trimmed(&[id]).map(Self::Id))
    }

    fn body(&self) -> Value {
        match self {
            Self::Name(name) => json!({"name": name}),
            Self::Id(id) => json!({"id": id}),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Credentials {
    Password {
        user: String,
        user_domain: Named,
        password: String,
        project: Named,
        project_domain: Option<Named>,
    },
    /// It names its project.
    Application {
        id: String,
        secret: String,
    },
    NamedApplication {
        name: String,
        user: String,
        user_domain: Named,
        secret: String,
    },
}

/// A cloud with credentials. A Secret with new ones is another login. There is no `Debug`, because of the credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    /// The identity API, without its version.
    pub url: Url,
    credentials: Credentials,
    pub tls: TlsOptions,
}

impl Login {
    /// Reads a Secret. Credentials come from it alone, never from the process, and go to the host in the same Secret alone.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the Secret has no usable URL, not exactly one kind of credentials, or TLS options that cannot be
    /// used.
    pub fn from_secret(secret: &SecretData, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        let (url, tls) = (required(secrets, &[AUTH_URL])?, tls(secrets)?);
        let url = policy.check_own_url(AUTH_URL, &url, unverified(&tls))?;
        Ok(Self { url: without_version(url), credentials: credentials(secrets)?, tls })
    }

    /// The request of a token.
    pub fn body(&self) -> Value {
        match &self.credentials {
            Credentials::Password { user, user_domain, password, project, project_domain } => {
                let mut scope = project.body();
                if let Some(domain) = project_domain {
                    scope["domain"] = domain.body();
                }
                let user = json!({"name": user, "password": password, "domain": user_domain.body()});
                let identity = json!({"methods": ["password"], "password": {"user": user}});
                json!({"auth": {"identity": identity, "scope": {"project": scope}}})
            }
            Credentials::Application { id, secret } => of_application(&json!({"id": id, "secret": secret})),
            Credentials::NamedApplication { name, user, user_domain, secret } => {
                let user = json!({"name": user, "domain": user_domain.body()});
                of_application(&json!({"name": name, "user": user, "secret": secret}))
            }
        }
    }
}

fn of_application(credential: &Value) -> Value {
    json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": credential}}})
}

fn credentials(secrets: SecretReader<'_>) -> Result<Credentials, DriverError> {
    let domain = || {
        let domain = Named::from_keys(secrets, DOMAIN);
        domain.ok_or_else(|| refused(format!("the secret of the class has no {}", DOMAIN.join(" or "))))
    };
    let user_domain = || Named::from_keys(secrets, USER_DOMAIN).map_or_else(domain, Ok);
    match (secrets.trimmed(&[PASSWORD]), secrets.trimmed(&[APPLICATION_SECRET])) {
        (Some(_), Some(_)) => {
            Err(refused(format!("the secret of the class has {PASSWORD} and {APPLICATION_SECRET}: remove one of them")))
        }
        (None, None) => {
            Err(refused(format!("the secret of the class has neither {PASSWORD} nor {APPLICATION_SECRET}")))
        }
        (Some(password), None) => {
            let project = Named::from_keys(secrets, PROJECT);
            let project =
                project.ok_or_else(|| refused(format!("the secret of the class has no {}", PROJECT.join(" or "))))?;
            // Only a project that is given by its name needs a domain.
            let project_domain = match &project {
                Named::Name(_) => Some(domain()?),
                Named::Id(_) => None,
            };
            let user = required(secrets, &[USER])?;
            Ok(Credentials::Password { user, user_domain: user_domain()?, password, project, project_domain })
        }
        (None, Some(secret)) => match secrets.trimmed(&[APPLICATION[1]]) {
            Some(id) => Ok(Credentials::Application { id, secret }),
            None => {
                let name = required(secrets, &APPLICATION)?;
                let user = required(secrets, &[USER])?;
                Ok(Credentials::NamedApplication { name, user, user_domain: user_domain()?, secret })
            }
        },
    }
}

fn tls(secrets: SecretReader<'_>) -> Result<TlsOptions, DriverError> {
    let is_insecure = match secrets.raw(INSECURE) {
        None | Some(b"false") => false,
        Some(b"true") => true,
        Some(_) => {
            return Err(refused(format!("{INSECURE} in the secret of the class is neither \"true\" nor \"false\"")));
        }
    };
    let identity = match secrets.trimmed(&[CERTIFICATE]) {
        Some(certificate) => Some((certificate, required(secrets, &[KEY])?)),
        None => None,
    };
    Ok(TlsOptions { ca: secrets.trimmed(&[CA]), identity, is_insecure })
}

/// The option that switches the verification of certificates off, if it is set.
pub(crate) fn unverified(tls: &TlsOptions) -> Option<&'static str> {
    tls.is_insecure.then_some(INSECURE)
}

fn required(secrets: SecretReader<'_>, keys: &[&str]) -> Result<String, DriverError> {
    let value = secrets.trimmed(keys);
    value.ok_or_else(|| refused(format!("the secret of the class has no {}", keys.join(" or "))))
}

/// Only the third version of the API is used, whether the URL ends with one or not.
fn without_version(mut url: Url) -> Url {
    let last = url.path_segments().and_then(|mut parts| parts.rfind(|part| !part.is_empty()));
    if last.is_some_and(|last| VERSIONS.contains(&last))
        && let Ok(mut parts) = url.path_segments_mut()
    {
        parts.pop_if_empty().pop();
    }
    url
}

fn refused(text: String) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const URL: (&str, &str) = ("authURL", " https://keystone.example.com/v3\n");
    const ALLOWED: (&str, &str) = ("authURL", "https://127.0.0.1:5000");
    const USER: (&str, &str) = ("username", "user");
    const DOMAIN: (&str, &str) = ("domainName", "domain");
    const PROJECT: (&str, &str) = ("tenantName", "project");
    const WORD: (&str, &str) = ("password", " word\n");

    fn login(data: &[(&str, &str)]) -> Result<Login, DriverError> {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        Login::from_secret(&SecretData(data.collect()), &mcm_driver::testing::secret_policy())
    }

    #[rstest]
    #[case::no_url(&[USER, DOMAIN, PROJECT, WORD], "no authURL")]
    #[case::without_tls(&[("authURL", "http://keystone.example.com"), USER, DOMAIN, PROJECT, WORD], "--allowed-cloud-endpoints")]
    #[case::no_credentials(&[URL, USER, DOMAIN, PROJECT], "neither password nor applicationCredentialSecret")]
    #[case::blank(&[URL, USER, DOMAIN, PROJECT, ("password", " ")], "neither password nor applicationCredentialSecret")]
    #[case::both(&[URL, USER, DOMAIN, PROJECT, WORD, ("applicationCredentialSecret", "s")], "password and applicationCredentialSecret: remove")]
    #[case::no_user(&[URL, DOMAIN, PROJECT, WORD], "no username")]
    #[case::no_domain(&[URL, USER, PROJECT, WORD], "no domainName or domainID")]
    #[case::no_project(&[URL, USER, DOMAIN, WORD], "no tenantName or tenantID")]
    #[case::no_application(&[URL, USER, DOMAIN, ("applicationCredentialSecret", "s")], "no applicationCredentialName or applicationCredentialID")]
    #[case::no_user_of_application(&[URL, DOMAIN, ("applicationCredentialSecret", "s"), ("applicationCredentialName", "n")], "no username")]
    #[case::insecure(&[URL, USER, DOMAIN, PROJECT, WORD, ("insecure", "yes")], "insecure in the secret of the class is neither")]
    #[case::unverified(&[URL, USER, DOMAIN, PROJECT, WORD, ("insecure", "true")], "insecure in the Secret of the class switches")]
    #[case::this_host(&[("authURL", "https://localhost:5000"), USER, DOMAIN, PROJECT, WORD], "--allowed-cloud-endpoints")]
    #[case::no_key(&[URL, USER, DOMAIN, PROJECT, WORD, ("clientCert", "c")], "no clientKey")]
    fn a_secret_that_cannot_be_used_is_refused(#[case] data: &[(&str, &str)], #[case] expected: &str) {
        let error = login(data).err().unwrap();
        assert!(error.message.contains(expected), "{error}");
        assert_eq!(error.code, Code::InvalidArgument);
    }

    #[rstest]
    #[case::names(
        &[USER, DOMAIN, PROJECT, WORD],
        json!({"identity": {"methods": ["password"], "password": {"user": {
            "name": "user", "password": "word", "domain": {"name": "domain"}}}},
            "scope": {"project": {"name": "project", "domain": {"name": "domain"}}}}),
    )]
    #[case::ids(
        &[USER, ("domainID", "d"), ("tenantID", "p"), WORD],
        json!({"identity": {"methods": ["password"], "password": {"user": {
            "name": "user", "password": "word", "domain": {"id": "d"}}}}, "scope": {"project": {"id": "p"}}}),
    )]
    #[case::names_come_before_ids(
        &[USER, DOMAIN, PROJECT, WORD, ("domainID", "d"), ("tenantID", "p")],
        json!({"identity": {"methods": ["password"], "password": {"user": {
            "name": "user", "password": "word", "domain": {"name": "domain"}}}},
            "scope": {"project": {"name": "project", "domain": {"name": "domain"}}}}),
    )]
    #[case::domain_of_the_user(
        &[USER, DOMAIN, PROJECT, WORD, ("userDomainID", "u")],
        json!({"identity": {"methods": ["password"], "password": {"user": {
            "name": "user", "password": "word", "domain": {"id": "u"}}}},
            "scope": {"project": {"name": "project", "domain": {"name": "domain"}}}}),
    )]
    #[case::application_by_id(
        &[("applicationCredentialSecret", "s"), ("applicationCredentialID", "i")],
        json!({"identity": {"methods": ["application_credential"], "application_credential": {"id": "i", "secret": "s"}}}),
    )]
    #[case::application_by_name(
        &[USER, DOMAIN, ("applicationCredentialSecret", "s"), ("applicationCredentialName", "n")],
        json!({"identity": {"methods": ["application_credential"], "application_credential": {
            "name": "n", "user": {"name": "user", "domain": {"name": "domain"}}, "secret": "s"}}}),
    )]
    fn each_kind_of_credentials_has_its_request(#[case] data: &[(&str, &str)], #[case] expected: Value) {
        let data: Vec<_> = data.iter().copied().chain([URL]).collect();
        assert_eq!(login(&data).ok().unwrap().body(), json!({"auth": expected}));
    }

    #[rstest]
    #[case("https://keystone.example.com", "https://keystone.example.com/")]
    #[case("https://keystone.example.com:5000/v3", "https://keystone.example.com:5000/")]
    #[case("https://example.com/identity/v3/", "https://example.com/identity")]
    #[case("https://example.com/identity/v2.0", "https://example.com/identity")]
    #[case("https://example.com/identity", "https://example.com/identity")]
    fn a_url_may_end_with_a_version(#[case] url: &str, #[case] expected: &str) {
        let login = login(&[("authURL", url), USER, DOMAIN, PROJECT, WORD]).ok().unwrap();
        assert_eq!(login.url.as_str(), expected);
    }

    #[test]
    fn tls_options_are_those_of_the_secret() {
        let tls = |data: &[(&str, &str)]| {
            let data: Vec<_> = [ALLOWED, USER, DOMAIN, PROJECT, WORD].iter().chain(data).copied().collect();
            login(&data).ok().unwrap().tls
        };
        assert!(tls(&[]) == TlsOptions::default());
        assert!(tls(&[("insecure", "false"), ("clientKey", "alone")]) == TlsOptions::default());
        let all = tls(&[("insecure", "true"), ("caCert", "ca"), ("clientCert", "cert"), ("clientKey", "key")]);
        let identity = Some(("cert".to_owned(), "key".to_owned()));
        assert!(all == TlsOptions { ca: Some("ca".to_owned()), identity, is_insecure: true });
    }
}
