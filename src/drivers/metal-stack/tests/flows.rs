//! The decisions of the driver by the machines that it finds.

use std::{collections::BTreeMap, time::Duration};

use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, OWNER, OWNER_TAG, World, class, code, driver,
    fake::{PARTITION, tag_of},
    spec, spec_with, unmeasured, with_id,
};
use mcm_driver::{Code, ListedVm, MachineRequest, interface::Driver};

#[tokio::test]
async fn a_machine_lives_from_create_to_delete() {
    let world = World::new().await;
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(vm.provider_id, format!("metal:///{PARTITION}/00000000-0000-4000-8000-000000000000"));
    assert_eq!((vm.node_name.as_str(), vm.zone.as_deref()), ("a", Some(PARTITION)));
    let addresses: Vec<String> = vm.addresses.iter().map(|one| format!("{} {}", one.type_, one.address)).collect();
    assert_eq!(addresses, ["InternalIP 10.0.0.0", "ExternalIP 198.51.0.0", "Hostname a"]);
    assert_eq!(vm.last_known_state.as_deref(), Some(format!("Created {}", vm.provider_id).as_str()));
    let known = with_id(request.clone(), &vm.provider_id);
    for request in [&request, &known] {
        let found = world.driver.status(request).await.unwrap();
        assert_eq!(
            (found.provider_id, found.node_name, found.addresses),
            (vm.provider_id.clone(), "a".into(), vm.addresses.clone())
        );
    }
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(vm.provider_id.clone(), ListedVm::new("a", Some(OWNER.to_owned())))].into());
    assert_eq!(world.driver.delete(&known).await.unwrap(), None);
    assert_eq!(world.count(), 0);
    assert_eq!(code(world.driver.status(&known).await), Code::NotFound);
    world.driver.delete(&known).await.expect("nothing there is success");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap(), BTreeMap::new());
    assert_eq!(world.calls("machine.free"), 1);
    world.assert_valid_requests();
}

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
#[case::as_stored("metal:///fra-equ01/", true)]
#[case::two_slashes("metal://fra-equ01/", true)]
#[case::without_a_partition("metal://", true)]
#[case::of_another_cloud("aws:///eu-west-1/", false)]
#[tokio::test]
async fn the_last_part_of_a_provider_id_counts(#[case] prefix: &str, #[case] is_found: bool) {
    let world = World::new().await;
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    let id = vm.provider_id.rsplit('/').next().unwrap();
    let known = with_id(world.request("a"), &format!("{prefix}{id}"));
    match world.driver.status(&known).await {
        Ok(found) => assert!(is_found && found.provider_id == vm.provider_id),
        Err(error) => assert!(!is_found && error.code == Code::InvalidArgument, "{error}"),
    }
}

#[rstest]
#[case("metal:///fra-equ01/a%2Fb")]
#[case("metal:///fra-equ01/..")]
#[case("metal:///fra-equ01/")]
#[tokio::test]
async fn a_provider_id_cannot_lead_elsewhere(#[case] id: &str) {
    let world = World::new().await;
    assert_eq!(code(world.driver.delete(&with_id(world.request("a"), id)).await), Code::InvalidArgument);
}

#[tokio::test]
async fn a_machine_of_a_class_that_became_invalid_can_be_deleted() {
    let world = World::new().await;
    world.driver.create(&world.request("a")).await.unwrap();
    let spec = spec_with(&json!({"partition": null, "size": 7, "image": null, "network": ""}));
    let request = world.request_for("a", "uid-a", spec);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
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

#[tokio::test]
async fn classes_of_one_project_and_cluster_share_a_list() {
    let driver = driver(Duration::from_secs(1), unmeasured());
    let other = |changes| class(spec_with(&changes));
    let may_list = |changes| driver.may_list(&class(spec()), &other(changes));
    assert!(may_list(json!({"size": "other", "partition": "other"})));
    assert!(!may_list(json!({"project": "other"})));
    assert!(!may_list(json!({"tags": ["cluster.metal-stack.io/id=other"]})));
    assert!(may_list(json!({"tags": []})), "of a class without a cluster nothing is certain");
}

#[tokio::test]
async fn an_adoption_takes_a_machine_off_the_list_and_puts_it_back() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let known = with_id(request.clone(), &vm.provider_id);
    let tags = |key: &str| tag_of(world.metal.lock().cloud.allocations()[0], key).map(str::to_owned);
    world.driver.tag(&known, false).await.unwrap();
    assert_eq!(world.driver.list(&known.class, &known.secret).await.unwrap(), BTreeMap::new());
    assert_eq!((tags(OWNER_TAG), tags("cluster.metal-stack.io/id").as_deref()), (None, Some("shoot")));
    assert_eq!(tags("pool").as_deref(), Some("workers"), "other tags stay");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound, "only its ID finds it");
    world.driver.tag(&known, true).await.unwrap();
    let listed = world.driver.list(&known.class, &known.secret).await.unwrap();
    assert_eq!(listed, [(vm.provider_id, ListedVm::new("a", Some(OWNER.to_owned())))].into());
    world.assert_valid_requests();
}
