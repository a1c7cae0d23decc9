//! The API server of the control cluster is killed and started again, over and over.

use std::time::Duration;

use kube::api::DeleteParams;
use rand::{Rng, rngs::StdRng};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    run::{Bound, Run, number},
    stage::{Kept, Stage},
    support::{control_plane::ControlPlane, parts::Part},
};

/// How long it runs between two kills.
const LIFE_MILLIS: std::ops::Range<u64> = 300..3000;

/// While machines are created, and while they are deleted. The manager has a Lease and may end because it cannot renew it;
/// then it is started again, as a kubelet would.
#[tokio::test]
async fn nothing_is_leaked_or_doubled_when_the_control_api_server_restarts() {
    let run = Run::start("control_restarts");
    let machines = run.count("machines", 50, 12);
    let restarts = run.count("restarts", 20, 4);
    let mut dice = run.dice();
    run.say("starts a control plane of its own");
    let control = ControlPlane::apart().await.unwrap().install().await.unwrap();
    let mut stage = Stage::set(run, &control, ControlPlane::shared().await, &[]).await;
    // A new server refuses everything until it has read the roles.
    stage.world.may_be_refused = true;
    let manager = Kept::new(stage.world.launch_run(&[]).ready().await);
    let slow = json!({"providerSpec": {"createLatency": "3s", "bootLatency": "3s", "deleteLatency": "3s"}});
    stage.classes(slow).await;
    let mut server = control.part("kube-apiserver");

    // A few at a time, so that there is work all the time.
    let half = restarts / 2;
    for at in 1..=half {
        stage.deployment("pool", machines * at / half, json!({})).await;
        restart(&stage, &mut server, &mut dice, at).await;
    }
    stage.settled(machines, "small").await;
    stage.recorder.judge(&stage.run, &stage.world, Some(machines)).await;
    for at in half + 1..=restarts {
        stage.scale(machines * (restarts - at) / (restarts - half)).await;
        restart(&stage, &mut server, &mut dice, at).await;
    }
    stage.world.deployments().delete("pool", &DeleteParams::background()).await.unwrap();
    stage.until("all machines to be gone", |scene| scene.machines.is_empty() && scene.deployments.is_empty()).await;
    let alive = stage.world.cloud.count("/alive").await;
    stage.run.check("VMs left", alive as f64, "", Bound::Exactly(0.0));
    let (manager, ended) = manager.end();
    stage.run.measured("times that the manager lost its lease", number(ended), "");
    stage.close(Some(machines), &[&manager]).await;
}

/// Kills the API server after a while and starts it again.
async fn restart(stage: &Stage, server: &mut Part, dice: &mut StdRng, at: usize) {
    // Not a wait for a state: the moment shall be any.
    sleep(Duration::from_millis(dice.random_range(LIFE_MILLIS))).await;
    server.kill().await;
    server.start().await;
    let vms = stage.world.cloud.vms().await.len();
    let machines = stage.world.scene.now().machines.len();
    stage.run.say(format!("restart {at}: {machines} machines, {vms} VMs"));
}
