//! JSON Web Tokens with PS256. A service account signs one to request an IAM token.

use mcm_driver::{
    Code, DriverError,
    cloud::{JwtAlgorithm, JwtKey},
};
use serde_json::Value;

/// The private key of a service account.
pub(crate) struct Signer(JwtKey);

impl Signer {
    /// Reads a key in PEM form. Lines before it are ignored: Yandex Cloud writes a warning there.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is not an RSA key of at least 2048 bits. The text does not quote it.
    pub(crate) fn from_pem(private_key: &str) -> Result<Self, DriverError> {
        JwtKey::from_pem(private_key).map(Self).ok_or_else(unusable)
    }

    /// The claims with a signature. `key` is the ID of the key.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the key cannot sign.
    pub(crate) fn signed(&self, key: &str, claims: &Value) -> Result<String, DriverError> {
        self.0.signed(JwtAlgorithm::Ps256, Some(key), claims).ok_or_else(unusable)
    }
}

fn unusable() -> DriverError {
    let message = "the private_key in the secret of the class is no RSA key of 2048 bits or more in PEM form";
    DriverError::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::no_pem("top-secret")]
    #[case::no_key("-----BEGIN PRIVATE KEY-----\ndG9wLXNlY3JldA==\n-----END PRIVATE KEY-----\n")]
    #[case::other_kind("-----BEGIN CERTIFICATE-----\ndG9wLXNlY3JldA==\n-----END CERTIFICATE-----\n")]
    fn a_key_that_cannot_sign_is_refused_without_a_quote(#[case] key: &str) {
        let error = Signer::from_pem(key).err().unwrap();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(!error.message.contains("top-secret") && !error.message.contains("dG9w"), "{error}");
    }
}
