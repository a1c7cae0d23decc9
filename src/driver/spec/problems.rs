use std::fmt;

use crate::{code::Code, error::DriverError};
use mcm_api::syntax::is_deceptive;

/// At most this many problems are listed.
const MOST_PROBLEMS: usize = 50;
/// Values from the spec are shown up to this length.
const LONGEST_QUOTE: usize = 40;

/// One problem and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Path, such as `providerSpec.taints[0].effect`.
    pub path: String,
    /// The expected and the actual value.
    pub text: String,
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// All problems of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassProblems {
    /// Problems with which no VM can be created.
    pub errors: Vec<FieldProblem>,
    /// Harmless problems, such as unknown fields.
    pub warnings: Vec<FieldProblem>,
    /// Where the driver of the reference would do something else. Only `mcm class check` shows them.
    pub differences: Vec<FieldProblem>,
}

impl ClassProblems {
    /// Adds an error of the field at a path.
    pub fn error(&mut self, path: impl Into<String>, text: impl Into<String>) {
        push(&mut self.errors, path.into(), text.into());
    }

    /// Adds a warning about the field at a path.
    pub fn warning(&mut self, path: impl Into<String>, text: impl Into<String>) {
        push(&mut self.warnings, path.into(), text.into());
    }

    /// True while another warning would be listed.
    pub fn lists_more_warnings(&self) -> bool {
        self.warnings.len() < MOST_PROBLEMS
    }

    /// Adds a difference to the driver of the reference.
    pub fn difference(&mut self, path: impl Into<String>, text: impl Into<String>) {
        push(&mut self.differences, path.into(), text.into());
    }

    /// Adds the error of a check of the Secret of the class.
    pub fn secret<T>(&mut self, checked: Result<T, DriverError>) {
        if let Err(error) = checked {
            self.error("Secret", error.message);
        }
    }

    /// Adds an error: the field at the path has another value than expected.
    pub fn expected(&mut self, path: impl Into<String>, expected: &str, found: &str) {
        self.error(path, format!("expected {expected}, found {found}"));
    }

    /// All errors in one text.
    pub fn error_text(&self) -> String {
        self.errors.iter().map(FieldProblem::to_string).collect::<Vec<_>>().join("; ")
    }

    /// [`Code::InvalidArgument`] with all errors, if there are any.
    pub fn to_result(&self) -> Result<(), DriverError> {
        if self.errors.is_empty() { Ok(()) } else { Err(DriverError::new(Code::InvalidArgument, self.error_text())) }
    }
}

fn push(problems: &mut Vec<FieldProblem>, path: String, text: String) {
    if problems.len() < MOST_PROBLEMS {
        problems.push(FieldProblem { path, text });
    }
}

/// Escapes a value for a machine code message, in which brackets and line breaks have a meaning.
pub fn quotable(text: &str) -> String {
    let plain = |c: char| match c {
        '[' => '(',
        ']' => ')',
        c if is_deceptive(c) => ' ',
        c => c,
    };
    let short: String = text.chars().take(LONGEST_QUOTE).map(plain).collect();
    if text.chars().nth(LONGEST_QUOTE).is_some() { format!("{short}…") } else { short }
}
