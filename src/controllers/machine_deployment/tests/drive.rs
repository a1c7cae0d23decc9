//! Plans, applies and lets the world go on, watching after every single action that the bounds hold.

use std::{fmt::Write as _, sync::Arc};

use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::{
    Action, Policy, Snapshot, plan,
    rollout::Bounds,
    sets::{Family, SetView},
    validate::validate,
};
use crate::{
    api::machine::{MachineDeployment, MachineSet, StrategyType},
    controllers::{
        plan::Suffixes,
        testing::{Happening, World, merge},
    },
};

pub(super) const NAME: &str = "pool";

/// Who comes first when several things may happen.
pub(super) enum Order {
    /// Always the first in the list.
    Fixed,
    /// Any, by a seed.
    Random(Suffixes),
}

pub(super) struct Drive {
    pub world: World,
    pub policy: Policy,
    pub log: String,
    pub order: Order,
    /// No replicas were changed and no Machine failed since the start: the upper bound holds without excuse.
    pub is_plain: bool,
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

impl Drive {
    pub(super) fn of(deployment: MachineDeployment) -> Self {
        let mut world = World::new();
        world.deployments.create(&mut world.clock, deployment).unwrap();
        Self {
            world,
            policy: Policy { annotate_nodes: true, has_target: true },
            log: String::new(),
            order: Order::Fixed,
            is_plain: true,
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
    pub(super) fn wish(&mut self, change: Value) {
        self.is_plain &= change.get("replicas").is_none();
        writeln!(self.log, "user: {change}").unwrap();
        let seen = self.deployment().clone();
        let patch = json!({ "spec": change });
        let mut after = serde_json::to_value(seen.as_ref()).unwrap();
        merge(&mut after, &patch);
        let after: MachineDeployment = serde_json::from_value(after).unwrap();
        if after != *seen {
            self.world.deployments.patch(&mut self.world.clock, &seen, &patch).unwrap();
        }
    }

    /// Another template, by the name of its class.
    pub(super) fn wish_class(&mut self, class: &str) {
        self.wish(json!({"template": {"spec": {"class": {"name": class}}}}));
    }

    /// Plans until there is nothing to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..12 {
            let Some(snapshot) = self.world.deployment_snapshot(NAME) else { return };
            let plan = plan(&snapshot, &self.policy);
            let waits: Vec<_> = plan.waits.iter().map(|wait| wait.on.clone()).collect();
            if plan.steps.is_empty() {
                if waits != self.last_waits {
                    for wait in &waits {
                        writeln!(self.log, "      wait for {wait}").unwrap();
                    }
                }
                self.last_waits = waits;
                return;
            }
            writeln!(self.log, "plan").unwrap();
            for step in &plan.steps {
                writeln!(self.log, "  {}: {}", verb(&step.action), step.reason).unwrap();
                if let Some(note) = &step.event {
                    writeln!(self.log, "      event {}: {}", note.reason, note.message).unwrap();
                }
                let before = self.family();
                self.world.apply_deployment_action(&snapshot, &step.action).unwrap();
                self.check_action(&before, &step.action);
            }
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
        writeln!(self.log, "{happening}").unwrap();
        self.is_plain &= !matches!(happening, Happening::Lost { .. } | Happening::Failed { .. });
        let before = self.family();
        self.world.happen(happening);
        self.world.clock.pass(1);
        self.check_happening(&before, happening);
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

    /// What matters of the world when it has come to rest, whatever the way there.
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
            let annotations: Vec<_> = set.annotations().iter().map(|(key, value)| format!("{key}={value}")).collect();
            writeln!(
                text,
                "set {} of class {}: {} wanted, {machines} exist; {}",
                set.name_any(),
                set.spec.template.spec.class.name,
                set.spec.replicas,
                annotations.join(" ")
            )
            .unwrap();
        }
        let annotated = self.world.nodes.all().filter(|node| !node.annotations().is_empty()).count();
        let tainted = self.world.nodes.all().filter(|node| !node.spec.taints.is_empty()).count();
        writeln!(text, "{} nodes, {annotated} annotated, {tainted} tainted", self.world.nodes.all().count()).unwrap();
        text
    }

    /// What the bounds are watched by; none when the deployment is going or makes no sense.
    fn family(&self) -> Option<(Family, Bounds, StrategyType)> {
        let snapshot = self.world.deployment_snapshot(NAME)?;
        if snapshot.deployment.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let wish = validate(&snapshot.deployment).ok()?;
        Some((Family::gather(&snapshot, &wish.selector), wish.bounds, wish.strategy))
    }

    fn check_action(&self, before: &Option<(Family, Bounds, StrategyType)>, action: &Action) {
        let (Some((before, bounds, strategy)), Some((after, ..))) = (before, self.family()) else { return };
        if !matches!(action, Action::PatchSet { .. } | Action::CreateSet(_) | Action::DeleteSet(_)) {
            return;
        }
        let asked = |family: &Family| family.sets.iter().map(|set| set.count().spec).sum::<i32>();
        if asked(&after) > asked(before) {
            assert!(asked(&after) <= bounds.at_most(), "asks for too many, {action:?}\n{}", self.log);
        }
        if *strategy == StrategyType::RollingUpdate {
            let floor = available(before).min(bounds.at_least());
            assert!(available(&after) >= floor, "too few would be available, {action:?}\n{}", self.log);
        }
        self.check_total(&after, bounds);
    }

    fn check_happening(&self, before: &Option<(Family, Bounds, StrategyType)>, happening: &Happening) {
        let (Some((before, ..)), Some((after, bounds, strategy))) = (before, self.family()) else { return };
        // What counts as available stays so until we decide otherwise: what a set deletes was not counted.
        if !matches!(happening, Happening::Lost { .. } | Happening::Failed { .. }) {
            assert!(available(&after) >= available(before), "{happening} took an available machine\n{}", self.log);
        }
        if strategy == StrategyType::Recreate {
            let with_machines = after.sets.iter().filter(|set| !set.machines.is_empty()).count();
            assert!(with_machines <= 1, "machines of two sets\n{}", self.log);
        }
        self.check_total(&after, &bounds);
    }

    fn check_total(&self, family: &Family, bounds: &Bounds) {
        let planned: i32 = family.sets.iter().map(|set| set.count().planned()).sum();
        assert!(!self.is_plain || planned <= bounds.at_most(), "{planned} machines\n{}", self.log);
    }
}

/// How many Machines stay available once every set has done what it is asked for.
fn available(family: &Family) -> i32 {
    family.sets.iter().map(|set| SetView::count(set).available_now()).sum()
}

/// A number below `count`; 0 if there is none.
pub(super) fn pick(suffixes: &mut Suffixes, count: usize) -> usize {
    let text = suffixes.next().unwrap();
    text.bytes().fold(0, |sum, byte| sum * 31 + usize::from(byte)) % count.max(1)
}

fn verb(action: &Action) -> String {
    let name = |set: &MachineSet| set.name_any();
    match action {
        Action::PatchDeployment(_) => "patch deployment".to_owned(),
        Action::PatchSet { set, .. } => format!("patch set {}", name(set)),
        Action::PatchMachine { machine, .. } => format!("patch machine {}", machine.name_any()),
        Action::CreateSet(set) => format!("create set {}", name(set)),
        Action::DeleteSet(set) => format!("delete set {}", name(set)),
        Action::PatchNode { node, .. } => format!("patch node {}", node.name_any()),
        Action::WriteStatus(_) => "write status".to_owned(),
    }
}
