//! Secrets Manager, which has the user data of machines until their VMs have read them.

use std::{collections::BTreeMap, sync::Arc};

use aws_smithy_types::base64;
use serde_json::{Value, json};

use super::{
    errors::named,
    kind::{Kind, reading, writing},
    login::Login,
    names::UID_TAG,
    signed::{Location, Signed, Unsigned},
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{AccountLimiters, CloudFailure, HttpClient},
    code::Code,
};

const SERVICE: &str = "secretsmanager";
const JSON: &str = "application/x-amz-json-1.1";
/// The error for a name that another secret has.
const EXISTS: &str = "ResourceExistsException";
/// The error for a secret that does not exist.
const NO_SECRET: &str = "ResourceNotFoundException";
/// The error for a secret in a state that does not allow the call, such as one whose deletion is not complete.
const WRONG_STATE: &str = "InvalidRequestException";

/// Secrets Manager of an account in a region.
pub(super) struct SecretsManager {
    location: Location,
    calls: Signed,
}

/// The secret of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub name: &'a str,
    /// UID of the machine, which is among the tags.
    pub uid: &'a str,
    pub tags: &'a BTreeMap<&'a str, &'a str>,
}

impl SecretsManager {
    pub(super) fn new(
        location: Location,
        login: &Arc<Login>,
        limiters: &Arc<AccountLimiters>,
        http: &Arc<HttpClient>,
    ) -> Self {
        Self { location, calls: Signed::new(SERVICE, login, limiters, http) }
    }

    /// Creates a secret, or gives the secret of an earlier attempt a new value.
    pub(super) async fn store(&self, stored: Stored<'_>, value: &[u8], secret: &SecretData) -> Result<(), DriverError> {
        let Stored { name, uid, tags } = stored;
        let failed = |action: &str, failure: &CloudFailure| error(failure, action, name, secret);
        let value = base64::encode(value);
        let tags: Vec<Value> = tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
        let token = token();
        let creation = json!({"Name": name, "ClientRequestToken": token, "SecretBinary": value, "Tags": tags});
        match self.call(writing("secret_create"), "CreateSecret", &creation).await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.is(EXISTS) => {}
            Err(failure) => return Err(failed("CreateSecret", &failure)),
        }
        let found = self.call(reading("secret_get"), "DescribeSecret", &json!({"SecretId": name})).await;
        let found = found.map_err(|failure| failed("DescribeSecret", &failure))?;
        if tag(&found, UID_TAG) != Some(uid) {
            let message = format!("secret {name} exists, and does not have the tag {UID_TAG} with {uid}: delete it");
            return Err(DriverError::new(Code::FailedPrecondition, message));
        }
        let change = json!({"SecretId": name, "ClientRequestToken": token, "SecretBinary": value});
        let changed = self.call(writing("secret_put"), "PutSecretValue", &change).await;
        changed.map(drop).map_err(|failure| failed("PutSecretValue", &failure))
    }

    /// Deletes a secret at once. One that does not exist is a success.
    pub(super) async fn delete(&self, name: &str, secret: &SecretData) -> Result<(), DriverError> {
        const ACTION: &str = "DeleteSecret";
        let deletion = json!({"SecretId": name, "ForceDeleteWithoutRecovery": true});
        match self.call(writing("secret_delete"), ACTION, &deletion).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.is(NO_SECRET) => Ok(()),
            Err(failure) => Err(error(&failure, ACTION, name, secret)),
        }
    }

    async fn call(&self, kind: Kind, action: &str, input: &Value) -> Result<Value, CloudFailure> {
        let (url, target) = (self.location.url(SERVICE).await?, format!("{SERVICE}.{action}"));
        let (headers, body) = ([("content-type", JSON), ("x-amz-target", &target)], input.to_string());
        let unsigned = Unsigned { region: &self.location.region, url: &url, headers: &headers, body: &body };
        self.calls.call(&unsigned, kind, |status, text| checked(status, &text)).await
    }
}

/// A token that no other request has: a repeated request with it creates nothing.
fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The value of a tag of a secret.
fn tag<'a>(secret: &'a Value, key: &str) -> Option<&'a str> {
    let tags = secret["Tags"].as_array()?;
    tags.iter().find(|tag| tag["Key"] == key)?["Value"].as_str()
}

/// The answer to an action, which names the secret.
fn checked(status: u16, text: &str) -> Result<Value, CloudFailure> {
    let answer: Option<Value> = serde_json::from_str(text).ok();
    if (200..300).contains(&status) {
        let names_it = |answer: &Value| answer["Name"].is_string() || answer["ARN"].is_string();
        return answer.filter(names_it).ok_or(CloudFailure::Unreadable(status));
    }
    let failed = answer.as_ref().and_then(|answer| {
        let name = answer["__type"].as_str()?.rsplit('#').next().filter(|name| !name.is_empty())?;
        let message = ["message", "Message"].iter().find_map(|key| answer[key].as_str()).unwrap_or_default();
        Some(named(name.to_owned(), message.to_owned(), status))
    });
    Err(failed.unwrap_or(CloudFailure::Status(status)))
}

fn error(failure: &CloudFailure, action: &str, name: &str, secret: &SecretData) -> DriverError {
    let error = failure.error(&format!("{action} of {name}"), secret);
    let code = if failure.is(WRONG_STATE) { Code::FailedPrecondition } else { error.code };
    DriverError { code, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(r#"{"__type": "ResourceNotFoundException", "Message": "m"}"#, Some(("ResourceNotFoundException", "m")))]
    #[case::with_a_namespace(r#"{"__type": "com.amazonaws.secretsmanager#LimitExceededException"}"#, Some(("LimitExceededException", "")))]
    #[case::of_the_gateway(r#"{"__type": "AccessDeniedException", "message": "no"}"#, Some(("AccessDeniedException", "no")))]
    #[case::no_type(r#"{"error": "x"}"#, None)]
    #[case::of_a_proxy("<html></html>", None)]
    fn errors_of_secrets_manager_are_read(#[case] text: &str, #[case] expected: Option<(&str, &str)>) {
        let expected = match expected {
            Some((name, message)) => named(name.to_owned(), message.to_owned(), 400),
            None => CloudFailure::Status(400),
        };
        assert_eq!(checked(400, text), Err(expected));
    }

    #[rstest]
    #[case(r#"{"ARN": "arn:aws:x", "Name": "mcm/u"}"#, true)]
    #[case::empty("{}", false)]
    #[case::of_a_proxy("<html></html>", false)]
    #[case::cut(r#"{"Name": "mcm/u""#, false)]
    fn only_an_answer_that_names_a_secret_is_a_success(#[case] text: &str, #[case] is_success: bool) {
        assert_eq!(checked(200, text).is_ok(), is_success);
    }

    #[rstest]
    #[case(NO_SECRET, Code::Internal)]
    #[case(WRONG_STATE, Code::FailedPrecondition)]
    #[case("AccessDeniedException", Code::PermissionDenied)]
    #[case("ThrottlingException", Code::Unavailable)]
    fn errors_of_secrets_manager_have_codes(#[case] name: &str, #[case] expected: Code) {
        let failure = named(name.to_owned(), String::new(), 400);
        assert_eq!(error(&failure, "PutSecretValue", "mcm/u", &SecretData::default()).code, expected);
    }
}
