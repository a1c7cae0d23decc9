//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

const CSI_DRIVER: &str = "csi.vsphere.vmware.com";

/// The path of an in-tree volume, or else the handle of a volume of vSphere's CSI driver.
pub(crate) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let in_tree = spec.vsphere_volume.as_ref().map(|volume| &volume.volume_path);
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == CSI_DRIVER).map(|csi| &csi.volume_handle);
    in_tree.or(csi).filter(|id| !id.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::in_tree(json!({"vsphereVolume": {"volumePath": "[ds] kubevols/a.vmdk"}}), Some("[ds] kubevols/a.vmdk"))]
    #[case::csi(json!({"csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": "e4e6"}}), Some("e4e6"))]
    #[case::empty(json!({"csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": ""}}), None)]
    #[case::of_another_driver(json!({"csi": {"driver": "csi.example.com", "volumeHandle": "e4e6"}}), None)]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
