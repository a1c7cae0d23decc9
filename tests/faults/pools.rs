//! The pools of many control planes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use mcm::api::machine::MachineDeployment;
use tokio::{task::AbortHandle, time::sleep};

use crate::run::Run;

/// Longer than an owner takes to respond by far: only a failure waits so long.
const LEDLESS_LIMIT: Duration = Duration::from_secs(180);
/// Longer than all pools need on a busy machine.
const SETTLE_LIMIT: Duration = Duration::from_secs(3600);
/// Period of progress messages.
const NEWS: Duration = Duration::from_secs(10);

/// The last change of a pool.
#[derive(Clone, Copy)]
pub struct DesiredPool {
    pub replicas: usize,
    pub class: &'static str,
}

impl DesiredPool {
    /// This pool in each namespace.
    pub fn in_each(self, namespaces: &[String]) -> BTreeMap<String, Self> {
        namespaces.iter().map(|namespace| (namespace.clone(), self)).collect()
    }
}

/// The pools of all control planes, as a watch delivers them.
pub struct PoolWatch {
    pools: Arc<Mutex<BTreeMap<String, ObservedPool>>>,
    task: AbortHandle,
}

/// A pool, and when its observed generation was first seen.
struct ObservedPool {
    pool: MachineDeployment,
    observed_at: Instant,
}

impl PoolWatch {
    /// Watches the pools of all namespaces from now on.
    pub fn start(client: &Client) -> Self {
        let pools = Arc::default();
        let task = tokio::spawn(follow(Api::all(client.clone()), Arc::clone(&pools))).abort_handle();
        Self { pools, task }
    }

    /// Waits until the owners have observed these generations; returns the seconds that each took.
    pub async fn until_observed(&self, wanted: &BTreeMap<String, i64>, since: Instant) -> BTreeMap<String, f64> {
        loop {
            let led = self.observed(wanted, since);
            if led.len() == wanted.len() {
                return led;
            }
            if since.elapsed() > LEDLESS_LIMIT {
                let missing: Vec<&String> = wanted.keys().filter(|namespace| !led.contains_key(*namespace)).collect();
                panic!("not led within {LEDLESS_LIMIT:?}: {missing:?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until all pools are as desired; returns the time that it took.
    pub async fn settled(&self, run: &Run, desired: &BTreeMap<String, DesiredPool>) -> Duration {
        let began = Instant::now();
        let mut told = began;
        loop {
            let open = self.unsettled(desired);
            if open.is_empty() {
                return began.elapsed();
            }
            assert!(began.elapsed() < SETTLE_LIMIT, "waited {SETTLE_LIMIT:?} in vain for the pools of {open:?}");
            if told.elapsed() >= NEWS {
                told = Instant::now();
                run.say(format!("waits for {} of {} pools", open.len(), desired.len()));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// None of these namespaces has a pool.
    pub fn are_gone(&self, namespaces: &[String]) -> bool {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        !namespaces.iter().any(|namespace| pools.contains_key(namespace))
    }

    /// The pools whose owner has observed these generations, with the seconds that it took.
    fn observed(&self, wanted: &BTreeMap<String, i64>, since: Instant) -> BTreeMap<String, f64> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = |(namespace, generation): (&String, &i64)| {
            let observed = pools.get(namespace).filter(|observed| observed.generation() >= *generation)?;
            Some((namespace.clone(), observed.observed_at.saturating_duration_since(since).as_secs_f64()))
        };
        wanted.iter().filter_map(seconds).collect()
    }

    /// The namespaces whose pools are not complete.
    pub fn unsettled(&self, desired: &BTreeMap<String, DesiredPool>) -> Vec<String> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |(namespace, desired): &(&String, &DesiredPool)| {
            !pools.get(*namespace).is_some_and(|observed| observed.is_complete(desired))
        };
        desired.iter().filter(is_open).map(|(namespace, _)| namespace.clone()).collect()
    }
}

impl Drop for PoolWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ObservedPool {
    fn generation(&self) -> i64 {
        self.pool.status.as_ref().map_or(0, |status| status.observed_generation)
    }

    /// All replicas are of the desired class and available, and there are no others.
    fn is_complete(&self, desired: &DesiredPool) -> bool {
        let status = self.pool.status.clone().unwrap_or_default();
        let all = i32::try_from(desired.replicas).unwrap();
        self.pool.metadata.generation == Some(status.observed_generation)
            && self.pool.spec.replicas == all
            && self.pool.spec.template.spec.class.name == desired.class
            && [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas] == [all; 4]
    }
}

async fn follow(api: Api<MachineDeployment>, pools: Arc<Mutex<BTreeMap<String, ObservedPool>>>) {
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let mut pools = pools.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pool) => {
                listed.extend(pool.namespace());
                observe(&mut pools, pool);
            }
            Event::InitDone => pools.retain(|namespace, _| listed.contains(namespace)),
            Event::Apply(pool) => observe(&mut pools, pool),
            Event::Delete(pool) => drop(pools.remove(&pool.namespace().unwrap_or_default())),
        }
    }
}

fn observe(pools: &mut BTreeMap<String, ObservedPool>, pool: MachineDeployment) {
    let (namespace, mut observed_at) = (pool.namespace().unwrap_or_default(), Instant::now());
    let observed = ObservedPool { pool, observed_at };
    if let Some(before) = pools.get(&namespace).filter(|before| before.generation() == observed.generation()) {
        observed_at = before.observed_at;
    }
    pools.insert(namespace, ObservedPool { observed_at, ..observed });
}
