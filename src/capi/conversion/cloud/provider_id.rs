//! IDs of VMs. Cluster API requires the form of the Node; drivers have other forms, which the Go programs compare as
//! texts and which therefore stay.

const AWS: &str = "aws:///";
const GCP_NATIVE: &str = "gce:///";
const GCP_NODE: &str = "gce://";

/// The form of the driver, from that of the Node. A form that is not known is the same on both sides.
pub fn to_native(id: &str) -> String {
    if let Some((zone, instance)) = id.strip_prefix(AWS).and_then(|rest| rest.split_once('/')) {
        return format!("{AWS}{}/{instance}", region_of(zone));
    }
    match id.strip_prefix(GCP_NODE).filter(|rest| !rest.starts_with('/')) {
        Some(rest) => format!("{GCP_NATIVE}{rest}"),
        None => id.to_owned(),
    }
}

/// The form of the Node, from that of the driver. `None` if it needs a zone that is not known or not in the region.
pub fn to_node(id: &str, zone: Option<&str>) -> Option<String> {
    if let Some((place, instance)) = id.strip_prefix(AWS).and_then(|rest| rest.split_once('/')) {
        if region_of(place) != place {
            return Some(id.to_owned());
        }
        let zone = zone.filter(|zone| region_of(zone) == place)?;
        return Some(format!("{AWS}{zone}/{instance}"));
    }
    match id.strip_prefix(GCP_NATIVE) {
        Some(rest) => Some(format!("{GCP_NODE}{rest}")),
        None => Some(id.to_owned()),
    }
}

/// Region of a zone of AWS: `eu-west-1` of `eu-west-1a`, and `us-west-2` of `us-west-2-lax-1a`.
pub fn region_of(zone: &str) -> &str {
    let mut start = 0;
    for part in zone.split('-') {
        let digits = part.chars().take_while(char::is_ascii_digit).count();
        if digits > 0 && start > 0 {
            return zone.get(..start + digits).unwrap_or(zone);
        }
        start += part.len() + 1;
    }
    zone
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
}
