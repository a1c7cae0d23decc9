//! Each machine from its Cluster to its Node, as text. Pure.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{Attribute, Cell, Color};
use jiff::Timestamp;
use mcm::cli::demo::{DemoView, shortened, table};
use serde_json::Value;

use crate::{
    props::{Kind, Props},
    scene::condition,
};

/// No object of this kind.
const NONE: &str = "–";

impl DemoView for Props {
    fn frame(&self, _now: Timestamp, width: u16, colours: bool) -> String {
        let mut table = table(width, colours);
        table.set_header(["CLUSTER, DEPLOYMENT, MACHINE", "MACHINE", "MCMMACHINE", "NATIVE MACHINE", "NODE"]);
        for (name, cluster) in self.all(Kind::Cluster) {
            table.add_row([heading(&format!("Cluster {name}")), state(&state_of_cluster(cluster))]);
        }
        for (owner, title, ready) in owners(self) {
            table.add_row([heading(&format!("  {title}")), Cell::new(ready)]);
            for name in machines(self).into_iter().filter(|name| owner_of(self, name) == Some(&owner)) {
                table.add_row(row(self, name));
            }
        }
        for name in machines(self).into_iter().filter(|name| owner_of(self, name).is_none()) {
            table.add_row(row(self, name));
        }
        if self.all(Kind::Cluster).next().is_none() {
            table.add_row(["(none)"]);
        }
        table.to_string()
    }

    fn states(&self) -> BTreeMap<String, String> {
        let clusters = self.all(Kind::Cluster).map(|(name, cluster)| (name.clone(), state_of_cluster(cluster)));
        let machines = machines(self).into_iter().map(|name| (name.clone(), summary(self, name)));
        clusters.chain(machines).collect()
    }

    fn reasons(&self) -> Vec<String> {
        let objects = self.all(Kind::MCMMachine).chain(self.all(Kind::MachinePool));
        let told = objects.map(|(name, object)| format!("{name}: {}", object["status"]["conditions"]));
        self.states().into_iter().map(|(name, state)| format!("{name} is {state}")).chain(told).collect()
    }
}

/// Whatever has machines: its name, what it is, and how many are ready. One name is that of a deployment of Cluster API and of a
/// native one while machines go from one to the other.
fn owners(props: &Props) -> Vec<(String, String, String)> {
    let kinds = [
        (Kind::MachineDeployment, "MachineDeployment", "/status/readyReplicas"),
        (Kind::MachinePool, "MachinePool", "/status/readyReplicas"),
        (Kind::NativeDeployment, "MCM MachineDeployment", "/status/readyReplicas"),
    ];
    let mut owners: Vec<(String, String, String)> = Vec::new();
    for (kind, title, ready) in kinds {
        for (name, object) in props.all(kind) {
            if owners.iter().all(|(other, ..)| other != name) {
                let ready = object.pointer(ready).and_then(Value::as_u64).unwrap_or_default();
                let wanted = object["spec"]["replicas"].as_u64().unwrap_or_default();
                owners.push((name.clone(), format!("{title} {name}"), format!("{ready} of {wanted}")));
            }
        }
    }
    owners
}

/// Names of all machines; a Machine, its MCMMachine, its native Machine and its Node have one name.
fn machines(props: &Props) -> BTreeSet<&String> {
    let kinds = [Kind::Machine, Kind::MCMMachine, Kind::NativeMachine];
    kinds.into_iter().flat_map(|kind| props.all(kind)).map(|(name, _)| name).collect()
}

fn owner_of<'p>(props: &'p Props, machine: &str) -> Option<&'p String> {
    let kinds = [Kind::MachineDeployment, Kind::MachinePool, Kind::NativeDeployment];
    let all = kinds.into_iter().flat_map(|kind| props.all(kind)).map(|(name, _)| name);
    all.filter(|name| machine.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('-'))).max()
}

fn row(props: &Props, name: &str) -> Vec<Cell> {
    let machine = props.find(Kind::Machine, name).map(|object| text(&object["status"]["phase"], "Pending"));
    let infrastructure = props.find(Kind::MCMMachine, name).map(|object| {
        let ready = condition(object, "Ready");
        let (status, reason) = ready.split_once(' ').unwrap_or(("", "New"));
        if status == "True" { "Ready".to_owned() } else { reason.to_owned() }
    });
    let native = props.find(Kind::NativeMachine, name).map(phase_of_native);
    let states = [machine, infrastructure, native, props.find(Kind::Node, name).map(state_of_node)];
    let cells = states.map(|found| state(&found.unwrap_or_else(|| NONE.to_owned())));
    [Cell::new(format!("    {name}"))].into_iter().chain(cells).collect()
}

/// The phase of a machine on the side that has it.
fn summary(props: &Props, name: &str) -> String {
    let machine = props.find(Kind::Machine, name).map(|object| text(&object["status"]["phase"], "Pending"));
    let native = || props.find(Kind::NativeMachine, name).map(|native| format!("{}, native", phase_of_native(native)));
    let phase = machine.or_else(native).unwrap_or_else(|| "Pending".to_owned());
    let node = props.find(Kind::Node, name).map(state_of_node);
    match node {
        Some(node) if node != "Ready" => format!("{phase}, Node {node}"),
        _ => phase,
    }
}

fn state_of_cluster(cluster: &Value) -> String {
    let phase = text(&cluster["status"]["phase"], "Pending");
    if condition(cluster, "Available").starts_with("True") { format!("{phase}, Available") } else { phase }
}

fn phase_of_native(machine: &Value) -> String {
    let phase = text(&machine["status"]["currentStatus"]["phase"], "Creating");
    if machine["metadata"]["deletionTimestamp"].is_null() { phase } else { "Terminating".to_owned() }
}

fn state_of_node(node: &Value) -> String {
    let ready = condition(node, "Ready").starts_with("True");
    let cordoned = node["spec"]["unschedulable"] == true;
    match (ready, cordoned) {
        (true, false) => "Ready",
        (true, true) => "Ready, cordoned",
        (false, _) => "NotReady",
    }
    .to_owned()
}

fn text(value: &Value, absent: &str) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or(absent).to_owned()
}

fn heading(text: &str) -> Cell {
    Cell::new(text).add_attribute(Attribute::Bold)
}

fn state(text: &str) -> Cell {
    let colour = match text {
        "Running" | "Ready" | "Provisioned, Available" => Color::Green,
        "Failed" | "NotReady" | "Unknown" => Color::Red,
        "Deleting" | "Terminating" | NONE => Color::DarkGrey,
        _ => Color::Cyan,
    };
    Cell::new(shortened(text, 24)).fg(colour)
}
