//! Valid and invalid fields of a class, with the problems that are reported.

use mcm_driver::spec::ClassProblems;
use rstest::rstest;
use serde_json::{Value, json};

use super::Spec;

const CLUSTER: &str = "kubernetes.io-cluster-c";
const ROLE: &str = "kubernetes.io-role-node";

fn spec() -> Value {
    json!({
        "location": "westeurope", "resourceGroup": "g", "tags": {CLUSTER: "1", ROLE: "1"},
        "subnetInfo": {"vnetName": "v", "subnetName": "s"},
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
            "osProfile": {"adminUsername": "core"},
            "storageProfile": {
                "imageReference": {"id": "/image"}, "osDisk": {"createOption": "FromImage", "diskSizeGB": 50},
                "dataDisks": [{"lun": 0, "diskSizeGB": 1, "storageAccountType": "a"}, {"lun": 1, "diskSizeGB": 1, "storageAccountType": "a"}],
            },
            "zone": 1,
        },
    })
}

/// The class with a value replaced, by its path.
fn changed(path: &str, value: Value) -> Value {
    let mut spec = spec();
    let mut at = &mut spec;
    for part in path.split('/') {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        };
    }
    *at = value;
    spec
}

fn texts(value: &Value) -> (Vec<String>, Vec<String>) {
    let mut problems = ClassProblems::default();
    Spec::read(value, &mut problems);
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect();
    (texts(&problems.errors), texts(&problems.warnings))
}

#[test]
fn a_class_with_the_required_fields_is_valid() {
    let mut problems = ClassProblems::default();
    let read = Spec::read(&spec(), &mut problems);
    assert_eq!(problems, ClassProblems::default());
    let scope = read.scope().unwrap();
    assert_eq!((scope.location.as_str(), scope.resource_group.as_str()), ("westeurope", "g"));
    assert_eq!((scope.markers.cluster.as_str(), scope.markers.role.as_str()), (CLUSTER, ROLE));
}

#[test]
fn keys_are_read_in_any_case_and_null_is_absent() {
    let value = json!({
        "LOCATION": "l", "ResourceGroup": "g", "TAGS": {CLUSTER: "1", ROLE: "1"}, "cloudconfiguration": null,
        "SubnetInfo": {"VNETNAME": "v", "subnetname": "s"},
        "Properties": {
            "hardwareprofile": {"VmSize": "x"}, "osprofile": {"adminusername": "core"}, "ZONE": 2,
            "storageprofile": {"imagereference": {"URN": "a:b:c:d"}, "osdisk": {"CREATEOPTION": "FromImage", "disksizegb": 5}},
        },
    });
    let mut problems = ClassProblems::default();
    let read = Spec::read(&value, &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!((read.zone, read.os_disk.size, read.image.urn().unwrap().version), (Some(2), 5, "d"));
    assert_eq!(read.cloud.unwrap().name, "AzurePublic");
}

const ONE_IMAGE: &str = "expected exactly one of id, urn, communityGalleryImageID and sharedGalleryImageID";
const ONE_PLACE: &str = "expected exactly one of zone, availabilitySet.id and virtualMachineScaleSet.id";

#[rstest]
#[case("location", Value::Null, "providerSpec.location: expected a string that is not blank, found nothing")]
#[case::blank("location", json!(" "), r#"providerSpec.location: expected a string that is not blank, found the string " ""#)]
#[case("resourceGroup", json!(7), "providerSpec.resourceGroup: expected a string that is not blank, found the number 7")]
#[case("subnetInfo", Value::Null, "providerSpec.subnetInfo: expected an object, found nothing")]
#[case("subnetInfo/vnetName", json!(""), "providerSpec.subnetInfo.vnetName: expected a string that is not blank, found an empty string")]
#[case(
    "subnetInfo/subnetName",
    Value::Null,
    "providerSpec.subnetInfo.subnetName: expected a string that is not blank, found nothing"
)]
#[case::cloud("cloudConfiguration", json!({"name": "azurepublic"}), r#"providerSpec.cloudConfiguration.name: expected one of AzurePublic, AzureChina, AzureGovernment, found the string "azurepublic""#)]
#[case::unnamed_cloud("cloudConfiguration", json!({}), "providerSpec.cloudConfiguration.name: expected one of AzurePublic, AzureChina, AzureGovernment, found nothing")]
#[case(
    "properties/hardwareProfile/vmSize",
    Value::Null,
    "providerSpec.properties.hardwareProfile.vmSize: expected a string that is not blank, found nothing"
)]
#[case("properties/osProfile/adminUsername", json!(""), "providerSpec.properties.osProfile.adminUsername: expected a string that is not blank, found an empty string")]
#[case(
    "properties/storageProfile/osDisk/createOption",
    Value::Null,
    "providerSpec.properties.storageProfile.osDisk.createOption: expected one of FromImage, Attach, found nothing"
)]
#[case("properties/storageProfile/osDisk/diskSizeGB", json!(0), "providerSpec.properties.storageProfile.osDisk.diskSizeGB: expected a whole number of at least 1, found the number 0")]
#[case("properties/storageProfile/dataDisks/0/diskSizeGB", json!(-1), "providerSpec.properties.storageProfile.dataDisks[0].diskSizeGB: expected a whole number of at least 1, found the number -1")]
#[case(
    "properties/storageProfile/dataDisks/1/storageAccountType",
    Value::Null,
    "providerSpec.properties.storageProfile.dataDisks[1].storageAccountType: expected a string that is not blank, found nothing"
)]
#[case("properties/storageProfile/dataDisks/0/lun", json!(-1), "providerSpec.properties.storageProfile.dataDisks[0].lun: expected a whole number of at least 0, found the number -1")]
#[case("properties/storageProfile/dataDisks/1/lun", json!(0), "providerSpec.properties.storageProfile.dataDisks[1].lun: another disk has lun 0")]
#[case("properties/storageProfile/dataDisks/1/imageRef", json!({"id": "a", "urn": "a:b:c:d"}), &format!("providerSpec.properties.storageProfile.dataDisks[1].imageRef: {ONE_IMAGE}, found 2"))]
#[case::no_image("properties/storageProfile/imageReference", json!({}), &format!("providerSpec.properties.storageProfile.imageReference: {ONE_IMAGE}, found none"))]
#[case::two_images("properties/storageProfile/imageReference", json!({"id": "a", "sharedGalleryImageID": "b"}), &format!("providerSpec.properties.storageProfile.imageReference: {ONE_IMAGE}, found 2"))]
#[case::short_urn("properties/storageProfile/imageReference", json!({"urn": "a:b:c"}), r#"providerSpec.properties.storageProfile.imageReference.urn: expected publisher:offer:sku:version, found the string "a:b:c""#)]
#[case::empty_part("properties/storageProfile/imageReference", json!({"urn": "a:b::d"}), r#"providerSpec.properties.storageProfile.imageReference.urn: expected publisher:offer:sku:version, found the string "a:b::d""#)]
#[case::no_place("properties/zone", Value::Null, &format!("providerSpec.properties: {ONE_PLACE}, found none"))]
#[case::two_places("properties/availabilitySet", json!({"id": "a"}), &format!("providerSpec.properties: {ONE_PLACE}, found 2"))]
#[case::kind("properties/machineSet", json!({"id": "a", "kind": "vmss"}), r#"providerSpec.properties.machineSet.kind: expected one of availabilityset, vmo, found the string "vmss""#)]
#[case::reservation("properties/capacityReservation", json!({"capacityReservationGroupID": "group"}), r#"providerSpec.properties.capacityReservation.capacityReservationGroupID: expected the resource ID of a capacity reservation group, found the string "group""#)]
#[case::no_cluster("tags", json!({ROLE: "1"}), "providerSpec.tags: expected a tag that contains kubernetes.io-cluster-, found none")]
#[case::no_role("tags", json!({CLUSTER: "1"}), "providerSpec.tags: expected a tag that contains kubernetes.io-role-, found none")]
#[case::marker_inside("tags", json!({CLUSTER: "1", "my-kubernetes.io-role-node": "1"}), "providerSpec.tags: expected a tag that contains kubernetes.io-role-, found none")]
#[case::key("tags/a%", json!("b"), "providerSpec.tags.a%: Azure takes keys of at most 512 characters, without <>%&\\?/")]
#[case::value("tags/a", json!("x".repeat(257)), "providerSpec.tags.a: Azure takes values of at most 256 characters")]
fn a_wrong_field_is_reported_with_its_path(#[case] path: &str, #[case] value: Value, #[case] expected: &str) {
    assert_eq!(texts(&changed(path, value)).0, [expected]);
}

#[rstest]
#[case(48, None, None)]
#[case(
    49,
    None,
    Some("49 tags leave no room for machine.sapcloud.io-owner: no VM shows its namespace, as with Gardener's driver")
)]
#[case(
    50,
    None,
    Some(
        "50 tags leave no room for machine.sapcloud.io-machine-uid and machine.sapcloud.io-owner: no VM shows its machine and its namespace, as with Gardener's driver"
    )
)]
#[case(51, Some("expected at most 50 tags, found 51"), None)]
fn as_many_tags_as_azure_takes_are_allowed(
    #[case] count: usize,
    #[case] error: Option<&str>,
    #[case] warning: Option<&str>,
) {
    let mut value = spec();
    for number in value["tags"].as_object().unwrap().len()..count {
        value["tags"][format!("tag-{number}")] = json!("");
    }
    let with_path =
        |text: Option<&str>| text.map(|text| format!("providerSpec.tags: {text}")).into_iter().collect::<Vec<_>>();
    assert_eq!(texts(&value), (with_path(error), with_path(warning)));
}

#[rstest]
#[case(Value::Null)]
#[case(json!(7))]
#[case(json!([]))]
fn a_class_that_is_no_object_is_refused(#[case] value: Value) {
    let (errors, _) = texts(&value);
    assert!(errors[0].starts_with("providerSpec: expected an object"), "{errors:?}");
}

#[rstest]
#[case::unknown("vmSize", json!("x"), "providerSpec.vmSize: unknown field, ignored")]
#[case::own("tags/machine.sapcloud.io-owner", json!("x"), "providerSpec.tags.machine.sapcloud.io-owner: ignored: mcm sets this tag itself")]
#[case::newer_type("properties/securityProfile", json!({"securityType": "Standard"}), r#"providerSpec.properties.securityProfile.securityType: the string "Standard" is none of ConfidentialVM, TrustedLaunch: sent to the cloud as it is"#)]
#[case::newer_encryption("properties/storageProfile/osDisk/managedDisk", json!({"securityProfile": {"securityEncryptionType": "NonPersistedTPM"}}), r#"providerSpec.properties.storageProfile.osDisk.managedDisk.securityProfile.securityEncryptionType: the string "NonPersistedTPM" is none of DiskWithVMGuestState, VMGuestStateOnly: sent to the cloud as it is"#)]
#[case::newer_controller("properties/storageProfile/diskControllerType", json!("PCIe"), r#"providerSpec.properties.storageProfile.diskControllerType: the string "PCIe" is none of SCSI, NVMe: sent to the cloud as it is"#)]
#[case::two_clusters("tags/kubernetes.io-cluster-b", json!("1"), "providerSpec.tags: 2 tags contain kubernetes.io-cluster-: the first in order marks the VMs")]
fn a_field_that_may_surprise_is_a_warning(#[case] path: &str, #[case] value: Value, #[case] expected: &str) {
    let (errors, warnings) = texts(&changed(path, value));
    assert_eq!(errors, [""; 0]);
    assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{warnings:?}");
}

#[rstest]
#[case("availabilityset", (Some("/set"), None))]
#[case("vmo", (None, Some("/set")))]
fn the_older_form_of_a_set_is_read(#[case] kind: &str, #[case] expected: (Option<&str>, Option<&str>)) {
    let mut value = changed("properties/machineSet", json!({"id": "/set", "kind": kind}));
    value["properties"].as_object_mut().unwrap().remove("zone");
    let mut problems = ClassProblems::default();
    let read = Spec::read(&value, &mut problems);
    assert_eq!(problems, ClassProblems::default());
    assert_eq!((read.availability_set.as_deref(), read.scale_set.as_deref()), expected);
}

#[test]
fn resources_of_a_class_with_other_errors_can_still_be_found() {
    let value = json!({"location": "l", "resourceGroup": "g", "tags": {CLUSTER: "", ROLE: ""}});
    Spec::read(&value, &mut ClassProblems::default()).scope().unwrap();
    for name in ["location", "resourceGroup", "tags"] {
        let mut value = value.clone();
        value.as_object_mut().unwrap().remove(name);
        Spec::read(&value, &mut ClassProblems::default()).scope().unwrap_err();
    }
    let mut value = value;
    value["resourceGroup"] = json!("g'\n| union");
    Spec::read(&value, &mut ClassProblems::default()).scope().unwrap_err();
}
