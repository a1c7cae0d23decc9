//! Errors of AWS as codes.

use crate::driver::{
    cloud::{Failure, code_of_status},
    code::Code,
};

/// Out of stock or quota. The first ten are those of the reference.
const EXHAUSTED: [&str; 22] = [
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
    "InsufficientCapacityOnHost",
    "UnfulfillableCapacity",
    "InsufficientReservedInstanceCapacity",
    "ReservationCapacityExceeded",
    "AddressLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "VolumeIOPSLimit",
    "AttachmentLimitExceeded",
];
const UNAVAILABLE: [&str; 17] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "EC2ThrottledException",
    "TooManyRequestsException",
    "PriorRequestNotComplete",
    "ConcurrentTagAccess",
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
    STARTS.iter().any(|start| name.starts_with(start)) || ["ValidationError", "TagLimitExceeded"].contains(&name)
}

/// The code of a VM that EC2 terminated right after its creation.
pub(super) fn code_of_state_reason(reason: &str) -> Code {
    let name = reason.rsplit('.').next().unwrap_or_default();
    match code_of(name, 0) {
        Code::ResourceExhausted => Code::ResourceExhausted,
        _ => Code::Internal,
    }
}

/// An error that AWS names.
pub(super) fn named(name: String, message: String, status: u16) -> Failure {
    Failure::Named { code: code_of(&name, status), name, message }
}

/// Whether the same request may succeed in a moment. One with a token that is spent or used for another request will not.
pub(super) fn may_pass(failure: &Failure) -> bool {
    failure.code().is_transient() && !failure.is(TOKEN_SPENT) && !failure.is(TOKEN_MISMATCH)
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
    #[case::full_host("InsufficientCapacityOnHost", 400, Code::ResourceExhausted)]
    #[case("UnfulfillableCapacity", 500, Code::ResourceExhausted)]
    #[case("ConcurrentTagAccess", 400, Code::Unavailable)]
    #[case("TagLimitExceeded", 400, Code::InvalidArgument)]
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
}
