//! Provider IDs: the driver names the region. So does the cloud controller manager if it is set to write regions
//! (`OS_CCM_REGIONAL`), in another form; its default, without a region, is written here.

use crate::cloud::{placed::ProviderIdForms, provider::IdForms};

pub const IDS: IdForms = IdForms {
    scheme: PLACED.scheme,
    to_native: |id, spec| PLACED.to_native(id, spec),
    to_node: |id, _zone| Some(PLACED.to_node(id)),
    identity: |id| PLACED.to_node(id),
    vm_name: |_| None,
};

const PLACED: ProviderIdForms =
    ProviderIdForms { scheme: "openstack://", driver: "openstack:///", node: "openstack:///", place: "/spec/region" };
