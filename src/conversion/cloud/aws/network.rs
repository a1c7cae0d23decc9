//! The network of an AWSCluster, for a class that names no subnet or no security groups.

use serde_json::{Map, Value, json};

/// The security groups of a worker.
const ROLES: [&str; 2] = ["node", "lb"];
/// The tag of subnets for addresses of pods only.
const PODS_ONLY: (&str, &str) = ("sigs.k8s.io/cluster-api-provider-aws/association", "secondary");

/// Of subnets in local and wavelength zones, where the provider places no machine by itself.
const EDGE_ZONES: [&str; 2] = ["local-zone", "wavelength-zone"];

/// An interface of the class has no subnet or no security groups.
pub fn is_open(provider_spec: &Value) -> bool {
    let interfaces = provider_spec["networkInterfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    interfaces.is_empty()
        || interfaces.iter().any(|one| is_absent(&one["subnetID"]) || is_absent(&one["securityGroupIDs"]))
}

/// The same `providerSpec` with a subnet and the security groups of the cluster, where they are missing. Of the subnets in
/// the zone of the class, it is the first private one, as with the provider of the cluster; a public one for a class with
/// public addresses.
pub fn closed(provider_spec: &Value, zone: &str, cluster: &Value) -> Result<Value, String> {
    let mut made = provider_spec.clone();
    let fields = made.as_object_mut().ok_or("its providerSpec is no object")?;
    let interfaces = fields.entry("networkInterfaces").or_insert_with(|| json!([]));
    let interfaces = interfaces.as_array_mut().ok_or("networkInterfaces is no list")?;
    if interfaces.is_empty() {
        interfaces.push(json!({}));
    }
    for interface in interfaces.iter_mut().filter_map(Value::as_object_mut) {
        close(interface, zone, cluster)?;
    }
    Ok(made)
}

fn close(interface: &mut Map<String, Value>, zone: &str, cluster: &Value) -> Result<(), String> {
    if interface.get("subnetID").is_none_or(is_absent) {
        let is_public = interface.get("associatePublicIPAddress") == Some(&Value::Bool(true));
        interface.insert("subnetID".to_owned(), subnet(zone, is_public, cluster)?.into());
    }
    if interface.get("securityGroupIDs").is_none_or(is_absent) {
        let mut groups = ROLES.into_iter().map(|role| group(role, cluster)).collect::<Result<Vec<_>, _>>()?;
        groups.dedup();
        interface.insert("securityGroupIDs".to_owned(), groups.into());
    }
    Ok(())
}

fn subnet<'a>(zone: &str, is_public: bool, cluster: &'a Value) -> Result<&'a str, String> {
    let subnets = cluster.pointer("/spec/network/subnets").and_then(Value::as_array).into_iter().flatten();
    let fits = |subnet: &&Value| {
        (zone.is_empty() || subnet["availabilityZone"] == zone)
            && subnet["isPublic"].as_bool().unwrap_or_default() == is_public
            && subnet["tags"][PODS_ONLY.0] != PODS_ONLY.1
            && !EDGE_ZONES.iter().any(|zone| subnet["zoneType"] == *zone)
    };
    // `id` of a subnet that the provider creates is its name.
    let id = |subnet: &'a Value| {
        let ids = [&subnet["resourceID"], &subnet["id"]].into_iter().filter_map(Value::as_str);
        ids.into_iter().find(|id| id.starts_with("subnet-"))
    };
    let kind = if is_public { "public" } else { "private" };
    subnets.filter(fits).find_map(id).ok_or_else(|| format!("it has no {kind} subnet in zone {zone:?} yet"))
}

fn group<'a>(role: &str, cluster: &'a Value) -> Result<&'a str, String> {
    let id = cluster.pointer(&format!("/status/networkStatus/securityGroups/{role}/id")).and_then(Value::as_str);
    id.ok_or_else(|| format!("it has no security group for the role {role} yet"))
}

fn is_absent(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn cluster() -> Value {
        json!({
            "spec": { "network": { "subnets": [
                { "id": "c-subnet-public-a", "resourceID": "subnet-1", "availabilityZone": "a", "isPublic": true },
                { "id": "subnet-8", "availabilityZone": "a", "zoneType": "local-zone" },
                { "id": "subnet-0", "availabilityZone": "a", "tags": { (PODS_ONLY.0): PODS_ONLY.1 } },
                { "id": "c-subnet-private-a", "resourceID": "subnet-2", "availabilityZone": "a" },
                { "id": "subnet-3", "availabilityZone": "b", "isPublic": false },
                { "id": "c-subnet-private-c", "availabilityZone": "c" },
            ] } },
            "status": { "networkStatus": { "securityGroups": { "node": { "id": "sg-1" }, "lb": { "id": "sg-2" } } } },
        })
    }

    #[rstest]
    #[case::nothing_named(json!({}), "a", json!([{ "subnetID": "subnet-2", "securityGroupIDs": ["sg-1", "sg-2"] }]))]
    #[case::an_existing_subnet(json!({ "networkInterfaces": [] }), "b", json!([{ "subnetID": "subnet-3", "securityGroupIDs": ["sg-1", "sg-2"] }]))]
    #[case::public(
        json!({ "networkInterfaces": [{ "associatePublicIPAddress": true }] }), "a",
        json!([{ "associatePublicIPAddress": true, "subnetID": "subnet-1", "securityGroupIDs": ["sg-1", "sg-2"] }])
    )]
    #[case::own_groups(
        json!({ "networkInterfaces": [{ "securityGroupIDs": ["sg-9"] }] }), "a",
        json!([{ "securityGroupIDs": ["sg-9"], "subnetID": "subnet-2" }])
    )]
    fn an_open_interface_is_in_the_network_of_the_cluster(
        #[case] spec: Value,
        #[case] zone: &str,
        #[case] made: Value,
    ) {
        assert!(is_open(&spec));
        let closed = closed(&spec, zone, &cluster()).unwrap();
        assert_eq!(closed["networkInterfaces"], made);
        assert!(!is_open(&closed));
    }

    #[rstest]
    #[case::no_subnet_in_the_zone("d", cluster(), "it has no private subnet in zone \"d\" yet")]
    #[case::a_subnet_without_its_id("c", cluster(), "it has no private subnet in zone \"c\" yet")]
    #[case::not_provisioned("a", json!({ "spec": { "region": "r" } }), "it has no private subnet in zone \"a\" yet")]
    #[case::no_groups("a", json!({ "spec": cluster()["spec"] }), "it has no security group for the role node yet")]
    fn an_incomplete_cluster_is_named(#[case] zone: &str, #[case] cluster: Value, #[case] text: &str) {
        assert_eq!(closed(&json!({}), zone, &cluster), Err(text.to_owned()));
    }

    #[test]
    fn a_class_with_its_network_is_left_as_it_is() {
        let spec = json!({ "networkInterfaces": [{ "subnetID": "subnet-9", "securityGroupIDs": ["sg-9"] }] });
        assert!(!is_open(&spec));
        assert_eq!(closed(&spec, "a", &Value::Null), Ok(spec));
    }
}
