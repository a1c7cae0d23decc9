//! Errors of OpenStack's services as codes.

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer, code_of_status},
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Parts of messages that mean: no host, no address, or a used-up quota. Nova and Octavia send their quota with status 403, Neutron
/// with 409, and Cinder with 413.
const EXHAUSTED: [&str; 7] = [
    "No valid host was found",
    "Quota exceeded",
    "Quota has been met",
    "exceeded for quota",
    "ExceedsAvailableQuota",
    "VolumeLimitExceeded",
    "No more IP addresses available",
];
/// Kinds of errors of Neutron that mean the same.
const EXHAUSTED_KINDS: [&str; 2] = ["OverQuota", "IpAddressGenerationFailure"];
/// The name of refusals because of too many calls. The pace of calls depends on it.
const THROTTLED: &str = "TooManyRequests";

/// An error of a service, below the name of its kind.
#[derive(Deserialize)]
struct Fault {
    message: String,
    /// Of Neutron only.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Of Keystone, and of all services for tokens that are not valid.
    title: Option<String>,
}

/// An error of Octavia, which is below no name.
#[derive(Deserialize)]
struct OctaviaFault {
    faultcode: String,
    faultstring: String,
}

/// Reads an answer whose status is no success.
pub(crate) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    if let Ok(OctaviaFault { faultcode, faultstring }) = serde_json::from_str(&answer.text) {
        return named(answer.status, faultcode, faultstring);
    }
    let only = serde_json::from_str::<Map<String, Value>>(&answer.text).ok().filter(|all| all.len() == 1);
    let only = only.and_then(|all| all.into_iter().next());
    let Some((name, fault)) = only.and_then(|(name, fault)| Some((name, serde_json::from_value::<Fault>(fault).ok()?)))
    else {
        return CloudFailure::Status(answer.status);
    };
    let Fault { message, kind, title } = fault;
    named(answer.status, kind.or(title).unwrap_or(name), message)
}

fn named(status: u16, name: String, message: String) -> CloudFailure {
    let code = code_of(status, &name, &message);
    let is_throttled = code == Code::Unavailable && [413, 429].contains(&status);
    let name = if is_throttled { THROTTLED.to_owned() } else { name };
    // Nova stores a server before it passes the order on: after an error in between, the server is there.
    CloudFailure::Named { code, name, message }.with_status(status)
}

fn code_of(status: u16, name: &str, message: &str) -> Code {
    match status {
        _ if is_exhausted(message) || EXHAUSTED_KINDS.contains(&name) => Code::ResourceExhausted,
        413 if message.contains("quota") => Code::ResourceExhausted,
        413 => Code::Unavailable,
        _ => match code_of_status(status) {
            Code::Unknown => Code::Internal,
            code => code,
        },
    }
}

/// The text of a service reports an exhausted resource or quota.
pub(crate) fn is_exhausted(message: &str) -> bool {
    EXHAUSTED.iter().any(|part| message.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn answer(status: u16, text: &str) -> HttpAnswer {
        HttpAnswer { status, headers: Default::default(), text: text.to_owned() }
    }

    /// Texts as the services of 2026.1 send them.
    #[rstest]
    #[case(403, json!({"forbidden": {"code": 403, "message": "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances"}}), Code::ResourceExhausted)]
    #[case(403, json!({"forbidden": {"code": 403, "message": "Policy doesn't allow os_compute_api:servers:create to be performed."}}), Code::PermissionDenied)]
    #[case(409, json!({"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['port'].", "detail": ""}}), Code::ResourceExhausted)]
    #[case(409, json!({"NeutronError": {"type": "IpAddressGenerationFailure", "message": "No more IP addresses available on network n.", "detail": ""}}), Code::ResourceExhausted)]
    #[case(409, json!({"NeutronError": {"type": "PortInUse", "message": "Unable to complete operation on port p", "detail": ""}}), Code::Aborted)]
    #[case(404, json!({"NeutronError": {"type": "PortNotFound", "message": "Port p could not be found.", "detail": ""}}), Code::NotFound)]
    #[case(413, json!({"overLimit": {"code": 413, "message": "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'."}}), Code::ResourceExhausted)]
    #[case(413, json!({"overLimit": {"code": 413, "message": "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota."}}), Code::ResourceExhausted)]
    #[case(413, json!({"overLimit": {"code": 413, "message": "This request was rate-limited."}}), Code::Unavailable)]
    #[case(429, json!({"overLimit": {"code": 429, "message": "This request was rate-limited."}}), Code::Unavailable)]
    #[case(404, json!({"itemNotFound": {"code": 404, "message": "Instance i could not be found."}}), Code::NotFound)]
    #[case(400, json!({"badRequest": {"code": 400, "message": "Unable to find network with id n"}}), Code::InvalidArgument)]
    #[case(401, json!({"error": {"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}}), Code::Unauthenticated)]
    #[case(409, json!({"conflictingRequest": {"code": 409, "message": "Cannot 'delete' instance while it is in task_state"}}), Code::Aborted)]
    #[case(404, json!({"faultcode": "Client", "faultstring": "Pool p not found.", "debuginfo": null}), Code::NotFound)]
    #[case(409, json!({"faultcode": "Client", "faultstring": "Load Balancer l is immutable and cannot be updated.", "debuginfo": null}), Code::Aborted)]
    #[case(403, json!({"faultcode": "Client", "faultstring": "Quota has been met for resources: Member", "debuginfo": null}), Code::ResourceExhausted)]
    #[case(403, json!({"faultcode": "Client", "faultstring": "Policy does not allow this request to be performed.", "debuginfo": null}), Code::PermissionDenied)]
    #[case(500, json!({"computeFault": {"code": 500, "message": "Unexpected API Error."}}), Code::Unavailable)]
    fn errors_of_each_service_have_codes(#[case] status: u16, #[case] body: Value, #[case] expected: Code) {
        let failure = failure_of(&answer(status, &body.to_string()));
        assert_eq!(failure.code(), expected, "{body}");
        assert_eq!(failure.is_throttling(), body.to_string().contains("rate-limited"), "{body}");
        assert_eq!(failure.may_have_had_effect(), status == 500, "{body}");
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("404 Not Found")]
    #[case("{}")]
    #[case(r#"{"message": "no such page"}"#)]
    #[case(r#"{"code": 404, "title": "Bad Request", "description": "Pool p not found."}"#)]
    #[case(r#"{"a": {"message": "x"}, "b": {"message": "y"}}"#)]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] text: &str) {
        let failure = failure_of(&answer(404, text));
        assert_eq!(failure, CloudFailure::Status(404));
        assert_eq!(failure.code(), Code::Unknown, "a proxy does not know which servers exist");
    }
}
