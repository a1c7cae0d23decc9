//! A call that waits for Google holds no slot.

use std::sync::Arc;

use super::World;
use crate::{pool::Pool, simulation::Simulation};

const MACHINES: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn with_one_slot_vms_are_created_and_deleted_at_the_same_time() {
    let world = Arc::new(World::new().await);
    world.gce.lock().steps = 12;
    let pool = Pool::start(Arc::<World>::clone(&world), &["--concurrent-syncs=1"]).await;
    pool.world.scale(MACHINES.try_into().unwrap()).await;
    pool.until_settled(MACHINES).await;
    let most = std::mem::take(&mut world.gce.lock().most_running);
    assert!(most > MACHINES / 2, "{most} creations at a time");
    assert_eq!(world.gce.lock().inserts, MACHINES, "each VM is asked for once");

    pool.world.scale(0).await;
    pool.until_empty(MACHINES).await;
    let most = world.gce.lock().most_running;
    assert!(most > MACHINES / 2, "{most} deletions at a time");
    assert_eq!((world.count(), world.violations()), (0, vec![]));
}
