//! Signatures with a key of an installation: an HMAC of the time, the method and a salt.

use async_trait::async_trait;
use jiff::Timestamp;
use rand::{Rng, distr::Alphanumeric};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use ring::hmac::{HMAC_SHA256, Key, sign};

use mcm_driver::cloud::{CloudFailure, RequestAuthenticator, UnsignedRequest};

/// The role of the key.
const ROLE: &str = "Metal-Admin";
const DATE: HeaderName = HeaderName::from_static("x-date");
const SALT: HeaderName = HeaderName::from_static("x-data-salt");
const SALT_LENGTH: usize = 24;

/// Signs requests. metal-api accepts a signature for 15 s, so clocks must agree.
pub(super) struct Hmac(Key);

impl Hmac {
    pub fn new(key: &str) -> Self {
        Self(Key::new(HMAC_SHA256, key.as_bytes()))
    }

    fn headers_at(&self, now: Timestamp, method: &str, salt: &str) -> Result<HeaderMap, CloudFailure> {
        let date = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let signature = sign(&self.0, format!("{date}{method}{salt}").as_bytes());
        let signature: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let value = |text: String| HeaderValue::try_from(text).map_err(|error| CloudFailure::Unsent(error.to_string()));
        let mut authorization = value(format!("{ROLE} {signature}"))?;
        authorization.set_sensitive(true);
        let headers = [(AUTHORIZATION, authorization), (DATE, value(date)?), (SALT, value(salt.to_owned())?)];
        Ok(headers.into_iter().collect())
    }
}

#[async_trait]
impl RequestAuthenticator for Hmac {
    async fn headers(&self, request: &UnsignedRequest<'_>) -> Result<HeaderMap, CloudFailure> {
        let salt: String = rand::rng().sample_iter(Alphanumeric).take(SALT_LENGTH).map(char::from).collect();
        self.headers_at(Timestamp::now(), request.method.as_str(), &salt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_time_method_and_salt() {
        let now = "2026-11-26T17:00:00.9Z".parse().unwrap();
        let headers = |method, salt| Hmac::new("secret").headers_at(now, method, salt).unwrap();
        let found = headers("POST", "0123456789abcdefghijklmn");
        assert_eq!(found[DATE], "2026-11-26T17:00:00Z");
        assert_eq!(found[SALT], "0123456789abcdefghijklmn");
        // python3: hmac.new(b"secret", b"2026-11-26T17:00:00ZPOST0123456789abcdefghijklmn", "sha256").hexdigest()
        assert_eq!(
            found[AUTHORIZATION],
            "Metal-Admin 7c352a61bab6885b0e91299c5ed5ba6fa3e0b44df1bba0daba075bf14aab7310"
        );
        assert_ne!(headers("GET", "0123456789abcdefghijklmn")[AUTHORIZATION], found[AUTHORIZATION]);
    }
}
