//! One test for each rule of the contract, by its number in docs/conformance-capi.md.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    super::{Action, McmMachineSession, plan::plan},
    world::World,
};
use crate::{
    object::view::{ObjectView, OwnerView},
    testing::world::{class, condition},
};
use mcm_rules::plan::Step;

/// I11, I12, T4: core applies the object with server-side apply, and then cleans managed fields.
#[test]
fn nothing_is_written_before_core_made_the_machine_an_owner() {
    let mut world = World::with_data();
    world.set_object(&json!({ "metadata": { "creationTimestamp": "2027-01-15T08:00:00Z" } }));
    let untouched = world.object.clone();
    world.set_object(&json!({ "metadata": { "ownerReferences": null } }));
    assert_eq!(world.pass(), ["Cluster API core to set its Machine as an owner"]);
    world.set_cluster(&json!({ "spec": { "paused": true } }));
    world.pass();
    assert_eq!(world.log, [""; 0], "not even the condition Paused");
    world.set_cluster(&json!({ "spec": { "paused": null } }));
    world.now += 10;
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), world.log.len()), ("Unknown WaitingForOwner", 1), "{}", world.story);
    world.object = untouched;
    world.log.clear();
    world.pass();
    assert!(
        world.log[0].contains("mcmmachine.infrastructure.cluster.x-k8s.io"),
        "first of all the finalizer: {:?}",
        world.log
    );
}

/// I9, I10.
#[test]
fn there_is_no_vm_before_the_cluster_is_provisioned_and_the_bootstrap_data_exist() {
    let mut world = World::new();
    world.set_cluster(&json!({ "status": null }));
    world.pass();
    assert_eq!(world.condition("Ready"), "False WaitingForClusterInfrastructureReady");
    world.set_cluster(&json!({ "status": { "initialization": { "infrastructureProvisioned": true } } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "False WaitingForBootstrapData");
    world.set_machine(&json!({ "spec": { "bootstrap": { "dataSecretName": "late" } } }));
    world.pass();
    assert_eq!(world.condition("BootstrapDataAvailable"), "False WaitingForBootstrapData", "it is named and not there");
    assert!(world.native.is_none());
    world.secrets.push("late".to_owned());
    world.pass();
    let native = world.native.as_ref().unwrap();
    assert_eq!(native["metadata"]["annotations"]["machine.mcm/user-data-secret"], "late");
}

/// C15.
#[test]
fn a_cluster_without_infrastructure_is_not_waited_for() {
    let mut world = World::with_data();
    world.set_cluster(&json!({ "spec": { "infrastructureRef": null }, "status": null }));
    world.pass();
    assert!(world.native.is_some());
}

/// P15: Machines of a pool name an empty Secret.
#[test]
fn a_machine_of_a_pool_boots_without_data_of_its_own() {
    let mut world = World::new();
    world.set_machine(&json!({ "spec": { "bootstrap": { "dataSecretName": "" } } }));
    world.pass();
    assert!(world.native.unwrap()["metadata"]["annotations"]["machine.mcm/user-data-secret"].is_null());
}

/// I6: the zone is honoured, or no VM is created.
#[rstest]
#[case::class_is_there("a", None, Some("small"))]
#[case::variant("b", Some(json!({ "small": "small-b" })), Some("small-b"))]
#[case::no_variant("b", None, None)]
#[case::variant_elsewhere("b", Some(json!({ "small": "small" })), None)]
#[case::anywhere("", None, Some("small"))]
fn a_machine_in_a_failure_domain_gets_the_class_of_that_zone_or_no_vm(
    #[case] zone: &str,
    #[case] overrides: Option<Value>,
    #[case] expected: Option<&str>,
) {
    let mut world = World::with_data();
    let mut variant = class("small", "b");
    variant["metadata"]["name"] = json!("small-b");
    world.classes.insert("small-b".to_owned(), variant);
    world.set_machine(&json!({ "spec": { "failureDomain": zone } }));
    world.infrastructure = overrides.map(|overrides| {
        json!({ "metadata": {}, "spec": { "failureDomains": [{ "name": zone, "machineClassOverrides": overrides }] } })
    });
    world.pass();
    let class = world.native.as_ref().map(|native| native["spec"]["class"]["name"].as_str().unwrap().to_owned());
    assert_eq!(class.as_deref(), expected);
    if expected.is_none() {
        assert_eq!(world.condition("Ready"), "False FailureDomainUnavailable");
    }
}

/// I1, trap T1: byte-equal to the Node.
#[rstest]
#[case::simulated("simulated:///r/vm", "a", "simulated:///r/vm")]
#[case::aws("aws:///eu-west-1/i-1", "eu-west-1a", "aws:///eu-west-1a/i-1")]
#[case::gcp("gce:///project/z/vm", "z", "gce://project/z/vm")]
#[case::openstack("openstack:///RegionOne/7f-1", "nova", "openstack:///7f-1")]
#[case::vsphere("vsphere://eu/42-1", "z", "vsphere://42-1")]
#[case::yandex("yandex://ru-central1-a/fhm1", "ru-central1-a", "yandex://fhm1")]
#[case::equinix_metal("equinixmetal://ny/3c-1", "ny", "equinixmetal://3c-1")]
fn the_object_shows_the_id_as_the_node_has_it(#[case] driver: &str, #[case] zone: &str, #[case] node: &str) {
    let mut world = World::with_data();
    world.classes.insert("small".to_owned(), class("small", zone));
    world.pass();
    world.vm(driver);
    world.pass();
    assert_eq!(world.object.as_ref().unwrap()["spec"]["providerID"], node);
    assert_eq!((world.condition("Ready").as_str(), world.status().failure_domain.as_str()), ("True Provisioned", zone));
}

/// I1: only the driver can tell the ID of a Node of Azure.
#[test]
fn the_id_is_the_one_that_the_driver_reports_for_the_node() {
    let mut world = World::with_data();
    world.pass();
    let id = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm";
    world.set_native(&json!({ "metadata": { "annotations": { "machine.mcm/node-provider-id": id } } }));
    world.vm("azure:///westeurope/vm");
    world.pass();
    assert_eq!(world.object.as_ref().unwrap()["spec"]["providerID"], id);
    assert_eq!(world.condition("Ready"), "True Provisioned");
}

/// I15: the native Machine has the ID as the driver lists it, or the orphan collector could not tell whose VM it is.
#[test]
fn an_adopted_vm_has_the_id_of_its_driver() {
    let mut world = World::with_data();
    let mut of_openstack = class("small", "nova");
    of_openstack["providerSpec"] = json!({ "spec": { "region": "RegionOne" } });
    world.classes.insert("small".to_owned(), of_openstack);
    world.set_object(&json!({ "spec": { "providerID": "openstack:///7f-1" } }));
    world.pass();
    assert_eq!(world.native.as_ref().unwrap()["spec"]["providerID"], "openstack:///RegionOne/7f-1");
    world.vm("openstack:///RegionOne/7f-1");
    world.pass();
    assert_eq!(world.object.as_ref().unwrap()["spec"]["providerID"], "openstack:///7f-1");
    assert_eq!(world.condition("Ready"), "True Provisioned");
}

/// I1, I4: the zone reported by the cloud takes precedence over that of the class, which may have another form or none.
#[rstest]
#[case::class_is_wrong("eu-west-1a", "False FailureDomainUnavailable")]
#[case::class_is_right("eu-west-1b", "True Resolved")]
#[case::class_is_silent("", "True Resolved")]
fn the_zone_is_the_one_that_the_cloud_reports(#[case] said: &str, #[case] resolved: &str) {
    let mut world = World::with_data();
    world.classes.insert("small".to_owned(), class("small", said));
    world.pass();
    world.set_native(&json!({ "metadata": { "annotations": { "machine.mcm/zone": "eu-west-1b" } } }));
    world.vm("aws:///eu-west-1/i-1");
    world.pass();
    assert_eq!(world.object.as_ref().unwrap()["spec"]["providerID"], "aws:///eu-west-1b/i-1");
    assert_eq!(world.status().failure_domain, "eu-west-1b");
    assert_eq!(
        (world.condition("Ready").as_str(), world.condition("ClassResolved").as_str()),
        ("True Provisioned", resolved)
    );
}

#[test]
fn an_id_whose_form_on_the_node_is_not_known_is_not_shown() {
    let mut world = World::with_data();
    world.pass();
    world.vm("aws:///eu-west-1/i-1");
    world.pass();
    assert!(world.object.as_ref().unwrap()["spec"]["providerID"].is_null());
    assert_eq!(world.condition("VMProvisioned"), "False ProviderIDUnknown");
    assert_eq!(world.status().initialization.provisioned, None);
}

/// I2, I3, I4: in this order, and never taken back.
#[test]
fn the_id_is_stored_before_provisioned_and_provisioned_stays() {
    let mut world = World::with_data();
    world.pass();
    world.vm("simulated:///r/vm");
    world.log.clear();
    world.pass();
    assert_eq!(world.log, [r#"patch {"spec":{"providerID":"simulated:///r/vm"}}"#, "write status, provisioned"]);
    assert_eq!(world.status().addresses.len(), 2);
    world.failed("Failed", "Internal");
    world.pass();
    assert_eq!(world.status().initialization.provisioned, Some(true));
    assert_eq!(world.condition("Ready"), "False Internal");
}

/// I2, I8: `Ready` is about the whole life of the VM, `provisioned` is not. Addresses follow the VM.
#[rstest]
#[case::gone("VMNotFound")]
#[case::stopped("VMNotRunning")]
fn a_vm_that_is_gone_or_stopped_is_not_ready_until_it_is_back(#[case] reason: &str) {
    let mut world = World::provisioned();
    // Another problem does not hide that of the VM.
    world.set_native(&json!({ "metadata": { "annotations": { "machine.mcm/zone": "elsewhere" } } }));
    let condition = |status: &str| json!({ "type": "VMAvailable", "status": status, "reason": reason, "message": "the VM is away" });
    world.set_native(&json!({ "status": { "conditions": [condition("False")] } }));
    world.pass();
    assert_eq!(
        (world.condition("Ready"), world.condition("VMProvisioned")),
        (format!("False {reason}"), format!("False {reason}"))
    );
    assert_eq!(world.status().initialization.provisioned, Some(true));
    world.set_native(&json!({ "status": {
        "conditions": [condition("True")], "addresses": [{ "type": "ExternalIP", "address": "192.0.2.7" }],
    } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "True Provisioned");
    assert_eq!(world.status().addresses[0].address, "192.0.2.7");
    assert!(!world.log.iter().any(|line| line.starts_with("create")), "no other VM is made: {:?}", world.log);
}

/// F1, F3: a failure is reported with its code, nothing is replaced, and a later success ends it.
#[test]
fn a_vm_that_cannot_be_created_is_told_with_the_code_of_the_cloud_and_retried() {
    let mut world = World::with_data();
    world.pass();
    world.failed("CrashLoopBackOff", "ResourceExhausted");
    world.pass();
    assert_eq!(world.condition("Ready"), "False ResourceExhausted");
    assert_eq!(world.status().phase, "CrashLoopBackOff");
    world.failed("Failed", "");
    world.pass();
    assert_eq!(world.condition("Ready"), "False Failed");
    world.vm("simulated:///r/vm");
    world.pass();
    assert_eq!(world.condition("Ready"), "True Provisioned");
    assert_eq!(world.log.iter().filter(|action| action.starts_with("create")).count(), 1, "{:?}", world.log);
}

/// F3, T27: only Cluster API gives a machine up.
#[rstest]
#[case::no_limit(Value::Null, "876000h0m0s")]
#[case::limit(json!(90), "1m30s")]
fn the_native_machine_has_no_timeouts_but_that_of_the_object(#[case] seconds: Value, #[case] expected: &str) {
    let mut world = World::with_data();
    world.set_object(&json!({ "spec": { "creationTimeoutSeconds": seconds } }));
    world.pass();
    let native = world.native.unwrap();
    assert_eq!(native["spec"]["creationTimeout"], expected);
    assert_eq!(native["spec"]["disableHealthTimeout"], true);
}

/// I13, O1, O3, MV1: same name, controlled by the object, never the other way round.
#[test]
fn the_native_machine_has_the_name_of_the_object_which_controls_it() {
    let mut world = World::with_data();
    world.pass();
    let native = world.native.unwrap();
    assert_eq!((&native["metadata"]["name"], &native["metadata"]["namespace"]), (&json!("m"), &json!("ns")));
    assert_eq!(
        native["metadata"]["labels"],
        json!({ "cluster.x-k8s.io/cluster-name": "c" }),
        "no label would roll anything"
    );
    let [owner] = native["metadata"]["ownerReferences"].as_array().unwrap().as_slice() else { panic!("{native}") };
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("MCMMachine"), &json!("object"), &json!(true))
    );
    assert_eq!(native["metadata"]["finalizers"], json!(["machine.sapcloud.io/machine-controller-manager"]));
}

/// I14, I17: whatever is lost, there is only one VM.
#[test]
fn no_second_vm_is_made_when_status_or_native_machine_are_lost() {
    let mut world = World::provisioned();
    world.set_object(&json!({ "status": null }));
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), world.log.len()), ("True Provisioned", 1));
    world.native = None;
    world.pass();
    let native = world.native.as_ref().unwrap();
    assert_eq!(native["spec"]["providerID"], "simulated:///r/vm-1", "it never leads to another VM");
    world.native = None;
    world.set_object(&json!({ "spec": { "providerID": null } }));
    world.pass();
    assert!(world.native.is_none());
    assert_eq!(world.condition("Ready"), "False VMLost");
}

/// I15, A1: an object with an ID and no status takes the VM over, without bootstrap data.
#[test]
fn an_object_with_the_id_of_a_vm_adopts_it_and_never_creates_one() {
    let mut world = World::new();
    world.classes.insert("small".to_owned(), class("small", "eu-west-1a"));
    world.set_object(&json!({ "spec": { "providerID": "aws:///eu-west-1a/i-1" } }));
    world.pass();
    assert_eq!(world.native.as_ref().unwrap()["spec"]["providerID"], "aws:///eu-west-1/i-1");
    world.failed("CrashLoopBackOff", "NotFound");
    world.pass();
    assert_eq!(world.condition("Ready"), "False NotFound");
    world.vm("aws:///eu-west-1/i-1");
    world.pass();
    assert_eq!(world.condition("Ready"), "True Provisioned");
}

/// The object before was removed by force, so its native Machine keeps the VM. It makes room for the next one, but for no
/// other VM.
#[rstest]
#[case::collected(json!({ "deletionTimestamp": "2027-01-01T00:00:00Z" }), "simulated:///r/vm-1", true)]
#[case::not_collected(json!({}), "simulated:///r/vm-1", true)]
#[case::of_another_vm(json!({ "deletionTimestamp": "2027-01-01T00:00:00Z" }), "simulated:///r/vm-2", false)]
#[case::released(
    json!({ "deletionTimestamp": "2027-01-01T00:00:00Z", "annotations": { "machine.mcm/delete-vm": "" } }),
    "simulated:///r/vm-1",
    false
)]
fn an_object_takes_over_the_vm_of_a_former_one_that_was_removed_by_force(
    #[case] native: Value,
    #[case] id: &str,
    #[case] is_taken_over: bool,
) {
    let mut world = World::provisioned();
    world.set_native(&json!({ "metadata": native }));
    world.set_object(&json!({
        "metadata": { "uid": "next", "finalizers": null }, "spec": { "providerID": id }, "status": null,
    }));
    world.set_machine(&json!({ "spec": { "bootstrap": { "dataSecretName": "empty" } } }));
    world.pass();
    let native = world.native.as_ref().unwrap();
    let is_next = native["metadata"]["ownerReferences"][0]["uid"] == "next";
    assert_eq!(is_next, is_taken_over, "{}", world.story);
    assert_eq!(native["spec"]["providerID"], "simulated:///r/vm-1");
    if is_taken_over {
        world.vm("simulated:///r/vm-1");
        world.pass();
    }
    assert_eq!(world.condition("Ready"), if is_taken_over { "True Provisioned" } else { "False NameTaken" });
}

/// The VM stays, and the object reports the event.
#[test]
fn a_native_machine_that_is_deleted_directly_is_shown() {
    let mut world = World::provisioned();
    world.set_native(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    world.pass();
    assert_eq!(world.condition("NativeMachineSynced"), "False Deleting");
    assert_eq!(world.condition("Ready"), "True Provisioned");
}

/// Without the annotation the native controller keeps the VM, also if the deletion began without it.
#[rstest]
fn the_vm_is_released_before_the_native_machine_is_deleted(#[values(false, true)] is_deleted_already: bool) {
    let mut world = World::provisioned();
    if is_deleted_already {
        world.set_native(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    }
    world.delete();
    world.pass();
    let native = &world.native.as_ref().unwrap()["metadata"];
    assert_eq!(
        (&native["annotations"]["machine.mcm/delete-vm"], native["deletionTimestamp"].is_string()),
        (&json!(""), true)
    );
    let at = |what: &str| world.log.iter().position(|line| line.starts_with(what));
    assert!(is_deleted_already || at("patch MCM Machine") < at("delete MCM Machine"), "{:?}", world.log);
}

/// A1: a VM has one machine. Another object that claims it neither adopts nor deletes it.
#[rstest]
fn a_vm_that_another_native_machine_has_is_neither_taken_nor_deleted(#[values(true, false)] is_seen: bool) {
    let mut world = World::new();
    match is_seen {
        true => world.rival = Some("other".to_owned()),
        false => world.unseen_rival = Some("other".to_owned()),
    }
    world.set_object(&json!({ "spec": { "providerID": "simulated:///r/vm" } }));
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), &world.native), ("False VMTaken", &None));
    world.delete();
    world.pass();
    assert!(world.object.is_none() && world.native.is_none(), "{:?}", world.log);
}

/// Path D of a migration: a native Machine without a controller that has the VM is adopted unchanged.
#[test]
fn a_native_machine_without_a_controller_is_adopted_with_its_vm() {
    let mut world = World::provisioned();
    world.set_native(&json!({ "metadata": { "ownerReferences": null, "labels": null } }));
    world.set_object(&json!({ "status": null }));
    world.pass();
    assert_eq!(world.native.as_ref().unwrap()["metadata"]["ownerReferences"][0]["uid"], "object");
    assert_eq!(world.condition("Ready"), "True Provisioned");
}

/// O4, 9.8: metadata that was removed by hand is restored.
#[test]
fn finalizer_owner_and_labels_heal() {
    let mut world = World::provisioned();
    world.set_object(&json!({ "metadata": { "finalizers": [] } }));
    world.set_native(&json!({ "metadata": { "ownerReferences": [], "labels": null } }));
    world.pass();
    assert_eq!(
        world.object.as_ref().unwrap()["metadata"]["finalizers"][0],
        "mcmmachine.infrastructure.cluster.x-k8s.io"
    );
    let native = &world.native.as_ref().unwrap()["metadata"];
    assert_eq!(native["ownerReferences"][0]["uid"], "object");
    assert_eq!(native["labels"]["cluster.x-k8s.io/cluster-name"], "c");
}

/// F4, T18, I19: an idle object causes no writes, and fields of other clients stay.
#[test]
fn an_object_that_is_provisioned_is_not_written_again() {
    let mut world = World::provisioned();
    let before = world.object.clone();
    world.now += 3600;
    world.pass();
    assert_eq!((world.log.len(), &world.object), (0, &before));
    assert_eq!(before.unwrap()["metadata"]["annotations"], json!({ "cluster.x-k8s.io/cloned-from-name": "t" }));
}

#[rstest]
#[case::of_another(json!({ "ownerReferences": [{ "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true }] }))]
#[case::of_nobody(json!({}))]
fn a_native_machine_of_another_client_is_not_touched(#[case] metadata: Value) {
    let mut world = World::with_data();
    let mut native = json!({ "metadata": { "name": "m", "namespace": "ns", "uid": "other" }, "spec": {} });
    mcm_api::patch::apply(&mut native["metadata"], &metadata);
    world.native = Some(native.clone());
    world.pass();
    assert_eq!(world.condition("Ready"), "False NameTaken");
    world.delete();
    world.pass();
    assert!(world.object.is_none(), "it is none of its business");
    assert_eq!(world.native, Some(native));
}

/// A description in the object becomes a class that is deleted with it.
#[test]
fn a_vm_described_in_the_object_gets_a_class_that_the_object_controls() {
    let mut world = World::with_data();
    let content = json!({ "provider": "simulated", "providerSpec": { "zone": "a", "spotPrice": "0.1" } });
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineClass": content } }));
    world.pass();
    let class = &world.classes["m"];
    assert_eq!(
        (&class["provider"], &class["metadata"]["ownerReferences"][0]["uid"]),
        (&json!("simulated"), &json!("object"))
    );
    assert_eq!(world.native.as_ref().unwrap()["spec"]["class"]["name"], "m");
    world.vm("simulated:///r/vm");
    world.pass();
    assert!(world.status().interruptible, "I18");

    let mut world = World::with_data();
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineClass": content } }));
    world.classes.insert("m".to_owned(), self::class("small", "a"));
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), world.native), ("False NameTaken", None));
}

/// One description for VMs in several zones: the subnet of the zone takes the place of the other, and nothing else changes.
#[rstest]
#[case::anywhere("", Some(("subnet-a", "a")))]
#[case::its_own_zone("a", Some(("subnet-a", "a")))]
#[case::changed("b", Some(("subnet-b", "b")))]
#[case::not_listed("c", None)]
fn a_vm_described_in_the_object_is_in_the_zone_of_its_machine(
    #[case] zone: &str,
    #[case] expected: Option<(&str, &str)>,
) {
    let mut world = World::with_data();
    let interfaces = |subnet: &str| json!([{ "subnetID": subnet, "securityGroupIDs": ["sg"] }]);
    let mut content = class("small", "a");
    content["providerSpec"]["networkInterfaces"] = interfaces("subnet-a");
    let zones = json!({ "b": { "networkInterfaces": [{ "subnetID": "subnet-b" }] } });
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineClass": content, "zones": zones } }));
    world.set_machine(&json!({ "spec": { "failureDomain": zone } }));
    world.pass();
    let Some((subnet, zone)) = expected else {
        assert_eq!((world.condition("Ready").as_str(), world.native), ("False FailureDomainUnavailable", None));
        return;
    };
    let class = &world.classes["m"];
    let shown = (&class["providerSpec"]["networkInterfaces"], &class["nodeTemplate"]["zone"]);
    assert_eq!(shown, (&interfaces(subnet), &json!(zone)));
    world.vm("simulated:///r/vm");
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), world.status().failure_domain.as_str()), ("True Provisioned", zone));
}

/// A description without credentials gets those of the cluster. The MCMCluster must be known.
#[rstest]
#[case::of_the_cluster(json!({}), Some("cloud"), Some(("cloud", "ns")))]
#[case::its_own(json!({ "credentialsSecretRef": { "name": "own", "namespace": "ns" } }), Some("cloud"), Some(("own", "ns")))]
#[case::none(json!({}), None, None)]
fn a_described_vm_has_the_credentials_of_the_cluster_unless_it_names_others(
    #[case] change: Value,
    #[case] of_cluster: Option<&str>,
    #[case] expected: Option<(&str, &str)>,
) {
    let mut world = World::with_data();
    let mut content = json!({ "provider": "simulated", "providerSpec": { "zone": "a" } });
    mcm_api::patch::apply(&mut content, &change);
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineClass": content } }));
    let secret = of_cluster.map(|name| json!({ "name": name }));
    world.infrastructure =
        Some(json!({ "metadata": { "namespace": "ns" }, "spec": { "credentialsSecretRef": secret } }));
    world.pass();
    let reference = &world.classes["m"]["credentialsSecretRef"];
    let (name, namespace) = expected.unzip();
    assert_eq!((reference["name"].as_str(), reference["namespace"].as_str()), (name, namespace));
}

/// Z2, Z3: only the condition is written, and a deletion waits.
#[rstest]
fn a_paused_object_gets_the_condition_and_nothing_else(
    #[values(false, true)] is_deleting: bool,
    #[values(false, true)] by_cluster: bool,
) {
    let mut world = World::provisioned();
    if by_cluster {
        world.set_cluster(&json!({ "spec": { "paused": true } }));
    } else {
        world.set_object(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }));
    }
    if is_deleting {
        world.delete();
    }
    world.native = None;
    let ready = world.condition("Ready");
    world.pass();
    assert_eq!(world.log.len(), 1);
    assert_eq!((world.condition("Paused").as_str(), world.condition("Ready")), ("True Paused", ready));
    world.set_cluster(&json!({ "spec": { "paused": false } }));
    world.set_object(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": null } } }));
    world.pass();
    assert!(world.object.is_none() || world.condition("Paused") == "False NotPaused");
}

/// Z5, T10.
#[test]
fn what_clusterctl_removes_at_the_source_of_a_move_is_not_touched() {
    let mut world = World::provisioned();
    world.set_object(&json!({ "metadata": {
        "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" }, "deletionTimestamp": "2027-01-01T00:00:00Z",
    } }));
    world.pass();
    assert_eq!(world.log, [""; 0]);
}

/// R3.
#[test]
fn an_object_without_the_label_of_the_filter_is_not_touched_and_the_label_goes_to_the_native_machine() {
    let mut world = World::with_data();
    world.filter = Some("blue".to_owned());
    world.pass();
    assert_eq!(world.log, [""; 0]);
    world.set_object(&json!({ "metadata": { "labels": { "cluster.x-k8s.io/watch-filter": "blue" } } }));
    world.pass();
    assert_eq!(world.native.unwrap()["metadata"]["labels"]["cluster.x-k8s.io/watch-filter"], "blue");
}

/// O7, O8: the deletion ends, whatever other objects are missing.
#[rstest]
#[case::all_there(|_: &mut World| {})]
#[case::no_owner(|world: &mut World| world.set_object(&json!({ "metadata": { "ownerReferences": null } })))]
#[case::machine_gone(|world: &mut World| world.machine = None)]
#[case::cluster_gone(|world: &mut World| world.cluster = None)]
#[case::class_gone(|world: &mut World| world.classes.clear())]
#[case::vm_gone(|world: &mut World| world.native = None)]
fn a_deletion_ends_when_the_native_machine_is_gone(#[case] loss: fn(&mut World)) {
    let mut world = World::provisioned();
    world.delete();
    loss(&mut world);
    world.pass();
    if world.native.is_some() {
        assert!(world.native.as_ref().unwrap()["metadata"]["deletionTimestamp"].is_string(), "{:?}", world.log);
        assert!(world.object.is_some(), "the object outlives its VM");
        world.native = None;
        world.pass();
    }
    assert!(world.object.is_none(), "{}", world.story);
    assert!(world.log.iter().any(|action| action == "read the MCM Machine live"), "{:?}", world.log);
}

/// O6, T16: the condition that the admission policy reads.
#[test]
fn the_object_says_whether_its_machine_is_being_deleted_or_gone() {
    let mut world = World::provisioned();
    assert_eq!(world.condition("Deletable"), "False MachineInUse");
    world.set_machine(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    world.pass();
    assert_eq!(world.condition("Deletable"), "True MachineDeleting");
    let mut world = World::provisioned();
    world.machine = None;
    world.pass();
    assert_eq!((world.condition("Deletable").as_str(), world.log.len()), ("True MachineDeleting", 1));
}

/// Unknown is not absent.
#[test]
fn an_object_whose_machine_cannot_be_read_is_not_deletable() {
    let mut snapshot = World::provisioned().snapshot(McmMachineSession::default());
    snapshot.owner = OwnerView::Named(ObjectView::Unknown);
    let plan = plan(&snapshot);
    let [Step { action: Action::WriteStatus(status), .. }] = plan.steps.as_slice() else { panic!("{plan}") };
    let [ready, deletable] = ["Ready", "Deletable"].map(|type_| condition(&status.conditions, type_));
    assert_eq!((ready.as_str(), deletable.as_str()), ("Unknown WaitingForOwner", "False MachineInUse"));
}

#[test]
fn an_object_that_never_had_a_vm_is_deleted_at_once() {
    let mut world = World::new();
    world.pass();
    world.delete();
    world.pass();
    assert!(world.object.is_none() && world.native.is_none());
}

/// A named VM that was never adopted is also deleted: the ID is a claim.
#[test]
fn the_vm_of_an_object_that_never_came_to_adopt_it_is_deleted_by_way_of_a_native_machine() {
    let mut world = World::new();
    world.set_object(&json!({ "spec": { "providerID": "simulated:///r/vm" }, "metadata": { "finalizers": ["mcmmachine.infrastructure.cluster.x-k8s.io"] } }));
    world.delete();
    world.pass();
    let native = world.native.take().unwrap();
    assert_eq!(native["spec"]["providerID"], "simulated:///r/vm");
    assert!(native["metadata"]["deletionTimestamp"].is_string());
    world.pass();
    assert!(world.object.is_none());
}
