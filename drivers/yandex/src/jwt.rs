//! JSON Web Tokens with PS256. A service account signs one to request an IAM token.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use mcm_driver::{Code, DriverError};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PSS_SHA256, RsaKeyPair},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

/// The private key of a service account.
pub(crate) struct Signer(RsaKeyPair);

impl Signer {
    /// Reads a key in PEM form. Lines before it are ignored: Yandex Cloud writes a warning there.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is not an RSA key of at least 2048 bits. The text does not quote it.
    pub(crate) fn of(private_key: &str) -> Result<Self, DriverError> {
        let key = match PrivateKeyDer::from_pem_slice(private_key.as_bytes()) {
            Ok(PrivateKeyDer::Pkcs8(key)) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
            Ok(PrivateKeyDer::Pkcs1(key)) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
            _ => None,
        };
        key.map(Self).ok_or_else(unusable)
    }

    /// The claims with a signature. `key` is the ID of the key.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the key cannot sign.
    pub(crate) fn signed(&self, key: &str, claims: &Value) -> Result<String, DriverError> {
        let header = json!({"alg": "PS256", "typ": "JWT", "kid": key});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let content = format!("{}.{}", part(&header), part(claims));
        let mut signature = vec![0; self.0.public().modulus_len()];
        let signed = self.0.sign(&RSA_PSS_SHA256, &SystemRandom::new(), content.as_bytes(), &mut signature);
        signed.map_err(|_| unusable())?;
        Ok(format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)))
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
        let error = Signer::of(key).err().unwrap();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(!error.message.contains("top-secret") && !error.message.contains("dG9w"), "{error}");
    }
}
