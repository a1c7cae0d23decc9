//! The phases of a run: faults and user actions, convergence, probes, and rest.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::SignedDuration;
use tokio::time::{Instant, sleep};

use super::{
    super::api_server::NODES,
    desired_state::DesiredState,
    faults::LONGEST_WATCH,
    system::{Process, Program, TAKE_OVER},
    world::World,
};
use crate::{MACHINES, SETS};
use mcm_runtime::trust::WatchTiming;

/// The world converges within this time after the last fault: the longest timeout is that of a creation.
const PATIENCE: Duration = Duration::from_mins(60);
/// The longest preservation, and a replacement after it.
const KEPT: Duration = Duration::from_mins(30);
/// Orphans are deleted in the second list, and a few at a time. Those with Nodes are drained one after the other, after other
/// managers had time to claim them.
const COLLECTED: Duration = Duration::from_mins(120);
/// Then nothing is written, for longer than any timeout.
const REST: Duration = Duration::from_mins(30);
/// The same for most seeds, because hours without a write are what takes longest: what is written again and again is
/// written sooner.
const NAP: Duration = Duration::from_mins(4);
/// Period of the checks for convergence.
const LOOK: Duration = Duration::from_secs(5);
/// Without elections a successor must not start before the requests of its predecessor have arrived.
const PAUSE: Duration = Duration::from_secs(10);

/// The longest time after which a silent watch is reopened.
const SILENCE: Duration = WatchTiming::CONTROL.idle_timeout.saturating_add(WatchTiming::CONTROL.open_timeout);
/// The duration of a few requests, including the delay before changes are acted on.
const SOON: Duration = Duration::from_secs(3);
/// The longest a VM takes to become a Node that is ready.
const BOOT: Duration = Duration::from_mins(3);
/// The longest grace period of a pod, and the time before and after a drain.
const DRAIN: Duration = Duration::from_mins(5);
/// Additional time of a drain whose volumes move a few at a time, some of them late.
const VOLUMES: Duration = Duration::from_mins(30);
/// Delay until a user's last change takes effect.
const ON_ITS_WAY: Duration = Duration::from_secs(70);

/// The drain of a Node, the work of its agent, and the actions of users around it.
const UPDATE: Duration = Duration::from_mins(8);

pub(super) struct Lifecycle {
    world: Arc<World>,
    programs: Vec<Program>,
    processes: Vec<Option<Process>>,
    /// Process restarts, of a thousand events.
    kills: usize,
}

impl Lifecycle {
    pub(super) fn of(world: &Arc<World>) -> Self {
        let everything = Program::everything;
        let programs = match world.faults.rng(|rng| rng.below(4)) {
            0 => vec![everything("a").without_election()],
            1 => vec![everything("a"), everything("b")],
            2 => vec![
                everything("sets").with_roles(&[SETS]).without_election(),
                everything("machines").with_roles(&[MACHINES]).without_election(),
            ],
            _ => vec![
                everything("sets-a").with_roles(&[SETS]),
                everything("machines-a").with_roles(&[MACHINES]),
                everything("sets-b").with_roles(&[SETS]),
                everything("machines-b").with_roles(&[MACHINES]),
            ],
        };
        let kills = world.faults.pick(&[0, 50, 200]).unwrap();
        Self { world: Arc::clone(world), processes: programs.iter().map(|_| None).collect(), programs, kills }
    }

    pub(super) async fn live(&mut self) -> Result<(), String> {
        let world = Arc::clone(&self.world);
        let outcome = world.faults.failed.run_until_cancelled(self.run()).await;
        match (world.faults.failure(), outcome) {
            (Some(failure), _) => Err(failure),
            (None, outcome) => outcome.unwrap_or(Ok(())),
        }
    }

    async fn run(&mut self) -> Result<(), String> {
        let events = self.world.faults.rng(|rng| rng.below(30) + 10);
        let longest = self.world.faults.pick(&[5_000, 60_000, 400_000]).unwrap();
        self.start_missing();
        for _ in 0..events {
            sleep(self.world.faults.millis(0..longest)).await;
            self.trouble().await;
            self.start_missing();
            self.note_settled();
        }
        self.calm_down();
        self.converge().await?;
        self.probe().await?;
        let rest = if self.world.faults.one_in(8) { REST } else { NAP };
        self.rest(rest).await?;
        // A restarted process without memory must find nothing to do.
        self.processes.iter_mut().for_each(|process| *process = None);
        sleep(TAKE_OVER).await;
        self.start_missing();
        self.rest(rest).await?;
        let flawed = self.world.flawed_plans();
        if flawed.is_empty() { Ok(()) } else { Err(format!("flawed plans: {}", flawed.join(", "))) }
    }

    async fn trouble(&mut self) {
        let faults = Arc::clone(&self.world.faults);
        if faults.per_mille(self.kills) {
            return self.end_some_process().await;
        }
        if faults.rates().mishaps > 0 && faults.one_in(20) {
            return self.pause_a_server();
        }
        if faults.rates().mishaps > 0 && faults.one_in(30) {
            return self.set_some_clock();
        }
        self.world.happen();
    }

    async fn end_some_process(&mut self) {
        let index = self.world.faults.rng(|rng| rng.below(self.processes.len()));
        let Some(process) = self.processes[index].take() else { return };
        let name = process.program.name.clone();
        if self.world.faults.one_in(3) {
            self.world.say(format!("{name} is told to stop"));
            process.stop().await;
            self.world.say(format!("{name} has stopped"));
        } else {
            self.world.say(format!("{name} is killed"));
            drop(process);
        }
        sleep(PAUSE).await;
    }

    fn pause_a_server(&self) {
        let is_target = self.world.faults.one_in(2);
        let after = self.world.faults.millis(1000..100_000);
        let which = if is_target { "target" } else { "control" };
        self.world.say(format!("the {which} API server does not answer for {after:?}"));
        let server = if is_target { &self.world.target } else { &self.world.control };
        server.set_paused(true);
        let server = server.clone();
        self.world.later(after, move |world| {
            if is_target && world.ledger.lock().target_is_away() {
                return;
            }
            world.say(format!("the {which} API server answers again"));
            server.set_paused(false);
        });
    }

    /// Certificates and Leases of Kubernetes allow less than this.
    fn set_some_clock(&self) {
        let index = self.world.faults.rng(|rng| rng.below(self.processes.len()));
        let Some(process) = &self.processes[index] else { return };
        let offset = self.world.faults.rng(|rng| SignedDuration::from_secs(rng.within(-30..30)));
        self.world.say(format!("the clock of {} is {offset} ahead", process.program.name));
        process.clock.set_offset(offset);
    }

    fn start_missing(&mut self) {
        for (program, process) in self.programs.iter().zip(&mut self.processes) {
            if process.as_ref().is_none_or(Process::is_over) {
                *process = Some(Process::start(&self.world, program));
            }
        }
    }

    /// Once the world has converged and no write was seen for long, no older desired state is in flight.
    fn note_settled(&self) {
        let desired = self.world.desired.lock().clone();
        let mut ledger = self.world.ledger.lock();
        let is_quiet = ledger.last_write.elapsed() > Duration::from_secs(90);
        if is_quiet && !desired.is_deleted && self.world.missing_machines(&desired).is_empty() {
            ledger.settled(&desired);
        }
    }

    fn calm_down(&mut self) {
        for process in self.processes.iter().flatten() {
            process.clock.set_offset(SignedDuration::ZERO);
        }
        self.world.calm_down();
        self.start_missing();
    }

    async fn converge(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let areas = self.world.areas;
        let more = [(areas.preservation, KEPT), (areas.orphans, COLLECTED)];
        let patience = PATIENCE + more.into_iter().filter(|(has, _)| *has).map(|(_, more)| more).sum::<Duration>();
        // A request on a Node is not visible elsewhere before.
        let earliest = if areas.preservation { ON_ITS_WAY } else { Duration::ZERO };
        while begun.elapsed() < patience {
            if self.world.is_at_rest() && begun.elapsed() >= earliest {
                self.world.say(format!("the desired state is reached after {:?}", begun.elapsed()));
                return Ok(());
            }
            sleep(LOOK).await;
            self.world.collect_pods();
            if areas.external_writers || areas.freezes {
                self.world.tidy_machines();
            }
            self.start_missing();
        }
        let missing = self.world.differences();
        Err(format!("not converged after {patience:?}: {}", missing.join("; ")))
    }

    /// Every change is acted on in time: a wake-up that gets lost would show nowhere else, as something else may wake
    /// whom it was meant for.
    async fn probe(&self) -> Result<(), String> {
        let world = &self.world;
        if world.desired.lock().is_deleted {
            return Ok(());
        }
        // Until then a watch of before may fall silent, and be silent.
        sleep(SILENCE + Duration::from_millis(LONGEST_WATCH.unsigned_abs())).await;
        world.change_desired_state("another node label", DesiredState::relabel);
        world.within(SOON, "the label on all nodes", || world.differences().is_empty()).await?;
        world.change_desired_state("one machine more", |desired| desired.replicas += 1);
        world.within(BOOT, "one machine more", || world.differences().is_empty()).await?;
        let node = world.some(&NODES).unwrap_or_default();
        world.ail(&node, None);
        world.within(SOON, "an unhealthy machine", || world.has_machine_in("Unknown")).await?;
        world.recover(&node);
        world.within(SOON, "a recovered machine", || world.differences().is_empty()).await?;
        world.delete_some_machine();
        let drain = DRAIN + if world.areas.volumes { VOLUMES } else { Duration::ZERO };
        world.within(BOOT + drain, "the replacement of a machine", || world.differences().is_empty()).await?;
        if world.desired.lock().is_in_place() { self.probe_update().await } else { Ok(()) }
    }

    /// A Machine that is updated in place keeps its VM.
    async fn probe_update(&self) -> Result<(), String> {
        let world = &self.world;
        let vms = || world.cloud.lock().vms.keys().cloned().collect::<BTreeSet<_>>();
        let (desired, before) = (world.desired.lock().clone(), vms());
        world.change_desired_state("an in-place update", DesiredState::update);
        let all = u32::try_from(before.len()).unwrap();
        let limit = UPDATE * (all + 1);
        world.within(limit, "an in-place update", || world.differences().is_empty()).await?;
        let (new, surge) = (vms().difference(&before).count(), desired.most() - desired.replicas);
        let is_kept = new <= usize::try_from(surge).unwrap();
        if is_kept {
            Ok(())
        } else {
            Err(format!("{new} VMs are new after an in-place update, and maxSurge is {surge}"))
        }
    }

    /// Once there, nothing is written.
    async fn rest(&mut self, time: Duration) -> Result<(), String> {
        let led: Vec<bool> = self.processes.iter().flatten().map(Process::has_led).collect();
        self.world.say(format!("rest; led: {led:?}"));
        // Requests that are still in flight may change nothing.
        sleep(TAKE_OVER).await;
        let writes = self.world.ledger.lock().writes;
        sleep(time).await;
        let missing = self.world.differences();
        let more = self.world.ledger.lock().writes - writes;
        if more > 0 || !missing.is_empty() {
            return Err(format!("it does not stay as it is: {more} writes; {}", missing.join("; ")));
        }
        Ok(())
    }
}

impl World {
    /// Polls until it is so.
    pub(super) async fn within(&self, limit: Duration, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while !is_so() {
            if begun.elapsed() > limit {
                return Err(format!("{what}: not within {limit:?}; {}", self.differences().join("; ")));
            }
            sleep(Duration::from_millis(250)).await;
        }
        self.say(format!("{what}: after {:?}", begun.elapsed()));
        Ok(())
    }

    pub(super) fn change_desired_state(&self, what: &str, change: impl FnOnce(&mut DesiredState)) {
        self.say(format!("user: {what}"));
        change(&mut self.desired.lock());
        self.write_desired_state();
    }
}
