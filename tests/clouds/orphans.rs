//! The orphan collector in a real manager, with drivers of real clouds.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};

use crate::{
    pool::{CLUSTER, Pool},
    simulation::Simulation,
    stand_ins,
    support::wait,
};

/// The shortest that there is.
pub const FLAGS: [&str; 2] = ["--machine-safety-orphan-vms-period=1m", "--machine-safety-orphan-vms-minimum-age=1m"];
/// A cluster of which no other test has classes.
const LONE: &str = "lone";
/// Two lists that are a minute apart, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

#[cfg(feature = "aws")]
#[tokio::test(flavor = "multi_thread")]
async fn two_namespaces_with_one_cluster_tag_leave_each_other_s_vms_alone_on_moto() {
    two_namespaces_share_a_tag(stand_ins::start("aws").await).await;
}

#[cfg(feature = "gcp")]
#[tokio::test(flavor = "multi_thread")]
async fn two_namespaces_with_one_cluster_tag_leave_each_other_s_vms_alone_in_the_fake() {
    two_namespaces_share_a_tag(stand_ins::start("gcp").await).await;
}

#[cfg(feature = "aws")]
#[tokio::test(flavor = "multi_thread")]
async fn unmarked_vms_stay_while_a_class_of_another_namespace_has_their_tag_on_moto() {
    unmarked_vms_stay(stand_ins::start("aws").await).await;
}

#[cfg(feature = "gcp")]
#[tokio::test(flavor = "multi_thread")]
async fn unmarked_vms_stay_while_a_class_of_another_namespace_has_their_tag_in_the_fake() {
    unmarked_vms_stay(stand_ins::start("gcp").await).await;
}

/// A VM that no machine has is collected, and no other.
pub async fn an_orphan_is_collected_and_nothing_else(cloud: Arc<dyn Simulation>) {
    cloud.create("stranger", "another").await;
    // As created by the Go program, or by an older version: other namespaces have classes with its tag.
    cloud.create("unmarked", CLUSTER).await;
    let pool = Pool::start(Arc::clone(&cloud), &FLAGS).await;
    cloud.create_for("orphan", CLUSTER, &owner(&pool).await).await;
    pool.world.scale(1).await;
    pool.world.settled(1, "small").await;
    let machine = pool.world.scene.now().names().pop_first().unwrap();

    until_gone(&*cloud, "orphan").await;
    assert_eq!(names(&*cloud).await, ["stranger", "unmarked", &machine].map(str::to_owned).into());
    assert!(pool.world.scene.now().settled(1, "small"), "the machine lost nothing");
    until_told(&pool, "OrphanDeleted").await;
    until_told(&pool, "OrphanFound").await;
    let kept = until_told(&pool, "OrphanKept").await;
    assert!(kept.contains("the right to list machineclasses") && kept.contains("unmarked"), "{kept}");

    pool.world.remove_pool().await;
    assert_eq!(names(&*cloud).await, ["stranger", "unmarked"].map(str::to_owned).into());
}

/// The second namespace may be that of `mcm capi-manager`: only the marker counts.
async fn two_namespaces_share_a_tag(cloud: Arc<dyn Simulation>) {
    let first = Pool::start(Arc::clone(&cloud), &FLAGS).await;
    let second = Pool::beside(Arc::clone(&cloud), &FLAGS).await;
    for pool in [&first, &second] {
        pool.world.scale(1).await;
        pool.world.settled(1, "small").await;
    }
    let owners = [owner(&first).await, owner(&second).await];
    let marked: BTreeSet<String> = cloud.vms().await.into_iter().map(|vm| vm.owner).collect();
    assert_eq!(marked, owners.clone().into(), "VMs carry the UIDs of their namespaces");
    let alive: BTreeSet<String> = &first.world.scene.now().names() | &second.world.scene.now().names();
    // Each has seen the VM of the other once, so that it would delete it no later than a new orphan.
    for pool in [&first, &second] {
        until_measured(pool, "mcm_foreign_vms").await;
    }
    for (number, owner) in (1..).zip(&owners) {
        cloud.create_for(&format!("orphan-{number}"), CLUSTER, owner).await;
    }
    // VMs of a third namespace of this cluster, whose process may not read its UID, and of a version without markers.
    cloud.create_for("third", CLUSTER, "capi-pools").await;
    cloud.create("unmarked", CLUSTER).await;
    for number in 1..=2 {
        until_gone(&*cloud, &format!("orphan-{number}")).await;
    }
    for pool in [&first, &second] {
        until_told(pool, "OrphanKept").await;
        assert!(pool.world.scene.now().settled(1, "small"), "its machine lost nothing");
        // The VM is deleted before its deletion is counted.
        until_measured(pool, DELETED).await;
        assert_eq!(pool.measured(DELETED).await, 1, "each collected its own orphan");
    }
    let left: BTreeSet<String> = ["third", "unmarked"].map(str::to_owned).into();
    assert_eq!(names(&*cloud).await, &alive | &left);
    for pool in [&first, &second] {
        pool.world.remove_pool().await;
    }
    assert_eq!(names(&*cloud).await, left);
}

async fn unmarked_vms_stay(cloud: Arc<dyn Simulation>) {
    for name in ["theirs-1", "theirs-2"] {
        cloud.create(name, LONE).await;
    }
    let pool = Pool::prepare(&*cloud, LONE).await;
    pool.may_list_all_classes().await;
    // The other user of the tag runs an older version, or the Go program.
    let other = Pool::prepare(&*cloud, LONE).await;
    let pool = pool.run(&FLAGS).await;
    let owner = owner(&pool).await;
    cloud.create_for("ours", LONE, &owner).await;
    let text = until_told(&pool, "OrphanKept").await;
    let class = format!("MachineClass {}/small has the same tag", other.world.namespace);
    assert!(text.contains(&class) && text.contains("theirs-1") && !text.contains("ours"), "{text}");
    until_gone(&*cloud, "ours").await;
    assert_eq!(names(&*cloud).await, ["theirs-1", "theirs-2"].map(str::to_owned).into());
    // It has a separate tag now, so these VMs can only be ours.
    other.world.class_api().delete("small", &DeleteParams::default()).await.unwrap();
    for name in ["theirs-1", "theirs-2"] {
        until_gone(&*cloud, name).await;
    }
}

async fn names(cloud: &dyn Simulation) -> BTreeSet<String> {
    cloud.vms().await.into_iter().map(|vm| vm.machine).collect()
}

async fn until_gone(cloud: &dyn Simulation, name: &str) {
    let is_gone = async || (!names(cloud).await.contains(name)).then_some(());
    wait::until_within(PATIENCE, &format!("VM {name} to be collected"), is_gone).await;
}

/// Waits for an event with this reason; returns its text.
async fn until_told(pool: &Pool, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(pool.world.client.clone(), &pool.world.namespace);
    wait::until_within(PATIENCE, &format!("an event {reason}"), async || {
        let list = events.list(&ListParams::default()).await.unwrap();
        let told = list.into_iter().find(|event| event.reason.as_deref() == Some(reason));
        told.map(|event| event.message.unwrap_or_default())
    })
    .await
}

/// Counts VMs that the collector deleted.
const DELETED: &str = "mcm_orphan_vms_deleted_total";

/// Waits until a metric of the manager has any value but zero.
async fn until_measured(pool: &Pool, metric: &str) {
    wait::until_within(PATIENCE, &format!("metric {metric}"), async || (pool.measured(metric).await > 0).then_some(()))
        .await;
}

/// The marker of the VMs of a pool.
pub async fn owner(pool: &Pool) -> String {
    let namespaces: Api<Namespace> = Api::all(pool.world.client.clone());
    namespaces.get(&pool.world.namespace).await.unwrap().uid().unwrap()
}

impl Pool {
    /// The sum of a metric over all classes.
    pub async fn measured(&self, metric: &str) -> u64 {
        let (_, text) = self.manager.get("/metrics").await;
        let values = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}
