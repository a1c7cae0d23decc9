//! Recorded requests.

use serde_json::{Value, json};

use super::{CLUSTER, OWNER, ROLE, TOKEN, World, kubeconfig_of, secret, spec_with, with_id};
use mcm_driver::{MachineRequest, SecretData, interface::Driver};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/vms/virtualmachines";
const SECRETS: &str = "/api/v1/namespaces/vms/secrets";

/// Method, path and body of all requests so far.
fn recorded(world: &World) -> Vec<Value> {
    let mut kubernetes = world.kubernetes.lock();
    let log = std::mem::take(&mut kubernetes.log);
    let shown = |(_, request): (_, super::server::Request)| {
        let body = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        json!([request.method, request.path, body])
    };
    log.into_iter().map(shown).collect()
}

/// The VM that was created.
fn created(world: &World) -> Value {
    recorded(world).into_iter().find(|sent| sent[0] == "POST" && sent[1] == VMS).unwrap()[2].take()
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let own = json!({"machine.sapcloud.io/machine-uid": "uid-a", "machine.sapcloud.io/owner": OWNER});
    let mut of_secret = json!({CLUSTER: "shoot", ROLE: "node"});
    let mut of_vm = json!({CLUSTER: "shoot", ROLE: "node", "pool": "workers", "kubevirt.io/vm": "a"});
    for (key, value) in own.as_object().unwrap() {
        (of_secret[key], of_vm[key]) = (value.clone(), value.clone());
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "userdata-a-uid-a", "labels": of_secret},
        "data": {"userdata": "IyEvYmluL3NoCmh1bnRlcjItaHVudGVyMgo="},
    });
    let place = |key: &str, name: &str| json!({"key": key, "operator": "In", "values": [name]});
    let terms = json!([{"matchExpressions": [
        place("topology.kubernetes.io/region", "region-1"), place("topology.kubernetes.io/zone", "zone-1"),
    ]}]);
    let order = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a", "labels": of_vm},
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{"metadata": {"name": "a"}, "spec": {
                "pvc": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}},
                "source": {"http": {"url": "https://images.example.com/a.img"}},
            }}],
            "template": {
                "metadata": {"labels": {"kubevirt.io/vm": "a"}},
                "spec": {
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
                    "terminationGracePeriodSeconds": 30,
                    "domain": {
                        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
                        "devices": {
                            "blockMultiQueue": false, "networkInterfaceMultiqueue": false,
                            "disks": [
                                {"name": "root-disk", "disk": {"bus": "virtio"}},
                                {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
                            ],
                        },
                    },
                    "volumes": [
                        {"name": "root-disk", "dataVolume": {"name": "a"}},
                        {"name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": "userdata-a-uid-a"}}},
                    ],
                },
            },
        },
    });
    let (by_name, uid) =
        (json!(["GET", format!("{VMS}/a"), null]), world.kubernetes.lock().cloud.vms["a"]["metadata"]["uid"].clone());
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "a", "uid": uid, "controller": true,
        "blockOwnerDeletion": true,
    });
    let expected = [
        by_name.clone(),
        json!(["POST", SECRETS, secret]),
        json!(["POST", VMS, order]),
        json!(["PATCH", format!("{SECRETS}/userdata-a-uid-a"), {"metadata": {"ownerReferences": [owner]}}]),
        by_name.clone(),
    ];
    assert_eq!(recorded(&world), expected);
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    world.driver.delete(&known).await.unwrap();
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, "propagationPolicy": "Background",
    });
    let expected = [
        by_name.clone(),
        by_name.clone(),
        json!(["DELETE", format!("{VMS}/a"), options]),
        by_name,
        json!(["GET", format!("{SECRETS}/userdata-a-uid-a"), null]),
    ];
    assert_eq!(recorded(&world), expected);
    world.driver.list(&known.class, &known.secret).await.unwrap();
    let list = world.kubernetes.lock().sent("vm.list")[0].clone();
    assert_eq!(
        (list.path.as_str(), list.query.as_str()),
        (VMS, "labelSelector=mcm.gardener.cloud%2Fcluster%3Dshoot&limit=250")
    );
}

#[tokio::test]
async fn each_field_of_a_class_is_sent() {
    let world = World::new().await;
    let claim = json!({"pvc": {"resources": {"requests": {"storage": "1Gi"}}}, "source": {"blank": {}}, "contentType": "kubevirt"});
    let spec = spec_with(&json!({
        "region": "default", "zone": "z",
        "resources": {"requests": {"cpu": 0.5, "memory": 1024}, "limits": {"cpu": "2"}, "overcommitGuestOverhead": true},
        "devices": {
            "disks": [
                {"name": "b", "disk": {"bus": "scsi"}, "serial": "s"},
                {"name": "root-disk", "disk": {"bus": "sata"}, "cache": "none"},
            ],
            "rng": {}, "blockMultiQueue": true, "networkInterfaceMultiqueue": true,
        },
        "rootVolume": claim,
        "additionalVolumes": [
            {"name": "a", "dataVolume": claim},
            {"name": "b", "volumeSource": {"persistentVolumeClaim": {"claimName": "data", "readOnly": true}}},
            {"name": "c", "volumeSource": {"configMap": {"name": "settings"}}},
            {"name": "d", "volumeSource": {"secret": {"secretName": "key"}}},
        ],
        "networks": [{"name": "net"}, {"name": "other/net", "default": true}],
        "cpu": {"cores": 2, "sockets": 1, "threads": 1}, "memory": {"hugepages": {"pageSize": "2Mi"}},
        "dnsPolicy": "None", "dnsConfig": {"nameservers": ["8.8.8.8"]},
        "tags": {CLUSTER: "shoot", ROLE: "node", "kubevirt.io/vm": "forged", "machine.sapcloud.io/machine-uid": "forged"},
    }));
    world.driver.create(&world.request_for("m", "uid-m", spec)).await.unwrap();
    let sent = created(&world);
    let expected = json!({CLUSTER: "shoot", ROLE: "node", "kubevirt.io/vm": "m", "machine.sapcloud.io/machine-uid": "uid-m", "machine.sapcloud.io/owner": OWNER});
    assert_eq!(sent["metadata"]["labels"], expected);
    let template = |name: &str| json!({"metadata": {"name": name}, "spec": claim});
    assert_eq!(sent["spec"]["dataVolumeTemplates"], json!([template("m"), template("m-0")]));
    let instance = &sent["spec"]["template"]["spec"];
    let disks = json!([
        {"name": "root-disk", "disk": {"bus": "sata"}, "cache": "none"},
        {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
        {"name": "disk0", "disk": {"bus": "virtio"}},
        {"name": "disk1", "disk": {"bus": "scsi"}, "serial": "s"},
        {"name": "disk2", "disk": {"bus": "virtio"}},
        {"name": "disk3", "disk": {"bus": "virtio"}},
    ]);
    let interfaces = json!([{"name": "net0", "bridge": {}}, {"name": "net1", "bridge": {}}]);
    let domain = json!({
        "resources": {"requests": {"cpu": "0.5", "memory": "1024"}, "limits": {"cpu": "2"}, "overcommitGuestOverhead": true},
        "cpu": {"cores": 2, "sockets": 1, "threads": 1}, "memory": {"hugepages": {"pageSize": "2Mi"}},
        "devices": {"disks": disks, "interfaces": interfaces, "rng": {}, "blockMultiQueue": true, "networkInterfaceMultiqueue": true},
    });
    assert_eq!(instance["domain"], domain);
    let data = "version: 2\nethernets:\n  id0:\n    match:\n      name: \"e*\"\n    dhcp4: true\n";
    let volumes = json!([
        {"name": "root-disk", "dataVolume": {"name": "m"}},
        {"name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": "userdata-m-uid-m"}, "networkData": data}},
        {"name": "disk0", "dataVolume": {"name": "m-0"}},
        {"name": "disk1", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
        {"name": "disk2", "configMap": {"name": "settings"}},
        {"name": "disk3", "secret": {"secretName": "key"}},
    ]);
    assert_eq!(instance["volumes"], volumes);
    let networks = json!([
        {"name": "net0", "multus": {"networkName": "net", "default": false}},
        {"name": "net1", "multus": {"networkName": "other/net", "default": true}},
    ]);
    assert_eq!((&instance["networks"], &instance["dnsPolicy"]), (&networks, &json!("None")));
    assert_eq!(instance["dnsConfig"], json!({"nameservers": ["8.8.8.8"]}));
    let terms = &instance["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let expressions = json!([
        {"key": "topology.kubernetes.io/region", "operator": "DoesNotExist"},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]},
    ]);
    assert_eq!(terms["nodeSelectorTerms"], json!([{"matchExpressions": expressions}]));
    world.assert_valid_requests();
}

#[tokio::test]
async fn the_network_of_pods_comes_first_unless_another_is_the_default() {
    let world = World::new().await;
    world
        .driver
        .create(&world.request_for("a", "u", spec_with(&json!({"networks": [{"name": "net"}]}))))
        .await
        .unwrap();
    let instance = created(&world)["spec"]["template"]["spec"].take();
    let networks =
        json!([{"name": "default", "pod": {}}, {"name": "net0", "multus": {"networkName": "net", "default": false}}]);
    assert_eq!(instance["networks"], networks);
    let interfaces = json!([{"name": "default", "bridge": {}}, {"name": "net0", "bridge": {}}]);
    assert_eq!(instance["domain"]["devices"]["interfaces"], interfaces);
}

#[tokio::test]
async fn keys_of_a_class_are_part_of_the_user_data() {
    let world = World::new().await;
    let mut request = world.request_for("a", "uid-a", spec_with(&json!({"sshKeys": [" ssh-rsa A \n"]})));
    request.secret.0.insert("userData".to_owned(), b"#cloud-config".to_vec());
    world.driver.create(&request).await.unwrap();
    // #cloud-config\nssh_authorized_keys:\n- ssh-rsa A\n
    let expected = "I2Nsb3VkLWNvbmZpZwpzc2hfYXV0aG9yaXplZF9rZXlzOgotIHNzaC1yc2EgQQo=";
    assert_eq!(world.kubernetes.lock().cloud.secrets["userdata-a-uid-a"]["data"]["userdata"], expected);
}

/// The headers of a request with the credentials of a Secret.
async fn headers(world: &World, secret: SecretData) -> std::collections::BTreeMap<String, String> {
    let request = MachineRequest { secret, ..world.request("a") };
    drop(world.driver.list(&request.class, &request.secret).await);
    let mut kubernetes = world.kubernetes.lock();
    std::mem::take(&mut kubernetes.log).remove(0).1.headers
}

#[tokio::test]
async fn requests_carry_the_credentials_of_the_kubeconfig() {
    let world = World::new().await;
    let of = |user: Value| world.secret_with(&user);
    let token = headers(&world, of(json!({"token": TOKEN, "as": "someone", "as-groups": ["a"]}))).await;
    assert_eq!(token["authorization"], format!("Bearer {TOKEN}"));
    assert_eq!((token["impersonate-user"].as_str(), token["impersonate-group"].as_str()), ("someone", "a"));
    let basic = headers(&world, of(json!({"username": "u", "password": "p"}))).await;
    assert_eq!(basic["authorization"], "Basic dTpw");
    let none = headers(&world, of(json!({}))).await;
    assert!(!none.contains_key("authorization"));
}

#[tokio::test]
async fn the_path_of_the_server_and_the_namespace_of_the_context_are_kept() {
    let world = World::new().await;
    let config = kubeconfig_of(&format!("{}/k8s/clusters/c-1", world.url), &json!({}), &json!({"token": TOKEN}));
    let config = config.replace(r#""namespace":"vms""#, r#""namespace":"team""#);
    let request = MachineRequest { secret: secret(&[("kubeconfig", &config)]), ..world.request("a") };
    world.driver.list(&request.class, &request.secret).await.unwrap_err();
    let path = world.kubernetes.lock().log[0].1.path.clone();
    assert_eq!(path, "/k8s/clusters/c-1/apis/kubevirt.io/v1/namespaces/team/virtualmachines");
}
