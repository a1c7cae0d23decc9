//! The stand-in of each cloud.

use std::sync::Arc;

use crate::simulation::Simulation;

/// Starts the stand-in of a cloud, by the name of its feature.
#[allow(clippy::unused_async, reason = "a build without clouds starts none")]
pub async fn start(cloud: &str) -> Arc<dyn Simulation> {
    // Some ask their stand-in over HTTP.
    mcm_driver::tls::use_ring();
    match cloud {
        #[cfg(feature = "alicloud")]
        "alicloud" => Arc::new(crate::alicloud::World::new().await),
        #[cfg(feature = "aws")]
        "aws" => Arc::new(crate::aws::Ec2::start().await),
        #[cfg(feature = "azure")]
        "azure" => Arc::new(crate::azure::World::new().await),
        #[cfg(feature = "equinix-metal")]
        "equinix-metal" => Arc::new(crate::equinix_metal::World::new().await),
        #[cfg(feature = "gcp")]
        "gcp" => Arc::new(crate::gcp::World::new().await),
        #[cfg(feature = "kubevirt")]
        "kubevirt" => Arc::new(crate::kubevirt::World::new().await),
        #[cfg(feature = "metal-stack")]
        "metal-stack" => Arc::new(crate::metal_stack::World::new().await),
        #[cfg(feature = "openstack")]
        "openstack" => Arc::new(crate::openstack::World::new().await),
        #[cfg(feature = "vsphere")]
        "vsphere" => Arc::new(crate::vsphere::World::new().await),
        #[cfg(feature = "yandex")]
        "yandex" => Arc::new(crate::yandex::World::new().await),
        other => panic!("this build has no driver for {other:?}: build it with --features {other}"),
    }
}
