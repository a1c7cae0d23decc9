//! Credentials in the Secret of a class.

use std::fmt;

use crate::driver::{DriverError, SecretData, cloud::Secrets, code::Code};

/// Spellings of the access key; the last is that of the reference's sample, which the reference does not read.
const KEY_ID: [&str; 3] = ["providerAccessKeyId", "accessKeyID", "accessKeyId"];
const SECRET_KEY: [&str; 2] = ["providerSecretAccessKey", "secretAccessKey"];
const TOKEN_FILE: &str = "workloadIdentityTokenFile";
const ROLE_ARN: &str = "roleARN";

/// How calls are signed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Credentials {
    Static {
        key_id: String,
        secret_key: String,
    },
    /// A token in a file is exchanged for the credentials of a role, again whenever they expire.
    WebIdentity {
        token_file: String,
        role_arn: String,
    },
    /// Those of the process: environment, profile, instance.
    Ambient,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static { .. } => "Static",
            Self::WebIdentity { .. } => "WebIdentity",
            Self::Ambient => "Ambient",
        })
    }
}

impl Credentials {
    /// The credentials in a Secret.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: half of them is missing.
    pub(super) fn of(secret: &SecretData) -> Result<Self, DriverError> {
        let secrets = Secrets(secret);
        // Present is enough: an empty path must not fall back to other credentials.
        if secrets.has(TOKEN_FILE) {
            return match (secrets.trimmed(&[TOKEN_FILE]), secrets.trimmed(&[ROLE_ARN])) {
                (Some(token_file), Some(role_arn)) => Ok(Self::WebIdentity { token_file, role_arn }),
                _ => incomplete(&[TOKEN_FILE, ROLE_ARN]),
            };
        }
        match (secrets.trimmed(&KEY_ID), secrets.trimmed(&SECRET_KEY)) {
            (Some(key_id), Some(secret_key)) => Ok(Self::Static { key_id, secret_key }),
            (None, None) => Ok(Self::Ambient),
            _ => incomplete(&["accessKeyID", "secretAccessKey"]),
        }
    }
}

fn incomplete<T>(keys: &[&str]) -> Result<T, DriverError> {
    let message = format!("the secret of the class needs both of {}, not empty", keys.join(" and "));
    Err(DriverError::new(Code::InvalidArgument, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn secret(data: &[(&str, &str)]) -> SecretData {
        SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
    }

    fn keys(key_id: &str, secret_key: &str) -> Option<Credentials> {
        Some(Credentials::Static { key_id: key_id.to_owned(), secret_key: secret_key.to_owned() })
    }

    #[rstest]
    #[case(&[("providerAccessKeyId", "AK"), ("providerSecretAccessKey", "SK")], keys("AK", "SK"))]
    #[case(&[("accessKeyID", " AK\n"), ("secretAccessKey", "SK\n")], keys("AK", "SK"))]
    #[case::sample_of_the_reference(&[("accessKeyId", "AK"), ("secretAccessKey", "SK")], keys("AK", "SK"))]
    #[case::first_spelling_wins(&[("providerAccessKeyId", "1"), ("accessKeyID", "2"), ("providerSecretAccessKey", "3"), ("secretAccessKey", "4")], keys("1", "3"))]
    #[case::an_empty_one_does_not_hide_the_other(&[("providerAccessKeyId", ""), ("accessKeyID", "2"), ("secretAccessKey", "4")], keys("2", "4"))]
    #[case::workload_identity(&[("workloadIdentityTokenFile", "/t"), ("roleARN", "arn")], Some(Credentials::WebIdentity { token_file: "/t".into(), role_arn: "arn".into() }))]
    #[case::workload_identity_first(&[("workloadIdentityTokenFile", "/t"), ("roleARN", "arn"), ("accessKeyID", "AK"), ("secretAccessKey", "SK")], Some(Credentials::WebIdentity { token_file: "/t".into(), role_arn: "arn".into() }))]
    #[case::present_selects_workload_identity(&[("workloadIdentityTokenFile", ""), ("accessKeyID", "AK"), ("secretAccessKey", "SK")], None)]
    #[case(&[("workloadIdentityTokenFile", "/t")], None)]
    #[case::nothing(&[("userData", "x")], Some(Credentials::Ambient))]
    #[case::half(&[("accessKeyID", "AK")], None)]
    #[case::other_half(&[("secretAccessKey", "SK")], None)]
    fn credentials_have_several_forms(#[case] data: &[(&str, &str)], #[case] expected: Option<Credentials>) {
        let found = Credentials::of(&secret(data));
        assert_eq!(found.as_ref().ok(), expected.as_ref());
        if let Err(error) = found {
            assert_eq!(error.code, Code::InvalidArgument);
        }
    }

    #[test]
    fn credentials_are_not_printed() {
        let shown = format!("{:?}", keys("AKIDEXAMPLE", "hunter2"));
        assert!(!shown.contains("AKID") && !shown.contains("hunter2"), "{shown}");
    }
}
