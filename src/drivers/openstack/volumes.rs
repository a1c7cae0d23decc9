//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

const CSI: &str = "cinder.csi.openstack.org";

/// The ID of a volume of Cinder. The field of the volume plugin within Kubernetes takes precedence over that of the CSI driver.
pub(crate) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let csi = || spec.csi.as_ref().filter(|csi| csi.driver == CSI).map(|csi| &csi.volume_handle);
    spec.cinder.as_ref().map(|cinder| &cinder.volume_id).or_else(csi).filter(|id| !id.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"cinder": {"volumeID": "a"}}), Some("a"))]
    #[case(json!({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "b"}}), Some("b"))]
    #[case(json!({"cinder": {"volumeID": "a"}, "csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "b"}}), Some("a"))]
    #[case::of_another_driver(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "b"}}), None)]
    #[case::empty(json!({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": ""}}), None)]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
