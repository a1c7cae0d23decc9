//! The orphan collector in a real manager, with drivers of real clouds.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};

use crate::{
    ec2::Ec2,
    gcp::World as Gce,
    pool::{CLUSTER, Pool},
    simulation::Simulation,
    support::wait,
};

/// The shortest that there is.
const FLAGS: [&str; 2] = ["--machine-safety-orphan-vms-period=1m", "--machine-safety-orphan-vms-minimum-age=1m"];
/// Two lists that are a minute apart, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_no_machine_has_is_collected_on_moto_and_no_other() {
    an_orphan_is_collected_and_nothing_else(Arc::new(Ec2::start().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_no_machine_has_is_collected_in_the_fake_and_no_other() {
    an_orphan_is_collected_and_nothing_else(Arc::new(Gce::new().await)).await;
}

async fn an_orphan_is_collected_and_nothing_else(cloud: Arc<dyn Simulation>) {
    cloud.create("orphan", CLUSTER).await;
    cloud.create("stranger", "another").await;
    let pool = Pool::start(Arc::clone(&cloud), &FLAGS).await;
    pool.world.scale(1).await;
    pool.world.settled(1, "small").await;
    let machine = pool.world.scene.now().names().pop_first().unwrap();

    let names = async || cloud.vms().await.into_iter().map(|vm| vm.machine).collect::<BTreeSet<String>>();
    assert_eq!(names().await, ["orphan", "stranger", &machine].map(str::to_owned).into());
    wait::until_within(PATIENCE, "the orphan to be collected", async || {
        (!names().await.contains("orphan")).then_some(())
    })
    .await;
    assert_eq!(names().await, ["stranger", &machine].map(str::to_owned).into());
    assert!(pool.world.scene.now().settled(1, "small"), "the machine lost nothing");
    let events: Api<Event> = Api::namespaced(pool.world.client.clone(), &pool.world.namespace);
    let told = wait::until("both events", async || {
        let list = events.list(&ListParams::default()).await.unwrap();
        let of_orphans = |event: Event| event.reason.filter(|reason| reason.starts_with("Orphan"));
        let reasons: BTreeSet<String> = list.into_iter().filter_map(of_orphans).collect();
        (reasons.len() == 2).then_some(reasons)
    });
    assert_eq!(told.await, ["OrphanDeleted", "OrphanFound"].map(str::to_owned).into());

    pool.world.remove_pool().await;
    assert_eq!(names().await, ["stranger".to_owned()].into());
}
