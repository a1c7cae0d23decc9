//! Requests that an API server refuses.

use kube::core::Status;

/// The response to a user who may not send the request; `None` for every other error.
pub fn forbidden(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) if status.code == 403 => Some(status),
        _ => None,
    }
}
