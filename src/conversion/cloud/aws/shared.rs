//! Values and fields that both conversions use.

use serde_json::Value;

use crate::{
    cloud::fields::{UnreadFields, filled, object},
    report::ConversionReport,
};

/// A control plane of EKS.
pub(super) const MANAGED: &str = "AWSManagedControlPlane";
pub(super) const SNP: &str = "AMDEncryptedVirtualizationNestedPaging";
/// Stores of user data in an AWSMachineTemplate, and the counterpart of the first one. MCM has no other.
pub(super) const SECRETS_MANAGER: &str = "secrets-manager";
pub(super) const PARAMETER_STORE: &str = "ssm-parameter-store";
pub(super) const USER_DATA_STORE: &str = "SecretsManager";
/// The name of the root device, whatever the image calls it.
pub(super) const ROOT: &str = "/root";

/// Both sides use the names of the cloud.
pub(super) fn metadata_options(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let mut options = given.object("instanceMetadataOptions", report);
    if options.is_empty() {
        return None;
    }
    if options.text("instanceMetadataTags", report) == "enabled" {
        let reason = "MCM does not expose tags in the instance metadata";
        report.refuse(options.path("instanceMetadataTags"), reason, "disable it");
    }
    let names = ["httpEndpoint", "httpProtocolIpv6", "httpPutResponseHopLimit", "httpTokens"];
    let made = object(names.map(|name| (name, options.filled(name))));
    options.finish(report);
    filled(made)
}
