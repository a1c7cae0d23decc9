//! VMs without a Machine are deleted, and no others.

use std::{collections::BTreeSet, time::Duration};

use mcm::api::machine::MachinePhase;
use rand::{Rng, seq::IndexedRandom};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    run::{Bound, Run, number},
    stage::Stage,
    support::control_plane::ControlPlane,
};

const PAUSE_MILLIS: std::ops::Range<u64> = 20..400;

/// They are created by hand during the creation of machines: some with other names, some with the name of a Machine
/// whose VM is being created, boots, serves or is being deleted. An orphan is deleted after ten minutes, and five of
/// them in a period, which is a minute here.
#[tokio::test]
async fn every_vm_without_a_machine_is_deleted_and_no_other() {
    let run = Run::start("orphans");
    let machines = run.count("machines", 50, 10);
    let orphans = run.count("orphans", 40, 6);
    let mut dice = run.dice();
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let manager =
        stage.world.run(&["--machine-safety-orphan-vms-period=1m", "--machine-safety-orphan-vms-sole-user"]).await;
    let slow = json!({"providerSpec": {"createLatency": "2s", "bootLatency": "2s", "deleteLatency": "2s"}});
    stage.classes(slow).await;
    stage.deployment("pool", 1, json!({})).await;
    stage.settled(1, "small").await;

    let mut by_hand = BTreeSet::new();
    let mut moments = std::collections::BTreeMap::<String, usize>::new();
    for at in 0..orphans {
        // The pool grows and shrinks meanwhile, so that there are machines in every state.
        if at % 4 == 0 {
            stage.scale(dice.random_range(machines / 2..=machines)).await;
        }
        // Not a wait for a state: the moment shall be any.
        sleep(Duration::from_millis(dice.random_range(PAUSE_MILLIS))).await;
        let vms = stage.world.cloud.vms().await;
        let others: Vec<_> = vms.iter().filter(|vm| !by_hand.contains(vm["id"].as_str().unwrap_or_default())).collect();
        let (name, moment) = match others.choose(&mut dice).filter(|_| at % 3 != 0) {
            Some(vm) => (vm["machineName"].as_str().unwrap().to_owned(), vm["state"].as_str().unwrap().to_owned()),
            None => (format!("by-hand-{at}"), "no machine".to_owned()),
        };
        let vm = stage.world.cloud.make(&stage.world.namespace, &name).await;
        by_hand.insert(vm["id"].as_str().unwrap().to_owned());
        *moments.entry(moment).or_default() += 1;
    }
    stage.run.say(format!("orphans by the state of the VM whose name they have: {moments:?}"));
    stage.scale(machines).await;
    stage.settled(machines, "small").await;
    stage.run.say("waits until they are deleted: ten minutes for the first ones");
    let limit = Duration::from_secs(15 * 60) + Duration::from_secs(60) * u32::try_from(orphans / 5 + 2).unwrap();
    let start = stage.run.elapsed();
    loop {
        let vms = stage.world.cloud.vms().await;
        let left = vms.iter().filter(|vm| by_hand.contains(vm["id"].as_str().unwrap_or_default())).count();
        let wait = stage.run.elapsed().checked_sub(start).unwrap_or_default();
        if left == 0 || wait > limit {
            stage.run.check("orphans left", number(left), "", Bound::Exactly(0.0));
            stage.run.measured("time until all were deleted", wait.as_secs_f64(), "s");
            break;
        }
        stage.run.say(format!("{left} orphans left"));
        sleep(Duration::from_secs(15)).await;
    }
    let failed = stage.world.scene.now().count(MachinePhase::Failed);
    stage.run.exactly("machines failed", failed, 0);
    stage.settled(machines, "small").await;
    stage.close(None, &[&manager]).await;
}
