//! The Secret of a class: which cluster and namespace, and with which credentials.

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{CloudFailure, RequestAuthenticator, SecretReader, TlsOptions, UnsignedRequest},
};
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};

use super::kubeconfig::{Cluster, Current, User};

const KUBECONFIG: &str = "kubeconfig";
const USER_DATA: &str = "userData";
const IMPERSONATED: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// An API server and a namespace with credentials. A Secret with new ones is another login. There is no `Debug`, because of the
/// credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    pub url: Url,
    /// VMs are in it.
    pub namespace: String,
    pub tls: TlsOptions,
    credentials: Credentials,
    impersonated: Option<(String, Vec<String>)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Credentials {
    /// A client certificate, or none.
    OfConnection,
    Token(String),
    Basic {
        user: String,
        password: String,
    },
}

impl Login {
    /// Reads a Secret. Credentials come from it alone, never from the process or its files.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the Secret has no usable kubeconfig.
    pub fn from_secret(secret: &SecretData, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let Some(text) = SecretReader(secret).trimmed(&[KUBECONFIG]) else {
            return Err(unusable("is missing"));
        };
        let Current { cluster, user, namespace } =
            Current::from_kubeconfig(&text).map_err(|reason| unusable(&reason))?;
        let tls = tls_of(&cluster, &user)?;
        let unverified = tls.is_insecure.then_some("insecure-skip-tls-verify of kubeconfig");
        let url = policy.check_own_url(KUBECONFIG, cluster.server.as_deref().unwrap_or_default(), unverified)?;
        Ok(Self { url, namespace, tls, credentials: credentials_of(&user), impersonated: impersonated_of(user) })
    }

    /// # Errors
    /// [`Code::InvalidArgument`]: the credentials cannot be sent.
    pub fn authentication(&self) -> Result<Box<dyn RequestAuthenticator>, DriverError> {
        let mut headers = HeaderMap::new();
        let value = |key: &str, text: &str| {
            HeaderValue::try_from(text).map_err(|_| unusable(&format!("has a value of {key} that cannot be sent")))
        };
        if let Some((key, text)) = self.authorization() {
            let mut value = value(key, &text)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some((user, groups)) = &self.impersonated {
            headers.insert(IMPERSONATED, value("as", user)?);
            for group in groups {
                headers.append(GROUP, value("as-groups", group)?);
            }
        }
        Ok(Box::new(Headers(headers)))
    }

    fn authorization(&self) -> Option<(&'static str, String)> {
        match &self.credentials {
            Credentials::OfConnection => None,
            Credentials::Token(token) => Some(("token", format!("Bearer {token}"))),
            Credentials::Basic { user, password } => {
                Some(("password", format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
            }
        }
    }

    /// A Secret with the credentials and the user data in each form in which an answer could quote them, for
    /// [`Failure::error`].
    pub fn secrets(&self, secret: &SecretData) -> SecretData {
        let mut all = secret.clone();
        let mut add = |key: &str, value: &str| drop(all.0.insert(key.to_owned(), value.as_bytes().to_vec()));
        match &self.credentials {
            Credentials::OfConnection => {}
            Credentials::Token(token) => add("token", token),
            Credentials::Basic { user, password } => {
                add("password", password);
                add("basic", &STANDARD.encode(format!("{user}:{password}")));
            }
        }
        if let Some((_, key)) = &self.tls.identity {
            add("client-key", key);
        }
        if let Some(data) = SecretReader(secret).raw(USER_DATA) {
            add("userdata", &STANDARD.encode(data));
        }
        all
    }
}

fn tls_of(cluster: &Cluster, user: &User) -> Result<TlsOptions, DriverError> {
    let ca = decoded("certificate-authority-data", cluster.certificate_authority_data.as_ref())?;
    let certificate = decoded("client-certificate-data", user.client_certificate_data.as_ref())?;
    let key = decoded("client-key-data", user.client_key_data.as_ref())?;
    let is_insecure = cluster.insecure_skip_tls_verify == Some(true);
    Ok(TlsOptions { ca, identity: certificate.zip(key), is_insecure })
}

/// A PEM text that is in Base64.
fn decoded(key: &str, text: Option<&String>) -> Result<Option<String>, DriverError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let plain: String = text.split_whitespace().collect();
    let bytes = STANDARD.decode(plain).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    bytes.map(Some).ok_or_else(|| unusable(&format!("has a value of {key} that is not PEM in Base64")))
}

fn credentials_of(user: &User) -> Credentials {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match (text(&user.token), text(&user.username), text(&user.password)) {
        (token, _, _) if !token.is_empty() => Credentials::Token(token),
        (_, user, password) if !user.is_empty() || !password.is_empty() => Credentials::Basic { user, password },
        _ => Credentials::OfConnection,
    }
}

fn impersonated_of(user: User) -> Option<(String, Vec<String>)> {
    let name = user.impersonated.filter(|name| !name.is_empty())?;
    Some((name, user.as_groups.unwrap_or_default()))
}

fn unusable(reason: &str) -> DriverError {
    DriverError::new(Code::InvalidArgument, format!("{KUBECONFIG} in the secret of the class {reason}"))
}

/// Headers that are the same for all requests.
struct Headers(HeaderMap);

#[async_trait]
impl RequestAuthenticator for Headers {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::kubeconfig_of;
    use mcm_driver::testing::secret_policy;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn login(server: &str, cluster: Value, user: Value) -> Result<Login, DriverError> {
        let text = kubeconfig_of(server, &cluster, &user);
        Login::from_secret(&SecretData([("kubeconfig".to_owned(), text.into_bytes())].into()), &secret_policy())
    }

    #[rstest]
    #[case::token(json!({"token": "top-secret"}), "")]
    #[case::basic(json!({"username": "u", "password": "top-secret"}), "")]
    #[case::nothing(json!({}), "")]
    #[case::no_header(json!({"token": "top-secret\nx"}), "has a value of token that cannot be sent")]
    #[case::no_base64(json!({"client-certificate-data": "top-secret", "client-key-data": "top-secret"}), "not PEM in Base64")]
    fn credentials_are_sent_or_refused_without_a_quote(#[case] user: Value, #[case] expected: &str) {
        let found =
            login("https://api.example.com", json!({}), user).and_then(|login| login.authentication().map(drop));
        let error = found.err().map(|error| error.message).unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
        assert!(!error.contains("top-secret"), "{error}");
    }

    #[rstest]
    #[case::with_tls("https://10.0.0.1:6443/path", json!({}), "")]
    #[case::allowed("http://127.0.0.1:8080", json!({}), "")]
    #[case::without_tls("http://api.example.com", json!({}), "--allowed-cloud-endpoints")]
    #[case::no_scheme("api.example.com", json!({}), "not an https URL")]
    #[case::with_a_password("https://user:password@api.example.com", json!({}), "not an https URL")]
    #[case::unverified("https://api.example.com", json!({"insecure-skip-tls-verify": true}), "insecure-skip-tls-verify of kubeconfig")]
    #[case::this_host("https://localhost:6443", json!({}), "--allowed-cloud-endpoints")]
    #[case::allowed_and_unverified("http://127.0.0.1:8080", json!({"insecure-skip-tls-verify": true}), "")]
    fn the_host_obeys_the_policy(#[case] server: &str, #[case] cluster: Value, #[case] expected: &str) {
        let error = login(server, cluster, json!({})).err().map(|error| error.message).unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{error}");
    }

    #[test]
    fn certificates_and_impersonation_are_part_of_a_login() {
        let data = |text: &str| STANDARD.encode(text);
        let user = json!({
            "client-certificate-data": data("cert"), "client-key-data": data("key"), "as": "a", "as-groups": ["g", "h"],
        });
        let login = login("https://a", json!({"certificate-authority-data": data("ca")}), user).ok().unwrap();
        assert_eq!(login.tls.ca.as_deref(), Some("ca"));
        assert_eq!(login.tls.identity, Some(("cert".to_owned(), "key".to_owned())));
        assert_eq!(login.impersonated, Some(("a".to_owned(), vec!["g".to_owned(), "h".to_owned()])));
    }
}
