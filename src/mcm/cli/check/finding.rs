//! Results of checks.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::exit::CommandExit;
use mcm_insight::terminal::StatusMark;

pub(super) use mcm_rules::plan::some_of;

/// A result, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub(in crate::cli) enum CheckLevel {
    /// As it should be.
    Good,
    /// Worth a look; it prevents nothing.
    Note,
    /// It could not be checked.
    Unknown,
    /// The controllers cannot work until it is corrected.
    Problem,
}

impl CheckLevel {
    /// The mark beside the text.
    pub(super) const fn mark(self) -> StatusMark {
        match self {
            Self::Good => StatusMark::Good,
            Self::Note => StatusMark::Look,
            Self::Unknown => StatusMark::Refused,
            Self::Problem => StatusMark::Bad,
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(in crate::cli) struct CheckFinding {
    /// Name of the check, one word.
    pub check: &'static str,
    pub result: CheckLevel,
    pub text: String,
    /// A command or an instruction; `None` if nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl CheckFinding {
    pub(super) fn new(check: &'static str, result: CheckLevel, text: impl Into<String>) -> Self {
        Self { check, result, text: text.into(), next: None }
    }

    pub(super) fn good(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Good, text)
    }

    pub(super) fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Note, text)
    }

    pub(super) fn unknown(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Unknown, text)
    }

    pub(super) fn problem(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Problem, text)
    }

    pub(super) fn then(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }
}

/// The checks of what is stored. Without an answer to one of them an installation is not known to be ready.
const OF_STORED: [&str; 4] = ["objects", "secrets", "leases", "waits"];

/// Problems make the answer no, and so do stored objects that could not be read.
pub(super) fn exit(findings: &[CheckFinding]) -> CommandExit {
    let is_no = |finding: &CheckFinding| match finding.result {
        CheckLevel::Problem => true,
        CheckLevel::Unknown => OF_STORED.contains(&finding.check),
        CheckLevel::Good | CheckLevel::Note => false,
    };
    if findings.iter().any(is_no) { CommandExit::No } else { CommandExit::Good }
}

/// `1 machine`, `2 machines`.
pub(super) fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
