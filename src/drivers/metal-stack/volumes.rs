//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

/// Its handles have fields `key:value|key:value`.
const LIGHTBITS: &str = "csi.lightbitslabs.com";
const LIGHTBITS_ID: &str = "nguid";

/// The handle of a volume of any CSI driver. Clusters on metal-stack have storage of many kinds.
pub(super) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    let csi = spec.csi.as_ref()?;
    let handle = csi.volume_handle.as_str();
    let mut fields = handle.split('|').filter_map(|field| field.split_once(':'));
    // Of several the last counts, as in the reference.
    let nguid = fields.rfind(|(key, _)| csi.driver == LIGHTBITS && *key == LIGHTBITS_ID);
    let id = nguid.map_or(handle, |(_, id)| id);
    Some(id.to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"csi": {"driver": "any.example.com", "volumeHandle": "a|nguid:b"}}), Some("a|nguid:b"))]
    #[case(json!({"csi": {"driver": "csi.lightbitslabs.com", "volumeHandle": "mgmt:10.0.0.1:80|nguid:6e7b|proto:tcp"}}), Some("6e7b"))]
    #[case::without_its_id(json!({"csi": {"driver": "csi.lightbitslabs.com", "volumeHandle": "mgmt:10.0.0.1"}}), Some("mgmt:10.0.0.1"))]
    #[case::empty(json!({"csi": {"driver": "any.example.com", "volumeHandle": ""}}), None)]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
