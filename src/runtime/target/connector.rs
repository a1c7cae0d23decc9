//! A target that is connected while its cell has Machines: with hundreds of cells, those without Machines cost no connection, and
//! an API server that is switched off with its Nodes is not called.

use std::{future::pending, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{CellTargets, TargetClients, TargetId};
use crate::cache::ObjectCache;
use mcm_api::machine::Machine;

/// How long a target stays connected after the last Machine: its Nodes are deleted meanwhile, and a pool that is replaced keeps
/// their cache.
const KEPT_FOR: Duration = Duration::from_mins(10);

/// Connects the only target of a cell while it is used.
pub struct TargetConnector {
    targets: Arc<CellTargets>,
    clients: TargetClients,
    machines: Arc<ObjectCache<Machine>>,
    changed: Arc<Notify>,
    usage: Mutex<TargetUsage>,
}

/// The use of a target by Machines.
#[derive(Clone, Copy, Debug, Default)]
struct TargetUsage {
    has_machines: bool,
    /// The end of the time after the last Machine.
    until: Option<Instant>,
}

impl TargetUsage {
    fn see(&mut self, has_machines: bool, now: Instant) {
        let had_machines = mem::replace(&mut self.has_machines, has_machines);
        if has_machines || had_machines {
            self.until = Some(now + KEPT_FOR);
        }
    }
}

impl TargetConnector {
    /// Waits until the Machines are listed, and connects the target if there are some.
    pub async fn begin(
        targets: &Arc<CellTargets>,
        clients: &TargetClients,
        machines: &Arc<ObjectCache<Machine>>,
    ) -> Arc<Self> {
        let changed = Arc::new(Notify::new());
        let waker = Arc::clone(&changed);
        machines.on_change(move |_| waker.notify_one());
        machines.wait_synced().await;
        let this = Arc::new(Self {
            targets: Arc::clone(targets),
            clients: clients.clone(),
            machines: Arc::clone(machines),
            changed,
            usage: Mutex::default(),
        });
        this.follow();
        this
    }

    /// Connects and disconnects the target until dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            let end = self.follow();
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.targets.demand.changed() => {}
                () = at(end) => {}
            }
        }
    }

    /// Connects the target if it is used, and disconnects it if it is not. Returns the end of its use, as far as it is known.
    fn follow(&self) -> Option<Instant> {
        let (id, now) = (TargetId::only(), Instant::now());
        let has_machines = !self.machines.is_empty();
        let until = {
            let mut usage = self.usage.lock();
            usage.see(has_machines, now);
            usage.until.max(self.targets.demand.until()).filter(|until| *until > now)
        };
        match (until, self.targets.get(&id).is_some()) {
            (Some(_), false) => {
                tracing::info!(target = %id, has_machines, "target connected");
                self.targets.connect(&id, &self.clients);
            }
            (None, true) => {
                tracing::info!(target = %id, "target disconnected, because there are no machines");
                self.targets.disconnect(&id);
            }
            (Some(_), true) | (None, false) => {}
        }
        until.filter(|_| !has_machines)
    }
}

/// Waits until a time; for ever without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use kube::{Client, client::Body, runtime::watcher};
    use serde_json::json;
    use tokio::time::sleep;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::{cache::Key, target::TargetAssignment};

    const MINUTE: Duration = Duration::from_mins(1);

    fn away() -> TargetClients {
        let service = tower::service_fn(|_: http::Request<Body>| {
            pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        TargetClients::one(&Client::new(service, "default"))
    }

    fn machine(name: &str) -> Machine {
        let metadata = json!({ "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap()
    }

    struct World {
        targets: Arc<CellTargets>,
        machines: Arc<ObjectCache<Machine>>,
        _running: AbortOnDropHandle<()>,
    }

    impl World {
        async fn start(machines: &[&str]) -> Self {
            let targets = CellTargets::new(TargetAssignment::One(TargetId::only()), || ObjectCache::new(&[], |_| ()));
            let cache = ObjectCache::<Machine>::new(&[], |_| ());
            cache.observe(watcher::Event::Init);
            machines.iter().for_each(|name| drop(cache.wrote(machine(name))));
            cache.observe(watcher::Event::InitDone);
            let connector = TargetConnector::begin(&targets, &away(), &cache).await;
            Self { targets, machines: cache, _running: AbortOnDropHandle::new(tokio::spawn(connector.run())) }
        }

        fn is_connected(&self) -> bool {
            self.targets.only().is_some()
        }

        /// How long it takes until the target is connected, or disconnected.
        async fn until(&self, is_connected: bool) -> Duration {
            let began = Instant::now();
            while self.is_connected() != is_connected {
                sleep(Duration::from_secs(1)).await;
            }
            began.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_is_connected_with_the_first_machine_and_until_ten_minutes_after_the_last() {
        let world = World::start(&[]).await;
        sleep(60 * MINUTE).await;
        assert!(!world.is_connected());
        world.machines.wrote(machine("m"));
        assert!(world.until(true).await < MINUTE);
        sleep(60 * MINUTE).await;
        assert!(world.is_connected(), "it has a machine, and nothing changes");
        world.machines.removed(&Key::new("ns", "m"), "m");
        sleep(9 * MINUTE).await;
        assert!(world.is_connected(), "its Nodes may exist");
        assert!(world.until(false).await <= 2 * MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_target_of_machines_that_exist_at_the_start_is_connected_before_anything_is_planned() {
        let world = World::start(&["m"]).await;
        assert!(world.is_connected());
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_without_machines_is_connected_while_its_nodes_are_needed() {
        let world = World::start(&[]).await;
        world.targets.demand(30 * MINUTE);
        assert!(world.until(true).await < MINUTE);
        sleep(20 * MINUTE).await;
        world.targets.demand(30 * MINUTE);
        sleep(29 * MINUTE).await;
        assert!(world.is_connected());
        assert!(world.until(false).await <= 2 * MINUTE);
    }
}
