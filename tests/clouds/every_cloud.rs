//! Tests of every cloud, in a module with its name.

macro_rules! every_cloud {
    ($($feature:literal $cloud:ident)*) => {$(
        #[cfg(feature = $feature)]
        mod $cloud {
            use crate::{orphans, remote, stand_ins};

            #[tokio::test(flavor = "multi_thread")]
            async fn the_driver_passes_over_tls() {
                remote::the_driver_passes_over_tls(stand_ins::start($feature).await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn no_vm_is_lost_or_doubled_however_often_the_driver_is_killed() {
                remote::the_driver_is_killed(stand_ins::start($feature).await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_vm_that_no_machine_has_is_collected_and_no_other() {
                orphans::an_orphan_is_collected_and_nothing_else(stand_ins::start($feature).await).await;
            }
        }
    )*};
}

every_cloud! {
    "alicloud" alicloud
    "aws" aws
    "azure" azure
    "equinix-metal" equinix_metal
    "gcp" gcp
    "kubevirt" kubevirt
    "metal-stack" metal_stack
    "openstack" openstack
    "vsphere" vsphere
    "yandex" yandex
}
