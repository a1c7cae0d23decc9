//! The acts of the demo with Cluster API. Each waits for a state and reports its duration.

use std::{cell::Cell, collections::BTreeMap, os::unix::process::CommandExt, process::Command};

use anyhow::{Context, Result, ensure};
use mcm::cli::demo::{DemoScreen, DemoShow, DemoSummary};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::{
    hybrid,
    props::{self, Kind, Props},
    scene::{Scene, condition},
    support::{guard, program::mcm},
    world::{VERSION, World},
};

/// Name of the Cluster and of its namespace.
const NAME: &str = "demo";
const DEPLOYMENT: &str = "demo-md-0";
const POOL: &str = "demo-mp-0";
const MACHINES: usize = 3;
/// The Cluster with the control plane of another provider.
const HYBRID: &str = "hybrid";
const WORKERS: usize = 2;

struct Play<'a> {
    world: &'static World,
    cluster: &'static Scene,
    show: DemoShow<'a, Props>,
}

/// Plays all acts, with `keep` all but the last one.
pub async fn play(world: &'static World, screen: &DemoScreen, keep: bool) -> Result<DemoSummary> {
    world.management.ensure_namespace(NAME).await;
    let cluster: &'static Scene = Box::leak(Box::new(Scene::in_namespace(world, NAME.to_owned(), NAME)));
    let mut play = Play { world, cluster, show: DemoShow::new(screen, props::watch(world, NAME)) };
    play.install().await?;
    play.create_hybrid().await?;
    play.create().await?;
    play.kill().await?;
    play.add_pool().await?;
    play.roll_pool().await?;
    play.describe().await?;
    play.migrate_to_native().await?;
    play.migrate_to_cluster_api().await?;
    if !keep {
        play.remove().await?;
    }
    let (created, alive) = (world.cloud.count("/created").await, world.cloud.vms().await.len());
    Ok(play.show.end(created, alive as u64))
}

impl Play<'_> {
    async fn install(&mut self) -> Result<()> {
        let world = self.world;
        let doing = aside(async move || world.install().await);
        let title = format!("clusterctl init --infrastructure mcm:{VERSION}");
        let result = "core, kubeadm's providers and mcm are installed and run";
        self.show.act(&title, doing, |_| true, None, result).await
    }

    /// Network and control plane are of another provider, workers of mcm.
    async fn create_hybrid(&mut self) -> Result<()> {
        let scene = Scene::bare(self.world, NAME.to_owned(), HYBRID);
        let scene: &'static Scene = Box::leak(Box::new(scene));
        let doing = aside(async move || {
            scene.add_authority().await;
            hybrid::create(scene, WORKERS).await
        });
        let reached = |props: &Props| {
            props.running("hybrid-control-plane").len() == 1 && props.running("hybrid-md-0").len() == WORKERS
        };
        let title = format!("clusterctl generate cluster {HYBRID} --flavor aws-hybrid | kubectl apply -f -");
        let result = "a simulation of the provider for AWS made the control plane, and mcm the workers; all are Nodes";
        let _other = self.show.act(&title, doing, reached, None, result).await?;
        let doing = aside(async move || drop(scene.kubectl(&["delete", "cluster", HYBRID, "--timeout=120s"])));
        let reached = |props: &Props| props.all(Kind::Node).next().is_none();
        self.show.act("kubectl delete cluster hybrid", doing, reached, None, "its VMs and Nodes are gone").await
    }

    async fn create(&mut self) -> Result<()> {
        let (world, cluster) = (self.world, self.cluster);
        let doing = aside(async move || {
            world.kubectl_with(&["apply", "-f", "-"], &cluster.generate("fixed", MACHINES));
            cluster.initialize();
        });
        let reached = |props: &Props| {
            let is_available = |cluster: &Value| condition(cluster, "Available").starts_with("True");
            is_complete(props) && props.find(Kind::Cluster, NAME).is_some_and(is_available)
        };
        let title = format!("clusterctl generate cluster {NAME} | kubectl apply -f -");
        let result = format!("the Cluster is Available; its {MACHINES} Machines are Nodes");
        self.show.act(&title, doing, reached, None, &result).await
    }

    /// Core decides about replacements, with a MachineHealthCheck.
    async fn kill(&mut self) -> Result<()> {
        let world = self.world;
        let props = self.show.props();
        let victim = props.running(DEPLOYMENT).first().copied().context("no Machine is Running")?.clone();
        let name = victim.clone();
        let doing = aside(async move || {
            world.apply(&health_check());
            world.cloud.kill(&name, "stop").await;
        });
        let gone = victim.clone();
        let reached = |props: &Props| props.find(Kind::NativeMachine, &gone).is_none() && is_complete(props);
        let result = format!("its MachineHealthCheck found {victim}, and core replaced it");
        self.show.act(&format!("Kill the VM of {victim}"), doing, reached, None, &result).await?;
        self.cluster.kubectl(&["delete", "machinehealthcheck", DEPLOYMENT]);
        Ok(())
    }

    async fn add_pool(&mut self) -> Result<()> {
        let (world, cluster) = (self.world, self.cluster);
        let doing =
            aside(async move || world.kubectl_with(&["apply", "-f", "-"], &cluster.generate("fixed-pool", MACHINES)));
        let result = format!("its {MACHINES} machines are those of an MCM MachineDeployment, which mcm keeps");
        self.show.act("Add a MachinePool", doing, has_pool, None, &result).await?;
        Ok(())
    }

    async fn roll_pool(&mut self) -> Result<()> {
        let cluster = self.cluster;
        let props = self.show.props();
        let before = props.natives(POOL);
        let doing = aside(async move || {
            let change = r#"{"spec":{"machineClass":{"providerSpec":{"instanceType":"large"}}}}"#;
            cluster.kubectl(&["patch", "mcmmachinepool", POOL, "--type=merge", "-p", change]);
        });
        let new = |props: &Props| props.natives(POOL).iter().filter(|name| !before.contains(name)).count();
        let fewest = Cell::new(MACHINES);
        let reached = |props: &Props| {
            fewest.set(fewest.get().min(props.natives(POOL).len()));
            let is_old_gone = before.iter().all(|name| props.find(Kind::NativeMachine, name).is_none());
            is_old_gone && new(props) == MACHINES && has_pool(props)
        };
        let done = |props: &Props| new(props) as u64;
        let result = "mcm replaced one machine at a time, and never had fewer than three";
        let progress = Some((MACHINES as u64, &done as _));
        self.show.act("Roll the MachinePool to larger VMs", doing, reached, progress, result).await?;
        ensure!(fewest.get() == MACHINES, "only {} machines of the pool were running", fewest.get());
        Ok(())
    }

    async fn describe(&mut self) -> Result<()> {
        let (world, cluster) = (self.world, self.cluster);
        let doing = aside(async move || {
            let is_ready =
                async || condition(&cluster.find("mcmmachinepool", POOL)?, "Ready").starts_with("True").then_some(());
            cluster.until("the pool to be Ready", is_ready).await;
            world.must(&["describe", "cluster", NAME, "-n", NAME])
        });
        let title = format!("clusterctl describe cluster {NAME}");
        let text = self.show.act(&title, doing, |_| true, None, "this is what Cluster API shows").await?;
        self.show.say(text.trim_end());
        Ok(())
    }

    async fn migrate_to_native(&mut self) -> Result<()> {
        let (world, before) = (self.world, self.essence().await);
        let doing = aside(async move || {
            world.start_natives(NAME).await;
            adopt(world, "native")
        });
        let reached = |props: &Props| {
            let is_left =
                props.find(Kind::MachineDeployment, DEPLOYMENT).is_none() && props.running(DEPLOYMENT).is_empty();
            is_left && props.natives(DEPLOYMENT).len() == MACHINES
        };
        let result = "the MCM controllers have the machines; VMs and Nodes are the same";
        let title = format!("mcm adopt apply --cluster {NAME} --deployment {DEPLOYMENT} --to native");
        let steps = self.show.act(&title, doing, reached, None, result).await?;
        self.tell(&steps);
        ensure!(self.essence().await == before, "VMs or Nodes have changed");
        Ok(())
    }

    async fn migrate_to_cluster_api(&mut self) -> Result<()> {
        let (world, before) = (self.world, self.essence().await);
        let doing = aside(async move || adopt(world, "capi"));
        let reached = |props: &Props| props.find(Kind::NativeDeployment, DEPLOYMENT).is_none() && is_complete(props);
        let result = "core has the machines again; VMs and Nodes are the same";
        let title = format!("mcm adopt apply --cluster {NAME} --deployment {DEPLOYMENT} --to capi");
        let steps = self.show.act(&title, doing, reached, None, result).await?;
        self.tell(&steps);
        ensure!(self.essence().await == before, "VMs or Nodes have changed");
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        let (world, cluster) = (self.world, self.cluster);
        let doing = aside(async move || {
            cluster.kubectl(&["delete", "cluster", NAME, "--timeout=120s"]);
            // Includes the record of the migrations, and the derived class.
            world.kubectl(&["delete", "namespace", NAME, "--timeout=60s"]);
            world.stop_provider().await;
            world.must(&["delete", "--infrastructure", "mcm", "--include-crd", "--include-namespace"]);
            let definition = || {
                let name = "mcmmachines.infrastructure.cluster.x-k8s.io";
                world.reader.find("", "customresourcedefinition", name)
            };
            cluster.until("the definitions to be gone", async || definition().is_none().then_some(())).await;
        });
        let reached = |props: &Props| {
            let kinds = [Kind::Cluster, Kind::Machine, Kind::NativeMachine, Kind::Node];
            kinds.into_iter().all(|kind| props.all(kind).next().is_none())
        };
        let result = "no Machine, Node or VM is left, and no definition of mcm";
        let title = "kubectl delete cluster, clusterctl delete --infrastructure mcm";
        self.show.act(title, doing, reached, None, result).await?;
        ensure!(world.cloud.vms().await.is_empty(), "a VM is left");
        Ok(())
    }

    /// State that a migration must not change: VMs, and Nodes.
    async fn essence(&self) -> (BTreeMap<String, Vec<String>>, Vec<Value>) {
        let nodes = self.show.props().all(Kind::Node).map(|(_, node)| node["metadata"]["uid"].clone()).collect();
        (self.cluster.vms().await, nodes)
    }

    /// The steps of a migration.
    fn tell(&self, said: &str) {
        said.lines().filter(|line| line.contains(": step ")).for_each(|line| self.show.say(&format!("  {line}")));
    }
}

/// All Machines of the deployment run, and its status shows it.
fn is_complete(props: &Props) -> bool {
    let is_ready = |deployment: &Value| deployment["status"]["readyReplicas"] == MACHINES;
    props.running(DEPLOYMENT).len() == MACHINES && props.find(Kind::MachineDeployment, DEPLOYMENT).is_some_and(is_ready)
}

fn has_pool(props: &Props) -> bool {
    let is_complete = |pool: &Value| {
        let nodes = pool["status"]["nodeRefs"].as_array().map_or(0, Vec::len);
        pool["status"]["phase"] == "Running" && pool["status"]["replicas"] == MACHINES && nodes == MACHINES
    };
    props.natives(POOL).len() == MACHINES && props.find(Kind::MachinePool, POOL).is_some_and(is_complete)
}

fn health_check() -> Value {
    let unhealthy = |status: &str| json!({"type": "Ready", "status": status, "timeoutSeconds": 3});
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
        "metadata": {"name": DEPLOYMENT, "namespace": NAME},
        "spec": {
            "clusterName": NAME,
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": DEPLOYMENT}},
            "checks": {"unhealthyNodeConditions": [unhealthy("False"), unhealthy("Unknown")]},
        },
    })
}

/// Runs `mcm adopt apply`; returns its output.
fn adopt(world: &World, to: &str) -> String {
    let mut command = Command::new(mcm());
    command.args(["adopt", "apply", "--cluster", NAME, "--namespace", NAME, "--deployment", DEPLOYMENT, "--to", to]);
    command.arg(format!("--simulated-cloud={}", world.cloud.url));
    command.env("KUBECONFIG", world.management.kubeconfig()).process_group(guard::process_group());
    let output = command.output().unwrap();
    assert!(output.status.success(), "mcm adopt: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs blocking commands on another thread, while the table is updated.
async fn aside<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(work())).await.context("what failed is above")
}
