//! Exit codes, the same for every command. The Go program names keep those of the Go programs.

use std::process::ExitCode;

use mcm_insight::story::NamespaceFacts;

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandExit {
    /// It was done, and the answer is good.
    Good = 0,
    /// The command failed; standard error has the reason.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// It was done, and the answer is no: a check failed, a rollout is blocked, a user has to act.
    No = 3,
    /// Something waits and continues without a user.
    Waits = 4,
    /// The time ended first.
    TimedOut = 124,
}

impl CommandExit {
    /// The end of a command that shows all objects of some namespaces: what could not be read is no good answer.
    pub(super) fn of_facts<'a>(namespaces: impl IntoIterator<Item = &'a NamespaceFacts>) -> Self {
        if namespaces.into_iter().all(NamespaceFacts::is_whole) { Self::Good } else { Self::No }
    }
}

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        Self::from(exit as u8)
    }
}

/// The answer of a command.
#[derive(Debug)]
pub struct CommandAnswer {
    /// For standard output.
    pub text: String,
    /// Its meaning.
    pub exit: CommandExit,
}

/// An end that is not good, with the next step.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExitError {
    /// The error.
    pub message: String,
    /// The hint.
    pub hint: String,
    /// Its meaning.
    pub exit: CommandExit,
}

impl ExitError {
    /// The answer is no.
    pub fn no(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into(), exit: CommandExit::No }
    }
}

/// The answer is no, although everything was done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NegativeAnswer(pub String);
