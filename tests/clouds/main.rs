//! Drivers against the stand-ins of their clouds, and the stand-ins against programs of others.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "alicloud")]
mod alicloud;
#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "azure")]
mod azure;
#[allow(dead_code, reason = "only some clouds have a live check")]
mod class_check;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod control_plane;
#[cfg(feature = "equinix-metal")]
mod equinix_metal;
mod every_cloud;
#[cfg(feature = "gcp")]
mod gcp;
mod keeper;
#[cfg(feature = "kubevirt")]
mod kubevirt;
#[allow(dead_code, reason = "only some clouds have one")]
mod load_balancer;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod members;
#[cfg(feature = "metal-stack")]
mod metal_stack;
mod nodes;
#[cfg(feature = "openstack")]
mod openstack;
#[cfg_attr(not(any(feature = "aws", feature = "gcp")), allow(dead_code, reason = "two clouds stand for all"))]
mod orphans;
mod pool;
#[cfg_attr(not(all(feature = "aws", feature = "gcp")), allow(dead_code, reason = "two clouds stand for all"))]
mod provider;
mod remote;
#[allow(dead_code, reason = "the demo uses the rest")]
mod simulation;
#[cfg_attr(not(any(feature = "aws", feature = "gcp")), allow(dead_code, reason = "two clouds stand for all"))]
mod soak;
mod stand_ins;
mod tester;
#[cfg(all(feature = "metal-stack", feature = "yandex"))]
mod two_clouds;
#[cfg(feature = "vsphere")]
mod vsphere;
#[cfg(feature = "yandex")]
mod yandex;

// For the fakes.
use mcm_driver::testing as kit;
