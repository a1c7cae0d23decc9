//! Errors of AWS as codes.

use crate::driver::{
    DriverError, SecretData,
    cloud::{code_of_status, safe_text},
    code::Code,
};

/// Out of stock or quota. The first ten are those of the reference.
const EXHAUSTED: [&str; 20] = [
    "InsufficientCapacity",
    "InsufficientAddressCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientVolumeCapacity",
    "InstanceLimitExceeded",
    "VcpuLimitExceeded",
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
    "RouteLimitExceeded",
    "Unsupported",
    "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "ReservationCapacityExceeded",
    "AddressLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "VolumeIOPSLimit",
    "AttachmentLimitExceeded",
];
const UNAVAILABLE: [&str; 16] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "EC2ThrottledException",
    "TooManyRequestsException",
    "PriorRequestNotComplete",
    "BandwidthLimitExceeded",
    "SlowDown",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "Unavailable",
    "IDPCommunicationError",
];
const UNAUTHENTICATED: [&str; 13] = [
    "AuthFailure",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "InvalidAccessKeyId",
    "InvalidIdentityToken",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "IDPRejectedClaim",
];
const DENIED: [&str; 6] = [
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "OptInRequired",
    "PendingVerification",
    "Blocked",
];
const NOT_FOUND: [&str; 5] = [
    "InvalidInstanceID.NotFound",
    "InvalidAMIID.NotFound",
    "InvalidAMIID.Unavailable",
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidNetworkInterface.NotFound",
];
/// The token was used for a VM that is gone.
pub(super) const TOKEN_SPENT: &str = "IdempotentInstanceTerminated";
/// The token was used for a request with other parameters, such as other user data.
pub(super) const TOKEN_MISMATCH: &str = "IdempotentParameterMismatch";

/// The code of an error that AWS names, or of its HTTP status if it does not.
pub(super) fn code_of(name: &str, status: u16) -> Code {
    let is = |names: &[&str]| names.contains(&name);
    if is(&EXHAUSTED) {
        Code::ResourceExhausted
    } else if is(&UNAVAILABLE) {
        Code::Unavailable
    } else if is(&UNAUTHENTICATED) {
        Code::Unauthenticated
    } else if is(&DENIED) {
        Code::PermissionDenied
    } else if is(&NOT_FOUND) {
        Code::NotFound
    } else if name == "RequestTimeout" {
        Code::DeadlineExceeded
    } else if name == "OperationNotPermitted" || name == "IncorrectInstanceState" || name == "IncorrectState" {
        Code::FailedPrecondition
    } else if [TOKEN_MISMATCH, TOKEN_SPENT].contains(&name) {
        Code::Aborted
    } else if is_about_the_request(name) {
        Code::InvalidArgument
    } else {
        match code_of_status(status) {
            // A name that is new: only the answer to the request itself says that a VM is absent.
            Code::InvalidArgument | Code::NotFound if !name.is_empty() => Code::Internal,
            Code::NotFound => Code::Unknown,
            code => code,
        }
    }
}

fn is_about_the_request(name: &str) -> bool {
    const STARTS: [&str; 6] = ["Invalid", "Missing", "Malformed", "Unknown", "VPCIdNotSpecified", "NoSuchEntity"];
    STARTS.iter().any(|start| name.starts_with(start)) || name == "ValidationError"
}

/// The code of a VM that EC2 terminated right after its creation.
pub(super) fn code_of_state_reason(reason: &str) -> Code {
    let name = reason.rsplit('.').next().unwrap_or_default();
    match code_of(name, 0) {
        Code::ResourceExhausted => Code::ResourceExhausted,
        _ => Code::Internal,
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Failure {
    /// AWS says why.
    Named { name: String, message: String, status: u16 },
    /// Something else answered.
    Status(u16),
    /// The answer is not what this call returns.
    Unreadable(u16),
    /// There was no answer in time.
    NoAnswer,
    /// There is no connection.
    Unreachable(String),
    /// The answer broke off.
    Broken(String),
    /// The request was never sent.
    Unsent(String),
    /// There are no credentials to sign it with.
    Credentials(DriverError),
}

impl Failure {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Named { name, status, .. } => code_of(name, *status),
            Self::Status(status) => code_of("", *status),
            Self::Unreadable(status) => unread(*status),
            Self::NoAnswer => Code::DeadlineExceeded,
            Self::Unreachable(_) => Code::Unavailable,
            Self::Broken(_) => Code::Unknown,
            Self::Unsent(_) => Code::Internal,
            Self::Credentials(error) => error.code,
        }
    }

    /// Whether the same request may succeed in a moment. One with a token that is spent or used for another request will not.
    pub(super) fn may_pass(&self) -> bool {
        self.code().is_transient() && !self.is(TOKEN_SPENT) && !self.is(TOKEN_MISMATCH)
    }

    /// Whether AWS gave it this name.
    pub(super) fn is(&self, expected: &str) -> bool {
        matches!(self, Self::Named { name, .. } if name == expected)
    }

    /// The error of the driver. `what` says what was attempted; no part of the secret gets into the text.
    pub(super) fn error(&self, what: &str, secret: &SecretData) -> DriverError {
        let text = match self {
            Self::Named { name, message, .. } => format!("{name}: {message}"),
            Self::Status(status) => format!("HTTP status {status}, not from AWS"),
            Self::Unreadable(status) => format!("the answer with HTTP status {status} cannot be read"),
            Self::NoAnswer => "no answer in time".to_owned(),
            Self::Unreachable(cause) | Self::Broken(cause) | Self::Unsent(cause) => cause.clone(),
            Self::Credentials(error) => error.message.clone(),
        };
        DriverError::new(self.code(), format!("{what} failed: {}", safe_text(&text, secret)))
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
    #[case("InsufficientCapacity")]
    #[case("InsufficientAddressCapacity")]
    #[case("InsufficientInstanceCapacity")]
    #[case("InsufficientVolumeCapacity")]
    #[case("InstanceLimitExceeded")]
    #[case("VcpuLimitExceeded")]
    #[case("VolumeLimitExceeded")]
    #[case("MaxIOPSLimitExceeded")]
    #[case("RouteLimitExceeded")]
    #[case("Unsupported")]
    fn the_ten_capacity_errors_of_the_reference_let_another_pool_be_used(#[case] name: &str) {
        assert_eq!((code_of(name, 400), code_of(name, 500)), (Code::ResourceExhausted, Code::ResourceExhausted));
    }

    #[rstest]
    #[case("MaxSpotInstanceCountExceeded", 400, Code::ResourceExhausted)]
    #[case("SpotMaxPriceTooLow", 400, Code::ResourceExhausted)]
    #[case("InsufficientFreeAddressesInSubnet", 400, Code::ResourceExhausted)]
    #[case("RequestLimitExceeded", 503, Code::Unavailable)]
    #[case("Throttling", 400, Code::Unavailable)]
    #[case("InternalError", 500, Code::Unavailable)]
    #[case("AuthFailure", 401, Code::Unauthenticated)]
    #[case("InvalidClientTokenId", 403, Code::Unauthenticated)]
    #[case("ExpiredToken", 400, Code::Unauthenticated)]
    #[case("SignatureDoesNotMatch", 403, Code::Unauthenticated)]
    #[case("UnauthorizedOperation", 403, Code::PermissionDenied)]
    #[case("OptInRequired", 401, Code::PermissionDenied)]
    #[case("InvalidInstanceID.NotFound", 400, Code::NotFound)]
    #[case("InvalidAMIID.NotFound", 400, Code::NotFound)]
    #[case("InvalidSubnetID.NotFound", 400, Code::InvalidArgument)]
    #[case("InvalidParameterValue", 400, Code::InvalidArgument)]
    #[case("MissingParameter", 400, Code::InvalidArgument)]
    #[case("OperationNotPermitted", 400, Code::FailedPrecondition)]
    #[case("IdempotentParameterMismatch", 400, Code::Aborted)]
    #[case("SomethingNew", 400, Code::Internal)]
    #[case("SomethingNew", 404, Code::Internal)]
    #[case("SomethingNew", 503, Code::Unavailable)]
    #[case::of_a_proxy("", 404, Code::Unknown)]
    #[case::of_a_proxy("", 502, Code::Unavailable)]
    #[case("", 504, Code::DeadlineExceeded)]
    fn errors_of_aws_have_codes(#[case] name: &str, #[case] status: u16, #[case] expected: Code) {
        assert_eq!(code_of(name, status), expected);
    }

    #[rstest]
    #[case("Server.InsufficientInstanceCapacity", Code::ResourceExhausted)]
    #[case("Client.VolumeLimitExceeded", Code::ResourceExhausted)]
    #[case("Client.InternalError", Code::Internal)]
    #[case("", Code::Internal)]
    fn a_vm_that_ends_at_once_says_why(#[case] reason: &str, #[case] expected: Code) {
        assert_eq!(code_of_state_reason(reason), expected);
    }

    #[rstest]
    #[case(200, Code::Unknown)]
    #[case(404, Code::Unknown)]
    #[case(403, Code::Unknown)]
    #[case(503, Code::Unavailable)]
    fn an_answer_that_cannot_be_read_says_nothing_about_a_vm(#[case] status: u16, #[case] expected: Code) {
        assert_eq!(unread(status), expected);
    }
}
