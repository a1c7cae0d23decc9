//! VMs of vSphere. Templates of its infrastructure provider are not converted.

mod ids;

pub use ids::IDS;
