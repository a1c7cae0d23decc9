//! Public keys that belong to no private key. Azure requires a key if there is no password.

use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_driver::{Code, DriverError};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};

const ALGORITHM: &str = "ssh-ed25519";

/// A new key in the form of OpenSSH. Its private half is not kept.
///
/// # Errors
/// [`Code::Internal`]: the system has no random numbers.
pub(crate) fn throw_away_key() -> Result<String, DriverError> {
    let failed = |what: &str| DriverError::new(Code::Internal, format!("a public key cannot be made: {what}"));
    let pair =
        Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| failed("there are no random numbers"))?;
    let pair = Ed25519KeyPair::from_pkcs8(pair.as_ref()).map_err(|_| failed("it is refused"))?;
    let mut blob = field(ALGORITHM.as_bytes());
    blob.extend(field(pair.public_key().as_ref()));
    Ok(format!("{ALGORITHM} {}", STANDARD.encode(blob)))
}

/// A field of a key: its length in four bytes, and its bytes.
fn field(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or_default().to_be_bytes();
    length.into_iter().chain(bytes.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_another_in_the_form_of_openssh() {
        let (first, second) = (throw_away_key().unwrap(), throw_away_key().unwrap());
        assert_ne!(first, second);
        let text = first.strip_prefix("ssh-ed25519 ").unwrap();
        assert!(text.starts_with("AAAAC3NzaC1lZDI1NTE5AAAAI"), "as ssh-keygen writes it: {text}");
        assert_eq!(STANDARD.decode(text).unwrap().len(), 4 + 11 + 4 + 32);
    }
}
