//! Actions of a set on a stale count of its Machines: it creates one although it has the desired number, or deletes one
//! although it has no more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use mcm::api::machine::{Machine, MachineSet};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::support::world::World;

/// The observed events, by the versions of the API server, which order all kinds.
#[derive(Default)]
struct Seen {
    /// Replicas that a set wanted since a version, by its name.
    wanted: BTreeMap<String, BTreeMap<u64, usize>>,
    /// By UID.
    machines: BTreeMap<String, Life>,
}

struct Life {
    set: String,
    made: u64,
    /// When its deletion began.
    deleted: Option<u64>,
}

/// Counts both.
pub struct Miscounts {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

impl Miscounts {
    /// Of the sets of a deployment, from its beginning.
    pub fn of(deployment: &str, world: &World) -> Self {
        Self::in_namespace(deployment, &world.client, &world.namespace)
    }

    /// The same in any namespace.
    pub fn in_namespace(deployment: &str, client: &Client, namespace: &str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let sets: Api<MachineSet> = Api::namespaced(client.clone(), namespace);
        let machines: Api<Machine> = Api::namespaced(client.clone(), namespace);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(deployment.to_owned(), Arc::clone(&seen), sets, Seen::saw_set));
        tasks.spawn(follow(deployment.to_owned(), Arc::clone(&seen), machines, Seen::saw_machine));
        Self { seen, _tasks: tasks }
    }

    /// Their number so far. A Machine that another client deletes is one of them if its set desires it.
    pub fn count(&self) -> usize {
        let seen = lock(&self.seen);
        let all = || seen.machines.values();
        let made = all().filter(|one| seen.balance(&one.set, one.made).is_some_and(|balance| balance >= 0));
        let deleted = all().filter(|one| {
            one.deleted.and_then(|deleted| seen.balance(&one.set, deleted)).is_some_and(|balance| balance <= 0)
        });
        made.count() + deleted.count()
    }
}

impl Seen {
    /// The number of Machines of a set before a version beyond the desired number.
    fn balance(&self, set: &str, version: u64) -> Option<i64> {
        let (_, wanted) = self.wanted.get(set)?.range(..version).next_back()?;
        let is_alive =
            |one: &&Life| one.set == set && one.made < version && one.deleted.is_none_or(|deleted| deleted >= version);
        let alive = self.machines.values().filter(is_alive).count();
        Some(i64::try_from(alive).unwrap() - i64::try_from(*wanted).unwrap())
    }

    fn saw_set(&mut self, set: &MachineSet, version: u64) {
        let wanted = usize::try_from(set.spec.replicas).unwrap();
        self.wanted.entry(set.name_any()).or_default().insert(version, wanted);
    }

    fn saw_machine(&mut self, machine: &Machine, version: u64) {
        let Some(owner) = machine.metadata.owner_references.iter().flatten().next() else { return };
        let life = self.machines.entry(machine.uid().unwrap()).or_insert_with(|| Life {
            set: owner.name.clone(),
            made: version,
            deleted: None,
        });
        if machine.metadata.deletion_timestamp.is_some() {
            life.deleted.get_or_insert(version);
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow<K>(deployment: String, seen: Arc<Mutex<Seen>>, api: Api<K>, saw: fn(&mut Seen, &K, u64))
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().labels(&format!("name={deployment}"));
    let mut events = watcher(api, config).default_backoff().touched_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(object) = event else { continue };
        let version = object.resource_version().unwrap().parse().unwrap();
        saw(&mut lock(&seen), &object, version);
    }
}
