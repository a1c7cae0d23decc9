//! The world: two API servers, a cloud, users, and the processes under test.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{
    super::api_server::ApiServer,
    areas::Areas,
    cloud::Cloud,
    desired_state::DesiredState,
    faults::{Faults, Rates},
    ledger::Ledger,
    rng::Rng,
};
use mcm_runtime::{clock::TimeSource, metrics::MetricsRegistry};

pub(super) const NAMESPACE: &str = "shoot";

pub(super) struct World {
    pub faults: Arc<Faults>,
    pub control: ApiServer,
    pub target: ApiServer,
    pub cloud: Mutex<Cloud>,
    pub ledger: Mutex<Ledger>,
    /// The desired state of the pool.
    pub desired: Mutex<DesiredState>,
    /// The areas that are played beside rollouts.
    pub areas: Areas,
    /// Of all processes, living and dead.
    pub metrics: MetricsRegistry,
    /// Events that will still happen.
    pending: AtomicUsize,
}

impl World {
    /// Nothing but classes and a deployment.
    pub(super) fn of(seed: u64, areas: Areas) -> Arc<Self> {
        let mut rng = Rng::seeded(seed);
        let rates = Rates::any(&mut rng);
        let desired = DesiredState::any(&mut rng, areas);
        let mut cloud = Cloud::of(&mut rng);
        if areas.orphans {
            cloud.lists = true;
            cloud.add_foreign();
            if rng.one_in(2) {
                cloud.add_others();
            }
        }
        let largest_page = *rng.pick(&[1, 3, 500]).unwrap();
        let world = Self::with(rng, rates, cloud, desired, areas);
        world.control.set_largest_page(largest_page);
        world
    }

    pub(super) fn with(rng: Rng, rates: Rates, cloud: Cloud, desired: DesiredState, areas: Areas) -> Arc<Self> {
        let faults = Faults::new(rng, rates);
        let server = || ApiServer::new(&faults.clock, Arc::<Faults>::clone(&faults));
        let world = Arc::new(Self {
            control: server(),
            target: server(),
            cloud: Mutex::new(cloud),
            ledger: Mutex::new(Ledger::of(&desired)),
            desired: Mutex::new(desired.clone()),
            areas,
            metrics: MetricsRegistry::new(),
            pending: AtomicUsize::new(0),
            faults,
        });
        for server in [&world.control, &world.target] {
            let weak = Arc::downgrade(&world);
            server.observe(move |write| {
                if let Some(world) = weak.upgrade() {
                    world.saw(write);
                }
            });
        }
        desired.declare(&world.control);
        world.say(format!("{desired:?}, {rates}, {:?}, {areas:?}", world.cloud.lock().style()));
        world
    }

    pub(super) fn now(&self) -> Timestamp {
        self.faults.clock.now()
    }

    pub(super) fn say(&self, what: impl AsRef<str>) {
        self.faults.say(what);
    }

    /// Lets something happen after a time.
    pub(super) fn later(self: &Arc<Self>, after: Duration, event: impl FnOnce(&Arc<Self>) + Send + 'static) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let world = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            event(&world);
            world.pending.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Plans that broke a bound, or did not converge.
    pub(super) fn flawed_plans(&self) -> Vec<String> {
        let metrics = self.metrics.render();
        metrics.lines().filter(|line| line.starts_with("mcm_plans_flawed_total")).map(str::to_owned).collect()
    }

    /// Nothing more will happen without a change.
    pub(super) fn is_quiet(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// The number of requests of each kind, for a reader.
    pub(super) fn traffic(&self) -> BTreeMap<String, usize> {
        let mut traffic = BTreeMap::new();
        for call in self.control.calls().iter().chain(&self.target.calls()) {
            *traffic.entry(format!("{:?} {}", call.verb, call.kind.plural)).or_default() += 1;
        }
        traffic
    }
}
