//! A server of Nova.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use mcm_driver::{
    Vm,
    cloud::{ClassMarkers, CloudVm, VmOwnership},
};
use serde::{Deserialize, Deserializer};
use tokio::time::Instant;

use super::{
    names::{IDS, MARKERS, OWNER_KEY, UID_KEY},
    spec::Scope,
};

/// Statuses of deleted servers, of which Nova may keep a record for a while.
const GONE: [&str; 2] = ["DELETED", "SOFT_DELETED"];
/// Statuses of servers that exist and do not run. One in status ERROR may run all the same.
const HALTED: [&str; 5] = ["SHUTOFF", "PAUSED", "SUSPENDED", "SHELVED", "SHELVED_OFFLOADED"];

/// A server. Fields that Nova always sends must be there: an answer without them is an error.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Server {
    pub id: String,
    #[serde(deserialize_with = "or_empty")]
    name: String,
    pub status: String,
    metadata: BTreeMap<String, String>,
    addresses: BTreeMap<String, Vec<Address>>,
    created: Timestamp,
    #[serde(rename = "OS-EXT-STS:task_state")]
    task: Option<String>,
    /// The time when it ran first. A cloud may hide it.
    #[serde(rename = "OS-SRV-USG:launched_at", default, deserialize_with = "given")]
    launched: Option<Option<String>>,
    #[serde(rename = "OS-EXT-AZ:availability_zone")]
    zone: Option<String>,
    /// Only with status ERROR.
    fault: Option<Fault>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Address {
    addr: String,
    #[serde(rename = "OS-EXT-IPS:type")]
    kind: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Fault {
    message: String,
}

/// Services write `null` for what is empty, as do plugins of Neutron and drivers of Cinder.
pub(super) fn or_empty<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// A value that may be `null`, which is more than no value.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// How far a server has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Building,
    /// It never ran, for this reason.
    Failed(String),
    /// It runs, or did so once.
    Built,
    BeingDeleted,
}

impl Server {
    /// It exists.
    pub fn exists(&self) -> bool {
        !GONE.contains(&self.status.as_str())
    }

    pub fn stage(&self) -> Stage {
        match self.status.as_str() {
            _ if self.task.as_deref() == Some("deleting") => Stage::BeingDeleted,
            "BUILD" => Stage::Building,
            "ERROR" if self.launched == Some(None) => Stage::Failed(self.fault_text()),
            _ => Stage::Built,
        }
    }

    /// Why Nova gave up a change of it, if it works on none.
    pub fn fault_at_rest(&self) -> Option<String> {
        (self.status == "ERROR" && self.task.is_none()).then(|| self.fault_text())
    }

    /// It has the markers of a class.
    pub fn has(&self, markers: &ClassMarkers) -> bool {
        markers.are_on(self.metadata.keys().map(String::as_str))
    }

    /// When it was created, as far as the clocks of this host and of Nova agree.
    pub fn since(&self) -> Instant {
        since(self.created)
    }

    pub fn provider_id(&self, region: &str) -> String {
        IDS.node_form(region, &self.id)
    }

    pub fn vm(&self, region: &str) -> Vm {
        let is_leaving = self.stage() == Stage::BeingDeleted;
        let halted = HALTED.contains(&self.status.as_str()).then(|| self.status.clone());
        Vm {
            provider_id: self.provider_id(region),
            node_provider_id: None,
            node_name: self.name.clone(),
            zone: self.zone.clone().filter(|zone| !zone.is_empty()),
            addresses: self.addresses(),
            last_known_state: None,
            halted: if is_leaving { Some("DELETING".to_owned()) } else { halted },
        }
    }

    fn fault_text(&self) -> String {
        self.fault.as_ref().map_or_else(|| "Nova names no reason".to_owned(), |fault| fault.message.clone())
    }

    /// Addresses of its ports, then floating ones.
    fn addresses(&self) -> Vec<NodeAddress> {
        let of = |is_floating: bool, kind: &'static str| {
            let all = self.addresses.values().flatten();
            let all = all.filter(move |one| (one.kind.as_deref() == Some("floating")) == is_floating);
            all.map(move |one| NodeAddress { type_: kind.to_owned(), address: one.addr.clone() })
        };
        of(false, "InternalIP").chain(of(true, "ExternalIP")).collect()
    }
}

/// The time of this process at which something was created.
pub(crate) fn since(created: Timestamp) -> Instant {
    let age = Duration::try_from(Timestamp::now().duration_since(created)).unwrap_or_default();
    let now = Instant::now();
    now.checked_sub(age).unwrap_or(now)
}

impl CloudVm for Server {
    type Scope = Scope;

    const REUSES_IDS: bool = false;

    fn id(&self) -> &str {
        &self.id
    }

    fn machine_name(&self) -> &str {
        &self.name
    }

    fn machine_uid(&self) -> Option<&str> {
        self.metadata.get(UID_KEY).map(String::as_str).filter(|uid| !uid.is_empty())
    }

    fn owner(&self) -> Option<&str> {
        self.metadata.get(OWNER_KEY).map(String::as_str)
    }

    /// A server without the markers of the class is left alone, unless mcm created it, which its UID shows.
    fn belonging(&self, scope: &Scope) -> VmOwnership {
        let keys = self.metadata.keys().map(String::as_str);
        if self.has(&scope.markers) {
            VmOwnership::Ours
        } else if self.machine_uid().is_none() || scope.markers.are_foreign(keys, MARKERS) {
            VmOwnership::Foreign
        } else {
            VmOwnership::Unmarked
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn server(changes: &Value) -> Server {
        let mut server = json!({
            "id": "i", "name": "m", "status": "ACTIVE", "metadata": {}, "addresses": {}, "created": "2026-11-26T21:00:00Z",
            "OS-EXT-STS:task_state": null, "OS-SRV-USG:launched_at": "2026-11-26T21:00:10.000000",
        });
        for (key, value) in changes.as_object().unwrap() {
            server[key] = value.clone();
        }
        server.as_object_mut().unwrap().retain(|_, value| *value != "absent");
        serde_json::from_value(server).unwrap()
    }

    /// One server of others must not make the list unreadable.
    #[test]
    fn a_server_may_have_no_name() {
        assert_eq!(server(&json!({"name": null})).machine_name(), "");
    }

    #[rstest]
    #[case(json!({"status": "BUILD", "OS-SRV-USG:launched_at": null}), Stage::Building)]
    #[case(json!({}), Stage::Built)]
    #[case::stopped(json!({"status": "SHUTOFF"}), Stage::Built)]
    #[case::failed(json!({"status": "ERROR", "OS-SRV-USG:launched_at": null, "fault": {"message": "No valid host"}}), Stage::Failed("No valid host".to_owned()))]
    #[case::failed_without_a_reason(json!({"status": "ERROR", "OS-SRV-USG:launched_at": null}), Stage::Failed("Nova names no reason".to_owned()))]
    #[case::failed_later(json!({"status": "ERROR", "fault": {"message": "a migration failed"}}), Stage::Built)]
    #[case::of_a_cloud_that_hides_it(json!({"status": "ERROR", "OS-SRV-USG:launched_at": "absent"}), Stage::Built)]
    #[case::being_deleted(json!({"OS-EXT-STS:task_state": "deleting"}), Stage::BeingDeleted)]
    fn a_server_has_a_stage(#[case] changes: Value, #[case] expected: Stage) {
        assert_eq!(server(&changes).stage(), expected);
    }

    #[rstest]
    #[case("ACTIVE", None, true)]
    #[case("SHUTOFF", Some("SHUTOFF"), true)]
    #[case("ERROR", None, true)]
    #[case("SOFT_DELETED", None, false)]
    fn a_server_may_be_halted_or_gone(#[case] status: &str, #[case] halted: Option<&str>, #[case] exists: bool) {
        let server = server(&json!({"status": status}));
        assert_eq!((server.vm("r").halted.as_deref(), server.exists()), (halted, exists));
    }

    #[test]
    fn a_server_that_is_being_deleted_does_not_run() {
        let server = server(&json!({"OS-EXT-STS:task_state": "deleting"}));
        assert_eq!((server.vm("r").halted.as_deref(), server.exists()), (Some("DELETING"), true));
    }

    #[test]
    fn addresses_of_all_networks_have_types() {
        let addresses = json!({
            "b": [{"addr": "10.0.0.2", "version": 4, "OS-EXT-IPS:type": "fixed"}, {"addr": "198.51.100.7", "version": 4, "OS-EXT-IPS:type": "floating"}],
            "a": [{"addr": "fd00::2", "version": 6}],
        });
        let vm = server(&json!({"addresses": addresses})).vm("r");
        let found: Vec<String> = vm.addresses.iter().map(|one| format!("{} {}", one.type_, one.address)).collect();
        assert_eq!(found, ["InternalIP fd00::2", "InternalIP 10.0.0.2", "ExternalIP 198.51.100.7"]);
        assert_eq!(vm.provider_id, "openstack:///r/i");
    }

    #[test]
    fn a_clock_that_is_behind_does_not_matter() {
        let future = server(&json!({"created": "2999-01-01T00:00:00Z"}));
        assert!(future.since().elapsed() < Duration::from_secs(60));
    }
}
