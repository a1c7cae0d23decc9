//! JSON Web Tokens with RS256. A service account signs one to request a token.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

use mcm_driver::{DriverError, code::Code};

/// The claims, signed with a private key in PEM form.
///
/// # Errors
/// [`Code::Unauthenticated`]: the key is no RSA key of at least 2048 bits. The text does not quote it.
pub(super) fn signed(private_key: &str, key_id: Option<&str>, claims: &Value) -> Result<String, DriverError> {
    let unusable = || {
        let message = "the private_key in the secret of the class is no RSA key of 2048 bits or more in PEM form";
        DriverError::new(Code::Unauthenticated, message)
    };
    let key = match PrivateKeyDer::from_pem_slice(private_key.as_bytes()) {
        Ok(PrivateKeyDer::Pkcs8(key)) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
        Ok(PrivateKeyDer::Pkcs1(key)) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
        _ => None,
    };
    let key = key.ok_or_else(unusable)?;
    let mut header = json!({ "alg": "RS256", "typ": "JWT" });
    if let (Some(id), Some(header)) = (key_id, header.as_object_mut()) {
        header.insert("kid".to_owned(), id.into());
    }
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let content = format!("{}.{}", part(&header), part(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), content.as_bytes(), &mut signature).map_err(|_| unusable())?;
    Ok(format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

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
