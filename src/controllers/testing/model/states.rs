//! The states that the life of a seed reaches, for properties of other crates.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    super::api_server::{ApiServer, Kind, kinds::ALL},
    areas::Areas,
    process_lifecycle::Lifecycle,
    rng::Rng,
    world::{NAMESPACE, World},
};

/// Time between two states in milliseconds.
const PAUSES: [std::ops::Range<i64>; 3] = [500..5_000, 5_000..60_000, 60_000..400_000];

/// The objects of both API servers at a time.
#[derive(Clone, Debug)]
pub struct ReachedState {
    pub seed: u64,
    pub now: Timestamp,
    /// The control namespace.
    pub namespace: &'static str,
    pub control: Vec<(&'static Kind, Value)>,
    pub target: Vec<(&'static Kind, Value)>,
    /// What happened before.
    pub log: Vec<String>,
}

/// At most so many states in the life of a seed with areas, each some time after its predecessor.
pub fn states(seed: u64, areas: &str, most: usize) -> Vec<ReachedState> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::of(seed, Areas::named(areas));
        let (mut life, mut rng, mut found) = (Lifecycle::of(&world), Rng::seeded(seed), Vec::new());
        let look = async {
            while found.len() < most {
                let pause = rng.pick(&PAUSES).unwrap().clone();
                sleep(Duration::from_millis(rng.within(pause).unsigned_abs())).await;
                found.push(ReachedState::of(seed, &world));
            }
        };
        tokio::select! {
            // The invariants are those of the model's own test.
            _ = life.live() => {}
            () = look => {}
        }
        drop(life);
        found
    })
}

impl ReachedState {
    fn of(seed: u64, world: &World) -> Self {
        let objects = |server: &ApiServer| {
            let of_kind = |kind: &'static Kind| server.all(kind).into_iter().map(move |one| (kind, one.value.clone()));
            ALL.into_iter().flat_map(of_kind).collect()
        };
        let (control, target) = (objects(&world.control), objects(&world.target));
        Self { seed, now: world.now(), namespace: NAMESPACE, control, target, log: world.faults.log() }
    }
}
