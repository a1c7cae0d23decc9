//! GCPMachineTemplate of Cluster API Provider GCP (`v1beta1`), and the `providerSpec` of the driver `GCP`.

mod to_capi;
mod to_native;

pub use to_capi::to_capi;
pub use to_native::to_native;

const LOCAL_SSD: &str = "local-ssd";
/// Native type of a local disk.
const SCRATCH: &str = "SCRATCH";
