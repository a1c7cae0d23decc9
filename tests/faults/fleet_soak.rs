//! Three replicas share control planes, and every 20 s one of them has a fault.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use rand::{Rng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    meter,
    pools::{DesiredPool, PoolWatch},
    recorder::Recorder,
    run::{Bound, Run, number, percentile},
    support::{
        fleet::{
            FleetPlanes, FleetServer,
            ownership::{ActPlace, OwnershipVerdict},
            replica::FleetReplica,
        },
        wait,
    },
};

const REPLICAS: usize = 3;
/// How soon a control plane is led again, in seconds.
const LED_WITHIN: f64 = 20.0;
/// Writes of Leases of this age are in the audit log.
const LAG: SignedDuration = SignedDuration::from_secs(5);
/// A replica that was cut off for too long ends so soon after the cut.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Seconds that a clock is moved.
const HOUR: i64 = 3600;

/// A fault of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReplicaFault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT later.
    Stop,
    /// No request to the control cluster is answered for a while.
    CutControl,
    /// The same for the targets.
    CutTarget,
    /// The wall clock jumps an hour, or back.
    MoveClock,
    /// SIGTERM and a new process, as in a rolling update.
    Update,
}

const FAULTS: [ReplicaFault; 6] = [
    ReplicaFault::Kill,
    ReplicaFault::Stop,
    ReplicaFault::CutControl,
    ReplicaFault::CutTarget,
    ReplicaFault::MoveClock,
    ReplicaFault::Update,
];

impl fmt::Display for ReplicaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::CutControl => "cut from control",
            Self::CutTarget => "cut from targets",
            Self::MoveClock => "clock",
            Self::Update => "update",
        })
    }
}

/// The parameters of the run.
struct SoakPlan {
    planes: usize,
    machines: usize,
    steps: usize,
    period: Duration,
    stop: Duration,
    has_clocks: bool,
}

impl SoakPlan {
    fn read(run: &Run) -> Self {
        let period = run.seconds("period", 20.0, 20.0);
        let minutes: f64 = run.parameter("minutes", 10.0, 2.0);
        let steps = (minutes * 60.0 / period.as_secs_f64()).ceil() as usize;
        Self {
            planes: run.count("planes", 20, 6),
            machines: run.count("machines", 5, 3),
            steps: steps.max(FAULTS.len()),
            period,
            stop: run.seconds("stop", 60.0, 30.0),
            has_clocks: run.count("clock", 1, 1) > 0,
        }
    }
}

/// Each write and each cloud call is that of the replica with the claims, and no VM is lost or doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_control_plane_has_one_owner_and_is_led_again_within_20_seconds() {
    let run = Run::start("fleet_soak");
    let plan = SoakPlan::read(&run);
    let mut dice = run.dice();
    let server = FleetServer::start().await;
    let machines = u32::try_from(plan.machines).unwrap();
    let mut planes = FleetPlanes::new(&server, "fleet-soak", plan.planes, machines).await;
    run.say(format!("logs are in {}", planes.world.folder().display()));
    let recorder = Recorder::start_for_all(&planes.world);
    let pools = PoolWatch::start(&planes.world.client);
    let mut fit = BTreeMap::new();
    for slot in 0..REPLICAS {
        let replica = match plan.has_clocks {
            true => planes.launch_with_clock(&server).await,
            false => planes.launch(&server).await,
        };
        fit.insert(slot, replica);
    }
    let mut soak = FleetSoak::new(&run, &planes, &pools, fit, plan);
    soak.settled().await;
    wait::until("all replicas to share the control planes", async || {
        planes.owners().await.filter(|owners| owners.len() == REPLICAS)
    })
    .await;

    for step in 1..=soak.plan.steps {
        let began = Instant::now();
        soak.play(step, &mut dice).await;
        // Not a wait for a state: faults come at a pace.
        sleep(soak.plan.period.saturating_sub(began.elapsed())).await;
    }
    soak.all_fit().await;
    soak.settled().await;
    soak.end().await;
    recorder.judge(&run, &planes.world, None).await;
    run.assert_holds();
    planes.assert_vms_match().await;
    run.finish();
}

/// The run in progress.
struct FleetSoak<'a> {
    run: &'a Run,
    planes: &'a FleetPlanes,
    pools: &'a PoolWatch,
    plan: SoakPlan,
    /// Replicas without a fault, by number.
    fit: BTreeMap<usize, FleetReplica>,
    /// Replicas with a fault.
    struck: JoinSet<(usize, FleetReplica)>,
    /// Offsets of the clocks of replicas, in seconds.
    offsets: BTreeMap<usize, i64>,
    /// Faults to come, each of them once before any comes again.
    bag: Vec<ReplicaFault>,
    desired: BTreeMap<String, DesiredPool>,
    figures: SoakFigures,
}

#[derive(Default)]
struct SoakFigures {
    /// Seconds until control planes were led again: those of the replica with the fault, and others.
    led: BTreeMap<ReplicaFault, Vec<f64>>,
    others: Vec<f64>,
    /// Seconds in which a claim had no holder after a replica released it.
    gaps: Vec<f64>,
    faults: BTreeMap<ReplicaFault, usize>,
    verdict: OwnershipVerdict,
    /// Replicas that ended, although they had no fault.
    ended: usize,
}

impl<'a> FleetSoak<'a> {
    fn new(
        run: &'a Run,
        planes: &'a FleetPlanes,
        pools: &'a PoolWatch,
        fit: BTreeMap<usize, FleetReplica>,
        plan: SoakPlan,
    ) -> Self {
        let desired = DesiredPool { replicas: plan.machines, class: "small" }.in_each(&planes.namespaces);
        let (struck, offsets, bag, figures) = Default::default();
        Self { run, planes, pools, plan, fit, struck, offsets, bag, desired, figures }
    }

    /// One fault, changes of all pools, and the wait until each control plane responds to its change.
    async fn play(&mut self, step: usize, dice: &mut StdRng) {
        self.restart_ended().await;
        let (fault, slot) = self.pick(dice).await;
        let mut replica = self.fit.remove(&slot).unwrap();
        let affected = self.planes_of(&replica);
        let (since, at) = (Instant::now(), Timestamp::now());
        self.run.say(format!("{step}: {fault}: {} leads {} control planes", replica.account, affected.len()));
        self.strike(fault, slot, &replica, dice);
        if fault == ReplicaFault::Kill {
            replica.manager.program.kill();
        }
        let lasts = self.length(fault, dice);
        match fault {
            ReplicaFault::MoveClock => drop(self.fit.insert(slot, replica)),
            _ => drop(self.struck.spawn(async move { (slot, recovered(replica, fault, lasts).await) })),
        }

        self.choose_changes(dice);
        let desired = &self.desired;
        let change = |namespace: &str| patch_of(step, desired[namespace]);
        let wanted = self.planes.change_pools(change).await;
        let led = self.pools.until_observed(&wanted, since).await;
        for (namespace, seconds) in led {
            match affected.contains(&namespace) {
                true => self.figures.led.entry(fault).or_default().push(seconds),
                false => self.figures.others.push(seconds),
            }
        }
        *self.figures.faults.entry(fault).or_default() += 1;
        if fault == ReplicaFault::Update {
            let gaps = affected.iter().flat_map(|plane| self.planes.record.with(|record| record.gaps_after(plane, at)));
            self.figures.gaps.extend(gaps.map(|gap| gap.as_secs_f64()));
        }
        if fault == ReplicaFault::MoveClock {
            self.check_clock(slot).await;
        }
        self.judge_before(Timestamp::now() - LAG);
    }

    /// The next fault, and a replica that can have it while another one leads.
    async fn pick(&mut self, dice: &mut StdRng) -> (ReplicaFault, usize) {
        while let Some(back) = self.struck.try_join_next() {
            self.fit.extend([back.unwrap()]);
        }
        while self.fit.len() < 2 {
            let back = self.struck.join_next().await.unwrap();
            self.fit.extend([back.unwrap()]);
        }
        if self.bag.is_empty() {
            let is_possible = |fault: &ReplicaFault| *fault != ReplicaFault::MoveClock || self.plan.has_clocks;
            self.bag = FAULTS.into_iter().filter(is_possible).collect();
            self.bag.shuffle(dice);
        }
        let slots: Vec<usize> = self.fit.keys().copied().collect();
        (self.bag.pop().unwrap(), slots[dice.random_range(0..slots.len())])
    }

    /// The control planes whose claims a replica holds.
    fn planes_of(&self, replica: &FleetReplica) -> BTreeSet<String> {
        self.planes.record.with(|record| {
            let is_its = |namespace: &&String| record.holders(namespace).contains(replica.account.as_str());
            self.planes.namespaces.iter().filter(is_its).cloned().collect()
        })
    }

    /// Begins a fault, except a kill.
    fn strike(&mut self, fault: ReplicaFault, slot: usize, replica: &FleetReplica, dice: &mut StdRng) {
        match fault {
            ReplicaFault::Kill => {}
            ReplicaFault::Stop => replica.manager.program.signal("STOP"),
            ReplicaFault::CutControl => replica.ways.cut_control(),
            ReplicaFault::CutTarget => replica.ways.cut_target(),
            ReplicaFault::Update => replica.manager.program.terminate(),
            ReplicaFault::MoveClock => {
                let offset = self.offsets.entry(slot).or_default();
                let others: Vec<i64> = [-HOUR, 0, HOUR].into_iter().filter(|other| *other != *offset).collect();
                *offset = others[dice.random_range(0..others.len())];
                self.run.say(format!("the clock of {} is {offset:+} s from ours", replica.account));
                replica.clock.as_ref().unwrap().set(*offset);
            }
        }
    }

    /// How long a fault lasts.
    fn length(&self, fault: ReplicaFault, dice: &mut StdRng) -> Duration {
        match fault {
            ReplicaFault::Kill => Duration::from_millis(dice.random_range(500..10_000)),
            ReplicaFault::Stop => self.plan.stop,
            // Shorter and longer than the silence after which others expel it.
            ReplicaFault::CutControl | ReplicaFault::CutTarget => Duration::from_secs(dice.random_range(5..40)),
            ReplicaFault::MoveClock | ReplicaFault::Update => Duration::ZERO,
        }
    }

    /// One pool is rolled, and one of twenty is scaled.
    fn choose_changes(&mut self, dice: &mut StdRng) {
        let names = &self.planes.namespaces;
        for _ in 0..names.len().div_ceil(20) {
            let pool = self.desired.get_mut(&names[dice.random_range(0..names.len())]).unwrap();
            pool.replicas = self.plan.machines + dice.random_range(0..3);
        }
        let pool = self.desired.get_mut(&names[dice.random_range(0..names.len())]).unwrap();
        pool.class = if pool.class == "small" { "large" } else { "small" };
    }

    async fn check_clock(&self, slot: usize) {
        let Some(replica) = self.fit.get(&slot) else { return };
        meter::check_clock(self.run, &replica.manager, self.offsets[&slot]).await;
    }

    /// Starts processes again that ended without a fault, as a kubelet would.
    async fn restart_ended(&mut self) {
        for replica in self.fit.values_mut() {
            if replica.manager.program.has_ended() {
                self.run.say(format!("{} ended without a fault", replica.account));
                self.figures.ended += 1;
                replica.start_again().await;
                replica.joined().await;
            }
        }
    }

    fn judge_before(&mut self, horizon: Timestamp) {
        let fit: Vec<&FleetReplica> = self.fit.values().collect();
        let verdict = self.planes.judge_before(horizon, &fit);
        for act in &verdict.strangers {
            self.run.say(format!("BROKEN: {} acted without the claim: {act:?}", act.replica));
        }
        let sum = &mut self.figures.verdict;
        verdict.judged.into_iter().for_each(|(place, count)| *sum.judged.entry(place).or_default() += count);
        sum.strangers.extend(verdict.strangers);
        sum.resumed.extend(verdict.resumed);
    }

    /// Waits until the last faults are over.
    async fn all_fit(&mut self) {
        self.run.say("waits for the replicas with faults");
        while let Some(back) = self.struck.join_next().await {
            self.fit.extend([back.unwrap()]);
        }
        self.restart_ended().await;
    }

    /// Waits until all pools are as they were changed last.
    async fn settled(&self) {
        let took = self.pools.settled(self.run, &self.desired).await;
        self.run.measured("until all pools were complete", took.as_secs_f64(), "s");
    }

    /// Ends the replicas, and keeps the figures.
    async fn end(mut self) {
        self.fit.values().for_each(|replica| replica.manager.program.terminate());
        for replica in self.fit.values_mut() {
            replica.manager.program.ended().await;
        }
        self.judge_before(Timestamp::now());
        self.figures.keep(self.run);
    }
}

/// The rest of a fault: the replica when it is a member again.
async fn recovered(mut replica: FleetReplica, fault: ReplicaFault, lasts: Duration) -> FleetReplica {
    sleep(lasts).await;
    let has_ended = match fault {
        ReplicaFault::Kill => true,
        ReplicaFault::Stop => {
            replica.resume();
            let status = replica.manager.program.ended().await;
            assert_eq!(status.code(), Some(1), "{} was not expelled in {lasts:?}", replica.account);
            true
        }
        ReplicaFault::Update => {
            replica.manager.program.ended().await;
            true
        }
        ReplicaFault::CutControl => {
            replica.ways.control.open();
            ends_within(&mut replica, ENDS_WITHIN).await
        }
        ReplicaFault::CutTarget => {
            replica.ways.target.open();
            false
        }
        ReplicaFault::MoveClock => false,
    };
    if has_ended || replica.manager.program.has_ended() {
        replica.start_again().await;
    }
    replica.joined().await;
    replica
}

/// The process ends within a time.
async fn ends_within(replica: &mut FleetReplica, limit: Duration) -> bool {
    let began = Instant::now();
    while began.elapsed() < limit {
        if replica.manager.program.has_ended() {
            return true;
        }
        sleep(Duration::from_millis(100)).await;
    }
    false
}

/// The desired pool, with a change in each step: the generation grows, and the owner has to respond.
fn patch_of(step: usize, pool: DesiredPool) -> Value {
    json!({"spec": {
        "revisionHistoryLimit": 10 + step % 2,
        "replicas": pool.replicas,
        "template": {"spec": {"class": {"name": pool.class}}},
    }})
}

impl SoakFigures {
    fn keep(&self, run: &Run) {
        for (fault, count) in &self.faults {
            run.measured(format!("{fault}: faults"), number(*count), "");
            if let Some(seconds) = self.led.get(fault) {
                keep_times(run, &format!("{fault}: led again"), seconds, Some(LED_WITHIN));
            }
        }
        keep_times(run, "control planes of other replicas: response", &self.others, None);
        keep_times(run, "update: claim without a holder", &self.gaps, None);
        for place in [ActPlace::Control, ActPlace::Target, ActPlace::Cloud] {
            let count = self.verdict.judged.get(&place).copied().unwrap_or_default();
            run.check(format!("acts judged: {place:?}"), number(count), "", Bound::AtLeast(1.0));
        }
        run.none("acts of a replica without the claim", &self.verdict.strangers);
        run.measured("requests that a stop held back", number(self.verdict.resumed.len()), "");
        run.measured("replicas that ended without a fault", number(self.ended), "");
    }
}

/// Keeps median, 99th percentile and maximum of times in seconds.
fn keep_times(run: &Run, what: &str, seconds: &[f64], most: Option<f64>) {
    if seconds.is_empty() {
        return;
    }
    run.measured(format!("{what}, p50"), percentile(seconds, 0.5), "s");
    run.measured(format!("{what}, p99"), percentile(seconds, 0.99), "s");
    let longest = percentile(seconds, 1.0);
    match most {
        Some(most) => run.check(format!("{what}, max"), longest, "s", Bound::AtMost(most)),
        None => run.measured(format!("{what}, max"), longest, "s"),
    }
}
