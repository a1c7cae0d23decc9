//! The demo with Cluster API: `make demo CAPI=1`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "without its clusters there is no demo")]

mod acts;
#[path = "../hybrid.rs"]
mod hybrid;
#[allow(dead_code, reason = "the demo has one provider beside mcm")]
#[path = "../other_provider.rs"]
mod other_provider;
mod props;
#[path = "../reading.rs"]
mod reading;
#[path = "../repository.rs"]
mod repository;
#[allow(dead_code, reason = "the demo has one cluster and waits in its own way")]
#[path = "../scene.rs"]
mod scene;
#[path = "../../support/mod.rs"]
mod support;
mod view;
#[allow(dead_code, reason = "the demo has one management cluster")]
#[path = "../world.rs"]
mod world;

use anyhow::Context;
use clap::Parser;
use mcm::cli::demo::{ShowOptions, run_here};

use self::world::World;

/// A short time, as in the demo without Cluster API.
const CLOUD: [&str; 2] = ["--heartbeat-period=2s", "--node-monitor-grace=3s"];

/// Show mcm as an infrastructure provider of Cluster API.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    show: ShowOptions,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { show } = Arguments::parse();
    run_here(play(&show), show.keep).await
}

async fn play(options: &ShowOptions) -> anyhow::Result<()> {
    let logs = std::path::absolute(options.logs())?;
    std::fs::create_dir_all(&logs).context("create the log directory")?;
    options.record_processes([std::process::id()])?;
    let screen = options.screen();
    screen.say("Two control planes are started: one that manages clusters, and one that simulated machines join.");
    let world: &'static World = Box::leak(Box::new(World::empty(logs, &CLOUD).await));
    let outcome = acts::play(world, &screen, options.keep).await;
    let summary = outcome.with_context(|| format!("see the logs in {}", options.logs().display()))?;
    options.report(&screen, &summary)?;
    if options.keep {
        screen.say(&how_to_look_around(world));
    }
    Ok(())
}

fn how_to_look_around(world: &World) -> String {
    format!(
        "Everything is left running. Look around with:\n\n  \
         export KUBECONFIG={}\n  \
         kubectl get cluster-api -n demo\n  \
         kubectl get mcd,mcs,mc -n demo\n  \
         kubectl scale machinedeployment.cluster.x-k8s.io/demo-md-0 -n demo --replicas=5\n  \
         kubectl --kubeconfig={} get nodes\n\nStop it with: hack/demo stop",
        world.management.kubeconfig().display(),
        world.workload.kubeconfig().display(),
    )
}
