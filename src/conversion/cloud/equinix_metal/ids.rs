//! Provider IDs: the driver names the metro, and the cloud controller manager only the device.

use crate::cloud::{placed::ProviderIdForms, provider::IdForms};

pub const IDS: IdForms = IdForms {
    scheme: PLACED.scheme,
    to_native: |id, spec| PLACED.to_native(id, spec),
    to_node: |id, _zone| Some(PLACED.to_node(id)),
    identity: |id| PLACED.to_node(id),
    vm_name: |_| None,
};

const PLACED: ProviderIdForms =
    ProviderIdForms { scheme: "equinixmetal://", driver: "equinixmetal://", node: "equinixmetal://", place: "/metro" };
