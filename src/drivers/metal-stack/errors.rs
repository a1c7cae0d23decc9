//! Errors of metal-api as codes.

use serde::Deserialize;

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer, code_of_status},
};

/// Parts of messages that mean: no machine, no address, or the quota of the project is used up.
const EXHAUSTED: [&str; 5] =
    ["no machine available", "quota for machines reached", "no ips left", "cannot find free ip", "NoIPAvailable"];
/// More machines are being allocated at the same time than metal-api can do.
const BUSY: &str = "too many parallel machine allocations";
/// The machine cannot be freed.
const LOCKED: &str = "machine is locked";
/// Another allocation was faster.
const TAKEN: &str = "already allocated";

/// An error. The real server sends it as a JSON string that contains this object, although its Swagger document has the object
/// itself.
#[derive(Deserialize)]
struct Problem {
    statuscode: u16,
    message: String,
}

/// Reads an answer whose status is not a success.
pub(super) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    let inner = serde_json::from_str::<String>(&answer.text);
    let Ok(problem) = serde_json::from_str::<Problem>(inner.as_deref().unwrap_or(&answer.text)) else {
        return CloudFailure::Status(answer.status);
    };
    let Problem { statuscode, message } = problem;
    let (code, name) = (code_of(statuscode, &message), name_of(statuscode, &message).to_owned());
    CloudFailure::Named { code, name, message }.with_status(statuscode)
}

/// The status alone is ambiguous: all that is neither absent, in conflict nor broken is 422.
fn code_of(status: u16, message: &str) -> Code {
    let is = |part: &str| message.contains(part);
    if EXHAUSTED.iter().any(|part| is(part)) {
        return Code::ResourceExhausted;
    }
    match status {
        _ if is(BUSY) => Code::Unavailable,
        422 if is(LOCKED) => Code::FailedPrecondition,
        422 if is(TAKEN) => Code::Aborted,
        422 => Code::Internal,
        _ => match code_of_status(status) {
            Code::Unknown => Code::Internal,
            code => code,
        },
    }
}

/// The name of a status. The pace of calls depends on that of throttling.
fn name_of(status: u16, message: &str) -> &'static str {
    match status {
        429 => "Throttled",
        _ if message.contains(BUSY) => "Throttled",
        400 => "BadRequest",
        401 => "Unauthenticated",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Unprocessable",
        _ => "ServerError",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(422, "no machine available", Code::ResourceExhausted)]
    #[case(422, "project quota for machines reached max:3", Code::ResourceExhausted)]
    #[case(
        500,
        "unable to make networks:unable to allocate an ip in network: n Internal cannot allocate free ip in ipam, no ips left",
        Code::ResourceExhausted
    )]
    #[case(422, "cannot find free ip to allocate in ipam: 10.0.0.0/22", Code::ResourceExhausted)]
    #[case(422, "too many parallel machine allocations taking place, try again later", Code::Unavailable)]
    #[case(422, "machine is locked", Code::FailedPrecondition)]
    #[case(422, "machine \"x\" already allocated", Code::Aborted)]
    #[case(422, "invalid public SSH key", Code::Internal)]
    #[case(400, "NotFound no size with id \"x\" found", Code::InvalidArgument)]
    #[case(401, "wrong hmac", Code::Unauthenticated)]
    #[case(403, "you are not member in one of", Code::PermissionDenied)]
    #[case(404, "NotFound no machine with id \"x\" found", Code::NotFound)]
    #[case(409, "Conflict the entity was changed", Code::Aborted)]
    #[case(429, "slow down", Code::Unavailable)]
    #[case(500, "Internal cannot reach the database", Code::Unavailable)]
    fn errors_have_codes_in_both_forms(#[case] status: u16, #[case] message: &str, #[case] expected: Code) {
        let text = json!({"statuscode": status, "message": message}).to_string();
        for text in [Value::from(text.as_str()).to_string(), text] {
            let failure = failure_of(&HttpAnswer { status, text: text.clone(), ..HttpAnswer::default() });
            assert_eq!(failure.code(), expected, "{text}");
            let is_busy = status == 429 || message.contains("too many");
            assert_eq!(failure.is_throttling(), is_busy, "{text}");
            assert_eq!(failure.may_have_had_effect(), status == 500 && !message.contains("no ips"), "{text}");
        }
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("\"text\"")]
    #[case("{}")]
    #[case("404: Page Not Found")]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] text: &str) {
        let failure = failure_of(&HttpAnswer { status: 404, text: text.to_owned(), ..HttpAnswer::default() });
        assert_eq!(failure, CloudFailure::Status(404));
        assert_eq!(failure.code(), Code::Unknown, "a proxy does not know which machines exist");
    }
}
