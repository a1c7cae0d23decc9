//! etcd does not answer for a while, several times.

use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    run::{Bound, Run, number},
    stage::{Kept, Stage},
    support::control_plane::ControlPlane,
};

/// While a pool is created, rolled and deleted. Requests hang, and many of them succeed later although their clients
/// timed out.
#[tokio::test]
async fn nothing_is_leaked_or_doubled_while_etcd_hangs() {
    let run = Run::start("etcd_paused");
    let machines = run.count("machines", 50, 12);
    let pauses = run.count("pauses", 2, 1);
    let pause = run.seconds("pause", 30.0, 10.0);
    run.say("starts a control plane of its own");
    let control = ControlPlane::apart().await.unwrap().install().await.unwrap();
    let stage = Stage::set(run, &control, &control, &[]).await;
    let manager = Kept::new(stage.world.launch_run(&[]).ready().await);
    let strategy = json!({"rollingUpdate": {"maxSurge": "20%", "maxUnavailable": "20%"}});
    stage.classes(json!({"providerSpec": {"createLatency": "1s", "bootLatency": "1s", "deleteLatency": "1s"}})).await;
    let etcd = control.part("etcd");
    for step in ["creation", "rollout", "deletion"] {
        let start = Instant::now();
        match step {
            "creation" => stage.deployment("pool", machines, json!({"spec": {"strategy": strategy}})).await,
            "rollout" => stage.world.roll("large").await,
            _ => drop(stage.world.deployments().delete("pool", &DeleteParams::background()).await.unwrap()),
        }
        for _ in 0..pauses {
            // Not a wait for a state: the moment shall be any.
            sleep(Duration::from_millis(700)).await;
            stage.run.say(format!("{step}: etcd hangs for {pause:?}"));
            let paused = etcd.pause();
            sleep(pause).await;
            drop(paused);
        }
        match step {
            "creation" => drop(stage.settled(machines, "small").await),
            "rollout" => drop(stage.settled(machines, "large").await),
            _ => drop(stage.until("all machines to be gone", |scene| scene.machines.is_empty()).await),
        }
        stage.run.measured(format!("{step}, pauses included"), start.elapsed().as_secs_f64(), "s");
    }
    let (manager, ended) = manager.end();
    stage.run.measured("times that the manager lost its lease", number(ended), "");
    let alive = stage.world.cloud.count("/alive").await;
    stage.run.check("VMs left", alive as f64, "", Bound::Exactly(0.0));
    stage.close(Some(2 * machines), &[&manager]).await;
}
