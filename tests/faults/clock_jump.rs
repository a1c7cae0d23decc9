//! The clock of the machine jumps, as it does when a suspended host wakes up or NTP corrects it.

use mcm::api::machine::MachinePhase;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    meter,
    run::Run,
    stage::Stage,
    support::{clock::ProcessClock, control_plane::ControlPlane},
};

/// Only the clock of the manager jumps: an hour forth, and back. Its monotonic clock does not, as in reality. While
/// machines serve, and while some boot.
#[tokio::test]
async fn nothing_is_deleted_when_the_clock_jumps_an_hour() {
    let run = Run::start("clock_jump");
    let machines = run.count("machines", 20, 6);
    let jump = run.parameter("jump", 3600_i64, 3600);
    let settle = run.seconds("watched", 60.0, 20.0);
    let control = ControlPlane::shared().await;
    let mut stage = Stage::set(run, control, control, &[]).await;
    let clock = ProcessClock::at(stage.world.folder().join("clock"));
    stage.world.environment = clock.variables();
    let manager = stage.world.run(&[]).await;
    let mut count = machines;
    stage.pool(count, json!({})).await;
    stage.settled(count, "small").await;
    stage.classes(json!({"providerSpec": {"bootLatency": "10s"}})).await;

    for seconds in [jump, -jump] {
        count += 2;
        stage.scale(count).await;
        stage.until("VMs that boot", |scene| scene.count(MachinePhase::Pending) == 2).await;
        stage.world.scene.always("every machine is kept", move |scene| {
            scene.live().count() == count && scene.count(MachinePhase::Failed) == 0
        });
        // There, and back again. No machine is created in between: it would seem to be an hour old.
        for (offset, what) in [(seconds, "away from"), (0, "back to")] {
            stage.run.say(format!("the clock of the manager jumps {what} ours: {offset:+} s"));
            clock.set(offset);
            // Not a wait for a state: it is watched that nothing happens in a time.
            sleep(settle).await;
            meter::check_clock(&stage.run, &manager, offset).await;
            stage.settled(count, "small").await;
        }
        stage.world.scene.forget_rules();
    }
    stage.close(Some(count), &[&manager]).await;
}
