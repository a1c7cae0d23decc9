//! Scripted stories of faults that once occurred.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    super::api_server::{ApiVerb, CLASSES, DEPLOYMENTS, DeliveryOutcome, Kind, MACHINES, NODES, SECRETS, SETS, merge},
    areas::Areas,
    cloud::{Cloud, PROVIDER, Style},
    desired_state::{DesiredState, Strategy},
    faults::Rates,
    rng::Rng,
    system::{self, Process, Program, TAKE_OVER},
    world::{NAMESPACE, World},
};
use crate as controllers;
use mcm_driver::Code;

/// VMs boot within this time, and a few requests follow.
const BOOTED: Duration = Duration::from_mins(3);

fn world(replicas: i32, style: Style) -> Arc<World> {
    World::with(Rng::seeded(0), Rates::calm(), Cloud::new(style), DesiredState::of(replicas), Areas::default())
}

fn fine(world: &World) {
    if let Some(failure) = world.faults.failure() {
        panic!("{failure}\n{}\n{}", world.faults.log().join("\n"), world.describe());
    }
}

async fn until(world: &World, limit: Duration, what: &str, is_so: impl Fn() -> bool) {
    let outcome = world.within(limit, what, is_so).await;
    fine(world);
    outcome.unwrap_or_else(|failure| panic!("{failure}\n{}\n{}", world.faults.log().join("\n"), world.describe()));
}

async fn until_met(world: &World) {
    until(world, BOOTED, "the desired state", || world.differences().is_empty()).await;
}

fn vms(world: &World) -> Vec<String> {
    world.cloud.lock().vms.keys().cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_missing_from_a_silent_watch_are_found_and_no_machine_fails() {
    let world = world(1, Style::SIMPLE);
    let _a = Process::start(&world, &Program { creation_timeout: Duration::from_mins(4), ..Program::everything("a") });
    until_met(&world).await;
    world.faults.stall(&NODES, Duration::from_mins(30));
    world.change_desired_state("three machines", |desired| desired.replicas = 3);
    sleep(Duration::from_mins(20)).await;
    fine(&world);
    assert!(!world.has_machine_in("Failed"));
    assert_eq!(vms(&world).len(), 3);
}

/// Cells come and go in a process that serves many.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_cell_that_has_ended() {
    let world = world(1, Style::SIMPLE);
    let cell = system::cell(&world, &Program::everything("a"), &world.faults.clock.of_another_host());
    let (targets, node_cache) = (cell.targets().clone(), cell.targets().only().unwrap().nodes.cache.clone());
    cell.wait_synced().await;
    drop(cell);
    let left = (Arc::downgrade(&targets), Arc::downgrade(&node_cache));
    drop((targets, node_cache));
    // Aborted tasks end when they are polled.
    sleep(Duration::from_secs(1)).await;
    assert_eq!((left.0.strong_count(), left.1.strong_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn while_the_target_does_not_answer_no_machine_is_given_up() {
    let world = world(1, Style::SIMPLE);
    let _a = Process::start(&world, &Program { creation_timeout: Duration::from_mins(4), ..Program::everything("a") });
    until_met(&world).await;
    world.change_desired_state("three machines", |desired| desired.replicas = 3);
    sleep(Duration::from_secs(1)).await;
    world.target.set_paused(true);
    sleep(Duration::from_mins(10)).await;
    fine(&world);
    world.target.set_paused(false);
    until_met(&world).await;
    assert_eq!(vms(&world).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_accepted_and_never_answered_is_given_up() {
    let world = world(1, Style::SIMPLE);
    let mut first = true;
    world.faults.script(move |call| {
        let is_mute = call.verb == ApiVerb::Watch && call.kind == &NODES && std::mem::take(&mut first);
        is_mute.then_some(DeliveryOutcome::Silent)
    });
    let _a = Process::start(&world, &Program::everything("a"));
    until(&world, BOOTED + Duration::from_mins(2), "the desired state", || world.differences().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_keeps_the_machine_whose_node_reuses_a_name() {
    let world = world(1, Style::REUSING_NAMES);
    let a = Process::start(&world, &Program::everything("a"));
    until(&world, BOOTED, "a leader", || a.has_led()).await;
    let _b = Process::start(&world, &Program::everything("b"));
    until_met(&world).await;
    world.target.create(&NODES, json!({ "metadata": { "name": "ip-2" }, "status": { "conditions": [] } })).unwrap();
    sleep(Duration::from_secs(10)).await;
    world.target.delete(&NODES, "", "ip-2").unwrap();
    sleep(Duration::from_secs(10)).await;
    world.change_desired_state("two machines", |desired| desired.replicas = 2);
    until_met(&world).await;
    drop(a);
    sleep(TAKE_OVER + BOOTED).await;
    fine(&world);
    assert!(world.differences().is_empty(), "{:?}", world.differences());
}

#[tokio::test(start_paused = true)]
async fn two_control_namespaces_with_one_target_do_not_touch_nodes_of_each_other() {
    let world = world(2, Style::SIMPLE);
    let _ours = Process::start(&world, &Program::everything("ours"));
    let theirs = Program { namespace: "theirs".to_owned(), ..Program::everything("theirs") };
    let _theirs = Process::start(&world, &theirs);
    until_met(&world).await;
    sleep(Duration::from_mins(19)).await;
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        two_marks_at_most(&world);
    }
}

fn two_marks_at_most(world: &World) {
    fine(world);
    for node in world.target.all(&NODES) {
        let marks = world.ledger.lock().marks(node.name());
        assert!(marks <= 2, "{} was marked {marks} times\n{}", node.name(), world.faults.log().join("\n"));
    }
}

/// Seed 49 of the former model. New VMs get the name of the dead one's Node and fail, and each of them would be a reason not
/// to give the dead one up.
#[tokio::test(start_paused = true)]
async fn a_dead_machine_is_replaced_although_others_fail_because_of_its_node() {
    let world = world(1, Style::REUSING_NAMES);
    let _a = Process::start(&world, &Program::everything("a"));
    until_met(&world).await;
    let dead = world.cloud.lock().vms.pop_first().unwrap().1.node;
    world.lose_contact(&dead);
    until(&world, BOOTED, "a dead machine", || world.has_machine_in("Unknown")).await;
    world.change_desired_state("two machines", |desired| desired.replicas = 2);
    until(&world, Duration::from_mins(15) + BOOTED, "the desired state", || world.differences().is_empty()).await;
}

/// Seed 1744 of the former model.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_vm_died_gets_no_other_although_the_write_that_named_the_first_was_not_answered() {
    let world = world(1, Style::SIMPLE);
    let weak = Arc::downgrade(&world);
    let mut first = true;
    world.faults.script(move |call| {
        let names_vm = call.kind == &MACHINES && call.body["spec"]["providerID"].is_string();
        if !names_vm || !std::mem::take(&mut first) {
            return None;
        }
        let world = weak.upgrade()?;
        // Once it is written, the VM dies.
        world.later(Duration::from_millis(100), World::kill_some_vm);
        Some(DeliveryOutcome::LostAfter)
    });
    let _a = Process::start(&world, &Program::everything("a"));
    sleep(Duration::from_mins(40)).await;
    fine(&world);
    until_met(&world).await;
}

/// Seeds 8276 and 8939 of the former model.
async fn bounds_hold_while_a_set_is_deleted(strategy: Strategy) {
    let world = world(3, Style::SIMPLE);
    world.desired.lock().strategy = strategy;
    world.write_desired_state();
    let _a = Process::start(&world, &Program::everything("a"));
    until_met(&world).await;
    let desired = world.desired.lock().clone();
    world.ledger.lock().settled(&desired);
    world.change_desired_state("another template", DesiredState::roll);
    sleep(Duration::from_millis(300)).await;
    let set = world.control.all(&SETS)[0].name().to_owned();
    world.control.delete(&SETS, NAMESPACE, &set).unwrap();
    until(&world, BOOTED * 5, "the desired state", || world.differences().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn bounds_hold_while_a_set_is_deleted_in_the_middle_of_a_rolling_update() {
    bounds_hold_while_a_set_is_deleted(Strategy::Rolling).await;
}

#[tokio::test(start_paused = true)]
async fn machines_of_two_templates_never_meet_while_a_set_is_deleted_under_recreate() {
    bounds_hold_while_a_set_is_deleted(Strategy::Recreate).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_failed_is_tried_again_as_soon_as_its_secret_is_corrected() {
    let world = world(1, Style::SIMPLE);
    let correct = world.control.get(&SECRETS, NAMESPACE, "secret").unwrap().value["data"].clone();
    world.control.edit(&SECRETS, NAMESPACE, "secret", |secret| secret["data"] = json!({})).unwrap();
    let _a = Process::start(&world, &Program::everything("a"));
    sleep(Duration::from_mins(10)).await;
    assert!(vms(&world).is_empty());
    world.control.edit(&SECRETS, NAMESPACE, "secret", |secret| secret["data"] = correct).unwrap();
    until(&world, Duration::from_secs(8), "a VM", || vms(&world).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_failed_is_tried_again_as_soon_as_its_class_is_corrected() {
    let world = world(1, Style::SIMPLE);
    let provider = |name: &str| {
        world.control.edit(&CLASSES, NAMESPACE, "class-0", |class| class["provider"] = json!(name)).unwrap();
    };
    provider("another");
    let _a = Process::start(&world, &Program::everything("a"));
    sleep(Duration::from_mins(10)).await;
    assert!(vms(&world).is_empty());
    provider(PROVIDER);
    until(&world, Duration::from_secs(8), "a VM", || vms(&world).len() == 1).await;
}

/// The driver refused the creation, so the next attempt is minutes away.
#[rstest]
#[case::of_its_class(&CLASSES, "class-0", json!({ "providerSpec": { "corrected": true } }))]
#[case::of_its_secret(&SECRETS, "secret", json!({ "data": { "corrected": "eA==" } }))]
#[tokio::test(start_paused = true)]
async fn a_creation_that_the_cloud_refused_is_tried_again_after_a_change(
    #[case] kind: &'static Kind,
    #[case] name: &str,
    #[case] change: Value,
) {
    let world = world(1, Style::SIMPLE);
    world.cloud.lock().refuses = Some(Code::PermissionDenied);
    let _a = Process::start(&world, &Program::everything("a"));
    sleep(Duration::from_mins(10)).await;
    world.cloud.lock().refuses = None;
    sleep(Duration::from_secs(8)).await;
    assert!(vms(&world).is_empty(), "the pause is not over");
    world.control.edit(kind, NAMESPACE, name, |object| merge(object, &change)).unwrap();
    until(&world, Duration::from_secs(8), "a VM", || vms(&world).len() == 1).await;
}

/// The next attempt is minutes away, and the VM that was deleted leaves room for one.
#[tokio::test(start_paused = true)]
async fn a_creation_without_quota_is_tried_again_as_soon_as_a_vm_was_deleted() {
    let world = world(2, Style::SIMPLE);
    let _a = Process::start(&world, &Program::everything("a"));
    until_met(&world).await;
    let old = world.some(&MACHINES).unwrap();
    world.cloud.lock().refuses = Some(Code::ResourceExhausted);
    world.change_desired_state("three machines", |desired| desired.replicas = 3);
    sleep(Duration::from_mins(12)).await;
    world.cloud.lock().refuses = None;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(vms(&world).len(), 2, "the pause is not over");
    world.control.delete(&MACHINES, NAMESPACE, &old).unwrap();
    until(&world, BOOTED, "VMs of the one that waited and of the replacement", || vms(&world).len() == 3).await;
}

/// The clock of the process is ahead of that of the API server, so that each Machine is too old as soon as it exists.
#[tokio::test(start_paused = true)]
async fn machines_that_fail_at_once_are_replaced_ever_more_rarely() {
    let world = world(3, Style::SIMPLE);
    let a = Process::start(&world, &Program::everything("a"));
    a.clock.set_offset(SignedDuration::from_mins(30));
    let mut seen = BTreeSet::new();
    for _ in 0..3_600 {
        sleep(Duration::from_secs(1)).await;
        seen.extend(world.control.all(&MACHINES).iter().map(|machine| machine.name().to_owned()));
    }
    assert!((6..=60).contains(&seen.len()), "{} machines", seen.len());
}

/// Classes, Nodes and sets that wait for every Machine to be decodable are reconciled again when it is.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_machine_to_be_readable_goes_on_when_it_is() {
    let world = world(2, Style::SIMPLE);
    let _a = Process::start(&world, &Program::everything("a"));
    until_met(&world).await;
    world.change_desired_state("another template", DesiredState::roll);
    until(&world, BOOTED * 3, "the desired state", || world.differences().is_empty()).await;
    let name = world.some(&MACHINES).unwrap();
    world.set_drain_timeout(&name, json!("2 hours"));
    let another = world.control.all(&MACHINES).iter().map(|machine| machine.name().to_owned()).find(|it| *it != name);
    world.control.delete(&MACHINES, NAMESPACE, &another.unwrap()).unwrap();
    world.change_desired_state("another template", DesiredState::roll);
    sleep(Duration::from_mins(10)).await;
    world.set_drain_timeout(&name, serde_json::Value::Null);
    until(&world, BOOTED * 5, "the desired state", || world.differences().is_empty()).await;
    world.control.delete(&DEPLOYMENTS, NAMESPACE, "pool").unwrap();
    world.desired.lock().is_deleted = true;
    until(&world, BOOTED * 3, "nothing left", || world.differences().is_empty()).await;
}

/// Seed 65: the deletion of a Node does not change its Machine, and happens while its Machine is unknown.
#[tokio::test(start_paused = true)]
async fn a_machine_that_can_be_read_again_is_replaced_if_its_node_was_deleted_meanwhile() {
    let world = world(1, Style::SIMPLE);
    let _a = Process::start(&world, &Program::everything("a"));
    until_met(&world).await;
    let (machine, node) = (world.some(&MACHINES).unwrap(), world.some(&NODES).unwrap());
    world.set_drain_timeout(&machine, json!("2 hours"));
    sleep(Duration::from_secs(10)).await;
    world.target.delete(&NODES, "", &node).unwrap();
    sleep(Duration::from_mins(10)).await;
    fine(&world);
    world.set_drain_timeout(&machine, serde_json::Value::Null);
    until(&world, Duration::from_secs(8), "its deletion", || world.has_machine_in("Terminating")).await;
    until(&world, BOOTED * 3, "the desired state", || world.differences().is_empty()).await;
}

/// A refusal with only the reason "conflict" does not prove that another Node has the name.
#[tokio::test(start_paused = true)]
async fn a_conflict_does_not_prove_that_a_node_was_deleted() {
    let world = world(1, Style::SIMPLE);
    let mut first = true;
    world.faults.script(move |call| {
        let is_meant = call.verb == ApiVerb::Delete && call.kind == &NODES && std::mem::take(&mut first);
        is_meant.then_some(DeliveryOutcome::Refused(409))
    });
    let _a = Process::start(&world, &Program::everything("a"));
    until_met(&world).await;
    world.change_desired_state("no machine", |desired| desired.replicas = 0);
    until(&world, BOOTED * 3, "the desired state", || world.differences().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_process_hands_over_at_once() {
    let world = world(1, Style::SIMPLE);
    let a = Process::start(&world, &Program::everything("a"));
    until(&world, BOOTED, "a leader", || a.has_led()).await;
    let b = Process::start(&world, &Program::everything("b"));
    until_met(&world).await;
    assert!(!b.has_led());
    a.stop().await;
    until(&world, Duration::from_secs(3), "a successor", || b.has_led()).await;
}

/// The watches of a standby may be behind. Objects that its predecessor deleted meanwhile must not be reconciled: a VM
/// that is created for a deleted Machine has no owner.
#[tokio::test(start_paused = true)]
async fn a_new_leader_creates_no_vm_for_a_deleted_machine() {
    let world = world(1, Style::SIMPLE);
    let correct = world.control.get(&SECRETS, NAMESPACE, "secret").unwrap().value["data"].clone();
    world.control.edit(&SECRETS, NAMESPACE, "secret", |secret| secret["data"] = json!({})).unwrap();
    let a = Process::start(&world, &Program::everything("a"));
    until(&world, BOOTED, "a leader", || a.has_led()).await;
    let b = Process::start(&world, &Program::everything("b").with_roles(&[controllers::MACHINES]));
    until(&world, BOOTED, "a machine", || !world.control.all(&MACHINES).is_empty()).await;
    sleep(Duration::from_secs(30)).await;
    world.faults.stall(&MACHINES, Duration::from_mins(30));
    world.change_desired_state("no machine", |desired| desired.replicas = 0);
    until(&world, BOOTED, "no machine", || world.control.all(&MACHINES).is_empty()).await;
    world.control.edit(&SECRETS, NAMESPACE, "secret", |secret| secret["data"] = correct).unwrap();
    a.stop().await;
    until(&world, BOOTED, "a successor", || b.has_led()).await;
    sleep(BOOTED).await;
    fine(&world);
    assert!(vms(&world).is_empty(), "{}", world.faults.log().join("\n"));
}

#[tokio::test(start_paused = true)]
async fn metrics_name_the_queues_of_the_reference_and_say_when_machines_are_frozen() {
    let world = world(1, Style::SIMPLE);
    let _a = Process::start(&world, &Program::everything("a"));
    until_met(&world).await;
    let has = |line: &str| world.metrics.render().lines().any(|found| found.starts_with(line));
    for queue in ["machine", "machineclass", "machinedeployment", "machineset", "node", "secret"] {
        assert!(has(&format!("mcm_workqueue_depth{{name=\"{queue}\"}} ")), "{queue}");
    }
    assert!(has("mcm_machine_controller_frozen 0"));
    world.target.set_paused(true);
    sleep(Duration::from_mins(5)).await;
    assert!(has("mcm_machine_controller_frozen 1"));
    world.target.set_paused(false);
    until(&world, Duration::from_mins(5), "the freeze to end", || has("mcm_machine_controller_frozen 0")).await;
}
