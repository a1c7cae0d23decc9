//! Values that both conversions use.

/// Type of a local disk in a GCPMachineTemplate.
pub(super) const LOCAL_SSD: &str = "local-ssd";
/// Type of a local disk in a `providerSpec`.
pub(super) const SCRATCH: &str = "SCRATCH";
