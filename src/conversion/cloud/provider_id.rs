//! Provider IDs of VMs. Cluster API expects the form of the Node, which the cloud controller manager writes. Drivers have
//! their own forms, which the Go programs compare as texts and which therefore never change.

use serde_json::Value;

use super::{ID_FORMS, provider::IdForms};
use mcm_api::machine::Machine;

/// The form of the driver, from that of the Node and the `providerSpec` of the class. An ID of an unknown cloud is the same on
/// both sides.
pub fn to_native(id: &str, provider_spec: &Value) -> String {
    forms_of(id).map_or_else(|| id.to_owned(), |forms| (forms.to_native)(id, provider_spec))
}

/// The form of the Node, from that of the driver. `None` if it needs a zone that is not known or not in the region.
pub fn to_node(id: &str, zone: Option<&str>) -> Option<String> {
    forms_of(id).map_or_else(|| Some(id.to_owned()), |forms| (forms.to_node)(id, zone))
}

/// The form of the Node of a native Machine: as its driver reported it, or else as [`to_node`].
pub fn of_node(machine: &Machine, zone: Option<&str>) -> Option<String> {
    machine.node_provider_id().map(str::to_owned).or_else(|| to_node(&machine.spec.provider_id, zone))
}

/// Two IDs, in any form, are of one VM.
pub fn is_same(one: &str, other: &str) -> bool {
    !one.is_empty() && identity(one) == identity(other)
}

/// One text for all forms of the ID of a VM.
pub fn identity(id: &str) -> String {
    forms_of(id).map_or_else(|| id.to_owned(), |forms| (forms.identity)(id))
}

/// Name of the VM, if the driver of its cloud finds VMs by their names.
pub fn vm_name(id: &str) -> Option<&str> {
    forms_of(id).and_then(|forms| (forms.vm_name)(id))
}

fn forms_of(id: &str) -> Option<&'static IdForms> {
    ID_FORMS.into_iter().find(|forms| id.starts_with(forms.scheme))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const AZURE: &str =
        "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/worker-1";

    fn class_of_azure() -> Value {
        json!({ "location": "westeurope", "resourceGroup": "RG" })
    }

    /// Row `spec.providerID` of 3.5, and trap T1.
    #[rstest]
    #[case::aws("aws:///eu-west-1/i-1", Some("eu-west-1a"), json!({}), "aws:///eu-west-1a/i-1")]
    #[case::aws_local_zone("aws:///us-west-2/i-1", Some("us-west-2-lax-1a"), json!({}), "aws:///us-west-2-lax-1a/i-1")]
    #[case::gcp("gce:///project/eu-a/vm", None, json!({}), "gce://project/eu-a/vm")]
    #[case::openstack("openstack:///RegionOne/7f-1", None, json!({ "spec": { "region": "RegionOne" } }), "openstack:///7f-1")]
    #[case::vsphere("vsphere://eu/42-1", None, json!({ "region": "eu" }), "vsphere://42-1")]
    #[case::yandex("yandex://ru-central1-a/fhm1", Some("ru-central1-a"), json!({ "zoneID": "ru-central1-a" }), "yandex://fhm1")]
    #[case::equinix_metal("equinixmetal://ny/3c-1", None, json!({ "metro": "ny" }), "equinixmetal://3c-1")]
    #[case::kubevirt("kubevirt://vm", None, json!({}), "kubevirt://vm")]
    #[case::metal_stack("metal:///partition/0-1", None, json!({}), "metal:///partition/0-1")]
    #[case::alicloud("cn-beijing.i-1", None, json!({}), "cn-beijing.i-1")]
    #[case::other("simulated:///region/vm", None, json!({}), "simulated:///region/vm")]
    #[case::none("", None, json!({}), "")]
    fn each_driver_form_has_a_node_form_and_back(
        #[case] driver: &str,
        #[case] zone: Option<&str>,
        #[case] class: Value,
        #[case] node: &str,
    ) {
        assert_eq!(to_node(driver, zone).as_deref(), Some(node));
        assert_eq!(to_native(node, &class), driver);
        assert_eq!(identity(driver), identity(node));
        assert_eq!(is_same(driver, node), !driver.is_empty());
    }

    #[test]
    fn the_node_form_of_azure_is_that_of_its_driver() {
        let mut machine = Machine::default();
        machine.spec.provider_id = "azure:///westeurope/worker-1".to_owned();
        assert_eq!(of_node(&machine, None).as_deref(), Some("azure:///westeurope/worker-1"), "of another driver");
        let reported = [("machine.mcm/node-provider-id".to_owned(), AZURE.to_owned())];
        machine.metadata.annotations = Some(reported.into());
        assert_eq!(of_node(&machine, None).as_deref(), Some(AZURE));
        assert_eq!(to_native(AZURE, &class_of_azure()), machine.spec.provider_id);
        assert!(is_same(AZURE, &machine.spec.provider_id));
        assert_eq!(vm_name(AZURE), Some("worker-1"));
    }

    #[rstest]
    #[case::no_class(AZURE, json!({}))]
    #[case::of_another_resource_group(AZURE, json!({ "location": "westeurope", "resourceGroup": "other" }))]
    #[case::of_a_scale_set(
        "azure:///subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/0",
        class_of_azure()
    )]
    #[case::openstack("openstack:///7f-1", json!({}))]
    #[case::vsphere("vsphere://42-1", json!({ "region": "" }))]
    #[case::of_an_old_version_of_the_manager("yandex://folder/ru-central1-a/worker-1", json!({ "zoneID": "ru-central1-a" }))]
    fn an_id_stays_if_the_class_does_not_complete_it(#[case] id: &str, #[case] class: Value) {
        assert_eq!(to_native(id, &class), id);
    }

    /// The place in an ID takes precedence over that of the class.
    #[rstest]
    #[case("openstack://RegionTwo/7f-1", "openstack:///RegionTwo/7f-1")]
    #[case("openstack:///RegionTwo/7f-1", "openstack:///RegionTwo/7f-1")]
    #[case("openstack:///7f-1", "openstack:///RegionOne/7f-1")]
    fn every_form_of_openstack_is_read(#[case] id: &str, #[case] driver: &str) {
        assert_eq!(to_native(id, &json!({ "spec": { "region": "RegionOne" } })), driver);
        assert_eq!(to_node(id, None).as_deref(), Some("openstack:///7f-1"));
    }

    #[rstest]
    #[case("openstack:///a/7f-1", "openstack:///a/7f-2")]
    #[case("aws:///eu-west-1a/i-1", "aws:///eu-west-2a/i-1")]
    #[case("azure:///westeurope/a", "azure:///westeurope/b")]
    #[case("", "")]
    fn ids_of_other_vms_differ(#[case] one: &str, #[case] other: &str) {
        assert!(!is_same(one, other));
    }

    #[rstest]
    #[case(None)]
    #[case(Some("us-east-1a"))]
    fn the_zone_of_a_vm_is_never_guessed(#[case] zone: Option<&str>) {
        assert_eq!(to_node("aws:///eu-west-1/i-1", zone), None);
    }

    #[test]
    fn an_id_that_has_the_node_form_already_stays() {
        assert_eq!(to_node("aws:///eu-west-1b/i-1", Some("eu-west-1a")).as_deref(), Some("aws:///eu-west-1b/i-1"));
    }

    #[rstest]
    #[case("gce://project/eu-a/vm", Some("vm"))]
    #[case("aws:///eu-west-1a/i-1", None)]
    #[case("simulated:///region/vm", None)]
    fn a_vm_name_is_read_where_the_driver_finds_vms_by_name(#[case] id: &str, #[case] name: Option<&str>) {
        assert_eq!(vm_name(id), name);
    }
}
