//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

const CSI: &str = "disk.csi.azure.com";

/// The name of a disk of the in-tree driver, or the resource ID of one of the CSI driver.
pub(crate) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let in_tree = spec.azure_disk.as_ref().map(|disk| disk.disk_name.clone());
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == CSI).map(|csi| csi.volume_handle.clone());
    in_tree.or(csi).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/d"}}), Some("d"))]
    #[case(json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": "/subscriptions/s/d"}}), Some("/subscriptions/s/d"))]
    #[case::of_another_driver(json!({"csi": {"driver": "file.csi.azure.com", "volumeHandle": "h"}}), None)]
    #[case::empty(json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": ""}}), None)]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
