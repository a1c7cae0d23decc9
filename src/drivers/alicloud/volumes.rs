//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

const CSI_DRIVER: &str = "diskplugin.csi.alibabacloud.com";
/// Option of a FlexVolume of any driver.
const FLEX_OPTION: &str = "volumeId";

/// The ID of a disk. A FlexVolume with options has precedence, also without the ID.
pub(crate) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let id = match spec.flex_volume.as_ref().and_then(|volume| volume.options.as_ref()) {
        Some(options) => options.get(FLEX_OPTION),
        None => spec.csi.as_ref().filter(|csi| csi.driver == CSI_DRIVER).map(|csi| &csi.volume_handle),
    };
    id.filter(|id| !id.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": "d-1"}}), Some("d-1"))]
    #[case::of_another_driver(json!({"csi": {"driver": "any.example.com", "volumeHandle": "d-1"}}), None)]
    #[case::empty(json!({"csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": ""}}), None)]
    #[case::flex(json!({"flexVolume": {"driver": "alicloud/disk", "options": {"volumeId": "d-2"}}}), Some("d-2"))]
    #[case::empty_flex(json!({"flexVolume": {"driver": "alicloud/disk", "options": {"volumeId": ""}}}), None)]
    #[case::flex_first(
        json!({"flexVolume": {"driver": "x", "options": {"a": "b"}}, "csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": "d-1"}}),
        None
    )]
    #[case::flex_without_options(
        json!({"flexVolume": {"driver": "x"}, "csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": "d-1"}}),
        Some("d-1")
    )]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
