//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

/// The CSI driver whose volumes the reference reports.
const DRIVER: &str = "yandex.csi.flant.com";

/// The handle of a volume of that driver.
pub(crate) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
    Some(csi.volume_handle.clone()).filter(|handle| !handle.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"csi": {"driver": "yandex.csi.flant.com", "volumeHandle": "fhmdisk"}}), Some("fhmdisk"))]
    #[case::of_another_driver(json!({"csi": {"driver": "csi.example.com", "volumeHandle": "fhmdisk"}}), None)]
    #[case::empty(json!({"csi": {"driver": "yandex.csi.flant.com", "volumeHandle": ""}}), None)]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
