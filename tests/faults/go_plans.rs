//! The Go programs carry changes out as `mcm plan` says.

use serde_json::json;

use crate::{
    miscounts::Miscounts,
    run::{Run, number},
    stage::{Stage, go_programs},
    support::{
        control_plane::ControlPlane,
        plans::{Rng, any_change, compare},
    },
};

/// A plan plays our controllers. The differences to the Go programs are printed; docs/compatibility.md explains them.
#[tokio::test]
async fn the_go_programs_carry_changes_out_as_planned() {
    let run = Run::start("go_plans");
    let changes = run.count("changes", 50, 10);
    let seed = run.parameter("seed", 1, 1);
    let boot = run.seconds("boot", 11.0, 11.0);
    let Some(folder) = go_programs() else {
        panic!("MCM_REFERENCE names no folder with the Go programs: use hack/faults")
    };
    let control = ControlPlane::shared().await;
    let mut stage = Stage::set(run, control, control, &[]).await;
    stage.world.environment = vec![("SIMULATED_CLOUD".to_owned(), stage.world.cloud.url.clone())];
    // Not all that the Go programs try is granted.
    stage.world.may_be_refused = true;
    let miscounts = Miscounts::of("pool", &stage.world);
    let go = |program: &str| {
        let flags = ["--leader-elect=false"];
        stage.world.launch_as(&folder.join(program), &[], &format!("go-{program}.log"), &flags)
    };
    let _managers = ["machine-controller-manager", "machine-controller"].map(go);
    stage.classes(json!({"providerSpec": {"bootLatency": format!("{}s", boot.as_secs())}})).await;
    stage.deployment("pool", 3, json!({})).await;
    let (mut rng, mut differ) = (Rng(seed), 0);
    for at in 1..=changes {
        let change = any_change(&mut rng);
        let wrong = compare(&stage.world, &change).await;
        stage
            .run
            .say(format!("change {at}: {change:?}: {}", if wrong.is_empty() { "as planned" } else { "otherwise" }));
        wrong.iter().for_each(|one| stage.run.say(format!("  {one}")));
        differ += usize::from(!wrong.is_empty());
    }
    stage.run.measured("changes", number(changes), "");
    stage.run.measured("changes with another course", number(differ), "");
    stage.run.measured("creations and deletions by the Go programs that no set wanted", number(miscounts.count()), "");
    stage.close(None, &[]).await;
}
