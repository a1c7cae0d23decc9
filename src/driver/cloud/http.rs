//! Codes of HTTP statuses, for errors that the cloud does not name.

use crate::code::Code;

/// The code of an HTTP status. A success that could not be read has an unknown outcome.
pub const fn code_of_status(status: u16) -> Code {
    match status {
        400 | 405 | 406 | 413 | 414 | 415 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 | 410 => Code::NotFound,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::Aborted,
        412 => Code::FailedPrecondition,
        429 | 500 | 502 | 503 | 509 => Code::Unavailable,
        // `Unimplemented` is the answer of a driver that lacks a method: of a look-up it would mean that there is no VM.
        402..500 | 501 => Code::Internal,
        505..600 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(400, Code::InvalidArgument)]
    #[case(401, Code::Unauthenticated)]
    #[case(403, Code::PermissionDenied)]
    #[case(404, Code::NotFound)]
    #[case(408, Code::DeadlineExceeded)]
    #[case(409, Code::Aborted)]
    #[case(418, Code::Internal)]
    #[case(429, Code::Unavailable)]
    #[case(500, Code::Unavailable)]
    #[case(503, Code::Unavailable)]
    #[case(504, Code::DeadlineExceeded)]
    #[case(599, Code::Unavailable)]
    #[case::success(200, Code::Unknown)]
    #[case::redirection(302, Code::Unknown)]
    fn statuses_have_codes(#[case] status: u16, #[case] expected: Code) {
        assert_eq!(code_of_status(status), expected);
    }

    #[test]
    fn no_status_means_that_the_driver_lacks_a_method() {
        let all: Vec<Code> = (0..=999).map(code_of_status).collect();
        assert!(!all.contains(&Code::Unimplemented));
        assert_eq!(all[501], Code::Internal);
    }

    #[test]
    fn a_response_that_is_not_from_the_cloud_is_transient() {
        assert!([200, 302, 408, 409, 429, 500, 502, 503, 504].into_iter().all(|s| code_of_status(s).is_transient()));
    }
}
