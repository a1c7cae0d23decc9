//! The Go programs carry changes out as `mcm plan` predicts.

use std::{cell::Cell, path::Path, time::Duration};

use futures::future::join_all;
use serde_json::json;

use crate::{
    miscounts::Miscounts,
    recorder::Recorder,
    run::{Run, number},
    stage::go_programs,
    support::{
        control_plane::ControlPlane,
        objects,
        plans::{Rng, any_change, compare_within},
        world::{Manager, World},
    },
};

/// The Go programs try a deletion again after three minutes if it begins while the machine is created, and each step of a
/// deletion after five seconds.
const LIMIT: Duration = Duration::from_secs(1200);

/// A pool with its own namespace, cloud and Go programs. Changes of several pools wait for the same time to pass.
struct Lane {
    number: u64,
    _managers: [Manager; 2],
    world: World,
    recorder: Recorder,
    miscounts: Miscounts,
}

impl Lane {
    async fn start(number: u64, folder: &Path, boot: Duration) -> Self {
        let control = ControlPlane::shared().await;
        let mut world = World::between(control, control, "go-plans", &[]).await;
        world.environment = vec![("SIMULATED_CLOUD".to_owned(), world.cloud.url.clone())];
        // Not all that the Go programs try is granted.
        world.may_be_refused = true;
        let (recorder, miscounts) = (Recorder::start(&world), Miscounts::of("pool", &world));
        let flags = ["--leader-elect=false"];
        let go = |program: &str| world.launch_as(&folder.join(program), &[], &format!("go-{program}.log"), &flags);
        let managers = ["machine-controller-manager", "machine-controller"].map(go);
        world.apply(objects::secret("pool")).await;
        for name in ["small", "large"] {
            let mut class = objects::class(name);
            class["providerSpec"]["bootLatency"] = format!("{}s", boot.as_secs()).into();
            world.apply(class).await;
        }
        world.apply(objects::deployment("pool", 3)).await;
        Self { number, world, recorder, miscounts, _managers: managers }
    }
}

/// A plan plays our controllers. The differences to the Go programs are printed; docs/compatibility.md explains them.
#[tokio::test]
async fn the_go_programs_carry_changes_out_as_planned() {
    let run = Run::start("go_plans");
    let changes = run.count("changes", 50, 10);
    let pools = run.parameter("pools", 6, 3);
    let seed = run.parameter("seed", 1, 1);
    let boot = run.seconds("boot", 11.0, 11.0);
    let most = run.seconds("time", 7200.0, 1800.0);
    let Some(folder) = go_programs() else {
        panic!("MCM_REFERENCE names no folder with the Go programs: use hack/faults")
    };
    let lanes = join_all((0..pools).map(|number| Lane::start(number, &folder, boot))).await;
    let (begun, done, differ) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let (say, begun_at) = (|text: String| run.say(text), run.elapsed());
    join_all(lanes.iter().map(async |lane| {
        let mut rng = Rng(seed + lane.number);
        while begun.get() < changes && run.elapsed() - begun_at < most {
            begun.set(begun.get() + 1);
            let (at, change, since) = (begun.get(), any_change(&mut rng), run.elapsed());
            let wrong = compare_within(&lane.world, &change, LIMIT).await;
            done.set(done.get() + 1);
            differ.set(differ.get() + usize::from(!wrong.is_empty()));
            let (took, result) = (run.elapsed() - since, if wrong.is_empty() { "as planned" } else { "otherwise" });
            say(format!("change {at} of pool {}: {}: {result}, after {took:.0?}", lane.number, json!(change)));
            wrong.iter().for_each(|one| say(format!("  {one}")));
        }
    }))
    .await;
    let miscounts: usize = lanes.iter().map(|lane| lane.miscounts.count()).sum();
    run.measured("changes", number(done.get()), "");
    run.measured("changes with another course", number(differ.get()), "");
    run.measured("creations and deletions by the Go programs that no set wanted", number(miscounts), "");
    for lane in &lanes {
        lane.recorder.judge(&run, &lane.world, None).await;
    }
    // The logs are still there.
    run.assert_holds();
    drop(lanes);
    run.finish();
}
