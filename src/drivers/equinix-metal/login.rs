//! The Secret of a class: which API, and with which token.

use async_trait::async_trait;
use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{CloudFailure, RequestAuthenticator, SecretReader, UnsignedRequest},
};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

/// The reference accepts the second, and never reads it.
const TOKEN: [&str; 2] = ["apiToken", "alternateApiToken"];
const ENDPOINT: &str = "endpointURL";
const DOMAIN: &str = "api.equinix.com";
const API: &str = "https://api.equinix.com/metal/v1";
const HEADER: HeaderName = HeaderName::from_static("x-auth-token");

/// An API with a token. A Secret with a new one is another login. There is no `Debug`, because of the token.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    pub url: Url,
    token: String,
}

impl Login {
    /// Reads a Secret. The token is that of the Secret, never that of the process.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the Secret has no token, or a URL that is not allowed.
    pub fn from_secret(secret: &SecretData, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        let refuse = |text: String| DriverError::new(Code::InvalidArgument, text);
        let [first, second] = TOKEN;
        let token = secrets
            .trimmed(&TOKEN)
            .ok_or_else(|| refuse(format!("the secret of the class has neither {first} nor {second}")))?;
        let endpoint = secrets.endpoint();
        if let Some(url) = &endpoint {
            policy.check_url(ENDPOINT, url, &[DOMAIN])?;
        }
        let url = Url::parse(endpoint.as_deref().unwrap_or(API));
        Ok(Self { url: url.map_err(|error| refuse(format!("{ENDPOINT} is no URL: {error}")))?, token })
    }

    /// # Errors
    /// [`Code::InvalidArgument`]: no header can hold the token.
    pub fn authentication(&self) -> Result<Token, DriverError> {
        let mut value = HeaderValue::try_from(&self.token).map_err(|_| {
            let message = format!("{} in the secret of the class is no token", TOKEN[0]);
            DriverError::new(Code::InvalidArgument, message)
        })?;
        value.set_sensitive(true);
        Ok(Token([(HEADER, value)].into_iter().collect()))
    }
}

/// The header with the token, which does not expire.
pub(crate) struct Token(HeaderMap);

#[async_trait]
impl RequestAuthenticator for Token {
    async fn headers(&self, _: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::usual(&[("apiToken", " token\n")], Ok(API))]
    #[case::other_spelling(&[("alternateApiToken", "token")], Ok(API))]
    #[case::an_empty_one_does_not_hide_the_next(&[("apiToken", " "), ("alternateApiToken", "token")], Ok(API))]
    #[case::another_path(&[("apiToken", "token"), ("endpointURL", "https://api.equinix.com/metal/v2")], Ok("https://api.equinix.com/metal/v2"))]
    #[case::none(&[("userData", "x")], Err("neither apiToken nor alternateApiToken"))]
    #[case::blank(&[("apiToken", "\n")], Err("neither apiToken nor alternateApiToken"))]
    #[case::elsewhere(&[("apiToken", "token"), ("endpointURL", "https://api.example.com")], Err("--allowed-cloud-endpoints"))]
    #[case::without_tls(&[("apiToken", "token"), ("endpointURL", "http://api.equinix.com/metal/v1")], Err("--allowed-cloud-endpoints"))]
    #[case::no_header(&[("apiToken", "to\nken")], Err("apiToken in the secret of the class is no token"))]
    fn a_secret_has_a_token_and_maybe_a_url(#[case] data: &[(&str, &str)], #[case] expected: Result<&str, &str>) {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        let login = Login::from_secret(&SecretData(data.collect()), &SecretPolicy::default());
        let found = login.and_then(|login| {
            let headers = login.authentication()?.0;
            assert!(headers[HEADER].is_sensitive());
            assert_eq!(headers[HEADER], "token");
            Ok(login.url)
        });
        match (found, expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url.as_str(), expected),
            (Err(error), Err(expected)) => {
                assert!(error.message.contains(expected) && error.code == Code::InvalidArgument, "{error}");
                assert!(!error.message.contains("to\nken"), "{error}");
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
}
