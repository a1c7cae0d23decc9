//! Credentials in the Secret of a class, in the forms that Gardener's driver takes.

use std::{fmt, path::PathBuf};

use serde_json::{Map, Value};

use super::names::is_project;
use mcm_driver::{DriverError, SecretData, SecretPolicy, cloud::SecretReader, code::Code};

/// Spellings of the key with the credentials.
const KEYS: [&str; 3] = ["serviceAccountJSON", "serviceaccount.json", "credentialsConfig"];
const PROJECT: &str = "projectID";

/// The fields that a service account may have.
const SERVICE_ACCOUNT_FIELDS: [&str; 11] = [
    "type",
    "project_id",
    "client_email",
    "universe_domain",
    "auth_uri",
    "auth_provider_x509_cert_url",
    "client_x509_cert_url",
    "client_id",
    "private_key_id",
    "private_key",
    "token_uri",
];
/// The only universe whose endpoints the driver calls.
const UNIVERSE: &str = "googleapis.com";
/// The source of tokens of service accounts, unless the account names another.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

/// Where Google is.
const DOMAINS: [&str; 2] = ["googleapis.com", "accounts.google.com"];
/// Required values of an external account. The token of the process is sent to this URL, so no Secret can choose another one.
pub(super) const STS_URL: &str = "https://sts.googleapis.com/v1/token";
pub(super) const TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:jwt";
/// Host of the impersonation of a service account, and the path around its name.
pub(super) const IAM_HOST: &str = "https://iamcredentials.googleapis.com";
const IAM_PATH: (&str, &str) = ("/v1/projects/-/serviceAccounts/", ":generateAccessToken");

/// How a token for calls is had.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Credentials {
    /// A key signs a request for a token.
    ServiceAccount { email: String, key_id: Option<String>, private_key: String, token_uri: String },
    /// A token in a file is exchanged for one of Google, and that for one of a service account, if one is named by its path.
    ExternalAccount { token_file: PathBuf, audience: String, impersonation: Option<String> },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServiceAccount { .. } => "ServiceAccount",
            Self::ExternalAccount { .. } => "ExternalAccount",
        })
    }
}

/// The contents of a Secret that give access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub project: String,
    pub credentials: Credentials,
    /// The endpoint of a private cloud.
    pub endpoint: Option<String>,
}

impl Login {
    /// The credentials and the project in a Secret.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: they are missing, incomplete, or of a form that is not allowed.
    pub(super) fn from_secret(secret: &SecretData, policy: &SecretPolicy) -> Result<Self, DriverError> {
        let secrets = SecretReader(secret);
        let Some(text) = secrets.trimmed(&KEYS) else {
            return refuse(format!("the secret of the class needs one of {}", KEYS.join(", ")));
        };
        // An error of the parser could quote the credentials.
        let Ok(fields) = serde_json::from_str::<Map<String, Value>>(&text) else {
            return refuse("the credentials in the secret of the class are no JSON object");
        };
        let credentials = match text_of(&fields, "type") {
            "service_account" => service_account(&fields, policy)?,
            "external_account" => external_account(&fields, policy)?,
            _ => {
                return refuse(
                    "the credentials in the secret of the class: type is service_account or external_account",
                );
            }
        };
        let endpoint = secrets.endpoint();
        if endpoint.is_some() && matches!(credentials, Credentials::ExternalAccount { .. }) {
            return refuse(
                "the secret of the class: endpointURL is for service accounts only, because tokens of mcm's own \
                           identity would go there",
            );
        }
        if let Some(url) = &endpoint {
            policy.check_url("endpointURL", url, &DOMAINS)?;
        }
        // The project of an account is often another one than that of the VMs.
        let project = secrets.trimmed(&[PROJECT]).unwrap_or_else(|| text_of(&fields, "project_id").to_owned());
        if !is_project(&project) {
            return refuse(format!("the secret of the class names no project: set the key {PROJECT} or project_id"));
        }
        Ok(Self { project, credentials, endpoint })
    }
}

fn service_account(fields: &Map<String, Value>, policy: &SecretPolicy) -> Result<Credentials, DriverError> {
    let is_allowed =
        |(name, value): (&String, &Value)| SERVICE_ACCOUNT_FIELDS.contains(&name.as_str()) && value.is_string();
    if !fields.iter().all(is_allowed) {
        let allowed = SERVICE_ACCOUNT_FIELDS.join(", ");
        return refuse(format!(
            "the service account in the secret of the class may only have texts in the fields {allowed}"
        ));
    }
    if !["", UNIVERSE].contains(&text_of(fields, "universe_domain")) {
        return refuse(format!(
            "the service account in the secret of the class: universe_domain must be {UNIVERSE}; endpointURL names the \
             endpoint of another cloud"
        ));
    }
    for name in ["project_id", "client_email", "private_key"] {
        if text_of(fields, name).is_empty() {
            return refuse(format!("the service account in the secret of the class has no {name}"));
        }
    }
    let owned = |name| Some(text_of(fields, name).to_owned()).filter(|text| !text.is_empty());
    let token_uri = owned("token_uri").unwrap_or_else(|| TOKEN_URI.to_owned());
    policy.check_url("token_uri", &token_uri, &DOMAINS)?;
    Ok(Credentials::ServiceAccount {
        email: text_of(fields, "client_email").to_owned(),
        key_id: owned("private_key_id"),
        private_key: text_of(fields, "private_key").to_owned(),
        token_uri,
    })
}

fn external_account(fields: &Map<String, Value>, policy: &SecretPolicy) -> Result<Credentials, DriverError> {
    let source = fields.get("credential_source").and_then(Value::as_object);
    let file = source.map_or("", |source| text_of(source, "file"));
    let fixed = [
        ("token_url", text_of(fields, "token_url"), STS_URL),
        ("subject_token_type", text_of(fields, "subject_token_type"), TOKEN_TYPE),
    ];
    for (name, found, expected) in fixed {
        if found.trim() != expected {
            return refuse(format!("the external account in the secret of the class: {name} must be {expected}"));
        }
    }
    let token_file = policy.check_file("credential_source.file", file.trim())?;
    let audience = text_of(fields, "audience").to_owned();
    if audience.is_empty() {
        return refuse("the external account in the secret of the class has no audience");
    }
    let impersonation = match text_of(fields, "service_account_impersonation_url") {
        "" => None,
        url => Some(impersonation_path(url)?),
    };
    Ok(Credentials::ExternalAccount { token_file, audience, impersonation })
}

/// The path of a URL that impersonates a service account.
fn impersonation_path(url: &str) -> Result<String, DriverError> {
    let (before, after) = IAM_PATH;
    let path = url.strip_prefix(IAM_HOST);
    let account = path.and_then(|path| path.strip_prefix(before)?.strip_suffix(after));
    let is_account = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"@.-_:".contains(&byte));
    match (path, account) {
        (Some(path), Some(account)) if !account.is_empty() && is_account(account) => Ok(path.to_owned()),
        _ => refuse(format!(
            "the external account in the secret of the class: service_account_impersonation_url must be \
             {IAM_HOST}{before}NAME{after}"
        )),
    }
}

fn text_of<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn refuse<T>(text: impl Into<String>) -> Result<T, DriverError> {
    Err(DriverError::new(Code::InvalidArgument, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn secret(data: &[(&str, &str)]) -> SecretData {
        SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
    }

    const TOKEN_FILE: &str = "/var/run/secrets/gardener.cloud/workload-identity/token";

    fn login(data: &[(&str, &str)]) -> Result<Login, DriverError> {
        let endpoints = vec!["sts.example.com".parse().unwrap()];
        Login::from_secret(&secret(data), &SecretPolicy { endpoints, ..SecretPolicy::default() })
    }

    fn account(changes: Value) -> String {
        let mut account = json!({
            "type": "service_account", "project_id": "p", "client_email": "mcm@p.example.com", "private_key": "top-secret",
        });
        account.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        account.to_string()
    }

    fn external(changes: Value) -> String {
        let mut account = json!({
            "type": "external_account", "project_id": "p", "audience": "a", "token_url": STS_URL,
            "subject_token_type": TOKEN_TYPE, "credential_source": {"file": TOKEN_FILE},
        });
        account.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        account.to_string()
    }

    fn of_service_account() -> Credentials {
        Credentials::ServiceAccount {
            email: "mcm@p.example.com".to_owned(),
            key_id: None,
            private_key: "top-secret".to_owned(),
            token_uri: TOKEN_URI.to_owned(),
        }
    }

    #[rstest]
    #[case("serviceAccountJSON")]
    #[case("serviceaccount.json")]
    #[case("credentialsConfig")]
    fn a_service_account_has_three_spellings(#[case] key: &str) {
        let login = login(&[(key, &format!(" {}\n", account(json!({}))))]).unwrap();
        assert_eq!((login.project.as_str(), login.credentials), ("p", of_service_account()));
    }

    #[test]
    fn the_first_spelling_with_a_value_wins() {
        let (one, two) = (account(json!({"project_id": "one"})), account(json!({"project_id": "two"})));
        let project = |data: &[(&str, &str)]| login(data).unwrap().project;
        assert_eq!(project(&[("serviceAccountJSON", &one), ("credentialsConfig", &two)]), "one");
        assert_eq!(project(&[("serviceAccountJSON", ""), ("credentialsConfig", &two)]), "two");
    }

    /// A service account of a project for administration makes VMs in another one.
    #[rstest]
    #[case::service_account("serviceAccountJSON", account(json!({"project_id": "admin"})))]
    #[case::external_account("credentialsConfig", external(json!({"project_id": "admin"})))]
    fn the_project_beside_the_credentials_wins(#[case] key: &str, #[case] text: String) {
        assert_eq!(login(&[(key, &text), ("projectID", "vms\n")]).unwrap().project, "vms");
        assert_eq!(login(&[(key, &text), ("projectID", " ")]).unwrap().project, "admin");
        let error = login(&[(key, &text), ("projectID", "a/../b")]).unwrap_err();
        assert!(error.message.contains("names no project"), "{error}");
    }

    #[test]
    fn a_service_account_may_name_its_key_and_its_token_endpoint() {
        let text = account(json!({"private_key_id": "k", "token_uri": "https://sts.example.com/t", "client_id": "1"}));
        let Credentials::ServiceAccount { key_id, token_uri, .. } =
            login(&[("serviceAccountJSON", &text)]).unwrap().credentials
        else {
            panic!("it is a service account");
        };
        assert_eq!((key_id.as_deref(), token_uri.as_str()), (Some("k"), "https://sts.example.com/t"));
    }

    #[rstest]
    #[case::nothing("userData", "x".to_owned(), &[], "needs one of")]
    #[case::no_json("serviceAccountJSON", "top-secret".to_owned(), &[], "no JSON object")]
    #[case::other_field("serviceAccountJSON", account(json!({"credential_source": "x"})), &[], "may only have")]
    #[case::no_text("serviceAccountJSON", account(json!({"client_id": 7})), &[], "may only have")]
    #[case::other_universe("serviceAccountJSON", account(json!({"universe_domain": "example.com"})), &[], "universe_domain must be")]
    #[case::no_project("serviceAccountJSON", account(json!({"project_id": ""})), &[("projectID", "p")], "no project_id")]
    #[case::no_key("serviceAccountJSON", account(json!({"private_key": ""})), &[], "no private_key")]
    #[case::no_email("serviceAccountJSON", account(json!({"client_email": ""})), &[], "no client_email")]
    #[case::project_leads_elsewhere("serviceAccountJSON", account(json!({"project_id": "p/../x"})), &[], "names no project")]
    #[case::other_type("serviceAccountJSON", account(json!({"type": "authorized_user"})), &[], "type is")]
    #[case::other_sts("credentialsConfig", external(json!({"token_url": "https://evil.example.com/v1/token"})), &[], "token_url must be")]
    #[case::other_file("credentialsConfig", external(json!({"credential_source": {"file": "/etc/passwd"}})), &[], "credential_source.file in the Secret of the class is not a path below")]
    #[case::other_source("credentialsConfig", external(json!({"credential_source": {"url": "http://evil"}})), &[], "credential_source.file in the Secret of the class is not a path below")]
    #[case::other_token_endpoint("serviceAccountJSON", account(json!({"token_uri": "https://evil.example.com/t"})), &[], "token_uri in the Secret of the class is not")]
    #[case::plain_token_endpoint("serviceAccountJSON", account(json!({"token_uri": "http://oauth2.googleapis.com/token"})), &[], "token_uri in the Secret of the class is not")]
    #[case::other_endpoint("serviceAccountJSON", account(json!({})), &[("endpointURL", "http://169.254.169.254/compute/v1")], "endpointURL in the Secret of the class is not")]
    #[case::other_token_type("credentialsConfig", external(json!({"subject_token_type": "x"})), &[], "subject_token_type must be")]
    #[case::no_audience("credentialsConfig", external(json!({"audience": ""})), &[], "no audience")]
    #[case::other_iam("credentialsConfig", external(json!({"service_account_impersonation_url": "https://evil.example.com/v1/projects/-/serviceAccounts/a:generateAccessToken"})), &[], "impersonation_url must be")]
    #[case::other_path("credentialsConfig", external(json!({"service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a/../b:generateAccessToken"})), &[], "impersonation_url must be")]
    #[case::external_without_project("credentialsConfig", external(json!({"project_id": ""})), &[], "names no project")]
    #[case::external_elsewhere("credentialsConfig", external(json!({})), &[("endpointURL", "https://evil.example.com")], "endpointURL is for service accounts only")]
    fn what_is_not_allowed_is_refused_without_a_quote(
        #[case] key: &str,
        #[case] text: String,
        #[case] more: &[(&str, &str)],
        #[case] expected: &str,
    ) {
        let error = login(&[&[(key, text.as_str())], more].concat()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains(expected) && !error.message.contains("top-secret"), "{error}");
    }

    #[test]
    fn an_external_account_may_impersonate_and_have_its_project_beside_it() {
        let path = "/v1/projects/-/serviceAccounts/mcm@p.iam.gserviceaccount.com:generateAccessToken";
        let text =
            external(json!({"project_id": "", "service_account_impersonation_url": format!("{IAM_HOST}{path}")}));
        let login = login(&[("credentialsConfig", &text), ("projectID", "beside\n")]).unwrap();
        let credentials = Credentials::ExternalAccount {
            token_file: TOKEN_FILE.into(),
            audience: "a".to_owned(),
            impersonation: Some(path.to_owned()),
        };
        assert_eq!((login.project.as_str(), login.credentials), ("beside", credentials));
    }

    #[test]
    fn credentials_are_not_printed() {
        let shown = format!("{:?}", of_service_account());
        assert!(!shown.contains("top-secret") && !shown.contains("mcm@"), "{shown}");
    }
}
