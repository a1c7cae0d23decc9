//! JSON Web Tokens with RS256. A service account signs one to request a token.

use mcm_driver::{
    DriverError,
    cloud::{JwtAlgorithm, JwtKey},
    code::Code,
};
use serde_json::Value;

/// The claims, signed with a private key in PEM form.
///
/// # Errors
/// [`Code::Unauthenticated`]: the key is no RSA key of at least 2048 bits. The text does not quote it.
pub(super) fn signed(private_key: &str, key_id: Option<&str>, claims: &Value) -> Result<String, DriverError> {
    let signed = JwtKey::from_pem(private_key).and_then(|key| key.signed(JwtAlgorithm::Rs256, key_id, claims));
    signed.ok_or_else(|| {
        let message = "the private_key in the secret of the class is no RSA key of 2048 bits or more in PEM form";
        DriverError::new(Code::Unauthenticated, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::no_pem("top-secret")]
    #[case::no_key("-----BEGIN PRIVATE KEY-----\ndG9wLXNlY3JldA==\n-----END PRIVATE KEY-----\n")]
    #[case::other_kind("-----BEGIN CERTIFICATE-----\ndG9wLXNlY3JldA==\n-----END CERTIFICATE-----\n")]
    fn a_key_that_cannot_sign_is_told_without_a_quote(#[case] key: &str) {
        let error = signed(key, None, &json!({})).unwrap_err();
        assert_eq!(error.code, Code::Unauthenticated);
        assert!(!error.message.contains("secret-") && !error.message.contains("dG9w"), "{error}");
    }
}
