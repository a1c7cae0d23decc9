//! JSON Web Tokens that are signed with an RSA key, with which a service account requests a token.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PSS with SHA-256.
    Ps256,
}

/// A private key that signs tokens. There is no `Debug`, because it is secret.
pub struct JwtKey(RsaKeyPair);

impl JwtKey {
    /// Reads a key in PEM form. Lines before it are ignored. `None` if it is not an RSA key of at least 2048 bits.
    pub fn from_pem(private_key: &str) -> Option<Self> {
        let key = match PrivateKeyDer::from_pem_slice(private_key.as_bytes()) {
            Ok(PrivateKeyDer::Pkcs8(key)) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
            Ok(PrivateKeyDer::Pkcs1(key)) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
            _ => None,
        };
        key.map(Self)
    }

    /// The claims with a signature. `key_id` is the ID of the key. `None` if the key cannot sign.
    pub fn signed(&self, algorithm: JwtAlgorithm, key_id: Option<&str>, claims: &Value) -> Option<String> {
        let (name, padding): (_, &dyn ring::signature::RsaEncoding) = match algorithm {
            JwtAlgorithm::Rs256 => ("RS256", &RSA_PKCS1_SHA256),
            JwtAlgorithm::Ps256 => ("PS256", &RSA_PSS_SHA256),
        };
        let mut header = json!({"alg": name, "typ": "JWT"});
        if let (Some(id), Some(header)) = (key_id, header.as_object_mut()) {
            header.insert("kid".to_owned(), id.into());
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let content = format!("{}.{}", part(&header), part(claims));
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0.sign(padding, &SystemRandom::new(), content.as_bytes(), &mut signature).ok()?;
        Some(format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::no_pem("top-secret")]
    #[case::no_key("-----BEGIN PRIVATE KEY-----\ndG9wLXNlY3JldA==\n-----END PRIVATE KEY-----\n")]
    #[case::other_kind("-----BEGIN CERTIFICATE-----\ndG9wLXNlY3JldA==\n-----END CERTIFICATE-----\n")]
    fn a_text_that_is_not_a_key_is_refused(#[case] key: &str) {
        assert!(JwtKey::from_pem(key).is_none());
    }
}
