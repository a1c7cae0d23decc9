//! All there is: two API servers, a cloud, people, and the processes under test.

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
    cloud::Cloud,
    dice::Dice,
    ledger::Ledger,
    luck::{Luck, Rates},
    rooms::Rooms,
    wish::Wish,
};
use crate::runtime::{clock::Clock, metrics::Metrics};

pub(super) const NAMESPACE: &str = "shoot";

pub(super) struct World {
    pub luck: Arc<Luck>,
    pub control: ApiServer,
    pub target: ApiServer,
    pub cloud: Mutex<Cloud>,
    pub ledger: Mutex<Ledger>,
    /// The desired state of the pool.
    pub wish: Mutex<Wish>,
    /// The areas that are played beside rollouts.
    pub rooms: Rooms,
    /// Of all processes, living and dead.
    pub metrics: Metrics,
    /// Events that will still happen.
    pending: AtomicUsize,
}

impl World {
    /// Nothing but classes and a deployment.
    pub(super) fn of(seed: u64, rooms: Rooms) -> Arc<Self> {
        let mut dice = Dice::seeded(seed);
        let rates = Rates::any(&mut dice);
        let wish = Wish::any(&mut dice, rooms);
        let mut cloud = Cloud::of(&mut dice);
        if rooms.orphans {
            cloud.lists = true;
            cloud.add_foreign();
            if dice.one_in(2) {
                cloud.add_others();
            }
        }
        let largest_page = *dice.pick(&[1, 3, 500]).unwrap();
        let world = Self::with(dice, rates, cloud, wish, rooms);
        world.control.set_largest_page(largest_page);
        world
    }

    pub(super) fn with(dice: Dice, rates: Rates, cloud: Cloud, wish: Wish, rooms: Rooms) -> Arc<Self> {
        let luck = Luck::new(dice, rates);
        let server = || ApiServer::new(&luck.clock, Arc::<Luck>::clone(&luck));
        let world = Arc::new(Self {
            control: server(),
            target: server(),
            cloud: Mutex::new(cloud),
            ledger: Mutex::new(Ledger::of(&wish)),
            wish: Mutex::new(wish.clone()),
            rooms,
            metrics: Metrics::new(),
            pending: AtomicUsize::new(0),
            luck,
        });
        for server in [&world.control, &world.target] {
            let weak = Arc::downgrade(&world);
            server.observe(move |write| {
                if let Some(world) = weak.upgrade() {
                    world.saw(write);
                }
            });
        }
        wish.declare(&world.control);
        world.say(format!("{wish:?}, {rates}, {:?}, {rooms:?}", world.cloud.lock().style()));
        world
    }

    pub(super) fn now(&self) -> Timestamp {
        self.luck.clock.now()
    }

    pub(super) fn say(&self, what: impl AsRef<str>) {
        self.luck.say(what);
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

    /// Nothing more will happen by itself.
    pub(super) fn is_quiet(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// How many requests of each kind there were, for a person.
    pub(super) fn traffic(&self) -> BTreeMap<String, usize> {
        let mut traffic = BTreeMap::new();
        for call in self.control.calls().iter().chain(&self.target.calls()) {
            *traffic.entry(format!("{:?} {}", call.verb, call.kind.plural)).or_default() += 1;
        }
        traffic
    }
}
