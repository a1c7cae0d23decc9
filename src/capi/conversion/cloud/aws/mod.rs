//! AWSMachineTemplate of Cluster API Provider AWS (`v1beta2`), and the `providerSpec` of the driver `AWS`.

mod to_capi;
mod to_native;

use serde_json::Value;

use super::fields::{Fields, filled, object};
use crate::capi::conversion::report::Report;

pub use to_capi::to_capi;
pub use to_native::to_native;

const SNP: &str = "AMDEncryptedVirtualizationNestedPaging";
/// The name of the root device, whatever the image calls it.
const ROOT: &str = "/root";

/// Both sides use the names of the cloud.
fn metadata_options(given: &mut Fields, report: &mut Report) -> Option<Value> {
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
