use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use mcm_rules::plan::Event;

/// One occurrence of an event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EventOccurrence {
    pub component: &'static str,
    pub regarding: ObjectReference,
    pub event: Event,
    pub at: Timestamp,
}
