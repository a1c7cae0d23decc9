//! clusterctl, core and the kubeadm providers of Cluster API as they are released, with our binary as the infrastructure
//! provider, simulated VMs, and a second API server as the cluster whose machines they are.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod adopt;
mod adopted_infrastructure;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod auto_scaling;
#[cfg(all(feature = "aws", feature = "gcp"))]
#[allow(dead_code, reason = "the tests of drivers use more of it")]
#[path = "../clouds/aws"]
mod aws {
    mod ec2;
    mod proxy;
    mod server;

    pub use self::ec2::{Ec2, IMAGE};
}
#[cfg(all(feature = "aws", feature = "gcp"))]
mod bootstrap;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod capa;
mod chained_upgrade;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod cloud_controller_manager;
mod cluster;
mod cluster_fields;
mod day_2;
mod diagnostics;
mod drain;
mod explained;
mod failures;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod flavours;
#[cfg(all(feature = "aws", feature = "gcp"))]
#[allow(dead_code, reason = "the tests of drivers use more of it")]
#[path = "../clouds/gcp"]
mod gcp {
    pub mod fake;
    mod world;

    pub use self::world::{GROUP, World, ZONES};
}
mod hybrid;
mod in_place;
mod install;
#[cfg(all(feature = "aws", feature = "gcp"))]
#[allow(dead_code, reason = "the tests of drivers use more of it")]
#[path = "../clouds/load_balancer.rs"]
mod load_balancer;
mod lone;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
#[path = "../clouds/members.rs"]
mod members;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod metadata;
mod moves;
mod native_managers;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
#[allow(dead_code, reason = "the tests of drivers use more of it")]
#[path = "../clouds/openstack/mod.rs"]
mod openstack;
mod other_provider;
mod other_providers;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod passthrough;
mod pools;
mod published;
mod reading;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod replacement;
mod repository;
mod scale;
mod scene;
#[cfg(all(feature = "aws", feature = "gcp"))]
#[allow(dead_code, reason = "the tests of drivers use more of it")]
#[path = "../clouds/simulation.rs"]
mod simulation;
mod stand_in;
mod static_pods;
mod topology;
mod upgrade;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod whole_life;
mod world;
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
mod zones;

// For the fake of OpenStack.
#[cfg(all(feature = "aws", feature = "gcp", feature = "openstack"))]
use mcm_driver::testing as kit;
