//! AWSMachineTemplates, field by field.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    TEMPLATE,
    clouds::{native_class, of_cloud, there_and_back},
    objects, of_kind, options, refused, set,
};
use crate::{to_capi, to_native};

pub fn aws_cluster() -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AWSCluster",
        "metadata": { "name": "c1", "namespace": "demo" },
        "spec": { "region": "eu-west-1", "additionalTags": { "team": "a", "cost": "1" } },
        "status": { "networkStatus": { "securityGroups": { "node": { "id": "sg-node" }, "lb": { "id": "sg-lb" } } } },
    })
}

/// With every field that has a native counterpart.
pub fn aws() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AWSMachineTemplate",
            "metadata": { "name": "pool", "namespace": "demo", "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
            "spec": { "template": { "spec": {
                "ami": { "id": "ami-1" },
                "imageLookupOrg": "0",
                "instanceType": "m5.large",
                "iamInstanceProfile": "nodes",
                "sshKeyName": "ops",
                "publicIP": false,
                "subnet": { "id": "subnet-1" },
                "additionalSecurityGroups": [{ "id": "sg-extra" }],
                "networkInterfaceType": "efa",
                "additionalTags": { "team": "b" },
                "rootVolume": { "size": 50, "type": "gp3", "iops": 4000, "throughput": 200, "encrypted": true },
                "nonRootVolumes": [{ "deviceName": "/dev/sdf", "size": 100, "type": "io1", "iops": 1000 }],
                "instanceMetadataOptions": {
                    "httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 2,
                    "httpProtocolIpv6": "disabled", "instanceMetadataTags": "disabled",
                },
                "cpuOptions": { "confidentialCompute": "AMDEncryptedVirtualizationNestedPaging" },
                "tenancy": "host", "hostID": "h-1", "hostAffinity": "host",
                "capacityReservationPreference": "Open",
                "spotMarketOptions": { "maxPrice": "0.1" },
                "uncompressedUserData": true,
                "cloudInit": { "insecureSkipSecretsManager": true },
                "assignPrimaryIPv6": "disabled",
            } } },
        }),
        aws_cluster(),
    ]
}

#[test]
fn an_aws_template_becomes_a_class() {
    let made = objects(to_native(&aws(), &options()));
    let class = of_kind(&made, "MachineClass");
    assert_eq!((&class["provider"], &class["metadata"]["name"]), (&json!("AWS"), &json!("pool")));
    assert_eq!(
        class["providerSpec"],
        json!({
            "ami": "ami-1", "region": "eu-west-1", "machineType": "m5.large", "iam": { "name": "nodes" }, "keyName": "ops",
            "blockDevices": [
                { "deviceName": "/root", "ebs": {
                    "volumeType": "gp3", "volumeSize": 50, "iops": 4000, "throughput": 200, "encrypted": true,
                    "deleteOnTermination": true,
                } },
                { "deviceName": "/dev/sdf", "ebs": {
                    "volumeType": "io1", "volumeSize": 100, "iops": 1000, "deleteOnTermination": true,
                } },
            ],
            "networkInterfaces": [{
                "subnetID": "subnet-1", "securityGroupIDs": ["sg-node", "sg-lb", "sg-extra"],
                "associatePublicIPAddress": false, "interfaceType": "efa",
            }],
            "tags": { "team": "b", "cost": "1", "kubernetes.io/cluster/c1": "owned", "kubernetes.io/role/node": "1" },
            "instanceMetadataOptions": {
                "httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 2, "httpProtocolIpv6": "disabled",
            },
            "cpuOptions": { "amdSevSnp": "enabled" },
            "placement": { "tenancy": "host", "hostId": "h-1", "affinity": "host" },
            "capacityReservation": { "capacityReservationPreference": "open" },
            "spotPrice": "0.1",
        })
    );
}

#[rstest]
#[case::key_of_the_cluster("/sshKeyName", json!(null), "/keyName", json!("default"))]
#[case::no_key("/sshKeyName", json!(""), "/keyName", json!(null))]
#[case::groups("/securityGroupOverrides", json!({ "node": "sg-x", "lb": "sg-y" }), "/networkInterfaces/0/securityGroupIDs/0", json!("sg-x"))]
#[case::no_spot("/spotMarketOptions", json!(null), "/spotPrice", json!(null))]
#[case::spot_without_price("/spotMarketOptions", json!({}), "/spotPrice", json!(""))]
#[case::reservation("/capacityReservationId", json!("cr-1"), "/capacityReservation/capacityReservationId", json!("cr-1"))]
#[case::unknown_preference("/capacityReservationPreference", json!("None"), "/capacityReservation/capacityReservationPreference", json!("none"))]
#[case::no_snp("/cpuOptions", json!({ "confidentialCompute": "Disabled" }), "/cpuOptions/amdSevSnp", json!("disabled"))]
fn each_field_of_an_aws_template_is_converted(
    #[case] field: &str,
    #[case] value: Value,
    #[case] place: &str,
    #[case] expected: Value,
) {
    let mut given = aws();
    set(&mut given[0], &format!("{TEMPLATE}{field}"), value);
    let made = objects(to_native(&given, &options()));
    let spec = &of_kind(&made, "MachineClass")["providerSpec"];
    assert_eq!(spec.pointer(place).cloned().unwrap_or_default(), expected);
}

/// MCM has no default: a store needs permissions.
#[rstest]
#[case::named(json!({ "secureSecretsBackend": "secrets-manager" }), json!("SecretsManager"), "userDataStore of the class needs permissions")]
#[case::another(json!({ "secureSecretsBackend": "ssm-parameter-store" }), json!(null), "MCM has no store in Systems Manager")]
#[case::by_default(json!(null), json!(null), "the provider keeps user data in Secrets Manager by default")]
#[case::none(json!({ "insecureSkipSecretsManager": true }), json!(null), "")]
fn a_class_has_the_store_that_its_template_names(#[case] init: Value, #[case] store: Value, #[case] note: &str) {
    let mut given = aws();
    set(&mut given[0], &format!("{TEMPLATE}/cloudInit"), init.clone());
    let conversion = to_native(&given, &options());
    let notes: Vec<_> = conversion.losses.iter().filter(|one| one.path.contains("cloudInit")).collect();
    assert_eq!(notes.is_empty(), note.is_empty(), "{notes:?}");
    assert!(notes.iter().all(|one| one.reason.starts_with(note)), "{notes:?}");
    let spec = of_kind(&objects(conversion), "MachineClass")["providerSpec"].clone();
    assert_eq!(spec["userDataStore"], store);
    let (capi, back) = there_and_back("AWS", &spec, aws_cluster());
    let machine = &capi.objects[0]["spec"]["template"]["spec"];
    assert_eq!(machine["cloudInit"], if store.is_null() { json!(null) } else { init });
    assert_eq!(back["userDataStore"], store);
}

#[rstest]
#[case("/cloudInit", json!({ "secureSecretsBackend": "vault" }), "cloudInit.secureSecretsBackend")]
#[case("/cloudInit/noSuchField", json!("x"), "cloudInit.noSuchField")]
#[case("/providerID", json!("x"), "providerID")]
#[case("/ami", json!({ "eksLookupType": "AmazonLinux" }), "ami.id")]
#[case("/iamInstanceProfile", json!(null), "iamInstanceProfile")]
#[case("/subnet", json!({ "filters": [{ "name": "a", "values": ["b"] }] }), "subnet.id")]
#[case("/additionalSecurityGroups/0", json!({ "filters": [{ "name": "a", "values": ["b"] }] }), "additionalSecurityGroups")]
#[case("/rootVolume", json!(null), "rootVolume")]
#[case("/rootVolume/type", json!("io2"), "rootVolume.type")]
#[case("/rootVolume/encryptionKey", json!("key"), "rootVolume.encryptionKey")]
#[case("/nonRootVolumes/0/deviceName", json!(""), "nonRootVolumes[0].deviceName")]
#[case("/instanceMetadataOptions/instanceMetadataTags", json!("enabled"), "instanceMetadataOptions.instanceMetadataTags")]
#[case("/elasticIpPool", json!({ "publicIpv4Pool": "p" }), "elasticIpPool")]
#[case("/networkInterfaces", json!(["eni-1"]), "networkInterfaces")]
#[case("/ignition", json!({ "version": "3.4" }), "ignition")]
#[case("/placementGroupName", json!("g"), "placementGroupName")]
#[case("/placementGroupPartition", json!(2), "placementGroupPartition")]
#[case("/dynamicHostAllocation", json!({ "tags": { "a": "b" } }), "dynamicHostAllocation")]
#[case("/privateDnsName", json!({ "hostnameType": "resource-name" }), "privateDnsName")]
#[case("/capacityReservationPreference", json!("CapacityReservationsOnly"), "capacityReservationPreference")]
#[case("/assignPrimaryIPv6", json!("enabled"), "assignPrimaryIPv6")]
#[case("/cpuOptions/nestedVirtualization", json!("enabled"), "cpuOptions.nestedVirtualization")]
#[case("/additionalTags", json!(["x"]), "additionalTags")]
#[case("/nonRootVolumes", json!({}), "nonRootVolumes")]
#[case("/spotMarketOptions/noSuchField", json!("x"), "spotMarketOptions.noSuchField")]
#[case("/noSuchField", json!("x"), "noSuchField")]
fn an_aws_template_that_means_another_vm_is_refused(#[case] field: &str, #[case] value: Value, #[case] paths: &str) {
    let mut given = aws();
    set(&mut given[0], &format!("{TEMPLATE}{field}"), value);
    let conversion = to_native(&given, &options());
    let mut found: Vec<&str> =
        refused(&conversion).into_iter().map(|path| path.trim_start_matches("spec.template.spec.")).collect();
    found.sort_unstable();
    assert_eq!(found.join(","), paths);
    assert!(conversion.objects.iter().all(|object| object["kind"] != "MachineClass"));
}

#[test]
fn an_aws_template_needs_its_cluster() {
    let conversion = to_native(&aws()[..1], &options());
    assert_eq!(refused(&conversion), ["", "spec.template.spec.additionalSecurityGroups"]);
}

#[test]
fn an_aws_class_is_restored_from_its_template() {
    let made = objects(to_native(&aws(), &options()));
    let mut spec = of_kind(&made, "MachineClass")["providerSpec"].clone();
    // An absent value is false natively.
    spec["blockDevices"][1]["ebs"]["encrypted"] = json!(false);
    let (capi, back) = there_and_back("AWS", &spec, aws_cluster());
    assert_eq!(capi.refusals, []);
    assert_eq!(capi.objects[0]["kind"], "AWSMachineTemplate");
    assert_eq!(back, spec);
}

#[rstest]
#[case("/iam", json!({ "arn": "arn:x" }), "iam.arn")]
#[case("/networkInterfaces/1", json!({ "subnetID": "s" }), "networkInterfaces[1]")]
#[case("/networkInterfaces/0/ipv6PrefixCount", json!(1), "networkInterfaces[0].ipv6PrefixCount")]
#[case("/networkInterfaces/0/interfaceType", json!("efa-only"), "networkInterfaces[0].interfaceType")]
#[case("/networkInterfaces/0/deleteOnTermination", json!(false), "networkInterfaces[0].deleteOnTermination")]
#[case("/srcAndDstChecksEnabled", json!(false), "srcAndDstChecksEnabled")]
#[case("/blockDevices/0/ebs/snapshotID", json!("s"), "blockDevices[0].ebs.snapshotID")]
#[case("/blockDevices/0/ebs/deleteOnTermination", json!(false), "blockDevices[0].ebs.deleteOnTermination")]
#[case("/cpuOptions/coreCount", json!(2), "cpuOptions.coreCount")]
#[case("/placement/groupId", json!("g"), "placement.groupId")]
#[case("/capacityReservation/capacityReservationResourceGroupArn", json!("a"), "capacityReservation.capacityReservationResourceGroupArn")]
#[case("/instanceMarketOptions/marketType", json!("interruptible-capacity-reservation"), "instanceMarketOptions.marketType")]
fn an_aws_class_that_means_another_vm_is_refused(#[case] field: &str, #[case] value: Value, #[case] path: &str) {
    let made = objects(to_native(&aws(), &options()));
    let mut spec = of_kind(&made, "MachineClass")["providerSpec"].clone();
    if field == "/networkInterfaces/1" {
        spec["networkInterfaces"].as_array_mut().unwrap().push(value);
    } else {
        set(&mut spec, field, value);
    }
    let conversion = to_capi(&native_class("AWS", spec), &of_cloud());
    assert_eq!(refused(&conversion), [format!("providerSpec.{path}")]);
}

#[test]
fn keys_of_a_provider_spec_are_found_in_any_case_as_go_does() {
    let made = objects(to_native(&aws(), &options()));
    let mut spec = of_kind(&made, "MachineClass")["providerSpec"].clone();
    let ami = spec.as_object_mut().unwrap().remove("ami").unwrap();
    spec["AMI"] = ami;
    let capi = objects(to_capi(&native_class("AWS", spec), &of_cloud()));
    assert_eq!(capi[0]["spec"]["template"]["spec"]["ami"], json!({ "id": "ami-1" }));
}
