//! Objects of other providers and their related objects.

use rstest::rstest;
use serde_json::{Value, json};

use super::{TEMPLATE, aws::aws, capi_deployment, gcp::gcp, objects, of_kind, options, refused, set};
use crate::{ConversionOptions, ConversionResult, InfrastructureChoice, to_capi, to_native};

pub fn of_cloud() -> ConversionOptions {
    ConversionOptions { infrastructure: InfrastructureChoice::OfCloud, cluster: Some("c1".into()), ..options() }
}

/// The minimal deployment with another template.
pub fn deployment_with(template: Vec<Value>, kind: &str) -> Vec<Value> {
    let mut all = capi_deployment();
    all.truncate(1);
    set(&mut all[0], &format!("{TEMPLATE}/infrastructureRef/kind"), json!(kind));
    set(&mut all[0], &format!("{TEMPLATE}/bootstrap/dataSecretName"), json!("join"));
    all.extend(template);
    all
}

#[rstest]
#[case(deployment_with(aws(), "AWSMachineTemplate"), "AWSMachineTemplate")]
#[case(deployment_with(gcp(), "GCPMachineTemplate"), "GCPMachineTemplate")]
fn a_deployment_of_another_provider_is_restored(#[case] mut given: Vec<Value>, #[case] kind: &str) {
    if kind == "GCPMachineTemplate" {
        set(&mut given[0], &format!("{TEMPLATE}/failureDomain"), json!("eu-a"));
    }
    let native = objects(to_native(&given, &options()));
    let class = of_kind(&native, "MachineClass");
    assert_eq!(
        of_kind(&native, "MachineDeployment")["spec"]["template"]["spec"]["class"]["name"],
        class["metadata"]["name"]
    );
    assert_eq!(class["secretRef"]["name"], "join-userdata");
    let back = objects(to_capi(&native, &options()));
    let mut expected = given[0].clone();
    let mut defaulted: crate::types::MachineDeployment = serde_json::from_value(expected.clone()).unwrap();
    crate::defaults::deployment(&mut defaulted);
    expected = serde_json::to_value(defaulted).unwrap();
    assert_eq!(of_kind(&back, "MachineDeployment"), &expected);
    assert_eq!(of_kind(&back, kind), &given[1]);
}

/// Notes are annotations, which any client may write: they must not become objects of any kind.
#[rstest]
#[case("kind", json!("ClusterRoleBinding"))]
#[case("apiVersion", json!("rbac.authorization.k8s.io/v1"))]
#[case("metadata", json!({ "name": "pool", "namespace": "kube-system" }))]
#[case("data", json!({ "a": "b" }))]
fn a_forged_note_makes_no_object(#[case] field: &str, #[case] value: Value) {
    let mut native = objects(to_native(&deployment_with(aws(), "AWSMachineTemplate"), &options()));
    let at = &mut native[0]["metadata"]["annotations"]["conversion.mcm/unmapped"];
    let mut note: Value = serde_json::from_str(at.as_str().unwrap()).unwrap();
    note["fields"]["spec.template.spec.infrastructureRef"]["foreign"][field] = value;
    *at = json!(note.to_string());
    let back = objects(to_capi(&native, &options()));
    assert_eq!(of_kind(&back, "MCMMachineTemplate")["metadata"]["namespace"], "demo");
    let kinds = ["MachineDeployment", "MCMMachineTemplate", "MachineClass"];
    assert!(back.iter().all(|object| kinds.contains(&object["kind"].as_str().unwrap())), "{back:#?}");
}

pub fn native_class(provider: &str, spec: Value) -> Vec<Value> {
    vec![json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "pool", "namespace": "demo" },
        "provider": provider, "providerSpec": spec, "secretRef": { "name": "s", "namespace": "demo" },
    })]
}

/// Class → template → class: fields that are not in the template are taken from the cluster.
pub fn there_and_back(provider: &str, spec: &Value, cluster: Value) -> (ConversionResult, Value) {
    let capi = to_capi(&native_class(provider, spec.clone()), &of_cloud());
    let mut all = capi.objects.clone();
    all.push(cluster);
    let back = to_native(&all, &options());
    let spec = back.objects.first().map(|class| class["providerSpec"].clone()).unwrap_or_default();
    (capi, spec)
}

#[test]
fn a_deployment_can_be_given_to_the_provider_of_its_cloud() {
    let made = objects(to_native(&aws(), &options()));
    let mut all = super::native_deployment();
    set(&mut all[0], &format!("{TEMPLATE}/class/name"), json!("pool"));
    all.extend(native_class("AWS", of_kind(&made, "MachineClass")["providerSpec"].clone()));
    let capi = objects(to_capi(&all, &of_cloud()));
    let template = of_kind(&capi, "AWSMachineTemplate");
    assert_eq!(template["spec"]["template"]["spec"]["instanceType"], "m5.large");
    let reference = &of_kind(&capi, "MachineDeployment")["spec"]["template"]["spec"]["infrastructureRef"];
    assert_eq!(reference["kind"], "AWSMachineTemplate");
    assert_eq!(reference["name"], template["metadata"]["name"]);
    assert!(capi.iter().all(|object| object["kind"] != "MCMMachineTemplate"));

    set(&mut all[0], &format!("{TEMPLATE}/nodeTemplate/metadata/labels"), json!({ "size": "big" }));
    assert_eq!(refused(&to_capi(&all, &of_cloud())), ["spec.template.spec.nodeTemplate.metadata"]);
}

#[test]
fn fields_that_template_and_class_do_not_share_are_reported() {
    let mut given = aws();
    set(&mut given[0], "/metadata/labels/team", json!("a"));
    set(&mut given[0], "/metadata/annotations", json!({ "cluster.x-k8s.io/watch-filter": "x" }));
    set(&mut given[0], "/spec/template/metadata", json!({ "labels": { "a": "b" } }));
    let conversion = to_native(&given, &options());
    let paths = super::lost(&conversion);
    assert!(paths.contains(&"spec.template.metadata"), "{paths:?}");
    assert!(paths.contains(&"metadata.annotations['cluster.x-k8s.io/watch-filter']"), "{paths:?}");
    let made = objects(conversion);
    let class = of_kind(&made, "MachineClass");
    assert_eq!(class["metadata"]["labels"], json!({ "team": "a" }));

    let mut all = native_class("AWS", class["providerSpec"].clone());
    set(&mut all[0], "/metadata/labels", json!({ "team": "a" }));
    set(
        &mut all[0],
        "/nodeTemplate",
        json!({ "capacity": { "cpu": "1" }, "instanceType": "x", "region": "eu", "zone": "eu-a" }),
    );
    set(&mut all[0], "/credentialsSecretRef", json!({ "name": "c", "namespace": "demo" }));
    let conversion = to_capi(&all, &of_cloud());
    assert_eq!(super::lost(&conversion), ["nodeTemplate", "secretRef", "credentialsSecretRef"]);
    let labels = json!({ "team": "a", "cluster.x-k8s.io/cluster-name": "c1" });
    assert_eq!(objects(conversion)[0]["metadata"]["labels"], labels);
}
