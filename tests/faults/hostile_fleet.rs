//! Target clusters that are dead, slow or send without end do not delay the machines of the other control planes of a process.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcm::api::machine::{MachineDeployment, MachinePhase};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    pools::{DesiredPool, PoolWatch},
    recorder::{MachineStory, Recorder, Seen},
    run::{Bound, Run, number, percentile},
    support::{
        door::Door,
        fleet::{FleetPlanes, FleetServer, pool_of, replica},
        hostile::{self, Attack},
        wait,
        world::Manager,
    },
};

/// How much longer a machine may take, by the 99th percentile.
const RATIO: f64 = 1.2;
/// No program listens there.
const CLOSED: &str = "https://127.0.0.1:1";
/// How late the responses of a slow target are.
const SLOW: Duration = Duration::from_secs(10);
/// Changes of Nodes in a second.
const FLOOD: usize = 1000;
/// Machines of a part whose steps are printed.
const SLOWEST: usize = 6;
/// Longer than cells take to start and to end.
const CELLS_LIMIT: Duration = Duration::from_secs(300);

/// Machines are created in waves, without hostile targets and with them, in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_targets_do_not_delay_the_machines_of_others() {
    let run = Run::start("hostile_fleet");
    let planes = run.count("planes", 100, 12);
    let hostile = HostileCounts {
        dead: run.count("dead", 25, 3),
        slow: run.count("slow", 5, 1),
        flooding: run.count("flooding", 1, 1),
    };
    let (waves, rounds) = (run.count("waves", 5, 3), run.count("rounds", 2, 1));
    let pause = run.seconds("pause", 0.25, 0.1);
    assert!(hostile.sum() < planes, "of {planes} control planes, {} are hostile", hostile.sum());
    let server = FleetServer::start().await;
    let fleet = FleetPlanes::new(&server, "hostile-fleet", planes, 1).await;
    run.say(format!("logs are in {}", fleet.world.folder().display()));
    let (recorder, pools) = (Recorder::start_for_all(&fleet.world), PoolWatch::start(&fleet.world.client));
    let (strangers, polite) = fleet.namespaces.split_at(hostile.sum());
    let folder = PlaneFolder::new(&fleet, &server).await;
    polite.iter().for_each(|namespace| folder.add(namespace, &folder.polite.url()));
    let manager = fleet.launch_alone(&folder.path).await;
    let bench = CreationBench { run: &run, fleet: &fleet, pools: &pools, polite, pause };
    bench.settle(1).await;
    bench.create(1, &recorder).await;

    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.extend(bench.create(waves, &recorder).await);
        folder.add_hostile(strangers, hostile);
        until_served(&manager, strangers, true).await;
        with.extend(bench.create(waves, &recorder).await);
        strangers.iter().for_each(|namespace| folder.remove(namespace));
        until_served(&manager, strangers, false).await;
    }
    for (what, seconds) in [("without", &without), ("with", &with)] {
        run.measured(format!("machines {what} hostile targets"), number(seconds.len()), "");
        run.measured(format!("from creation to Running {what} hostile targets, p50"), percentile(seconds, 0.5), "s");
        run.measured(format!("from creation to Running {what} hostile targets, p99"), percentile(seconds, 0.99), "s");
    }
    let ratio = percentile(&with, 0.99) / percentile(&without, 0.99);
    run.check("ratio of the 99th percentiles", ratio, "", Bound::AtMost(RATIO));
    run.exactly("machines measured", with.len(), without.len());
    drop(manager);
    run.finish();
}

/// Numbers of hostile targets.
#[derive(Clone, Copy)]
struct HostileCounts {
    /// Half of them refuse connections, and half accept them and do not respond.
    dead: usize,
    slow: usize,
    flooding: usize,
}

impl HostileCounts {
    fn sum(self) -> usize {
        self.dead + self.slow + self.flooding
    }
}

/// The folder with the control planes of the process, and the servers of their targets.
struct PlaneFolder {
    path: PathBuf,
    kubeconfig: PathBuf,
    polite: Door,
    slow: Door,
    silent: String,
    flooding: String,
}

impl PlaneFolder {
    async fn new(fleet: &FleetPlanes, server: &FleetServer) -> Self {
        let path = fleet.world.folder().join("planes");
        fs::create_dir(&path).unwrap();
        let slow = replica::target_door(&server.control).await;
        slow.slow(SLOW);
        Self {
            path,
            kubeconfig: fleet.world.identity().target.clone(),
            polite: replica::target_door(&server.control).await,
            slow,
            silent: hostile::serve(Attack::Silence),
            flooding: hostile::serve(Attack::Flood { events: FLOOD }),
        }
    }

    /// Adds a control plane whose target is below a URL.
    fn add(&self, namespace: &str, url: &str) {
        replica::write_plane(&self.kubeconfig, format!("{url}/{namespace}"), &self.path, namespace);
    }

    fn add_hostile(&self, namespaces: &[String], counts: HostileCounts) {
        let (dead, others) = namespaces.split_at(counts.dead);
        let (slow, flooding) = others.split_at(counts.slow);
        for (at, namespace) in dead.iter().enumerate() {
            let server = if at.is_multiple_of(2) { CLOSED } else { self.silent.as_str() };
            replica::write_plane(&self.kubeconfig, server.to_owned(), &self.path, namespace);
        }
        slow.iter().for_each(|namespace| self.add(namespace, &self.slow.url()));
        for namespace in flooding {
            replica::write_plane(&self.kubeconfig, self.flooding.clone(), &self.path, namespace);
        }
    }

    fn remove(&self, namespace: &str) {
        fs::remove_file(self.path.join(namespace)).unwrap();
    }
}

/// Waits until the process has cells for all of these control planes, or for none.
pub async fn until_served(manager: &Manager, namespaces: &[String], are_served: bool) {
    wait::until_within(CELLS_LIMIT, "the cells of control planes to start or to end", async || {
        let (_, metrics) = manager.get("/metrics").await;
        let has_cell = |namespace: &String| metrics.contains(&format!("mcm_cell_ready{{cell=\"{namespace}\"}}"));
        namespaces.iter().all(|namespace| has_cell(namespace) == are_served).then_some(())
    })
    .await;
}

/// Creates machines in the control planes without hostile targets.
struct CreationBench<'a> {
    run: &'a Run,
    fleet: &'a FleetPlanes,
    pools: &'a PoolWatch,
    polite: &'a [String],
    /// Time between the creations of two pools.
    pause: Duration,
}

impl CreationBench<'_> {
    /// Each pool grows by one machine in each wave, and then shrinks to one again. Returns the seconds from the creation of each
    /// Machine until it ran.
    async fn create(&self, waves: usize, recorder: &Recorder) -> Vec<f64> {
        let since = Instant::now();
        for wave in 1..=waves {
            self.scale(1 + wave).await;
            self.settle(1 + wave).await;
        }
        let pools: BTreeSet<String> = self.polite.iter().map(|namespace| pool_of(namespace)).collect();
        let mut creations: Vec<(f64, String)> = {
            let seen = recorder.now();
            let stories = seen.machines.values().filter(|story| is_of(story, &pools));
            stories.filter_map(|story| Some((seconds_to_run(story, since)?, steps(story, &seen, since)))).collect()
        };
        creations.sort_by(|one, other| other.0.total_cmp(&one.0));
        creations.iter().take(SLOWEST).for_each(|(_, steps)| self.run.say(format!("among the slowest: {steps}")));
        self.scale(1).await;
        self.settle(1).await;
        creations.into_iter().map(|(seconds, _)| seconds).collect()
    }

    async fn scale(&self, replicas: usize) {
        for namespace in self.polite {
            let pools: Api<MachineDeployment> = Api::namespaced(self.fleet.world.client.clone(), namespace);
            let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
            pools.patch(&pool_of(namespace), &PatchParams::default(), &patch).await.unwrap();
            // Not a wait for a state: a burst would measure how many machines the process creates in a second.
            sleep(self.pause).await;
        }
    }

    async fn settle(&self, replicas: usize) {
        let desired = DesiredPool { replicas, class: "small" }.in_each(self.polite);
        self.pools.settled(self.run, &desired).await;
    }
}

/// The name of a Machine is that of its deployment with two more parts.
fn is_of(story: &MachineStory, pools: &BTreeSet<String>) -> bool {
    story.name.rsplitn(3, '-').nth(2).is_some_and(|pool| pools.contains(pool))
}

/// Seconds from the creation of a Machine until it ran, if it was created after a time.
fn seconds_to_run(story: &MachineStory, since: Instant) -> Option<f64> {
    let (_, created) = story.phases.first().filter(|(_, at)| *at >= since)?;
    let (_, ran) = story.phases.iter().find(|(phase, _)| *phase == MachinePhase::Running)?;
    Some(ran.duration_since(*created).as_secs_f64())
}

/// The steps of the creation of a Machine, each in seconds since its creation; that in seconds since the first wave.
fn steps(story: &MachineStory, seen: &Seen, since: Instant) -> String {
    let Some((_, created)) = story.phases.first() else { return story.name.clone() };
    let after = |at: Instant| at.saturating_duration_since(*created).as_secs_f64();
    let made = seen.vms.values().find(|vm| vm.machine == story.name).map(|vm| after(vm.made));
    let phases = story.phases.iter().map(|(phase, at)| format!("{phase:?} {:.3}", after(*at)));
    let phases = phases.collect::<Vec<_>>().join(", ");
    let begun = created.saturating_duration_since(since).as_secs_f64();
    format!("{}, created at {begun:.3}: VM {:.3}, {phases}", story.name, made.unwrap_or(f64::NAN))
}
