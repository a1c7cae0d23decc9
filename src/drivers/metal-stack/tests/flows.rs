//! The decisions of the driver by the machines that it finds.

use std::collections::BTreeMap;

use rstest::rstest;

use super::{CLUSTER, OWNER_TAG, World, code, fake::PARTITION, spec, with_id};
use mcm_driver::{Code, ListedVm, MachineRequest, interface::Driver};

/// A server is allocated to others after it was freed.
#[rstest]
#[case::to_another_machine("b", &[CLUSTER, "machine.sapcloud.io/machine-uid=uid-b"])]
#[case::to_another_machine_of_the_reference("b", &[CLUSTER])]
#[case::to_another_cluster("a", &["cluster.metal-stack.io/id=other"])]
#[case::by_hand("a", &[])]
#[tokio::test]
async fn a_provider_id_does_not_find_the_server_of_another(#[case] name: &str, #[case] tags: &[&str]) {
    let world = World::with(1).await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    {
        let mut metal = world.metal.lock();
        let id = metal.cloud.allocations()[0].id.clone();
        metal.cloud.take(&id);
        assert!(vm.provider_id.ends_with(&metal.cloud.put(name, "machine", tags)));
    }
    let known = with_id(request, &vm.provider_id);
    assert_eq!(code(world.driver.status(&known).await), Code::NotFound);
    world.driver.delete(&known).await.unwrap();
    // An orphan has only a name and an ID.
    world.driver.delete(&with_id(world.request_for("a", "", spec()), &vm.provider_id)).await.unwrap();
    assert_eq!(world.count(), 1, "the server of another is not freed");
}

#[tokio::test]
async fn a_server_that_became_a_firewall_is_left_alone() {
    let world = World::with(1).await;
    let id = world.metal.lock().cloud.put("a", "firewall", &[CLUSTER]);
    let known = with_id(world.request("a"), &format!("metal:///{PARTITION}/{id}"));
    for request in [&known, &world.request("a")] {
        assert_eq!(code(world.driver.status(request).await), Code::NotFound);
        world.driver.delete(request).await.unwrap();
    }
    assert_eq!(world.driver.list(&known.class, &known.secret).await.unwrap(), BTreeMap::new());
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case::with_its_uid(&["machine.sapcloud.io/machine-uid=uid-a"], true)]
#[case::without(&[], false)]
#[case::of_another_cluster(&["machine.sapcloud.io/machine-uid=uid-a", "cluster.metal-stack.io/id=other"], false)]
#[tokio::test]
async fn a_known_machine_without_its_cluster_tag_is_known_by_its_uid(#[case] tags: &[&str], #[case] is_found: bool) {
    let world = World::new().await;
    let known = with_id(world.request("a"), &world.put("a", tags));
    assert_eq!(world.driver.status(&known).await.is_ok(), is_found);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_found));
}

#[tokio::test]
async fn a_list_has_the_machines_of_the_cluster_and_no_others() {
    let world = World::new().await;
    let ours = world.put("a", &[CLUSTER, &format!("{OWNER_TAG}=team-b")]);
    world.put("b", &["cluster.metal-stack.io/id=other"]);
    world.put("c", &[]);
    world.metal.lock().cloud.put("d", "firewall", &[CLUSTER]);
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(ours, ListedVm::new("a", Some("team-b".to_owned())))].into());
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_deletion_lasts_until_the_machine_is_free(#[case] may_pause: bool) {
    let world = World::new().await;
    world.metal.lock().cloud.lingers = 4;
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    let request = with_id(MachineRequest { may_pause, ..world.request("a") }, &vm.provider_id);
    let mut pauses = 0;
    while let Err(error) = world.driver.delete(&request).await {
        assert!(error.call_again_in.is_some(), "{error}");
        assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id, "it is not gone yet");
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.count(), world.calls("machine.free")), (may_pause, 0, 1));
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
}
