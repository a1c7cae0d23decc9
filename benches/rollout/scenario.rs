//! One implementation, one size: create, roll, delete, scale down, each measured from the request to its completion.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use mcm::{
    api::machine::{Machine, MachineDeployment, MachinePhase},
    cli::apply::apply,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    Arguments,
    control_plane::{ControlPlane, Process, simulated_cloud},
    measure::{self, Memory, Requests},
};

const NAMESPACE: &str = "bench";
/// How long a phase may go on after its aim is reached.
const LONGEST_REST: Duration = Duration::from_secs(5);
const FLOOR_NAMESPACE: &str = "floor";
const FLOOR_CLIENTS: usize = 32;
const FLOOR_WRITES: usize = 2_000;

/// A name and the commands of its processes.
#[derive(Clone, Debug)]
pub struct Implementation {
    pub name: String,
    pub commands: Vec<String>,
}

impl FromStr for Implementation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, commands) = text.split_once('=').ok_or("write NAME=COMMAND[;COMMAND…]")?;
        Ok(Self { name: name.into(), commands: commands.split(';').map(|command| command.trim().into()).collect() })
    }
}

/// From how many machines to how many.
#[derive(Clone, Copy, Debug)]
pub struct ScaleDown {
    from: u32,
    to: u32,
}

impl FromStr for ScaleDown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once(':').ok_or("write FROM:TO")?;
        let number = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
        Ok(Self { from: number(from)?, to: number(to)? })
    }
}

/// The result of one implementation.
#[derive(Debug, Serialize)]
pub struct Run {
    pub name: String,
    pub n: u32,
    pub phases: Vec<Phase>,
    /// Of each process, after it had nothing to do for a while: without machines, and with all of them.
    pub idle: [Vec<Memory>; 2],
    /// Of each process, at the end.
    pub memory: Vec<Memory>,
    pub floor_writes_per_second: f64,
    pub latencies_seconds: [f64; 3],
}

/// The cost of one phase.
#[derive(Debug, Serialize)]
pub struct Phase {
    pub name: String,
    pub machines: u32,
    pub seconds: f64,
    pub own_writes: f64,
    pub token_writes: f64,
    pub node_writes: f64,
    pub all_writes: f64,
    pub reads: f64,
    pub cpu_seconds: f64,
    pub too_many: i64,
    pub requests: BTreeMap<String, f64>,
}

impl Run {
    /// The latency of the simulated cloud in a phase, in seconds.
    pub fn latency_floor(&self, phase: &str) -> f64 {
        let [create, boot, delete] = self.latencies_seconds;
        match phase {
            "create" => create + boot,
            "roll" => 3.0 * (create + boot),
            _ => delete,
        }
    }
}

/// The observations of a watch of the machines.
#[derive(Default)]
struct Seen {
    machines: BTreeMap<String, Arc<Machine>>,
    ever: BTreeSet<String>,
}

struct World {
    client: Client,
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
    pids: Vec<u32>,
    timeout: Duration,
}

pub async fn run(arguments: &Arguments, implementation: &Implementation, n: u32) -> Result<Run> {
    let control_plane = ControlPlane::up()?;
    let client = control_plane.client().await?;
    let logs = arguments.output.join(format!("{}-{n}", implementation.name));
    std::fs::create_dir_all(&logs)?;
    install(&client, arguments).await?;
    let (_cloud, cloud) = simulated_cloud(&arguments.mcm, &control_plane.kubeconfig, &logs).await?;
    let floor = floor(&client).await?;

    let mut processes = Vec::new();
    for (at, command) in implementation.commands.iter().enumerate() {
        let kubeconfig = control_plane.kubeconfig.display().to_string();
        let command =
            command.replace("{kubeconfig}", &kubeconfig).replace("{namespace}", NAMESPACE).replace("{cloud}", &cloud);
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let log = logs.join(format!("{at}.log"));
        processes.push(Process::start(&words, &[("SIMULATED_CLOUD", &cloud)], &log)?);
    }
    let pids: Vec<u32> = processes.iter().map(|process| process.0.id()).collect();
    let world = World {
        client: client.clone(),
        seen: Arc::default(),
        changed: Arc::default(),
        pids: pids.clone(),
        timeout: Duration::from_secs(arguments.timeout),
    };
    let watch = tokio::spawn(follow(client, Arc::clone(&world.seen), Arc::clone(&world.changed)));
    world.warm_up().await.with_context(|| format!("warm up; logs are in {}", logs.display()))?;

    let idle = Duration::from_secs(arguments.idle);
    let without = world.idle(idle).await;
    let create = world.create(n).await?;
    let with = world.idle(idle).await;
    let mut phases = vec![create, world.roll(n).await?, world.delete(n).await?];
    for scale in &arguments.scale_downs {
        world.create(scale.from).await?;
        phases.push(world.scale_down(*scale).await?);
        world.delete(scale.to).await?;
    }
    watch.abort();
    let memory = measure::memory(&pids);
    for process in &mut processes {
        process.stop().await;
    }
    let seconds = |text: &str| text.parse::<mcm::api::GoDuration>().map(|latency| latency.as_std().as_secs_f64());
    Ok(Run {
        name: implementation.name.clone(),
        n,
        phases,
        idle: [without, with],
        memory,
        floor_writes_per_second: floor,
        latencies_seconds: [seconds(&arguments.create)?, seconds(&arguments.boot)?, seconds(&arguments.delete)?],
    })
}

impl World {
    async fn warm_up(&self) -> Result<()> {
        self.apply(1, "first").await?;
        self.until(|seen| running(seen, "first") == 1).await?;
        self.remove().await
    }

    /// The memory of the idle processes.
    async fn idle(&self, time: Duration) -> Vec<Memory> {
        tokio::time::sleep(time).await;
        measure::memory(&self.pids)
    }

    async fn create(&self, n: u32) -> Result<Phase> {
        let meter = Meter::start(self).await?;
        self.apply(n, "first").await?;
        self.until(|seen| running(seen, "first") == n as usize).await?;
        self.available(n).await?;
        meter.stop(self, "create", n, i64::from(n)).await
    }

    async fn roll(&self, n: u32) -> Result<Phase> {
        let meter = Meter::start(self).await?;
        self.apply(n, "second").await?;
        self.until(|seen| running(seen, "second") == n as usize && seen.machines.len() == n as usize).await?;
        meter.stop(self, "roll", n, i64::from(n)).await
    }

    async fn delete(&self, n: u32) -> Result<Phase> {
        let meter = Meter::start(self).await?;
        self.remove().await?;
        meter.stop(self, "delete", n, 0).await
    }

    /// Counts every machine that was deleted beyond the surplus.
    async fn scale_down(&self, scale: ScaleDown) -> Result<Phase> {
        let before: BTreeSet<String> = self.seen.lock().machines.keys().cloned().collect();
        let meter = Meter::start(self).await?;
        self.apply(scale.to, "first").await?;
        self.until(|seen| seen.machines.len() == scale.to as usize && running(seen, "first") == scale.to as usize)
            .await?;
        // An implementation that removes too many replaces them a moment later.
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.until(|seen| seen.machines.len() == scale.to as usize && running(seen, "first") == scale.to as usize)
            .await?;
        let name = format!("{}→{}", scale.from, scale.to);
        let mut phase = meter.stop(self, &name, scale.from - scale.to, 0).await?;
        let survivors = self.seen.lock().machines.keys().filter(|uid| before.contains(*uid)).count();
        phase.too_many = i64::from(scale.to) - i64::try_from(survivors)?;
        phase.seconds -= 3.0;
        Ok(phase)
    }

    async fn apply(&self, replicas: u32, class: &str) -> Result<()> {
        let deployments: Api<MachineDeployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let patch = Patch::Apply(deployment(replicas, class));
        deployments
            .patch("pool", &PatchParams::apply("bench").force(), &patch)
            .await
            .context("apply the deployment")?;
        Ok(())
    }

    async fn available(&self, n: u32) -> Result<()> {
        let deployments: Api<MachineDeployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let start = Instant::now();
        while start.elapsed() < self.timeout {
            let status = deployments.get("pool").await?.status.unwrap_or_default();
            if status.available_replicas == i32::try_from(n)? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{n} machines run, but the deployment does not say so")
    }

    async fn remove(&self) -> Result<()> {
        let deployments: Api<MachineDeployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        deployments.delete("pool", &DeleteParams::background()).await.context("delete the deployment")?;
        self.until(|seen| seen.machines.is_empty()).await?;
        let start = Instant::now();
        while deployments.get_opt("pool").await?.is_some() {
            if start.elapsed() > self.timeout {
                bail!("the deployment does not go away");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until nothing was written for a second, but not for long: some never rest.
    async fn rest(&self) -> Result<Requests> {
        let start = Instant::now();
        let mut requests = measure::requests(&self.client).await?;
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < Duration::from_secs(1) && start.elapsed() < LONGEST_REST {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = measure::requests(&self.client).await?;
            if measure::rollout_writes(&now) > measure::rollout_writes(&requests) {
                quiet_since = Instant::now();
            }
            requests = now;
        }
        Ok(requests)
    }

    async fn until(&self, reached: impl Fn(&Seen) -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            let notified = self.changed.notified();
            if reached(&self.seen.lock()) {
                return Ok(());
            }
            if start.elapsed() > self.timeout {
                let seen = self.seen.lock();
                bail!("not reached after {:?}: {} machines, {:?}", self.timeout, seen.machines.len(), phases(&seen));
            }
            let _ = tokio::time::timeout(Duration::from_secs(1), notified).await;
        }
    }
}

fn running(seen: &Seen, class: &str) -> usize {
    let runs = |machine: &&Arc<Machine>| machine.phase() == MachinePhase::Running && machine.spec.class.name == class;
    seen.machines.values().filter(runs).count()
}

fn phases(seen: &Seen) -> BTreeMap<String, usize> {
    let mut phases = BTreeMap::new();
    for machine in seen.machines.values() {
        *phases.entry(machine.phase().as_str().to_owned()).or_default() += 1;
    }
    phases
}

async fn follow(client: Client, seen: Arc<Mutex<Seen>>, changed: Arc<Notify>) {
    let machines: Api<Machine> = Api::namespaced(client, NAMESPACE);
    let mut events = watcher(machines, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        {
            let mut seen = seen.lock();
            match event {
                watcher::Event::Apply(machine) | watcher::Event::InitApply(machine) => {
                    let uid = machine.uid().unwrap_or_default();
                    seen.ever.insert(uid.clone());
                    seen.machines.insert(uid, Arc::new(machine));
                }
                watcher::Event::Delete(machine) => {
                    seen.machines.remove(&machine.uid().unwrap_or_default());
                }
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
        }
        changed.notify_waiters();
    }
}

struct Meter {
    start: Instant,
    requests: Requests,
    cpu_seconds: f64,
    ever: usize,
}

impl Meter {
    async fn start(world: &World) -> Result<Self> {
        Ok(Self {
            requests: measure::requests(&world.client).await?,
            cpu_seconds: measure::cpu_seconds(&world.pids),
            ever: world.seen.lock().ever.len(),
            start: Instant::now(),
        })
    }

    /// The time ends now. The remaining clean-up belongs to this phase and must not slow down the next one.
    async fn stop(self, world: &World, name: &str, machines: u32, expected: i64) -> Result<Phase> {
        let seconds = self.start.elapsed().as_secs_f64();
        let requests = measure::difference(&self.requests, &world.rest().await?);
        let made = i64::try_from(world.seen.lock().ever.len() - self.ever)?;
        let node_writes = requests
            .iter()
            .filter(|((verb, resource), _)| resource == "nodes" && matches!(verb.as_str(), "PUT" | "PATCH"))
            .map(|(_, value)| value)
            .sum();
        let phase = Phase {
            name: name.to_owned(),
            machines,
            seconds,
            own_writes: measure::own_writes(&requests),
            token_writes: measure::token_writes(&requests),
            node_writes,
            all_writes: measure::all_writes(&requests),
            reads: measure::reads(&requests),
            cpu_seconds: measure::cpu_seconds(&world.pids) - self.cpu_seconds,
            too_many: made - expected,
            requests: requests
                .into_iter()
                .map(|((verb, resource), value)| (format!("{verb} {resource}"), value))
                .collect(),
        };
        eprintln!(
            "   {name}: {seconds:.2} s, {:.1} own writes per machine",
            phase.own_writes / f64::from(machines.max(1))
        );
        Ok(phase)
    }
}

/// How fast plain clients write single objects of the kind in question.
async fn floor(client: &Client) -> Result<f64> {
    let machines: Api<Machine> = Api::namespaced(client.clone(), FLOOR_NAMESPACE);
    let start = Instant::now();
    let written: Vec<Result<_, kube::Error>> = stream::iter(0..FLOOR_WRITES)
        .map(|at| {
            let machines = machines.clone();
            async move {
                let mut machine = Machine::new(&format!("floor-{at}"), Default::default());
                machine.spec.class.kind = "MachineClass".into();
                machine.spec.class.name = "none".into();
                machines.create(&PostParams::default(), &machine).await
            }
        })
        .buffer_unordered(FLOOR_CLIENTS)
        .collect()
        .await;
    written.into_iter().collect::<Result<Vec<_>, _>>().context("measure the write rate")?;
    Ok(FLOOR_WRITES as f64 / start.elapsed().as_secs_f64())
}

async fn install(client: &Client, arguments: &Arguments) -> Result<()> {
    let crds = Command::new(&arguments.mcm).arg("crd").output().context("run mcm crd")?;
    apply(client, &String::from_utf8(crds.stdout)?, "bench").await?;
    let token = if arguments.without_tokens { "none" } else { "<<BOOTSTRAP_TOKEN>>" };
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": FLOOR_NAMESPACE}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bench", "namespace": NAMESPACE},
            "stringData": {"userData": format!("#cloud-config\ntoken: {token}\n")},
        }),
    ];
    objects.extend(["first", "second"].map(|class| {
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": class, "namespace": NAMESPACE},
            "provider": "simulated",
            "providerSpec": {
                "createLatency": arguments.create, "bootLatency": arguments.boot, "deleteLatency": arguments.delete,
            },
            "secretRef": {"name": "bench", "namespace": NAMESPACE},
            // Without it the Go reference crashes when it measures a creation.
            "nodeTemplate": {
                "capacity": {"cpu": "4", "gpu": "0", "memory": "16Gi"},
                "instanceType": "standard", "region": "simulated", "zone": "simulated-a",
            },
        })
    }));
    for object in objects {
        apply(client, &object.to_string(), "bench").await?;
    }
    Ok(())
}

fn deployment(replicas: u32, class: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "pool", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"name": "pool"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "20%", "maxUnavailable": "20%"}},
            "template": {
                "metadata": {"labels": {"name": "pool"}},
                "spec": {"class": {"kind": "MachineClass", "name": class}},
            },
        },
    })
}
