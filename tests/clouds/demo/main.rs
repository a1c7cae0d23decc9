//! The demo in the stand-in of a cloud: `make demo` with CLOUD=aws, CLOUD=gcp and so on.

#![expect(clippy::unwrap_used, clippy::panic, reason = "without its cloud there is no demo")]

#[cfg(feature = "alicloud")]
#[path = "../alicloud/mod.rs"]
mod alicloud;
#[cfg(feature = "aws")]
#[path = "../aws/mod.rs"]
mod aws;
#[cfg(feature = "azure")]
#[path = "../azure/mod.rs"]
mod azure;
mod cloud;
#[cfg(feature = "equinix-metal")]
#[path = "../equinix_metal/mod.rs"]
mod equinix_metal;
#[cfg(feature = "gcp")]
#[path = "../gcp/mod.rs"]
mod gcp;
#[cfg(feature = "kubevirt")]
#[path = "../kubevirt/mod.rs"]
mod kubevirt;
#[allow(dead_code, reason = "the demo has no control plane")]
#[path = "../load_balancer.rs"]
mod load_balancer;
#[cfg(feature = "metal-stack")]
#[path = "../metal_stack/mod.rs"]
mod metal_stack;
#[path = "../nodes.rs"]
mod nodes;
#[path = "../../support/objects.rs"]
#[allow(dead_code, reason = "the demo needs only merge")]
mod objects;
#[cfg(feature = "openstack")]
#[path = "../openstack/mod.rs"]
mod openstack;
#[allow(dead_code, reason = "the demo has classes of its own")]
#[path = "../simulation.rs"]
mod simulation;
#[path = "../stand_ins.rs"]
mod stand_ins;
#[cfg(feature = "vsphere")]
#[path = "../vsphere/mod.rs"]
mod vsphere;
#[cfg(feature = "yandex")]
#[path = "../yandex/mod.rs"]
mod yandex;

// For the fakes.
#[allow(unused_imports, reason = "moto is no fake of ours")]
use mcm_driver::testing as kit;

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use clap::Parser;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use mcm::cli::demo::{DemoOptions, run_here, run_in};

use self::{
    cloud::{CLUSTER, InCloud},
    nodes::Nodes,
};

/// Show the product with machines in the stand-in of a cloud.
#[derive(Parser)]
struct Arguments {
    /// Which cloud, by the name of its feature
    cloud: String,
    /// The program mcm, with the driver of the cloud
    #[arg(long, value_name = "FILE")]
    mcm: PathBuf,
    #[command(flatten)]
    demo: DemoOptions,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { cloud: name, mcm, demo } = Arguments::parse();
    let cloud = stand_ins::start(&name).await;
    eprintln!("{}", cloud.about());
    let in_cloud = InCloud::new(&name, Arc::clone(&cloud));
    let kubeconfig = demo.kubeconfig.as_deref().context("this demo needs --kubeconfig")?;
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let _nodes = Nodes::keep(Client::try_from(config)?, cloud, CLUSTER);
    run_here(run_in(&demo, &mcm, Arc::new(in_cloud)), demo.show.keep).await
}
