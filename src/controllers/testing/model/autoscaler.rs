//! The autoscaler: it chooses Machines one after the other, each with an update of the deployment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

#[cfg(test)]
use rstest::rstest;
use serde_json::json;
use tokio::time::sleep;

use super::{
    super::api_server::{ApiVerb, DEPLOYMENTS, MACHINES, ServerObject},
    areas::Areas,
    cloud::{Cloud, Style},
    desired_state::{DesiredState, POOL},
    faults::Rates,
    rng::Rng,
    system::{Process, Program},
    world::{NAMESPACE, World},
};
use mcm_api::labels;

/// Pauses between two updates in milliseconds.
const PAUSES: [u64; 4] = [0, 5, 40, 300];

/// How an autoscaler writes a name into its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `NAME~TIME`.
    WithTime,
    /// `NAME`, as older ones do.
    Name,
}

impl World {
    /// Adds a Machine to the list and takes 1 from the replicas, in one write. False if there is no deployment with replicas.
    pub(super) fn choose(&self, name: &str, form: Form) -> bool {
        if self.desired.lock().replicas == 0 || self.control.get(&DEPLOYMENTS, NAMESPACE, POOL).is_none() {
            return false;
        }
        self.say(format!("autoscaler: without machine {name}"));
        let desired = {
            let mut desired = self.desired.lock();
            desired.replicas -= 1;
            desired.clone()
        };
        self.ledger.lock().desired_changed(&desired);
        let now = self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let edited = self.control.edit(&DEPLOYMENTS, NAMESPACE, POOL, |deployment| {
            let annotations = &mut deployment["metadata"]["annotations"];
            let listed = annotations[labels::TRIGGER_DELETION].as_str().filter(|list| !list.is_empty());
            let entry = match form {
                Form::WithTime => format!("{name}~{now}"),
                Form::Name => name.to_owned(),
            };
            let list = listed.map_or_else(|| entry.clone(), |list| format!("{list},{entry}"));
            annotations[labels::TRIGGER_DELETION] = json!(list);
            annotations[labels::LAST_SCALER_CHANGE] = json!(now);
            deployment["spec"]["replicas"] = json!(desired.replicas);
        });
        // The user may have deleted it.
        edited.is_ok()
    }

    /// Chooses several Machines within a short time.
    pub(super) fn choose_several(self: &Arc<Self>) {
        let count = self.faults.rng(|rng| rng.below(6)) + 1;
        let form = self.faults.pick(&[Form::WithTime, Form::Name]).unwrap();
        let pause = self.faults.pick(&PAUSES).unwrap();
        for index in 0..u32::try_from(count).unwrap() {
            self.later(Duration::from_millis(pause) * index, move |world| {
                let candidates: Vec<String> = world.candidates().iter().map(|it| it.name().to_owned()).collect();
                if let Some(name) = world.faults.pick(&candidates) {
                    world.choose(&name, form);
                }
            });
        }
    }

    /// The Machines that the autoscaler may choose.
    fn candidates(&self) -> Vec<Arc<ServerObject>> {
        let deployment = self.control.get(&DEPLOYMENTS, NAMESPACE, POOL);
        let list = deployment
            .and_then(|it| it.value["metadata"]["annotations"][labels::TRIGGER_DELETION].as_str().map(str::to_owned));
        let list = list.unwrap_or_default();
        let listed: BTreeSet<&str> = list.split(',').filter_map(|entry| entry.split('~').next()).collect();
        let mut machines = self.control.all(&MACHINES);
        machines.retain(|machine| {
            let is_failed = machine.value["status"]["currentStatus"]["phase"] == "Failed";
            !machine.is_terminating() && !is_failed && !listed.contains(machine.name())
        });
        machines
    }

    fn machine_names(&self) -> BTreeSet<String> {
        self.control.all(&MACHINES).iter().map(|machine| machine.name().to_owned()).collect()
    }

    /// Names of all Machines that were ever created, with their classes.
    fn created(&self) -> BTreeMap<String, String> {
        let calls = self.control.calls();
        let creations = calls.iter().filter(|call| call.verb == ApiVerb::Create && call.kind == &MACHINES);
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        creations
            .map(|call| (text(&call.body["metadata"]["name"]), text(&call.body["spec"]["class"]["name"])))
            .collect()
    }

    fn deleted(&self) -> BTreeSet<String> {
        let calls = self.control.calls();
        let deletions = calls.iter().filter(|call| call.verb == ApiVerb::Delete && call.kind == &MACHINES);
        deletions.map(|call| call.name.clone()).collect()
    }

    fn was_frozen(&self) -> bool {
        self.control.calls().iter().any(|call| !call.body["metadata"]["labels"][labels::FREEZE].is_null())
    }
}

/// A seed decides how long requests take, how often writes collide and how far caches lag behind.
async fn world(seed: u64, replicas: i32) -> (Arc<World>, Process) {
    let mut rng = Rng::seeded(seed);
    let rates = Rates {
        latency: *rng.pick(&[5, 50, 300]).unwrap(),
        overtaken: *rng.pick(&[0, 0, 80]).unwrap(),
        late: *rng.pick(&[0, 0, 100]).unwrap(),
        ..Rates::calm()
    };
    let world = World::with(rng, rates, Cloud::new(Style::SIMPLE), DesiredState::of(replicas), Areas::default());
    let process = Process::start(&world, &Program::everything("a").without_election());
    met(&world).await;
    (world, process)
}

async fn met(world: &World) {
    let outcome = world.within(Duration::from_mins(40), "the desired state", || world.differences().is_empty()).await;
    let told = || format!("{}\n{}", world.faults.log().join("\n"), world.describe());
    assert_eq!(world.faults.failure(), None, "{}", told());
    outcome.unwrap_or_else(|failure| panic!("{failure}\n{}", told()));
}

/// Chooses some Machines one after the other, as the seed decides.
async fn choose(world: &World, count: usize) -> BTreeSet<String> {
    let form = world.faults.pick(&[Form::WithTime, Form::Name]).unwrap();
    let pause = Duration::from_millis(world.faults.pick(&PAUSES).unwrap());
    let mut chosen = BTreeSet::new();
    for _ in 0..count {
        let names: Vec<String> = world.candidates().iter().map(|machine| machine.name().to_owned()).collect();
        let name = world.faults.pick(&names).unwrap();
        assert!(world.choose(&name, form));
        chosen.insert(name);
        sleep(pause).await;
    }
    chosen
}

#[cfg(test)]
#[rstest]
#[case::one(1, 8)]
#[case::two(2, 24)]
#[case::some(5, 16)]
#[case::many(20, 6)]
#[tokio::test(start_paused = true)]
async fn exactly_the_machines_that_the_autoscaler_chooses_go(#[case] count: usize, #[case] seeds: u64) {
    for seed in 0..seeds {
        let (world, _a) = world(seed, i32::try_from(count).unwrap() + 2).await;
        let before = world.machine_names();
        let chosen = choose(&world, count).await;
        met(&world).await;
        // The number of Machines is checked once a minute.
        sleep(Duration::from_mins(2)).await;
        let told = || format!("seed {seed}, {count}\n{}", world.faults.log().join("\n"));
        assert_eq!(world.machine_names(), before.difference(&chosen).cloned().collect(), "{}", told());
        assert_eq!(world.created().len(), before.len(), "machines are created for nothing, {}", told());
        assert!(!world.was_frozen(), "{}", told());
    }
}

/// The rollout replaces the others, and deletes only chosen Machines of the new template.
#[cfg(test)]
#[rstest]
#[case::one_old_set(1)]
#[case::two_old_sets(2)]
#[tokio::test(start_paused = true)]
async fn the_autoscaler_chooses_in_the_middle_of_a_rollout(#[case] rollouts: usize) {
    for seed in 0..24 {
        let (world, _a) = world(seed, 6).await;
        for _ in 0..rollouts {
            world.change_desired_state("another template", DesiredState::roll);
            sleep(world.faults.millis(0..60_000)).await;
        }
        let count = world.faults.rng(|rng| rng.below(3)) + 1;
        let chosen = choose(&world, count).await;
        met(&world).await;
        let told = || format!("seed {seed}, chosen {chosen:?}\n{}", world.faults.log().join("\n"));
        assert_eq!(world.machine_names().intersection(&chosen).count(), 0, "{}", told());
        let current = world.desired.lock().class_name();
        let of_current = |name: &&String| world.created().get(*name) == Some(&current);
        let deleted = world.deleted();
        let wrong: Vec<&String> = deleted.difference(&chosen).filter(of_current).collect();
        assert_eq!(wrong, [""; 0], "{}", told());
        assert!(!world.was_frozen(), "{}", told());
    }
}

/// The autoscaler removes the Node of a dead VM before the health timeout of its Machine.
#[cfg(test)]
#[rstest]
#[case::before_the_machine_shows_it(Duration::from_secs(1))]
#[case::of_an_unknown_machine(Duration::from_mins(2))]
#[case::when_it_is_about_to_fail(Duration::from_mins(10))]
#[tokio::test(start_paused = true)]
async fn a_machine_with_a_dead_vm_is_deleted_when_the_autoscaler_chooses_it(#[case] after: Duration) {
    for seed in 0..8 {
        let (world, _a) = world(seed, 4).await;
        let before = world.machine_names();
        world.kill_some_vm();
        let dead = world.control.all(&MACHINES).into_iter().find(|machine| {
            let id = machine.value["spec"]["providerID"].as_str().unwrap();
            !world.cloud.lock().vms.contains_key(id)
        });
        let dead = BTreeSet::from([dead.unwrap().name().to_owned()]);
        sleep(after).await;
        let candidates: BTreeSet<_> = world.candidates().iter().map(|machine| machine.name().to_owned()).collect();
        if !dead.is_subset(&candidates) {
            continue;
        }
        assert!(world.choose(dead.first().unwrap(), Form::WithTime));
        met(&world).await;
        let told = || format!("seed {seed}, dead {dead:?}\n{}", world.faults.log().join("\n"));
        assert_eq!(world.machine_names(), before.difference(&dead).cloned().collect(), "{}", told());
        assert_eq!(world.created().len(), before.len(), "{}", told());
    }
}
