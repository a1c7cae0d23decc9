//! AWSMachineTemplate of Cluster API Provider AWS (`v1beta2`), and the `providerSpec` of the driver `AWS`.

mod ids;
mod to_capi;
mod to_native;

use serde_json::Value;

use super::{
    fields::{Fields, filled, object},
    provider::{InfrastructureProvider, KindName, ProviderKinds},
};
use crate::capi::conversion::report::Report;

/// Cluster API Provider AWS.
pub const PROVIDER: InfrastructureProvider = InfrastructureProvider {
    kinds: ProviderKinds {
        driver: "AWS",
        version: "v1beta2",
        cluster: KindName { kind: "AWSCluster", plural: "awsclusters" },
        machine: KindName { kind: "AWSMachine", plural: "awsmachines" },
        template: KindName { kind: "AWSMachineTemplate", plural: "awsmachinetemplates" },
    },
    to_native: to_native::to_native,
    to_capi: to_capi::to_capi,
    is_interruptible: |spec| spec["spotPrice"].is_string(),
    ids: ids::IDS,
};

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
