//! What a driver finds in its cloud of what a class needs.

/// Something that a class needs, and whether it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The field that needs it, such as `providerSpec.ami`, or `Secret`.
    pub path: String,
    pub presence: Presence,
    /// What was found, or why it is not known; free of secrets.
    pub text: String,
}

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(feature = "cloud", feature = "remote")), expect(dead_code, reason = "only real clouds are asked"))]
pub(crate) enum Presence {
    Present,
    /// It is certainly not there, or not usable.
    Missing,
    /// It could not be looked for, such as for want of a permission.
    Unknown,
}

#[cfg(feature = "cloud")]
impl Finding {
    pub(crate) fn present(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), presence: Presence::Present, text: text.into() }
    }

    pub(crate) fn missing(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), presence: Presence::Missing, text: text.into() }
    }

    /// What a call that failed says: only some errors are about what was looked for.
    pub(crate) fn of_failure(path: impl Into<String>, error: &super::DriverError) -> Self {
        use super::Code;
        let is_certain = matches!(
            error.code,
            Code::NotFound | Code::InvalidArgument | Code::Unauthenticated | Code::ResourceExhausted
        );
        let presence = if is_certain { Presence::Missing } else { Presence::Unknown };
        Self { path: path.into(), presence, text: format!("{}: {}", error.code, error.message) }
    }
}
