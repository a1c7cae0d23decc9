//! The real planners together, against API servers and a cloud in memory, on virtual time.
//!
//! A seed decides everything: how the cloud behaves, what users wish, what breaks, which action of which pass comes next,
//! how far the caches lag behind, and where the process crashes. After every single action the invariants hold
//! ([`ledger`]); when wishes and faults end, the wish is met, and then nothing is written any more.
//!
//! `MODEL_SEEDS=20000 cargo test --lib model` tries more seeds; `MODEL_SEED=7` plays one and shows all of it. A seed that
//! failed goes into `seeds.txt` with what it found, and is played for ever.

mod api;
mod cloud;
mod cluster;
mod dice;
mod goal;
mod ledger;
mod manager;
mod outside;
mod passes;
mod wish;

use std::{
    env,
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use jiff::{SignedDuration, Timestamp};

use self::{
    api::Rates,
    cloud::Cloud,
    cluster::Cluster,
    dice::Dice,
    ledger::Ledger,
    manager::{Controller, Job, Manager, Next, Pass},
    outside::Agenda,
    wish::Wish,
};
use crate::{
    controllers::machine,
    runtime::{cache::Key, objects::WriteFailure},
};

/// Seeds that are played when nothing else is asked for.
const SEEDS: u64 = 150;
/// Actions after which everything must have come to rest.
const PATIENCE: usize = 6000;
/// Lines of a transcript that a failure shows.
const SHOWN: usize = 70;

/// All there is.
struct Model {
    dice: Dice,
    cluster: Cluster,
    cloud: Cloud,
    manager: Manager,
    machine_policy: machine::Policy,
    wish: Wish,
    agenda: Agenda,
    rates: Rates,
    ledger: Ledger,
    log: Vec<String>,
    crashes: bool,
    /// How quick the watches are: the weight of a report among all that may come next.
    watch_speed: usize,
}

impl Model {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::seeded(seed);
        let cloud = Cloud::of(&mut dice);
        let rates = Rates::any(&mut dice);
        let watch_speed = *dice.pick(&[1, 4, 20]).unwrap();
        let wish = Wish::any(&mut dice);
        let mut cluster = Cluster::new();
        wish.declare(&mut cluster);
        let manager = Manager::start(&mut cluster);
        let mut model = Self {
            dice,
            cluster,
            cloud,
            manager,
            machine_policy: machine::Policy::default(),
            ledger: Ledger::of(&wish),
            wish,
            agenda: Agenda::default(),
            rates,
            log: Vec::new(),
            crashes: false,
            watch_speed,
        };
        model.say(format!("seed {seed}: {:?}, {}", model.wish, model.rates));
        model
    }

    fn run(&mut self) -> Result<(), String> {
        let actions = self.dice.below(340) + 60;
        for _ in 0..actions {
            if self.dice.per_mille(self.rates.outside) {
                self.happen_outside();
            } else {
                self.act();
            }
            self.check()?;
        }
        self.calm_down();
        for _ in 0..PATIENCE {
            if self.is_at_rest() {
                return self.stay();
            }
            self.act();
            self.check()?;
        }
        Err(format!("it does not get there: {}", self.what_is_missing().join("; ")))
    }

    /// Once there, nothing is written: not in the next hours, and not by a process that knows nothing.
    fn stay(&mut self) -> Result<(), String> {
        let writes = self.cluster.writes;
        for fresh in [false, true] {
            if fresh {
                self.crash();
            }
            let until = self.now() + SignedDuration::from_hours(3);
            while self.now() < until {
                self.act();
                self.check()?;
                let missing = self.what_is_missing();
                if self.cluster.writes > writes || !missing.is_empty() {
                    return Err(format!("it does not stay there: {}", missing.join("; ")));
                }
            }
        }
        Ok(())
    }

    /// Anything that may come next, comes next.
    fn act(&mut self) {
        if self.dice.one_in(8) {
            let pause = self.dice.millis(1..300);
            self.cluster.clock.now += pause;
        }
        let now = self.now();
        let unreported = self.cluster.unreported();
        let startable = self.manager.startable(now);
        let is_due = self.agenda.is_due(now);
        let gone_node = self.manager.gone_nodes.first().cloned();
        let weights = [
            10 * usize::from(!self.manager.passes.is_empty()),
            5 * usize::from(!startable.is_empty()),
            self.watch_speed * usize::from(unreported.iter().any(|count| *count > 0)),
            4 * usize::from(is_due),
            2 * usize::from(gone_node.is_some()),
        ];
        match self.choose(&weights) {
            None => self.pass_time(),
            Some(0) => self.advance_pass(),
            Some(1) => {
                let job = self.dice.pick(&startable).cloned();
                job.iter().for_each(|job| self.manager.begin(job));
            }
            Some(2) => self.report(unreported),
            Some(3) => self.happen_in_time(),
            Some(_) => gone_node.iter().for_each(|node| self.follow_gone(node)),
        }
        if self.crashes {
            self.crash();
        }
        self.manager.take_wake_ups();
    }

    fn choose(&mut self, weights: &[usize]) -> Option<usize> {
        let all: usize = weights.iter().sum();
        let mut left = if all == 0 { return None } else { self.dice.below(all) };
        weights.iter().position(|weight| {
            let is_here = left < *weight;
            left = left.saturating_sub(*weight);
            is_here
        })
    }

    fn advance_pass(&mut self) {
        let jobs: Vec<Job> = self.manager.passes.keys().cloned().collect();
        let Some(job) = self.dice.pick(&jobs).cloned() else { return };
        let Some(mut pass) = self.manager.passes.remove(&job) else { return };
        let next = match &mut pass {
            Pass::Deployment(pass) => pass.advance(self),
            Pass::Set(pass) => pass.advance(self),
            Pass::Machine(pass) => pass.advance(self),
            Pass::Class(pass) => pass.advance(self),
            Pass::Node(pass) => pass.advance(self),
        };
        match next {
            Next::GoesOn => drop(self.manager.passes.insert(job, pass)),
            next => self.manager.end(job, &next, self.cluster.clock.now),
        }
    }

    fn follow_gone(&mut self, node: &Key) {
        self.manager.gone_nodes.remove(node);
        if passes::node::follow_gone(self, node).is_err() {
            self.manager.gone_nodes.insert(node.clone());
        }
    }

    /// A watch brings one change.
    fn report(&mut self, unreported: [usize; 5]) {
        let kinds: Vec<usize> = (0..5).filter(|kind| unreported[*kind] > 0).collect();
        let (caches, cluster) = (&self.manager.caches, &mut self.cluster);
        match self.dice.pick(&kinds) {
            Some(0) => cluster.deployments.report(&caches.deployments),
            Some(1) => cluster.sets.report(&caches.sets),
            Some(2) => cluster.machines.report(&caches.machines),
            Some(3) => cluster.classes.report(&caches.classes),
            Some(_) => cluster.nodes.report(&caches.nodes),
            None => {}
        }
    }

    /// To the next thing that is to happen.
    fn pass_time(&mut self) {
        let soon = self.now() + SignedDuration::from_mins(10);
        let next = self.manager.wakes.values().copied().chain(self.agenda.next()).min();
        self.cluster.clock.now = next.map_or(soon, |next| next.min(soon)).max(self.now());
    }

    /// The process is killed, and started again.
    fn crash(&mut self) {
        self.say("the manager starts anew");
        self.crashes = false;
        self.manager = Manager::start(&mut self.cluster);
    }

    fn check(&mut self) -> Result<(), String> {
        if self.manager.is_idle() && self.is_settled() {
            self.ledger.settled(&self.wish);
        }
        self.ledger.check(&self.cluster, &self.cloud)
    }

    fn now(&self) -> Timestamp {
        self.cluster.clock.now
    }

    fn must(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.ledger.must(holds, what);
    }

    fn restless(&mut self, controller: Controller, key: &Key) -> Next {
        self.say(format!("{controller:?} {key}: many rounds without rest"));
        Next::Failed(WriteFailure::Unknown)
    }

    fn say(&mut self, what: impl AsRef<str>) {
        let second = self.now().as_millisecond() - 1_700_000_000_000;
        self.log.push(format!("{:>10}.{:03} {}", second / 1000, second % 1000, what.as_ref()));
    }

    fn say_step(&mut self, controller: Controller, key: &Key, what: &str) {
        self.say(format!("{controller:?} {}: {what}", key.name));
    }
}

/// Plays a seed; what went wrong and how it came to that otherwise.
fn play(seed: u64, shown: usize) -> Result<Vec<String>, String> {
    let mut model = Model::of(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| model.run())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
    });
    let Err(what) = outcome else { return Ok(model.log) };
    let mut text = format!("seed {seed}: {what}\n{}\n", model.log[0]);
    for line in model.log.iter().skip(model.log.len().saturating_sub(shown).max(1)) {
        writeln!(text, "{line}").unwrap();
    }
    writeln!(text, "{}\nseed {seed}: {what}", model.describe()).unwrap();
    Err(text)
}

/// Seeds that failed once.
fn kept_seeds() -> impl Iterator<Item = u64> {
    let lines = include_str!("seeds.txt").lines();
    lines.filter_map(|line| line.split('#').next()?.trim().parse().ok())
}

fn play_all(seeds: &[u64]) -> Vec<String> {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut failures = Vec::new();
        while let Some(seed) = seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap()) {
            failures.extend(play(*seed, SHOWN).err());
            if failures.len() > 3 {
                break;
            }
        }
        failures
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn whatever_breaks_the_invariants_hold_and_in_the_end_the_wish_is_met() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("MODEL_SEED") {
        match play(seed, usize::MAX) {
            Ok(log) => return println!("{}", log.join("\n")),
            Err(failure) => panic!("{failure}"),
        }
    }
    let first = number("MODEL_FIRST").unwrap_or_default();
    let count = number("MODEL_SEEDS").unwrap_or(SEEDS);
    let seeds: Vec<u64> = kept_seeds().chain(first..first + count).collect();
    let failures = play_all(&seeds);
    if !failures.is_empty() {
        let first: Vec<_> = failures.iter().filter_map(|failure| failure.lines().next()).collect();
        eprintln!("{}", first.join("\n"));
    }
    assert!(failures.is_empty(), "{} of {} seeds failed\n{}", failures.len(), seeds.len(), failures.join("\n"));
}

#[test]
fn a_seed_is_played_the_same_every_time() {
    for seed in 0..3 {
        assert_eq!(play(seed, 0), play(seed, 0));
    }
}
