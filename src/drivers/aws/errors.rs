//! Errors of AWS as codes.

use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};

use super::client::{Skew, failed};
use mcm_driver::{
    cloud::{CloudFailure, causes, code_of_status},
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
/// The token was used for a VM that has terminated.
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
            // An unknown name does not prove that a VM is absent: only the names above do.
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
pub(super) fn named(name: String, message: String, status: u16) -> CloudFailure {
    CloudFailure::Named { code: code_of(&name, status), name, message }
}

/// Why a call of the SDK failed.
pub(super) fn failure_of<E>(error: &SdkError<E>) -> CloudFailure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
    match error {
        SdkError::ServiceError(answer) => match answer.err().code() {
            Some(name) => {
                let message = answer.err().message().unwrap_or_default();
                corrected(named(name.to_owned(), message.to_owned(), status), answer.raw().extension())
            }
            // A success that cannot be read.
            None if answer.raw().status().is_success() => CloudFailure::Unreadable(status),
            None => CloudFailure::Status(status),
        },
        SdkError::ResponseError(_) => CloudFailure::Unreadable(status),
        SdkError::TimeoutError(_) => CloudFailure::NoAnswer,
        SdkError::DispatchFailure(dispatch) => match dispatch.as_connector_error() {
            Some(error) => failed(error),
            None => CloudFailure::Broken(causes(error)),
        },
        SdkError::ConstructionFailure(_) => CloudFailure::Unsent(causes(error)),
        _ => CloudFailure::Broken(causes(error)),
    }
}

/// A refused signature, if its time was wrong. The SDK corrects the time of the next one.
fn corrected(failure: CloudFailure, skew: Option<&Skew>) -> CloudFailure {
    match (failure, skew) {
        (CloudFailure::Named { code: Code::Unauthenticated, name, message }, Some(Skew(skew))) => {
            let seconds = skew.as_secs();
            let message = format!("{message} (the clock of this machine is {seconds} s behind that of AWS)");
            CloudFailure::Named { code: Code::Unavailable, name, message }
        }
        (failure, _) => failure,
    }
}

/// The same request may succeed in a moment. One with a token that is spent or used for another request will not.
pub(super) fn may_pass(failure: &CloudFailure) -> bool {
    failure.code().is_transient() && !failure.is(TOKEN_SPENT) && !failure.is(TOKEN_MISMATCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    use aws_sdk_ec2::{error::ErrorMetadata, operation::describe_instances::DescribeInstancesError as Error};
    use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
    use aws_smithy_types::body::SdkBody;
    use jiff::SignedDuration;

    fn answer(status: u16, name: Option<&str>, skew: Option<i64>) -> CloudFailure {
        let mut metadata = ErrorMetadata::builder().message("m");
        if let Some(name) = name {
            metadata = metadata.code(name);
        }
        let mut answer = HttpResponse::new(status.try_into().unwrap(), SdkBody::empty());
        if let Some(skew) = skew {
            answer.add_extension(Skew(SignedDuration::from_secs(skew)));
        }
        failure_of(&SdkError::service_error(Error::generic(metadata.build()), answer))
    }

    #[test]
    fn what_the_sdk_says_of_an_answer_is_a_failure() {
        assert_eq!(answer(400, Some("AuthFailure"), None), named("AuthFailure".to_owned(), "m".to_owned(), 400));
        assert_eq!(answer(503, None, None), CloudFailure::Status(503));
        assert_eq!(answer(200, None, None), CloudFailure::Unreadable(200));
    }

    #[rstest]
    #[case::signed_at_another_time("AuthFailure", Some(3600), Code::Unavailable)]
    #[case::signed_in_time("AuthFailure", None, Code::Unauthenticated)]
    #[case::of_another_reason("UnauthorizedOperation", Some(3600), Code::PermissionDenied)]
    fn a_signature_with_a_wrong_time_may_be_repeated(
        #[case] name: &str,
        #[case] skew: Option<i64>,
        #[case] expected: Code,
    ) {
        assert_eq!(answer(401, Some(name), skew).code(), expected);
    }

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
