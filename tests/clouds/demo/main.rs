//! The demo in a simulation of a real cloud: `make demo` with CLOUD=aws, CLOUD=gcp or CLOUD=metal-stack.

#![expect(clippy::unwrap_used, clippy::panic, reason = "without its cloud there is no demo")]

mod cloud;
#[path = "../ec2.rs"]
mod ec2;
#[path = "../gcp/fake/mod.rs"]
mod fake;
#[allow(dead_code, reason = "the demo needs no faults")]
#[path = "../kit/mod.rs"]
mod kit;
#[path = "../metal_stack/mod.rs"]
mod metal_stack;
#[path = "../nodes.rs"]
mod nodes;
#[path = "../../support/objects.rs"]
#[allow(dead_code, reason = "the demo needs only merge")]
mod objects;
#[allow(dead_code, reason = "the demo needs no faults")]
#[path = "../proxy.rs"]
mod proxy;
#[path = "../server.rs"]
mod server;
#[allow(dead_code, reason = "the demo has classes of its own")]
#[path = "../simulation.rs"]
mod simulation;
#[allow(dead_code, reason = "the demo does not look into the fake")]
#[path = "../gcp/world.rs"]
mod world;

use std::{path::PathBuf, sync::Arc};

use clap::{Parser, ValueEnum};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use mcm::cli::demo::{DemoOptions, run_here, run_in};

use self::{
    cloud::{CLUSTER, InCloud},
    ec2::Ec2,
    nodes::Nodes,
    simulation::Simulation,
    world::World,
};

/// Show the product with machines in a simulation of a real cloud.
#[derive(Parser)]
struct Arguments {
    /// Which cloud
    #[arg(value_enum)]
    cloud: Which,
    /// The program mcm, with the driver of the cloud
    #[arg(long, value_name = "FILE")]
    mcm: PathBuf,
    #[command(flatten)]
    demo: DemoOptions,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    Aws,
    Gcp,
    MetalStack,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { cloud, mcm, demo } = Arguments::parse();
    let (cloud, in_cloud): (Arc<dyn Simulation>, _) = match cloud {
        Which::Aws => {
            let ec2 = Arc::new(Ec2::start().await);
            eprintln!("AWS is moto, behind a proxy at {}", ec2.url);
            (Arc::<Ec2>::clone(&ec2), InCloud::aws(ec2))
        }
        Which::Gcp => {
            let gce = Arc::new(World::new().await);
            eprintln!(
                "Google Cloud is a fake at {}, which refuses what does not fit Google's discovery document",
                gce.url
            );
            (Arc::<World>::clone(&gce), InCloud::gcp(gce))
        }
        Which::MetalStack => {
            let metal = Arc::new(metal_stack::World::new().await);
            eprintln!("metal-stack is a fake at {}, which refuses what does not fit its Swagger document", metal.url);
            (Arc::<metal_stack::World>::clone(&metal), InCloud::metal_stack(metal))
        }
    };
    let kubeconfig = Kubeconfig::read_from(&demo.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let _nodes = Nodes::keep(Client::try_from(config)?, cloud, CLUSTER);
    run_here(run_in(&demo, &mcm, Arc::new(in_cloud)), demo.show.keep).await
}
