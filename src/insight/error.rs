//! Errors as users read them.

use mcm_runtime::kubeconfig::sentence;

/// Arguments that are well-formed and make no sense together, found only when the command runs.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    /// The error.
    pub message: String,
    /// The hint.
    pub hint: String,
}

/// The answer is not known, because a kind could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct UnreadError {
    /// The question, and the kinds.
    pub message: String,
    /// The hint.
    pub hint: String,
}

/// An error with its causes in one line. That of an API server is a sentence, without the form that it has in logs.
pub fn error_line(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for layer in error.chain() {
        let of_api = layer.downcast_ref::<kube::Error>();
        let text = of_api.map_or_else(|| layer.to_string(), sentence);
        // Some errors repeat their cause.
        if parts.last().is_none_or(|last| !last.ends_with(&text)) {
            parts.push(text);
        }
        if of_api.is_some() {
            break;
        }
    }
    parts.join(": ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;
    use kube::core::Status;
    use rstest::rstest;
    use tower::BoxError;

    use super::*;

    fn refused() -> kube::Error {
        let message = "events is forbidden: User \"alice\" cannot list resource \"events\"".to_owned();
        kube::Error::Api(Status { code: 403, reason: "Forbidden".to_owned(), message, ..Status::default() }.boxed())
    }

    fn away() -> kube::Error {
        kube::Error::Service(BoxError::from(io::Error::from(io::ErrorKind::ConnectionRefused)))
    }

    #[rstest]
    #[case::refused(refused(), "list events: events is forbidden: User \"alice\" cannot list resource \"events\"")]
    #[case::away(away(), "list events: the API server does not answer: connection refused")]
    #[case::no_message(kube::Error::Api(Status { code: 500, reason: "Internal".to_owned(), ..Status::default() }.boxed()), "list events: the API server answered 500 Internal")]
    fn an_error_of_an_api_server_is_a_sentence(#[case] error: kube::Error, #[case] expected: &str) {
        let error = Err::<(), _>(error).context("list events").unwrap_err();
        assert_eq!(error_line(&error), expected);
    }

    #[test]
    fn other_errors_have_all_their_causes_once() {
        let error = anyhow::anyhow!("no\nsuch file").context("open it").context("read a: open it");
        assert_eq!(error_line(&error), "read a: open it: no such file");
    }
}
