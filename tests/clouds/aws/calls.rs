//! How often machines call EC2 in their life.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    aws::Ec2,
    pool::{Pool, machines_or},
    simulation::Simulation,
};

/// In the normal run. `CLOUD_MACHINES` sets another number, and `make count-calls` runs 500.
const MACHINES: usize = 20;
/// Calls for one machine only, in its whole life: RunInstances, ModifyNetworkInterfaceAttribute, TerminateInstances.
const MOST_CALLS: usize = 4;
/// Look-ups of each machine in addition to the shared ones.
const MOST_LOOK_UPS: usize = 3;
/// Calls of the Go machine controller with Gardener's driver for one machine, by its code. Of the look-ups there are at
/// least two before and after the creation, and one each in the initialization, for the status and in the deletion.
const GARDENERS: [(&str, usize); 5] = [
    ("RunInstances", 1),
    ("ModifyNetworkInterfaceAttribute", 1),
    ("TerminateInstances", 1),
    ("DescribeImages", 1),
    ("DescribeInstances", 5),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_costs_few_calls_of_ec2_from_its_creation_to_its_end() {
    let machines = machines_or(MACHINES);
    let ec2 = Arc::new(Ec2::start().await);
    let pool = Pool::start(Arc::<Ec2>::clone(&ec2), &["--concurrent-syncs=50"]).await;
    pool.world.scale(machines.try_into().unwrap()).await;
    pool.until_settled(machines).await;
    let created = ec2.proxy.all_calls();
    pool.world.scale(0).await;
    pool.until_empty(machines).await;

    let calls = ec2.proxy.all_calls();
    print!("{}", table(machines, &created, &calls));
    assert_eq!((ec2.vms().await.len(), ec2.created().await), (0, machines as u64));
    let shared = calls["DescribeInstances"];
    let own: usize = calls.values().sum::<usize>() - shared;
    assert_eq!(calls["DescribeImages"], 1, "an image is read once for all machines");
    assert!(own <= MOST_CALLS * machines, "{own} calls for {machines} machines: {calls:?}");
    assert!(shared <= MOST_LOOK_UPS * machines, "{shared} look-ups for {machines} machines");
}

/// Calls until all machines were created, until all were deleted, for each machine, and next to Gardener's.
fn table(machines: usize, created: &BTreeMap<String, usize>, calls: &BTreeMap<String, usize>) -> String {
    let row = |action: &str| {
        let (first, all) =
            (created.get(action).copied().unwrap_or_default(), calls.get(action).copied().unwrap_or_default());
        let gardeners = GARDENERS.iter().find(|(name, _)| *name == action).map_or(0, |(_, count)| *count);
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        let each = all as f64 / machines as f64;
        format!("| {action:32} | {first:7} | {all:7} | {each:8.2} | {gardeners:10} |\n")
    };
    let known = GARDENERS.iter().map(|(name, _)| *name);
    let others = calls.keys().map(String::as_str).filter(|name| !GARDENERS.iter().any(|(known, _)| known == name));
    let rows: String = known.chain(others).map(row).collect();
    let head = format!("| {:32} | created | deleted | for each | Gardener's |\n", format!("EC2, {machines} machines"));
    format!("{head}|{}|---------|---------|----------|------------|\n{rows}", "-".repeat(34))
}
