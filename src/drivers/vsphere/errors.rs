//! Faults of vSphere as codes.

use mcm_driver::{
    Code,
    cloud::{CloudFailure, HttpAnswer},
};
use roxmltree::Node;

use super::soap::{child, fault, kind_of, text_of};

/// Faults by the meaning of their names. Others are `Internal`: also those of methods that are not supported, because
/// [`Code::Unimplemented`] of a look-up would mean that a driver cannot look VMs up.
const CODES: [(Code, &[&str]); 9] = [
    (
        Code::ResourceExhausted,
        &[
            "NoDiskSpace",
            "NoCompatibleHost",
            "NoCompatibleHostWithAccessToDevice",
            "NoHost",
            "NoActiveHostInCluster",
            "NoConnectedDatastore",
            "NoAvailableIp",
            "NoRecommendation",
            "NotEnoughCpus",
            "NotEnoughLicenses",
            "VmLimitLicense",
        ],
    ),
    (Code::Unauthenticated, &["NotAuthenticated", "InvalidLogin", "NoClientCertificate", "PasswordExpired"]),
    (Code::PermissionDenied, &["NoPermission", "SecurityError", "RestrictedVersion", "RestrictedByAdministrator"]),
    (Code::NotFound, &["ManagedObjectNotFound", "NotFound", "FileNotFound"]),
    (Code::AlreadyExists, &["DuplicateName", "AlreadyExists", "FileAlreadyExists"]),
    (
        Code::InvalidArgument,
        &[
            "InvalidArgument",
            "InvalidRequest",
            "InvalidType",
            "InvalidName",
            "InvalidProperty",
            "InvalidFolder",
            "InvalidDatastore",
            "InvalidDeviceSpec",
            "InvalidDeviceBacking",
            "InvalidDiskFormat",
            "InvalidVmConfig",
            "OutOfBounds",
            "UnsupportedGuest",
            "VAppPropertyFault",
            "SoapFault",
        ],
    ),
    (Code::FailedPrecondition, &["InvalidState", "InvalidPowerState", "VAppConfigFault", "MethodDisabled"]),
    (Code::Aborted, &["TaskInProgress", "ResourceInUse", "ConcurrentAccess", "RequestCanceled", "FileLocked"]),
    (Code::Unavailable, &["HostCommunication", "HostNotConnected", "HostNotReachable"]),
];
/// Begins the names of many faults about hosts without room.
const INSUFFICIENT: &str = "Insufficient";

/// The code of a fault, by the name of its type.
pub(crate) fn code_of(name: &str) -> Code {
    if name.starts_with(INSUFFICIENT) {
        return Code::ResourceExhausted;
    }
    if name == "Timedout" {
        return Code::DeadlineExceeded;
    }
    let known = CODES.iter().find(|(_, names)| names.contains(&name));
    known.map_or(Code::Internal, |(code, _)| *code)
}

/// Reads an answer that is no success. Faults have status 500.
pub(crate) fn failure_of(answer: &HttpAnswer) -> CloudFailure {
    match fault(&answer.text) {
        Some((name, message)) => CloudFailure::Named { code: code_of(&name), name, message },
        None => CloudFailure::Status(answer.status),
    }
}

/// Reads the fault of a task: it has a type and a text in the language of the session.
pub(crate) fn failure_of_task(error: Node<'_, '_>) -> Option<CloudFailure> {
    let name = kind_of(child(error, "fault")?)?;
    let message = text_of(error, "localizedMessage").unwrap_or_default();
    Some(CloudFailure::Named { code: code_of(&name), name, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderMap;
    use rstest::rstest;

    fn answer(status: u16, text: &str) -> HttpAnswer {
        HttpAnswer { status, headers: HeaderMap::new(), text: text.to_owned() }
    }

    #[rstest]
    #[case("NoDiskSpace", Code::ResourceExhausted)]
    #[case("InsufficientMemoryResourcesFault", Code::ResourceExhausted)]
    #[case("InsufficientHostCapacityFault", Code::ResourceExhausted)]
    #[case("NoCompatibleHost", Code::ResourceExhausted)]
    #[case("VmLimitLicense", Code::ResourceExhausted)]
    #[case("NotAuthenticated", Code::Unauthenticated)]
    #[case("InvalidLogin", Code::Unauthenticated)]
    #[case("NoPermission", Code::PermissionDenied)]
    #[case("ManagedObjectNotFound", Code::NotFound)]
    #[case("DuplicateName", Code::AlreadyExists)]
    #[case("InvalidArgument", Code::InvalidArgument)]
    #[case("InvalidPowerState", Code::FailedPrecondition)]
    #[case("TaskInProgress", Code::Aborted)]
    #[case("HostNotConnected", Code::Unavailable)]
    #[case("Timedout", Code::DeadlineExceeded)]
    #[case("NotSupported", Code::Internal)]
    #[case("MethodNotFound", Code::Internal)]
    #[case("SystemError", Code::Internal)]
    fn faults_have_codes(#[case] name: &str, #[case] expected: Code) {
        let text = format!(
            r#"<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><e:Body><e:Fault><faultcode>x</faultcode><faultstring>text</faultstring><detail><{name}Fault xsi:type="{name}"/></detail></e:Fault></e:Body></e:Envelope>"#
        );
        let failure = failure_of(&answer(500, &text));
        assert_eq!(failure, CloudFailure::Named { code: expected, name: name.to_owned(), message: "text".to_owned() });
    }

    #[rstest]
    #[case("<html></html>")]
    #[case("503 Service Unavailable")]
    fn an_answer_of_something_else_is_known_by_its_status(#[case] text: &str) {
        assert_eq!(failure_of(&answer(503, text)), CloudFailure::Status(503));
        assert_eq!(failure_of(&answer(404, text)).code(), Code::Unknown, "a proxy does not know which VMs exist");
    }
}
