//! A fleet whose machines all run, and to which nothing happens: its memory, its calls, and its restart.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    meter,
    pools::{DesiredPool, PoolWatch},
    recorder::Recorder,
    run::{Bound, Run, number, percentile},
    support::{
        fleet::{FleetPlanes, FleetServer, replica::FleetReplica},
        wait,
    },
};

/// The size that has bounds.
const PLANES: usize = 200;
const MACHINES: usize = 50;
const REPLICAS: usize = 3;
/// Heap and stacks of a replica, in MiB.
const MOST_MEMORY: f64 = 100.0;
/// Open files of a replica.
const MOST_DESCRIPTORS: f64 = 350.0;
/// Series of a replica.
const MOST_SERIES: f64 = 8000.0;
/// Writes of Leases by the fleet in a second.
const MOST_LEASE_WRITES: f64 = 2.5;
/// Requests of the fleet in a second, without watches.
const MOST_CALLS: f64 = 5.0;
/// The share of all machines that new processes plan in [`PLANNED_WITHIN`].
const PLANNED_SHARE: f64 = 0.95;
/// Seconds from the first claim.
const PLANNED_WITHIN: f64 = 15.0;
/// Scrapes whose median is measured.
const SCRAPES: usize = 5;
/// Longer than replicas take to share all control planes; only a failure waits this long.
const LIMIT: Duration = Duration::from_secs(600);

/// The parameters of the run.
struct IdlePlan {
    planes: usize,
    machines: usize,
    replicas: usize,
    /// The period of claims by default, so that each of them is renewed once.
    time: Duration,
}

impl IdlePlan {
    fn read(run: &Run) -> Self {
        Self {
            planes: run.count("planes", PLANES, 6),
            machines: run.count("machines", MACHINES, 3),
            replicas: run.count("replicas", REPLICAS, 2),
            time: run.seconds("time", 300.0, 10.0),
        }
    }

    fn all_machines(&self) -> usize {
        self.planes * self.machines
    }

    /// Records a figure. Its bound is that of the whole size.
    fn keep(&self, run: &Run, what: impl Into<String>, value: f64, unit: &'static str, most: f64) {
        match (self.planes, self.machines, self.replicas) == (PLANES, MACHINES, REPLICAS) {
            true => run.check(what, value, unit, Bound::AtMost(most)),
            false => run.measured(what, value, unit),
        }
    }
}

/// The heartbeats of the simulated kubelets are off, so the measured calls are those of the fleet alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_without_work_holds_its_budgets_and_plans_its_machines_soon_after_a_restart() {
    let run = Run::start("idle_fleet");
    let plan = IdlePlan::read(&run);
    let server = FleetServer::start().await;
    let machines = u32::try_from(plan.machines).unwrap();
    let mut planes = FleetPlanes::new(&server, "idle-fleet", plan.planes, machines).await;
    run.say(format!("logs are in {}", planes.world.folder().display()));
    let recorder = Recorder::start_for_all(&planes.world);
    let pools = PoolWatch::start(&planes.world.client);
    let mut replicas = Vec::new();
    for _ in 0..plan.replicas {
        replicas.push(planes.launch_direct(&server).await);
    }
    for replica in &mut replicas {
        replica.joined().await;
    }
    let idle = IdleRun { run: &run, plan: &plan, planes: &planes };
    idle.settle(&pools, &replicas).await;
    meter::until_quiet(&run, &planes.world.client).await;
    idle.measure(&replicas).await;
    idle.restart(&mut replicas).await;

    end(&mut replicas).await;
    recorder.judge(&run, &planes.world, Some(plan.all_machines())).await;
    run.assert_holds();
    planes.assert_vms_match().await;
    run.finish();
}

/// The run in progress.
struct IdleRun<'a> {
    run: &'a Run,
    plan: &'a IdlePlan,
    planes: &'a FleetPlanes,
}

/// Counters at a time.
struct FleetReading {
    at: Instant,
    /// CPU seconds of each replica.
    cpu: Vec<f64>,
    /// Requests of all replicas but watches, by verb and path.
    calls: BTreeMap<String, f64>,
    /// Requests of all replicas.
    requests: f64,
    lease_writes: usize,
    /// Writes of other objects, by verb and kind.
    writes: BTreeMap<String, f64>,
}

impl IdleRun<'_> {
    /// Waits until all machines run, and the replicas share the control planes.
    async fn settle(&self, pools: &PoolWatch, replicas: &[FleetReplica]) {
        let desired = DesiredPool { replicas: self.plan.machines, class: "small" }.in_each(&self.planes.namespaces);
        let took = pools.settled(self.run, &desired).await;
        self.run.measured("until all machines ran", took.as_secs_f64(), "s");
        self.until_shared(replicas).await;
    }

    /// Waits until each replica leads its share of the control planes, and no claim is handed over any more.
    async fn until_shared(&self, replicas: &[FleetReplica]) {
        self.run.say("waits until the replicas share the control planes");
        wait::until_within(LIMIT, "the replicas to share the control planes", async || {
            let mut led = 0.0;
            for replica in replicas {
                let text = meter::metrics_of(&replica.manager).await?;
                let in_state =
                    |state: &str| meter::sum_of(&text, "mcm_fleet_namespaces", &format!("state=\"{state}\""));
                let members = meter::sum_of(&text, "mcm_fleet_members", "");
                if members != number(self.plan.replicas) || in_state("waiting") > 0.0 {
                    return None;
                }
                led += in_state("led");
            }
            (led == number(self.plan.planes)).then_some(())
        })
        .await;
    }

    /// Measures the fleet while nothing happens.
    async fn measure(&self, replicas: &[FleetReplica]) {
        let (run, plan) = (self.run, self.plan);
        run.say(format!("measures for {:?}", plan.time));
        let before = self.read(replicas).await;
        // Not a wait for a state: nothing happens meanwhile.
        sleep(plan.time).await;
        let after = self.read(replicas).await;
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        for (at, replica) in replicas.iter().enumerate() {
            let share = (after.cpu[at] - before.cpu[at]) / seconds;
            run.measured(format!("{}: share of a core", replica.account), share, "");
            self.measure_replica(replica).await;
        }

        let lease_writes = number(after.lease_writes - before.lease_writes) / seconds;
        plan.keep(run, "writes of Leases in a second", lease_writes, "", MOST_LEASE_WRITES);
        let calls = meter::difference(&before.calls, &after.calls);
        run.say(format!("calls {calls:?}"));
        let calls: f64 = calls.values().sum();
        plan.keep(run, "calls in a second", calls / seconds, "", MOST_CALLS);
        let watches = after.requests - before.requests - calls;
        run.measured("watches begun in a second", watches / seconds, "");
        let mut writes = meter::difference(&before.writes, &after.writes);
        writes.retain(|name, _| !meter::is_of_kubelets(name));
        run.say(format!("writes {writes:?}"));
        run.check("writes of other objects than Leases", writes.values().sum(), "", Bound::Exactly(0.0));
    }

    /// Measures the memory, the descriptors and the metrics of a replica.
    async fn measure_replica(&self, replica: &FleetReplica) {
        let (run, plan, who) = (self.run, self.plan, &replica.account);
        let process = replica.manager.program.id();
        let of_heap = meter::memory(process, "RssAnon");
        plan.keep(run, format!("{who}: anonymous memory"), of_heap, "MiB", MOST_MEMORY);
        run.measured(format!("{who}: memory of files"), meter::memory(process, "RssFile"), "MiB");
        let descriptors = number(meter::descriptors(process));
        plan.keep(run, format!("{who}: descriptors"), descriptors, "", MOST_DESCRIPTORS);
        let (http, url) = (reqwest::Client::new(), format!("{}/metrics", replica.manager.url));
        let (mut text, mut seconds) = (String::new(), Vec::new());
        for _ in 0..SCRAPES {
            let began = Instant::now();
            text = http.get(&url).send().await.unwrap().text().await.unwrap();
            seconds.push(began.elapsed().as_secs_f64());
        }
        let series = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        plan.keep(run, format!("{who}: series"), number(series), "", MOST_SERIES);
        run.measured(format!("{who}: time of a scrape, p50"), percentile(&seconds, 0.5), "s");
        let flawed = meter::sum_of(&text, "mcm_plans_flawed_total", "");
        run.check(format!("{who}: plans that were bugs"), flawed, "", Bound::Exactly(0.0));
    }

    async fn read(&self, replicas: &[FleetReplica]) -> FleetReading {
        let (mut cpu, mut calls, mut requests) = (Vec::new(), BTreeMap::<String, f64>::new(), 0.0);
        for replica in replicas {
            let (_, text) = replica.manager.get("/metrics").await;
            cpu.push(meter::cpu_seconds(replica.manager.program.id()));
            requests += meter::sum_of(&text, "rest_client_requests_total", "");
            for (call, count) in meter::calls(&text) {
                *calls.entry(call).or_default() += count;
            }
        }
        let lease_writes = self.planes.record.with(|record| record.lease_writes());
        let writes = meter::writes(&self.planes.world.client).await;
        FleetReading { at: Instant::now(), cpu, calls, requests, lease_writes, writes }
    }

    /// Ends all replicas in good order, starts them again, and measures until they have planned the machines.
    async fn restart(&self, replicas: &mut [FleetReplica]) {
        let (run, plan) = (self.run, self.plan);
        end(replicas).await;
        run.exactly("claims that were not released", self.planes.holders().await.len(), 0);
        let began = Instant::now();
        for replica in &mut *replicas {
            replica.start_again().await;
        }
        wait::until_within(LIMIT, "a claim", async || (!self.planes.holders().await.is_empty()).then_some(())).await;
        let claimed = Instant::now();
        let until_claimed = claimed.duration_since(began).as_secs_f64();
        run.measured("restart: until the first claim", until_claimed, "s");
        wait::until_within(LIMIT, "each control plane to have an owner", async || self.planes.owners().await).await;
        run.measured("restart: until each control plane had an owner", began.elapsed().as_secs_f64(), "s");
        let wanted = PLANNED_SHARE * number(plan.all_machines());
        wait::until_within(LIMIT, "the new processes to plan the machines", async || {
            let mut planned = 0.0;
            for replica in &*replicas {
                planned += machines_planned(&meter::metrics_of(&replica.manager).await?);
            }
            (planned >= wanted).then_some(())
        })
        .await;
        let took = claimed.elapsed().as_secs_f64();
        run.measured("restart: until 95 % of the machines were planned", until_claimed + took, "s");
        let what = "restart: from the first claim until 95 % of the machines were planned";
        plan.keep(run, what, took, "s", PLANNED_WITHIN);
        self.until_shared(replicas).await;
        run.measured("restart: until the replicas shared the control planes", began.elapsed().as_secs_f64(), "s");
    }
}

/// Ends all replicas in good order.
async fn end(replicas: &mut [FleetReplica]) {
    replicas.iter().for_each(|replica| replica.manager.program.terminate());
    for replica in replicas {
        let status = replica.manager.program.ended().await;
        assert!(status.success(), "{} ended with {status}", replica.account);
    }
}

/// The machines that a process leads and has planned. It may have planned others before it handed them over, so the reconciles count
/// at most once for each machine that it leads.
fn machines_planned(metrics: &str) -> f64 {
    let led = meter::sum_of(metrics, "mcm_machine_items_total", "");
    let reconciles = meter::sum_of(metrics, "mcm_workqueue_work_duration_seconds_count", "name=\"machine\"");
    reconciles.min(led)
}
