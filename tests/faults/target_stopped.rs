//! The API server of the target cluster is away for minutes.

use std::time::{Duration, Instant};

use mcm::api::machine::MachinePhase;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    meter,
    run::{Bound, Run},
    stage::Stage,
    support::control_plane::ControlPlane,
};

const FROZEN: &str = "mcm_machine_controller_frozen";
/// Time until the metric shows it: a probe per minute and half a minute until its timeout by default, but watches are
/// faster.
const TOLD_WITHIN: Duration = Duration::from_secs(100);

/// Most machines run, some boot. The server is killed, and in a second round it hangs. The health timeout is shorter than
/// the outage, so a program that relies on the clock alone would replace machines.
#[tokio::test]
async fn nothing_is_deleted_while_the_target_is_away() {
    let run = Run::start("target_stopped");
    let machines = run.count("machines", 50, 12);
    let outage = run.seconds("outage", 300.0, 60.0);
    run.say("starts a target cluster of its own");
    let target = ControlPlane::apart().await.unwrap();
    let mut stage = Stage::set(run, ControlPlane::shared().await, &target, &[]).await;
    // A new server refuses everything until it has read the roles.
    stage.world.may_be_refused = true;
    let mut flags = vec!["--machine-creation-timeout=30s", "--machine-health-timeout=20s"];
    if outage < TOLD_WITHIN {
        // Otherwise it is over before the first probe reports it.
        let probes =
            ["--machine-safety-apiserver-statuscheck-period=5s", "--machine-safety-apiserver-statuscheck-timeout=5s"];
        flags.extend(probes);
    }
    let manager = stage.world.run(&flags).await;
    let mut count = machines - machines / 5;
    stage.pool(count, json!({})).await;
    stage.settled(count, "small").await;
    stage.classes(json!({"providerSpec": {"bootLatency": "5s"}})).await;

    let mut server = target.part("kube-apiserver");
    for round in ["killed", "hanging"] {
        count += machines / 10;
        stage.scale(count).await;
        let vms = u64::try_from(count).unwrap();
        crate::support::wait::until("the VMs", async || (stage.world.cloud.count("/alive").await == vms).then_some(()))
            .await;
        stage.world.scene.always("every machine is kept", move |scene| {
            scene.live().count() == count && scene.count(MachinePhase::Failed) == 0
        });
        stage.run.say(format!("the target API server is {round} for {outage:?}"));
        let began = Instant::now();
        let paused = match round {
            "killed" => {
                server.kill().await;
                None
            }
            _ => Some(server.pause()),
        };
        let mut told = None;
        while began.elapsed() < outage {
            if told.is_none() && meter::metric(&manager, FROZEN, "").await >= 1.0 {
                told = Some(began.elapsed());
            }
            sleep(Duration::from_millis(500)).await;
        }
        let limit = TOLD_WITHIN.min(outage).as_secs_f64();
        let told = told.map_or(f64::INFINITY, |told| told.as_secs_f64());
        stage.run.check(format!("{round}: until the metric told"), told, "s", Bound::AtMost(limit));
        match paused {
            Some(paused) => drop(paused),
            None => server.start().await,
        }
        let back = Instant::now();
        stage.settled(count, "small").await;
        crate::support::wait::until_within(Duration::from_secs(120), "the metric to tell of the end", async || {
            (meter::metric(&manager, FROZEN, "").await == 0.0).then_some(())
        })
        .await;
        stage.run.measured(format!("{round}: recovery"), back.elapsed().as_secs_f64(), "s");
        stage.world.scene.forget_rules();
    }
    stage.close(Some(count), &[&manager]).await;
}
