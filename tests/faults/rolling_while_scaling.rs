//! A large rollout while the number of replicas changes and some creations fail.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use mcm::api::machine::Machine;
use rand::Rng;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    meter,
    run::{Bound, Run, number},
    stage::Stage,
    support::control_plane::ControlPlane,
};

/// Time for which a change of the replicas may be unknown to a controller.
const STALE: Duration = Duration::from_secs(3);
const PERCENT: usize = 20;

/// Each creation and each deletion of a machine is compared with the bounds of that moment.
#[tokio::test]
async fn bounds_hold_in_a_rollout_while_replicas_change_and_creations_fail() {
    let run = Run::start("rolling_while_scaling");
    let machines = run.count("machines", 1000, 40);
    let changes = run.count("changes", 10, 4);
    let failing = run.parameter("failing", 0.02, 0.05);
    let mut dice = run.dice();
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let manager = stage.world.run(&["--v=2"]).await;
    let strategy =
        json!({"rollingUpdate": {"maxSurge": format!("{PERCENT}%"), "maxUnavailable": format!("{PERCENT}%")}});
    stage
        .classes(json!({"providerSpec": {"createLatency": "100ms", "bootLatency": "1s", "deleteLatency": "100ms"}}))
        .await;
    stage.deployment("pool", machines, json!({"spec": {"strategy": strategy}})).await;
    stage.settled(machines, "small").await;
    stage.world.cloud.control(json!({"faults": [{"operation": "create", "rate": failing, "code": "Internal"}]})).await;

    let ledger = Arc::new(Mutex::new(Ledger::of(machines)));
    let watch = tokio::spawn(follow(stage.world.machines(), Arc::clone(&ledger))).abort_handle();
    let before = meter::writes(&stage.world.client).await;
    let made = stage.recorder.made();
    let start = Instant::now();
    stage.world.roll("large").await;
    let mut wanted = machines;
    for at in 1..=changes {
        // Not a wait for a state: the moment shall be any.
        sleep(Duration::from_millis(dice.random_range(500..4000))).await;
        wanted = dice.random_range(machines / 2..=machines * 3 / 2);
        if at == changes {
            wanted = machines;
        }
        stage.run.say(format!("change {at}: {wanted} replicas"));
        lock(&ledger).wants(wanted);
        stage.scale(wanted).await;
    }
    stage.settled(wanted, "large").await;
    let took = start.elapsed();
    watch.abort();

    let writes: f64 = meter::difference(&before, &meter::writes(&stage.world.client).await).values().sum();
    let created = stage.recorder.made() - made;
    stage.run.measured("rollout with all changes", took.as_secs_f64(), "s");
    stage.run.measured("machines created in it", number(created), "");
    stage.run.measured("writes per machine created", writes / number(created.max(1)), "");
    let failed = stage.world.cloud.count("/calls/create/failed/Internal").await;
    stage.run.check("creations that failed", failed as f64, "", Bound::AtLeast(1.0));
    let ledger = std::mem::replace(&mut *lock(&ledger), Ledger::of(0));
    stage.run.measured("creations and deletions compared with the bounds", number(ledger.compared), "");
    stage.run.none("bounds broken", &ledger.broken);
    stage.close(None, &[&manager]).await;
}

/// Machines, the desired number, and the previous desired number.
struct Ledger {
    /// UID → whether it serves, and whether it is being deleted.
    machines: BTreeMap<String, (bool, bool)>,
    wanted: Vec<(Instant, usize)>,
    compared: usize,
    broken: Vec<String>,
    is_listed: bool,
}

impl Ledger {
    fn of(wanted: usize) -> Self {
        Self {
            machines: BTreeMap::new(),
            wanted: vec![(Instant::now(), wanted)],
            compared: 0,
            broken: Vec::new(),
            is_listed: false,
        }
    }

    fn wants(&mut self, wanted: usize) {
        self.wanted.push((Instant::now(), wanted));
    }

    /// All that was wanted within the last moments.
    fn recently(&self) -> impl Iterator<Item = usize> {
        let is_old = |at: &Instant| at.elapsed() > STALE;
        let first = self.wanted.iter().rposition(|(at, _)| is_old(at)).unwrap_or_default();
        self.wanted[first..].iter().map(|(_, wanted)| *wanted)
    }

    /// How long ago something else was wanted; for texts.
    fn since_change(&self) -> String {
        let seconds = self.wanted.last().map_or(0.0, |(at, _)| at.elapsed().as_secs_f64());
        format!("{seconds:.1} s after the last change")
    }

    fn saw(&mut self, machine: &Machine) {
        let Some(uid) = machine.metadata.uid.clone() else { return };
        let is_deleting = machine.metadata.deletion_timestamp.is_some();
        let before = self.machines.insert(uid, (machine.is_available() && !is_deleting, is_deleting));
        if !self.is_listed {
            return;
        }
        let live = self.machines.values().filter(|(_, is_deleting)| !is_deleting).count();
        let available = self.machines.values().filter(|(is_available, _)| *is_available).count();
        match before {
            None => {
                self.compared += 1;
                let most = self.recently().map(|wanted| wanted + (wanted * PERCENT).div_ceil(100)).max();
                if most.is_some_and(|most| live > most) {
                    let since = self.since_change();
                    self.broken.push(format!("{live} live machines after a creation, {most:?} at most, {since}"));
                }
            }
            Some((true, false)) if is_deleting => {
                self.compared += 1;
                let least = self.recently().map(|wanted| wanted - wanted * PERCENT / 100).min();
                if least.is_some_and(|least| available < least) {
                    let since = self.since_change();
                    self.broken.push(format!("{available} available after a deletion, {least:?} at least, {since}"));
                }
            }
            Some(_) => {}
        }
    }
}

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(machines: Api<Machine>, ledger: Arc<Mutex<Ledger>>) {
    let mut events = watcher::watcher(machines, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let mut ledger = lock(&ledger);
        match event {
            Event::Init => ledger.is_listed = false,
            Event::InitDone => ledger.is_listed = true,
            Event::InitApply(machine) | Event::Apply(machine) => ledger.saw(&machine),
            Event::Delete(machine) => {
                ledger.machines.remove(&machine.metadata.uid.unwrap_or_default());
            }
        }
    }
}
