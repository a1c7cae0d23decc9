//! Writes down how many machines a pool had at each moment, from the watch of its native Machines.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use mcm::api::machine::{Machine, MachinePhase};
use tokio::task::JoinHandle;

use crate::{scene::Scene, support::wait};

/// The numbers of machines at a moment, or the extremes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Most machines that were not being deleted.
    pub most: usize,
    /// Fewest that were available.
    pub least_available: usize,
    /// Highest number of machines, including terminating ones.
    pub most_at_all: usize,
}

/// A recorder that runs.
pub struct Recorder {
    seen: Arc<Mutex<Option<Seen>>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Records from now on. The pool must be complete.
    pub async fn start(scene: &Scene) -> Self {
        let seen = Arc::<Mutex<Option<Seen>>>::default();
        let machines = Api::namespaced(scene.world.management.client(), &scene.namespace);
        let task = tokio::spawn(follow(machines, Arc::clone(&seen)));
        let recorder = Self { seen, task };
        wait::until("the machines of the pool to be listed", async || recorder.so_far()).await;
        recorder
    }

    /// The extremes so far; `None` before the first list.
    fn so_far(&self) -> Option<Seen> {
        *self.seen.lock().unwrap()
    }

    /// The extremes of all that happened.
    pub fn stop(self) -> Seen {
        self.task.abort();
        self.so_far().unwrap()
    }
}

async fn follow(machines: Api<Machine>, seen: Arc<Mutex<Option<Seen>>>) {
    let of_pools = watcher::Config::default().labels("machine.mcm/pool");
    let mut events = watcher::watcher(machines, of_pools).default_backoff().boxed();
    let (mut known, mut is_listed) = (BTreeMap::new(), false);
    while let Some(event) = events.next().await {
        match event {
            Err(_) => continue,
            Ok(Event::Init) => (known, is_listed) = (BTreeMap::new(), false),
            Ok(Event::InitApply(machine) | Event::Apply(machine)) => {
                known.insert(machine.name_any(), machine);
            }
            Ok(Event::InitDone) => is_listed = true,
            Ok(Event::Delete(machine)) => drop(known.remove(&machine.name_any())),
        }
        if is_listed {
            let mut seen = seen.lock().unwrap();
            *seen = Some(seen.map_or(now(&known), |before| before.and(now(&known))));
        }
    }
}

fn now(machines: &BTreeMap<String, Machine>) -> Seen {
    let staying: Vec<&Machine> =
        machines.values().filter(|machine| machine.metadata.deletion_timestamp.is_none()).collect();
    let available = staying.iter().filter(|machine| machine.phase() == MachinePhase::Running).count();
    Seen { most: staying.len(), least_available: available, most_at_all: machines.len() }
}

impl Seen {
    fn and(self, other: Self) -> Self {
        Self {
            most: self.most.max(other.most),
            least_available: self.least_available.min(other.least_available),
            most_at_all: self.most_at_all.max(other.most_at_all),
        }
    }
}
