//! Errors of Google as codes.

use std::time::Duration;

use bytes::Bytes;
use google_cloud_gax::error::rpc::{self, Status, StatusDetails};
use serde::Deserialize;

use super::operation::OperationError;
use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, HttpAnswer, code_of_status, safe_text},
    code::Code,
};

/// Out of stock or quota, as part of a name in upper case without underscores.
const EXHAUSTED: [&str; 5] = ["QUOTA", "RESOURCEPOOLEXHAUSTED", "RESOURCEEXHAUSTED", "STOCKOUT", "IPSPACEEXHAUSTED"];
/// Part of Google's message for a machine type or disk type that the zone does not have.
const NOT_IN_ZONE: &str = "does not exist in zone";

/// The code of a name that Google gives an error: the reason of an answer (`quotaExceeded`), its status
/// (`PERMISSION_DENIED`), or the code of an operation (`QUOTA_EXCEEDED`). The HTTP status decides if the name is new.
pub(super) fn code_of(name: &str, message: &str, status: u16) -> Code {
    let plain = plain(name);
    if names_throttling(&plain) || status == 429 {
        return Code::Unavailable;
    }
    if EXHAUSTED.iter().any(|part| plain.contains(part)) || message.contains(NOT_IN_ZONE) {
        return Code::ResourceExhausted;
    }
    match plain.as_str() {
        "ALREADYEXISTS" | "RESOURCEALREADYEXISTS" => Code::AlreadyExists,
        "RESOURCENOTREADY"
        | "BACKENDERROR"
        | "INTERNALERROR"
        | "INTERNAL"
        | "UNAVAILABLE"
        | "SERVICEUNAVAILABLE"
        | "TEMPORARILYUNAVAILABLE" => Code::Unavailable,
        "TIMEOUT" | "DEADLINEEXCEEDED" | "OPERATIONTIMEOUT" => Code::DeadlineExceeded,
        "ABORTED" | "OPERATIONINPROGRESS" => Code::Aborted,
        "AUTHERROR" | "UNAUTHENTICATED" | "LOGINREQUIRED" | "EXPIRED" | "INVALIDGRANT" | "INVALIDCLIENT"
        | "UNAUTHORIZEDCLIENT" | "INVALIDTARGET" => Code::Unauthenticated,
        "FORBIDDEN"
        | "PERMISSIONDENIED"
        | "INSUFFICIENTPERMISSIONS"
        | "ACCESSNOTCONFIGURED"
        | "ACCESSDENIED"
        | "PERMISSIONSERROR" => Code::PermissionDenied,
        "CONDITIONNOTMET" | "FAILEDPRECONDITION" | "RESOURCEINUSEBYANOTHERRESOURCE" => Code::FailedPrecondition,
        _ if names_an_absence(&plain) => Code::InvalidArgument,
        _ if is_about_the_request(&plain) => Code::InvalidArgument,
        _ => match code_of_status(status) {
            Code::InvalidArgument | Code::NotFound | Code::Unknown => Code::Internal,
            code => code,
        },
    }
}

/// A name in upper case without underscores: `quotaExceeded` and `QUOTA_EXCEEDED` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').collect::<String>().to_ascii_uppercase()
}

fn names_an_absence(plain: &str) -> bool {
    ["NOTFOUND", "RESOURCENOTFOUND"].contains(&plain)
}

fn is_about_the_request(plain: &str) -> bool {
    const STARTS: [&str; 5] = ["INVALID", "BADREQUEST", "REQUIRED", "PARSE", "UNSUPPORTED"];
    STARTS.iter().any(|start| plain.starts_with(start))
}

/// Google reported that an object in the request does not exist. That is no code: it may be the project as well.
pub(super) fn is_absent(failure: &CloudFailure) -> bool {
    matches!(failure, CloudFailure::Named { name, .. } if names_an_absence(&plain(name)))
}

/// An operation failed because something that it needs does not exist.
pub(super) fn is_not_found(error: &OperationError) -> bool {
    names_an_absence(&plain(&error.code))
}

/// Google gets more requests than it permits.
pub(super) fn is_throttled(failure: &CloudFailure) -> bool {
    match failure {
        CloudFailure::Named { name, code, .. } => {
            let plain = plain(name);
            // The same name means a stock-out, unless its status is 429.
            names_throttling(&plain) || (plain == "RESOURCEEXHAUSTED" && *code == Code::Unavailable)
        }
        CloudFailure::Status(status) => *status == 429,
        _ => false,
    }
}

fn names_throttling(plain: &str) -> bool {
    plain.contains("RATELIMIT") || plain.contains("RATEEXCEEDED")
}

#[derive(Deserialize)]
struct Answer {
    error: Body,
    error_description: Option<String>,
}

/// An error of an API, or of a token endpoint.
#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    Api {
        #[serde(default)]
        message: String,
        status: Option<String>,
        #[serde(default)]
        errors: Vec<Reason>,
    },
    Token(String),
}

#[derive(Deserialize)]
struct Reason {
    reason: Option<String>,
}

/// Classifies an answer that is not a success.
pub(super) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    let status = answer.status;
    let Ok(Answer { error, error_description }) = answer.json() else {
        return CloudFailure::Status(status);
    };
    let (name, message) = match error {
        Body::Token(name) => (name, error_description.unwrap_or_default()),
        Body::Api { message, status, errors } => {
            let reason = errors.into_iter().find_map(|one| one.reason);
            (reason.or(status).unwrap_or_default(), message)
        }
    };
    CloudFailure::Named { code: code_of(&name, &message, status), name, message }
}

/// Classifies an answer of the Compute API that is not a success.
pub(super) fn failure_of_call(answer: &HttpAnswer) -> CloudFailure {
    match status_of(answer) {
        Some(status) => {
            let (name, message) = (name_of(&status, answer.status), text_of(&status));
            CloudFailure::Named { code: code_of(&name, &message, answer.status), name, message }
        }
        None => failure_of(answer),
    }
}

/// The error of Google in an answer, with its details.
fn status_of(answer: &HttpAnswer) -> Option<Status> {
    Status::try_from(&Bytes::from(answer.text.clone())).ok()
}

/// The reason of an error, otherwise the name of its status. Details hide the reasons in the older form of an error, so a
/// status without a name is that of HTTP.
fn name_of(status: &Status, code: u16) -> String {
    let mut reasons = status.details.iter().filter_map(|detail| match detail {
        StatusDetails::ErrorInfo(info) => Some(info.reason.clone()).filter(|reason| !reason.is_empty()),
        _ => None,
    });
    let is_quota = |detail: &StatusDetails| matches!(detail, StatusDetails::QuotaFailure(_));
    reasons.next().unwrap_or_else(|| match (status.code, code) {
        (_, 403) if status.details.iter().any(is_quota) => "QUOTA_EXCEEDED".to_owned(),
        (rpc::Code::Unknown, 404) if !status.details.is_empty() => rpc::Code::NotFound.to_string(),
        (rpc::Code::Unknown, _) => String::new(),
        (name, _) => name.to_string(),
    })
}

/// The message of an error, with the quotas that it names.
fn text_of(status: &Status) -> String {
    let mut text = status.message.clone();
    for detail in &status.details {
        if let StatusDetails::QuotaFailure(failure) = detail {
            for violation in &failure.violations {
                text += &format!(" (quota of {}: {})", violation.subject, violation.description);
            }
        }
    }
    text
}

/// The pause before the next call that the details of an error request.
pub(super) fn pause_of(answer: &HttpAnswer) -> Option<Duration> {
    status_of(answer)?.details.iter().find_map(|detail| match detail {
        StatusDetails::RetryInfo(info) => {
            let delay = info.retry_delay?;
            Some(Duration::new(delay.seconds().try_into().ok()?, delay.nanos().try_into().ok()?))
        }
        _ => None,
    })
}

/// The error of a failed operation. Its code is exhaustion if one of the errors is, so that another pool can be used, else that
/// of the last error.
pub(super) fn operation_failed(what: &str, errors: &[OperationError], status: u16, secret: &SecretData) -> DriverError {
    let codes: Vec<Code> = errors.iter().map(|error| code_of(&error.code, &error.message, status)).collect();
    let code = match codes.last() {
        _ if codes.contains(&Code::ResourceExhausted) => Code::ResourceExhausted,
        Some(code) => *code,
        None => Code::Internal,
    };
    let texts: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.code, error.message)).collect();
    DriverError::new(code, format!("{what} failed: {}", safe_text(&texts.join("; "), secret)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case("RESOURCE_POOL_EXHAUSTED")]
    #[case("ZONE_RESOURCE_POOL_EXHAUSTED")]
    #[case("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")]
    #[case("QUOTA_EXCEEDED")]
    #[case("QUOTA_FOR_INSTANCES")]
    #[case::as_a_reason("quotaExceeded")]
    #[case::subnet("IP_SPACE_EXHAUSTED_WITH_DETAILS")]
    fn stock_outs_and_quotas_let_another_pool_be_used(#[case] name: &str) {
        assert_eq!((code_of(name, "", 0), code_of(name, "", 403)), (Code::ResourceExhausted, Code::ResourceExhausted));
    }

    #[test]
    fn a_machine_type_that_the_zone_lacks_lets_another_pool_be_used() {
        let message = "Machine type with name 'x' does not exist in zone 'z'.";
        assert_eq!(code_of("invalid", message, 400), Code::ResourceExhausted);
    }

    #[rstest]
    #[case("rateLimitExceeded", 403, Code::Unavailable)]
    #[case("userRateLimitExceeded", 403, Code::Unavailable)]
    #[case("RESOURCE_OPERATION_RATE_EXCEEDED", 0, Code::Unavailable)]
    #[case::throttled("RESOURCE_EXHAUSTED", 429, Code::Unavailable)]
    #[case("backendError", 503, Code::Unavailable)]
    #[case("internalError", 500, Code::Unavailable)]
    #[case("resourceNotReady", 400, Code::Unavailable)]
    #[case("authError", 401, Code::Unauthenticated)]
    #[case("invalid_grant", 400, Code::Unauthenticated)]
    #[case("forbidden", 403, Code::PermissionDenied)]
    #[case("PERMISSION_DENIED", 403, Code::PermissionDenied)]
    #[case("accessNotConfigured", 403, Code::PermissionDenied)]
    #[case("alreadyExists", 409, Code::AlreadyExists)]
    #[case("notFound", 404, Code::InvalidArgument)]
    #[case("UNKNOWN", 500, Code::Unavailable)]
    #[case("invalid", 400, Code::InvalidArgument)]
    #[case("badRequest", 400, Code::InvalidArgument)]
    #[case("required", 400, Code::InvalidArgument)]
    #[case("UNSUPPORTED_OPERATION", 400, Code::InvalidArgument)]
    #[case("conditionNotMet", 412, Code::FailedPrecondition)]
    #[case("resourceInUseByAnotherResource", 400, Code::FailedPrecondition)]
    #[case("somethingNew", 400, Code::Internal)]
    #[case("somethingNew", 404, Code::Internal)]
    #[case("somethingNew", 503, Code::Unavailable)]
    #[case("somethingNew", 0, Code::Internal)]
    fn errors_of_google_have_codes(#[case] name: &str, #[case] status: u16, #[case] expected: Code) {
        assert_eq!(code_of(name, "", status), expected);
    }

    #[rstest]
    #[case::api(
        r#"{"error": {"code": 403, "message": "m", "errors": [{"reason": "quotaExceeded"}]}}"#,
        "quotaExceeded",
        Code::ResourceExhausted
    )]
    #[case::newer_api(
        r#"{"error": {"code": 403, "message": "m", "status": "PERMISSION_DENIED"}}"#,
        "PERMISSION_DENIED",
        Code::PermissionDenied
    )]
    #[case::token(r#"{"error": "invalid_grant", "error_description": "m"}"#, "invalid_grant", Code::Unauthenticated)]
    fn errors_of_all_services_are_read(#[case] text: &str, #[case] name: &str, #[case] code: Code) {
        let expected = CloudFailure::Named { code, name: name.to_owned(), message: "m".to_owned() };
        assert_eq!(failure_of(&answer(403, text)), expected);
    }

    fn answer(status: u16, text: &str) -> HttpAnswer {
        HttpAnswer { status, text: text.to_owned(), ..HttpAnswer::default() }
    }

    fn with_details(status: &str, details: &Value) -> String {
        json!({"error": {"message": "m", "status": status, "details": details}}).to_string()
    }

    fn detail(kind: &str, mut fields: Value) -> Value {
        fields["@type"] = format!("type.googleapis.com/google.rpc.{kind}").into();
        fields
    }

    #[rstest]
    #[case::reason(403, json!({"error": {"message": "m", "errors": [{"reason": "quotaExceeded"}]}}).to_string(), "quotaExceeded", Code::ResourceExhausted)]
    #[case::status(403, with_details("PERMISSION_DENIED", &json!([])), "PERMISSION_DENIED", Code::PermissionDenied)]
    #[case::details(429, with_details("RESOURCE_EXHAUSTED", &json!([detail("ErrorInfo", json!({"reason": "RATE_LIMIT_EXCEEDED"}))])), "RATE_LIMIT_EXCEEDED", Code::Unavailable)]
    #[case::details_without_a_reason(404, with_details("", &json!([detail("LocalizedMessage", json!({"locale": "en"}))])), "NOT_FOUND", Code::InvalidArgument)]
    #[case::not_of_google(404, json!({"error": {"message": "m"}}).to_string(), "", Code::Internal)]
    fn an_error_of_a_call_has_its_reason(
        #[case] status: u16,
        #[case] text: String,
        #[case] name: &str,
        #[case] code: Code,
    ) {
        let expected = CloudFailure::Named { code, name: name.to_owned(), message: "m".to_owned() };
        assert_eq!(failure_of_call(&answer(status, &text)), expected);
    }

    #[test]
    fn a_call_that_exceeds_a_quota_names_it() {
        let violation = json!({"subject": "project:p", "description": "Limit 'CPUS' exceeded."});
        let details = json!([detail("QuotaFailure", json!({ "violations": [violation] }))]);
        let answer = answer(403, &with_details("PERMISSION_DENIED", &details));
        let CloudFailure::Named { code, name, message } = failure_of_call(&answer) else { panic!("{answer:?}") };
        assert_eq!((code, name.as_str()), (Code::ResourceExhausted, "QUOTA_EXCEEDED"));
        assert_eq!(message, "m (quota of project:p: Limit 'CPUS' exceeded.)");
    }

    #[rstest]
    #[case::told("1.5s", Some(Duration::from_millis(1500)))]
    #[case::past("-1s", None)]
    fn an_error_has_the_pause_that_google_asks_for(#[case] delay: &str, #[case] expected: Option<Duration>) {
        let details = json!([detail("RetryInfo", json!({ "retryDelay": delay }))]);
        let answer = answer(429, &with_details("RESOURCE_EXHAUSTED", &details));
        assert_eq!(pause_of(&answer), expected);
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("{}")]
    fn what_is_no_error_of_google_is_known_by_its_status(#[case] text: &str) {
        assert_eq!(failure_of(&answer(502, text)), CloudFailure::Status(502));
        assert_eq!(failure_of_call(&answer(502, text)), CloudFailure::Status(502));
    }

    #[rstest]
    #[case(&["QUOTA_EXCEEDED", "INTERNAL_ERROR"], Code::ResourceExhausted)]
    #[case(&["INTERNAL_ERROR", "PERMISSIONS_ERROR"], Code::PermissionDenied)]
    #[case::an_image(&["RESOURCE_NOT_FOUND"], Code::InvalidArgument)]
    #[case::nothing_said(&[], Code::Internal)]
    fn an_operation_fails_with_all_its_errors(#[case] names: &[&str], #[case] expected: Code) {
        let errors: Vec<OperationError> = names
            .iter()
            .map(|name| OperationError { code: (*name).to_owned(), message: "no hunter2".to_owned() })
            .collect();
        let secret = SecretData([("userData".to_owned(), b"hunter2".to_vec())].into());
        let error = operation_failed("creation of m", &errors, 0, &secret);
        assert_eq!(error.code, expected);
        assert!(names.iter().all(|name| error.message.contains(name)) && !error.message.contains("hunter2"), "{error}");
    }
}
