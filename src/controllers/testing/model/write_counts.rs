//! The number of writes that Machines and Nodes cost. It must not grow unnoticed: with 10,000 Machines a rollout waits for
//! API servers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    super::api_server::{ApiServer, ApiVerb, PODS},
    areas::Areas,
    cloud::{Cloud, Style},
    desired_state::DesiredState,
    faults::Rates,
    rng::Rng,
    system::{Process, Program},
    world::World,
};

const MACHINES: usize = 40;
/// Share of them that a rollout adds and removes at a time.
const PERCENT: i32 = 20;
const PROCESS: &str = "a";
/// More than a rollout takes.
const LONG: Duration = Duration::from_mins(60);

/// Most writes of Machines for one life: create, identity of the VM, Pending, Running, delete, finalizer.
const OF_MACHINE: usize = 6;
/// Most writes of Nodes for a Machine that is replaced: annotations and taint, condition, cordon, finalizer and delete of the old
/// Node; finalizer with annotations, and their removal, of the new Node.
const OF_NODES: usize = 7;

/// The writes of the process since the last count, by kind.
#[derive(Default)]
struct WriteCounter {
    seen: [usize; 2],
}

impl WriteCounter {
    fn count(&mut self, world: &World) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for (server, seen) in [&world.control, &world.target].into_iter().zip(&mut self.seen) {
            for kind in writes_after(server, seen) {
                *counts.entry(kind).or_default() += 1;
            }
        }
        counts
    }
}

/// The kinds of the writes that came after the first `seen` requests.
fn writes_after(server: &ApiServer, seen: &mut usize) -> Vec<&'static str> {
    let calls = server.calls();
    let new = calls.iter().skip(std::mem::replace(seen, calls.len()));
    let is_read = |verb| matches!(verb, ApiVerb::Get | ApiVerb::List | ApiVerb::Watch);
    let own = new.filter(|call| &*call.caller == PROCESS && !is_read(call.verb));
    own.map(|call| call.kind.plural).collect()
}

async fn until_met(world: &Arc<World>, what: &str) {
    let outcome = world.within(LONG, what, || world.differences().is_empty()).await;
    if let Some(failure) = world.faults.failure().or(outcome.err()) {
        panic!("{failure}\n{}\n{}", world.faults.log().join("\n"), world.describe());
    }
}

/// A drain with pods writes more.
fn remove_pods(world: &World) {
    for pod in world.target.all(&PODS) {
        world.target.delete_now(&PODS, &pod).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_and_its_node_cost_few_writes() {
    let desired = DesiredState::percent(i32::try_from(MACHINES).unwrap(), PERCENT);
    let world = World::with(Rng::seeded(0), Rates::calm(), Cloud::new(Style::SIMPLE), desired, Areas::default());
    let (_process, mut counter) = (Process::start(&world, &Program::everything(PROCESS)), WriteCounter::default());
    until_met(&world, "the machines").await;
    let created = counter.count(&world);
    remove_pods(&world);
    world.change_desired_state("another template", DesiredState::roll);
    until_met(&world, "the rollout").await;
    let rolled = counter.count(&world);
    remove_pods(&world);
    world.change_desired_state("no machine", |desired| desired.replicas = 0);
    until_met(&world, "nothing left").await;
    let deleted = counter.count(&world);
    let told = format!("created {created:?}, rolled {rolled:?}, deleted {deleted:?}");
    // A few are repeated after a conflict.
    let fits = |count: usize, most: usize| count <= most * MACHINES + MACHINES / 10;
    assert!(fits(created["machines"] + deleted["machines"], OF_MACHINE), "{told}");
    assert!(fits(rolled["machines"], OF_MACHINE), "{told}");
    assert!(fits(rolled["nodes"], OF_NODES), "{told}");
    assert!(fits(created["nodes"] + deleted["nodes"], OF_NODES - 2), "{told}");
    assert!(rolled["machines"] >= 6 * MACHINES, "not all were replaced: {told}");
}
