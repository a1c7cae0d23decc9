//! The error of a driver call.

use std::time::Duration;

use super::{code::Code, vm::Vm};

/// A driver call that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("machine codes error: code = [{code}] message = [{message}]")]
pub struct DriverError {
    /// Kind of the failure; decides about retries.
    pub code: Code,
    /// The attempted operation and the reason of its failure; free of secrets.
    pub message: String,
    /// State to store although the call failed.
    pub last_known_state: Option<String>,
    /// With [`Code::Uninitialized`]: the VM that exists but is not finished. With [`Code::NotFound`]: the VM as it ended, if the
    /// cloud still shows it; [`Vm::halted`] has the reason.
    pub vm: Option<Box<Vm>>,
    /// Nothing failed: the cloud still works on it, and the same call continues after this time. Only if
    /// [`MachineRequest::may_pause`](super::MachineRequest::may_pause).
    pub call_again_in: Option<Duration>,
}

/// Longest message for controllers, in bytes. It is copied into statuses, of which there are many.
const LONGEST_MESSAGE: usize = 2 << 10;

impl DriverError {
    /// The error with a message that fits into a status. A cut message has no brackets, because the code and the message are
    /// in brackets and programs parse them.
    pub(super) fn shortened(mut self) -> Self {
        if self.message.len() > LONGEST_MESSAGE {
            self.message.truncate(self.message.floor_char_boundary(LONGEST_MESSAGE));
            self.message = self.message.replace('[', "(").replace(']', ")") + "…";
        }
        self
    }

    /// A failure that carries only its code and text.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), last_known_state: None, vm: None, call_again_in: None }
    }

    /// The cloud still works on it.
    pub fn not_done(message: impl Into<String>, pause: Duration) -> Self {
        Self { call_again_in: Some(pause), ..Self::new(Code::Unavailable, message) }
    }
}
