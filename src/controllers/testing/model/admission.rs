//! API servers that store something else than what was sent: the server changes a field of a kind, at its creation or at
//! each write.

use std::{sync::Arc, time::Duration};

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    super::api_server::{ApiVerb, DEPLOYMENTS, EVENTS, Kind, LEASES, MACHINES, SETS},
    areas::Areas,
    cloud::{Cloud, Style},
    desired_state::DesiredState,
    faults::Rates,
    freezes::conditions_of,
    rng::Rng,
    system::{Process, Program},
    world::World,
};

/// The writes that a policy changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Create,
    CreateAndUpdate,
}

impl World {
    /// From now on the API server changes each object of a kind that is written.
    fn admit(&self, kind: &'static Kind, on: On, change: fn(&mut Value)) {
        self.say(format!("policy on {}: {on:?}", kind.name));
        self.control.set_admission(Some(Arc::new(move |call, object| {
            let is_create = call.verb == ApiVerb::Create;
            if call.kind == kind && (is_create || on == On::CreateAndUpdate) {
                change(object);
            }
        })));
    }

    /// Requests that were stored or refused, and that are neither events nor leases.
    fn writes(&self) -> usize {
        let reads = [ApiVerb::Get, ApiVerb::List, ApiVerb::Watch];
        let is_write = |call: &&Arc<_>| -> bool {
            let call: &super::super::api_server::ApiCall = call;
            !reads.contains(&call.verb) && ![&EVENTS, &LEASES].contains(&call.kind) && !call.is_dry_run()
        };
        self.control.calls().iter().filter(is_write).count()
    }

    /// Conditions of the deployment and of its sets that show a fight.
    fn complaints(&self) -> Vec<String> {
        let mut found = Vec::new();
        for kind in [&DEPLOYMENTS, &SETS] {
            for object in self.control.all(kind) {
                for condition in object.value["status"][conditions_of(kind)].as_array().into_iter().flatten() {
                    let (type_, status) = (condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap());
                    if type_ == "InSync" || type_ == "ReplicaFailure" || (type_, status) == ("Progressing", "False") {
                        found.push(format!("{} {type_}: {}", object.name(), condition["message"]));
                    }
                }
            }
        }
        found
    }

    /// Events of type Warning.
    fn warnings(&self) -> Vec<String> {
        let events = self.control.all(&EVENTS).into_iter().filter(|event| event.value["type"] == "Warning");
        events.map(|event| format!("{} {}", event.value["reason"], event.value["message"])).collect()
    }
}

fn fine(world: &World) {
    if let Some(failure) = world.faults.failure() {
        panic!("{failure}\n{}\n{}", world.faults.log().join("\n"), world.describe());
    }
}

async fn until_met(world: &World, limit: Duration) {
    let is_met = || world.differences().is_empty() && world.complaints().is_empty();
    let outcome = world.within(limit, "the desired state", is_met).await;
    fine(world);
    let all = || format!("{}\n{}\n{:?}", world.faults.log().join("\n"), world.describe(), world.complaints());
    outcome.unwrap_or_else(|failure| panic!("{failure}\n{}", all()));
}

/// A pool of 3 Machines and its controllers.
async fn pool() -> (Arc<World>, Process) {
    let desired = DesiredState::of(3);
    let (rng, cloud) = (Rng::seeded(0), Cloud::new(Style::SIMPLE));
    let world = World::with(rng, Rates::calm(), cloud, desired, Areas::default());
    let process = Process::start(&world, &Program::everything("a"));
    until_met(&world, Duration::from_mins(5)).await;
    (world, process)
}

fn set_label(machine: &mut Value) {
    machine["metadata"]["labels"]["name"] = json!("platform");
}

fn drop_owners(object: &mut Value) {
    object["metadata"]["ownerReferences"] = json!([]);
}

fn set_owner(object: &mut Value) {
    let owner = json!({ "apiVersion": "v1", "kind": "Team", "name": "team", "uid": "team", "controller": true });
    object["metadata"]["ownerReferences"] = json!([owner]);
}

/// Most VMs while a policy changes what a pool of 3 writes; the model's cloud counts ending ones as well.
const MOST_VMS: usize = 4;

/// Machines that are not their set's are deleted, and no more are made. The pool grows once the policy is deleted.
#[rstest]
#[case::another_label(set_label)]
#[case::another_controller(set_owner)]
#[tokio::test(start_paused = true)]
async fn machines_that_the_api_server_gives_away_are_deleted_and_not_made_again(#[case] change: fn(&mut Value)) {
    let (world, _process) = pool().await;
    world.admit(&MACHINES, On::Create, change);
    let before = world.writes();
    world.control.delete(&MACHINES, super::world::NAMESPACE, world.control.all(&MACHINES)[0].name()).unwrap();
    sleep(Duration::from_mins(10)).await;
    assert!(world.cloud.lock().vms.len() <= MOST_VMS);
    assert_eq!(world.control.all(&MACHINES).len(), 2, "{}", world.describe());
    let writes = world.writes() - before;
    assert!(writes < 30, "{writes} writes with those of the deleted machine\n{}", world.faults.log().join("\n"));
    let complaints = world.complaints();
    assert!(
        complaints.iter().any(|text| text.contains("was written") || text.contains("other owners")),
        "{complaints:?}"
    );
    assert_eq!(
        world.warnings().iter().filter(|text| text.contains("FailedCreate")).count(),
        1,
        "{:?}",
        world.warnings()
    );
    world.control.set_admission(None);
    until_met(&world, Duration::from_mins(12)).await;
}

/// A set that is not its deployment's is deleted with its machines, and the rollout stops.
#[rstest]
#[case::another_label(set_label)]
#[case::another_controller(set_owner)]
#[tokio::test(start_paused = true)]
async fn sets_that_the_api_server_gives_away_are_deleted_and_not_made_again(#[case] change: fn(&mut Value)) {
    let (world, _process) = pool().await;
    world.admit(&SETS, On::Create, change);
    let before = world.writes();
    world.change_desired_state("another template", DesiredState::roll);
    sleep(Duration::from_mins(10)).await;
    assert!(world.cloud.lock().vms.len() <= MOST_VMS);
    assert_eq!(world.control.all(&SETS).len(), 1, "{}", world.describe());
    let writes = world.writes() - before;
    assert!(writes < 30, "{writes} writes with those of one machine\n{}", world.faults.log().join("\n"));
    assert!(!world.complaints().is_empty());
    let failed = |text: &&String| text.contains("MachineSetCreateError");
    assert_eq!(world.warnings().iter().filter(failed).count(), 1, "{:?}", world.warnings());
    world.control.set_admission(None);
    until_met(&world, Duration::from_mins(15)).await;
}

/// The template of a new set has a label, an annotation or a class that its deployment did not send.
#[rstest]
#[case::label(|set: &mut Value| set["spec"]["template"]["metadata"]["labels"]["costcenter"] = json!("4711"))]
#[case::annotation(|set: &mut Value| set["spec"]["template"]["metadata"]["annotations"]["costcenter"] = json!("4711"))]
#[case::class(|set: &mut Value| set["spec"]["template"]["spec"]["class"]["name"] = json!("class-2"))]
#[tokio::test(start_paused = true)]
async fn a_set_with_another_template_is_recognised(
    #[case] change: fn(&mut Value),
    #[values(On::Create, On::CreateAndUpdate)] on: On,
) {
    let (world, _process) = pool().await;
    world.admit(&SETS, on, change);
    world.change_desired_state("another template", DesiredState::roll);
    sleep(Duration::from_mins(10)).await;
    assert!(world.cloud.lock().vms.len() <= MOST_VMS);
    assert!(world.control.all(&SETS).len() <= 2, "{}", world.describe());
    let before = world.writes();
    sleep(Duration::from_mins(10)).await;
    let writes = world.writes() - before;
    assert!(writes < 20, "{writes} writes\n{}", world.faults.log().join("\n"));
    assert_eq!(world.complaints().is_empty(), on == On::Create, "{:?}", world.complaints());
    let undone = |text: &&String| text.contains("WriteUndone");
    assert_eq!(world.warnings().iter().filter(undone).count(), usize::from(on == On::CreateAndUpdate));
    world.control.set_admission(None);
    let is_quiet = || world.complaints().is_empty();
    world.within(Duration::from_mins(12), "no complaints", is_quiet).await.unwrap();
    assert!(world.control.all(&SETS).len() <= 2, "{}", world.describe());
    let machines = world.control.all(&MACHINES).len();
    assert_eq!(machines, 3, "no rollout follows");
}

/// A field that is copied from one object to the others is set by a policy.
#[rstest]
#[case::of_machines(&MACHINES, |machine: &mut Value| machine["spec"]["drainTimeout"] = json!("10m0s"))]
#[case::of_node_templates(&MACHINES, |machine: &mut Value| {
    machine["spec"]["nodeTemplate"]["metadata"]["labels"]["pool"] = json!("other");
})]
#[case::of_owners_of_machines(&MACHINES, drop_owners)]
#[case::of_sets(&SETS, |set: &mut Value| set["spec"]["minReadySeconds"] = json!(77))]
#[case::of_annotations_of_sets(&SETS, |set: &mut Value| {
    set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("0");
})]
#[case::of_finalizers_of_deployments(&DEPLOYMENTS, |deployment: &mut Value| {
    deployment["metadata"]["finalizers"] = json!([]);
})]
#[tokio::test(start_paused = true)]
async fn a_field_that_is_changed_at_each_write_is_written_ever_more_rarely(
    #[case] kind: &'static Kind,
    #[case] change: fn(&mut Value),
) {
    let (world, _process) = pool().await;
    world.admit(kind, On::CreateAndUpdate, change);
    for object in world.control.all(kind) {
        world.control.edit(kind, super::world::NAMESPACE, object.name(), |_| {}).unwrap();
    }
    sleep(Duration::from_secs(10)).await;
    let before = world.writes();
    sleep(Duration::from_mins(10)).await;
    fine(&world);
    let writes = world.writes() - before;
    assert!(writes < 20, "{writes} writes\n{}", world.faults.log().join("\n"));
    assert!(!world.complaints().is_empty());
    let undone: Vec<String> = world.warnings().into_iter().filter(|text| text.contains("WriteUndone")).collect();
    assert_eq!(undone.len(), 1, "{undone:?}");
    assert_eq!(world.flawed_plans(), Vec::<String>::new());
    world.control.set_admission(None);
    until_met(&world, Duration::from_mins(15)).await;
}

/// Sets that never had a machine, of a program that did not recognise its own ones.
#[tokio::test(start_paused = true)]
async fn what_a_former_policy_left_is_deleted() {
    let (world, _process) = pool().await;
    let set = world.control.all(&SETS).remove(0);
    for index in 0..130 {
        let mut left = set.value.clone();
        let hash = format!("{index}");
        left["metadata"] = json!({
            "name": format!("left-{index}"), "namespace": super::world::NAMESPACE,
            "labels": { "name": "pool", "machine-template-hash": hash },
            "ownerReferences": set.value["metadata"]["ownerReferences"],
        });
        left["spec"]["replicas"] = json!(0);
        left["spec"]["selector"] = json!({ "matchLabels": { "name": "pool", "machine-template-hash": hash } });
        left["spec"]["template"]["metadata"]["labels"] =
            json!({ "name": "pool", "machine-template-hash": hash, "costcenter": "4711" });
        left["status"] = Value::Null;
        world.control.create(&SETS, left).unwrap();
    }
    let is_tidy = || world.control.all(&SETS).len() == 1;
    world.within(Duration::from_mins(5), "one set", is_tidy).await.unwrap();
    assert_eq!(world.control.all(&SETS)[0].name(), set.name());
    until_met(&world, Duration::from_mins(5)).await;
}
