//! Names that others read.

use mcm_driver::cloud::ProviderIds;

/// Name in `MachineClass.provider`.
pub const NAME: &str = "vsphere";
/// `vsphere://<region>/<BIOS UUID>`
pub(crate) const IDS: ProviderIds = ProviderIds { provider: NAME, prefix: "vsphere://" };

/// Custom field whose value marks the VMs of a cluster.
pub(crate) const CLUSTER_FIELD: &str = "mcm.gardener.cloud/cluster";
/// Custom field whose value marks the VMs of a role.
pub(crate) const ROLE_FIELD: &str = "mcm.gardener.cloud/role";
/// Older form: the rest of the name of the field marks the cluster, whatever its value.
pub(crate) const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// Older form: the rest of the name of the field marks the role, whatever its value.
pub(crate) const ROLE_PREFIX: &str = "kubernetes.io/role/";
/// Custom field with the UID of the Machine. VMs of the reference do not have it.
pub(crate) const UID_FIELD: &str = "machine.sapcloud.io/machine-uid";
/// Custom field with the marker of the owner. VMs of the reference do not have it.
pub(crate) const OWNER_FIELD: &str = "machine.sapcloud.io/owner";
/// Custom field of VMs that another infrastructure provider has taken over: they are not listed.
pub(crate) const UNLISTED_FIELD: &str = "machine.sapcloud.io/unlisted";
/// Custom field with the provider ID of the VM. It ties the markers to the VM, as a copy has another UUID, and the VM to its ID, as
/// the region of a class may change.
pub(crate) const ID_FIELD: &str = "machine.sapcloud.io/provider-id";
/// Custom fields that classes cannot set.
pub(crate) const OWN_FIELDS: [&str; 4] = [UID_FIELD, OWNER_FIELD, UNLISTED_FIELD, ID_FIELD];

/// Keys of the extra configuration with the same markers. A clone has them from its first moment, its custom fields only later.
pub(crate) mod extra {
    pub(crate) const CLUSTER: &str = "mcm.cluster";
    pub(crate) const ROLE: &str = "mcm.role";
    pub(crate) const UID: &str = "mcm.machine-uid";
    pub(crate) const OWNER: &str = "mcm.owner";
    /// Name of the Machine. A copy of its VM has the same markers, and another name.
    pub(crate) const MACHINE: &str = "mcm.machine";
    /// Begins all of them.
    pub(crate) const PREFIX: &str = "mcm.";
}
