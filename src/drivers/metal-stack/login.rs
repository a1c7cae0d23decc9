//! The Secret of a class: which metal-api, and with which credentials.

use reqwest::Url;

use super::hmac::Hmac;
use mcm_driver::{
    Code, DriverError, SecretData, SecretPolicy,
    cloud::{BearerToken, RequestAuthenticator, SecretReader},
};

const URL: &str = "metalAPIURL";
const TOKEN: &str = "metalAPIKey";
const HMAC: &str = "metalAPIHMac";

/// A token or a key.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Credentials {
    Token(String),
    Hmac(String),
}

/// An installation with credentials. A Secret with new ones is another login. There is no `Debug`, because of the credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Login {
    pub url: Url,
    credentials: Credentials,
}

impl Login {
    /// Reads a Secret. Credentials come from it alone, never from the process, and go to the host in the same Secret alone.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the Secret has no usable URL, or not exactly one of token and key.
    pub fn from_secret(secret: &SecretData, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        let refuse = |text: String| Err(DriverError::new(Code::InvalidArgument, text));
        let Some(url) = secrets.trimmed(&[URL]) else {
            return refuse(format!("the secret of the class has no {URL}"));
        };
        let credentials = match (secrets.trimmed(&[TOKEN]), secrets.trimmed(&[HMAC])) {
            (Some(token), None) => Credentials::Token(token),
            (None, Some(key)) => Credentials::Hmac(key),
            (None, None) => return refuse(format!("the secret of the class has neither {TOKEN} nor {HMAC}")),
            (Some(_), Some(_)) => {
                return refuse(format!("the secret of the class has {TOKEN} and {HMAC}: remove one of them"));
            }
        };
        Ok(Self { url: policy.check_own_url(URL, &url, None)?, credentials })
    }

    /// # Errors
    /// [`Code::InvalidArgument`]: the token cannot be sent.
    pub fn authentication(&self) -> Result<Box<dyn RequestAuthenticator>, DriverError> {
        Ok(match &self.credentials {
            Credentials::Token(token) => Box::new(BearerToken::new(TOKEN, token)?),
            Credentials::Hmac(key) => Box::new(Hmac::new(key)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const API: (&str, &str) = ("metalAPIURL", " https://api.example.com/metal\n");

    #[rstest]
    #[case::token(&[API, ("metalAPIKey", " token\n")], "")]
    #[case::hmac(&[API, ("metalAPIHMac", "key")], "")]
    #[case::an_empty_one_does_not_count(&[API, ("metalAPIHMac", "key"), ("metalAPIKey", "")], "")]
    #[case::both(&[API, ("metalAPIHMac", "key"), ("metalAPIKey", "token")], "metalAPIKey and metalAPIHMac: remove")]
    #[case::neither(&[API], "neither metalAPIKey nor metalAPIHMac")]
    #[case::blank(&[API, ("metalAPIKey", " \n")], "neither metalAPIKey nor metalAPIHMac")]
    #[case::no_url(&[("metalAPIKey", "token")], "no metalAPIURL")]
    #[case::without_tls(&[("metalAPIURL", "http://api.example.com"), ("metalAPIKey", "token")], "--allowed-cloud-endpoints")]
    #[case::no_header(&[API, ("metalAPIKey", "to\nken")], "metalAPIKey in the secret of the class is no token")]
    fn a_secret_has_a_url_and_one_kind_of_credentials(#[case] data: &[(&str, &str)], #[case] expected: &str) {
        let secret =
            SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect());
        let login = Login::from_secret(&secret, &mcm_driver::testing::secret_policy());
        match login.and_then(|login| login.authentication().map(|_| login.url)) {
            Ok(url) => assert_eq!((url.as_str(), expected), ("https://api.example.com/metal", "")),
            Err(error) => {
                assert!(error.message.contains(expected) && !expected.is_empty(), "{error}");
                assert_eq!(error.code, Code::InvalidArgument);
                assert!(!error.message.contains("to\nken"), "{error}");
            }
        }
    }
}
