//! Errors of an API server as codes.

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer, code_of_status},
};
use serde::Deserialize;

use super::vm::QUOTA;

/// The namespace is being deleted.
const TERMINATING: &str = "because it is being terminated";
/// Parts of messages after which the request may still be carried out: the store did not answer in time.
const UNDECIDED: [&str; 3] = ["etcdserver: ", "context deadline exceeded", "timed out"];

/// Kubernetes' Status.
#[derive(Deserialize)]
struct Status {
    kind: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Details,
}

/// The object that an error is about.
#[derive(Default, Deserialize)]
struct Details {
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
}

/// Reads an answer whose status is not a success.
pub(crate) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    let status = serde_json::from_str::<Status>(&answer.text).ok().filter(|status| status.kind == "Status");
    let Some(status) = status else { return CloudFailure::Status(answer.status) };
    let is_undecided = ["Timeout", "ServerTimeout"].contains(&status.reason.as_str())
        || (answer.status >= 500 && UNDECIDED.iter().any(|part| status.message.contains(part)));
    if is_undecided {
        return CloudFailure::Broken(format!("{}: {}", name_of(&status), status.message));
    }
    CloudFailure::Named { code: code_of(answer.status, &status), name: name_of(&status), message: status.message }
}

fn code_of(http: u16, status: &Status) -> Code {
    let Status { reason, message, details, .. } = status;
    match reason.as_str() {
        _ if message.contains(QUOTA) => Code::ResourceExhausted,
        // Without the name of an object the API or the namespace is absent, which proves nothing about a VM.
        "NotFound" if details.name.is_empty() || details.kind == "namespaces" => Code::FailedPrecondition,
        "NotFound" => Code::NotFound,
        "AlreadyExists" => Code::AlreadyExists,
        "Conflict" | "Expired" | "Gone" => Code::Aborted,
        "Forbidden" if message.contains(TERMINATING) => Code::FailedPrecondition,
        "Forbidden" => Code::PermissionDenied,
        "Unauthorized" => Code::Unauthenticated,
        "TooManyRequests" => Code::Unavailable,
        _ => match code_of_status(http) {
            Code::NotFound => Code::FailedPrecondition,
            Code::Unknown => Code::Internal,
            code => code,
        },
    }
}

/// Name of an error. That of too many requests slows calls down.
fn name_of(status: &Status) -> String {
    if status.reason.is_empty() { "Failure".to_owned() } else { status.reason.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn failure(http: u16, reason: &str, message: &str, kind: &str, name: &str) -> CloudFailure {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
            "details": {"name": name, "kind": kind}, "code": http,
        });
        failure_of(&HttpAnswer { status: http, text: status.to_string(), ..HttpAnswer::default() })
    }

    #[rstest]
    #[case(404, "NotFound", "virtualmachines.kubevirt.io \"a\" not found", "virtualmachines", "a", Code::NotFound)]
    #[case::no_kubevirt(
        404,
        "NotFound",
        "the server could not find the requested resource",
        "",
        "",
        Code::FailedPrecondition
    )]
    #[case::no_namespace(
        404,
        "NotFound",
        "namespaces \"team\" not found",
        "namespaces",
        "team",
        Code::FailedPrecondition
    )]
    #[case(
        409,
        "AlreadyExists",
        "virtualmachines.kubevirt.io \"a\" already exists",
        "virtualmachines",
        "a",
        Code::AlreadyExists
    )]
    #[case(409, "Conflict", "the UID in the precondition", "virtualmachines", "a", Code::Aborted)]
    #[case(403, "Forbidden", "user cannot create", "virtualmachines", "a", Code::PermissionDenied)]
    #[case::quota(
        403,
        "Forbidden",
        "secrets \"a\" is forbidden: exceeded quota: q, requested: count/secrets=1",
        "secrets",
        "a",
        Code::ResourceExhausted
    )]
    #[case::terminating(
        403,
        "Forbidden",
        "unable to create new content in namespace team because it is being terminated",
        "",
        "",
        Code::FailedPrecondition
    )]
    #[case(401, "Unauthorized", "Unauthorized", "", "", Code::Unauthenticated)]
    #[case(422, "Invalid", "spec.template.spec: Invalid value", "VirtualMachine", "a", Code::InvalidArgument)]
    #[case(400, "BadRequest", "admission webhook denied the request", "", "", Code::InvalidArgument)]
    #[case::of_a_webhook(403, "", "admission webhook denied the request", "", "", Code::PermissionDenied)]
    #[case(429, "TooManyRequests", "too many requests", "", "", Code::Unavailable)]
    #[case(410, "Expired", "the provided continue parameter is too old", "", "", Code::Aborted)]
    #[case(500, "InternalError", "failed calling webhook: connection refused", "", "", Code::Unavailable)]
    #[case(503, "ServiceUnavailable", "apiserver not ready", "", "", Code::Unavailable)]
    fn errors_have_codes(
        #[case] http: u16,
        #[case] reason: &str,
        #[case] message: &str,
        #[case] kind: &str,
        #[case] name: &str,
        #[case] expected: Code,
    ) {
        let failure = failure(http, reason, message, kind, name);
        assert_eq!((failure.code(), failure.may_have_had_effect()), (expected, false));
        assert_eq!(failure.is_throttling(), http == 429);
    }

    #[rstest]
    #[case(504, "Timeout", "request did not complete within the allotted timeout")]
    #[case(500, "ServerTimeout", "the server cannot complete the requested operation")]
    #[case(500, "InternalError", "etcdserver: request timed out")]
    #[case(500, "", "failed calling webhook: context deadline exceeded")]
    fn a_request_that_the_store_did_not_answer_may_have_an_effect(
        #[case] http: u16,
        #[case] reason: &str,
        #[case] message: &str,
    ) {
        let failure = failure(http, reason, message, "", "");
        assert_eq!((failure.code(), failure.may_have_had_effect()), (Code::Unknown, true));
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("404 page not found")]
    #[case("{}")]
    #[case("{\"kind\": \"Other\"}")]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] text: &str) {
        let failure = failure_of(&HttpAnswer { status: 404, text: text.to_owned(), ..HttpAnswer::default() });
        assert_eq!((failure.clone(), failure.code()), (CloudFailure::Status(404), Code::Unknown));
    }
}
