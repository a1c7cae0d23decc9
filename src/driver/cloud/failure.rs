//! Calls of a cloud that failed.

use std::time::Duration;

use super::{http::code_of_status, limiter::is_throttling, text::safe_text};
use crate::{DriverError, SecretData, code::Code};

/// A call that failed.
#[derive(Clone, Debug, PartialEq)]
pub enum CloudFailure {
    /// The cloud returned a reason by its own name.
    Named {
        /// The code of a driver error for it.
        code: Code,
        /// The cloud's own name of the reason, such as `VcpuLimitExceeded`.
        name: String,
        /// The cloud's text, without secrets.
        message: String,
    },
    /// The same of an error inside of the cloud: it may have carried the request out before, or may do so later.
    Faulted {
        /// The code of a driver error for it.
        code: Code,
        /// The cloud's own name of the reason.
        name: String,
        /// The cloud's text, without secrets.
        message: String,
    },
    /// The cloud refused the call because there are too many about one object, such as a VM. Calls about others go on.
    Crowded {
        /// The cloud's own name of the reason.
        name: String,
        /// The cloud's text, without secrets.
        message: String,
    },
    /// Something else answered.
    Status(u16),
    /// The answer cannot be parsed as the result of this call.
    Unreadable(u16),
    /// The cloud did not answer in time.
    NoAnswer,
    /// The cloud cannot be reached.
    Unreachable(String),
    /// The answer has more bytes than this.
    TooLarge(usize),
    /// The answer broke off.
    Broken(String),
    /// The cloud throttles, and the request was not sent within this time.
    Queued(Duration),
    /// The request was never sent.
    Unsent(String),
    /// There are no credentials, or a call before this one failed.
    Credentials(DriverError),
}

impl CloudFailure {
    /// The code of a driver error for it. It is never [`Code::Unimplemented`], the answer of a driver that lacks a method: of a
    /// look-up it would mean that there is no VM to be found.
    pub fn code(&self) -> Code {
        match self.code_of_cause() {
            Code::Unimplemented => Code::Internal,
            code => code,
        }
    }

    fn code_of_cause(&self) -> Code {
        match self {
            Self::Named { code, .. } | Self::Faulted { code, .. } => *code,
            Self::Status(status) => match code_of_status(*status) {
                // Only an answer of the cloud itself proves that something is absent.
                Code::NotFound => Code::Unknown,
                code => code,
            },
            Self::Unreadable(status) => unread(*status),
            Self::NoAnswer => Code::DeadlineExceeded,
            Self::Crowded { .. } | Self::Unreachable(_) | Self::TooLarge(_) | Self::Queued(_) => Code::Unavailable,
            Self::Broken(_) => Code::Unknown,
            Self::Unsent(_) => Code::Internal,
            Self::Credentials(error) => error.code,
        }
    }

    /// The cloud refused the call because there are too many of the account.
    pub fn is_throttling(&self) -> bool {
        match self {
            Self::Named { name, .. } => is_throttling(name),
            Self::Status(status) => *status == 429,
            _ => false,
        }
    }

    /// The cloud may have carried out the request, or may still do so, although it failed here. A refusal of the cloud
    /// itself, or of a server before it, proves that it has not.
    pub fn may_have_had_effect(&self) -> bool {
        match self {
            Self::Named { .. }
            | Self::Crowded { .. }
            | Self::Unreachable(_)
            | Self::Queued(_)
            | Self::Unsent(_)
            | Self::Credentials(_) => false,
            Self::Status(status) => *status == 408 || !(400..500).contains(status),
            Self::Faulted { .. } | Self::Unreadable(_) | Self::NoAnswer | Self::TooLarge(_) | Self::Broken(_) => true,
        }
    }

    /// The cloud itself reported that what the call names does not exist. It is the absence of a VM only if the call names the VM.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Named { code: Code::NotFound, .. })
    }

    /// What a call found. `None` for an absence.
    ///
    /// # Errors
    /// Any other failure of the call.
    pub fn found<T>(answer: Result<T, Self>) -> Result<Option<T>, Self> {
        match answer {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.is_absence() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The failure of a call by that of its login, which names nothing that the call does.
    #[must_use]
    pub(super) fn of_login(self) -> Self {
        match self {
            Self::Named { code: Code::NotFound, name, message } => Self::Named { code: Code::Unknown, name, message },
            other => other,
        }
    }

    /// The cloud gave it this name.
    pub fn is(&self, expected: &str) -> bool {
        matches!(self, Self::Named { name, .. } if name == expected)
    }

    /// The failure of an answer with this HTTP status. An error inside of the cloud has a status of at least 500 and a transient
    /// code; stock and quota have such statuses as well, and are refusals.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        match self {
            Self::Named { code, name, message } if status >= 500 && code.is_transient() && !is_throttling(&name) => {
                Self::Faulted { code, name, message }
            }
            other => other,
        }
    }

    /// The error of the driver. `what` is the attempted operation; no part of the secret gets into the text. An absence becomes
    /// [`Code::Unknown`]: [`super::VmAbsence`] alone says that there is no VM.
    pub fn error(&self, what: &str, secret: &SecretData) -> DriverError {
        self.error_with(Code::Unknown, what, secret)
    }

    /// The same for a call that creates a VM or a part of one. What the cloud does not find is something that the class names.
    pub fn error_of_creation(&self, what: &str, secret: &SecretData) -> DriverError {
        self.error_with(Code::InvalidArgument, what, secret)
    }

    fn error_with(&self, absence: Code, what: &str, secret: &SecretData) -> DriverError {
        let text = match self {
            Self::Named { name, message, .. }
            | Self::Faulted { name, message, .. }
            | Self::Crowded { name, message } => format!("{name}: {message}"),
            Self::Status(status) => format!("HTTP status {status}, not from the cloud"),
            Self::Unreadable(status) => format!("the answer with HTTP status {status} cannot be read"),
            Self::NoAnswer => "no answer in time".to_owned(),
            Self::Queued(time) => format!("the cloud throttles this account, so no call could be sent for {time:?}"),
            Self::TooLarge(most) => format!("the answer has more than {most} bytes"),
            Self::Unreachable(cause) | Self::Broken(cause) | Self::Unsent(cause) => cause.clone(),
            Self::Credentials(error) => error.message.clone(),
        };
        let code = match self.code() {
            Code::NotFound => absence,
            code => code,
        };
        DriverError::new(code, format!("{what} failed: {}", safe_text(&text, secret)))
    }
}

/// An answer that cannot be read may come from something between us and the cloud.
fn unread(status: u16) -> Code {
    match code_of_status(status) {
        code if code.is_transient() => code,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(CloudFailure::Unreadable(200), Code::Unknown)]
    #[case(CloudFailure::Unreadable(404), Code::Unknown)]
    #[case(CloudFailure::Unreadable(403), Code::Unknown)]
    #[case(CloudFailure::Unreadable(503), Code::Unavailable)]
    #[case::of_a_proxy(CloudFailure::Status(404), Code::Unknown)]
    #[case::of_a_proxy(CloudFailure::Status(502), Code::Unavailable)]
    #[case(CloudFailure::TooLarge(1), Code::Unavailable)]
    #[case(CloudFailure::NoAnswer, Code::DeadlineExceeded)]
    fn an_answer_that_is_not_of_the_cloud_says_nothing_about_a_vm(
        #[case] failure: CloudFailure,
        #[case] expected: Code,
    ) {
        assert_eq!(failure.code(), expected);
        assert!(failure.code().is_transient());
    }

    #[test]
    fn no_failure_means_that_the_driver_lacks_a_method() {
        let of_status = (0..=999).flat_map(|status| [CloudFailure::Status(status), CloudFailure::Unreadable(status)]);
        let (code, name, message) = (Code::Unimplemented, "NotSupported".to_owned(), String::new());
        let named = CloudFailure::Named { code, name: name.clone(), message: message.clone() };
        let of_cloud = [named, CloudFailure::Faulted { code, name, message }];
        let of_login = CloudFailure::Credentials(DriverError::new(code, "no"));
        for failure in of_status.chain(of_cloud).chain([of_login]) {
            let found = failure.error("a look at m", &SecretData::default()).code;
            assert!(![Code::Unimplemented, Code::NotFound].contains(&found), "{failure:?}");
        }
    }

    #[test]
    fn an_absence_is_a_value_and_never_the_code_of_an_error() {
        let absent =
            CloudFailure::Named { code: Code::NotFound, name: "NoSuchImage".to_owned(), message: String::new() };
        assert_eq!(CloudFailure::found::<()>(Err(absent.clone())), Ok(None));
        assert_eq!(absent.error("a look at image i", &SecretData::default()).code, Code::Unknown);
        assert_eq!(absent.error_of_creation("creation of m", &SecretData::default()).code, Code::InvalidArgument);
        let of_login = absent.of_login();
        assert_eq!(CloudFailure::found::<()>(Err(of_login.clone())), Err(of_login), "a login names no VM");
        assert_eq!(CloudFailure::found::<()>(Err(CloudFailure::Status(404))), Err(CloudFailure::Status(404)));
    }

    #[rstest]
    #[case(CloudFailure::NoAnswer, true)]
    #[case(CloudFailure::Broken("reset".to_owned()), true)]
    #[case(CloudFailure::Unreadable(200), true)]
    #[case(CloudFailure::Status(502), true)]
    #[case(CloudFailure::Status(408), true)]
    #[case(CloudFailure::Status(401), false)]
    #[case(CloudFailure::Unreachable("refused".to_owned()), false)]
    #[case(CloudFailure::Queued(Duration::ZERO), false)]
    #[case(CloudFailure::Named { code: Code::Unavailable, name: "x".to_owned(), message: String::new() }, false)]
    #[case(CloudFailure::Crowded { name: "x".to_owned(), message: String::new() }, false)]
    fn a_request_without_an_answer_of_the_cloud_may_have_had_an_effect(
        #[case] failure: CloudFailure,
        #[case] expected: bool,
    ) {
        assert_eq!(failure.may_have_had_effect(), expected);
    }

    #[rstest]
    #[case::error_inside(500, Code::Unavailable, "computeFault", true)]
    #[case::gateway_of_the_cloud(504, Code::DeadlineExceeded, "Error", true)]
    #[case::stock(503, Code::ResourceExhausted, "Error", false)]
    #[case::throttled(503, Code::Unavailable, "SlowDown", false)]
    #[case::refused(409, Code::Aborted, "Conflict", false)]
    fn an_error_inside_of_the_cloud_says_nothing_about_the_effect_of_a_request(
        #[case] status: u16,
        #[case] code: Code,
        #[case] name: &str,
        #[case] is_open: bool,
    ) {
        let named = CloudFailure::Named { code, name: name.to_owned(), message: "m".to_owned() };
        let failure = named.with_status(status);
        assert_eq!((failure.code(), failure.may_have_had_effect()), (code, is_open));
        let expected = format!("call of x failed: {name}: m");
        assert_eq!(failure.error("call of x", &SecretData::default()).message, expected);
    }

    #[test]
    fn an_error_names_the_failure_without_secrets() {
        let failure =
            CloudFailure::Named { code: Code::Internal, name: "Bad".to_owned(), message: "no hunter2".to_owned() };
        let secret = SecretData([("userData".to_owned(), b"hunter2".to_vec())].into());
        let error = failure.error("call of x", &secret);
        assert_eq!((error.code, error.message.as_str()), (Code::Internal, "call of x failed: Bad: no ***"));
        assert!(failure.is("Bad") && !failure.is("Good"));
    }
}
