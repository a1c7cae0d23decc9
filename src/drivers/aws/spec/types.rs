//! The types of a `providerSpec`.

use std::collections::BTreeMap;

use mcm_driver::{
    DriverError,
    cloud::{ClassMarkers, MarkerNames},
    code::Code,
};

/// Keys of tags that mark the VMs of a class.
pub(crate) const MARKERS: MarkerNames =
    MarkerNames { carrier: "key", cluster: "kubernetes.io/cluster/", role: "kubernetes.io/role/" };
/// The name that means the root device of the image, whatever the image calls it.
pub(crate) const ROOT_DEVICE: &str = "/root";

/// The VM to create. Absent fields have their defaults; empty texts count as absent where the reference does so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub ami: String,
    pub region: String,
    pub machine_type: String,
    pub profile_name: Option<String>,
    pub profile_arn: Option<String>,
    pub key_name: Option<String>,
    pub block_devices: Vec<BlockDevice>,
    pub capacity_reservation: Option<CapacityReservation>,
    pub network_interfaces: Vec<NetworkInterface>,
    /// Set, even if empty: a one-time spot VM, with this price as the limit unless it is empty.
    pub spot_price: Option<String>,
    /// Overrides the spot price.
    pub market_type: Option<String>,
    /// Only `Some(false)` has an effect.
    pub source_dest_check: Option<bool>,
    pub tags: BTreeMap<String, String>,
    pub metadata_options: Option<MetadataOptions>,
    pub cpu_options: Option<CpuOptions>,
    pub placement: Option<Placement>,
    /// User data are in Secrets Manager until the VM has read them.
    pub has_user_data_store: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockDevice {
    pub device_name: String,
    pub volume_type: String,
    /// In GiB.
    pub volume_size: i32,
    /// Zero: not sent.
    pub iops: i32,
    /// In MiB/s.
    pub throughput: Option<i32>,
    pub encrypted: bool,
    pub delete_on_termination: bool,
    pub snapshot_id: Option<String>,
}

/// The first that is given counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapacityReservation {
    pub preference: Option<String>,
    pub resource_group_arn: Option<String>,
    pub id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkInterface {
    pub subnet_id: String,
    pub security_group_ids: Vec<String>,
    pub associate_public_ip_address: Option<bool>,
    pub description: Option<String>,
    pub delete_on_termination: bool,
    /// The place in the list if absent.
    pub device_index: Option<i32>,
    pub network_card_index: Option<i32>,
    pub interface_type: Option<String>,
    pub ipv6_address_count: Option<i32>,
    pub primary_ipv6: Option<bool>,
    /// Assigned when the VM is initialized.
    pub ipv6_prefix_count: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetadataOptions {
    pub endpoint: Option<String>,
    pub tokens: Option<String>,
    pub protocol_ipv6: Option<String>,
    pub hop_limit: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuOptions {
    pub core_count: Option<i32>,
    pub threads_per_core: Option<i32>,
    pub amd_sev_snp: Option<String>,
}

/// Fields of EC2's Placement. A class may set some of them, the annotation of a Machine all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    pub affinity: Option<String>,
    pub availability_zone: Option<String>,
    pub availability_zone_id: Option<String>,
    pub group_id: Option<String>,
    pub group_name: Option<String>,
    pub host_id: Option<String>,
    pub host_resource_group_arn: Option<String>,
    pub partition_number: Option<i32>,
    pub spread_domain: Option<String>,
    pub tenancy: Option<String>,
}

/// Where the VMs of a class are, and how to tell them from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope {
    pub region: String,
    pub markers: ClassMarkers,
}

impl Spec {
    /// The part that look-ups and deletions need. Other fields may be wrong: a VM can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no region or no markers.
    pub(crate) fn scope(&self) -> Result<Scope, DriverError> {
        let markers = ClassMarkers::from_keys(self.tags.keys().map(String::as_str), MARKERS);
        match markers {
            Some(markers) if !self.region.is_empty() => Ok(Scope { region: self.region.clone(), markers }),
            _ => {
                let message = format!(
                    "the class needs providerSpec.region, and providerSpec.tags with keys that contain {} and {}",
                    MARKERS.cluster, MARKERS.role
                );
                Err(DriverError::new(Code::InvalidArgument, message))
            }
        }
    }
}
