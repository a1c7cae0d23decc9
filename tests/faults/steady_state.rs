//! Nothing happens, and nothing is done.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::{
    meter,
    run::{Bound, Run},
    stage::{Stage, go_programs},
    support::{control_plane::ControlPlane, world::Manager},
};

/// Share of a core.
const MOST_CPU: f64 = 0.02;

const OF_SERVER: &str = "share of a core that the API server takes";
const OUR_COST: &str = "share of a core that we cost the API server";
/// As a share of the cost of the Go programs for the API server.
const MOST_OF_THEIRS: f64 = 0.1;
/// Share of a core: smaller ones are not measured.
const NOISE: f64 = 0.005;

/// The idle cost of a program.
struct Cost {
    /// Share of a core.
    own: f64,
    writes: f64,
    /// Share of a core that the API server takes, without heartbeats.
    server: f64,
}

/// The heartbeats are Leases, as kubelets write them. Each implementation has a separate control plane; the cost of its
/// API server after the programs have ended is not counted. That cost is compared without heartbeats, which cost far
/// more and vary from run to run; the writes that they cause are counted before. Without the Go programs, only ours are
/// measured.
#[tokio::test]
async fn nothing_is_written_and_hardly_any_cpu_is_used_when_nothing_happens() {
    let run = Run::start("steady_state");
    let machines = run.count("machines", 1000, 50);
    let time = run.seconds("time", 120.0, 20.0);
    let heartbeats = format!("--heartbeat-period={}s", run.count("heartbeat", 10, 2));
    let control = ControlPlane::apart().await.unwrap().install().await.unwrap();
    let stage = Stage::set(run, &control, &control, &[&heartbeats]).await;
    let manager = stage.world.run(&["--v=2"]).await;
    let ours = cost(&stage, &control, &[&manager], "ours", machines, time).await;
    stage.run.check("writes of ours", ours.writes, "", Bound::Exactly(0.0));
    stage.run.check("our share of a core", ours.own, "", Bound::AtMost(MOST_CPU));
    let reference = go_programs();
    stage.judge(Some(machines), &[&manager]).await;
    drop(manager);
    let caused = ours.server - server_alone(&stage, &control, "ours", time).await;
    let run = stage.end();
    drop(control);
    let Some(reference) = reference else {
        run.say("MCM_REFERENCE names no folder with the Go programs: they are not measured");
        run.measured(OUR_COST, caused, "");
        return run.finish();
    };
    let control = ControlPlane::apart().await.unwrap().install().await.unwrap();
    let mut stage = Stage::set(run, &control, &control, &[&heartbeats]).await;
    stage.world.environment = vec![("SIMULATED_CLOUD".to_owned(), stage.world.cloud.url.clone())];
    stage.world.may_be_refused = true;
    let go = |program: &str| {
        let flags = ["--leader-elect=false", "--v=0"];
        stage.world.launch_as(&reference.join(program), &[], &format!("go-{program}.log"), &flags)
    };
    let (sets, others) = (go("machine-controller-manager"), go("machine-controller"));
    let theirs = cost(&stage, &control, &[&sets, &others], "Go", machines, time).await;
    stage.run.measured("Go: writes", theirs.writes, "");
    stage.run.measured("Go: share of a core", theirs.own, "");
    // They may create a machine too many.
    stage.judge(None, &[]).await;
    drop((sets, others));
    let theirs = theirs.server - server_alone(&stage, &control, "Go", time).await;
    stage.run.measured("Go: share of a core that they cost the API server", theirs, "");
    let most = (theirs * MOST_OF_THEIRS).max(NOISE);
    stage.run.check(OUR_COST, caused, "", Bound::AtMost(most));
    stage.end().finish();
}

/// Creates machines, waits until all is quiet, and measures.
async fn cost(
    stage: &Stage,
    control: &ControlPlane,
    managers: &[&Manager],
    who: &str,
    machines: usize,
    time: Duration,
) -> Cost {
    stage.pool(machines, json!({})).await;
    let took = stage.settled(machines, "small").await;
    stage.run.measured(format!("{who}: {machines} machines created"), took.as_secs_f64(), "s");
    meter::until_quiet(&stage.run, &stage.world.client).await;
    let own = || managers.iter().map(|manager| meter::cpu_seconds(manager.program.id())).sum::<f64>();
    let before = (own(), meter::writes(&stage.world.client).await);
    let start = Instant::now();
    server_share(stage, control, format!("{who}: {OF_SERVER} with heartbeats"), time).await;
    let seconds = start.elapsed().as_secs_f64();
    let own = (own() - before.0) / seconds;
    let writes = meter::difference(&before.1, &meter::writes(&stage.world.client).await);
    stage.run.say(format!("{who}: writes {writes:?}"));
    stage.world.cloud.control(json!({"nodes": {"heartbeatPeriod": "0s"}})).await;
    meter::until_quiet(&stage.run, &stage.world.client).await;
    let server = server_share(stage, control, format!("{who}: {OF_SERVER} without heartbeats"), time).await;
    let writes = writes.iter().filter(|(name, _)| !meter::is_of_kubelets(name)).map(|(_, count)| count).sum();
    Cost { own, writes, server }
}

/// Without heartbeats and without any program.
async fn server_alone(stage: &Stage, control: &ControlPlane, who: &str, time: Duration) -> f64 {
    meter::until_quiet(&stage.run, &stage.world.client).await;
    server_share(stage, control, format!("{who}: {OF_SERVER} alone"), time).await
}

/// Measures it, and keeps it as a figure.
async fn server_share(stage: &Stage, control: &ControlPlane, figure: String, time: Duration) -> f64 {
    stage.run.say(format!("measures for {time:?}: {figure}"));
    let server = control.part("kube-apiserver").id();
    let (start, before) = (Instant::now(), meter::cpu_seconds(server));
    sleep(time).await;
    let share = (meter::cpu_seconds(server) - before) / start.elapsed().as_secs_f64();
    stage.run.measured(figure, share, "");
    share
}
