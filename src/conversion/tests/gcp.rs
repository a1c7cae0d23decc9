//! GCPMachineTemplates, field by field.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    TEMPLATE,
    clouds::{deployment_with, native_class, of_cloud},
    objects, of_kind, options, refused, set,
};
use crate::{to_capi, to_native};

pub fn gcp() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "GCPMachineTemplate",
            "metadata": { "name": "pool", "namespace": "demo", "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
            "spec": { "template": { "spec": {
                "instanceType": "n2-standard-4",
                "image": "projects/p/global/images/i",
                "subnet": "nodes",
                "publicIP": true,
                "aliasIPRanges": [{ "ipCidrRange": "/24", "subnetworkRangeName": "pods" }],
                "additionalLabels": { "team": "a" },
                "additionalMetadata": [{ "key": "a", "value": "b" }],
                "additionalNetworkTags": ["ssh"],
                "rootDeviceSize": 60, "rootDeviceType": "pd-ssd",
                "rootDiskEncryptionKey": { "keyType": "Managed", "managedKey": { "kmsKeyName": "k" }, "kmsKeyServiceAccount": "s" },
                "additionalDisks": [
                    { "deviceType": "local-ssd" },
                    { "deviceType": "pd-balanced", "size": 100 },
                ],
                "serviceAccounts": { "email": "e", "scopes": ["s"] },
                "preemptible": true, "provisioningModel": "Standard",
                "ipForwarding": "Disabled",
                "shieldedInstanceConfig": { "secureBoot": "Enabled" },
                "onHostMaintenance": "Terminate",
                "confidentialCompute": "Disabled",
                "guestAccelerators": [{ "type": "projects/p/zones/eu-a/acceleratorTypes/t4", "count": 2 }],
            } } },
        }),
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "GCPCluster",
            "metadata": { "name": "c1", "namespace": "demo" },
            "spec": { "region": "eu", "project": "p", "network": { "name": "net" } },
        }),
    ]
}

/// The zone is taken from the deployment.
pub fn gcp_in_zone() -> Vec<Value> {
    let mut all = deployment_with(gcp(), "GCPMachineTemplate");
    set(&mut all[0], &format!("{TEMPLATE}/failureDomain"), json!("eu-a"));
    all
}

#[test]
fn a_gcp_template_becomes_a_class() {
    let made = objects(to_native(&gcp_in_zone(), &options()));
    let class = of_kind(&made, "MachineClass");
    assert_eq!(class["provider"], "GCP");
    assert_eq!(
        class["providerSpec"],
        json!({
            "region": "eu", "zone": "eu-a", "machineType": "n2-standard-4", "canIpForward": false, "deletionProtection": false,
            "disks": [
                { "autoDelete": true, "boot": true, "image": "projects/p/global/images/i", "sizeGb": 60, "type": "pd-ssd",
                  "labels": { "team": "a" }, "encryption": { "kmsKeyName": "k", "kmsKeyServiceAccount": "s" } },
                { "autoDelete": true, "boot": false, "sizeGb": 375, "type": "SCRATCH", "interface": "NVME" },
                { "autoDelete": true, "boot": false, "sizeGb": 100, "type": "pd-balanced" },
            ],
            "gpu": { "acceleratorType": "t4", "count": 2 },
            "labels": { "team": "a" },
            "metadata": [{ "key": "a", "value": "b" }],
            "networkInterfaces": [{
                "network": "net", "subnetwork": "nodes", "disableExternalIP": false, "useAliasIPs": true,
                "ipCidrRange": "/24", "subnetworkRangeName": "pods",
            }],
            "scheduling": { "automaticRestart": false, "onHostMaintenance": "TERMINATE", "preemptible": true },
            "serviceAccounts": [{ "email": "e", "scopes": ["s"] }],
            "tags": ["ssh", "c1-node", "c1", "kubernetes-io-cluster-c1", "kubernetes-io-role-node"],
            "shieldedInstanceConfiguration": { "secureBoot": true, "vtpm": true, "integrityMonitoring": true },
        })
    );
}

#[rstest]
#[case("/providerID", json!("x"), "providerID")]
#[case("/image", json!(null), "image")]
#[case("/aliasIPRanges/0/noSuchField", json!("x"), "aliasIPRanges[0].noSuchField")]
#[case("/aliasIPRanges", json!([{ "ipCidrRange": "/24" }, { "ipCidrRange": "/25" }]), "aliasIPRanges[1]")]
#[case("/additionalMetadata/0/key", json!("user-data"), "additionalMetadata[0].key")]
#[case("/resourceManagerTags", json!([{ "parentID": "a", "key": "b", "value": "c" }]), "resourceManagerTags")]
#[case("/provisioningModel", json!("Spot"), "provisioningModel")]
#[case("/confidentialCompute", json!("Enabled"), "confidentialCompute")]
#[case("/rootDiskEncryptionKey", json!({ "keyType": "Supplied" }), "rootDiskEncryptionKey.keyType")]
#[case("/rootDiskEncryptionKey", json!({ "keyType": "Managed", "managedKey": { "kmsKeyName": "k" }, "suppliedKey": { "rawKey": "x" } }), "rootDiskEncryptionKey.suppliedKey")]
#[case("/onHostMaintenance", json!("Sometimes"), "onHostMaintenance")]
#[case("/publicIP", json!("yes"), "publicIP")]
#[case("/additionalDisks", json!("none"), "additionalDisks")]
#[case("/shieldedInstanceConfig/secureBoot", json!("on"), "shieldedInstanceConfig.secureBoot")]
#[case("/guestAccelerators", json!([{ "type": "a", "count": 1 }, { "type": "b", "count": 1 }]), "guestAccelerators[1]")]
#[case("/noSuchField", json!("x"), "noSuchField")]
fn a_gcp_template_that_means_another_vm_is_refused(#[case] field: &str, #[case] value: Value, #[case] path: &str) {
    let mut given = gcp_in_zone();
    set(&mut given[1], &format!("{TEMPLATE}{field}"), value);
    let conversion = to_native(&given, &options());
    let own = conversion.refusals.iter().filter(|one| one.object == "GCPMachineTemplate pool");
    let found: Vec<&str> = own.map(|one| one.path.trim_start_matches("spec.template.spec.")).collect();
    assert_eq!(found, [path]);
    assert!(conversion.objects.is_empty());
}

#[test]
fn a_gcp_template_needs_one_zone_and_its_cluster() {
    let conversion = to_native(&gcp()[..1], &options());
    assert_eq!(refused(&conversion), ["", ""], "region and zone");
    let mut two = gcp_in_zone();
    let mut other = two[0].clone();
    set(&mut other, "/metadata/name", json!("other"));
    set(&mut other, &format!("{TEMPLATE}/failureDomain"), json!("eu-b"));
    two.push(other);
    let conversion = to_native(&two, &options());
    assert!(conversion.refusals.iter().any(|one| one.reason.contains("eu-a, eu-b")), "{:?}", conversion.refusals);
}

#[test]
fn a_gcp_class_is_restored_from_its_template() {
    let made = objects(to_native(&gcp_in_zone(), &options()));
    let spec = of_kind(&made, "MachineClass")["providerSpec"].clone();
    let capi = to_capi(&native_class("GCP", spec.clone()), &of_cloud());
    assert_eq!(capi.refusals, []);
    let mut all = gcp_in_zone();
    all[1] = capi.objects[0].clone();
    let back = objects(to_native(&all, &options()));
    assert_eq!(of_kind(&back, "MachineClass")["providerSpec"], spec);
}

#[rstest]
#[case("/deletionProtection", json!(true), "deletionProtection")]
#[case("/minCpuPlatform", json!("Intel"), "minCpuPlatform")]
#[case("/advancedMachineFeatures", json!({ "enableNestedVirtualization": true }), "advancedMachineFeatures")]
#[case("/disks/0/boot", json!(false), "disks")]
#[case("/disks/0/autoDelete", json!(false), "disks[0].autoDelete")]
#[case("/disks/2/provisionedIops", json!(5), "disks[2].provisionedIops")]
#[case("/disks/1/interface", json!("SCSI"), "disks[1].interface")]
#[case("/networkInterfaces/0/stackType", json!("IPV4_IPV6"), "networkInterfaces[0].stackType")]
#[case("/serviceAccounts", json!([]), "serviceAccounts")]
#[case("/scheduling/automaticRestart", json!(true), "scheduling.automaticRestart")]
fn a_gcp_class_that_means_another_vm_is_refused(#[case] field: &str, #[case] value: Value, #[case] path: &str) {
    let made = objects(to_native(&gcp_in_zone(), &options()));
    let mut spec = of_kind(&made, "MachineClass")["providerSpec"].clone();
    set(&mut spec, field, value);
    let conversion = to_capi(&native_class("GCP", spec), &of_cloud());
    assert!(refused(&conversion).contains(&format!("providerSpec.{path}").as_str()), "{:?}", conversion.refusals);
}
