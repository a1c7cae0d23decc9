//! Pods that get 5 s to end, as on a seed of Gardener: SIGTERM, then SIGKILL, while a pool is created, rolled and drained.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::DeleteParams,
    runtime::{WatchStreamExt, watcher},
};
use rand::{Rng, rngs::StdRng};
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    run::{Bound, Run, number},
    stage::Stage,
    support::{
        control_plane::ControlPlane,
        pods,
        world::{Manager, World},
    },
};

/// `terminationGracePeriodSeconds` of Gardener.
const GRACE: Duration = Duration::from_secs(5);
/// A creation takes longer than the grace period: a program that has one in flight is killed and does not release its Lease.
const SLOW: &str = "7s";
/// How long a program works between two restarts.
const LIFE_MILLIS: std::ops::Range<u64> = 500..12_000;
/// A rolling update of a Deployment starts the new pod first in half of the cases.
const STARTS_FIRST: f64 = 0.5;

/// Identities of programs that have ended.
type Ended = Arc<Mutex<BTreeSet<String>>>;

/// A Lease passes to another program only if its holder released it or has ended, so there are never two leaders.
#[tokio::test]
async fn no_vm_is_lost_or_doubled_and_there_is_one_leader_with_five_seconds_to_end() {
    let run = Run::start("grace_period");
    let machines = run.count("machines", 12, 6);
    let restarts = run.count("restarts", 21, 6);
    let mut dice = run.dice();
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let ended = Ended::default();
    let broken = Arc::<Mutex<Vec<String>>>::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(watch_leases(
        Api::namespaced(stage.world.client.clone(), &stage.world.namespace),
        Arc::clone(&ended),
        Arc::clone(&broken),
    ));
    let slow = json!({"providerSpec": {"createLatency": SLOW, "bootLatency": "1s", "deleteLatency": SLOW}});
    stage.classes(slow).await;

    let mut pod = Pod { world: &stage.world, managers: start(&stage.world), ended, killed: 0 };
    // Some at a time, so that there is work at each restart.
    let third = restarts / 3;
    for at in 1..=third {
        stage.deployment("pool", machines * at / third, json!({})).await;
        pod.restart(&mut dice).await;
    }
    stage.settled(machines, "small").await;
    stage.world.roll("large").await;
    for _ in 0..third {
        pod.restart(&mut dice).await;
    }
    stage.settled(machines, "large").await;
    let names = stage.world.scene.now().names();
    for name in names {
        pods::run(&stage.world.target, &stage.world.namespace, pods::pod(&format!("web-{name}"), &name)).await;
    }
    for at in 1..=restarts - 2 * third {
        stage.scale(machines - machines * at / (restarts - 2 * third)).await;
        pod.restart(&mut dice).await;
        end_pods(&stage.world).await;
    }
    let drained = async {
        stage.world.deployments().delete("pool", &DeleteParams::background()).await.unwrap();
        stage.until("all machines to be deleted", |scene| scene.machines.is_empty()).await;
    };
    let kubelet = async {
        loop {
            end_pods(&stage.world).await;
            sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! { () = drained => {}, () = kubelet => {} }

    let alive = stage.world.cloud.count("/alive").await;
    stage.run.check("VMs left", alive as f64, "", Bound::Exactly(0.0));
    stage.run.none("Leases that passed on while their holder ran", &broken.lock().unwrap());
    stage.run.measured("restarts", number(restarts), "");
    stage.run.measured("programs that had to be killed", number(pod.killed), "");
    let managers = std::mem::take(&mut pod.managers);
    drop(pod);
    stage.close(Some(2 * machines), &managers.iter().collect::<Vec<_>>()).await;
}

struct Pod<'a> {
    world: &'a World,
    managers: Vec<Manager>,
    ended: Ended,
    killed: usize,
}

impl Pod<'_> {
    /// Ends the pod as a kubelet does, after a while, and has another one run.
    async fn restart(&mut self, dice: &mut StdRng) {
        // Not a wait for a state: the moment shall be any.
        sleep(Duration::from_millis(dice.random_range(LIFE_MILLIS))).await;
        let starts_first = dice.random_bool(STARTS_FIRST);
        let next = if starts_first { start(self.world) } else { Vec::new() };
        for manager in &self.managers {
            manager.program.terminate();
        }
        let told = Instant::now();
        for mut manager in self.managers.drain(..) {
            while told.elapsed() < GRACE && !manager.program.has_ended() {
                sleep(Duration::from_millis(20)).await;
            }
            if !manager.program.has_ended() {
                manager.program.kill();
                self.killed += 1;
            }
            self.ended.lock().unwrap().extend(identities(&manager));
        }
        self.managers = if starts_first { next } else { start(self.world) };
    }
}

/// Both programs, with the flags of Gardener.
fn start(world: &World) -> Vec<Manager> {
    vec![
        world.launch("machine-controller-manager", &["--safety-up=2", "--safety-down=1"]),
        world.launch("machine-controller", &["--machine-safety-orphan-vms-period=30m", &world.cloud_flag()]),
    ]
}

/// Under which names a program was leader.
fn identities(manager: &Manager) -> Vec<String> {
    let log = manager.program.log();
    let leading = log.lines().filter(|line| line.contains("became leader"));
    let words = leading.flat_map(|line| line.split_whitespace().filter_map(|word| word.strip_prefix("identity=")));
    words.map(|word| word.trim_matches('"').to_owned()).collect()
}

/// Finds Leases that pass from a program which neither released it nor ended.
async fn watch_leases(leases: Api<Lease>, ended: Ended, broken: Arc<Mutex<Vec<String>>>) {
    let mut events = watcher(leases, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut holders = BTreeMap::<String, String>::new();
    while let Some(event) = events.next().await {
        let Ok(lease) = event else { continue };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let before = holders.insert(lease.name_any(), holder.clone()).unwrap_or_default();
        let is_taken = !before.is_empty() && !holder.is_empty() && before != holder;
        if is_taken && !ended.lock().unwrap().contains(&before) {
            broken.lock().unwrap().push(format!("{} from {before} to {holder}", lease.name_any()));
        }
    }
}

/// A kubelet: pods that terminate are deleted.
async fn end_pods(world: &World) {
    for pod in pods::all(&world.target, &world.namespace).await {
        if pod.metadata.deletion_timestamp.is_some() {
            let now = DeleteParams::default().grace_period(0);
            // mcm may have deleted it.
            let _ = pods::api(&world.target, &world.namespace).delete(&pod.name_any(), &now).await;
        }
    }
}
