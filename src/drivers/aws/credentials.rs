//! Credentials in the Secret of a class.

use std::{fmt, path::PathBuf};

use super::endpoint::DOMAINS;
use mcm_api::machine::MachineClass;
use mcm_driver::{DriverError, SecretData, SecretPolicy, cloud::SecretReader, code::Code};

/// Spellings of the access key; the last is that of the reference's sample, which the reference does not read.
const KEY_ID: [&str; 3] = ["providerAccessKeyId", "accessKeyID", "accessKeyId"];
const SECRET_KEY: [&str; 2] = ["providerSecretAccessKey", "secretAccessKey"];
const TOKEN_FILE: &str = "workloadIdentityTokenFile";
const ROLE_ARN: &str = "roleARN";
const ENDPOINT: &str = "endpointURL";
/// The keys of a Secret with credentials.
const NEEDED: &str = "accessKeyID with secretAccessKey, or workloadIdentityTokenFile with roleARN";

/// How calls are signed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Credentials {
    Static {
        key_id: String,
        secret_key: String,
    },
    /// A token in a file is exchanged for the credentials of a role, again whenever they expire.
    WebIdentity {
        token_file: PathBuf,
        role_arn: String,
    },
    /// Credentials of the process: environment, profile, instance. The operator allows them for some namespaces.
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
    /// The credentials in the Secret of a class. Keys without a value are missing.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: they are missing or not allowed.
    pub(super) fn from_secret(
        class: &MachineClass,
        secret: &SecretData,
        policy: &SecretPolicy,
    ) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        // Present is enough: an empty path must not fall back to other credentials.
        if secrets.has(TOKEN_FILE) {
            return match (secrets.trimmed(&[TOKEN_FILE]), secrets.trimmed(&[ROLE_ARN])) {
                (Some(file), Some(role_arn)) => Ok(Self::WebIdentity {
                    token_file: policy.for_class(class).check_file(TOKEN_FILE, &file)?,
                    role_arn,
                }),
                _ => incomplete(&[TOKEN_FILE, ROLE_ARN]),
            };
        }
        match (secrets.trimmed(&KEY_ID), secrets.trimmed(&SECRET_KEY)) {
            (Some(key_id), Some(secret_key)) => Ok(Self::Static { key_id, secret_key }),
            (None, None) if !has_any(secrets) => {
                policy.check_process_credentials(class, NEEDED)?;
                Ok(Self::Ambient)
            }
            _ => incomplete(&["accessKeyID", "secretAccessKey"]),
        }
    }

    /// The endpoint that a Secret names, if it names one.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is not allowed, or other credentials than those of the Secret would go there.
    pub(super) fn endpoint(&self, secret: &SecretData, policy: &SecretPolicy) -> Result<Option<String>, DriverError> {
        let Some(endpoint) = SecretReader(secret).endpoint() else { return Ok(None) };
        if !matches!(self, Self::Static { .. }) {
            let message =
                format!("{ENDPOINT} in the Secret of the class needs accessKeyID and secretAccessKey beside it");
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        policy.check_url(ENDPOINT, &endpoint, &DOMAINS)?;
        Ok(Some(endpoint))
    }
}

/// A Secret has a key of credentials, even without a value.
fn has_any(secrets: SecretReader<'_>) -> bool {
    KEY_ID.iter().chain(&SECRET_KEY).chain([&ROLE_ARN]).any(|key| secrets.has(key))
}

fn incomplete<T>(keys: &[&str]) -> Result<T, DriverError> {
    let message = format!("the secret of the class needs both of {}, not empty", keys.join(" and "));
    Err(DriverError::new(Code::InvalidArgument, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_api::machine::SecretRef;
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
    #[case::workload_identity(&[("workloadIdentityTokenFile", GARDENERS), ("roleARN", "arn")], web_identity())]
    #[case::workload_identity_first(&[("workloadIdentityTokenFile", GARDENERS), ("roleARN", "arn"), ("accessKeyID", "AK"), ("secretAccessKey", "SK")], web_identity())]
    #[case::present_selects_workload_identity(&[("workloadIdentityTokenFile", ""), ("accessKeyID", "AK"), ("secretAccessKey", "SK")], None)]
    #[case(&[("workloadIdentityTokenFile", GARDENERS)], None)]
    #[case::other_file(&[("workloadIdentityTokenFile", "/var/run/secrets/kubernetes.io/serviceaccount/token"), ("roleARN", "arn")], None)]
    #[case::nothing(&[("userData", "x")], None)]
    #[case::empty(&[("accessKeyID", ""), ("secretAccessKey", " ")], None)]
    #[case::role_alone(&[("roleARN", "arn")], None)]
    #[case::half(&[("accessKeyID", "AK")], None)]
    #[case::other_half(&[("secretAccessKey", "SK")], None)]
    fn credentials_have_several_forms(#[case] data: &[(&str, &str)], #[case] expected: Option<Credentials>) {
        let found = Credentials::from_secret(&MachineClass::default(), &secret(data), &SecretPolicy::default());
        assert_eq!(found.as_ref().ok(), expected.as_ref());
        if let Err(error) = found {
            assert_eq!(error.code, Code::InvalidArgument);
        }
    }

    const GARDENERS: &str = "/var/run/secrets/gardener.cloud/workload-identity/token";

    fn web_identity() -> Option<Credentials> {
        Some(Credentials::WebIdentity { token_file: GARDENERS.into(), role_arn: "arn".into() })
    }

    fn all_namespaces() -> SecretPolicy {
        SecretPolicy { process_credentials: vec!["*".to_owned()], ..SecretPolicy::default() }
    }

    #[rstest]
    #[case::user_data_only(&[("userData", "x")], None, Some(Credentials::Ambient))]
    #[case::a_named_secret_without_keys(&[("userData", "x")], Some("cloudprovider"), None)]
    #[case::empty_keys(&[("accessKeyID", ""), ("secretAccessKey", "")], None, None)]
    #[case::an_empty_role(&[("roleARN", "")], None, None)]
    fn credentials_of_the_process_serve_only_classes_without_credentials(
        #[case] data: &[(&str, &str)],
        #[case] named: Option<&str>,
        #[case] expected: Option<Credentials>,
    ) {
        let credentials_secret_ref = named.map(|name| SecretRef { name: name.into(), ..SecretRef::default() });
        let class = MachineClass { credentials_secret_ref, ..MachineClass::default() };
        assert_eq!(Credentials::from_secret(&class, &secret(data), &all_namespaces()).ok(), expected);
    }

    #[rstest]
    #[case::own("/wi/team-b/token", true)]
    #[case::of_another("/wi/team-a/token", false)]
    #[case::of_the_process("/wi/token", false)]
    fn of_several_namespaces_each_names_its_token(#[case] file: &str, #[case] is_allowed: bool) {
        let policy = SecretPolicy { folders: vec!["/wi".into()], confines_files: true, ..SecretPolicy::default() };
        let mut class = MachineClass::default();
        class.metadata.namespace = Some("team-b".to_owned());
        let found = Credentials::from_secret(
            &class,
            &secret(&[("workloadIdentityTokenFile", file), ("roleARN", "arn")]),
            &policy,
        );
        assert_eq!(found.is_ok(), is_allowed, "{found:?}");
    }

    #[rstest]
    #[case::with_keys(&[("accessKeyID", "AK"), ("secretAccessKey", "SK")], true)]
    #[case::with_a_role(&[("workloadIdentityTokenFile", GARDENERS), ("roleARN", "arn")], false)]
    #[case::with_nothing(&[], false)]
    fn an_endpoint_gets_no_credentials_but_those_beside_it(#[case] data: &[(&str, &str)], #[case] is_allowed: bool) {
        let mut secret = secret(data);
        secret.0.insert("endpointURL".to_owned(), b"https://ec2.eu-west-1.amazonaws.com".to_vec());
        let policy = all_namespaces();
        let credentials = Credentials::from_secret(&MachineClass::default(), &secret, &policy).unwrap();
        assert_eq!(credentials.endpoint(&secret, &policy).is_ok(), is_allowed);
    }

    #[test]
    fn credentials_are_not_printed() {
        let shown = format!("{:?}", keys("AKIDEXAMPLE", "hunter2"));
        assert!(!shown.contains("AKID") && !shown.contains("hunter2"), "{shown}");
    }
}
