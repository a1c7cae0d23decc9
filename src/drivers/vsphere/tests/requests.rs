//! The calls of a creation, and the VM that a class leads to.

use mcm_driver::{Code, interface::Driver, testing::server::Fault};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    CLUSTER, ID_FIELD, OWNER, OWNER_FIELD, ROLE, UID, World, code, spec_with, vcenter::Vm, vcenter::fault, with_id,
};

async fn made(changes: &Value) -> (World, Vm) {
    let world = World::new().await;
    let request = world.request_for("a", "uid-a", spec_with(changes));
    world.driver.create(&request).await.unwrap();
    let vm = world.vm("a");
    (world, vm)
}

#[tokio::test]
async fn a_plain_class_makes_these_calls_and_no_others() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let define_and_set = ["AddCustomFieldDef"; 5].into_iter().chain(["SetField"; 5]);
    let expected: Vec<&str> = [
        "RetrieveServiceContent",
        "Login",
        // The search for the VM.
        "FindByInventoryPath",
        "FindChild",
        // Folder, template, network, pool and datastore.
        "FindByInventoryPath",
        "FindByInventoryPath",
        "FindByInventoryPath",
        "RetrievePropertiesEx",
        "FindByInventoryPath",
        "FindByInventoryPath",
        "template",
        "CloneVM_Task",
        // The clone.
        "FindByInventoryPath",
        "FindChild",
        "look",
        "markers",
        "RetrievePropertiesEx",
        "ReconfigVM_Task",
        "UpgradeVM_Task",
        // The custom fields.
        "RetrievePropertiesEx",
    ]
    .into_iter()
    .chain(define_and_set)
    .chain(["PowerOnVM_Task", "AddCustomFieldDef", "SetField"])
    .collect();
    let calls = world.take_calls();
    let sorted = |mut calls: Vec<String>| {
        calls.sort();
        calls
    };
    // The first creation of a class defines its custom fields. The property collector reads them again for the last one.
    let expected = expected.into_iter().map(str::to_owned).chain(["RetrievePropertiesEx".to_owned()]).collect();
    assert_eq!(sorted(calls), sorted(expected));
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    assert_eq!(world.take_calls(), ["FindAllByUuid", "look"]);
    world.driver.list(&known.class, &known.secret).await.unwrap();
    assert_eq!(world.take_calls(), ["FindByInventoryPath", "look"]);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.take_calls(), ["FindAllByUuid", "look", "PowerOffVM_Task", "disks", "Destroy_Task"]);
}

#[tokio::test]
async fn a_plain_class_changes_this_and_nothing_else() {
    let (_, vm) = made(&json!({})).await;
    assert_eq!((vm.folder.as_str(), vm.pool.as_str(), vm.datastore.as_str()), ("workers", "Resources", "LocalDS_0"));
    // As the template.
    assert_eq!((vm.cpus, vm.memory, vm.disk, vm.guest_id.as_str(), vm.is_reserved), (1, 32, 10, "otherGuest", false));
    assert_eq!((vm.has_disk_uuid, vm.version.as_str()), (true, "vmx-15"));
    let id = format!("vsphere://eu/{}", vm.uuid);
    let fields = [CLUSTER, ROLE, ("pool", "workers"), (UID, "uid-a"), (OWNER_FIELD, OWNER), (ID_FIELD, &id)];
    assert_eq!(vm.fields, fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let extra: Vec<_> = vm.extra.iter().filter(|(key, _)| key.starts_with("mcm.")).map(|(_, value)| value).collect();
    assert_eq!(extra, ["shoot", "a", "uid-a", OWNER, "node"]);
    assert_eq!((vm.properties["hostname"].as_str(), vm.properties["password"].as_str()), ("a", " "));
    assert!(vm.nic.ends_with("VirtualE1000"), "the type of the template's card stays: {}", vm.nic);
}

#[tokio::test]
async fn each_field_of_a_class_reaches_the_vm() {
    let (_, vm) = made(&json!({
        "numCpus": 4, "memory": 2048, "memoryReservationLockedToMax": true, "systemDisk": {"size": 20},
        "extraConfig": {"sched.swap.vmxSwapEnabled": "false", "a": "<&>\"\n"}, "guestId": "ubuntu64Guest",
        "vapp": {"properties": {"hostname": "h", "user-data": "u"}},
        "tags": {CLUSTER.0: CLUSTER.1, ROLE.0: ROLE.1, "kubernetes.io/cluster/shoot": "1", "machine.sapcloud.io/owner": "forged"},
    }))
    .await;
    assert_eq!((vm.cpus, vm.memory, vm.is_reserved, vm.disk), (4, 2048, true, 20));
    assert_eq!((vm.extra["sched.swap.vmxSwapEnabled"].as_str(), vm.extra["a"].as_str()), ("false", "<&>\"\n"));
    assert_eq!(vm.guest_id, "ubuntu64Guest");
    let properties = ["hostname", "user-data", "password", "instance-id", "fixed"].map(|id| vm.properties[id].as_str());
    assert_eq!(properties, ["h", "u", " ", "id-ovf", ""]);
    assert_eq!((vm.fields["kubernetes.io/cluster/shoot"].as_str(), vm.fields[OWNER_FIELD].as_str()), ("1", OWNER));
}

#[rstest]
#[case::pool_and_datastore(json!({"datastore": "LocalDS_1"}), "Resources", Some("LocalDS_1"), None)]
#[case::pool_below_another(json!({"resourcePool": "DC0_C0_RP1"}), "DC0_C0_RP1", Some("LocalDS_0"), None)]
#[case::host(json!({"hostSystem": "DC0_H0", "resourcePool": null}), "Resources", Some("LocalDS_0"), Some("DC0_H0"))]
#[case::host_of_a_cluster(json!({"hostSystem": "DC0_C0/DC0_C0_H1", "resourcePool": null}), "Resources", Some("LocalDS_0"), Some("DC0_C0_H1"))]
#[case::storage_pod(json!({"datastoreCluster": "DC0_POD0", "datastore": null}), "Resources", Some("LocalDS_1"), None)]
#[case::cluster(json!({"computeCluster": "DC0_C0", "resourcePool": null}), "Resources", None, None)]
#[case::cluster_and_storage_pod(json!({"computeCluster": "DC0_C0", "resourcePool": null, "datastoreCluster": "DC0_POD0"}), "Resources", Some("LocalDS_1"), None)]
#[tokio::test]
async fn a_vm_is_put_where_the_class_says(
    #[case] changes: Value,
    #[case] pool: &str,
    #[case] datastore: Option<&str>,
    #[case] host: Option<&str>,
) {
    let (world, vm) = made(&changes).await;
    assert_eq!(vm.pool, pool);
    assert!(datastore.is_none_or(|datastore| vm.datastore == datastore), "{}", vm.datastore);
    assert!(host.is_none_or(|host| vm.host == host), "{}", vm.host);
    let has = |field: &str| usize::from(changes[field].is_string());
    let is_placed = has("computeCluster") * usize::from(!changes["datastoreCluster"].is_string());
    assert_eq!((world.calls("PlaceVm"), world.calls("RecommendDatastores")), (is_placed, has("datastoreCluster")));
}

#[rstest]
#[case::distributed("DC0_DVPG0", true)]
#[case::plain("VM Network", false)]
#[tokio::test]
async fn the_network_card_is_connected_to_the_network(#[case] network: &str, #[case] is_distributed: bool) {
    let (_, vm) = made(&json!({"network": network})).await;
    assert_eq!(vm.network.contains("/dvportgroup-"), is_distributed, "{}", vm.network);
    assert!(is_distributed || vm.network == network, "{}", vm.network);
}

#[tokio::test]
async fn a_network_is_chosen_by_its_switch() {
    let (_, vm) = made(&json!({})).await;
    let switch = vm.network.split('/').next().unwrap().to_owned();
    let (_, same) = made(&json!({"switchUuid": switch})).await;
    assert!(same.network.starts_with(&switch), "{}", same.network);
}

#[rstest]
#[case::cluster(json!({"computeCluster": "DC0_C0", "resourcePool": null}), "PlaceVm")]
#[case::storage_pod(json!({"datastoreCluster": "DC0_POD0"}), "RecommendDatastores")]
#[tokio::test]
async fn no_recommendation_lets_the_autoscaler_use_another_pool(#[case] changes: Value, #[case] call: &'static str) {
    let world = World::new().await;
    let request = world.request_for("a", "uid-a", spec_with(&changes));
    let empty = format!(
        r#"<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><{call}Response xmlns="urn:vim25"><returnval/></{call}Response></e:Body></e:Envelope>"#
    );
    let nothing = mcm_driver::testing::server::Reply { status: 200, body: empty };
    world.fail(call, Fault::Error(nothing), 1);
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state.as_deref()), (Code::ResourceExhausted, None), "{error}");
    world.fail(call, Fault::Error(fault("InsufficientResourcesFault", "no memory")), 1);
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.calls("CloneVM_Task"), 0);
    world.driver.create(&request).await.unwrap();
}

#[tokio::test]
async fn a_template_without_a_vapp_configuration_gets_its_user_data_as_guest_information() {
    let (_, vm) = made(&json!({"templateVM": "template-plain"})).await;
    assert!(vm.extra.contains_key("guestinfo.userdata") && vm.extra["guestinfo.userdata.encoding"] == "base64");
    assert_eq!(vm.properties.len(), 0);
}

/// The reference finds this out after the clone, which it leaves behind.
#[rstest]
#[case::property(json!({"vapp": {"properties": {"none": "x"}}}), "no vApp property none")]
#[case::no_properties(json!({"templateVM": "template-plain", "vapp": {"properties": {"hostname": "x"}}}), "no vApp configuration")]
#[case::disk(json!({"systemDisk": {"size": 9}}), "cannot be made smaller")]
#[case::template(json!({"templateVM": "none"}), "there is no templateVM none")]
#[case::customization(json!({"customization": "none"}), "there is no customization none")]
#[tokio::test]
async fn a_class_that_does_not_fit_its_template_clones_nothing(#[case] changes: Value, #[case] expected: &str) {
    let world = World::new().await;
    let error = world.driver.create(&world.request_for("a", "uid-a", spec_with(&changes))).await.unwrap_err();
    assert!(error.code == Code::InvalidArgument && error.message.contains(expected), "{error}");
    assert_eq!((world.calls("CloneVM_Task"), world.count()), (0, 0));
}

#[tokio::test]
async fn a_customization_is_sent_with_the_clone() {
    let world = World::new().await;
    let request = world.request_for("a", "uid-a", spec_with(&json!({"customization": "vcsim-linux"})));
    world.driver.create(&request).await.unwrap();
    let settings = world.vcenter.settings.lock();
    let (_, clone) = settings.log.iter().find(|(call, _)| call == "CloneVM_Task").unwrap();
    assert!(clone.contains("<customization><options xsi:type=\"CustomizationLinuxOptions\""), "{clone}");
}
