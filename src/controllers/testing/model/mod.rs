//! Whole processes against API servers and a cloud in memory, on virtual time.
//!
//! The processes run the shipped code: caches, watch handlers, queues, workers, reconciles and leader election, behind
//! real clients. A seed decides the rest: how the cloud behaves, user actions, faults, which answer is late or lost,
//! how far caches lag behind, when a process is killed. After every write and every call of the cloud the invariants
//! hold ([`ledger`]); when user actions and faults end, the world converges in time, and then nothing is written any
//! more.
//!
//! `MODEL_SEEDS=2000 cargo test --lib model` tries more seeds, with `MODEL_FIRST=5000` only those from 5000 on;
//! `hack/seeds` plays many with an optimized build. `MODEL_SEED=7` plays one seed and shows all of it, with
//! `MODEL_LIVE=1` while it runs and with `MODEL_TRACE=1` with the product's log, such as its waits.
//! `MODEL_AREAS=in-place,volumes` gives every seed these [`areas`]. A seed that failed is added to `seeds.txt` with its
//! areas and its finding, and is played for ever.

#[cfg(test)]
mod admission;
mod areas;
mod autoscaler;
mod cloud;
mod converged;
mod desired_state;
mod external_writers;
mod faults;
mod freezes;
mod in_place;
mod kubelet;
mod ledger;
mod orphan_vms;
mod preservation;
mod process_lifecycle;
mod rng;
#[cfg(test)]
mod scenarios;
mod states;
mod system;
mod user_actions;
mod volumes;
mod world;
#[cfg(test)]
mod write_counts;

use std::{
    env,
    fmt::Write as _,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

#[cfg(test)]
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

pub use self::states::{ReachedState, states};
use self::{areas::Areas, process_lifecycle::Lifecycle, world::World};

/// Seeds that are played by default: with the kept ones, two cores play them in a few minutes. `hack/seeds` plays more.
const SEEDS: u64 = 300;
/// Areas, and seeds that are played in each.
pub const AREAS: [&str; 7] =
    ["in-place", "preservation", "orphans", "freezes", "volumes", "external-writers", "autoscaler"];
const IN_AREAS: Range<u64> = 0..10;
/// Lines of the log that a failure shows.
const SHOWN: usize = 70;

/// Plays a seed. An error contains the failure and the log before it.
fn play(seed: u64, areas: Areas, shown: usize) -> Result<Vec<String>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (world, outcome, seconds) = runtime.block_on(async {
        let world = World::of(seed, areas);
        let outcome = Lifecycle::of(&world).live().await;
        let seconds = world.now().as_second() - super::clock::EPOCH;
        (world, outcome, seconds)
    });
    let log = world.faults.log();
    if env::var("MODEL_TRAFFIC").is_ok() {
        eprintln!("seed {seed}: {seconds} s, {:?}", world.traffic());
    }
    let Err(what) = outcome else { return Ok(log) };
    let mut text = format!("seed {seed}: {what}\n{}\n", log[0]);
    for line in log.iter().skip(log.len().saturating_sub(shown).max(1)) {
        writeln!(text, "{line}").unwrap();
    }
    writeln!(text, "{}\nseed {seed}: {what}", world.describe()).unwrap();
    Err(text)
}

/// Seeds that failed once, with their areas.
fn kept_seeds() -> impl Iterator<Item = (u64, Areas)> {
    let lines = include_str!("seeds.txt").lines();
    lines.filter_map(|line| {
        let (seed, areas) = line.split('#').next()?.trim().split_once(' ')?;
        Some((seed.parse().ok()?, Areas::named(areas)))
    })
}

/// The number of played seeds, and the failures. It ends early after many failures.
fn play_all(seeds: &[(u64, Areas)]) -> (usize, Vec<String>) {
    let next = Arc::new(AtomicU64::new(0));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut failures = Vec::new();
        while let Some((seed, areas)) = seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap()) {
            failures.extend(play(*seed, *areas, SHOWN).err());
            if failures.len() > 3 {
                break;
            }
        }
        failures
    };
    let failures = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let played = usize::try_from(next.load(Ordering::Relaxed)).unwrap().min(seeds.len());
    (played, failures)
}

#[test]
fn the_invariants_hold_under_faults_and_the_world_converges() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("MODEL_SEED") {
        if env::var("MODEL_TRACE").is_ok() {
            let filter = Targets::new().with_target("mcm", tracing::Level::DEBUG);
            tracing_subscriber::registry().with(fmt::layer().without_time().with_ansi(false)).with(filter).init();
        }
        match play(seed, Areas::asked_for(), usize::MAX) {
            Ok(log) => return println!("{}", log.join("\n")),
            Err(failure) => panic!("{failure}"),
        }
    }
    let asked_first = number("MODEL_FIRST");
    let first = asked_first.unwrap_or_default();
    let count = number("MODEL_SEEDS").unwrap_or(SEEDS);
    let drawn = (first..first + count).map(|seed| (seed, Areas::asked_for()));
    let in_areas = AREAS.into_iter().flat_map(|name| IN_AREAS.map(move |seed| (seed, Areas::named(name))));
    let always = kept_seeds().chain(in_areas).filter(|_| asked_first.is_none());
    let seeds: Vec<(u64, Areas)> = always.chain(drawn).collect();
    let (played, failures) = play_all(&seeds);
    if !failures.is_empty() {
        let first: Vec<_> = failures.iter().filter_map(|failure| failure.lines().next()).collect();
        eprintln!("{}", first.join("\n"));
    }
    assert!(failures.is_empty(), "{} of {played} seeds failed\n{}", failures.len(), failures.join("\n"));
}

/// But for the names of bootstrap tokens, which are secrets.
#[test]
fn a_seed_is_played_the_same_every_time() {
    let story = |seed| {
        let story = play(seed, Areas::asked_for(), SHOWN).unwrap();
        story.into_iter().filter(|line| !line.contains("Secret bootstrap-token-")).collect::<Vec<_>>()
    };
    for seed in 0..3 {
        assert_eq!(story(seed), story(seed));
    }
}
