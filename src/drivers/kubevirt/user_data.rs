//! The user data of a VM.

use mcm_driver::{Code, DriverError, SecretData, cloud::SecretReader};

const USER_DATA: &str = "userData";
/// The key of cloud-config under which the keys of a class are.
const KEYS: &str = "ssh_authorized_keys:";
/// First line of user data that are a cloud-config.
const CLOUD_CONFIG: &str = "#cloud-config";

/// The user data with the SSH keys of a class at their end.
///
/// # Errors
/// [`Code::InvalidArgument`]: there are none, or they have SSH keys already.
pub(crate) fn user_data(secret: &SecretData, ssh_keys: &[String]) -> Result<Vec<u8>, DriverError> {
    let refuse = |text: String| Err(DriverError::new(Code::InvalidArgument, text));
    let Some(data) = SecretReader(secret).raw(USER_DATA).filter(|data| !data.is_empty()) else {
        return refuse(format!("the secret of the class has no {USER_DATA}"));
    };
    if ssh_keys.is_empty() {
        return Ok(data.to_vec());
    }
    if has_keys(data) {
        return refuse(format!(
            "{USER_DATA} in the secret of the class has {KEYS} already: remove sshKeys of the class"
        ));
    }
    let keys: String = ssh_keys.iter().map(|key| format!("- {}\n", key.trim())).collect();
    Ok([data, format!("\n{KEYS}\n{keys}").as_bytes()].concat())
}

/// Keys can be appended: only a cloud-config has a place for them.
pub(crate) fn takes_keys(secret: &SecretData) -> bool {
    SecretReader(secret).raw(USER_DATA).is_none_or(|data| data.is_empty() || data.starts_with(CLOUD_CONFIG.as_bytes()))
}

fn has_keys(data: &[u8]) -> bool {
    data.windows(KEYS.len()).any(|window| window == KEYS.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn with(data: &[u8], keys: &[&str]) -> Result<Vec<u8>, String> {
        let secret = SecretData([("userData".to_owned(), data.to_vec())].into());
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        user_data(&secret, &keys).map_err(|error| error.message)
    }

    #[rstest]
    #[case::as_they_are(b" #!/bin/sh\n\n", &[], b" #!/bin/sh\n\n")]
    #[case::binary(&[0xff, 0xfe], &[], &[0xff, 0xfe])]
    #[case::with_keys(b"#cloud-config", &[" ssh-rsa A a\n", "ssh-rsa B"], b"#cloud-config\nssh_authorized_keys:\n- ssh-rsa A a\n- ssh-rsa B\n")]
    fn keys_are_appended_and_nothing_else_changes(#[case] data: &[u8], #[case] keys: &[&str], #[case] expected: &[u8]) {
        assert_eq!(with(data, keys).unwrap(), expected);
    }

    #[rstest]
    #[case::keys_already(b"#cloud-config\nssh_authorized_keys:\n- x", &["ssh-rsa A"], "has ssh_authorized_keys: already")]
    #[case::none(b"", &[], "no userData")]
    fn user_data_that_cannot_be_used_are_refused(#[case] data: &[u8], #[case] keys: &[&str], #[case] expected: &str) {
        let error = with(data, keys).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
