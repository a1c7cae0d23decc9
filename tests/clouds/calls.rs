//! How often machines call EC2 in their life.

use std::sync::Arc;

use crate::{
    ec2::Ec2,
    pool::{Pool, machines_or},
    simulation::Simulation,
};

/// In the normal run. `CLOUD_MACHINES` sets another number.
const MACHINES: usize = 20;
/// Calls for one machine only, in its whole life: RunInstances, ModifyNetworkInterfaceAttribute, TerminateInstances.
const MOST_CALLS: usize = 4;
/// What each machine adds to the look-ups that machines share.
const MOST_LOOK_UPS: usize = 3;

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
    println!("calls of EC2 for {machines} machines, after their creation and after their deletion:");
    for (action, count) in &calls {
        println!("  {action:32} {:6} {count:6}", created.get(action).copied().unwrap_or_default());
    }
    assert_eq!((ec2.vms().await.len(), ec2.created().await), (0, machines as u64));
    let shared = calls["DescribeInstances"];
    let own: usize = calls.values().sum::<usize>() - shared;
    // The image is read once, by each creation that begins before the first answer: far less than a call for each machine.
    assert!(own <= MOST_CALLS * machines + 1, "{own} calls for {machines} machines: {calls:?}");
    assert!(shared <= MOST_LOOK_UPS * machines, "{shared} look-ups for {machines} machines");
}
