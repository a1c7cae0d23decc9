//! Plans, applies and lets the world go on, checking after every single action that the bounds hold.
//!
//! The log has one line per set after each plan: `m1` serves, `m2?` does not, `m3-` is being deleted, `m4*` is
//! updated in place. Names are short:
//! sets and Machines are numbered in the order of their creation.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use kube::ResourceExt;
use serde_json::{Value, json};

use super::oracle::Tally;
use crate::{
    machine_deployment::{Action, DeploymentPolicy, Snapshot, plan, rollout::lint::lint},
    object::{deletion_order::marked_at, suffix::NameSuffixes},
    testing::{Happening, World, merge},
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachinePhase, MachineSet},
    node::Node,
};
use mcm_rules::plan::{Plan, Step};

pub(super) const NAME: &str = "pool";

/// The order of simultaneous events.
pub(super) enum Order {
    /// Always the first in the list.
    Fixed,
    /// Any, by a seed.
    Random(NameSuffixes),
}

pub(super) struct Drive {
    pub world: World,
    pub policy: DeploymentPolicy,
    pub log: String,
    pub order: Order,
    /// No replicas were changed and no Machine failed since the start: the upper bound holds without excuse.
    pub is_plain: bool,
    /// Machines that are out of service and kept: so many fewer may serve.
    pub kept: i32,
    names: Names,
    last_waits: Vec<String>,
}

/// A deployment with this strategy.
pub(super) fn deployment(replicas: i32, strategy: Value) -> MachineDeployment {
    serde_json::from_value(json!({
        "metadata": {"name": NAME, "namespace": "shoot"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"name": NAME}},
            "strategy": strategy,
            "template": {
                "metadata": {"labels": {"name": NAME}},
                "spec": {"class": {"kind": "MachineClass", "name": "v1"}},
            },
        },
    }))
    .unwrap()
}

pub(super) fn rolling(surge: impl Into<Value>, unavailable: impl Into<Value>) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge.into(), "maxUnavailable": unavailable.into()}})
}

pub(super) fn recreate() -> Value {
    json!({"type": "Recreate"})
}

pub(super) fn in_place(surge: impl Into<Value>, unavailable: impl Into<Value>, orchestration: &str) -> Value {
    let (surge, unavailable) = (surge.into(), unavailable.into());
    json!({"type": "InPlaceUpdate", "rollingUpdate": null,
           "inPlaceUpdate": {"maxSurge": surge, "maxUnavailable": unavailable, "orchestrationType": orchestration}})
}

impl Drive {
    pub(super) fn of(deployment: MachineDeployment) -> Self {
        let mut world = World::new();
        world.deployments.create(&mut world.clock, deployment).unwrap();
        Self {
            world,
            policy: DeploymentPolicy { annotate_nodes: true, has_target: true },
            log: String::new(),
            order: Order::Fixed,
            is_plain: true,
            kept: 0,
            names: Names::default(),
            last_waits: Vec::new(),
        }
    }

    /// A deployment that has all its Machines, and a log that starts now.
    pub(super) fn settled(deployment: MachineDeployment) -> Self {
        let mut drive = Self::of(deployment);
        drive.run();
        drive.log.clear();
        drive
    }

    pub(super) fn deployment(&self) -> &Arc<MachineDeployment> {
        self.world.deployments.get(NAME).unwrap()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.world.deployment_snapshot(NAME).unwrap()
    }

    /// The user changes the spec.
    pub(super) fn edit(&mut self, change: Value) {
        self.say(&format!("user: {change}"));
        self.write(json!({ "spec": change }));
    }

    /// The autoscaler chooses Machines: their names, the time and the number of replicas, in one write.
    pub(super) fn scale_down(&mut self, replicas: i32, machines: &[&str]) {
        self.say(&format!("autoscaler: delete {}, replicas {replicas}", machines.join(" and ")));
        let now = self.world.clock.now;
        let list: Vec<_> = machines.iter().map(|name| format!("{name}~{now}")).collect();
        let annotations = json!({ labels::TRIGGER_DELETION: list.join(","), labels::LAST_SCALER_CHANGE: now });
        self.write(json!({ "metadata": { "annotations": annotations }, "spec": { "replicas": replicas } }));
    }

    /// Writes the deployment as another client.
    fn write(&mut self, patch: Value) {
        self.is_plain &= patch["spec"].get("replicas").is_none();
        let seen = self.deployment().clone();
        let mut after = serde_json::to_value(seen.as_ref()).unwrap();
        merge(&mut after, &patch);
        let after: MachineDeployment = serde_json::from_value(after).unwrap();
        if after != *seen {
            self.world.deployments.patch(&mut self.world.clock, &seen, &patch).unwrap();
        }
    }

    /// Another template, by the name of its class.
    pub(super) fn edit_class(&mut self, class: &str) {
        self.edit(json!({"template": {"spec": {"class": {"name": class}}}}));
    }

    /// Another template for Machines that stay: only its labels differ.
    pub(super) fn edit_version(&mut self, version: &str) {
        self.edit(json!({"template": {"metadata": {"labels": {"version": version}}}}));
    }

    /// A user selects the Node of a Machine.
    pub(super) fn select(&mut self, machine: &str) {
        self.say(&format!("user: select the node of machine {machine}"));
        let node = self.world.machines.get(machine).unwrap().node_name().unwrap().to_owned();
        self.world.nodes.edit(&mut self.world.clock, &node, |node| {
            node.labels_mut().insert(labels::SELECTED_FOR_UPDATE, labels::SET);
        });
    }

    /// Names of the Machines, oldest first.
    pub(super) fn machine_names(&self) -> Vec<String> {
        let mut machines: Vec<_> =
            self.world.machines.all().map(|it| (it.creation_timestamp(), it.name_any())).collect();
        machines.sort();
        machines.into_iter().map(|(_, name)| name).collect()
    }

    /// Plans until there is nothing to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..12 {
            let Some(snapshot) = self.world.deployment_snapshot(NAME) else { return };
            let plan = plan(&snapshot, &self.policy);
            let waits: Vec<_> = plan.waits.iter().map(|wait| wait.text.clone()).collect();
            if plan.steps.is_empty() {
                if waits != self.last_waits {
                    waits.iter().for_each(|wait| self.say(&format!("      waiting for {wait}")));
                }
                self.last_waits = waits;
                return;
            }
            self.say_plan(&plan);
            assert_eq!(lint(&snapshot, &plan.steps), [], "{}", self.log);
            for step in &plan.steps {
                let before = Tally::of(&self.world);
                self.world.apply_deployment_action(&snapshot, &step.action).unwrap();
                self.check_action(before.as_ref(), &step.action);
            }
            self.say_sets();
        }
        panic!("planning never comes to rest:\n{}", self.log);
    }

    /// One thing happens. False if there is nothing that could.
    pub(super) fn happen(&mut self) -> bool {
        let due = self.world.due();
        let index = match &mut self.order {
            Order::Fixed => 0,
            Order::Random(suffixes) => pick(suffixes, due.len()),
        };
        let Some(happening) = due.get(index) else { return false };
        let happening = happening.clone();
        self.let_happen(&happening);
        true
    }

    pub(super) fn let_happen(&mut self, happening: &Happening) {
        self.say(&happening.to_string());
        self.is_plain &= !is_mishap(happening);
        let may_take_an_available_one = is_mishap(happening) || self.is_for_the_autoscaler(happening);
        let before = Tally::of(&self.world);
        self.world.happen(happening);
        self.world.clock.pass(1);
        self.check_happening(before.as_ref(), happening, may_take_an_available_one);
    }

    /// A set deletes a Machine that the autoscaler chose, regardless of the availability of others.
    fn is_for_the_autoscaler(&self, happening: &Happening) -> bool {
        let Happening::Chosen { machine, .. } = happening else { return false };
        marked_at(self.world.machines.get(machine).unwrap()).is_some()
    }

    /// Settles, and lets a number of things happen.
    pub(super) fn run_for(&mut self, happenings: usize) {
        self.settle();
        for _ in 0..happenings {
            if !self.happen() {
                return;
            }
            self.settle();
        }
    }

    /// Until nothing is left to happen.
    pub(super) fn run(&mut self) {
        self.run_for(2000);
        assert!(self.world.due().is_empty(), "the world never comes to rest:\n{}", self.log);
    }

    /// The relevant state of the world at rest, independent of the order of events.
    pub(super) fn end_state(&self) -> String {
        let mut text = String::new();
        let status = self.deployment().status.clone().unwrap_or_default();
        let conditions: Vec<_> =
            status.conditions.iter().map(|c| format!("{}={}/{}", c.type_, c.status, c.reason)).collect();
        writeln!(
            text,
            "{} machines, {} of the current template, {} available; {}",
            status.replicas,
            status.updated_replicas,
            status.available_replicas,
            conditions.join(" ")
        )
        .unwrap();
        let mut sets: Vec<_> = self.world.sets.all().collect();
        sets.sort_by_key(|set| set.spec.template.spec.class.name.clone());
        for set in sets {
            let machines = self.world.machines_of(set).count();
            // The time differs with the order.
            let kept = set.annotations().iter().filter(|(key, _)| *key != labels::LAST_SCALER_CHANGE);
            let annotations: Vec<_> = kept.map(|(key, value)| format!("{key}={value}")).collect();
            writeln!(
                text,
                "set {} of class {}: {} replicas, {machines} exist; {}",
                set.name_any(),
                set.spec.template.spec.class.name,
                set.spec.replicas,
                annotations.join(" ")
            )
            .unwrap();
        }
        let annotated = self.world.nodes.all().filter(|node| !node.annotations().is_empty()).count();
        // Another component removes the taint of critical components.
        let is_tainted =
            |node: &Arc<Node>| node.spec.taints.iter().any(|it| it.key != labels::CRITICAL_COMPONENTS_TAINT);
        let tainted = self.world.nodes.all().filter(|node| is_tainted(node)).count();
        writeln!(text, "{} nodes, {annotated} annotated, {tainted} tainted", self.world.nodes.all().count()).unwrap();
        self.names.shorten(&text)
    }

    /// The short name of a set or Machine.
    pub(super) fn short(&self, name: &str) -> String {
        self.names.shorten(name)
    }

    fn say(&mut self, line: &str) {
        self.names.learn(&self.world);
        writeln!(self.log, "{}", self.names.shorten(line)).unwrap();
    }

    fn say_plan(&mut self, plan: &Plan<Action>) {
        for step in &plan.steps {
            if let Action::CreateSet(set) = &step.action {
                self.names.set(&set.name_any());
            }
        }
        self.say("plan");
        let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
        for step in &plan.steps {
            if matches!(step.action, Action::PatchNode { .. }) {
                *nodes.entry(&step.reason).or_default() += 1;
            }
        }
        for step in &plan.steps {
            match &step.action {
                Action::PatchNode { .. } => {
                    if let Some(count) = nodes.remove(step.reason.as_str()) {
                        let nodes = if count == 1 { "node" } else { "nodes" };
                        self.say(&format!("  patch {count} {nodes}: {}", step.reason));
                    }
                }
                action => self.say(&format!("  {}: {}", verb(action), step.reason)),
            }
            self.say_event(step);
        }
    }

    fn say_event(&mut self, step: &Step<Action>) {
        if let Some(event) = &step.event {
            self.say(&format!("      event {}: {}", event.reason, event.message));
        }
    }

    /// desired/current/available of each set, and its Machines.
    fn say_sets(&mut self) {
        let mut sets: Vec<_> = self.world.sets.all().cloned().collect();
        sets.sort_by_key(|set| (set.creation_timestamp(), set.name_any()));
        for set in sets {
            let mut machines: Vec<_> = self.world.machines_of(&set).cloned().collect();
            if machines.is_empty() && set.spec.replicas == 0 {
                continue;
            }
            machines.sort_by_key(|machine| (machine.creation_timestamp(), machine.name_any()));
            let available = machines.iter().filter(|machine| machine.is_available()).count();
            let names: Vec<String> =
                machines.iter().map(|machine| format!("{}{}", machine.name_any(), mark(machine))).collect();
            let (name, desired, current) = (set.name_any(), set.spec.replicas, machines.len());
            self.say(format!("    {name} {desired}/{current}/{available} {}", names.join(" ")).trim_end());
        }
    }

    fn check_action(&self, before: Option<&Tally>, action: &Action) {
        let (Some(before), Some(after)) = (before, Tally::of(&self.world)) else { return };
        let is_about_sets = matches!(action, Action::PatchSet { .. } | Action::CreateSet(_) | Action::DeleteSet(_));
        let is_in_place = after.strategy == "InPlaceUpdate";
        let is_about_updates = is_in_place && matches!(action, Action::PatchNode { .. } | Action::PatchMachine { .. });
        if !is_about_sets && !is_about_updates {
            return;
        }
        if after.asked > before.asked {
            assert!(after.asked <= after.most, "asks for too many, {action:?}\n{}", self.log);
        }
        if after.strategy == "RollingUpdate" || is_in_place {
            let floor = before.serving.min(after.least - self.kept);
            assert!(after.serving >= floor, "too few would be available, {action:?}\n{}", self.log);
        }
        self.check_total(&after);
    }

    fn check_happening(&self, before: Option<&Tally>, happening: &Happening, may_take_an_available_one: bool) {
        let (Some(before), Some(after)) = (before, Tally::of(&self.world)) else { return };
        // Machines available in the end stay available until we decide otherwise: Machines that a set deletes were not
        // counted.
        if !may_take_an_available_one {
            assert!(after.serving >= before.serving, "{happening} took an available machine\n{}", self.log);
        }
        if after.strategy == "Recreate" {
            assert!(after.sets_with_machines <= 1, "machines of two sets\n{}", self.log);
        }
        self.check_total(&after);
    }

    fn check_total(&self, tally: &Tally) {
        assert!(!self.is_plain || tally.planned <= tally.most, "{} machines\n{}", tally.planned, self.log);
    }
}

fn is_mishap(happening: &Happening) -> bool {
    matches!(happening, Happening::Lost { .. } | Happening::Failed { .. })
}

/// Short names, in the order in which objects were first seen.
#[derive(Default)]
struct Names {
    sets: Vec<String>,
    machines: Vec<String>,
}

impl Names {
    fn learn(&mut self, world: &World) {
        let mut sets: Vec<_> = world.sets.all().map(|set| (set.creation_timestamp(), set.name_any())).collect();
        sets.sort();
        sets.into_iter().for_each(|(_, name)| self.set(&name));
        let serial = |name: &str| name.rsplit('-').next().map(str::to_owned);
        let mut machines: Vec<String> = world.machines.all().map(|machine| machine.name_any()).collect();
        machines.sort_by_key(|name| serial(name));
        for name in machines {
            if !self.machines.contains(&name) {
                self.machines.push(name);
            }
        }
    }

    fn set(&mut self, name: &str) {
        if !self.sets.iter().any(|known| known == name) {
            self.sets.push(name.to_owned());
        }
    }

    fn shorten(&self, text: &str) -> String {
        let short = |text: String, (index, name): (usize, &String), prefix: &str| {
            text.replace(name.as_str(), &format!("{prefix}{}", index + 1))
        };
        let text = self.machines.iter().enumerate().fold(text.to_owned(), |text, entry| short(text, entry, "m"));
        self.sets.iter().enumerate().fold(text, |text, entry| short(text, entry, "ms"))
    }
}

/// A number below `count`; 0 if `count` is 0.
pub(super) fn pick(suffixes: &mut NameSuffixes, count: usize) -> usize {
    let text = suffixes.next().unwrap();
    text.bytes().fold(0, |sum, byte| sum * 31 + usize::from(byte)) % count.max(1)
}

/// `*` is updated in place.
fn mark(machine: &Machine) -> &'static str {
    if matches!(machine.phase(), MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateFailed)
        && !machine.is_terminating()
    {
        return "*";
    }
    match (machine.is_terminating(), machine.is_available()) {
        (true, _) => "-",
        (false, false) => "?",
        (false, true) => "",
    }
}

fn verb(action: &Action) -> String {
    let name = |set: &MachineSet| set.name_any();
    match action {
        Action::PatchDeployment(_) | Action::RestoreReplicas(_) => "patch deployment".to_owned(),
        Action::PatchSet { set, .. } => format!("patch set {}", name(set)),
        Action::PatchMachine { machine, .. } => format!("patch machine {}", machine.name_any()),
        Action::CreateSet(set) => format!("create set {}", name(set)),
        Action::TrySet(set) => format!("try set {}", name(set)),
        Action::DeleteSet(set) => format!("delete set {}", name(set)),
        Action::PatchNode { node, .. } => format!("patch node {}", node.name_any()),
        Action::WriteStatus(_) => "write status".to_owned(),
    }
}
