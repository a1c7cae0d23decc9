//! As many machines as wanted: none too many on the way up, no other than the surplus on the way down.

use rstest::rstest;
use serde_json::json;

use crate::support::world::World;

#[rstest]
#[case::thirty(30)]
#[case::more_than_are_deleted_at_once(150)]
#[tokio::test]
async fn a_scale_down_removes_exactly_the_surplus(#[case] many: u32) {
    let count = usize::try_from(many).unwrap();
    let world = World::new("scale").await;
    let _manager = world.run(&[]).await;
    world.pool(many, json!({})).await;
    world.settled(count, "small").await;
    let before = world.scene.now().uids();
    assert_eq!(world.scene.now().ever.len(), count, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, u64::from(many), "VMs ever made");

    world.scene.always("three available at least", |scene| scene.available() >= 3);
    world.scale(3).await;
    world.settled(3, "small").await;
    world.assert_vms_match().await;
    let scene = world.scene.now();
    assert!(scene.uids().is_subset(&before), "survivors were replaced");
    assert_eq!(scene.ever, before, "machines were made on the way down");
}
