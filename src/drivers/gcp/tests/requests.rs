//! Requests of the driver, field by field.

use std::{collections::BTreeMap, sync::Arc};

use rstest::rstest;
use serde_json::{Value, json};

use super::{CLUSTER, OWNER, OWNER_LABEL, ROLE, UID_LABEL, World, ZONE, spec_with};
use mcm_driver::interface::Driver;

/// The body of the insert for a class.
async fn sent(changes: &Value) -> Value {
    let world = World::new().await;
    world.driver.create(&world.request_for("m", "uid-m", spec_with(changes))).await.unwrap();
    world.gce.lock().bodies("instances.insert").remove(0)
}

fn plain() -> Value {
    json!({
        "name": "m",
        "machineType": "zones/europe-west1-b/machineTypes/n2-standard-2",
        "disks": [{
            "type": "PERSISTENT", "boot": true, "autoDelete": true,
            "initializeParams": {
                "diskSizeGb": "50", "diskType": "zones/europe-west1-b/diskTypes/pd-ssd",
                "sourceImage": "projects/os/global/images/os-1",
            },
        }],
        "labels": {UID_LABEL: "uid-m", OWNER_LABEL: OWNER},
        "metadata": {"items": [{"key": "startup-script", "value": "#!/bin/sh\nhunter2-hunter2"}]},
        "networkInterfaces": [{"accessConfigs": [{}], "subnetwork": "regions/europe-west1/subnetworks/nodes"}],
        "scheduling": {"automaticRestart": true, "onHostMaintenance": "MIGRATE"},
        "tags": {"items": [CLUSTER, ROLE]},
    })
}

/// The plain body with a value at a path; `null` removes it.
fn plain_with(changes: &[(&str, Value)]) -> Value {
    let mut body = plain();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => drop(parent.remove(key).unwrap()),
            value => drop(parent.insert(key.to_owned(), value.clone())),
        }
    }
    body
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    assert_eq!(sent(&json!({})).await, plain());
}

/// Fields that differ from the plain body.
#[rstest]
#[case::machine_type(json!({"machineType": "e2-small"}), &[("/machineType", json!("zones/europe-west1-b/machineTypes/e2-small"))])]
#[case::forward(json!({"canIpForward": true}), &[("/canIpForward", json!(true))])]
#[case::no_forward(json!({"canIpForward": false, "deletionProtection": false}), &[])]
#[case::protection(json!({"deletionProtection": true}), &[("/deletionProtection", json!(true))])]
#[case::description(json!({"description": "d"}), &[("/description", json!("d"))])]
#[case::no_description(json!({"description": "", "minCpuPlatform": ""}), &[])]
#[case::platform(json!({"minCpuPlatform": "Intel Ice Lake"}), &[("/minCpuPlatform", json!("Intel Ice Lake"))])]
#[case::labels(json!({"labels": {"team": "a"}}), &[("/labels/team", json!("a"))])]
#[case::gpu(json!({"gpu": {"acceleratorType": "nvidia-l4", "count": 2}, "scheduling": {"onHostMaintenance": "TERMINATE"}}), &[("/guestAccelerators", json!([{"acceleratorType": "projects/my-project/zones/europe-west1-b/acceleratorTypes/nvidia-l4", "acceleratorCount": 2}])), ("/scheduling", json!({"automaticRestart": false, "onHostMaintenance": "TERMINATE"}))])]
#[case::preemptible(json!({"scheduling": {"automaticRestart": false, "onHostMaintenance": "TERMINATE", "preemptible": true}}), &[("/scheduling", json!({"automaticRestart": false, "onHostMaintenance": "TERMINATE", "preemptible": true}))])]
#[case::accounts(json!({"serviceAccounts": [{"email": "e", "scopes": ["s", "t"]}]}), &[("/serviceAccounts", json!([{"email": "e", "scopes": ["s", "t"]}]))])]
#[case::metadata(json!({"metadata": [{"key": "k", "value": "v"}, {"key": "empty"}]}), &[("/metadata", json!({"items": [{"key": "startup-script", "value": "#!/bin/sh\nhunter2-hunter2"}, {"key": "k", "value": "v"}, {"key": "empty"}]}))])]
#[case::tags(json!({"tags": ["a", CLUSTER, ROLE]}), &[("/tags", json!({"items": ["a", CLUSTER, ROLE]}))])]
#[case::shielded(json!({"shieldedInstanceConfiguration": {"integrityMonitoring": true, "secureBoot": true, "vtpm": true}}), &[("/shieldedInstanceConfig", json!({"enableIntegrityMonitoring": true, "enableSecureBoot": true, "enableVtpm": true}))])]
#[case::not_shielded(json!({"shieldedInstanceConfiguration": {"integrityMonitoring": false, "secureBoot": false, "vtpm": false}}), &[("/shieldedInstanceConfig", json!({}))])]
#[case::nested(json!({"advancedMachineFeatures": {"enableNestedVirtualization": true}}), &[("/advancedMachineFeatures", json!({"enableNestedVirtualization": true}))])]
#[case::not_nested(json!({"advancedMachineFeatures": {}}), &[("/advancedMachineFeatures", json!({}))])]
#[tokio::test]
async fn each_field_of_a_class_is_sent(#[case] changes: Value, #[case] expected: &[(&str, Value)]) {
    assert_eq!(sent(&changes).await, plain_with(expected));
}

const PARAMS: &str = "/disks/0/initializeParams";

#[rstest]
#[case::kept(json!({"autoDelete": false}), &[("/disks/0/autoDelete", Value::Null)])]
#[case::no_size(json!({"sizeGb": 0}), &[("/disks/0/initializeParams/diskSizeGb", Value::Null)])]
#[case::interface_is_for_local_disks(json!({"interface": "NVME"}), &[])]
#[case::key(json!({"encryption": {"kmsKeyName": " k ", "kmsKeyServiceAccount": " a "}}), &[("/disks/0/diskEncryptionKey", json!({"kmsKeyName": "k", "kmsKeyServiceAccount": "a"}))])]
#[case::key_alone(json!({"encryption": {"kmsKeyName": "k", "kmsKeyServiceAccount": ""}}), &[("/disks/0/diskEncryptionKey", json!({"kmsKeyName": "k"}))])]
#[case::labels(json!({"labels": {"name": "d"}}), &[("/disks/0/initializeParams/labels", json!({"name": "d"}))])]
#[case::iops(json!({"provisionedIops": 5000, "provisionedThroughput": 250}), &[("/disks/0/initializeParams/provisionedIops", json!("5000")), ("/disks/0/initializeParams/provisionedThroughput", json!("250"))])]
#[case::no_iops(json!({"provisionedIops": 0, "provisionedThroughput": 0}), &[])]
#[case::pool(json!({"storagePool": "zones/z/storagePools/p"}), &[("/disks/0/initializeParams/storagePool", json!("zones/z/storagePools/p"))])]
#[case::local(json!({"type": "SCRATCH", "interface": "NVME", "labels": {"name": "d"}}), &[("/disks/0/type", json!("SCRATCH")), ("/disks/0/boot", Value::Null), ("/disks/0/interface", json!("NVME")), (PARAMS, json!({"diskType": "zones/europe-west1-b/diskTypes/local-ssd"}))])]
#[case::data(json!({"boot": false, "image": ""}), &[("/disks/0/boot", Value::Null), ("/disks/0/initializeParams/sourceImage", Value::Null)])]
#[tokio::test]
async fn each_field_of_a_disk_is_sent(#[case] changes: Value, #[case] expected: &[(&str, Value)]) {
    let mut disk = json!({"boot": true, "sizeGb": 50, "type": "pd-ssd", "image": "projects/os/global/images/os-1"});
    disk.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    assert_eq!(sent(&json!({ "disks": [disk] })).await, plain_with(expected));
}

const NIC: &str = "/networkInterfaces/0";

#[rstest]
#[case::internal(json!({"disableExternalIP": true}), &[("accessConfigs", Value::Null)])]
#[case::network(json!({"network": "vpc"}), &[("network", json!("projects/my-project/global/networks/vpc"))])]
#[case::network_of_a_shared_vpc(
    json!({"network": "projects/host/global/networks/vpc"}),
    &[("network", json!("projects/host/global/networks/vpc"))]
)]
#[case::subnetwork_of_a_shared_vpc(
    json!({"subnetwork": "projects/host/regions/europe-west1/subnetworks/nodes"}),
    &[("subnetwork", json!("projects/host/regions/europe-west1/subnetworks/nodes"))]
)]
#[case::ipv4(json!({"stackType": "IPV4_ONLY", "ipv6accessType": "EXTERNAL", "ipCidrRange": "/24", "subnetworkRangeName": "pods"}), &[])]
#[case::dual(json!({"stackType": "IPV4_IPV6", "ipv6accessType": "EXTERNAL", "ipCidrRange": "/24", "subnetworkRangeName": "pods"}), &[("stackType", json!("IPV4_IPV6")), ("ipv6AccessType", json!("EXTERNAL")), ("aliasIpRanges", json!([{"ipCidrRange": "/24", "subnetworkRangeName": "pods"}]))])]
#[case::alias(json!({"useAliasIPs": true, "ipCidrRange": "/24"}), &[("aliasIpRanges", json!([{"ipCidrRange": "/24"}]))])]
#[case::alias_and_stack(json!({"useAliasIPs": true, "stackType": "IPV4_ONLY"}), &[("stackType", json!("IPV4_ONLY")), ("aliasIpRanges", json!([{}]))])]
#[case::nothing(json!({"stackType": "", "ipv6accessType": "", "ipCidrRange": "", "subnetworkRangeName": ""}), &[])]
#[tokio::test]
async fn each_field_of_a_network_interface_is_sent(#[case] changes: Value, #[case] expected: &[(&str, Value)]) {
    let mut interface = json!({"subnetwork": "nodes"});
    interface.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let pointers: Vec<String> = expected.iter().map(|(name, _)| format!("{NIC}/{name}")).collect();
    let expected: Vec<(&str, Value)> =
        pointers.iter().zip(expected).map(|(pointer, (_, value))| (pointer.as_str(), value.clone())).collect();
    assert_eq!(sent(&json!({ "networkInterfaces": [interface] })).await, plain_with(&expected));
}

/// The metadata of a VM with user data, of a native Machine or of the provider for Cluster API.
pub(super) async fn metadata(data: &[u8], is_of_cluster_api: bool) -> Value {
    let world = World::new().await;
    let mut request = world.request("m");
    request.secret.0.insert("userData".to_owned(), data.to_vec());
    if is_of_cluster_api {
        let annotation = ("machine.mcm/user-data-secret".to_owned(), "boot".to_owned());
        Arc::make_mut(&mut request.machine).metadata.annotations = Some([annotation].into());
    }
    world.driver.create(&request).await.unwrap();
    world.gce.lock().bodies("instances.insert").remove(0)["metadata"]["items"].take()
}

#[rstest]
#[case("#cloud-config\nx: 1", "user-data")]
#[case::script("#!/bin/sh", "startup-script")]
#[case(" #cloud-config", "startup-script")]
#[case::kubeadm("## template: jinja\n#cloud-config\n", "user-data")]
#[tokio::test]
async fn user_data_is_for_cloud_init_or_a_script(#[case] data: &str, #[case] key: &str) {
    assert_eq!(metadata(data.as_bytes(), false).await, json!([{"key": key, "value": data}]));
    assert_eq!(metadata(data.as_bytes(), true).await, json!([{"key": "user-data", "value": data}]));
}

#[tokio::test]
async fn compressed_user_data_come_with_their_encoding() {
    let expected = json!([{"key": "user-data", "value": "H4sI"}, {"key": "user-data-encoding", "value": "base64"}]);
    assert_eq!(metadata(&[0x1f, 0x8b, 8], false).await, expected);
}

#[tokio::test]
async fn empty_user_data_are_left_out() {
    assert_eq!(metadata(b"", false).await, Value::Null);
}

fn query(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The mask in a header.
const SELECTED: &str = "kind,nextPageToken,warning.code,items.name,items.status,items.labels,items.tags.items,\
                        items.networkInterfaces.networkIP,items.networkInterfaces.ipv6Address,\
                        items.networkInterfaces.accessConfigs.natIP,\
                        items.networkInterfaces.ipv6AccessConfigs.externalIpv6";

#[tokio::test]
async fn creation_looks_inserts_waits_and_looks() {
    let world = World::new().await;
    world.driver.create(&world.request("a")).await.unwrap();
    let gce = world.gce.lock();
    let calls: Vec<&str> = gce.sent.iter().map(|sent| sent.call).collect();
    let expected =
        ["token", "instances.list", "instances.insert", "zoneOperations.list", "zoneOperations.list", "instances.list"];
    assert_eq!(calls, expected);
    let look_up = query(&[("fields", SELECTED), ("filter", r#"(name = "a")"#), ("maxResults", "500")]);
    assert_eq!(gce.queries("instances.list"), [look_up.clone(), look_up]);
    // The fifth version of a UUID, from the UID of the machine.
    let id = "59236a6c-a297-55d5-8007-bb64a2c0bcc8";
    assert_eq!(gce.queries("instances.insert"), [query(&[("requestId", id)])]);
    let paths: Vec<&str> = gce.sent.iter().skip(1).map(|sent| sent.path.as_str()).collect();
    let instances = format!("zones/{ZONE}/instances");
    let operations = format!("zones/{ZONE}/operations");
    assert_eq!(paths, [&instances, &instances, &operations, &operations, &instances]);
    let look = query(&[
        (
            "fields",
            "kind,nextPageToken,warning.code,items.name,items.status,items.clientOperationId,items.httpErrorStatusCode,\
             items.error.errors.code,items.error.errors.message,items.error.errors.errorDetails.quotaInfo",
        ),
        ("filter", r#"(name = "operation-1")"#),
        ("maxResults", "500"),
    ]);
    assert_eq!(gce.queries("zoneOperations.list"), [look.clone(), look]);
}

#[tokio::test]
async fn deletion_looks_deletes_and_waits() {
    let world = World::new().await;
    world.put("a", "RUNNING");
    world.driver.delete(&world.request("a")).await.unwrap();
    let gce = world.gce.lock();
    let calls: Vec<&str> = gce.sent.iter().map(|sent| sent.call).collect();
    assert_eq!(calls, ["token", "instances.list", "instances.delete", "zoneOperations.list", "zoneOperations.list"]);
    let sent = gce.of_call("instances.delete").next().unwrap();
    assert_eq!(
        (sent.path.clone(), &sent.query, &sent.body),
        (format!("zones/{ZONE}/instances/a"), &query(&[]), &Value::Null)
    );
}

#[tokio::test]
async fn a_list_asks_for_all_vms_of_the_zone_without_their_metadata() {
    let world = World::new().await;
    world.driver.list(&world.request("a").class, &world.secret()).await.unwrap();
    let expected = query(&[("fields", SELECTED), ("maxResults", "500")]);
    assert_eq!(world.gce.lock().queries("instances.list"), [expected]);
}
