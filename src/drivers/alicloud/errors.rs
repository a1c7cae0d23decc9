//! Errors of ECS as codes.

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer, code_of_status},
};
use serde::Deserialize;

/// No stock, no quota, or no address. The first thirteen are those of the reference.
const EXHAUSTED: [&str; 23] = [
    "QuotaExceed.DiskCapacity",
    "QuotaExceed.ElasticQuota",
    "OperationDenied.CloudSSDNotSupported",
    "OperationDenied.NoStock",
    "OperationDenied.ZoneNotAllowed",
    "OperationDenied.ZoneSystemCategoryNotMatch",
    "Zone.NotOnSale",
    "Zone.NotOpen",
    "InvalidVpcZone.NotSupported",
    "InvalidResourceType.NotSupported",
    "InvalidInstanceType.ZoneNotSupported",
    "InvalidZoneId.NotSupportShareEncryptedImage",
    "ResourceNotAvailable",
    "CategoryNotSupported",
    "InstanceQuotaExceeded",
    "InstanceType.Offline",
    "InvalidOperation.PublicIpAddressNoStock",
    "InvalidVSwitchId.IpNotEnough",
    "InvalidZoneId.NotSupportCreateWithShareEncryptedImage",
    "OperationDenied.PaygNotAvailable",
    "OperationDenied.ResourceControl",
    "QuotaExceeded",
    "SecurityGroupInstanceLimitExceed",
];
/// Quotas of anything, but for those of tags and of bought images, which are the same for all pools.
const QUOTAS: [&str; 2] = ["QuotaExceed.", "QuotaExceeded."];
const NO_QUOTAS: [&str; 2] = ["QuotaExceed.Tags", "QuotaExceed.BuyImage"];
const UNAVAILABLE: [&str; 8] = [
    "IncorrectInstanceStatus",
    "IncorrectVSwitchStatus",
    "InternalError",
    "NodeControllerUnavailable",
    "OperationDenied.CreatingConflict",
    "OperationConflict",
    "ServiceUnavailable",
    "SignatureNonceUsed",
];
const UNAUTHENTICATED: [&str; 9] = [
    "InvalidAccessKeyId",
    "InvalidSecurityToken",
    "IncompleteSignature",
    "InvalidTimeStamp",
    "MissingAccessKeyId",
    "MissingSecurityToken",
    "SecurityTokenExpired",
    "SignatureDoesNotMatch",
    "Unauthenticated",
];
const DENIED: [&str; 15] = [
    "Account",
    "AccountForbidden",
    "Forbbiden",
    "Forbidden",
    "InsufficientBalance",
    "InvalidAccount",
    "InvalidAccountStatus",
    "InvalidPayMethod",
    "NoPermission",
    "NoPermissionKey",
    "PaymentMethodNotFound",
    "PermissionDenied",
    "RealNameAuthenticationError",
    "RegionUnauthorized",
    "SecurityRisk",
];
/// Only these say that a VM is absent.
const NOT_FOUND: [&str; 2] = ["InvalidInstanceId.NotFound", "InvalidResourceId.NotFound"];
/// A VM that can only be deleted after a change by hand.
const PROTECTED: [&str; 5] = [
    "ChargeTypeViolation",
    "DependencyViolation",
    "InstanceLockedForSecurity",
    "InvalidOperation.DeletionProtection",
    "InvalidOperation.EniLinked",
];
/// The token was used for a request with other parameters, such as other user data.
pub(crate) const TOKEN_MISMATCH: &str = "IdempotentParameterMismatch";
/// The request with the token is still being processed.
const TOKEN_IN_USE: &str = "IdempotentProcessing";
/// The answer to a request that would have succeeded.
pub(crate) const DRY_RUN: &str = "DryRunOperation";

/// An error as ECS sends it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Problem {
    code: String,
    #[serde(default)]
    message: String,
}

/// Reads an answer whose status is not a success.
pub(crate) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    match answer.json::<Problem>() {
        Ok(Problem { code, message }) if !code.is_empty() => {
            CloudFailure::Named { code: code_of(&code, answer.status), name: code, message }
        }
        _ => CloudFailure::Status(answer.status),
    }
}

/// The code of an error that ECS names. A name ends with a dot and details, or does not.
fn code_of(name: &str, status: u16) -> Code {
    let group = name.split('.').next().unwrap_or_default();
    let is = |names: &[&str]| names.contains(&name);
    let is_of = |groups: &[&str]| is(groups) || groups.contains(&group);
    let is_quota = QUOTAS.iter().any(|start| name.starts_with(start)) && !is(&NO_QUOTAS);
    if is(&EXHAUSTED) || is_quota {
        Code::ResourceExhausted
    } else if is_of(&UNAVAILABLE) || group == "Throttling" {
        Code::Unavailable
    } else if is_of(&UNAUTHENTICATED) {
        Code::Unauthenticated
    } else if is_of(&DENIED) {
        Code::PermissionDenied
    } else if is(&NOT_FOUND) {
        Code::NotFound
    } else if is_of(&PROTECTED) {
        Code::FailedPrecondition
    } else if is(&[TOKEN_MISMATCH, TOKEN_IN_USE]) {
        Code::Aborted
    } else if name.starts_with("Invalid") || name.starts_with("Missing") || is_of(&["NumberExceed", "Duplicate"]) {
        Code::InvalidArgument
    } else {
        match code_of_status(status) {
            // An unknown name does not prove that a VM is absent: only the names above do.
            Code::InvalidArgument | Code::NotFound | Code::PermissionDenied => Code::Internal,
            code => code,
        }
    }
}

/// ECS refused a creation for its parameters or for lack of stock. It may repeat the answer for the same token.
pub(crate) fn is_refusal(failure: &CloudFailure) -> bool {
    matches!(failure.code(), Code::ResourceExhausted | Code::InvalidArgument)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn answer(status: u16, text: String) -> HttpAnswer {
        HttpAnswer { status, text, ..HttpAnswer::default() }
    }

    fn named(status: u16, name: &str) -> CloudFailure {
        let text = json!({"RequestId": "r", "HostId": "h", "Code": name, "Message": "m", "Recommend": "u"}).to_string();
        failure_of(&answer(status, text))
    }

    #[rstest]
    #[case("QuotaExceed.DiskCapacity")]
    #[case("QuotaExceed.ElasticQuota")]
    #[case("OperationDenied.CloudSSDNotSupported")]
    #[case("OperationDenied.NoStock")]
    #[case("OperationDenied.ZoneNotAllowed")]
    #[case("OperationDenied.ZoneSystemCategoryNotMatch")]
    #[case("Zone.NotOnSale")]
    #[case("Zone.NotOpen")]
    #[case("InvalidVpcZone.NotSupported")]
    #[case("InvalidResourceType.NotSupported")]
    #[case("InvalidInstanceType.ZoneNotSupported")]
    #[case("InvalidZoneId.NotSupportShareEncryptedImage")]
    #[case("ResourceNotAvailable")]
    fn the_capacity_errors_of_the_reference_let_another_pool_be_used(#[case] name: &str) {
        for status in [400, 403, 404] {
            let failure = named(status, name);
            assert_eq!((failure.code(), is_refusal(&failure)), (Code::ResourceExhausted, true));
        }
    }

    #[rstest]
    #[case(400, "QuotaExceeded", Code::ResourceExhausted)]
    #[case(403, "QuotaExceeded.PrivateIpAddress", Code::ResourceExhausted)]
    #[case(400, "QuotaExceed.AfterpayInstance", Code::ResourceExhausted)]
    #[case(403, "InvalidVSwitchId.IpNotEnough", Code::ResourceExhausted)]
    #[case(403, "InstanceType.Offline", Code::ResourceExhausted)]
    #[case(403, "QuotaExceed.Tags", Code::Internal)]
    #[case(429, "Throttling.Resource", Code::Unavailable)]
    #[case(400, "Throttling", Code::Unavailable)]
    #[case(400, "Throttling.User", Code::Unavailable)]
    #[case(503, "ServiceUnavailable", Code::Unavailable)]
    #[case(500, "InternalError", Code::Unavailable)]
    #[case(400, "InternalError", Code::Unavailable)]
    #[case(403, "IncorrectInstanceStatus", Code::Unavailable)]
    #[case(403, "IncorrectInstanceStatus.Initializing", Code::Unavailable)]
    #[case(400, "SignatureNonceUsed", Code::Unavailable)]
    #[case(404, "InvalidAccessKeyId.NotFound", Code::Unauthenticated)]
    #[case(400, "InvalidAccessKeyId.Inactive", Code::Unauthenticated)]
    #[case(400, "SignatureDoesNotMatch", Code::Unauthenticated)]
    #[case(400, "InvalidTimeStamp.Expired", Code::Unauthenticated)]
    #[case(403, "Forbidden.RAM", Code::PermissionDenied)]
    #[case(403, "Forbidden", Code::PermissionDenied)]
    #[case(403, "Account.Arrearage", Code::PermissionDenied)]
    #[case(403, "InvalidAccountStatus.NotEnoughBalance", Code::PermissionDenied)]
    #[case(404, "InvalidInstanceId.NotFound", Code::NotFound)]
    #[case(404, "InvalidResourceId.NotFound", Code::NotFound)]
    #[case(404, "InvalidImageId.NotFound", Code::InvalidArgument)]
    #[case(400, "InvalidParameter", Code::InvalidArgument)]
    #[case(400, "MissingParameter", Code::InvalidArgument)]
    #[case(403, "ChargeTypeViolation", Code::FailedPrecondition)]
    #[case(403, "InvalidOperation.DeletionProtection", Code::FailedPrecondition)]
    #[case(400, "DependencyViolation.RouteEntry", Code::FailedPrecondition)]
    #[case(400, "IdempotentParameterMismatch", Code::Aborted)]
    #[case(403, "IdempotentProcessing", Code::Aborted)]
    #[case(400, "SomethingNew", Code::Internal)]
    #[case(403, "SomethingNew", Code::Internal)]
    #[case(404, "SomethingNew", Code::Internal)]
    #[case(503, "SomethingNew", Code::Unavailable)]
    fn errors_have_codes(#[case] status: u16, #[case] name: &str, #[case] expected: Code) {
        let failure = named(status, name);
        assert_eq!(failure.code(), expected);
        assert_eq!(failure.is_throttling(), name.starts_with("Throttling"));
        assert_eq!(is_refusal(&failure), [Code::ResourceExhausted, Code::InvalidArgument].contains(&expected));
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("\"text\"")]
    #[case("{}")]
    #[case("{\"Code\": \"\"}")]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] text: &str) {
        assert_eq!(failure_of(&answer(404, text.to_owned())), CloudFailure::Status(404));
        assert_eq!(
            failure_of(&answer(404, text.to_owned())).code(),
            Code::Unknown,
            "a proxy does not know which VMs exist"
        );
    }
}
