use super::{code::Code, vm::Vm};

/// A driver call that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("machine codes error: code = [{code}] message = [{message}]")]
pub struct DriverError {
    /// Kind of the failure; decides about retries.
    pub code: Code,
    /// What was attempted and why it failed; free of secrets.
    pub message: String,
    /// State to store although the call failed.
    pub last_known_state: Option<String>,
    /// With [`Code::Uninitialized`]: the VM that exists but is not finished.
    pub vm: Option<Box<Vm>>,
}

impl DriverError {
    /// A failure that carries only its code and text.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), last_known_state: None, vm: None }
    }
}
