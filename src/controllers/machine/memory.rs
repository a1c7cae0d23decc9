use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{drain::Attempts, driver::DriverError};

/// What a process remembers of a Machine between passes, and may forget: losing it costs a repeated call, never more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    calls: BTreeMap<Call, CallFailure>,
    node: BTreeMap<NodeWrite, NodeFailure>,
    /// The last eviction or delete of each pod.
    pub(super) pods: Attempts,
    /// Whether the user data asks for a bootstrap token; `None` if it was not read since the start.
    pub(super) wants_token: Option<bool>,
    /// The last write of the Machine may have been carried out, so what is stored may be newer than what is known.
    pub is_in_doubt: bool,
}

/// A call to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `Driver::status`.
    Ask,
    /// `Driver::create`.
    Create,
    /// `Driver::initialize`.
    Initialize,
    /// `Driver::delete`.
    Delete,
}

/// A driver call that failed and was not successful since.
#[derive(Clone, Debug, PartialEq)]
pub struct CallFailure {
    /// What the driver said.
    pub error: DriverError,
    /// When it answered.
    pub at: Timestamp,
    /// How often in a row it failed with this code.
    pub count: u32,
}

/// Why a Node is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeWrite {
    /// To link it to its Machine: labels, annotations, taints, finalizer, virtual capacity.
    Link,
    /// To announce its end by the condition `Terminating`.
    Announce,
    /// To keep new pods away.
    Cordon,
    /// To remove our finalizer.
    Release,
    /// To delete it.
    Delete,
}

/// A write to the Node that failed and was not successful since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFailure {
    /// What the API server said.
    pub message: String,
    /// When.
    pub at: Timestamp,
    /// How often in a row it failed.
    pub count: u32,
}

impl Memory {
    /// Makes every call possible at once; for when class or Secret changed.
    pub fn forget_failures(&mut self) {
        self.calls.clear();
        self.node.clear();
    }

    pub(super) fn call_failed(&mut self, call: Call, error: DriverError, at: Timestamp) {
        let before = self.calls.get(&call).filter(|failure| failure.error.code == error.code);
        let count = before.map_or(0, |failure| failure.count).saturating_add(1);
        self.calls.insert(call, CallFailure { error, at, count });
    }

    pub(super) fn call_succeeded(&mut self, call: Call) {
        self.calls.remove(&call);
    }

    pub(super) fn failure_of(&self, call: Call) -> Option<&CallFailure> {
        self.calls.get(&call)
    }

    pub(super) fn node_failed(&mut self, write: NodeWrite, message: String, at: Timestamp) {
        let count = self.node.get(&write).map_or(0, |failure| failure.count).saturating_add(1);
        self.node.insert(write, NodeFailure { message, at, count });
    }

    pub(super) fn node_written(&mut self, write: NodeWrite) {
        self.node.remove(&write);
    }

    /// The failure of a write to the Node, if it must not be tried again yet.
    pub(super) fn node_failure_of(&self, write: NodeWrite, now: Timestamp) -> Option<&NodeFailure> {
        self.node.get(&write).filter(|failure| now < failure.retry_at())
    }
}

impl NodeFailure {
    /// When to try again: after 1, 2, 4, then every 5 seconds.
    pub fn retry_at(&self) -> Timestamp {
        let seconds = 1_i64 << self.count.saturating_sub(1).min(3);
        self.at.checked_add(SignedDuration::from_secs(seconds.min(5))).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Code;

    #[test]
    fn failures_in_a_row_count_up_until_a_success_or_another_code() {
        let mut memory = Memory::default();
        let fail = |memory: &mut Memory, code| {
            memory.call_failed(Call::Create, DriverError::new(code, "because"), Timestamp::UNIX_EPOCH);
            memory.failure_of(Call::Create).map(|failure| failure.count)
        };
        assert_eq!(fail(&mut memory, Code::Internal), Some(1));
        assert_eq!(fail(&mut memory, Code::Internal), Some(2));
        assert_eq!(fail(&mut memory, Code::Unavailable), Some(1));
        memory.call_succeeded(Call::Ask);
        assert_eq!(fail(&mut memory, Code::Unavailable), Some(2), "the success of another call says nothing");
        memory.call_succeeded(Call::Create);
        assert_eq!(fail(&mut memory, Code::Unavailable), Some(1));
    }

    #[test]
    fn a_node_is_written_again_after_growing_time() {
        let mut memory = Memory::default();
        let waits: Vec<i64> = (0..5)
            .map(|_| {
                memory.node_failed(NodeWrite::Link, "denied".to_owned(), Timestamp::UNIX_EPOCH);
                let failure = memory.node_failure_of(NodeWrite::Link, Timestamp::UNIX_EPOCH);
                failure.map_or(0, |failure| failure.retry_at().as_second())
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        memory.forget_failures();
        assert_eq!(memory, Memory::default());
    }
}
