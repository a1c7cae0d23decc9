//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

const CSI_DRIVER: &str = "pd.csi.storage.gke.io";

/// The persistent disk of a PersistentVolume, if it is one. The field of the old in-tree plugin takes precedence.
pub(super) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let id = match (&spec.gce_persistent_disk, &spec.csi) {
        (Some(disk), _) => &disk.pd_name,
        (None, Some(csi)) if csi.driver == CSI_DRIVER => &csi.volume_handle,
        _ => return None,
    };
    Some(id.clone()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    const HANDLE: &str = "projects/p/zones/z/disks/d";

    #[rstest]
    #[case(json!({"gcePersistentDisk": {"pdName": "d"}}), Some("d"))]
    #[case(json!({"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": HANDLE}}), Some(HANDLE))]
    #[case(json!({"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": ""}}), None)]
    #[case(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": HANDLE}}), None)]
    #[case::in_tree_first(json!({"gcePersistentDisk": {"pdName": "d"}, "csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": HANDLE}}), Some("d"))]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
