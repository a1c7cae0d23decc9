//! Machine codes and their text form, which the reference and its readers parse.

use std::{fmt, str::FromStr};

/// Code of a failed driver call. Numbers and names are those of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// The caller gave up.
    Canceled = 1,
    /// The outcome is unknown.
    Unknown = 2,
    /// The class or the request is invalid; only a change of it helps.
    InvalidArgument = 3,
    /// No answer in time: the outcome is unknown.
    DeadlineExceeded = 4,
    /// There certainly is no VM.
    NotFound = 5,
    /// Another VM has the name.
    AlreadyExists = 6,
    /// The credentials do not permit the call.
    PermissionDenied = 7,
    /// Out of quota or stock.
    ResourceExhausted = 8,
    /// The cloud is not in the state that the call needs.
    FailedPrecondition = 9,
    /// Conflict with another operation.
    Aborted = 10,
    /// There are several VMs.
    OutOfRange = 11,
    /// The driver does not implement the call.
    Unimplemented = 12,
    /// The cloud or the driver is broken.
    Internal = 13,
    /// The cloud cannot be reached at the moment.
    Unavailable = 14,
    /// Stored data is lost.
    DataLoss = 15,
    /// The credentials are invalid.
    Unauthenticated = 16,
    /// The VM exists but is not initialized.
    Uninitialized = 17,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 17] = [
        Self::Canceled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
        Self::Uninitialized,
    ];

    /// The exact name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Canceled => "Canceled",
            Self::Unknown => "Unknown",
            Self::InvalidArgument => "InvalidArgument",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::PermissionDenied => "PermissionDenied",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::FailedPrecondition => "FailedPrecondition",
            Self::Aborted => "Aborted",
            Self::OutOfRange => "OutOfRange",
            Self::Unimplemented => "Unimplemented",
            Self::Internal => "Internal",
            Self::Unavailable => "Unavailable",
            Self::DataLoss => "DataLoss",
            Self::Unauthenticated => "Unauthenticated",
            Self::Uninitialized => "Uninitialized",
        }
    }

    /// A repeated call may succeed without a change.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unknown | Self::DeadlineExceeded | Self::Aborted | Self::Unavailable)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Code {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|code| code.as_str() == name).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_reference() {
        let names = [
            "Canceled",
            "Unknown",
            "InvalidArgument",
            "DeadlineExceeded",
            "NotFound",
            "AlreadyExists",
            "PermissionDenied",
            "ResourceExhausted",
            "FailedPrecondition",
            "Aborted",
            "OutOfRange",
            "Unimplemented",
            "Internal",
            "Unavailable",
            "DataLoss",
            "Unauthenticated",
            "Uninitialized",
        ];
        let codes = Code::ALL.map(|code| (code as usize, code.as_str()));
        let expected: Vec<(usize, &str)> = (1..).zip(names).collect();
        assert_eq!(codes.as_slice(), expected);
        assert!(names.iter().all(|name| name.parse::<Code>().is_ok_and(|code| code.as_str() == *name)));
        assert!("notfound".parse::<Code>().is_err(), "letters count");
    }
}
