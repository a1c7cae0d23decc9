//! Errors of the API as codes.

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer, code_of_status},
};
use serde::Deserialize;

/// Parts of messages that mean: no server, no usable reservation, or a limit of the project is reached.
const EXHAUSTED: [&str; 4] = ["provisionable", "capacity", "quota", "maximum number"];
/// A device cannot be deleted until it is provisioned.
const TOO_EARLY: &str = "while it is provisioning";

/// The body of an error: one of the two is there.
#[derive(Deserialize)]
struct Body {
    error: Option<String>,
    errors: Option<Vec<String>>,
}

/// Reads an answer whose HTTP status is no success.
pub(crate) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    let status = answer.status;
    let message = match serde_json::from_str(&answer.text) {
        Ok(Body { error: Some(error), .. }) => error,
        Ok(Body { errors: Some(errors), .. }) => errors.join("; "),
        _ => return CloudFailure::Status(status),
    };
    let code = code_of(status, &message);
    CloudFailure::Named { code, name: name_of(status).to_owned(), message }.with_status(status)
}

fn code_of(status: u16, message: &str) -> Code {
    let message = message.to_ascii_lowercase();
    match status {
        422 | 503 if EXHAUSTED.iter().any(|part| message.contains(part)) => Code::ResourceExhausted,
        422 if message.contains(TOO_EARLY) => Code::Unavailable,
        _ => match code_of_status(status) {
            Code::Unknown => Code::Internal,
            code => code,
        },
    }
}

/// The name of a status. The pace of calls depends on that of throttling.
fn name_of(status: u16) -> &'static str {
    match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        422 => "Unprocessable",
        429 => "TooManyRequests",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn failure(status: u16, text: &str) -> CloudFailure {
        failure_of(&HttpAnswer { status, headers: Default::default(), text: text.to_owned() })
    }

    #[rstest]
    #[case::stock(
        422,
        "The metro ny has no provisionable c3.small.x86 servers matching your criteria",
        Code::ResourceExhausted
    )]
    #[case::stock(
        503,
        "The facility ewr1 has no provisionable t1.small.x86 servers matching your criteria",
        Code::ResourceExhausted
    )]
    #[case::reservation(422, "Server is not provisionable", Code::ResourceExhausted)]
    #[case::quota(422, "You have reached the maximum number of devices", Code::ResourceExhausted)]
    #[case::early(422, "Cannot delete a device while it is provisioning", Code::Unavailable)]
    #[case(422, "ams1 is not a valid facility", Code::InvalidArgument)]
    #[case(400, "bad", Code::InvalidArgument)]
    #[case(401, "Invalid authentication token", Code::Unauthenticated)]
    #[case(403, "You are not authorized to view this device", Code::PermissionDenied)]
    #[case(404, "Not found", Code::NotFound)]
    #[case(402, "pay", Code::Internal)]
    #[case(429, "Too many requests", Code::Unavailable)]
    #[case(500, "Oh snap, something went wrong!", Code::Unavailable)]
    fn errors_have_codes_in_both_forms(#[case] status: u16, #[case] message: &str, #[case] expected: Code) {
        for body in
            [json!({"error": message}), json!({"errors": [message]}), json!({"error": null, "errors": ["x", message]})]
        {
            let failure = failure(status, &body.to_string());
            assert_eq!(failure.code(), expected, "{body}");
            assert_eq!(failure.is_throttling(), status == 429, "{body}");
            assert_eq!(failure.may_have_had_effect(), status == 500, "{body}");
        }
    }

    #[rstest]
    #[case(Value::Null)]
    #[case(json!({}))]
    #[case(json!({"error": {"code": 404}}))]
    #[case(json!("Not found"))]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] body: Value) {
        assert_eq!(failure(404, &body.to_string()), CloudFailure::Status(404));
        assert_eq!(failure(404, "<html></html>").code(), Code::Unknown, "a proxy does not know which devices exist");
    }
}
