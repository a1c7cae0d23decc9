//! The infrastructure of a cluster, of another provider, is read with its machines: each field is used, has no effect, is reported
//! or refused.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    TEMPLATE, aws::aws, clouds::deployment_with, gcp::gcp_in_zone, lost, objects, of_kind, options, refused, set,
};
use crate::{ConversionResult, to_capi, to_native};

/// A converted deployment whose cluster has this field.
fn with_cluster(provider: &str, field: &str, value: Value) -> ConversionResult {
    let mut given = match provider {
        "AWS" => deployment_with(aws(), "AWSMachineTemplate"),
        _ => gcp_in_zone(),
    };
    let cluster =
        given.iter_mut().find(|one| one["kind"].as_str().unwrap().ends_with("PCluster") || one["kind"] == "AWSCluster");
    set(cluster.unwrap(), &format!("/spec/{field}"), value);
    to_native(&given, &options())
}

#[rstest]
#[case::aws("AWS", "tenancy", json!("dedicated"))]
#[case::aws_network("AWS", "network", json!({ "vpc": { "id": "vpc-1" }, "placement": "x" }))]
#[case::gcp("GCP", "shieldedInstances", json!(true))]
#[case::gcp_network("GCP", "network/tags", json!(["x"]))]
fn a_field_of_the_cluster_that_no_table_has_is_refused(
    #[case] provider: &str,
    #[case] field: &str,
    #[case] value: Value,
) {
    let made = with_cluster(provider, field, value);
    let reasons: Vec<&str> = made.refusals.iter().map(|one| one.reason.as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("has no rule for this field of the cluster")), "{made:?}");
}

#[rstest]
#[case::bastion("AWS", "bastion", json!({ "enabled": true }))]
#[case::rules("AWS", "network", json!({ "cni": { "cniIngressRules": [] }, "vpc": { "id": "vpc-1" } }))]
#[case::balancer("GCP", "loadBalancer", json!({ "loadBalancerType": "Internal" }))]
#[case::empty("GCP", "resourceManagerTags", json!([]))]
fn a_field_without_effect_on_machines_is_not_mentioned(
    #[case] provider: &str,
    #[case] field: &str,
    #[case] value: Value,
) {
    let without = with_cluster(provider, "region", json!("eu"));
    let made = with_cluster(provider, field, value);
    assert_eq!((refused(&made), lost(&made)), (refused(&without), lost(&without)));
}

#[test]
fn tags_of_the_cluster_that_a_class_cannot_have_are_refused() {
    let tags = json!([{ "parentID": "p", "key": "env", "value": "prod" }]);
    let made = with_cluster("GCP", "resourceManagerTags", tags);
    assert_eq!(refused(&made), ["spec.template.spec.infrastructureRef", "GCPCluster c1: spec.resourceManagerTags"]);
}

#[test]
fn machines_of_a_shared_vpc_are_in_its_host_project() {
    let made = objects(with_cluster("GCP", "network/hostProject", json!("host")));
    let interface = &of_kind(&made, "MachineClass")["providerSpec"]["networkInterfaces"][0];
    assert_eq!(interface["network"], "projects/host/global/networks/net");
    assert_eq!(interface["subnetwork"], "projects/host/regions/eu/subnetworks/nodes");
}

#[rstest]
#[case::project("GCP", "project", json!("vms"), "projectID")]
#[case::credentials("GCP", "credentialsRef", json!({ "name": "c", "namespace": "n" }), "account with the same rights")]
#[case::endpoint("GCP", "serviceEndpoints", json!({ "compute": "https://x" }), "endpointURL")]
#[case::identity("AWS", "identityRef", json!({ "kind": "AWSClusterRoleIdentity", "name": "x" }), "account")]
fn what_credentials_of_a_class_decide_is_reported(
    #[case] provider: &str,
    #[case] field: &str,
    #[case] value: Value,
    #[case] advice: &str,
) {
    let made = with_cluster(provider, field, value);
    let found = made
        .losses
        .iter()
        .find(|loss| loss.path.ends_with(field.split('/').next().unwrap()) || loss.path.contains("serviceEndpoints"));
    assert!(found.is_some_and(|loss| loss.advice.contains(advice)), "{:?}", made.losses);
}

/// The provider maps the role of nodes only for its own templates.
#[test]
fn the_mapping_of_the_role_of_eks_nodes_is_reported() {
    let mut given = deployment_with(aws(), "AWSMachineTemplate");
    let cluster = given.iter_mut().find(|one| one["kind"] == "AWSCluster").unwrap();
    *cluster = json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "AWSManagedControlPlane",
        "metadata": { "name": "cp", "namespace": "demo" },
        "spec": { "region": "eu-west-1", "eksClusterName": "prod" },
        "status": { "networkStatus": { "securityGroups": {
            "node": { "id": "sg-1" }, "node-eks-additional": { "id": "sg-2" },
        } } },
    });
    let name = given[0]["spec"]["clusterName"].clone();
    given.push(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": name, "namespace": "demo" },
        "spec": { "controlPlaneRef": {
            "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "AWSManagedControlPlane", "name": "cp",
        } },
    }));
    let made = to_native(&given, &options());
    let found = made.losses.iter().find(|loss| loss.path.ends_with("iamInstanceProfile"));
    let found = found.unwrap_or_else(|| panic!("{made:?}"));
    assert!(found.advice.contains("EC2_LINUX") && found.advice.contains("mapRoles"), "{}", found.advice);
}

fn scaled(capacity: Value, annotations: Value) -> ConversionResult {
    let mut given = deployment_with(aws(), "AWSMachineTemplate");
    set(&mut given[0], "/metadata/annotations", annotations);
    let template = given.iter_mut().find(|one| one["kind"] == "AWSMachineTemplate").unwrap();
    template["status"] = json!({ "capacity": capacity, "nodeInfo": { "architecture": "arm64" } });
    to_native(&given, &options())
}

fn from_zero() -> Value {
    json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0" })
}

#[test]
fn a_class_has_the_capacity_that_the_provider_looked_up() {
    let capacity = json!({ "cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "2" });
    let made = scaled(capacity, from_zero());
    assert!(!made.losses.iter().any(|loss| loss.path == "status.capacity"));
    let node = &of_kind(&objects(made), "MachineClass")["nodeTemplate"].clone();
    assert_eq!(node["capacity"], json!({ "cpu": "4", "gpu": "2", "memory": "16Gi" }));
    assert_eq!(node["virtualCapacity"], json!({ "nvidia.com/gpu": "2" }));
    assert_eq!((&node["instanceType"], &node["architecture"]), (&json!("m5.large"), &json!("arm64")));
}

#[rstest]
#[case::no_capacity(from_zero(), true)]
#[case::never_empty(json!({ "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1" }), false)]
#[case::annotated(
    json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
        "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
        "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
    }),
    false
)]
fn machines_without_a_capacity_that_scale_from_zero_are_reported(#[case] annotations: Value, #[case] expected: bool) {
    let made = scaled(json!({}), annotations);
    assert_eq!(made.losses.iter().any(|loss| loss.path == "status.capacity"), expected, "{:?}", made.losses);
}

/// The provider places no machine in a local or wavelength zone by itself.
#[rstest]
#[case::regional(json!({}), "subnet-7")]
#[case::local(json!({ "zoneType": "local-zone" }), "subnet-9")]
#[case::wavelength(json!({ "zoneType": "wavelength-zone" }), "subnet-9")]
fn the_first_subnet_in_a_zone_of_the_region_is_taken(#[case] first: Value, #[case] expected: &str) {
    let mut given = deployment_with(aws(), "AWSMachineTemplate");
    let template = given.iter_mut().find(|one| one["kind"] == "AWSMachineTemplate").unwrap();
    template.pointer_mut("/spec/template/spec").unwrap().as_object_mut().unwrap().remove("subnet");
    let cluster = given.iter_mut().find(|one| one["kind"] == "AWSCluster").unwrap();
    let mut subnet = json!({ "id": "subnet-7", "availabilityZone": "a" });
    subnet.as_object_mut().unwrap().extend(first.as_object().unwrap().clone());
    cluster["spec"]["network"] = json!({ "subnets": [subnet, { "id": "subnet-9", "availabilityZone": "a" }] });
    cluster["status"]["ready"] = json!(true);
    set(&mut given[0], &format!("{TEMPLATE}/failureDomain"), json!("a"));
    let made = objects(to_native(&given, &options()));
    assert_eq!(of_kind(&made, "MachineClass")["providerSpec"]["networkInterfaces"][0]["subnetID"], expected);
}

/// A deployment whose machines belong to a provider that mcm does not know.
fn of_unknown(kind: &str, group: &str) -> Value {
    let mut deployment = deployment_with(Vec::new(), kind).remove(0);
    set(&mut deployment, "/metadata/name", json!("others"));
    set(&mut deployment, &format!("{TEMPLATE}/infrastructureRef/apiGroup"), json!(group));
    deployment
}

const GROUP: &str = "infrastructure.cluster.x-k8s.io";

#[rstest]
#[case::kind("AzureMachineTemplate", GROUP, "AWSMachineTemplate and GCPMachineTemplate")]
#[case::group("AWSMachineTemplate", "infrastructure.cluster.x-k8s.io/v1beta2", "without a version")]
fn a_file_whose_workers_all_stay_is_refused(#[case] kind: &str, #[case] group: &str, #[case] advice: &str) {
    let made = to_capi(&[of_unknown(kind, group)], &options());
    assert_eq!(made.refusals.len(), 1, "{made:?}");
    assert!(made.refusals[0].advice.contains(advice), "{}", made.refusals[0]);
}

#[test]
fn workers_that_stay_beside_others_are_reported() {
    let mut given = deployment_with(aws(), "AWSMachineTemplate");
    given.push(of_unknown("AzureMachineTemplate", GROUP));
    let made = to_capi(&given, &options());
    assert_eq!(refused(&made), [""; 0], "{made:?}");
    let found = made.losses.iter().find(|loss| loss.object == "MachineDeployment others" && !loss.path.is_empty());
    assert!(found.unwrap().reason.contains("mcm does not convert AzureMachineTemplate"));
    assert!(made.objects.iter().any(|one| one["metadata"]["name"] == "others"));
}

#[rstest]
#[case("AWSManagedMachinePool")]
#[case("ROSAMachinePool")]
fn machines_that_the_cloud_manages_stay_with_a_note(#[case] kind: &str) {
    let made = to_capi(&[of_unknown(kind, GROUP)], &options());
    assert_eq!((refused(&made), made.objects.len()), (vec![], 1), "{made:?}");
    assert!(made.losses[0].reason.contains("the cloud manages"), "{:?}", made.losses);
}
