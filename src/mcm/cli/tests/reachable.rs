//! In every state that the model of the controllers reaches, all commands agree about each object.
//!
//! `MODEL_STATES=5000 cargo test --lib reachable` looks at more states, with `MODEL_FIRST=900` those of seeds from 900 on.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use super::readers::{ClusterState, StateReaders};
use mcm_controllers::testing::model::{AREAS, ReachedState, states};
use mcm_driver::{Driver, DriverGuards, testing::FakeDriver};
use mcm_driver_host::DriverCatalogue;
use mcm_insight::story::{DEPLOYMENT, ObjectVerdict};

/// States that are looked at by default.
const STATES: usize = 400;
/// States of one seed.
const OF_SEED: usize = 8;
/// Of the states in which nothing is blocked, one of so many is planned. Each plan is a rehearsal.
const PLANNED: usize = 6;
/// Failures after which no more seeds are played.
const ENOUGH: usize = 12;

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Numbers of what was looked at.
#[derive(Default)]
struct LookCounts {
    states: AtomicUsize,
    planned: AtomicUsize,
    blocked: AtomicUsize,
    waiting: AtomicUsize,
}

fn drivers() -> DriverCatalogue {
    let model: Arc<dyn Driver> = Arc::new(FakeDriver::named("model"));
    DriverCatalogue::from_drivers([model], &DriverGuards::unobserved())
}

/// The disagreements of commands in a state.
async fn look(state: &ReachedState, is_planned: bool, counts: &LookCounts) -> Vec<String> {
    let cluster = ClusterState {
        now: state.now,
        namespace: state.namespace.to_owned(),
        control: state.control.clone(),
        target: Some(state.target.clone()),
    };
    let mut readers = StateReaders::of(&cluster, drivers()).await;
    let mut found = readers.disagreements().await;
    counts.states.fetch_add(1, Ordering::Relaxed);
    let names: Vec<String> = readers.listed.deployments.keys().cloned().collect();
    let has = |verdict| names.iter().any(|name| readers.why(DEPLOYMENT, name).verdict == verdict);
    let (is_blocked, is_waiting) = (has(ObjectVerdict::Blocked), has(ObjectVerdict::Waiting));
    counts.blocked.fetch_add(usize::from(is_blocked), Ordering::Relaxed);
    counts.waiting.fetch_add(usize::from(is_waiting), Ordering::Relaxed);
    if is_blocked || is_planned {
        counts.planned.fetch_add(1, Ordering::Relaxed);
        found.extend(readers.plans_that_disagree().await);
    }
    found
}

#[test]
fn all_commands_agree_about_each_object_of_every_state_that_the_controllers_reach() {
    let wanted = usize::try_from(number("MODEL_STATES", u64::try_from(STATES).unwrap())).unwrap();
    let (next, counts, begun) = (AtomicU64::new(number("MODEL_FIRST", 0)), LookCounts::default(), Instant::now());
    let failures = AtomicUsize::new(0);
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut found = Vec::new();
        while counts.states.load(Ordering::Relaxed) < wanted && failures.load(Ordering::Relaxed) < ENOUGH {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // Every other seed has an area beside rollouts, drains and faults.
            let area = usize::try_from(seed / 2).unwrap() % AREAS.len();
            let areas = if seed.is_multiple_of(2) { "none" } else { AREAS[area] };
            for (number, state) in states(seed, areas, OF_SEED).iter().enumerate() {
                let is_planned = (usize::try_from(seed).unwrap() + number).is_multiple_of(PLANNED);
                let texts = runtime.block_on(look(state, is_planned, &counts));
                failures.fetch_add(texts.len(), Ordering::Relaxed);
                let log = state.log.iter().rev().take(12).rev().cloned().collect::<Vec<_>>().join("\n    ");
                let place = format!("state {number} of seed {} ({areas})", state.seed);
                found.extend((!texts.is_empty()).then(|| format!("{place}:\n  {}\n    {log}", texts.join("\n  "))));
            }
        }
        found
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    let LookCounts { states, planned, blocked, waiting } = &counts;
    let [states, planned, blocked, waiting] = [states, planned, blocked, waiting].map(count);
    let took = begun.elapsed();
    eprintln!("{states} states, {planned} planned, {blocked} blocked, {waiting} waiting: {took:?}");
    assert!(found.is_empty(), "commands disagree in {} of {states} states:\n{}", found.len(), found.join("\n"));
    assert!(blocked > 0 && waiting > 0, "{blocked} states are blocked, and {waiting} wait");
}
