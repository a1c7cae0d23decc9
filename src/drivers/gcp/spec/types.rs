//! The types of a `providerSpec`.

use std::collections::BTreeMap;

use crate::names::MARKERS;
use mcm_driver::{
    DriverError,
    cloud::{ClassMarkers, is_word},
    code::Code,
};

/// The type of a disk that is a local SSD.
pub(crate) const SCRATCH: &str = "SCRATCH";
/// Stack types and access types of a network interface.
pub(crate) const DUAL_STACK: &str = "IPV4_IPV6";

/// The VM to create. Absent fields have their defaults; empty texts count as absent where the reference does so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub region: String,
    pub zone: String,
    pub machine_type: String,
    pub can_ip_forward: bool,
    pub deletion_protection: bool,
    pub description: Option<String>,
    pub disks: Vec<Disk>,
    pub gpu: Option<Gpu>,
    pub labels: BTreeMap<String, String>,
    /// Key and value; a value may be absent.
    pub metadata: Vec<(String, Option<String>)>,
    pub min_cpu_platform: Option<String>,
    pub network_interfaces: Vec<NetworkInterface>,
    pub scheduling: Scheduling,
    pub service_accounts: Vec<ServiceAccount>,
    pub tags: Vec<String>,
    pub shielded: Option<Shielded>,
    /// `None` if the features are not given at all.
    pub nested_virtualization: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub auto_delete: bool,
    pub boot: bool,
    /// In GB; zero: not sent.
    pub size: i64,
    /// [`SCRATCH`], or a type of disk.
    pub kind: String,
    pub interface: Option<String>,
    pub image: Option<String>,
    pub encryption: Option<Encryption>,
    pub labels: BTreeMap<String, String>,
    /// Zero: not sent.
    pub iops: i64,
    /// In MiB/s; zero: not sent.
    pub throughput: i64,
    pub storage_pool: Option<String>,
}

/// Both are trimmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encryption {
    pub key: String,
    pub service_account: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub accelerator_type: String,
    pub count: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkInterface {
    pub disable_external_ip: bool,
    pub network: Option<String>,
    pub subnetwork: Option<String>,
    pub stack_type: Option<String>,
    pub ipv6_access_type: Option<String>,
    pub use_alias_ips: bool,
    pub ip_cidr_range: Option<String>,
    pub range_name: Option<String>,
}

impl NetworkInterface {
    /// Stack type, IPv6 access and the alias range are sent; the reference leaves them out otherwise.
    pub(crate) fn has_ranges(&self) -> bool {
        self.use_alias_ips || self.stack_type.as_deref() == Some(DUAL_STACK)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduling {
    pub automatic_restart: bool,
    pub on_host_maintenance: String,
    pub preemptible: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAccount {
    pub email: Option<String>,
    pub scopes: Vec<String>,
}

/// Only `Some(true)` is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shielded {
    pub integrity_monitoring: Option<bool>,
    pub secure_boot: Option<bool>,
    pub vtpm: Option<bool>,
}

/// Where the VMs of a class are, and how to tell them from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope {
    pub zone: String,
    pub markers: ClassMarkers,
}

impl Spec {
    /// The part that look-ups and deletions need. Other fields may be wrong: a VM can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no zone or no markers.
    pub(crate) fn scope(&self) -> Result<Scope, DriverError> {
        let markers = ClassMarkers::from_keys(self.tags.iter().map(String::as_str), MARKERS);
        match markers {
            Some(markers) if is_word(&self.zone) => Ok(Scope { zone: self.zone.clone(), markers }),
            _ => {
                let message = format!(
                    "the class needs providerSpec.zone, and providerSpec.tags that contain {} and {}: without them its VMs \
                     could not be told from others",
                    MARKERS.cluster, MARKERS.role
                );
                Err(DriverError::new(Code::InvalidArgument, message))
            }
        }
    }
}
