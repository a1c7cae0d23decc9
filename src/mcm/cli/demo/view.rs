//! Machines as text. Pure.

use std::{collections::BTreeMap, sync::Arc};

use comfy_table::{Attribute, Cell, CellAlignment, Color};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{
    props::DemoObjects,
    shown::{DemoView, shortened, table},
};
use crate::api::machine::{Machine, MachinePhase};

/// Phase of a VM that no machine has.
const NO_MACHINE: &str = "no machine";

impl DemoView for DemoObjects {
    fn frame(&self, now: Timestamp, width: u16, colours: bool) -> String {
        frame(self, now, width, colours)
    }

    fn states(&self) -> BTreeMap<String, String> {
        let machines = self.machines.iter().map(|(name, machine)| (name.clone(), shown_phase(machine)));
        let by_hand = self.vms.by_hand.iter().map(|name| (name.clone(), NO_MACHINE.to_owned()));
        machines.chain(by_hand).collect()
    }

    fn reasons(&self) -> Vec<String> {
        let reason = |(name, machine): (&String, &Arc<Machine>)| {
            let operation = machine.status.clone().unwrap_or_default().last_operation;
            format!("{name} is {:?}: {}", machine.phase(), operation.description)
        };
        self.machines.iter().map(reason).collect()
    }
}

/// Columns that all but the last one take at most: names of the demo, the longest phase and state of a Node, and borders.
const WITHOUT_OPERATION: u16 = 82;
/// The last operation is shown where so many columns are left for it.
const LEAST_OPERATION: u16 = 16;

/// The machines and their nodes, and VMs without a machine: one line for each.
fn frame(props: &DemoObjects, now: Timestamp, width: u16, colours: bool) -> String {
    let room = width.saturating_sub(WITHOUT_OPERATION);
    let shows_operation = room >= LEAST_OPERATION;
    let columns = if shows_operation { 7 } else { 6 };
    let mut table = table(width, colours);
    let header = ["MACHINE", "PHASE", "CLASS", "NODE", "PODS", "AGE", "LAST OPERATION"];
    table.set_header(header.into_iter().take(columns));
    for (name, machine) in &props.machines {
        let phase = machine.phase();
        let operation =
            machine.status.as_ref().map(|status| status.last_operation.description.clone()).unwrap_or_default();
        let cells = [
            Cell::new(name).add_attribute(Attribute::Bold),
            Cell::new(shown_phase(machine)).fg(colour_of(&phase)),
            Cell::new(&machine.spec.class.name),
            Cell::new(node(props, machine)),
            Cell::new(pods(props, machine)).set_alignment(CellAlignment::Right),
            Cell::new(age(machine, now)).set_alignment(CellAlignment::Right),
            Cell::new(shortened(&operation, usize::from(room.clamp(LEAST_OPERATION, 48)))),
        ];
        table.add_row(cells.into_iter().take(columns));
    }
    for name in &props.vms.by_hand {
        let cells = [
            Cell::new(name).add_attribute(Attribute::Bold),
            Cell::new(NO_MACHINE).fg(Color::Magenta),
            Cell::new(""),
            Cell::new("–"),
            Cell::new(""),
            Cell::new(""),
            Cell::new("VM created by hand"),
        ];
        table.add_row(cells.into_iter().take(columns));
    }
    if props.machines.is_empty() && props.vms.by_hand.is_empty() {
        table.add_row(["(none)"]);
    }
    table.to_string()
}

/// The phase as `kubectl get mc` shows it, with a text for the empty one.
fn shown_phase(machine: &Machine) -> String {
    let phase = machine.phase();
    let shown = match &phase {
        MachinePhase::New if machine.metadata.deletion_timestamp.is_none() => "Creating",
        MachinePhase::New => "Terminating",
        phase => phase.as_str(),
    };
    shown.to_owned()
}

fn node(props: &DemoObjects, machine: &Machine) -> &'static str {
    let Some(node) = machine.node_name().and_then(|name| props.nodes.get(name)) else { return "–" };
    let ready = node.status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    match (ready, node.spec.unschedulable) {
        (true, false) => "Ready",
        (true, true) => "Ready, cordoned",
        (false, _) => "NotReady",
    }
}

fn pods(props: &DemoObjects, machine: &Machine) -> usize {
    let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == machine.node_name();
    machine.node_name().map_or(0, |_| props.pods.values().filter(|pod| on_node(pod)).count())
}

fn age(machine: &Machine, now: Timestamp) -> String {
    let created = machine.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
    format!("{}s", now.duration_since(created).as_secs().max(0))
}

const fn colour_of(phase: &MachinePhase) -> Color {
    match phase {
        MachinePhase::Running | MachinePhase::Available => Color::Green,
        MachinePhase::New | MachinePhase::Pending => Color::Cyan,
        MachinePhase::Terminating => Color::DarkGrey,
        MachinePhase::Failed | MachinePhase::CrashLoopBackOff => Color::Red,
        _ => Color::Yellow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn props() -> DemoObjects {
        let machine = |name: &str, phase: &str| {
            let text = format!(
                r#"{{"metadata": {{"name": "{name}", "labels": {{"node": "{name}"}}, "creationTimestamp": "2026-01-01T00:00:00Z"}},
                    "spec": {{"class": {{"kind": "MachineClass", "name": "small"}}}},
                    "status": {{"currentStatus": {{"phase": "{phase}"}},
                               "lastOperation": {{"description": "Machine {name} successfully joined the cluster in 2s, and more words than fit"}}}}}}"#
            );
            Arc::new(serde_json::from_str::<Machine>(&text).unwrap())
        };
        let mut props = DemoObjects::default();
        props.machines.insert("pool-a".into(), machine("pool-a", "Running"));
        props.machines.insert("pool-b".into(), machine("pool-b", ""));
        let node =
            r#"{"metadata": {"name": "pool-a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}"#;
        props.vms.by_hand.insert("by-hand".into());
        props.nodes.insert("pool-a".into(), Arc::new(serde_json::from_str(node).unwrap()));
        props
    }

    #[test]
    fn a_frame_fits_its_width_and_names_every_machine() {
        let now: Timestamp = "2026-01-01T00:00:07Z".parse().unwrap();
        for width in [80, 100, 120, 200] {
            let mut props = props();
            let cordoned = r#"{"metadata": {"name": "pool-6d689-bb6vn"}, "spec": {"unschedulable": true},
                               "status": {"conditions": [{"type": "Ready", "status": "True"}]}}"#;
            let mut machine = Machine::clone(&props.machines["pool-a"]);
            machine.metadata.labels = Some([("node".to_owned(), "pool-6d689-bb6vn".to_owned())].into());
            machine.status.as_mut().unwrap().current_status.phase = MachinePhase::Terminating;
            props.machines.insert("pool-6d689-bb6vn".into(), Arc::new(machine));
            props.nodes.insert("pool-6d689-bb6vn".into(), Arc::new(serde_json::from_str(cordoned).unwrap()));
            let frame = frame(&props, now, width, false);
            assert!(frame.lines().all(|line| line.chars().count() <= usize::from(width)), "{frame}");
            // Borders, the header, its line, and one line for each.
            assert_eq!(frame.lines().count(), 4 + props.machines.len() + props.vms.by_hand.len(), "{frame}");
            assert!(["pool-a", "pool-b", "pool-6d689-bb6vn"].iter().all(|name| frame.contains(name)), "{frame}");
        }
        insta::assert_snapshot!(frame(&props(), now, 120, false));
    }
}
