//! Errors of Azure as codes.

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer, code_of_status},
};
use reqwest::header::HeaderMap;
use serde::Deserialize;

/// Parts of names, in lower case, that mean: no capacity, no quota, or no address is left.
const EXHAUSTED: [&str; 9] = [
    "allocationfailed",
    "overconstrained",
    "skunotavailable",
    "quotaexceeded",
    "subnetisfull",
    "notavailableforsubscription",
    "insufficientcapacity",
    "capacitynotavailable",
    "publicipcountlimitreached",
];
/// Names of absences. The absence of a subscription does not prove that of its VMs.
const ABSENT: [&str; 4] = ["ResourceNotFound", "ResourceGroupNotFound", "ParentResourceNotFound", "NotFound"];
/// A resource provider is not used in the subscription yet.
const UNREGISTERED: &str = "MissingSubscriptionRegistration";
/// Header with the name of an error.
const NAME: &str = "x-ms-error-code";
/// Header with the policies that limit a call of Compute, and how many calls each still allows. The policies of one VM end with
/// `Resource`, those of the subscription with `SubscriptionMaximum` or a time.
const REMAINING: &str = "x-ms-ratelimit-remaining-resource";

/// An error of the Resource Manager, or of the login host.
#[derive(Deserialize)]
struct Body {
    error: Error,
    error_description: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Error {
    Api(Named),
    Login(String),
}

/// An error with its name, also of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Named {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

impl Named {
    /// The failure of an operation that Azure carried out after its answer.
    pub fn failure(self) -> CloudFailure {
        let code = code_of(&self.code, &self.message, 0);
        CloudFailure::Named { code, name: self.code, message: self.message }
    }
}

/// Reads an answer whose HTTP status is no success.
pub(crate) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    let named = answer.headers.get(NAME).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (name, message) = match (serde_json::from_str(&answer.text), named) {
        (Ok(Body { error: Error::Api(error), .. }), named) => (named.unwrap_or(error.code), error.message),
        (Ok(Body { error: Error::Login(name), error_description }), _) => {
            let code = code_of_login(&name, answer.status);
            return CloudFailure::Named { code, name, message: error_description.unwrap_or_default() };
        }
        (Err(_), Some(named)) => (named, String::new()),
        (Err(_), None) => return CloudFailure::Status(answer.status),
    };
    if answer.status == 429 && is_limit_of_resource(&answer.headers) {
        return CloudFailure::Crowded { name, message };
    }
    let code = code_of(&name, &message, answer.status);
    // The pace of calls depends on the name.
    let name = if answer.status == 429 && !names_throttling(&name) { format!("TooManyRequests {name}") } else { name };
    CloudFailure::Named { code, name, message }
}

/// The code of an error's name. The HTTP status decides if the name is new; 0 is that of an operation.
pub(crate) fn code_of(name: &str, message: &str, status: u16) -> Code {
    if names_throttling(name) || status == 429 {
        return Code::Unavailable;
    }
    if is_exhaustion(name, message) {
        return Code::ResourceExhausted;
    }
    match name {
        "NicReservedForAnotherVm"
        | "RetryableError"
        | "InternalServerError"
        | "InternalExecutionError"
        | "InternalOperationError"
        | "ServiceUnavailable"
        | "ServerTimeout"
        | "InternalError" => Code::Unavailable,
        "GatewayTimeout" | "OperationTimedOut" => Code::DeadlineExceeded,
        "AnotherOperationInProgress"
        | "ConflictingConcurrentWriteNotAllowed"
        | "OperationPreempted"
        | "OperationPreemptedByMoreRecentOperation"
        | "ResourceGroupBeingDeleted"
        | "Conflict" => Code::Aborted,
        UNREGISTERED
        | "OperationNotAllowed"
        | "NicInUse"
        | "ScopeLocked"
        | "ResourceInUse"
        | "PropertyChangeNotAllowed" => Code::FailedPrecondition,
        "AuthorizationFailed" | "LinkedAuthorizationFailed" | "RequestDisallowedByPolicy" => Code::PermissionDenied,
        "InvalidAuthenticationToken" | "ExpiredAuthenticationToken" | "AuthenticationFailed" => Code::Unauthenticated,
        _ if status == 404 && ABSENT.contains(&name) => Code::NotFound,
        _ => match code_of_status(status) {
            Code::Unknown | Code::NotFound => Code::Internal,
            code => code,
        },
    }
}

fn is_exhaustion(name: &str, message: &str) -> bool {
    let (plain, message) = (name.to_ascii_lowercase(), message.to_ascii_lowercase());
    let exceeds = || message.split_once("exceeding").is_some_and(|(_, rest)| rest.contains("quota"));
    let is_unsupported = || message.split_whitespace().zip(message.split_whitespace().skip(1)).any(is_not_supported);
    EXHAUSTED.iter().any(|part| plain.contains(part))
        || (plain == "operationnotallowed" && exceeds())
        || (plain == "badrequest" && is_unsupported())
}

/// The words "not supported", before any punctuation.
fn is_not_supported((first, second): (&str, &str)) -> bool {
    first.ends_with("not") && second.starts_with("supported")
}

fn names_throttling(name: &str) -> bool {
    let plain = name.to_ascii_lowercase();
    ["throttl", "ratelimit", "toomanyrequests"].iter().any(|part| plain.contains(part))
}

/// All used-up policies are of one resource.
fn is_limit_of_resource(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(REMAINING).into_iter().filter_map(|value| value.to_str().ok());
    let policies = texts.flat_map(|text| text.split(',')).filter_map(|policy| policy.trim().split_once(';'));
    let mut used_up = policies.filter(|(_, left)| left.parse().is_ok_and(|left: i64| left <= 0)).peekable();
    used_up.peek().is_some() && used_up.all(|(policy, _)| policy.ends_with("Resource"))
}

/// The login host refuses with status 400 as well.
fn code_of_login(name: &str, status: u16) -> Code {
    match name {
        "temporarily_unavailable" | "server_error" => Code::Unavailable,
        _ => match code_of_status(status) {
            Code::InvalidArgument | Code::Internal | Code::NotFound | Code::PermissionDenied => Code::Unauthenticated,
            code => code,
        },
    }
}

/// Azure refused a call for good, whatever the reason: neither a report of a stock-out nor a wrong login is a refusal.
pub(crate) fn is_refused(failure: &CloudFailure) -> bool {
    match failure {
        CloudFailure::Named { code, .. } => {
            !code.is_transient() && ![Code::Unauthenticated, Code::ResourceExhausted].contains(code)
        }
        CloudFailure::Status(status) => [400, 403, 404, 410].contains(status),
        _ => false,
    }
}

/// A resource provider has to be registered first.
pub(crate) fn is_unregistered(failure: &CloudFailure) -> bool {
    failure.is(UNREGISTERED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn answer(status: u16, text: &str) -> HttpAnswer {
        HttpAnswer { status, headers: HeaderMap::new(), text: text.to_owned() }
    }

    fn named_failure(status: u16, name: &str, message: &str) -> CloudFailure {
        failure_of(&answer(status, &json!({"error": {"code": name, "message": message}}).to_string()))
    }

    #[rstest]
    #[case(409, "ZonalAllocationFailed", "", Code::ResourceExhausted)]
    #[case(409, "AllocationFailed", "", Code::ResourceExhausted)]
    #[case(409, "OverconstrainedAllocationRequest", "", Code::ResourceExhausted)]
    #[case(409, "OverconstrainedZonalAllocationRequest", "", Code::ResourceExhausted)]
    #[case(409, "SkuNotAvailable", "", Code::ResourceExhausted)]
    #[case(409, "QuotaExceeded", "", Code::ResourceExhausted)]
    #[case(403, "ResourceQuotaExceeded", "", Code::ResourceExhausted)]
    #[case(
        409,
        "OperationNotAllowed",
        "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.",
        Code::ResourceExhausted
    )]
    #[case(409, "OperationNotAllowed", "Disk m-os-disk is attached to VM m.", Code::FailedPrecondition)]
    #[case(400, "BadRequest", "The VM size is Not  supported. Choose another one.", Code::ResourceExhausted)]
    #[case(400, "BadRequest", "The body cannot be read.", Code::InvalidArgument)]
    #[case(400, "SubnetIsFull", "", Code::ResourceExhausted)]
    #[case(400, "NicReservedForAnotherVm", "for 180 seconds", Code::Unavailable)]
    #[case(400, "NicInUse", "", Code::FailedPrecondition)]
    #[case(400, "InvalidParameter", "", Code::InvalidArgument)]
    #[case(401, "ExpiredAuthenticationToken", "", Code::Unauthenticated)]
    #[case(403, "AuthorizationFailed", "", Code::PermissionDenied)]
    #[case(403, "RequestDisallowedByPolicy", "", Code::PermissionDenied)]
    #[case(404, "ResourceNotFound", "", Code::NotFound)]
    #[case(404, "ResourceGroupNotFound", "", Code::NotFound)]
    #[case::of_the_account(404, "SubscriptionNotFound", "", Code::Internal)]
    #[case(409, "Conflict", "", Code::Aborted)]
    #[case(409, "MissingSubscriptionRegistration", "", Code::FailedPrecondition)]
    #[case(429, "SubscriptionRequestsThrottled", "", Code::Unavailable)]
    #[case(429, "OperationNotAllowed", "", Code::Unavailable)]
    #[case(500, "InternalServerError", "", Code::Unavailable)]
    #[case(504, "GatewayTimeout", "", Code::DeadlineExceeded)]
    fn errors_have_codes(#[case] status: u16, #[case] name: &str, #[case] message: &str, #[case] expected: Code) {
        let failure = named_failure(status, name, message);
        assert_eq!(failure.code(), expected);
        assert_eq!(failure.is_throttling(), status == 429);
        assert_eq!(failure.is_absence(), expected == Code::NotFound);
    }

    #[rstest]
    #[case("OSProvisioningTimedOut", Code::Internal)]
    #[case("AllocationFailed", Code::ResourceExhausted)]
    #[case::of_something_else("ResourceNotFound", Code::Internal)]
    fn operations_fail_with_the_same_names(#[case] name: &str, #[case] expected: Code) {
        let named = Named { code: name.to_owned(), message: "no".to_owned() };
        assert_eq!(named.failure().code(), expected);
    }

    #[rstest]
    #[case(401, "invalid_client", Code::Unauthenticated)]
    #[case(400, "invalid_request", Code::Unauthenticated)]
    #[case(400, "unauthorized_client", Code::Unauthenticated)]
    #[case(503, "temporarily_unavailable", Code::Unavailable)]
    #[case(429, "any", Code::Unavailable)]
    fn the_login_host_has_its_own_form_of_errors(#[case] status: u16, #[case] name: &str, #[case] expected: Code) {
        let text = json!({"error": name, "error_description": "AADSTS7000215", "error_codes": [7_000_215]}).to_string();
        assert_eq!(failure_of(&answer(status, &text)).code(), expected);
    }

    #[test]
    fn the_header_names_an_error_first() {
        let text = json!({"error": {"code": "Other", "message": "m"}}).to_string();
        let mut answer = answer(409, &text);
        answer.headers.insert(NAME, "SkuNotAvailable".parse().unwrap());
        assert_eq!(failure_of(&answer).code(), Code::ResourceExhausted);
        answer.text = "<html>".to_owned();
        assert_eq!(failure_of(&answer).code(), Code::ResourceExhausted, "also without a body");
    }

    #[rstest]
    #[case::of_the_vm(&["Microsoft.Compute/LowCostGetResource;0,Microsoft.Compute/LowCostGetSubscriptionMaximum;7988"], true)]
    #[case::in_two_headers(&["Microsoft.Compute/LowCostGetSubscriptionMaximum;7988", "Microsoft.Compute/LowCostGetResource;0"], true)]
    #[case::of_the_subscription(&["Microsoft.Compute/LowCostGetResource;9,Microsoft.Compute/LowCostGetSubscriptionMaximum;0"], false)]
    #[case::of_both(&["Microsoft.Compute/LowCostGetResource;0,Microsoft.Compute/LowCostGetSubscriptionMaximum;0"], false)]
    #[case::of_an_older_kind(&["Microsoft.Compute/HighCostGet3Min;0"], false)]
    #[case::none_used_up(&["Microsoft.Compute/LowCostGetResource;9"], false)]
    #[case::of_the_resource_manager(&[], false)]
    fn only_used_up_policies_of_a_vm_limit_its_calls_alone(#[case] policies: &[&str], #[case] expected: bool) {
        let mut refused = answer(429, &json!({"error": {"code": "OperationNotAllowed", "message": "m"}}).to_string());
        for policy in policies {
            refused.headers.append(REMAINING, policy.parse().unwrap());
        }
        let failure = failure_of(&refused);
        assert_eq!(matches!(failure, CloudFailure::Crowded { .. }), expected);
        assert_eq!((failure.code(), failure.is_throttling()), (Code::Unavailable, !expected));
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("\"text\"")]
    #[case("{}")]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] text: &str) {
        assert_eq!(failure_of(&answer(404, text)), CloudFailure::Status(404));
    }
}
