//! Ports and volumes that are created before a server and deleted after it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use mcm_driver::cloud::{ClassMarkers, MachineIdentity};
use serde::{Deserialize, Deserializer, de::Error};
use tokio::time::Instant;

use super::{
    names::{UID_KEY, uid_of},
    server::{or_empty, since},
};

/// A port of Neutron.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Port {
    pub id: String,
    #[serde(deserialize_with = "or_empty")]
    name: String,
    pub network_id: String,
    /// The server that has it; empty for none.
    #[serde(deserialize_with = "or_empty")]
    pub device_id: String,
    #[serde(default, deserialize_with = "or_empty")]
    description: String,
    #[serde(default, deserialize_with = "or_empty")]
    tags: Vec<String>,
    #[serde(default, deserialize_with = "or_empty")]
    pub allowed_address_pairs: Vec<AddressPair>,
    #[serde(default, deserialize_with = "or_empty")]
    pub fixed_ips: Vec<FixedIp>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct FixedIp {
    pub subnet_id: String,
    pub ip_address: String,
}

/// Addresses that a port may send from, in addition to its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub(crate) struct AddressPair {
    pub ip_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
}

/// A volume of Cinder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Volume {
    pub id: String,
    name: Option<String>,
    pub status: String,
    #[serde(default, deserialize_with = "or_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "time")]
    created_at: Timestamp,
    #[serde(default, deserialize_with = "or_empty")]
    attachments: Vec<Attachment>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Attachment {
    server_id: Option<String>,
}

fn time<'de, D: Deserializer<'de>>(value: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(value)?;
    time_in(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no time")))
}

/// Cinder and Octavia write UTC without saying so.
pub(crate) fn time_in(text: &str) -> Option<Timestamp> {
    let without_zone = || text.parse::<DateTime>().and_then(|time| time.to_zoned(TimeZone::UTC)).ok();
    text.parse().ok().or_else(|| Some(without_zone()?.timestamp()))
}

/// A port or a volume.
pub(crate) trait Part {
    fn name(&self) -> &str;

    /// The UID of the Machine for which mcm created it.
    fn uid(&self) -> Option<&str>;

    fn has(&self, markers: &ClassMarkers) -> bool;

    /// It was created for a Machine. The reference marks no UIDs.
    fn is_of(&self, wanted: MachineIdentity<'_>, markers: &ClassMarkers) -> bool {
        self.name() == wanted.name
            && match self.uid() {
                Some(uid) => uid == wanted.uid,
                None => self.has(markers),
            }
    }

    /// It was created by mcm for a Machine.
    fn is_ours(&self, wanted: MachineIdentity<'_>) -> bool {
        !wanted.uid.is_empty() && self.name() == wanted.name && self.uid() == Some(wanted.uid)
    }
}

impl Part for Port {
    fn name(&self) -> &str {
        &self.name
    }

    fn uid(&self) -> Option<&str> {
        uid_of(&self.description)
    }

    fn has(&self, markers: &ClassMarkers) -> bool {
        markers.are_on(self.tags.iter().map(String::as_str))
    }
}

impl Part for Volume {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> Option<&str> {
        self.metadata.get(UID_KEY).map(String::as_str).filter(|uid| !uid.is_empty())
    }

    fn has(&self, markers: &ClassMarkers) -> bool {
        markers.are_on(self.metadata.keys().map(String::as_str))
    }
}

impl Port {
    /// Its address pairs with those of pods, if some of them are missing.
    pub fn pairs_with(&self, cidrs: &[String]) -> Option<Vec<AddressPair>> {
        let allowed: BTreeSet<&str> = self.allowed_address_pairs.iter().map(|pair| pair.ip_address.as_str()).collect();
        let mut missing = cidrs.iter().filter(|cidr| !allowed.contains(cidr.as_str())).peekable();
        missing.peek()?;
        let missing = missing.map(|cidr| AddressPair { ip_address: cidr.clone(), mac_address: None });
        Some(self.allowed_address_pairs.iter().cloned().chain(missing).collect())
    }
}

impl Volume {
    /// When it was created, as far as the clocks of this host and of Cinder agree.
    pub fn since(&self) -> Instant {
        since(self.created_at)
    }

    /// It is being filled with the image.
    pub fn is_pending(&self) -> bool {
        ["creating", "downloading"].contains(&self.status.as_str())
    }

    pub fn is_available(&self) -> bool {
        self.status == "available"
    }

    /// It can never be used.
    pub fn is_broken(&self) -> bool {
        self.status.starts_with("error")
    }

    /// The server that has it; empty for none.
    pub fn server(&self) -> &str {
        self.attachments.iter().find_map(|one| one.server_id.as_deref()).unwrap_or_default()
    }

    /// A server has it, or is about to get or to lose it.
    pub fn is_attached(&self) -> bool {
        ["in-use", "attaching", "detaching", "reserved"].contains(&self.status.as_str())
    }

    /// It is being deleted.
    pub fn is_leaving(&self) -> bool {
        self.status == "deleting"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    const WANTED: MachineIdentity<'static> = MachineIdentity { name: "m", uid: "u" };

    fn markers() -> ClassMarkers {
        ClassMarkers { cluster: "kubernetes.io-cluster-a".to_owned(), role: "kubernetes.io-role-node".to_owned() }
    }

    fn port(name: &str, description: &str, tags: &[&str]) -> Port {
        let port = json!({
            "id": "p", "name": name, "network_id": "n", "device_id": "", "description": description, "tags": tags,
            "allowed_address_pairs": [{"ip_address": "10.96.0.0/11", "mac_address": "fa:16:3e:00:00:01"}],
        });
        serde_json::from_value(port).unwrap()
    }

    const BOTH: &[&str] = &["kubernetes.io-cluster-a", "kubernetes.io-role-node"];

    #[rstest]
    #[case::ours("m", "machine.sapcloud.io-machine-uid=u", BOTH, true, true)]
    #[case::without_its_tags("m", "machine.sapcloud.io-machine-uid=u", &[], true, true)]
    #[case::of_the_reference("m", "", BOTH, true, false)]
    #[case::of_another_machine("m", "machine.sapcloud.io-machine-uid=v", BOTH, false, false)]
    #[case::by_hand("m", "", &[], false, false)]
    #[case::of_another_cluster("m", "", &["kubernetes.io-cluster-b", "kubernetes.io-role-node"], false, false)]
    #[case::of_another_name("n", "machine.sapcloud.io-machine-uid=u", BOTH, false, false)]
    fn a_port_is_of_a_machine_by_its_name_and_marks(
        #[case] name: &str,
        #[case] description: &str,
        #[case] tags: &[&str],
        #[case] is_of_machine: bool,
        #[case] is_ours: bool,
    ) {
        let port = port(name, description, tags);
        assert_eq!((port.is_of(WANTED, &markers()), port.is_ours(WANTED)), (is_of_machine, is_ours));
        assert!(!port.is_ours(MachineIdentity { uid: "", ..WANTED }));
    }

    #[test]
    fn address_pairs_are_added_to_those_that_are_there() {
        let port = port("m", "", &[]);
        let cidrs = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(port.pairs_with(&cidrs(&["10.96.0.0/11"])), None);
        let pairs = port.pairs_with(&cidrs(&["10.96.0.0/11", "fd00::/48"])).unwrap();
        let expected =
            json!([{"ip_address": "10.96.0.0/11", "mac_address": "fa:16:3e:00:00:01"}, {"ip_address": "fd00::/48"}]);
        assert_eq!(serde_json::to_value(pairs).unwrap(), expected);
    }

    /// One port of others must not make the list unreadable.
    #[rstest]
    #[case("name")]
    #[case("device_id")]
    #[case("description")]
    #[case("tags")]
    #[case("allowed_address_pairs")]
    #[case("fixed_ips")]
    fn null_is_empty(#[case] field: &str) {
        let mut value = json!({
            "id": "p", "name": "m", "network_id": "n", "device_id": "s", "description": "", "tags": [],
            "allowed_address_pairs": [], "fixed_ips": [],
        });
        value[field] = Value::Null;
        let port: Port = serde_json::from_value(value).unwrap();
        assert_eq!((port.name.is_empty(), port.device_id.is_empty()), (field == "name", field == "device_id"));
        let volume = json!({"id": "v", "name": null, "status": "available", "metadata": null, "attachments": null,
            "created_at": "2026-11-26T21:00:00Z"});
        assert!(serde_json::from_value::<Volume>(volume).unwrap().server().is_empty());
    }

    #[rstest]
    #[case("2026-11-26T21:00:00.000000")]
    #[case("2026-11-26T21:00:00Z")]
    fn the_time_of_a_volume_is_utc(#[case] time: &str) {
        let volume: Value = json!({"id": "v", "name": null, "status": "creating", "metadata": {}, "created_at": time});
        let volume: Volume = serde_json::from_value(volume).unwrap();
        assert_eq!(volume.created_at, "2026-11-26T21:00:00Z".parse().unwrap());
        assert!(volume.is_pending() && !volume.is_available() && volume.name().is_empty());
    }
}
