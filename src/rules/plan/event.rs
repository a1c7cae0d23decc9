use serde::{Serialize, Serializer};

use mcm_api::reasons::EventReason;

/// A Kubernetes Event on the object that is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Type `Warning`; otherwise `Normal`.
    #[serde(rename = "type", serialize_with = "event_type")]
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn event_type<S: Serializer>(warning: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *warning { "Warning" } else { "Normal" })
}
