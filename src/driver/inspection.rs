//! Findings of a driver about the cloud resources that a class needs.

/// A cloud resource that a class needs, and whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceFinding {
    /// The field that needs it, such as `providerSpec.ami`, or `Secret`.
    pub path: String,
    /// The existence of the resource.
    pub presence: ResourcePresence,
    /// The finding, or the reason why it is unknown; free of secrets.
    pub text: String,
}

/// The existence of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourcePresence {
    /// It exists and is usable.
    Present,
    /// It is certainly not there, or not usable.
    Missing,
    /// It could not be looked up, such as without a permission.
    Unknown,
}

impl ResourceFinding {
    /// A resource that exists.
    pub fn present(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), presence: ResourcePresence::Present, text: text.into() }
    }

    /// A resource that does not exist.
    pub fn missing(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), presence: ResourcePresence::Missing, text: text.into() }
    }

    /// The finding of a failed call: only some errors are about the requested resource.
    pub fn of_failure(path: impl Into<String>, error: &super::DriverError) -> Self {
        use super::Code;
        let is_certain = matches!(
            error.code,
            Code::NotFound | Code::InvalidArgument | Code::Unauthenticated | Code::ResourceExhausted
        );
        let presence = if is_certain { ResourcePresence::Missing } else { ResourcePresence::Unknown };
        Self { path: path.into(), presence, text: format!("{}: {}", error.code, error.message) }
    }

    /// The finding about a resource after its look-up: `found` is `None` if it certainly does not exist. `judge` describes a
    /// resource that exists, or returns the reason why it cannot be used.
    pub fn judged<T>(
        path: impl Into<String>,
        found: Result<Option<T>, super::DriverError>,
        absent: impl Into<String>,
        judge: impl FnOnce(T) -> Result<String, String>,
    ) -> Self {
        match found.map(|found| found.map(judge)) {
            Err(error) => Self::of_failure(path, &error),
            Ok(None) => Self::missing(path, absent),
            Ok(Some(Err(problem))) => Self::missing(path, problem),
            Ok(Some(Ok(text))) => Self::present(path, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{Code, DriverError};

    #[rstest]
    #[case::usable(Ok(Some(2)), ResourcePresence::Present, "2 are left")]
    #[case::not_usable(Ok(Some(0)), ResourcePresence::Missing, "none is left")]
    #[case::absent(Ok(None), ResourcePresence::Missing, "there is no size x")]
    #[case::refused(Err(Code::InvalidArgument), ResourcePresence::Missing, "InvalidArgument: failed")]
    #[case::not_known(Err(Code::PermissionDenied), ResourcePresence::Unknown, "PermissionDenied: failed")]
    fn a_resource_is_judged_if_it_was_found(
        #[case] found: Result<Option<u32>, Code>,
        #[case] presence: ResourcePresence,
        #[case] text: &str,
    ) {
        let found = found.map_err(|code| DriverError::new(code, "failed"));
        let judge = |left| if left > 0 { Ok(format!("{left} are left")) } else { Err("none is left".to_owned()) };
        let finding = ResourceFinding::judged("providerSpec.size", found, "there is no size x", judge);
        let expected = ResourceFinding { path: "providerSpec.size".to_owned(), presence, text: text.to_owned() };
        assert_eq!(finding, expected);
    }
}
