//! The VM of a control plane machine in the load balancer that the MCMCluster names.

use std::{collections::BTreeSet, sync::Arc};

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{PAUSE, World};
use crate::testing::world::deleted;
use mcm_api::load_balancer::LoadBalancerKind;
use mcm_driver::Code;

const RETRY: i64 = 300;

fn of_control_plane() -> Value {
    json!({ "metadata": { "labels": { "cluster.x-k8s.io/control-plane": "" } } })
}

fn infrastructure(balancer: &str) -> Value {
    json!({ "metadata": {}, "spec": { "controlPlaneLoadBalancer": { "simulated": { "name": balancer } } } })
}

/// A control plane machine whose VM was just created.
fn with_vm() -> World {
    changed_with_vm(|_| {})
}

fn changed_with_vm(edit: fn(&mut World)) -> World {
    let mut world = World::with_data();
    world.set_machine(&of_control_plane());
    world.infrastructure = Some(infrastructure("cp"));
    world.balancers.lock().unwrap().all.insert("cp".to_owned(), BTreeSet::new());
    edit(&mut world);
    world.pass();
    world.vm("simulated:///r/vm-1");
    world
}

fn registered() -> World {
    let mut world = with_vm();
    world.pass();
    assert_eq!(world.condition("LoadBalancerRegistered"), "True Registered", "{}", world.story);
    world.log.clear();
    world
}

fn members(world: &World, balancer: &str) -> Vec<String> {
    world.balancers.lock().unwrap().members(balancer).into_iter().map(str::to_owned).collect()
}

fn is_provisioned(world: &World) -> bool {
    world.status().initialization.provisioned == Some(true)
}

fn refuse(world: &World, code: impl Into<Option<Code>>) {
    world.balancers.lock().unwrap().failure = code.into();
}

fn position(world: &World, text: &str) -> usize {
    world.log.iter().position(|action| action.starts_with(text)).unwrap_or_else(|| panic!("{text}: {:?}", world.log))
}

#[test]
fn a_control_plane_machine_is_provisioned_once_its_vm_is_registered() {
    let mut world = with_vm();
    refuse(&world, Code::Unavailable);
    let waits = world.pass();
    assert!(waits.contains(&"its VM to be registered in simulated load balancer cp".to_owned()), "{waits:?}");
    assert_eq!(world.condition("LoadBalancerRegistered"), "False Unavailable");
    assert_eq!((world.condition("Ready").as_str(), is_provisioned(&world)), ("False Unavailable", false));
    refuse(&world, None);
    world.pass();
    assert_eq!(members(&world, "cp"), [""; 0], "the next attempt has its time");
    world.now += RETRY;
    world.pass();
    assert_eq!(members(&world, "cp"), ["simulated:///r/vm-1"]);
    assert_eq!((world.condition("Ready").as_str(), is_provisioned(&world)), ("True Provisioned", true));
    let calls = world.log.iter().filter(|action| action.starts_with("register")).count();
    assert_eq!(calls, 2);
    world.log.clear();
    world.pass();
    assert_eq!(world.log, [""; 0], "nothing is left to do");
}

#[rstest]
#[case::worker(|world: &mut World| world.set_machine(&json!({ "metadata": { "labels": null } })))]
#[case::no_load_balancer(|world: &mut World| world.infrastructure = Some(json!({ "metadata": {}, "spec": {} })))]
#[case::empty_name(|world: &mut World| world.infrastructure = Some(infrastructure("")))]
#[case::infrastructure_of_another_provider(|world: &mut World| {
    world.infrastructure = None;
    world.set_cluster(&json!({ "spec": { "infrastructureRef": { "kind": "AWSCluster" } } }));
})]
fn other_machines_are_provisioned_without_a_load_balancer(#[case] edit: fn(&mut World)) {
    let mut world = changed_with_vm(edit);
    world.pass();
    assert_eq!((world.condition("LoadBalancerRegistered").as_str(), is_provisioned(&world)), ("", true));
    assert_eq!((members(&world, "cp").len(), world.status().load_balancers.len()), (0, 0));
}

#[test]
fn a_missing_mcmcluster_is_not_one_without_a_load_balancer() {
    let mut world = with_vm();
    world.infrastructure = None;
    world.pass();
    assert_eq!(world.condition("LoadBalancerRegistered"), "Unknown Unreadable");
    assert!(!is_provisioned(&world));
}

#[rstest]
#[case::other_kind(Some(LoadBalancerKind::AwsTargetGroup), "write awsTargetGroup")]
#[case::no_kind(None, "remove spec.controlPlaneLoadBalancer")]
fn a_driver_of_another_cloud_is_never_called(#[case] served: Option<LoadBalancerKind>, #[case] advice: &str) {
    let mut world = with_vm();
    world.served = served;
    world.pass();
    assert_eq!(world.condition("Ready"), "False LoadBalancerUnsupported");
    assert!(world.status().conditions.iter().any(|condition| condition.message.contains(advice)), "{}", world.story);
    assert!(!is_provisioned(&world) && world.status().load_balancers.is_empty());
    world.delete();
    world.pass();
    assert!(!world.log.iter().any(|action| action.contains("register")), "nothing is registered: {:?}", world.log);
    position(&world, "delete MCM Machine");
}

#[test]
fn a_vm_leaves_the_load_balancer_before_it_is_deleted() {
    let mut world = registered();
    refuse(&world, Code::PermissionDenied);
    world.delete();
    let waits = world.pass();
    assert_eq!(waits, ["its VM to leave simulated load balancer cp"]);
    assert_eq!(world.condition("LoadBalancerRegistered"), "False PermissionDenied");
    assert!(world.native.as_ref().unwrap()["metadata"]["annotations"]["machine.mcm/delete-vm"].is_null());
    refuse(&world, None);
    world.now += RETRY;
    world.pass();
    assert_eq!((members(&world, "cp").len(), world.status().load_balancers.len()), (0, 0));
    assert_eq!(world.condition("LoadBalancerRegistered"), "False Deregistered");
    assert!(position(&world, "deregister") < position(&world, "patch MCM Machine"));
    assert!(position(&world, "patch MCM Machine") < position(&world, "delete MCM Machine"));
}

/// The cloud carries a change out after its answer: no call waits for it, and none counts as a failure.
#[test]
fn a_change_that_takes_long_is_looked_at_until_it_is_done() {
    let mut world = changed_with_vm(|world| world.balancers.lock().unwrap().is_slow = true);
    for is_deleting in [false, true] {
        if is_deleting {
            world.delete();
        }
        let (reason, members_before) = if is_deleting { ("False Deregistering", 1) } else { ("False Registering", 0) };
        let waits = world.pass();
        assert_eq!((waits.is_empty(), members(&world, "cp").len()), (false, members_before), "{waits:?}");
        assert_eq!(world.condition("LoadBalancerRegistered"), reason);
        assert!(world.status().conditions.iter().any(|one| one.message == "the cloud works on it"), "{}", world.story);
        assert!(is_deleting || !is_provisioned(&world));
        world.pass();
        assert_eq!(members(&world, "cp").len(), members_before, "the next look has its time");
        world.now += i64::try_from(PAUSE.as_secs()).unwrap();
        world.pass();
        assert_eq!(members(&world, "cp").len(), 1 - members_before, "{}", world.story);
    }
    assert_eq!(world.log.iter().filter(|action| action.contains("register the VM")).count(), 4);
    position(&world, "delete MCM Machine");
}

#[test]
fn a_load_balancer_that_certainly_does_not_exist_ends_the_wait() {
    let mut world = registered();
    world.balancers.lock().unwrap().all.clear();
    world.delete();
    world.pass();
    position(&world, "delete MCM Machine");
    let text = world.status().conditions.into_iter().find(|one| one.type_ == "LoadBalancerRegistered").unwrap();
    assert_eq!((text.reason.as_str(), text.message.as_str()), ("Deregistered", "there is no load balancer cp"));
}

/// A user deletes the native Machine and allows the deletion of its VM.
#[test]
fn a_vm_leaves_the_load_balancer_if_the_deletion_begins_at_the_mcm_machine() {
    let mut world = registered();
    world.set_native(&deleted());
    world.pass();
    assert_eq!(members(&world, "cp").len(), 1, "the VM is kept");
    world.set_native(&json!({ "metadata": { "annotations": { "machine.mcm/delete-vm": "" } } }));
    world.pass();
    assert_eq!((members(&world, "cp").len(), world.status().load_balancers.len()), (0, 0), "{}", world.story);
    assert_eq!(world.condition("LoadBalancerRegistered"), "False Deregistered");
}

/// The status is lost, and the MCMMachine is deleted before it is written again.
#[test]
fn a_vm_leaves_the_load_balancer_after_a_move() {
    let mut world = registered();
    world.set_object(&json!({ "status": null }));
    world.delete();
    world.pass();
    assert_eq!(members(&world, "cp"), [""; 0]);
    position(&world, "delete MCM Machine");
}

#[test]
fn a_vm_leaves_the_load_balancer_without_its_mcm_machine_and_without_the_mcmcluster() {
    let mut world = registered();
    (world.native, world.infrastructure) = (None, None);
    world.delete();
    world.pass();
    assert_eq!((members(&world, "cp").len(), world.object.is_none()), (0, true), "{}", world.story);
}

#[test]
fn a_vm_is_in_the_new_load_balancer_before_it_leaves_the_old_one() {
    let mut world = registered();
    world.balancers.lock().unwrap().all.insert("new".to_owned(), BTreeSet::new());
    world.infrastructure = Some(infrastructure("new"));
    world.pass();
    assert_eq!((members(&world, "cp").len(), members(&world, "new").len()), (0, 1), "{}", world.story);
    assert!(position(&world, "register the VM in simulated load balancer new") < position(&world, "deregister"));
    assert_eq!(world.condition("Ready"), "True Provisioned");
    world.infrastructure = Some(json!({ "metadata": {}, "spec": {} }));
    world.pass();
    assert_eq!((members(&world, "new").len(), world.condition("Ready").as_str()), (0, "True Provisioned"));
}

/// A second control plane machine: the cluster exists, and its VM was just created.
fn joining(registration: &str) -> World {
    let mut world = World::with_data();
    world.set_machine(&of_control_plane());
    world.set_cluster(&initialized());
    world.infrastructure = Some(registered_by(registration));
    world.balancers.lock().unwrap().all.insert("cp".to_owned(), BTreeSet::new());
    world.pass();
    world.vm("simulated:///r/vm-2");
    world
}

fn initialized() -> Value {
    json!({ "status": { "initialization": { "controlPlaneInitialized": true } } })
}

fn registered_by(registration: &str) -> Value {
    let mut infrastructure = infrastructure("cp");
    infrastructure["spec"]["controlPlaneRegistration"] = registration.into();
    infrastructure
}

fn joined(api_server: Option<&str>) -> Value {
    let condition = |status: &str| {
        json!({
            "type": "APIServerPodHealthy", "status": status, "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions: Vec<Value> = api_server.map(condition).into_iter().collect();
    json!({ "status": { "nodeRef": { "name": "n" }, "conditions": conditions } })
}

#[rstest]
#[case::kubeadm(Some("True"))]
#[case::another_control_plane_provider(None)]
fn a_machine_that_joins_through_a_passthrough_load_balancer_becomes_a_member_after_its_node(
    #[case] api_server: Option<&str>,
) {
    let mut world = joining("AfterNode");
    world.pass();
    assert_eq!((members(&world, "cp").len(), is_provisioned(&world)), (0, true), "{}", world.story);
    assert_eq!(world.condition("LoadBalancerRegistered"), "False WaitingForNode");
    assert_eq!((world.condition("Ready").as_str(), world.status().load_balancers.len()), ("True Provisioned", 0));
    if api_server.is_some() {
        world.set_machine(&joined(Some("Unknown")));
        world.pass();
        assert_eq!(members(&world, "cp"), [""; 0], "its API server does not run yet");
    }
    world.set_machine(&joined(api_server));
    world.pass();
    assert_eq!(members(&world, "cp"), ["simulated:///r/vm-2"]);
    // A member stays one while its API server is ill: the health check of the load balancer is there for that.
    world.set_machine(&joined(Some("False")));
    world.log.clear();
    world.pass();
    assert_eq!((world.condition("LoadBalancerRegistered").as_str(), world.log.len()), ("True Registered", 0));
}

#[test]
fn a_machine_that_joins_through_another_load_balancer_is_registered_before() {
    let mut world = joining("BeforeJoin");
    world.pass();
    assert_eq!((members(&world, "cp").len(), is_provisioned(&world)), (1, true));
}

#[test]
fn a_machine_that_never_joined_is_deleted() {
    let mut world = joining("AfterNode");
    world.pass();
    world.delete();
    world.pass();
    position(&world, "delete MCM Machine");
    assert_eq!(members(&world, "cp"), [""; 0]);
}

/// The machines of a control plane with their load balancer.
struct ControlPlane {
    /// A passthrough load balancer: the connection of a member reaches that member, whether its API server runs or not.
    is_passthrough: bool,
    /// The VMs whose API server runs.
    serving: BTreeSet<String>,
    machines: Vec<World>,
    template: World,
    next: usize,
    /// The process ends after so many actions of all machines.
    dies_after: Option<usize>,
    actions: usize,
}

impl ControlPlane {
    fn new(is_slow: bool, dies_after: Option<usize>) -> Self {
        let template = with_vm();
        template.balancers.lock().unwrap().is_slow = is_slow;
        let (is_passthrough, serving) = (false, BTreeSet::new());
        Self { is_passthrough, serving, machines: Vec::new(), template, next: 0, dies_after, actions: 0 }
    }

    fn passthrough() -> Self {
        Self { is_passthrough: true, ..Self::new(false, None) }
    }

    /// A connection of the VM to the address of the load balancer succeeds.
    fn reaches_api_server(&self, vm: &str) -> bool {
        let members = members(&self.template, "cp");
        match self.is_passthrough && members.iter().any(|member| member == vm) {
            true => self.serving.contains(vm),
            false => members.iter().any(|member| self.serving.contains(member)),
        }
    }

    /// kubeadm runs on the newest VM. On the first one it starts the API server before it connects.
    fn join(&mut self, vm: &str) {
        let index = self.machines.len() - 1;
        if self.serving.is_empty() {
            self.serving.insert(vm.to_owned());
        }
        assert!(self.reaches_api_server(vm), "{vm} does not join: {}", self.machines[index].story);
        self.serving.insert(vm.to_owned());
        self.machines.iter_mut().for_each(|world| world.set_cluster(&initialized()));
        self.machines[index].set_machine(&joined(Some("True")));
        self.settle(index);
    }

    /// The VM has to be a member.
    fn is_due(&self, world: &World) -> bool {
        let has_joined = world.machine.as_ref().unwrap()["status"]["nodeRef"].is_object();
        is_provisioned(world) && (!self.is_passthrough || has_joined)
    }

    /// Reconciles a machine. If the process dies meanwhile, a new process has only the stored objects.
    fn settle(&mut self, index: usize) {
        loop {
            let left = self.dies_after.and_then(|action| action.checked_sub(self.actions)).filter(|left| *left > 0);
            let world = &mut self.machines[index];
            let before = world.log.len();
            world.dies_after = left;
            world.pass();
            self.actions += world.log.len() - before;
            let has_died = world.dies_after == Some(0);
            let is_working = world.is_working();
            world.now += i64::try_from(PAUSE.as_secs()).unwrap();
            self.check();
            if !has_died && !is_working {
                return;
            }
        }
    }

    fn check(&self) {
        let members = members(&self.template, "cp");
        let mut living = BTreeSet::new();
        for world in self.machines.iter().filter(|world| world.object.is_some() && world.native.is_some()) {
            let vm = world.native.as_ref().unwrap()["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
            let is_leaving = world.object.as_ref().unwrap()["metadata"]["deletionTimestamp"].is_string();
            let is_member = members.contains(&vm);
            let is_released =
                world.native.as_ref().unwrap()["metadata"]["annotations"]["machine.mcm/delete-vm"].is_string();
            assert!(!is_released || !is_member, "{vm} may be deleted and is a member: {}", world.story);
            if !is_leaving && self.is_due(world) {
                assert!(is_member, "{vm} is provisioned and no member: {}", world.story);
            }
            living.insert(vm);
        }
        assert!(members.iter().all(|member| living.contains(member)), "{members:?} are not all in {living:?}");
    }

    fn create(&mut self) {
        let mut world = World::with_data();
        world.set_machine(&of_control_plane());
        world.infrastructure = Some(registered_by(if self.is_passthrough { "AfterNode" } else { "BeforeJoin" }));
        if !self.serving.is_empty() {
            world.set_cluster(&initialized());
        }
        world.balancers = Arc::clone(&self.template.balancers);
        self.next += 1;
        self.machines.push(world);
        let (index, vm) = (self.machines.len() - 1, format!("simulated:///r/vm-{}", self.next));
        self.settle(index);
        self.machines[index].vm(&vm);
        self.settle(index);
        assert!(is_provisioned(&self.machines[index]), "{}", self.machines[index].story);
        self.join(&vm);
    }

    fn delete_oldest(&mut self) {
        self.machines[0].delete();
        self.settle(0);
        assert!(self.machines[0].native.as_ref().unwrap()["metadata"]["deletionTimestamp"].is_string());
        self.machines[0].native = None;
        self.check();
        self.settle(0);
        assert!(self.machines[0].object.is_none(), "{}", self.machines[0].story);
        let vm = format!("simulated:///r/vm-{}", self.next - self.machines.len() + 1);
        assert!(self.serving.remove(&vm), "{vm}");
        self.machines.remove(0);
    }

    /// Three machines, each replaced by KCP, which creates before it deletes. Returns the number of actions.
    fn roll(mut self) -> usize {
        (0..3).for_each(|_| self.create());
        for _ in 0..3 {
            self.create();
            self.delete_oldest();
        }
        let expected = [4, 5, 6].map(|number| format!("simulated:///r/vm-{number}"));
        assert_eq!(members(&self.template, "cp"), expected);
        self.actions
    }
}

/// A member of the load balancer of Google Cloud reaches only itself, so it is registered after its API server runs.
#[test]
fn a_control_plane_grows_and_is_replaced_behind_a_load_balancer_that_returns_a_member_to_itself() {
    ControlPlane::passthrough().roll();
}

#[test]
#[should_panic(expected = "vm-2 does not join")]
fn a_member_of_such_a_load_balancer_would_not_join() {
    let mut control_plane = ControlPlane::passthrough();
    control_plane.create();
    let mut world = joining("BeforeJoin");
    world.balancers = Arc::clone(&control_plane.template.balancers);
    world.pass();
    control_plane.machines.push(world);
    control_plane.join("simulated:///r/vm-2");
}

/// Each action is the last one of a process, also a call whose answer nothing stores any more.
#[rstest]
fn the_members_are_the_living_machines_while_a_control_plane_is_replaced_and_the_process_dies_at_each_step(
    #[values(false, true)] is_slow: bool,
) {
    let actions = ControlPlane::new(is_slow, None).roll();
    assert!(actions > 60, "{actions}");
    for last in 1..=actions {
        ControlPlane::new(is_slow, Some(last)).roll();
    }
}
