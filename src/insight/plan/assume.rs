//! Faults that a plan assumes: a class of which the cloud has no VM left, a zone whose Nodes are silent. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use mcm_api::{
    labels,
    machine::{Machine, MachineClass},
};
use mcm_rules::plan::counted;

/// A fault that a user names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AssumedFault {
    /// The cloud refuses each creation of a VM of this class.
    StockOut(String),
    /// The Nodes of this zone are silent, and no VM can be created in it.
    ZoneDown(String),
}

impl FromStr for AssumedFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some(("stock-out", class)) if !class.is_empty() => Ok(Self::StockOut(class.to_owned())),
            Some(("zone-down", zone)) if !zone.is_empty() => Ok(Self::ZoneDown(zone.to_owned())),
            _ => Err("it is stock-out=CLASS or zone-down=ZONE".to_owned()),
        }
    }
}

/// Faults applied to the facts of a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultScene {
    /// The classes of which no VM can be created.
    pub(super) out_of_stock: BTreeSet<String>,
    /// The assumptions in words.
    pub(super) notes: Vec<String>,
}

impl FaultScene {
    /// Silences the Nodes of the zones. A class of such a zone, or whose machines all run in such zones, has no VM left.
    pub(super) fn apply<'a>(
        faults: &BTreeSet<AssumedFault>,
        machines: impl Iterator<Item = &'a Machine> + Clone,
        classes: &BTreeMap<String, MachineClass>,
        nodes: Option<&mut Vec<Value>>,
        now: Timestamp,
    ) -> Self {
        let mut scene = Self::default();
        let nodes = nodes.map_or(&mut [][..], |nodes| nodes.as_mut_slice());
        let mut silent: BTreeSet<String> = BTreeSet::new();
        for fault in faults {
            match fault {
                AssumedFault::StockOut(class) => {
                    scene.notes.push(format!("assumed: the cloud has no VM of class {class} left"));
                    scene.out_of_stock.insert(class.clone());
                }
                AssumedFault::ZoneDown(zone) => {
                    let is_within = |node: &&mut Value| node["metadata"]["labels"][labels::ZONE] == zone.as_str();
                    let before = silent.len();
                    for node in nodes.iter_mut().filter(is_within) {
                        silence(node, now);
                        silent.extend(node["metadata"]["name"].as_str().map(str::to_owned));
                    }
                    let of_zone = classes.iter().filter(|(_, class)| zone_of(class) == Some(zone));
                    scene.out_of_stock.extend(of_zone.map(|(name, _)| name.clone()));
                    let count = counted(silent.len() - before, "Node");
                    scene.notes.push(format!("assumed: zone {zone} is down, with {count}"));
                }
            }
        }
        let mut of_classes: BTreeMap<&str, bool> = BTreeMap::new();
        for machine in machines {
            let is_silent = machine.node_name().is_some_and(|node| silent.contains(node));
            let all = of_classes.entry(&machine.spec.class.name).or_insert(true);
            *all &= is_silent;
        }
        let of_zones = of_classes.into_iter().filter(|(_, is_down)| *is_down).map(|(class, _)| class.to_owned());
        scene.out_of_stock.extend(of_zones);
        scene
    }
}

/// The zone that a class gives its VMs.
fn zone_of(class: &MachineClass) -> Option<&String> {
    class.node_template.as_ref().map(|template| &template.zone)
}

/// The Node has not reported since now.
fn silence(node: &mut Value, now: Timestamp) {
    let unknown = json!({
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "lastTransitionTime": format!("{now:.0}"),
    });
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let others = conditions.into_iter().filter(|one| one["type"] != "Ready");
    node["status"]["conditions"] = others.chain([unknown]).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, class: &str) -> Machine {
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "node": name } },
            "spec": { "class": { "kind": "MachineClass", "name": class } },
        }))
        .unwrap()
    }

    fn node(name: &str, zone: &str) -> Value {
        json!({
            "metadata": { "name": name, "labels": { (labels::ZONE): zone } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "False" }] },
        })
    }

    #[test]
    fn a_zone_silences_its_nodes_and_the_classes_that_are_in_no_other() {
        let machines = [machine("a", "small"), machine("b", "large"), machine("c", "large")];
        let mut nodes = vec![node("a", "eu-1a"), node("b", "eu-1a"), node("c", "eu-1b")];
        let faults = BTreeSet::from(["zone-down=eu-1a".parse().unwrap()]);
        let class = json!({ "metadata": { "name": "next" }, "provider": "simulated", "providerSpec": {}, "nodeTemplate": { "zone": "eu-1a" } });
        let classes = BTreeMap::from([("next".to_owned(), serde_json::from_value(class).unwrap())]);
        let scene = FaultScene::apply(&faults, machines.iter(), &classes, Some(&mut nodes), Timestamp::UNIX_EPOCH);
        let ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array().unwrap();
            assert_eq!(conditions.len(), 2, "{node}");
            conditions.iter().find(|one| one["type"] == "Ready").unwrap()["status"].clone()
        };
        assert_eq!(nodes.iter().map(ready).collect::<Vec<_>>(), ["Unknown", "Unknown", "True"]);
        assert_eq!(scene.out_of_stock, BTreeSet::from(["next", "small"].map(str::to_owned)));
        assert_eq!(scene.notes, ["assumed: zone eu-1a is down, with 2 Nodes"]);
    }

    #[test]
    fn a_fault_has_a_name_and_a_value() {
        assert_eq!("stock-out=small".parse(), Ok(AssumedFault::StockOut("small".to_owned())));
        for text in ["stock-out=", "zone-down", "pdb=strict", ""] {
            assert!(text.parse::<AssumedFault>().is_err(), "{text}");
        }
    }
}
