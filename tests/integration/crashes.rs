//! The manager is killed at random moments, again and again.

use std::{env, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::support::{
    objects,
    world::{Manager, World},
};

const ROUNDS: usize = 3;
const REPLICAS: usize = 8;
/// Kills in each of the three phases of a round.
const KILLS: usize = 6;
/// How long a manager lives: from before its caches are filled until it has done quite some work.
const LIFE_MILLIS: std::ops::Range<u64> = 30..700;

#[tokio::test]
async fn no_machine_is_lost_or_doubled_however_often_the_manager_is_killed() {
    let seed = env::var("MCM_TEST_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("MCM_TEST_SEED={seed} makes the kills come after the same times again");
    let mut dice = StdRng::seed_from_u64(seed);
    let world = World::new("crashes").await;
    let mut manager = world.run(&[]).await;
    world.classes().await;
    for name in ["small", "large"] {
        let mut class = objects::class(name);
        let slow = json!({"createLatency": "300ms", "bootLatency": "300ms", "deleteLatency": "200ms"});
        objects::merge(&mut class, json!({ "providerSpec": slow }));
        world.apply(class).await;
    }

    for round in 1..=ROUNDS {
        world.apply(pool()).await;
        kill_often(&world, &mut manager, &mut dice).await;
        world.settled(REPLICAS, "small").await;
        assert_none_lost_or_doubled(&world, REPLICAS * (2 * round - 1)).await;

        world.scene.always("at most 10 live machines, at least 7 available", |scene| {
            scene.live().count() <= REPLICAS + 2 && scene.available() >= REPLICAS - 1
        });
        world.roll("large").await;
        kill_often(&world, &mut manager, &mut dice).await;
        world.settled(REPLICAS, "large").await;
        assert_none_lost_or_doubled(&world, REPLICAS * 2 * round).await;
        world.scene.forget_rules();

        let deleted = async {
            world.remove_pool().await;
        };
        tokio::join!(deleted, kill_often(&world, &mut manager, &mut dice));
        assert_none_lost_or_doubled(&world, REPLICAS * 2 * round).await;
        assert_eq!(world.cloud.count("/alive").await, 0);
    }
    let lives = manager.program.log();
    let count = |text: &str| lives.matches(text).count();
    println!(
        "{} kills, {} of them after the controllers had begun to work",
        ROUNDS * 3 * KILLS,
        count("at work role=Machines")
    );
}

fn pool() -> Value {
    let mut deployment = objects::deployment("pool", u32::try_from(REPLICAS).unwrap());
    let limits = json!({"maxSurge": 2, "maxUnavailable": 1});
    objects::merge(&mut deployment, json!({"spec": {"strategy": {"rollingUpdate": limits}}}));
    deployment
}

async fn kill_often(world: &World, manager: &mut Manager, dice: &mut StdRng) {
    for _ in 0..KILLS {
        // Not a wait for a state: the moment shall be any.
        tokio::time::sleep(Duration::from_millis(dice.random_range(LIFE_MILLIS))).await;
        manager.program.restart_after_kill();
        for (machine, vms) in world.cloud.provider_ids().await {
            assert_eq!(vms.len(), 1, "{machine} has several VMs: {vms:?}");
        }
    }
}

/// `ever`: how many Machines there must have been so far, each with one VM.
async fn assert_none_lost_or_doubled(world: &World, ever: usize) {
    world.assert_vms_match().await;
    assert_eq!(world.scene.now().ever.len(), ever, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, u64::try_from(ever).unwrap(), "VMs ever made");
}
