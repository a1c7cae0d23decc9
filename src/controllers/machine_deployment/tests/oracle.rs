//! Invariants of a world, computed from its objects alone, without the code under test.

use std::sync::Arc;

use kube::ResourceExt;

use super::drive::NAME;
use crate::{object::deletion_order::DeletionOrder, testing::World};
use mcm_api::machine::{Machine, MachineDeployment, MachineSet};

/// A deployment and its Machines in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Sum of `spec.replicas` of all sets.
    pub asked: i32,
    /// Machines that exist or that sets are to create, terminating ones included.
    pub planned: i32,
    /// Machines that serve once each set has followed its spec.
    pub serving: i32,
    pub sets_with_machines: usize,
    pub most: i32,
    pub least: i32,
    pub strategy: String,
}

impl Tally {
    /// `None` if the deployment is deleted, being deleted, or invalid.
    pub fn of(world: &World) -> Option<Self> {
        let deployment = world.deployments.get(NAME)?;
        if deployment.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let (most, least) = bounds_of(deployment)?;
        let matches = |set: &MachineSet| set.labels().get("name").is_some_and(|name| name == NAME);
        let sets: Vec<_> = world.sets.all().filter(|set| matches(set)).collect();
        let replicas = |set: &MachineSet| {
            if set.metadata.deletion_timestamp.is_some() { 0 } else { usize::try_from(set.spec.replicas).unwrap() }
        };
        let live = |set: &Arc<MachineSet>| {
            let mut live: Vec<Arc<Machine>> =
                world.machines_of(set).filter(|it| !it.is_terminating()).cloned().collect();
            let now = world.clock.now;
            live.sort_by(|one, other| {
                DeletionOrder::for_machine(one, now).cmp(&DeletionOrder::for_machine(other, now))
            });
            live
        };
        // A set that is held creates nothing, and Machines that just moved to a set stay beside its replicas.
        let is_moved = |machine: &Machine| machine.labels().contains_key("node.machine.sapcloud.io/update-result");
        let wants = |set: &Arc<MachineSet>| {
            let is_held = set.labels().contains_key("node.machine.sapcloud.io/scale-up-disabled");
            let live = live(set);
            let moved = live.iter().filter(|machine| is_moved(machine)).count();
            let wanted = replicas(set) + live.len().saturating_sub(replicas(set)).min(moved);
            if is_held { wanted.min(live.len()) } else { wanted }
        };
        let planned = sets.iter().map(|set| {
            let (all, live) = (world.machines_of(set).count(), live(set).len());
            all - live + live.max(wants(set))
        });
        let strategy = deployment.spec.strategy.type_.clone();
        // A Node that is selected is drained sooner or later.
        let serves = |machine: &Machine| {
            let node = machine.node_name().and_then(|node| world.nodes.get(node));
            let is_selected =
                node.is_some_and(|node| node.labels().contains_key("node.machine.sapcloud.io/selected-for-update"));
            machine.is_available() && !(is_selected && strategy == "InPlaceUpdate")
        };
        let serving = sets.iter().map(|set| {
            let (moved, live): (Vec<_>, Vec<_>) = live(set).into_iter().partition(|machine| is_moved(machine));
            let surplus = live.len().saturating_sub(replicas(set));
            live.iter().skip(surplus).chain(&moved).filter(|machine| serves(machine)).count()
        });
        let number = |count: usize| i32::try_from(count).unwrap();
        Some(Self {
            asked: number(sets.iter().map(|set| wants(set)).sum()),
            planned: number(planned.sum()),
            serving: number(serving.sum()),
            sets_with_machines: sets.iter().filter(|set| world.machines_of(set).next().is_some()).count(),
            most,
            least,
            strategy,
        })
    }
}

/// How many Machines may exist, and how many must serve.
fn bounds_of(deployment: &MachineDeployment) -> Option<(i32, i32)> {
    let strategy = serde_json::to_value(&deployment.spec.strategy).unwrap();
    let replicas = deployment.spec.replicas;
    deployment.spec.selector.as_ref()?.match_labels.as_ref()?;
    match strategy["type"].as_str()? {
        "Recreate" if replicas >= 0 => Some((replicas, replicas)),
        kind @ ("RollingUpdate" | "InPlaceUpdate") if replicas >= 0 => {
            let block = if kind == "RollingUpdate" { "rollingUpdate" } else { "inPlaceUpdate" };
            let is_manual = strategy[block]["orchestrationType"] == "Manual";
            let knob = |name: &str, round: fn(f64) -> f64| {
                let value = &strategy[block][name];
                let share = |text: &str| {
                    let percent: f64 = text.trim_end_matches('%').parse().unwrap();
                    round(f64::from(replicas) * percent / 100.0) as i64
                };
                value.as_i64().or_else(|| value.as_str().map(share))
            };
            let surge = if is_manual { 0 } else { i32::try_from(knob("maxSurge", f64::ceil)?).unwrap() };
            let unavailable = i32::try_from(knob("maxUnavailable", f64::floor)?).unwrap();
            let unavailable = if surge + unavailable == 0 { 1 } else { unavailable };
            Some((replicas + surge, (replicas - unavailable).max(0)))
        }
        _ => None,
    }
}
