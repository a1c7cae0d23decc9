//! A drain of many pods with volumes takes a fraction of the time of sequential evictions.

use std::time::Instant;

use kube::api::DeleteParams;
use serde_json::json;

use crate::{
    run::{Bound, Run, number},
    stage::Stage,
    support::{
        attach_detach::{AttachDetach, Latency},
        control_plane::ControlPlane,
    },
};

/// As many volumes as one drain moves at a time, and one more that has to wait.
const MOST_AT_ONCE: usize = 5;
/// Share of the strictly serial time that is allowed.
const SHARE: f64 = 0.3;

/// Each volume takes two seconds to detach and two to attach elsewhere. One after the other is measured with one volume.
#[tokio::test]
async fn a_drain_moves_volumes_side_by_side() {
    let run = Run::start("volumes");
    let volumes = run.count("volumes", 40, 10);
    let stuck = run.count("stuck", 1, 1);
    let latency = Latency {
        termination: run.seconds("termination", 1.0, 0.5),
        detach: run.seconds("detach", 2.0, 0.5),
        attach: run.seconds("attach", 2.0, 0.5),
    };
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let manager = stage.world.run(&["--machine-pv-detach-timeout=20s", "--machine-pv-reattach-timeout=20s"]).await;
    stage.pool(4, json!({})).await;
    stage.settled(4, "small").await;
    let nodes: Vec<String> = stage.world.scene.now().names().into_iter().collect();
    let [one, many, held, other] = &nodes[..] else { panic!("{nodes:?}") };

    let (alone, _) = drain(&stage, one, other, "alone", 1, 0, latency).await;
    stage.run.measured("one volume", alone, "s");
    let (all, most) = drain(&stage, many, other, "many", volumes, 0, latency).await;
    let serial = alone * number(volumes);
    stage.run.measured(format!("{volumes} volumes"), all, "s");
    stage.run.measured("one after the other", serial, "s");
    stage.run.check("share of it", all / serial, "", Bound::AtMost(SHARE));
    stage.run.check("most volumes on the move", number(most), "", Bound::AtMost(number(MOST_AT_ONCE)));
    // A stuck volume costs its time limit, and delays no other.
    let (stuck_took, _) = drain(&stage, held, other, "stuck", volumes / 2 + stuck, stuck, latency).await;
    stage.run.measured(format!("{} volumes, {stuck} of them stuck for 20 s", volumes / 2 + stuck), stuck_took, "s");
    let limit = 20.0 + 5.0 + latency.termination.as_secs_f64() + serial * SHARE;
    stage.run.check("with a stuck volume", stuck_took, "s", Bound::AtMost(limit));
    stage.settled(4, "small").await;
    stage.close(Some(7), &[&manager]).await;
}

/// Seconds from the deletion of a machine until its volumes are attached elsewhere, and how many moved at a time.
async fn drain(
    stage: &Stage,
    node: &str,
    next_node: &str,
    prefix: &str,
    volumes: usize,
    stuck: usize,
    latency: Latency,
) -> (f64, usize) {
    stage.run.say(format!("drains {volumes} pods with volumes from {node}"));
    let names: Vec<String> = (0..volumes).map(|at| format!("{prefix}-{at}")).collect();
    AttachDetach::pods(&stage.world, &names, node).await;
    let controller = AttachDetach::start(&stage.world, latency, &names[..stuck], next_node);
    let start = Instant::now();
    stage.world.machines().delete(node, &DeleteParams::default()).await.unwrap();
    stage.until("the machine to be gone", |scene| !scene.machines.contains_key(node)).await;
    let took = start.elapsed().as_secs_f64();
    let moved = controller.moved();
    let arrived = moved.values().filter(|it| it.attached.is_some()).count();
    stage.run.exactly(format!("{prefix}: volumes attached elsewhere"), arrived, volumes - stuck);
    (took, controller.most_at_once())
}
