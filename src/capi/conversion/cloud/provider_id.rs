//! Provider IDs of VMs. Cluster API expects the form of the Node. Drivers have their own forms, which the Go programs compare
//! as texts and which therefore never change.

use super::{PROVIDERS, provider::IdForms};

/// The form of the driver, from that of the Node. An ID of an unknown cloud is the same on both sides.
pub fn to_native(id: &str) -> String {
    forms_of(id).map_or_else(|| id.to_owned(), |forms| (forms.to_native)(id))
}

/// The form of the Node, from that of the driver. `None` if it needs a zone that is not known or not in the region.
pub fn to_node(id: &str, zone: Option<&str>) -> Option<String> {
    forms_of(id).map_or_else(|| Some(id.to_owned()), |forms| (forms.to_node)(id, zone))
}

/// Name of the VM, if the driver of its cloud finds VMs by their names.
pub fn vm_name(id: &str) -> Option<&str> {
    forms_of(id).and_then(|forms| (forms.vm_name)(id))
}

fn forms_of(id: &str) -> Option<&'static IdForms> {
    PROVIDERS.into_iter().map(|provider| &provider.ids).find(|forms| id.starts_with(forms.scheme))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Row `spec.providerID` of 3.5, and trap T1.
    #[rstest]
    #[case::aws("aws:///eu-west-1/i-1", Some("eu-west-1a"), "aws:///eu-west-1a/i-1")]
    #[case::aws_local_zone("aws:///us-west-2/i-1", Some("us-west-2-lax-1a"), "aws:///us-west-2-lax-1a/i-1")]
    #[case::gcp("gce:///project/eu-a/vm", None, "gce://project/eu-a/vm")]
    #[case::other("simulated:///region/vm", None, "simulated:///region/vm")]
    #[case::none("", None, "")]
    fn each_driver_form_has_a_node_form_and_back(#[case] driver: &str, #[case] zone: Option<&str>, #[case] node: &str) {
        assert_eq!(to_node(driver, zone).as_deref(), Some(node));
        assert_eq!(to_native(node), driver);
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
