//! Findings of a driver about the cloud resources that a class needs.

/// A cloud resource that a class needs, and whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The field that needs it, such as `providerSpec.ami`, or `Secret`.
    pub path: String,
    /// Whether the resource exists.
    pub presence: Presence,
    /// The finding, or the reason why it is unknown; free of secrets.
    pub text: String,
}

/// Whether the resource exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It exists and is usable.
    Present,
    /// It is certainly not there, or not usable.
    Missing,
    /// It could not be looked up, such as without a permission.
    Unknown,
}

impl Finding {
    /// A resource that exists.
    pub fn present(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), presence: Presence::Present, text: text.into() }
    }

    /// A resource that does not exist.
    pub fn missing(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), presence: Presence::Missing, text: text.into() }
    }

    /// The finding of a failed call: only some errors are about the requested resource.
    pub fn of_failure(path: impl Into<String>, error: &super::DriverError) -> Self {
        use super::Code;
        let is_certain = matches!(
            error.code,
            Code::NotFound | Code::InvalidArgument | Code::Unauthenticated | Code::ResourceExhausted
        );
        let presence = if is_certain { Presence::Missing } else { Presence::Unknown };
        Self { path: path.into(), presence, text: format!("{}: {}", error.code, error.message) }
    }
}
