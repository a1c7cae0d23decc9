//! A seed of Gardener that a fleet serves without a list of its shoots, some of which Go programs serve. Shoots hibernate and wake, a
//! meltdown is stopped, shoots migrate and are restored, and some move from their Go programs to the fleet and back.

mod programs;
mod shoots;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::{StreamExt, future::join_all, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use mcm::api::machine::Machine;
use rand::{Rng, rngs::StdRng};
use serde_json::json;
use tokio::time::sleep;

use self::{
    programs::{GoPrograms, until_held},
    shoots::{SeedShoot, ShootState, lay_out},
};
use crate::{
    hostile_fleet::until_served,
    meter,
    pools::{DesiredPool, PoolWatch},
    recorder::Recorder,
    run::{Bound, Run, number},
    stage::go_programs,
    support::{
        fleet::{
            AT_ONCE, FleetPlanes, FleetServer,
            ownership::ActPlace,
            replica::{FleetReplica, ReplicaWays, secured_target_door},
        },
        wait,
        world::Manager,
    },
    take_over::stop,
};

/// Longer than any wait on a busy machine: only a failure waits so long.
const LIMIT: Duration = Duration::from_secs(900);
/// How long VMs may be others than expected after a step.
const VM_LIMIT: Duration = Duration::from_secs(180);
/// Pause between two looks at the VMs.
const LOOK: Duration = Duration::from_secs(1);
/// Nothing more is done in a shoot this long after its Deployment was switched off.
const OFF_WITHIN: SignedDuration = SignedDuration::from_secs(1);
/// Longer than the cloud takes for a deletion that it was asked for before.
const DELETION: Duration = Duration::from_secs(2);
/// A machine whose Node is silent for longer is replaced. A shoot is off for longer than that.
const HEALTH: &str = "10s";
/// The shortest time for which a shoot is off, in seconds.
const LEAST_QUIET: f64 = 12.0;
/// The label of the namespaces of the fleet, and its value, as in `config/gardener/fleet.yaml`.
const FLEET: (&str, &str) = ("machine.mcm/fleet", "default");
/// Steps with different shoots of the fleet.
const GROUPS: usize = 4;
/// Milliseconds between the first new VM of a roll and the moment at which it is disturbed. A Go program takes longer for a roll.
const MOMENTS: u64 = 3_000;
const GO_MOMENTS: u64 = 12_000;

/// The parameters of the run.
struct SeedPlan {
    planes: usize,
    machines: usize,
    /// Shoots that Go programs serve.
    go: usize,
    /// How many of these move to the fleet and back.
    moves: usize,
    /// How long nothing may happen in shoots that are off.
    quiet: Duration,
}

impl SeedPlan {
    fn read(run: &Run) -> Self {
        let (planes, go) = (run.count("planes", 40, 12), run.count("go", 4, 2));
        assert!(planes >= go + GROUPS, "of {planes} shoots {go} are of Go programs: {GROUPS} others are needed");
        let quiet = run.seconds("quiet", 20.0, 15.0);
        assert!(quiet.as_secs_f64() >= LEAST_QUIET, "quiet has to be {LEAST_QUIET} s or more");
        Self { planes, machines: run.count("machines", 2, 2), go, moves: run.count("moves", 2, 1).min(go), quiet }
    }

    /// The folder with the Go programs.
    fn reference(&self) -> PathBuf {
        match go_programs() {
            Some(folder) => folder,
            None if self.go == 0 => PathBuf::new(),
            None => panic!("MCM_REFERENCE names no folder with the Go programs: use hack/faults, or go=0"),
        }
    }
}

/// Each VM is explained by a roll, and each one that has a Machine in the state of its shoot lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_vm_is_lost_or_doubled_when_shoots_hibernate_melt_migrate_and_move() {
    let run = Run::start("seed");
    let plan = SeedPlan::read(&run);
    let reference = plan.reference();
    let mut dice = run.dice();
    let server = FleetServer::start().await;
    let machines = u32::try_from(plan.machines).unwrap();
    let mut planes = FleetPlanes::new(&server, "shoot--seed", plan.planes, machines).await;
    run.say(format!("logs are in {}", planes.world.folder().display()));
    // Not all that the Go programs try is granted. The log of the fleet is searched at the end.
    planes.world.may_be_refused = true;
    planes.world.environment = vec![("SIMULATED_CLOUD".to_owned(), planes.world.cloud.url.clone())];
    let latencies = json!({"createLatency": "500ms", "bootLatency": "1s", "deleteLatency": "500ms"});
    planes.change_classes(&json!({"providerSpec": latencies})).await;
    planes.change_pools(|_| json!({"spec": {"template": {"spec": {"healthTimeout": HEALTH}}}})).await;
    let ways = ReplicaWays::secured(&server.control, &planes.world.cloud.url).await;
    let shoots = lay_out(&planes, &server.control, &ways.target.url()).await;
    run.say(format!("{} shoots are laid out", shoots.len()));
    let (recorder, pools) = (Recorder::start_for_all(&planes.world), PoolWatch::start(&planes.world.client));
    let namespaces = planes.namespaces.clone();
    let (of_go, of_fleet) = namespaces.split_at(plan.go);
    let group = |at: usize| of_fleet.iter().skip(at).step_by(GROUPS).cloned().collect::<Vec<String>>();
    let [hibernating, resting, melting, migrating] = [0, 1, 2, 3].map(group);

    let url = secured_target_door(&server.control).await.url();
    let mut go = GoPrograms::new(reference, &planes, &shoots, of_go, &url);
    let began = Instant::now();
    go.start(&planes, of_go).await;
    run.measured("until the Go programs held their Leases", began.elapsed().as_secs_f64(), "s");
    let began = Instant::now();
    let (label, fleet) = FLEET;
    let mut replica = planes.launch_in_seed(ways, &format!("{label}={fleet}")).await;
    replica.joined().await;
    let mut seed = SeedRun::new((&run, &plan), (&planes, &shoots), (&recorder, &pools), &replica, go);
    seed.settled(&namespaces).await;
    run.measured("until all shoots were served", began.elapsed().as_secs_f64(), "s");
    seed.until_shared().await;
    seed.check_vms("start").await;

    seed.hibernate(&hibernating).await;
    seed.switch_off(&resting).await;
    seed.stop_meltdown(&melting, &mut dice).await;
    seed.migrate(&migrating).await;
    seed.move_and_return(&of_go[..plan.moves], &mut dice).await;
    seed.roll_all(&namespaces).await;
    seed.until_shared().await;
    drop(seed);

    judge_fleet(&run, &replica).await;
    replica.manager.program.terminate();
    replica.manager.program.ended().await;
    let verdict = planes.judge_before(Timestamp::now(), &[&replica]);
    run.none("acts of the fleet where it had no claim", &verdict.strangers);
    for place in [ActPlace::Control, ActPlace::Target, ActPlace::Cloud] {
        let count = verdict.judged.get(&place).copied().unwrap_or_default();
        run.check(format!("acts judged: {place:?}"), number(count), "", Bound::AtLeast(1.0));
    }
    recorder.judge(&run, &planes.world, None).await;
    run.assert_holds();
    planes.assert_vms_match().await;
    run.finish();
}

/// The fleet was refused nothing, planned nothing wrong, and this is its size.
async fn judge_fleet(run: &Run, replica: &FleetReplica) {
    let manager = &replica.manager;
    let refused = manager.program.log().lines().filter(|line| line.contains("is forbidden")).count();
    run.exactly("requests of the fleet that were refused", refused, 0);
    let flawed = meter::metric(manager, "mcm_plans_flawed_total", "").await;
    run.check("plans that were bugs", flawed, "", Bound::Exactly(0.0));
    run.measured("restarts of cells", meter::metric(manager, "mcm_cell_restarts_total", "").await, "");
    run.measured("most memory of the fleet", meter::memory(manager.program.id(), "VmHWM"), "MiB");
}

/// The run in progress.
struct SeedRun<'a> {
    run: &'a Run,
    plan: &'a SeedPlan,
    planes: &'a FleetPlanes,
    shoots: &'a BTreeMap<String, SeedShoot>,
    recorder: &'a Recorder,
    pools: &'a PoolWatch,
    replica: &'a FleetReplica,
    go: GoPrograms,
    desired: BTreeMap<String, DesiredPool>,
    /// VMs that have to be made for each shoot, by the creation of its pool and by its rolls.
    explained: BTreeMap<String, usize>,
}

impl<'a> SeedRun<'a> {
    fn new(
        (run, plan): (&'a Run, &'a SeedPlan),
        (planes, shoots): (&'a FleetPlanes, &'a BTreeMap<String, SeedShoot>),
        (recorder, pools): (&'a Recorder, &'a PoolWatch),
        replica: &'a FleetReplica,
        go: GoPrograms,
    ) -> Self {
        let desired = DesiredPool { replicas: plan.machines, class: "small" }.in_each(&planes.namespaces);
        let explained = planes.namespaces.iter().map(|namespace| (namespace.clone(), plan.machines)).collect();
        Self { run, plan, planes, shoots, recorder, pools, replica, go, desired, explained }
    }

    /// gardenlet scales the pools to 0, waits, and switches the Deployment off. A wake-up is the reverse.
    async fn hibernate(&mut self, namespaces: &[String]) {
        let (step, began) = ("hibernation", Instant::now());
        self.run.say(format!("{step} of {} shoots", namespaces.len()));
        self.scale(namespaces, 0).await;
        self.settled(namespaces).await;
        self.until_machines(namespaces, 0).await;
        let off = self.scale_managers(namespaces, 0).await;
        self.until_state("parked", namespaces.len()).await;
        // The work that is due when they wake.
        self.scale(namespaces, self.plan.machines).await;
        let vms = self.quiet(step, &off).await;
        self.run.exactly("VMs of hibernated shoots", vms.values().map(BTreeSet::len).sum(), 0);

        let woken = Instant::now();
        self.scale_managers(namespaces, 1).await;
        self.explain(namespaces);
        self.settled(namespaces).await;
        self.run.measured("until hibernated shoots were awake", woken.elapsed().as_secs_f64(), "s");
        self.end_step(step, began).await;
    }

    /// The Deployment is off while there are machines. A roll begins when it is on again.
    async fn switch_off(&mut self, namespaces: &[String]) {
        let (step, began) = ("Deployment off", Instant::now());
        self.run.say(format!("{step} in {} shoots with machines", namespaces.len()));
        let before = self.vms_in(namespaces).await;
        let off = self.scale_managers(namespaces, 0).await;
        self.until_state("parked", namespaces.len()).await;
        self.roll(namespaces).await;
        let after = self.quiet(step, &off).await;
        self.same_vms(step, &before, &after);
        self.scale_managers(namespaces, 1).await;
        self.settled(namespaces).await;
        self.end_step(step, began).await;
    }

    /// The dependency-watchdog switches the Deployments off in the middle of a roll, before the kubelets are silent for longer than
    /// machines may be. They report again before it switches them on.
    async fn stop_meltdown(&mut self, namespaces: &[String], dice: &mut StdRng) {
        let (step, began) = ("meltdown", Instant::now());
        self.run.say(format!("{step} in {} shoots", namespaces.len()));
        let made = self.made(namespaces).await;
        let moments = random_moments(dice, namespaces, MOMENTS);
        self.roll(namespaces).await;
        let this = &*self;
        let stops = namespaces.iter().zip(moments).map(|(namespace, moment)| {
            let made = made[namespace];
            async move {
                this.until_mid_roll(namespace, made, moment).await;
                this.scale_manager(namespace, 0).await
            }
        });
        let off: BTreeMap<String, Timestamp> = join_all(stops).await.into_iter().collect();
        self.until_state("parked", namespaces.len()).await;
        let open = self.pools.unsettled(&self.desired_in(namespaces)).len();
        self.run.check("rolls that a meltdown stopped", number(open), "", Bound::AtLeast(1.0));

        // Not a wait for a state: until then a shoot may still act.
        sleep(DELETION).await;
        let nodes = self.node_names(namespaces).await;
        self.set_ready(&nodes, Some("Unknown")).await;
        self.until_nodes(&nodes, "Unknown").await;
        self.quiet(step, &off).await;
        self.set_ready(&nodes, None).await;
        self.until_nodes(&nodes, "True").await;
        self.scale_managers(namespaces, 1).await;
        self.settled(namespaces).await;
        self.end_step(step, began).await;
    }

    /// The Deployment is deleted, then the objects, while their VMs live. Later they are created again, then the Deployment.
    async fn migrate(&mut self, namespaces: &[String]) {
        let (step, began) = ("migration", Instant::now());
        self.run.say(format!("{step} of {} shoots", namespaces.len()));
        let (planes, shoots) = (self.planes, self.shoots);
        let client = &planes.world.client;
        let before = self.vms_in(namespaces).await;
        let states = join_all(namespaces.iter().map(|namespace| ShootState::read(client, namespace))).await;
        let removals = namespaces.iter().map(|namespace| async move {
            shoots[namespace].layout.remove_manager().await;
            (namespace.clone(), Timestamp::now())
        });
        let off: BTreeMap<String, Timestamp> = join_all(removals).await.into_iter().collect();
        // Not a wait for a state: a fleet has no pod that gardenlet could wait for.
        sleep(OFF_WITHIN.unsigned_abs()).await;
        let deletions = states.iter().map(|state| state.delete_shallowly(client));
        stream::iter(deletions).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        self.until_machines(namespaces, 0).await;
        wait::until_within(LIMIT, "the pools to be deleted", async || self.pools.are_gone(namespaces).then_some(()))
            .await;
        let after = self.quiet(step, &off).await;
        self.same_vms(step, &before, &after);

        let step = "restore";
        let restores = states.iter().map(|state| state.restore(client));
        stream::iter(restores).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        let back = Instant::now();
        self.scale_managers(namespaces, 1).await;
        self.settled(namespaces).await;
        self.run.measured("until restored shoots were served", back.elapsed().as_secs_f64(), "s");
        self.same_vms(step, &before, &self.vms_in(namespaces).await);
        self.check_vms(step).await;
        // The VMs of before the migration are deleted, because their Machines are replaced.
        self.roll(namespaces).await;
        self.settled(namespaces).await;
        self.end_step("migration, restore and a roll", began).await;
    }

    /// The Go programs of shoots end in the middle of a roll, and the fleet takes over. In the middle of another roll the shoots lose
    /// the label of the fleet, and the Go programs are back.
    async fn move_and_return(&mut self, namespaces: &[String], dice: &mut StdRng) {
        let (step, began, (label, fleet)) = ("moves", Instant::now(), FLEET);
        self.run.say(format!("{step} of {} shoots to the fleet and back", namespaces.len()));
        let (made, moments) = (self.made(namespaces).await, random_moments(dice, namespaces, GO_MOMENTS));
        let kills: Vec<bool> = namespaces.iter().map(|_| dice.random_bool(0.5)).collect();
        self.roll(namespaces).await;
        let mut programs: Vec<Vec<Manager>> = namespaces.iter().map(|namespace| self.go.take(namespace)).collect();
        let this = &*self;
        let moves = namespaces.iter().zip(&mut programs).zip(moments.into_iter().zip(kills));
        let ends = moves.map(|((namespace, managers), (moment, is_killed))| {
            let made = made[namespace];
            async move {
                this.until_mid_roll(namespace, made, moment).await;
                for manager in managers {
                    stop(manager, is_killed).await;
                }
            }
        });
        join_all(ends).await;
        drop(programs);
        let ended = Instant::now();
        until_held(self.planes, namespaces, true).await;
        self.run.measured("from Go to the fleet: until it held the Leases", ended.elapsed().as_secs_f64(), "s");
        self.settled(namespaces).await;
        self.check_vms("moves to the fleet").await;

        let (made, moments) = (self.made(namespaces).await, random_moments(dice, namespaces, MOMENTS));
        self.roll(namespaces).await;
        let this = &*self;
        let moves = namespaces.iter().zip(moments).map(|(namespace, moment)| {
            let made = made[namespace];
            async move {
                this.until_mid_roll(namespace, made, moment).await;
                this.shoots[namespace].layout.label(json!({label: null})).await;
            }
        });
        join_all(moves).await;
        let left = Instant::now();
        self.go.start(self.planes, namespaces).await;
        self.run.measured("from the fleet to Go: until it held the Leases", left.elapsed().as_secs_f64(), "s");
        self.settled(namespaces).await;
        self.check_vms("moves back to Go").await;
        // The fleet finds them again, and leaves them to their Go programs.
        until_served(&self.replica.manager, namespaces, false).await;
        for namespace in namespaces {
            self.shoots[namespace].layout.label(json!({label: fleet})).await;
        }
        until_served(&self.replica.manager, namespaces, true).await;
        self.until_shared().await;
        self.end_step(step, began).await;
    }

    /// All shoots are rolled at the same time.
    async fn roll_all(&mut self, namespaces: &[String]) {
        let (step, began) = ("roll of all shoots", Instant::now());
        self.run.say(step);
        self.roll(namespaces).await;
        self.settled(namespaces).await;
        self.until_machines(namespaces, namespaces.len() * self.plan.machines).await;
        self.end_step(step, began).await;
    }

    async fn end_step(&self, step: &str, began: Instant) {
        self.run.measured(format!("{step}: time"), began.elapsed().as_secs_f64(), "s");
        self.check_vms(step).await;
    }

    /// Gives pools the other class, so that each of their machines is replaced.
    async fn roll(&mut self, namespaces: &[String]) {
        for namespace in namespaces {
            let pool = self.desired.get_mut(namespace).unwrap();
            pool.class = if pool.class == "small" { "large" } else { "small" };
        }
        self.explain(namespaces);
        self.change_pools(namespaces).await;
    }

    async fn scale(&mut self, namespaces: &[String], replicas: usize) {
        for namespace in namespaces {
            self.desired.get_mut(namespace).unwrap().replicas = replicas;
        }
        self.change_pools(namespaces).await;
    }

    async fn change_pools(&self, namespaces: &[String]) {
        let change = |namespace: &str| {
            let DesiredPool { replicas, class } = self.desired[namespace];
            json!({"spec": {"replicas": replicas, "template": {"spec": {"class": {"name": class}}}}})
        };
        self.planes.change_pools_in(namespaces, change).await;
    }

    /// Each machine of these shoots is made once more.
    fn explain(&mut self, namespaces: &[String]) {
        for namespace in namespaces {
            *self.explained.get_mut(namespace).unwrap() += self.plan.machines;
        }
    }

    /// Scales the Deployments of shoots; returns when each was scaled.
    async fn scale_managers(&self, namespaces: &[String], replicas: u32) -> BTreeMap<String, Timestamp> {
        let scaled = namespaces.iter().map(|namespace| self.scale_manager(namespace, replicas));
        stream::iter(scaled).buffer_unordered(AT_ONCE).collect().await
    }

    async fn scale_manager(&self, namespace: &str, replicas: u32) -> (String, Timestamp) {
        self.shoots[namespace].layout.scale_manager(replicas).await;
        (namespace.to_owned(), Timestamp::now())
    }

    fn desired_in(&self, namespaces: &[String]) -> BTreeMap<String, DesiredPool> {
        namespaces.iter().map(|namespace| (namespace.clone(), self.desired[namespace])).collect()
    }

    /// Waits until the pools are as they were changed last.
    async fn settled(&self, namespaces: &[String]) {
        self.pools.settled(self.run, &self.desired_in(namespaces)).await;
    }

    /// Waits until the fleet leads all shoots but those of the Go programs, which it shows as foreign.
    async fn until_shared(&self) {
        self.until_state("foreign", self.go.count()).await;
        self.until_state("led", self.plan.planes - self.go.count()).await;
    }

    /// Waits until the process shows so many control planes in a state.
    async fn until_state(&self, state: &str, count: usize) {
        let label = format!("state=\"{state}\"");
        wait::until_within(LIMIT, &format!("{count} control planes to be {state}"), async || {
            let shown = meter::metric(&self.replica.manager, "mcm_fleet_namespaces", &label).await;
            (shown == number(count)).then_some(())
        })
        .await;
    }

    /// Waits until there are so many Machines in these shoots.
    async fn until_machines(&self, namespaces: &[String], count: usize) {
        let machines: Api<Machine> = Api::all(self.planes.world.client.clone());
        let namespaces: BTreeSet<&str> = namespaces.iter().map(String::as_str).collect();
        wait::until_within(LIMIT, &format!("{count} machines in {} shoots", namespaces.len()), async || {
            let listed = machines.list_metadata(&ListParams::default()).await.unwrap();
            let found = listed.iter().filter_map(|machine| machine.metadata.namespace.as_deref());
            (found.filter(|namespace| namespaces.contains(*namespace)).count() == count).then_some(())
        })
        .await;
    }

    /// Waits until a roll has begun to make VMs, and for any time after that.
    async fn until_mid_roll(&self, namespace: &str, made_before: usize, moment: Duration) {
        wait::until_within(LIMIT, &format!("the roll in {namespace} to make a VM"), async || {
            (self.recorder.now().made_in(namespace) > made_before).then_some(())
        })
        .await;
        // Not a wait for a state: the moment shall be any.
        sleep(moment).await;
    }

    /// How many VMs were made for each shoot so far.
    async fn made(&self, namespaces: &[String]) -> BTreeMap<String, usize> {
        self.recorder.caught_up(&self.planes.world).await;
        let seen = self.recorder.now();
        namespaces.iter().map(|namespace| (namespace.clone(), seen.made_in(namespace))).collect()
    }

    /// The VMs that are not being deleted: namespaces, IDs and the names of their Machines.
    async fn vms(&self) -> Vec<[String; 3]> {
        let vms = self.planes.world.cloud.vms().await;
        let live = vms.iter().filter(|vm| vm["state"] != "Deleting");
        live.map(|vm| ["namespace", "id", "machineName"].map(|field| vm[field].as_str().unwrap().to_owned())).collect()
    }

    /// The IDs of these VMs by shoot.
    async fn vms_in(&self, namespaces: &[String]) -> BTreeMap<String, BTreeSet<String>> {
        let mut ids: BTreeMap<String, BTreeSet<String>> =
            namespaces.iter().map(|namespace| (namespace.clone(), BTreeSet::new())).collect();
        for [namespace, id, _] in self.vms().await {
            if let Some(ids) = ids.get_mut(&namespace) {
                ids.insert(id);
            }
        }
        ids
    }

    /// The names of the Nodes of these VMs.
    async fn node_names(&self, namespaces: &[String]) -> BTreeSet<String> {
        let vms = self.vms().await;
        vms.into_iter().filter(|[namespace, ..]| namespaces.contains(namespace)).map(|[_, _, name]| name).collect()
    }

    /// Sets the condition Ready of Nodes; without a status they report it again.
    async fn set_ready(&self, nodes: &BTreeSet<String>, status: Option<&str>) {
        for node in nodes {
            self.planes.world.cloud.condition(node, "Ready", status).await;
        }
    }

    /// Waits until the condition Ready of all these Nodes has a status.
    async fn until_nodes(&self, names: &BTreeSet<String>, status: &str) {
        let nodes: Api<Node> = Api::all(self.planes.world.target.clone());
        wait::until_within(LIMIT, &format!("Ready={status} of {} Nodes", names.len()), async || {
            let listed = nodes.list(&ListParams::default()).await.unwrap();
            let is_so = |node: &&Node| {
                let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                names.contains(&node.name_any())
                    && conditions.filter(|one| one.type_ == "Ready").any(|one| one.status == status)
            };
            (listed.iter().filter(is_so).count() == names.len()).then_some(())
        })
        .await;
    }

    /// Lets time pass in which nothing may happen in shoots that were switched off at these times; returns their VMs.
    async fn quiet(&self, step: &str, off: &BTreeMap<String, Timestamp>) -> BTreeMap<String, BTreeSet<String>> {
        let namespaces: Vec<String> = off.keys().cloned().collect();
        // Not waits for states: calls are looked for in this time.
        sleep(OFF_WITHIN.unsigned_abs() + DELETION).await;
        let before = self.vms_in(&namespaces).await;
        sleep(self.plan.quiet).await;
        let after = self.vms_in(&namespaces).await;
        self.same_vms(step, &before, &after);
        let delay = |(namespace, at): (&String, &Timestamp)| {
            let last = self.replica.ways.cloud.last_call(namespace)?;
            Some((namespace.clone(), last.duration_since(*at)))
        };
        let delays: Vec<(String, SignedDuration)> = off.iter().filter_map(delay).collect();
        let longest = delays.iter().map(|(_, delay)| *delay).max().unwrap_or_default().max(SignedDuration::ZERO);
        self.run.measured(format!("{step}: last cloud call after the switch"), longest.as_secs_f64(), "s");
        let late: Vec<&(String, SignedDuration)> = delays.iter().filter(|(_, delay)| *delay > OFF_WITHIN).collect();
        self.run.none(&format!("{step}: shoots with a later cloud call"), &late);
        after
    }

    /// The same VMs, by their IDs.
    fn same_vms(
        &self,
        step: &str,
        before: &BTreeMap<String, BTreeSet<String>>,
        after: &BTreeMap<String, BTreeSet<String>>,
    ) {
        let is_other = |(namespace, vms): &(&String, &BTreeSet<String>)| after.get(*namespace) != Some(*vms);
        let others: Vec<&String> = before.iter().filter(is_other).map(|(namespace, _)| namespace).collect();
        self.run.none(&format!("{step}: shoots whose VMs are not those of before"), &others);
    }

    /// Checks the VMs of all shoots, with or without a part in a step.
    async fn check_vms(&self, step: &str) {
        let began = Instant::now();
        let mut odd = self.odd_shoots().await;
        while !odd.is_empty() && began.elapsed() < VM_LIMIT {
            sleep(LOOK).await;
            odd = self.odd_shoots().await;
        }
        self.run.none(&format!("{step}: shoots with other VMs than expected"), &odd);
    }

    /// Shoots for which more or fewer VMs were made than their rolls explain, or that have another number of them. A Go program
    /// with a stale cache may make some more.
    async fn odd_shoots(&self) -> Vec<String> {
        let namespaces = &self.planes.namespaces;
        let (made, vms) = (self.made(namespaces).await, self.vms_in(namespaces).await);
        let odd = |namespace: &String| {
            let (made, explained) = (made[namespace], self.explained[namespace]);
            let (spare, live) = (self.go.miscounted(namespace), vms[namespace].len());
            let is_odd = !(explained..=explained + spare).contains(&made) || live != self.desired[namespace].replicas;
            is_odd.then(|| {
                format!("{namespace}: {made} VMs made, {explained} explained, {spare} miscounted, {live} live")
            })
        };
        namespaces.iter().filter_map(odd).collect()
    }
}

/// Random times for the shoots of a step.
fn random_moments(dice: &mut StdRng, namespaces: &[String], most: u64) -> Vec<Duration> {
    namespaces.iter().map(|_| Duration::from_millis(dice.random_range(0..most))).collect()
}
