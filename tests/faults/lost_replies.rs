//! The cloud executes calls, and its responses are lost.

use serde_json::json;

use crate::{
    run::{Bound, Run, number},
    stage::Stage,
    support::control_plane::ControlPlane,
};

/// One in ten creations and deletions ends with an error although it worked.
#[tokio::test]
async fn no_vm_is_leaked_or_doubled_when_one_reply_in_ten_is_lost() {
    let run = Run::start("lost_replies");
    let machines = run.count("machines", 500, 40);
    let rate = run.parameter("rate", 0.1, 0.1);
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let manager = stage.world.run(&[]).await;
    let lost = |operation: &str| json!({"operation": operation, "lostReply": true, "rate": rate});
    stage.world.cloud.control(json!({"faults": [lost("create"), lost("delete")]})).await;

    stage.pool(machines, json!({})).await;
    let took = stage.settled(machines, "small").await;
    stage.run.measured("time to create", took.as_secs_f64(), "s");
    let losses = stage.world.cloud.count("/calls/create/failed/Unknown").await;
    stage.run.check("replies of creations lost", losses as f64, "", Bound::AtLeast(1.0));
    stage.recorder.judge(&stage.run, &stage.world, Some(machines)).await;

    stage.run.say("deletes all");
    stage.world.deployments().delete("pool", &kube::api::DeleteParams::background()).await.unwrap();
    let took = stage.until("all machines to be gone", |scene| scene.machines.is_empty()).await;
    stage.run.measured("time to delete", took.as_secs_f64(), "s");
    let alive = stage.world.cloud.count("/alive").await;
    stage.run.check("VMs left", alive as f64, "", Bound::Exactly(0.0));
    stage.run.measured(
        "calls per creation",
        stage.world.cloud.count("/calls/create/total").await as f64 / number(machines),
        "",
    );
    stage.close(Some(machines), &[&manager]).await;
}
