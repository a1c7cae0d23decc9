//! Requests that are refused.

/// A request that was turned down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

impl RequestRefusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }
}
