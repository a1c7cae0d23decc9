//! Plans: ordered steps with their reasons, and waits.
//!
//! This module is below controllers, drain, safety, drivers and runtime, and does not depend on any kind.

pub mod cause;
mod event;
pub mod guide;
mod hold;
pub mod lint;
mod plannable;
mod preview;
pub mod repeats;
mod sent_patch;
pub mod shell;
mod subject;
mod wait;
mod words;
mod write_log;

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

pub use event::Event;
pub use hold::ReconcileHold;
pub use plannable::PlanInput;
pub use preview::{PlanPreview, PreviewStep};
pub use sent_patch::{SentPatch, UndoneWrite};
pub use subject::SubjectRef;
pub use wait::{Wait, WaitKind};
pub use words::{counted, some_of};
pub use write_log::{WriteLog, text_of};

/// The next steps, and what to wait for after them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(bound = "A: fmt::Display")]
pub struct Plan<A> {
    /// Actions, in order.
    pub steps: Vec<Step<A>>,
    /// The awaited events. A plan with neither steps nor waits is complete.
    pub waits: Vec<Wait>,
}

/// One action and the reason for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(bound = "A: fmt::Display")]
pub struct Step<A> {
    /// The change to make. JSON contains its text, without the data that it would write.
    #[serde(serialize_with = "as_text")]
    pub action: A,
    /// The reason, as text. A number in it names its field.
    pub reason: String,
    /// The event to record after the action succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
}

fn as_text<A: fmt::Display, S: Serializer>(action: &A, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(action)
}

impl<A> Default for Plan<A> {
    fn default() -> Self {
        Self { steps: Vec::new(), waits: Vec::new() }
    }
}

impl<A> Plan<A> {
    /// Adds a step.
    pub fn then(&mut self, action: A, reason: impl Into<String>) -> &mut Self {
        self.steps.push(Step { action, reason: reason.into(), event: None });
        self
    }

    /// Adds a step with an event.
    pub fn then_recording(&mut self, action: A, reason: impl Into<String>, event: Event) -> &mut Self {
        self.steps.push(Step { action, reason: reason.into(), event: Some(event) });
        self
    }

    /// Nothing to do but to wait; `text` completes "waiting for".
    pub fn waiting(kind: WaitKind, text: impl Into<String>, until: Option<Timestamp>) -> Self {
        Self { steps: Vec::new(), waits: vec![Wait::new(kind, text.into(), until)] }
    }

    /// Adds a wait; `text` completes "waiting for".
    pub fn wait(&mut self, kind: WaitKind, text: impl Into<String>, until: Option<Timestamp>) -> &mut Self {
        self.waits.push(Wait::new(kind, text.into(), until));
        self
    }

    /// When to reconcile again at the latest; `None` if only a change can matter.
    pub fn requeue_at(&self) -> Option<Timestamp> {
        self.waits.iter().filter_map(|wait| wait.until).min()
    }
}

impl<A: fmt::Display> fmt::Display for Plan<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{}: {}", step.action, step.reason)?;
        }
        for wait in &self.waits {
            writeln!(f, "{wait}")?;
        }
        if self.steps.is_empty() && self.waits.is_empty() {
            writeln!(f, "nothing to do")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mcm_api::reasons::EventReason;

    #[test]
    fn a_plan_prints_its_steps_with_reasons_and_then_its_waits() {
        let mut plan = Plan::default();
        assert_eq!(plan.to_string(), "nothing to do\n");
        plan.then("create machine m4", "3 planned < 3 replicas + 1 maxSurge");
        plan.wait(WaitKind::NodeJoin, "node n1 to join", Timestamp::from_second(60).ok());
        plan.wait(WaitKind::NodeHealth, "node n2 to be healthy", None);
        let expected = "create machine m4: 3 planned < 3 replicas + 1 maxSurge\n\
                        waiting for node n1 to join, until 1970-01-01T00:01:00Z\n\
                        waiting for node n2 to be healthy\n";
        assert_eq!(plan.to_string(), expected);
        assert_eq!(plan.requeue_at(), Timestamp::from_second(60).ok());
    }

    /// Writes a Secret.
    struct WriteSecret {
        name: &'static str,
        _data: &'static str,
    }

    impl fmt::Display for WriteSecret {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "write secret {}", self.name)
        }
    }

    #[test]
    fn a_plan_is_json_with_the_texts_of_its_actions_and_without_their_data() {
        let mut plan = Plan::default();
        plan.then(WriteSecret { name: "s1", _data: "hunter2" }, "it is missing");
        let event = Event::warning(EventReason::DrainBlocked, "pod p1 is protected");
        plan.then_recording(WriteSecret { name: "s2", _data: "hunter2" }, "it is old", event);
        plan.wait(WaitKind::NodeJoin, "node n1 to join", Timestamp::from_second(60).ok());
        plan.wait(WaitKind::Eviction, "pod p1", None);
        let expected = json!({
            "steps": [
                { "action": "write secret s1", "reason": "it is missing" },
                { "action": "write secret s2", "reason": "it is old",
                  "event": { "type": "Warning", "reason": "DrainBlocked", "message": "pod p1 is protected" } },
            ],
            "waits": [
                { "kind": "NodeJoin", "text": "node n1 to join", "nextAttempt": "1970-01-01T00:01:00Z" },
                { "kind": "Eviction", "text": "pod p1" },
            ],
        });
        assert_eq!(serde_json::to_value(&plan).unwrap(), expected);
    }
}
