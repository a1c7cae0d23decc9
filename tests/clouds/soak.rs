//! Two namespaces with one cluster tag, for long: machines come and go in both, orphans are made by hand, and both collectors
//! list as often as they can. `make soak-orphans` runs it; without `SOAK_MINUTES` it does nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, iter,
    sync::Arc,
    time::{Duration, Instant},
};

use kube::{ResourceExt, api::ListParams};
use mcm::api::machine::Machine;

use crate::{
    orphans::{FLAGS, owner},
    pool::{CLUSTER, Pool},
    simulation::Simulation,
    stand_ins,
    support::wait,
};

/// Numbers of machines, one after the other, and for how long each.
const SIZES: [u32; 6] = [2, 5, 1, 4, 0, 3];
const SIZE_LASTS: Duration = Duration::from_secs(45);
/// Between two orphans of a namespace: a collector deletes five in a period of a minute.
const ORPHAN_EVERY: Duration = Duration::from_secs(25);
/// Period of the checks.
const LOOK: Duration = Duration::from_secs(2);
/// From the creation of an orphan until it is deleted.
const PATIENCE: Duration = Duration::from_secs(300);
/// VMs of a version without markers. No collector may delete them, because others use the tag.
const UNMARKED: [&str; 2] = ["unmarked-1", "unmarked-2"];

fn time() -> Option<Duration> {
    let minutes = env::var("SOAK_MINUTES").ok()?.parse::<u64>().unwrap();
    Some(Duration::from_secs(60 * minutes))
}

/// The observations.
#[derive(Default)]
struct Figures {
    /// Machines that had a VM, by UID.
    machines: BTreeSet<String>,
    /// The creation times of the orphans that still exist.
    orphans: BTreeMap<String, Instant>,
    /// The delay of each deletion.
    collected: Vec<Duration>,
    looks: usize,
}

#[cfg(feature = "aws")]
#[tokio::test(flavor = "multi_thread")]
async fn collectors_of_two_namespaces_with_one_tag_delete_every_orphan_and_nothing_else_on_moto() {
    collectors_of_two_namespaces("moto", stand_ins::start("aws").await).await;
}

#[cfg(feature = "gcp")]
#[tokio::test(flavor = "multi_thread")]
async fn collectors_of_two_namespaces_with_one_tag_delete_every_orphan_and_nothing_else_in_the_fake() {
    collectors_of_two_namespaces("the fake of Compute Engine", stand_ins::start("gcp").await).await;
}

/// Does nothing without `SOAK_MINUTES`.
async fn collectors_of_two_namespaces(name: &str, cloud: Arc<dyn Simulation>) {
    let Some(time) = time() else { return };
    for unmarked in UNMARKED {
        cloud.create(unmarked, CLUSTER).await;
    }
    let pools = [Pool::prepare(&*cloud, CLUSTER).await, Pool::prepare(&*cloud, CLUSTER).await];
    for pool in &pools {
        // Each lists the class of the other, also while the other has no VM.
        pool.may_list_all_classes().await;
    }
    let [first, second] = pools;
    let pools = [first.run(&FLAGS).await.with_nodes(Arc::clone(&cloud)), second.run(&FLAGS).await];
    let owners = [owner(&pools[0]).await, owner(&pools[1]).await];
    let (begun, mut figures) = (Instant::now(), Figures::default());
    let (mut size, mut next_size, mut next_orphan) = (0, begun, begun);
    while begun.elapsed() < time {
        if Instant::now() >= next_size {
            for (offset, pool) in pools.iter().enumerate() {
                pool.world.scale(SIZES[(size + 3 * offset) % SIZES.len()]).await;
            }
            size += 1;
            next_size += SIZE_LASTS;
        }
        if Instant::now() >= next_orphan {
            for (number, owner) in iter::zip(1.., &owners) {
                let orphan = format!("orphan-{number}-{}", begun.elapsed().as_secs());
                cloud.create_for(&orphan, CLUSTER, owner).await;
                figures.orphans.insert(orphan, Instant::now());
            }
            next_orphan += ORPHAN_EVERY;
        }
        figures.look(&*cloud, &pools).await;
        tokio::time::sleep(LOOK).await;
    }
    wait::until_within(PATIENCE, "all orphans to be collected", async || {
        figures.look(&*cloud, &pools).await;
        figures.orphans.is_empty().then_some(())
    })
    .await;
    figures.print(name, begun.elapsed(), cloud.created().await);
    for pool in &pools {
        pool.world.remove_pool().await;
    }
    let left: BTreeSet<String> = cloud.vms().await.into_iter().map(|vm| vm.machine).collect();
    assert_eq!(left, UNMARKED.map(str::to_owned).into());
}

impl Figures {
    /// The VM of each Machine exists until the Machine is deleted.
    async fn look(&mut self, cloud: &dyn Simulation, pools: &[Pool; 2]) {
        let before = machines(pools).await;
        let vms = cloud.vms().await;
        // A VM is deleted only after its Machine has a deletion timestamp, which this read shows.
        let after = machines(pools).await;
        let ids: BTreeSet<&str> = vms.iter().map(|vm| vm.provider_id.as_str()).collect();
        for (uid, id) in before {
            let is_kept = after.get(&uid) == Some(&id);
            assert!(!is_kept || ids.contains(id.as_str()), "VM {id} is gone, and its machine is not");
            self.machines.insert(uid);
        }
        let names: BTreeSet<&str> = vms.iter().map(|vm| vm.machine.as_str()).collect();
        for unmarked in UNMARKED {
            assert!(names.contains(unmarked), "VM {unmarked} is gone");
        }
        let gone: Vec<String> = self.orphans.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
        for name in gone {
            self.collected.extend(self.orphans.remove(&name).map(|made| made.elapsed()));
        }
        let late = self.orphans.iter().find(|(_, made)| made.elapsed() > PATIENCE);
        assert!(late.is_none(), "orphan {late:?} is not collected");
        self.looks += 1;
    }

    fn print(&mut self, name: &str, took: Duration, created: u64) {
        self.collected.sort_unstable();
        let at = |percent: usize| {
            let index = (self.collected.len().saturating_sub(1)) * percent / 100;
            self.collected.get(index).copied().unwrap_or_default().as_secs()
        };
        println!(
            "{name}: {} min, {created} VMs created, {} machines had one, none lost it in {} looks; {} orphans collected \
             after {} s (median) and {} s (longest); {} unmarked VMs untouched",
            took.as_secs() / 60,
            self.machines.len(),
            self.looks,
            self.collected.len(),
            at(50),
            at(100),
            UNMARKED.len()
        );
    }
}

/// UID and provider ID of all Machines of both namespaces that have a VM and are not deleted, read live.
async fn machines(pools: &[Pool; 2]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for pool in pools {
        let list = pool.world.machines().list(&ListParams::default()).await.unwrap();
        let is_alive =
            |machine: &Machine| machine.metadata.deletion_timestamp.is_none() && !machine.spec.provider_id.is_empty();
        let entry = |machine: Machine| (machine.uid().unwrap(), machine.spec.provider_id);
        found.extend(list.into_iter().filter(is_alive).map(entry));
    }
    found
}
