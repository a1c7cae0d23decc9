use crate::api::reasons::EventReason;

/// A Kubernetes Event on the object that is reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type `Warning`; otherwise `Normal`.
    pub warning: bool,
    /// Reason of the event.
    pub reason: EventReason,
    /// Text of the event.
    pub message: String,
}

impl Event {
    /// Of type `Normal`.
    pub fn normal(reason: EventReason, message: impl Into<String>) -> Self {
        Self { warning: false, reason, message: message.into() }
    }

    /// Of type `Warning`.
    pub fn warning(reason: EventReason, message: impl Into<String>) -> Self {
        Self { warning: true, reason, message: message.into() }
    }
}
