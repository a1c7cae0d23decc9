//! Interruptions at random moments, repeatedly: of the manager, or of its connection to the API server.

use std::{env, ops::Range, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::support::{objects, world::World};

const ROUNDS: usize = 3;
const REPLICAS: usize = 8;
/// Times that something breaks in each of the three phases of a round.
const BREAKS: usize = 6;
/// How long a manager lives: from before its caches are filled until it has done quite some work.
const LIFE_MILLIS: Range<u64> = 30..700;
/// Time without responses.
const SILENCE_MILLIS: Range<u64> = 5..200;

#[tokio::test]
async fn no_machine_is_lost_or_doubled_however_often_the_manager_is_killed() {
    let mut dice = dice();
    let world = World::new("crashes").await;
    let mut manager = world.run(&[]).await;
    survive(&world, async || {
        // Not a wait for a state: the moment shall be any.
        tokio::time::sleep(Duration::from_millis(dice.random_range(LIFE_MILLIS))).await;
        manager.program.restart_after_kill();
    })
    .await;
    let lives = manager
        .program
        .log()
        .lines()
        .filter(|line| line.contains("controllers started") && line.contains("machines"))
        .count();
    println!("{} kills, {lives} of them after the controllers had begun to work", ROUNDS * 3 * BREAKS);
}

#[tokio::test]
async fn no_machine_is_lost_or_doubled_however_many_answers_are_lost() {
    let mut dice = dice();
    let world = World::new("answers").await;
    let line = world.tap().await;
    let _manager = world.run(&[]).await;
    survive(&world, async || {
        // Not a wait for a state: the moment shall be any.
        tokio::time::sleep(Duration::from_millis(dice.random_range(LIFE_MILLIS))).await;
        line.lose_answers(Duration::from_millis(dice.random_range(SILENCE_MILLIS))).await;
    })
    .await;
    println!("{} answers lost", line.lost());
    assert!(line.lost() > 0);
}

fn dice() -> StdRng {
    let seed = env::var("MCM_TEST_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("MCM_TEST_SEED={seed} makes things break after the same times again");
    StdRng::seed_from_u64(seed)
}

/// Creates, rolls and removes a pool, several times, with repeated interruptions.
async fn survive(world: &World, mut something_breaks: impl AsyncFnMut()) {
    world.classes().await;
    for name in ["small", "large"] {
        let mut class = objects::class(name);
        let slow = json!({"createLatency": "300ms", "bootLatency": "300ms", "deleteLatency": "200ms"});
        objects::merge(&mut class, json!({ "providerSpec": slow }));
        world.apply(class).await;
    }
    let mut trouble = async || {
        for _ in 0..BREAKS {
            something_breaks().await;
            for (machine, vms) in world.cloud.provider_ids().await {
                assert_eq!(vms.len(), 1, "{machine} has several VMs: {vms:?}");
            }
        }
    };

    for round in 1..=ROUNDS {
        world.apply(pool()).await;
        trouble().await;
        world.settled(REPLICAS, "small").await;
        assert_none_lost_or_doubled(world, REPLICAS * (2 * round - 1)).await;

        world.scene.always("at most 10 live machines, at least 7 available", |scene| {
            scene.live().count() <= REPLICAS + 2 && scene.available() >= REPLICAS - 1
        });
        world.roll("large").await;
        trouble().await;
        world.settled(REPLICAS, "large").await;
        assert_none_lost_or_doubled(world, REPLICAS * 2 * round).await;
        world.scene.forget_rules();

        let deleted = async {
            world.remove_pool().await;
        };
        tokio::join!(deleted, trouble());
        assert_none_lost_or_doubled(world, REPLICAS * 2 * round).await;
        assert_eq!(world.cloud.count("/alive").await, 0);
    }
}

fn pool() -> Value {
    let mut deployment = objects::deployment("pool", u32::try_from(REPLICAS).unwrap());
    let limits = json!({"maxSurge": 2, "maxUnavailable": 1});
    objects::merge(&mut deployment, json!({"spec": {"strategy": {"rollingUpdate": limits}}}));
    deployment
}

/// `ever`: how many Machines there must have been so far, each with one VM.
async fn assert_none_lost_or_doubled(world: &World, ever: usize) {
    world.assert_vms_match().await;
    assert_eq!(world.scene.now().ever.len(), ever, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, u64::try_from(ever).unwrap(), "VMs ever made");
}
