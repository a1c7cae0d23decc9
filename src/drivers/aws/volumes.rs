//! IDs of volumes, as Nodes report them.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

const CSI_DRIVER: &str = "ebs.csi.aws.com";

/// The EBS volume of a PersistentVolume, if it is one. The field of the old in-tree plugin takes precedence.
pub(super) fn id_of(spec: &PersistentVolumeSpec) -> Option<String> {
    if let Some(volume) = &spec.aws_elastic_block_store {
        return in_tree(&volume.volume_id).map(str::to_owned);
    }
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == CSI_DRIVER)?;
    Some(csi.volume_handle.clone()).filter(|handle| !handle.is_empty())
}

/// A bare ID as it is; of `aws://<zone>/<volume>` the volume.
fn in_tree(id: &str) -> Option<&str> {
    let Some(rest) = id.strip_prefix("aws://") else { return Some(id).filter(|id| !id.is_empty()) };
    let volume = rest.split_once('/')?.1.trim_matches('/');
    (volume.starts_with("vol-") && !volume.contains('/')).then_some(volume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}), Some("vol-1"))]
    #[case::bare_as_it_is(json!({"awsElasticBlockStore": {"volumeID": "whatever"}}), Some("whatever"))]
    #[case(json!({"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/vol-1"}}), Some("vol-1"))]
    #[case::no_zone(json!({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}), Some("vol-1"))]
    #[case(json!({"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/disk-1"}}), None)]
    #[case(json!({"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/x/vol-1"}}), None)]
    #[case(json!({"awsElasticBlockStore": {"volumeID": "aws://vol-1"}}), None)]
    #[case(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-2"}}), Some("vol-2"))]
    #[case(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": ""}}), None)]
    #[case(json!({"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": "vol-2"}}), None)]
    #[case::in_tree_first(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}, "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-2"}}), Some("vol-1"))]
    #[case(json!({"hostPath": {"path": "/tmp"}}), None)]
    fn volumes_have_the_ids_that_nodes_report(#[case] spec: Value, #[case] expected: Option<&str>) {
        assert_eq!(id_of(&serde_json::from_value(spec).unwrap()).as_deref(), expected);
    }
}
