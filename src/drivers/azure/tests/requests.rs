//! Recorded requests.

use mcm_driver::Driver;
use serde_json::{Value, json};

use super::{CLUSTER, OWNER, OWNER_TAG, ROLE, UID_TAG, World, fake::URN, spec, spec_with, with_id};

const GROUP_ID: &str = "/subscriptions/22222222-0000-4000-8000-000000000002/resourceGroups/shoot--a--b/providers";

/// Method, path with query, and body of all requests so far but those of the login.
fn recorded(world: &World) -> Vec<Value> {
    let mut arm = world.arm.lock();
    let log = std::mem::take(&mut arm.log);
    let shown = |(_, request): (_, super::server::Request)| {
        let body = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        json!([request.method, format!("{}?{}", request.path, request.query), body])
    };
    log.into_iter().filter(|(call, _)| *call != "token").map(shown).collect()
}

fn tags() -> Value {
    json!({CLUSTER: "1", ROLE: "1", "pool": "workers", UID_TAG: "uid-a", OWNER_TAG: OWNER})
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let subnet = format!("{GROUP_ID}/Microsoft.Network/virtualNetworks/vnet/subnets/nodes");
    let vm = format!("{GROUP_ID}/Microsoft.Compute/virtualMachines/a?api-version=2023-07-01");
    let look = json!(["GET", format!("{vm}&%24expand=instanceView"), null]);
    let nic = format!("{GROUP_ID}/Microsoft.Network/networkInterfaces/a-nic?api-version=2023-05-01");
    let nic_body = json!({
        "location": "westeurope", "tags": tags(),
        "properties": {"enableIPForwarding": true, "nicType": "Standard", "ipConfigurations": [{
            "name": "a-nic", "properties": {"privateIPAllocationMethod": "Dynamic", "subnet": {"id": subnet}},
        }]},
    });
    let vm_body = json!({
        "location": "westeurope", "tags": tags(), "zones": ["1"],
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
            "networkProfile": {"networkInterfaces": [{
                "id": format!("{GROUP_ID}/Microsoft.Network/networkInterfaces/a-nic"),
                "properties": {"primary": true, "deleteOption": "Delete"},
            }]},
            "osProfile": {
                "adminUsername": "core", "computerName": "a", "customData": "IyEvYmluL3NoCmh1bnRlcjItaHVudGVyMgo=",
                "linuxConfiguration": {"disablePasswordAuthentication": true, "ssh": {"publicKeys": [
                    {"path": "/home/core/.ssh/authorized_keys", "keyData": "ssh-rsa AAAA"},
                ]}},
            },
            "storageProfile": {
                "imageReference": {"id": spec()["properties"]["storageProfile"]["imageReference"]["id"]},
                "osDisk": {
                    "name": "a-os-disk", "caching": "None", "createOption": "FromImage", "diskSizeGB": 50, "deleteOption": "Delete",
                    "managedDisk": {"storageAccountType": "Premium_LRS"},
                },
                "dataDisks": [],
            },
        },
    });
    let operation = "/subscriptions/22222222-0000-4000-8000-000000000002/providers/Microsoft.Compute/locations/westeurope/operations";
    let report = |number: usize| json!(["GET", format!("{operation}/{number}?p=a%2Bb&api-version=2023-07-01"), null]);
    let expected = [
        look.clone(),
        json!(["GET", nic, null]),
        json!(["GET", format!("{subnet}?api-version=2023-05-01"), null]),
        json!(["PUT", nic, nic_body]),
        json!(["PUT", vm, vm_body]),
        report(3),
    ];
    assert_eq!(recorded(&world), expected);
    let known = with_id(request, "azure:///westeurope/a");
    world.driver.status(&known).await.unwrap();
    world.driver.delete(&known).await.unwrap();
    assert_eq!(recorded(&world), [look.clone(), look, json!(["DELETE", vm, null]), report(4)]);
    world.driver.list(&known.class, &known.secret).await.unwrap();
    let sent = recorded(&world);
    assert_eq!(sent[0][1], "/providers/Microsoft.ResourceGraph/resources?api-version=2021-06-01-preview");
    assert_eq!(sent[0][2]["subscriptions"], json!(["22222222-0000-4000-8000-000000000002"]));
    assert!(sent[0][2].get("options").is_none());
}

/// The body of the last request of a call.
fn body_of(world: &World, call: &str) -> Value {
    serde_json::from_str(&world.arm.lock().sent(call).last().unwrap().body).unwrap()
}

#[tokio::test]
async fn each_field_of_a_class_is_sent() {
    let world = World::new().await;
    let properties = json!({
        "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
        "osProfile": {"adminUsername": "core", "adminPassword": "ignored", "computerName": "ignored", "customData": "ignored"},
        "networkProfile": {"acceleratedNetworking": true, "networkInterfaces": {"id": "ignored"}},
        "storageProfile": {
            "imageReference": {"communityGalleryImageID": "/CommunityGalleries/g/Images/i/Versions/1"},
            "diskControllerType": "NVMe",
            "osDisk": {
                "name": "ignored", "diskSizeGB": 60, "createOption": "FromImage",
                "managedDisk": {"id": "ignored", "securityProfile": {"securityEncryptionType": "VMGuestStateOnly"}},
            },
            "dataDisks": [
                {"name": "logs", "lun": 1, "caching": "ReadOnly", "diskSizeGB": 10, "storageAccountType": "StandardSSD_LRS"},
                {"lun": 2, "diskSizeGB": 20, "storageAccountType": "Premium_LRS", "imageRef": {"urn": URN}},
                {"lun": 3, "diskSizeGB": 20, "storageAccountType": "Premium_LRS", "imageRef": {"sharedGalleryImageID": "/s"}},
                {"lun": 4, "diskSizeGB": 20, "storageAccountType": "Premium_LRS", "imageRef": {"communityGalleryImageID": "/c"}},
            ],
        },
        "virtualMachineScaleSet": {"id": "/vmo"},
        "identityID": "/identity",
        "diagnosticsProfile": {"enabled": true, "storageURI": "https://logs"},
        "securityProfile": {"securityType": "ConfidentialVM", "uefiSettings": {"vtpmEnabled": true, "secureBootEnabled": false}},
        "capacityReservation": {
            "capacityReservationGroupID": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c",
        },
    });
    let tags = json!({CLUSTER: "1", ROLE: "1", "machine.sapcloud.io-machine-uid": "forged", "a": "b"});
    let spec = spec_with(&[("properties", properties), ("tags", tags)]);
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    let vm = body_of(&world, "vm.put");
    let sent = &vm["properties"];
    assert_eq!(vm["tags"], json!({CLUSTER: "1", ROLE: "1", "a": "b", UID_TAG: "uid-a", OWNER_TAG: OWNER}));
    assert_eq!(vm["identity"], json!({"type": "UserAssigned", "userAssignedIdentities": {"/identity": {}}}));
    assert!(vm.get("zones").is_none() && vm.get("plan").is_none());
    assert_eq!(sent["virtualMachineScaleSet"], json!({"id": "/vmo"}));
    assert!(sent.get("availabilitySet").is_none());
    assert_eq!(sent["diagnosticsProfile"], json!({"bootDiagnostics": {"enabled": true, "storageUri": "https://logs"}}));
    let security =
        json!({"securityType": "ConfidentialVM", "uefiSettings": {"vTpmEnabled": true, "secureBootEnabled": false}});
    assert_eq!(sent["securityProfile"], security);
    let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/c";
    assert_eq!(sent["capacityReservation"], json!({"capacityReservationGroup": {"id": group}}));
    let storage = &sent["storageProfile"];
    assert_eq!(
        storage["imageReference"],
        json!({"communityGalleryImageId": "/CommunityGalleries/g/Images/i/Versions/1"})
    );
    assert_eq!(storage["diskControllerType"], "NVMe");
    let os_disk = json!({
        "name": "a-os-disk", "createOption": "FromImage", "diskSizeGB": 60, "deleteOption": "Delete",
        "managedDisk": {"securityProfile": {"securityEncryptionType": "VMGuestStateOnly"}},
    });
    assert_eq!(storage["osDisk"], os_disk);
    let disks = storage["dataDisks"].as_array().unwrap();
    let empty = json!({
        "name": "a-logs-1-data-disk", "lun": 1, "caching": "ReadOnly", "diskSizeGB": 10, "createOption": "Empty",
        "deleteOption": "Delete", "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
    });
    let attached = json!({
        "name": "a-2-data-disk", "lun": 2, "caching": "None", "diskSizeGB": 20, "createOption": "Attach", "deleteOption": "Delete",
        "managedDisk": {"storageAccountType": "Premium_LRS", "id": format!("{GROUP_ID}/Microsoft.Compute/disks/a-2-data-disk")},
    });
    assert_eq!((&disks[0], &disks[1]), (&empty, &attached));
    assert_eq!(body_of(&world, "nic.put")["properties"]["enableAcceleratedNetworking"], true);
    world.assert_valid_requests();
}

#[tokio::test]
async fn disks_with_an_image_are_created_before_the_vm() {
    let world = World::new().await;
    let disk = |lun: i32, image: Value| json!({"lun": lun, "diskSizeGB": 20, "storageAccountType": "Premium_LRS", "imageRef": image});
    let disks = [
        disk(0, json!({"id": "/i"})),
        disk(1, json!({"urn": URN})),
        disk(2, json!({"sharedGalleryImageID": "/s"})),
        disk(3, json!({"communityGalleryImageID": "/c"})),
    ];
    let spec = spec_with(&[("properties.storageProfile.dataDisks", json!(disks))]);
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    let sent: Vec<Value> =
        world.arm.lock().sent("disk.put").iter().map(|request| serde_json::from_str(&request.body).unwrap()).collect();
    let first = json!({
        "location": "westeurope", "tags": tags(), "zones": ["1"], "sku": {"name": "Premium_LRS"},
        "properties": {"diskSizeGB": 20, "osType": "Linux", "creationData": {"createOption": "FromImage", "imageReference": {"id": "/i"}}},
    });
    assert_eq!(sent[0], first);
    let of_marketplace = sent[1]["properties"]["creationData"]["imageReference"]["id"].as_str().unwrap();
    assert!(
        of_marketplace.ends_with("/Skus/greatest/Versions/1443.3.0")
            || of_marketplace.ends_with("/skus/greatest/versions/1443.3.0")
    );
    let creation = |number: usize| sent[number]["properties"]["creationData"]["galleryImageReference"].clone();
    assert_eq!(
        (creation(2), creation(3)),
        (json!({"sharedGalleryImageId": "/s"}), json!({"communityGalleryImageId": "/c"}))
    );
    assert_eq!(world.calls("terms.get"), 0, "only the image of the VM has terms");
    assert_eq!(world.counts(), (1, 1, 5));
    world.driver.delete(&world.request("a")).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0), "they go with the VM");
    world.assert_valid_requests();
}

#[tokio::test]
async fn without_a_key_each_vm_gets_a_throw_away_one() {
    let world = World::new().await;
    let mut keys = Vec::new();
    for name in ["a", "b"] {
        let key = ("properties.osProfile.linuxConfiguration.ssh.publicKeys.keyData", json!(""));
        world.driver.create(&world.request_for(name, &format!("uid-{name}"), spec_with(&[key]))).await.unwrap();
        let sent = body_of(&world, "vm.put");
        let key = sent["properties"]["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"][0]["keyData"].clone();
        assert!(key.as_str().unwrap().starts_with("ssh-ed25519 AAAA"), "{key}");
        keys.push(key);
    }
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn a_network_in_another_resource_group_is_found_there() {
    let world = World::new().await;
    let spec = spec_with(&[("subnetInfo.vnetResourceGroup", json!("shared/net works"))]);
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap_err();
    let path = world.arm.lock().sent("subnet.get")[0].path.clone();
    assert!(path.contains("/resourceGroups/shared%2Fnet%20works/providers/"), "{path}");
}
