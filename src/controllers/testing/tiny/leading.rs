//! Roles under Leases: when a process begins to act, and when it ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    super::{
        api_server::{ApiCall, ApiServer, ApiVerb, CONFIG_MAPS, CallDelivery, DeliveryOutcome, LEASES, NetworkModel},
        clock::VirtualClock,
    },
    register::ROLE,
    tests::{Program, keys, put, until, writes},
};
use mcm_runtime::{
    lead::{LostLease, lead},
    leader::{LeaderElection, LeaseConfig, LeaseTiming},
    role::ControllerRole,
    shutdown,
};

/// A role without work, but with a Lease.
const IDLE: ControllerRole = ControllerRole { name: "idle", lease: "idle" };

const TIMING: LeaseTiming = LeaseTiming {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// Lists of ConfigMaps can fail, and responses to writes can take an hour.
#[derive(Default)]
struct Line {
    refuses_lists: AtomicBool,
    delays_answers: AtomicBool,
}

impl NetworkModel for Line {
    fn fate(&self, call: &ApiCall) -> CallDelivery {
        let is_set = |flag: &AtomicBool| call.kind == &CONFIG_MAPS && flag.load(Ordering::Relaxed);
        let outcome = if call.verb == ApiVerb::List && is_set(&self.refuses_lists) {
            DeliveryOutcome::Refused(500)
        } else {
            DeliveryOutcome::Answered
        };
        let is_slow = call.verb == ApiVerb::MergePatch && is_set(&self.delays_answers);
        let back = if is_slow { Duration::from_hours(1) } else { Duration::ZERO };
        CallDelivery { there: Duration::ZERO, back, outcome }
    }
}

struct World {
    server: ApiServer,
    clock: VirtualClock,
    line: Arc<Line>,
}

/// A process that is a candidate for the Leases of both roles.
struct Leading {
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<(), LostLease>>,
}

impl World {
    fn new() -> Self {
        let (clock, line) = (VirtualClock::new(), Arc::<Line>::default());
        let server = ApiServer::new(&clock, Arc::clone(&line) as Arc<dyn NetworkModel>);
        put(&server, "map", json!({ "data": { "a": "" } }));
        Self { server, clock, line }
    }

    fn lead(&self) -> Leading {
        let program = Program::start(&self.server, &self.clock, &[ROLE]);
        let election = |role: ControllerRole| {
            let lease_config = LeaseConfig {
                namespace: "shoot".to_owned(),
                name: role.lease.to_owned(),
                identity: "us".to_owned(),
                timing: TIMING,
            };
            (
                role,
                Some(
                    LeaderElection::new(self.server.client("us"), lease_config, Arc::new(self.clock.clone())).unwrap(),
                ),
            )
        };
        let candidates = [ROLE, IDLE].map(election).into();
        let stop = CancellationToken::new();
        let until = stop.clone();
        let task = tokio::spawn(async move { lead(&program.cell, candidates, &|_| (), &until).await });
        Leading { stop, task: AbortOnDropHandle::new(task) }
    }

    /// `None` if there is no such Lease, an empty text if it is free.
    fn holder(&self, role: ControllerRole) -> Option<String> {
        let lease = self.server.get(&LEASES, "shoot", role.lease)?;
        Some(lease.value["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    async fn until_it_acts(&self) {
        until("it acts", || keys(&self.server, "map").as_deref() == Some("a")).await;
        until("it has both leases", || self.holder(IDLE).as_deref() == Some("us")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_fill_its_caches_takes_no_lease() {
    let world = World::new();
    world.line.refuses_lists.store(true, Ordering::Relaxed);
    let _leading = world.lead();
    sleep(Duration::from_mins(10)).await;
    assert_eq!([ROLE, IDLE].map(|role| world.holder(role)), [None, None]);
    world.line.refuses_lists.store(false, Ordering::Relaxed);
    world.until_it_acts().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_loses_a_lease_stops_writing_and_releases_the_others() {
    let world = World::new();
    let leading = world.lead();
    world.until_it_acts().await;
    let taken = |lease: &mut serde_json::Value| {
        lease["spec"]["holderIdentity"] = json!("them");
        lease["spec"]["leaseDurationSeconds"] = json!(3600);
    };
    world.server.edit(&LEASES, "shoot", ROLE.lease, taken).unwrap();
    let ended = leading.task.await.unwrap();
    assert_eq!(ended.unwrap_err().to_string(), "lost the lease tiny");
    assert_eq!([ROLE, IDLE].map(|role| world.holder(role).unwrap()), ["them", ""]);
    let written = writes(&world.server);
    put(&world.server, "map", json!({ "data": { "b": "" } }));
    sleep(Duration::from_mins(10)).await;
    assert_eq!(writes(&world.server), written);
}

#[tokio::test(start_paused = true)]
async fn when_all_work_is_done_the_leases_are_released() {
    let world = World::new();
    let leading = world.lead();
    world.until_it_acts().await;
    leading.stop.cancel();
    assert_eq!(leading.task.await.unwrap(), Ok(()));
    assert_eq!([ROLE, IDLE].map(|role| world.holder(role).unwrap()), ["", ""]);
}

#[tokio::test(start_paused = true)]
async fn while_an_aborted_call_may_take_effect_the_lease_is_not_released() {
    let world = World::new();
    let leading = world.lead();
    world.until_it_acts().await;
    world.line.delays_answers.store(true, Ordering::Relaxed);
    let before = writes(&world.server);
    put(&world.server, "map", json!({ "data": { "b": "" } }));
    until("a write is not answered", || writes(&world.server) > before).await;
    leading.stop.cancel();
    let begun = tokio::time::Instant::now();
    assert_eq!(leading.task.await.unwrap(), Ok(()));
    assert!(begun.elapsed() >= shutdown::WORK, "it had its time");
    assert_eq!([ROLE, IDLE].map(|role| world.holder(role).unwrap()), ["us", ""]);
}
