//! Writes of Gardener's autoscaler, without the autoscaler.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kube::{ResourceExt, api::PostParams};
use rstest::rstest;
use serde_json::json;

use crate::support::world::World;

const LIST: &str = "node.machine.sapcloud.io/trigger-deletion-by-mcm";
const CHANGED_AT: &str = "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time";

/// Adds a machine to the list and takes 1 from the replicas, repeated until the update has no conflict.
async fn choose(world: &World, machine: &str, has_time: bool) {
    loop {
        let mut deployment = world.deployments().get("pool").await.unwrap();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let entry = if has_time { format!("{machine}~{now}") } else { machine.to_owned() };
        let annotations = deployment.annotations_mut();
        let list = annotations.remove(LIST).map_or_else(|| entry.clone(), |list| format!("{list},{entry}"));
        annotations.insert(LIST.to_owned(), list);
        annotations.insert(CHANGED_AT.to_owned(), now);
        deployment.spec.replicas -= 1;
        match world.deployments().replace("pool", &PostParams::default(), &deployment).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[rstest]
#[case::two_at_once(2, 0, true)]
#[case::eight_at_once(8, 0, true)]
#[case::by_name_only(8, 0, false)]
#[case::with_pauses(8, 300, true)]
#[tokio::test]
async fn exactly_the_machines_that_are_chosen_one_after_the_other_go(
    #[case] count: usize,
    #[case] pause: u64,
    #[case] has_time: bool,
) {
    let world = World::new("autoscaler").await;
    let _manager = world.run(&[]).await;
    world.pool(u32::try_from(count).unwrap() + 2, json!({})).await;
    world.settled(count + 2, "small").await;
    let before = world.scene.now().names();
    world.scene.always("no machine is made", move |scene| scene.ever.len() == count + 2);
    world.scene.always("nothing is frozen", |scene| {
        let of_sets = scene.sets.values().map(ResourceExt::labels);
        let of_deployments = scene.deployments.values().map(ResourceExt::labels);
        !of_sets.chain(of_deployments).any(|labels| labels.contains_key("freeze"))
    });
    let chosen: BTreeSet<String> = before.iter().take(count).cloned().collect();
    for machine in &chosen {
        choose(&world, machine, has_time).await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    world.settled(2, "small").await;
    assert_eq!(world.scene.now().names(), before.difference(&chosen).cloned().collect());
    world.assert_vms_match().await;
}
