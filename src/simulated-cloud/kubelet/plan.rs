//! Computes the next action for the Node of a VM. Pure.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::{
    cloud::NodeView,
    control::{NodeSettings, WildcardPattern},
    record::{DepartedVm, DepartureCause, NodeLink, SetCondition, VmRecord, after},
};

/// Heartbeats between two refreshments of the conditions.
const BEATS_PER_STATUS: u64 = 30;

/// The record of this process about a Node.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// The last status written to the Node.
    pub written: Option<MutableNodeStatus>,
    pub last_beat: Option<Timestamp>,
    pub beats: u64,
    /// It was marked as dead.
    pub marked: bool,
    /// Nothing is tried before, because something failed.
    pub retry_at: Option<Timestamp>,
    pub failures: u32,
}

/// The part of a Node's status that can change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MutableNodeStatus {
    pub conditions: BTreeMap<String, SetCondition>,
    pub volumes: Vec<String>,
}

impl MutableNodeStatus {
    pub(super) fn from_vm(vm: &VmRecord) -> Self {
        Self { conditions: vm.conditions.clone(), volumes: vm.volumes.clone() }
    }
}

/// The rules of the day.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeRules {
    pub nodes: NodeSettings,
    pub never_join: Vec<WildcardPattern>,
    /// When this process began to look after Nodes.
    pub since: Timestamp,
}

/// The next action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeAction {
    /// Create the Node.
    Register(Box<VmRecord>),
    /// Write the changes.
    Update(Box<VmRecord>),
    /// Write a heartbeat, with the conditions if requested.
    Beat(Box<VmRecord>, bool),
    /// Mark it as dead.
    MarkDead(String),
    /// Remove it, and its Lease if it may have one.
    Remove(DepartedVm, bool),
    /// Nothing before this time; never, unless the VM changes.
    Wait(Option<Timestamp>),
    /// There is nothing to look after.
    Forget,
}

/// Decides the next action.
pub(super) fn next(view: NodeView, memory: &Memory, rules: &NodeRules, now: Timestamp) -> NodeAction {
    if let Some(at) = memory.retry_at.filter(|at| now < *at) {
        return NodeAction::Wait(Some(at));
    }
    match view {
        NodeView::Nothing => NodeAction::Forget,
        NodeView::Departed(departed) => next_of_departed(departed, memory, rules, now),
        NodeView::Vm(vm) => match vm.node {
            NodeLink::Lost { .. } => NodeAction::Wait(vm.gone_at),
            NodeLink::Registered { at, .. } => next_of_registered(vm, at, memory, rules, now),
            NodeLink::None | NodeLink::Asked => next_of_unregistered(vm, rules, now),
        },
    }
}

fn next_of_unregistered(vm: Box<VmRecord>, rules: &NodeRules, now: Timestamp) -> NodeAction {
    let held_back = vm.spec.never_join || rules.never_join.iter().any(|pattern| pattern.matches(&vm.machine_name));
    if held_back || vm.stopped_at.is_some() || vm.gone_at.is_some() {
        return NodeAction::Wait(vm.gone_at);
    }
    match vm.boots_at() {
        Some(at) if at <= now => NodeAction::Register(vm),
        at => NodeAction::Wait(at),
    }
}

fn next_of_registered(
    vm: Box<VmRecord>,
    registered_at: Timestamp,
    memory: &Memory,
    rules: &NodeRules,
    now: Timestamp,
) -> NodeAction {
    if let Some(stopped_at) = vm.stopped_at {
        let dead_at = after(stopped_at, rules.nodes.monitor_grace.as_std());
        return match vm.gone_at {
            _ if memory.marked => NodeAction::Wait(vm.gone_at),
            _ if dead_at <= now => NodeAction::MarkDead(vm.machine_name),
            gone_at => NodeAction::Wait(Some(gone_at.map_or(dead_at, |at| at.min(dead_at)))),
        };
    }
    let current = MutableNodeStatus::from_vm(&vm);
    if memory.written.as_ref().is_some_and(|written| *written != current)
        || (memory.written.is_none() && current != MutableNodeStatus::default())
    {
        return NodeAction::Update(vm);
    }
    let beat_at = next_beat(registered_at, memory, rules);
    match beat_at {
        Some(at) if at <= now => {
            let with_status = memory.beats % BEATS_PER_STATUS == BEATS_PER_STATUS - 1;
            NodeAction::Beat(vm, with_status)
        }
        at => NodeAction::Wait([at, vm.gone_at].into_iter().flatten().min()),
    }
}

fn next_of_departed(departed: DepartedVm, memory: &Memory, rules: &NodeRules, now: Timestamp) -> NodeAction {
    let removal = rules.nodes.removal_delay.as_std();
    let dead_at = after(departed.at, rules.nodes.monitor_grace.as_std());
    let remove_at = match departed.how {
        DepartureCause::Unregistered => departed.at,
        DepartureCause::Deleted => after(departed.at, removal),
        DepartureCause::Vanished => after(dead_at, removal),
    };
    if remove_at <= now {
        let with_lease = memory.beats > 0 || !rules.nodes.heartbeat_period.as_std().is_zero();
        return NodeAction::Remove(departed, with_lease);
    }
    if departed.how != DepartureCause::Vanished || memory.marked || departed.uid.is_none() {
        return NodeAction::Wait(Some(remove_at));
    }
    if dead_at <= now { NodeAction::MarkDead(departed.node_name) } else { NodeAction::Wait(Some(dead_at)) }
}

/// Registration times spread the heartbeats, also after a restart, when none of them was given by this process.
fn next_beat(registered_at: Timestamp, memory: &Memory, rules: &NodeRules) -> Option<Timestamp> {
    let period = rules.nodes.heartbeat_period.as_std();
    if period.is_zero() {
        return None;
    }
    if let Some(last) = memory.last_beat {
        return Some(after(last, period));
    }
    let asleep = rules.since.duration_since(registered_at).max(SignedDuration::ZERO);
    let missed = asleep.as_nanos().checked_div(i128::try_from(period.as_nanos()).ok()?)?;
    let periods = u32::try_from(missed.saturating_add(1)).unwrap_or(u32::MAX);
    Some(after(registered_at, period.checked_mul(periods).unwrap_or(Duration::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        control::OperationLatencies,
        messages::{ConditionRequest, CreateVm},
        spec::ProviderSpec,
    };
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn vm(spec: serde_json::Value) -> VmRecord {
        let request = CreateVm { machine_name: "m".into(), namespace: "ns".into(), ..CreateVm::default() };
        let spec = ProviderSpec::parse(&spec).unwrap();
        VmRecord::new(1, "vm-1".into(), &request, spec, &OperationLatencies::default(), at(0))
    }

    fn registered(seconds: i64) -> VmRecord {
        let node = NodeLink::Registered { uid: "u".into(), at: at(seconds) };
        VmRecord { node, ..vm(json!({})) }
    }

    fn rules() -> NodeRules {
        NodeRules { since: at(-100), ..NodeRules::default() }
    }

    fn decide(vm: &VmRecord, memory: &Memory, seconds: i64) -> NodeAction {
        next(NodeView::Vm(Box::new(vm.clone())), memory, &rules(), at(seconds))
    }

    #[test]
    fn a_node_registers_after_creation_and_boot_and_not_before() {
        let vm = vm(json!({"createLatency": "2s", "bootLatency": "3s"}));
        assert_eq!(decide(&vm, &Memory::default(), 4), NodeAction::Wait(Some(at(5))));
        assert_eq!(decide(&vm, &Memory::default(), 5), NodeAction::Register(Box::new(vm)));
    }

    #[test]
    fn a_vm_that_waits_for_initialization_does_not_boot() {
        let mut vm = vm(json!({"initialize": true, "bootLatency": "3s"}));
        assert_eq!(decide(&vm, &Memory::default(), 100), NodeAction::Wait(None));
        vm.initialized_at = Some(at(100));
        assert_eq!(decide(&vm, &Memory::default(), 100), NodeAction::Wait(Some(at(103))));
    }

    #[test]
    fn vms_that_are_held_back_stopped_or_going_do_not_register() {
        let held = vm(json!({"neverJoin": true}));
        assert_eq!(decide(&held, &Memory::default(), 9), NodeAction::Wait(None));
        let named = NodeRules { never_join: vec!["m*".into()], ..rules() };
        let view = NodeView::Vm(Box::new(vm(json!({}))));
        assert_eq!(next(view, &Memory::default(), &named, at(9)), NodeAction::Wait(None));
        let stopped = VmRecord { stopped_at: Some(at(0)), ..vm(json!({})) };
        assert_eq!(decide(&stopped, &Memory::default(), 9), NodeAction::Wait(None));
        let going = VmRecord { gone_at: Some(at(20)), ..vm(json!({})) };
        assert_eq!(decide(&going, &Memory::default(), 9), NodeAction::Wait(Some(at(20))));
    }

    #[test]
    fn a_node_deleted_by_a_client_is_not_registered_again() {
        let vm = VmRecord { node: NodeLink::Lost { uid: "u".into() }, ..vm(json!({})) };
        assert_eq!(decide(&vm, &Memory::default(), 100), NodeAction::Wait(None));
    }

    #[test]
    fn every_thirtieth_heartbeat_refreshes_the_conditions() {
        let vm = registered(0);
        let memory = |beats| Memory { last_beat: Some(at(100)), beats, ..Memory::default() };
        assert_eq!(decide(&vm, &memory(0), 109), NodeAction::Wait(Some(at(110))));
        assert_eq!(decide(&vm, &memory(28), 110), NodeAction::Beat(Box::new(vm.clone()), false));
        assert_eq!(decide(&vm, &memory(29), 110), NodeAction::Beat(Box::new(vm), true));
    }

    #[test]
    fn after_a_restart_heartbeats_go_on_in_their_old_rhythm() {
        let rules = NodeRules { since: at(57), ..NodeRules::default() };
        let view = |vm| NodeView::Vm(Box::new(vm));
        let wait = |seconds| next(view(registered(seconds)), &Memory::default(), &rules, at(57));
        assert_eq!([wait(0), wait(3), wait(8)], [60, 63, 58].map(|seconds| NodeAction::Wait(Some(at(seconds)))));
    }

    #[test]
    fn without_a_period_there_are_no_heartbeats() {
        let mut rules = rules();
        rules.nodes.heartbeat_period = Duration::ZERO.into();
        let view = NodeView::Vm(Box::new(registered(0)));
        assert_eq!(next(view, &Memory::default(), &rules, at(1000)), NodeAction::Wait(None));
    }

    #[test]
    fn a_condition_is_written_when_it_changes_and_only_then() {
        let mut vm = registered(0);
        let memory = Memory { written: Some(MutableNodeStatus::from_vm(&vm)), ..Memory::default() };
        let ConditionRequest { reason, message, .. } = ConditionRequest::default();
        let set = SetCondition { status: Some("True".into()), reason, message, since: at(1) };
        vm.conditions.insert("KernelDeadlock".into(), set);
        assert_eq!(decide(&vm, &memory, 1), NodeAction::Update(Box::new(vm.clone())));
        let memory = Memory { written: Some(MutableNodeStatus::from_vm(&vm)), ..Memory::default() };
        assert_eq!(decide(&vm, &memory, 1), NodeAction::Wait(Some(at(10))));
        assert_eq!(
            decide(&vm, &Memory::default(), 1),
            NodeAction::Update(Box::new(vm)),
            "after a restart it is made sure"
        );
    }

    #[test]
    fn the_node_of_a_stopped_vm_is_dead_after_the_grace() {
        let vm = VmRecord { stopped_at: Some(at(10)), ..registered(0) };
        assert_eq!(decide(&vm, &Memory::default(), 20), NodeAction::Wait(Some(at(50))));
        assert_eq!(decide(&vm, &Memory::default(), 50), NodeAction::MarkDead("m".into()));
        let marked = Memory { marked: true, ..Memory::default() };
        assert_eq!(decide(&vm, &marked, 60), NodeAction::Wait(None));
    }

    #[test]
    fn a_node_is_deleted_after_its_vm_with_the_delay_of_each_departure() {
        let gone = |how| registered(0).departed(at(10), how).unwrap();
        let decide = |how, memory: &Memory, seconds| next(NodeView::Departed(gone(how)), memory, &rules(), at(seconds));
        let (new, marked) = (Memory::default(), Memory { marked: true, ..Memory::default() });
        assert_eq!(
            decide(DepartureCause::Unregistered, &new, 10),
            NodeAction::Remove(gone(DepartureCause::Unregistered), true)
        );
        assert_eq!(decide(DepartureCause::Deleted, &new, 10), NodeAction::Wait(Some(at(15))));
        assert_eq!(decide(DepartureCause::Deleted, &new, 15), NodeAction::Remove(gone(DepartureCause::Deleted), true));
        assert_eq!(decide(DepartureCause::Vanished, &new, 10), NodeAction::Wait(Some(at(50))));
        assert_eq!(decide(DepartureCause::Vanished, &new, 50), NodeAction::MarkDead("m".into()));
        assert_eq!(decide(DepartureCause::Vanished, &marked, 50), NodeAction::Wait(Some(at(55))));
        assert_eq!(
            decide(DepartureCause::Vanished, &marked, 55),
            NodeAction::Remove(gone(DepartureCause::Vanished), true)
        );
    }

    #[test]
    fn after_a_failure_nothing_is_tried_before_its_time() {
        let memory = Memory { retry_at: Some(at(7)), failures: 1, ..Memory::default() };
        let vm = vm(json!({}));
        assert_eq!(decide(&vm, &memory, 6), NodeAction::Wait(Some(at(7))));
        assert_eq!(decide(&vm, &memory, 7), NodeAction::Register(Box::new(vm)));
    }
}
