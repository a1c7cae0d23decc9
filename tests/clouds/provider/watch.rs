//! VMs that end, stop, are preempted or change their addresses show in their MCMMachines, and no other VM is created.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Shown, World};
use crate::{aws::Ec2, gcp, simulation::Simulation, support::wait};

const TEAM: &str = "team";
/// The period of the checks, in place of the usual five minutes.
const PERIOD: Duration = Duration::from_secs(20);
const PERIOD_FLAG: &str = "--vm-check-period=20s";
/// A check follows the last one within 1.2 periods. It then waits 3 s for others, and a busy machine takes its time. Far below
/// the usual period.
const LATEST: Duration = Duration::from_secs(200);
/// Periods in which lists are counted.
const PERIODS: u32 = 3;
/// Checks that are due at the same time gather for 3 s and share a list. A busy machine spreads them over the period, which has room
/// for 7 gatherings. Without gatherings each machine has a list.
const LISTS_OF_A_PERIOD: u64 = 8;
/// Machines in the account.
const MACHINES: usize = 500;
const PATIENCE: Duration = Duration::from_secs(480);

/// A namespace with a class of a cloud and these machines, all of which are ready.
async fn team(cloud: &dyn Simulation, machines: usize) -> World {
    let mut world = World::new("watch").await;
    world.start(&[PERIOD_FLAG], &[]).await;
    world.tenant(TEAM).await;
    world.credentials(TEAM, "cloud", cloud.secret()).await;
    let secret = json!({ "credentialsSecretRef": { "name": "cloud", "namespace": TEAM } });
    world.class(TEAM, "small", cloud, secret).await;
    world.machines(TEAM, machines, "small").await;
    wait::until_within(PATIENCE, "all machines to be ready", async || {
        let all = world.shown(TEAM).await;
        (all.len() == machines && all.iter().all(Shown::is_ready)).then_some(())
    })
    .await;
    world
}

/// How long the MCMMachines take until all show what happened to their VMs.
async fn seen_after(world: &World, machines: &[(&str, &str)]) -> Duration {
    let begun = Instant::now();
    wait::until_within(PATIENCE, "the VMs to be looked at", async || {
        for (name, reason) in machines {
            world.find(TEAM, name).await.lacks(reason).then_some(())?;
        }
        Some(())
    })
    .await;
    begun.elapsed()
}

/// Waits until m-1 shows that its VM runs again. The check follows the one that showed its end: the first one after a creation may be
/// early with any period.
async fn runs_again(world: &World, seen: Instant) {
    wait::until_within(PATIENCE, "the VM that runs again", async || {
        world.find(TEAM, "m-1").await.is_ready().then_some(())
    })
    .await;
    assert!(seen.elapsed() < LATEST, "{:?}", seen.elapsed());
}

/// The events of both kinds say so.
async fn is_said(world: &World, machines: &[(&str, &str)]) {
    for (name, reason) in machines {
        wait::until(&format!("events about {name}"), async || {
            let shown = world.events(TEAM, "MCMMachine", name).await;
            let native = world.events(TEAM, "Machine", name).await;
            (shown.iter().any(|one| one == reason) && native.iter().any(|one| one == "Unhealthy")).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_vms_of_an_account_are_checked_with_few_lists_and_those_that_changed_show_it() {
    let cloud = Arc::new(gcp::World::new().await);
    let world = team(&*cloud, MACHINES).await;
    let lists = || cloud.gce.lock().sent.iter().filter(|sent| sent.call == "instances.list").count();
    let change = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut gce = cloud.gce.lock();
        let found = gce.vms.iter_mut().find(|((_, other), _)| other == name);
        change(&mut found.unwrap().1.resource);
    };

    // From the middle between two checks.
    let before = lists();
    wait::until_within(PATIENCE, "a check", async || (lists() > before).then_some(())).await;
    let (first, begun) = (lists(), Instant::now());
    change("m-1", &|vm| vm["status"] = json!("STOPPED"));
    // Google stops a VM that it preempts.
    change("m-2", &|vm| vm["status"] = json!("TERMINATED"));
    cloud.end("gce:///my-project/europe-west1-b/m-3").await;
    let address = json!([{ "name": "External NAT", "type": "ONE_TO_ONE_NAT", "natIP": "203.0.113.7" }]);
    change("m-4", &|vm| vm["networkInterfaces"][0]["accessConfigs"] = address.clone());

    let changed = [("m-1", "VMNotRunning"), ("m-2", "VMNotRunning"), ("m-3", "VMNotFound")];
    let latency = seen_after(&world, &changed).await;
    let seen = Instant::now();
    assert!(latency < LATEST, "{latency:?}");
    wait::until("the new address", async || {
        let addresses = world.find(TEAM, "m-4").await.0["status"]["addresses"].to_string();
        addresses.contains("203.0.113.7").then_some(())
    })
    .await;
    is_said(&world, &changed).await;

    wait::until_within(PATIENCE, "later checks", async || (begun.elapsed() >= PERIODS * PERIOD).then_some(())).await;
    let (sent, time) = (lists() - first, begun.elapsed());
    println!("{MACHINES} machines: {sent} lists in {time:?}; changes seen after {latency:?}");
    // One more was under way at the beginning.
    let checks = time.as_secs().div_ceil(PERIOD.as_secs()) + 1;
    assert!(u64::try_from(sent).unwrap() <= checks * LISTS_OF_A_PERIOD, "{sent} lists in {time:?}");
    assert_eq!((cloud.created().await, cloud.count()), (MACHINES as u64, MACHINES - 1), "no other VM is created");
    let away: Vec<String> =
        world.shown(TEAM).await.iter().filter(|one| !one.is_ready()).map(|one| one.name().to_owned()).collect();
    assert_eq!(away, ["m-1", "m-2", "m-3"]);
    assert_eq!(cloud.violations(), [""; 0]);

    change("m-1", &|vm| vm["status"] = json!("RUNNING"));
    runs_again(&world, seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_and_a_terminated_vm_of_ec2_show_in_their_mcm_machines() {
    let ec2 = Ec2::start().await;
    let world = team(&ec2, 4).await;
    let vms = ec2.vms().await;
    let id = |name: &str| {
        let vm = vms.iter().find(|vm| vm.machine == name).unwrap();
        vm.provider_id.rsplit('/').next().unwrap().to_owned()
    };
    let call = async |action: &str, name: &str| {
        let id = id(name);
        ec2.proxy.ask(&[("Action", action), ("Version", "2016-11-15"), ("InstanceId.1", &id)]).await;
    };
    call("StopInstances", "m-1").await;
    call("TerminateInstances", "m-2").await;
    let changed = [("m-1", "VMNotRunning"), ("m-2", "VMNotFound")];
    let latency = seen_after(&world, &changed).await;
    let seen = Instant::now();
    println!("4 machines: changes seen after {latency:?}");
    assert!(latency < LATEST, "{latency:?}");
    let [_, _, text] = world.find(TEAM, "m-2").await.condition("Ready").map(|found| found.map(str::to_owned)).unwrap();
    assert!(text.contains("does not exist any more: it is terminated"), "{text}");
    is_said(&world, &changed).await;
    let (rounds, before) = (2, ec2.proxy.calls("DescribeInstances"));
    wait::until_within(PATIENCE, "later checks", async || {
        (ec2.proxy.calls("DescribeInstances") >= before + rounds).then_some(())
    })
    .await;
    assert_eq!((ec2.proxy.calls("RunInstances"), ec2.vms().await.len()), (4, 3), "no other VM is created");
    call("StartInstances", "m-1").await;
    runs_again(&world, seen).await;
}
