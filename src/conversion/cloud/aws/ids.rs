//! Provider IDs: the driver names the region, as the Go driver does, and Nodes name the zone.

use crate::cloud::provider::IdForms;

pub const IDS: IdForms =
    IdForms { scheme: "aws://", to_native: |id, _spec| of_region(id), to_node, identity: of_region, vm_name: |_| None };

const PREFIX: &str = "aws:///";

fn of_region(id: &str) -> String {
    match split(id) {
        Some((zone, instance)) => format!("{PREFIX}{}/{instance}", region_of(zone)),
        None => id.to_owned(),
    }
}

fn to_node(id: &str, zone: Option<&str>) -> Option<String> {
    let Some((place, instance)) = split(id).filter(|(place, _)| region_of(place) == *place) else {
        return Some(id.to_owned());
    };
    let zone = zone.filter(|zone| region_of(zone) == place)?;
    Some(format!("{PREFIX}{zone}/{instance}"))
}

/// Zone or region, and the ID of the instance.
fn split(id: &str) -> Option<(&str, &str)> {
    id.strip_prefix(PREFIX)?.split_once('/')
}

/// Region of a zone: `eu-west-1` of `eu-west-1a`, and `us-west-2` of `us-west-2-lax-1a`.
fn region_of(zone: &str) -> &str {
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
