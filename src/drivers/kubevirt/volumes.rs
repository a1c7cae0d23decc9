//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

/// The CSI driver of KubeVirt, which attaches disks of the outer cluster to VMs.
const DRIVER: &str = "csi.kubevirt.io";

/// The handle of a volume of KubeVirt's CSI driver.
pub(crate) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
    Some(csi.volume_handle.clone()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"csi": {"driver": "csi.kubevirt.io", "volumeHandle": "pvc-1"}}), Some("pvc-1"))]
    #[case::empty(json!({"csi": {"driver": "csi.kubevirt.io", "volumeHandle": ""}}), None)]
    #[case::of_another_driver(json!({"csi": {"driver": "csi.example.com", "volumeHandle": "a"}}), None)]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
