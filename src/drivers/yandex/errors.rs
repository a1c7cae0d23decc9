//! Errors of the cloud as codes. They are statuses of gRPC, also over HTTP and in operations.

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer},
};
use serde::Deserialize;
use serde_json::Value;

/// The cloud carries out so many operations at a time. Some end in a moment.
const BUSY: &str = "active operations";
/// The zone has no host for the VM.
const NO_STOCK: &str = "not enough resources";
/// Messages of used-up quotas without details.
const LIMITS: [&str; 3] = ["the limit on", "quota", "limit exceeded"];
/// The name of failures by which the pace of calls is cut.
const TOO_MANY: &str = "TooManyRequests";
const RESOURCE_EXHAUSTED: u16 = 8;

/// An error in a body or in an operation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Status {
    code: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Vec<Detail>,
}

/// One of several kinds of details.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Detail {
    #[serde(rename = "@type", default)]
    kind: String,
    #[serde(default)]
    violations: Vec<Violation>,
}

/// A quota that does not suffice.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Violation {
    metric: Option<Metric>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Metric {
    #[serde(default)]
    name: String,
    /// A number, or a text that contains one.
    limit: Option<Value>,
}

/// Reads the answer of an HTTP status that is no success.
pub(crate) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    match serde_json::from_str::<Status>(&answer.text) {
        Ok(status) => status.failure(false),
        Err(_) => CloudFailure::Status(answer.status),
    }
}

impl Status {
    /// The failure of an operation. The cloud had accepted its request, so it was not throttled.
    pub(crate) fn of_operation(&self) -> CloudFailure {
        self.failure(true)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code == 5
    }

    fn failure(&self, is_of_operation: bool) -> CloudFailure {
        let message = self.message.clone() + &self.quotas();
        let (code, name) = self.judged(is_of_operation);
        CloudFailure::Named { code, name: name.to_owned(), message }
    }

    fn judged(&self, is_of_operation: bool) -> (Code, &'static str) {
        let plain = self.message.to_lowercase();
        if plain.contains(NO_STOCK) {
            return (Code::ResourceExhausted, "NotEnoughResources");
        }
        match self.code {
            RESOURCE_EXHAUSTED if plain.contains(BUSY) => (Code::Unavailable, TOO_MANY),
            RESOURCE_EXHAUSTED if is_of_operation || self.is_quota(&plain) => {
                (Code::ResourceExhausted, "ResourceExhausted")
            }
            // Without a quota it is the rate of requests.
            RESOURCE_EXHAUSTED => (Code::Unavailable, TOO_MANY),
            // A creation that broke would break again, so it is not repeated at once.
            13 if is_of_operation => (Code::Internal, "Internal"),
            code => of_grpc(code),
        }
    }

    fn is_quota(&self, plain: &str) -> bool {
        self.quota_failures().next().is_some() || LIMITS.iter().any(|part| plain.contains(part))
    }

    fn quota_failures(&self) -> impl Iterator<Item = &Detail> {
        self.details.iter().filter(|detail| detail.kind.ends_with(".QuotaFailure"))
    }

    /// The quotas that do not suffice, as a text.
    fn quotas(&self) -> String {
        let violations = self.quota_failures().flat_map(|detail| &detail.violations);
        let metrics = violations.filter_map(|violation| violation.metric.as_ref());
        let text = |metric: &Metric| {
            let limit = metric.limit.as_ref().map(|limit| format!(" of {}", limit.to_string().trim_matches('"')));
            format!(" (quota {}{})", metric.name, limit.unwrap_or_default())
        };
        metrics.map(text).collect()
    }
}

/// The code and the name of a status of gRPC. Two of them have another meaning for a driver: several VMs (`OUT_OF_RANGE`), and a
/// VM that may be created (`UNIMPLEMENTED`).
const fn of_grpc(status: u16) -> (Code, &'static str) {
    match status {
        1 => (Code::Aborted, "Cancelled"),
        3 => (Code::InvalidArgument, "InvalidArgument"),
        4 => (Code::DeadlineExceeded, "DeadlineExceeded"),
        5 => (Code::NotFound, "NotFound"),
        6 => (Code::AlreadyExists, "AlreadyExists"),
        7 => (Code::PermissionDenied, "PermissionDenied"),
        9 => (Code::FailedPrecondition, "FailedPrecondition"),
        10 => (Code::Aborted, "Aborted"),
        11 => (Code::InvalidArgument, "OutOfRange"),
        12 => (Code::Internal, "Unimplemented"),
        13 => (Code::Unavailable, "Internal"),
        14 => (Code::Unavailable, "Unavailable"),
        15 => (Code::DataLoss, "DataLoss"),
        16 => (Code::Unauthenticated, "Unauthenticated"),
        _ => (Code::Unknown, "Unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::SecretData;
    use rstest::rstest;
    use serde_json::json;

    fn status(code: u16, message: &str) -> Status {
        Status { code, message: message.to_owned(), details: vec![] }
    }

    #[rstest]
    #[case(2, "x", Code::Unknown)]
    #[case(3, "Illegal argument zone_id", Code::InvalidArgument)]
    #[case(4, "x", Code::DeadlineExceeded)]
    #[case(5, "Instance fhm not found", Code::NotFound)]
    #[case(6, "Instance with name m already exists", Code::AlreadyExists)]
    #[case(7, "Permission denied", Code::PermissionDenied)]
    #[case::quota(8, "The limit on maximum number of instances has exceeded.", Code::ResourceExhausted)]
    #[case::quota(8, "Quota limit compute.instances.count exceeded", Code::ResourceExhausted)]
    #[case::busy(8, "The limit on maximum number of active operations has exceeded.", Code::Unavailable)]
    #[case::rate(8, "Too many requests", Code::Unavailable)]
    #[case::stock(8, "Not enough resources", Code::ResourceExhausted)]
    #[case::stock(9, "There are not enough resources in zone", Code::ResourceExhausted)]
    #[case(9, "Instance is locked", Code::FailedPrecondition)]
    #[case(10, "x", Code::Aborted)]
    #[case::not_several_vms(11, "x", Code::InvalidArgument)]
    #[case::not_a_reason_to_create(12, "x", Code::Internal)]
    #[case(13, "x", Code::Unavailable)]
    #[case(14, "x", Code::Unavailable)]
    #[case(15, "x", Code::DataLoss)]
    #[case(16, "The token has expired", Code::Unauthenticated)]
    #[case::newer(99, "x", Code::Unknown)]
    fn statuses_have_codes(#[case] code: u16, #[case] message: &str, #[case] expected: Code) {
        let text = json!({"code": code, "message": message}).to_string();
        let failure = failure_of(&HttpAnswer { status: 400, text, ..HttpAnswer::default() });
        assert_eq!((failure.code(), failure.may_have_had_effect()), (expected, false));
        let is_throttling = expected == Code::Unavailable && code == 8;
        assert_eq!(failure.is_throttling(), is_throttling);
    }

    #[rstest]
    #[case(1, "Operation was cancelled", Code::Aborted)]
    #[case(8, "no reason", Code::ResourceExhausted)]
    #[case(8, "The limit on maximum number of active operations has exceeded.", Code::Unavailable)]
    #[case(13, "Internal error", Code::Internal)]
    #[case(13, "Not enough resources", Code::ResourceExhausted)]
    #[case(14, "x", Code::Unavailable)]
    fn an_operation_was_not_throttled(#[case] code: u16, #[case] message: &str, #[case] expected: Code) {
        assert_eq!(status(code, message).of_operation().code(), expected);
    }

    #[rstest]
    #[case::as_a_text(json!("12"))]
    #[case::as_a_number(json!(12))]
    fn a_quota_is_named_with_its_limit(#[case] limit: Value) {
        let metric = json!({"name": "compute.instances.count", "limit": limit, "usage": 12});
        let details = json!([
            {"@type": "type.googleapis.com/google.rpc.RequestInfo", "requestId": "x"},
            {"@type": "type.googleapis.com/yandex.cloud.quota.QuotaFailure", "violations": [{"metric": metric, "required": "13"}]},
        ]);
        let text = json!({"code": 8, "message": "no more", "details": details}).to_string();
        let error =
            failure_of(&HttpAnswer { status: 429, text, ..HttpAnswer::default() }).error("x", &SecretData::default());
        assert_eq!(error.code, Code::ResourceExhausted);
        let expected = "x failed: ResourceExhausted: no more (quota compute.instances.count of 12)";
        assert_eq!(error.message, expected);
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("{}")]
    #[case(r#"{"code": "NotFound"}"#)]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] text: &str) {
        let answer = HttpAnswer { status: 404, text: text.to_owned(), ..HttpAnswer::default() };
        assert_eq!(failure_of(&answer), CloudFailure::Status(404));
        assert_eq!(failure_of(&answer).code(), Code::Unknown, "a proxy cannot tell which VMs exist");
    }
}
