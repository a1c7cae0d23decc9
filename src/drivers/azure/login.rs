//! The Secret of a class: which account, and with which credentials.

use std::path::PathBuf;

use mcm_driver::{Code, DriverError, SecretData, SecretPolicy, cloud::SecretReader};
use reqwest::Url;

use crate::clouds::{API_HOSTS, Cloud, LOGIN_HOSTS};

const CLIENT: [&str; 2] = ["clientID", "azureClientId"];
const TENANT: [&str; 2] = ["tenantID", "azureTenantId"];
const SUBSCRIPTION: [&str; 2] = ["subscriptionID", "azureSubscriptionId"];
const CLIENT_SECRET: [&str; 2] = ["clientSecret", "azureClientSecret"];
const TOKEN_FILE: &str = "workloadIdentityTokenFile";
const ENDPOINT: &str = "endpointURL";
const AUTHORITY: &str = "authorityURL";

/// The proof that the application sent a request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Credentials {
    Secret(String),
    /// A file with a token of another issuer, which the application trusts. It is read for each login.
    TokenFile(PathBuf),
}

/// An application of a tenant, with access to a subscription. A Secret with new credentials is another login. There is no
/// `Debug`, because of the credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Login {
    pub cloud: &'static Cloud,
    pub tenant: String,
    pub client: String,
    pub subscription: String,
    pub credentials: Credentials,
    /// Where tokens come from.
    pub authority: Url,
    /// The Resource Manager.
    pub api: Url,
}

impl Login {
    /// Reads a Secret. Credentials come from it alone, never from the process.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: a key is missing, the Secret has not exactly one of secret and token file, or it names a host
    /// or a file that is not allowed.
    pub fn from_secret(secret: &SecretData, cloud: &'static Cloud, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        let required = |keys: &[&str]| {
            let missing = || refused(format!("the secret of the class has no {}", keys.join(" or ")));
            secrets.trimmed(keys).ok_or_else(missing)
        };
        let (client, tenant, subscription) = (required(&CLIENT)?, required(&TENANT)?, required(&SUBSCRIPTION)?);
        let credentials = match (secrets.trimmed(&CLIENT_SECRET), secrets.trimmed(&[TOKEN_FILE])) {
            (Some(secret), None) => Credentials::Secret(secret),
            (None, Some(file)) => Credentials::TokenFile(policy.check_file(TOKEN_FILE, &file)?),
            (None, None) => {
                return Err(refused(format!(
                    "the secret of the class has neither {} nor {TOKEN_FILE}",
                    CLIENT_SECRET[0]
                )));
            }
            (Some(_), Some(_)) => {
                let text =
                    format!("the secret of the class has {} and {TOKEN_FILE}: remove one of them", CLIENT_SECRET[0]);
                return Err(refused(text));
            }
        };
        let authority = endpoint(&secrets, AUTHORITY, cloud.login, &LOGIN_HOSTS, &credentials, policy)?;
        let api = endpoint(&secrets, ENDPOINT, cloud.api, &API_HOSTS, &credentials, policy)?;
        Ok(Self { cloud, tenant, client, subscription, credentials, authority, api })
    }
}

/// The URL of a service: that of the cloud, or of a private cloud with its API.
fn endpoint(
    secrets: &SecretReader<'_>,
    key: &str,
    default: &str,
    hosts: &[&str],
    credentials: &Credentials,
    policy: &SecretPolicy,
) -> Result<Url, DriverError> {
    let given = secrets.trimmed(&[key]);
    if let Some(url) = &given {
        if matches!(credentials, Credentials::TokenFile(_)) {
            return Err(refused(format!(
                "the secret of the class: {key} is for clientSecret only, because tokens of mcm's own identity would go there"
            )));
        }
        policy.check_url(key, url, hosts)?;
    }
    let url = given.as_deref().unwrap_or(default);
    Url::parse(url).map_err(|_| refused(format!("{key} in the secret of the class is no URL")))
}

fn refused(text: String) -> DriverError {
    DriverError::new(Code::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clouds::{CLOUDS, PUBLIC};
    use mcm_api::machine::MachineClass;
    use mcm_driver::testing::secret_policy;
    use rstest::rstest;

    const IDS: [(&str, &str); 3] =
        [("clientID", " client\n"), ("tenantID", "tenant"), ("subscriptionID", "subscription")];
    const OLD_IDS: [(&str, &str); 3] =
        [("azureClientId", "client"), ("azureTenantId", "tenant"), ("azureSubscriptionId", "subscription")];

    fn secret(ids: &[(&str, &str)], more: &[(&str, &str)]) -> SecretData {
        SecretData(ids.iter().chain(more).map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
    }

    #[rstest]
    #[case::secret(&IDS, &[("clientSecret", " hunter2\n")], "")]
    #[case::older_spellings(&OLD_IDS, &[("azureClientSecret", "hunter2")], "")]
    #[case::an_empty_one_does_not_hide_the_next(&IDS, &[("clientSecret", ""), ("azureClientSecret", "hunter2")], "")]
    #[case::no_ids(&[], &[("clientSecret", "hunter2")], "no clientID or azureClientId")]
    #[case::no_tenant(&[IDS[0], IDS[2]], &[("clientSecret", "hunter2")], "no tenantID or azureTenantId")]
    #[case::no_subscription(&[IDS[0], IDS[1]], &[("clientSecret", "hunter2")], "no subscriptionID or azureSubscriptionId")]
    #[case::no_credentials(&IDS, &[], "neither clientSecret nor workloadIdentityTokenFile")]
    #[case::blank(&IDS, &[("clientSecret", " \n")], "neither clientSecret nor workloadIdentityTokenFile")]
    #[case::both(&IDS, &[("clientSecret", "hunter2"), ("workloadIdentityTokenFile", "/tmp/a")], "remove one of them")]
    #[case::file_elsewhere(&IDS, &[("workloadIdentityTokenFile", "/etc/shadow")], "--credential-files-folder")]
    #[case::host_elsewhere(&IDS, &[("clientSecret", "hunter2"), ("endpointURL", "https://example.com")], "--allowed-cloud-endpoints")]
    #[case::login_elsewhere(&IDS, &[("clientSecret", "hunter2"), ("authorityURL", "http://10.0.0.1/")], "--allowed-cloud-endpoints")]
    fn a_secret_has_three_ids_and_one_kind_of_credentials(
        #[case] ids: &[(&str, &str)],
        #[case] more: &[(&str, &str)],
        #[case] expected: &str,
    ) {
        match Login::from_secret(&secret(ids, more), PUBLIC, &SecretPolicy::default()) {
            Ok(login) => {
                assert_eq!(expected, "");
                assert_eq!(
                    (&*login.client, &*login.tenant, &*login.subscription),
                    ("client", "tenant", "subscription")
                );
                assert!(login.credentials == Credentials::Secret("hunter2".to_owned()));
                assert_eq!(login.api.as_str(), "https://management.azure.com/");
            }
            Err(error) => {
                assert!(error.message.contains(expected) && !expected.is_empty(), "{error}");
                assert_eq!(error.code, Code::InvalidArgument);
                assert!(!error.message.contains("hunter2"), "{error}");
            }
        }
    }

    #[test]
    fn each_cloud_has_its_hosts() {
        for cloud in CLOUDS {
            let login =
                Login::from_secret(&secret(&IDS, &[("clientSecret", "hunter2")]), cloud, &SecretPolicy::default()).ok();
            let login = login.unwrap();
            assert_eq!((login.authority.as_str(), login.api.as_str()), (cloud.login, &*format!("{}/", cloud.api)));
        }
    }

    #[rstest]
    #[case::own("/wi/team-b/token", true)]
    #[case::of_another("/wi/team-a/token", false)]
    #[case::of_the_process("/wi/token", false)]
    fn of_several_namespaces_each_names_its_token(#[case] file: &str, #[case] is_allowed: bool) {
        let policy = SecretPolicy { folders: vec!["/wi".into()], confines_files: true, ..SecretPolicy::default() };
        let mut class = MachineClass::default();
        class.metadata.namespace = Some("team-b".to_owned());
        let secret = secret(&IDS, &[("workloadIdentityTokenFile", file)]);
        let login = Login::from_secret(&secret, PUBLIC, &policy.for_class(&class));
        assert_eq!(login.is_ok(), is_allowed);
        assert!(login.err().is_none_or(|error| error.code == Code::InvalidArgument));
    }

    #[test]
    fn the_token_of_the_process_goes_to_no_other_host() {
        let file = std::env::temp_dir().join("token");
        let file = ("workloadIdentityTokenFile", file.to_str().unwrap());
        let policy = secret_policy();
        assert!(Login::from_secret(&secret(&IDS, &[file]), PUBLIC, &policy).is_ok());
        for key in ["endpointURL", "authorityURL"] {
            let error =
                Login::from_secret(&secret(&IDS, &[file, (key, "http://127.0.0.1:1")]), PUBLIC, &policy).err().unwrap();
            assert!(error.message.contains("is for clientSecret only"), "{error}");
        }
    }
}
