//! One process for several control namespaces, each with a separate target cluster.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use mcm::api::machine::MachinePhase;
use serde_json::{Value, json};

use crate::support::{
    clouds,
    control_plane::ControlPlane,
    objects, wait,
    world::{Manager, World},
};

const ELECTION: [&str; 3] =
    ["--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=500ms"];
/// Machines, hence Nodes and VMs, that have the same names in both cells.
const TWINS: [&str; 2] = ["twin-1", "twin-2"];
const KILLS: usize = 3;
/// Every process reads the cells file this often.
const REREAD: Duration = Duration::from_secs(2);
/// Cells of a process, and those that are added to them.
const FEW: usize = 2;
const MORE: usize = 10;
/// File descriptors of a cell that shares its connections to the control cluster: with connections for each of its watches and
/// clients it has a dozen.
const EACH: f64 = 5.0;

/// Two namespaces that have everything twice: Machines of the same names, Nodes of the same names in two clusters, VMs of the
/// same IDs in two clouds.
struct Fleet {
    worlds: [World; 2],
    file: PathBuf,
    clouds: String,
}

#[tokio::test]
async fn two_cells_of_one_process_do_not_meet() {
    let fleet = Fleet::new().await;
    let [first, second] = &fleet.worlds;
    for world in &fleet.worlds {
        world.pool(3, json!({})).await;
        for twin in TWINS {
            world.apply(objects::machine(twin)).await;
        }
    }

    // A cell that is added is served at once, and none before.
    fleet.write(&[0]);
    let [mut one, other] = [fleet.launch(), fleet.launch()];
    let other = other.ready().await;
    one.until_ready().await;
    serve(first, 3, "small").await;
    assert!(second.scene.now().machines.values().all(|machine| machine.phase() == MachinePhase::New));
    assert_eq!(second.cloud.count("/created").await, 0);
    fleet.write(&[0, 1]);
    serve(second, 3, "small").await;
    fleet.assert_apart().await;

    // The deletion of a Node leads to the deletion of the Machine in its cell only.
    let twin = TWINS[0];
    let survivor = second.scene.now().machines[twin].metadata.uid.clone();
    Api::<Node>::all(first.target.clone()).delete(twin, &DeleteParams::default()).await.unwrap();
    first.until("the machine without node to be gone", |scene| !scene.machines.contains_key(twin)).await;
    first.apply(objects::machine(twin)).await;
    serve(first, 3, "small").await;
    assert_eq!(second.scene.now().machines[twin].metadata.uid, survivor, "the twin in the other cell");

    // Rollouts in both cells, while the process is killed repeatedly.
    first.roll("large").await;
    second.roll("large").await;
    for _ in 0..KILLS {
        holders(first).await;
        one.program.restart_after_kill();
        one.until_ready().await;
    }
    serve(first, 3, "large").await;
    serve(second, 3, "large").await;
    fleet.assert_apart().await;
    assert_eq!(second.scene.now().machines[twin].metadata.uid, survivor, "the twin in the other cell");

    // A cell that is taken out is let go of, and nothing more is done for it. The dead let go of nothing.
    let restarted = Timestamp::now();
    wait::until("the leases of the cell to be held by the living", async || {
        renewals(second).await.iter().all(|renewal| *renewal > restarted).then_some(())
    })
    .await;
    fleet.write(&[0]);
    released(second).await;
    second.scale(4).await;
    first.scale(4).await;
    serve(first, 4, "large").await;
    assert_eq!(second.scene.now().machines.len(), 3 + TWINS.len());
    fleet.write(&[1, 0]);
    serve(second, 4, "large").await;
    fleet.assert_apart().await;
    assert_cells_are_named(&[one.program.log(), other.program.log()].concat());

    // A file that cannot be read changes nothing.
    fleet.replace("cells: [");
    wait::until("the process to complain", async || {
        one.program.log().contains("cells file cannot be used").then_some(())
    })
    .await;
    first.scale(3).await;
    second.scale(3).await;
    serve(first, 3, "large").await;
    serve(second, 3, "large").await;

    // A cell with another kubeconfig is another cell. This one has no cluster.
    fleet.write_with(&[0, 1], |name, cell| {
        if name == "b" {
            cell["kubeconfig"] = json!(fleet.file.with_file_name("nowhere"));
        }
    });
    released(second).await;
    first.scale(4).await;
    serve(first, 4, "large").await;
    fleet.write(&[0, 1]);
    second.scale(4).await;
    serve(second, 4, "large").await;
    fleet.assert_apart().await;
}

#[tokio::test]
async fn cells_with_one_kubeconfig_share_their_connections() {
    let shared = ControlPlane::shared().await;
    let world = World::between(shared, shared, "few-connections", &["--heartbeat-period=0s"]).await;
    let mut cells = Vec::new();
    for at in 0..FEW + MORE {
        let (namespace, kubeconfig) = (shared.namespace("few-connections").await, shared.kubeconfig());
        cells.push(json!({
            "name": format!("cell-{at}"), "namespace": namespace, "kubeconfig": kubeconfig, "targetKubeconfig": kubeconfig,
        }));
    }
    let file = world.folder().join("cells.yaml");
    let write = |count: usize| {
        let new = file.with_extension("new");
        fs::write(&new, serde_yaml_ng::to_string(&json!({"cells": cells[..count]})).unwrap()).unwrap();
        fs::rename(new, &file).unwrap();
    };
    write(FEW);
    let (cells_flag, cloud_flag) = (format!("--cells={}", file.display()), world.cloud_flag());
    let manager = world.launch_bare("run", &[cells_flag.as_str(), cloud_flag.as_str()]).ready().await;
    let of_few = descriptors_of(&manager, FEW).await;
    write(FEW + MORE);
    let of_all = descriptors_of(&manager, FEW + MORE).await;
    assert!(of_all - of_few <= EACH * MORE as f64, "{of_few} of {FEW} cells, {of_all} of {}", FEW + MORE);
}

/// The file descriptors of a process when so many cells are ready.
async fn descriptors_of(manager: &Manager, cells: usize) -> f64 {
    wait::until("the cells to be ready", async || {
        let (_, metrics) = manager.get("/metrics").await;
        let is_ready = |line: &&str| line.starts_with("mcm_cell_ready{") && line.ends_with(" 1");
        let open = metrics.lines().find_map(|line| line.strip_prefix("process_open_fds "))?;
        (metrics.lines().filter(is_ready).count() == cells).then(|| open.parse().unwrap())
    })
    .await
}

impl Fleet {
    async fn new() -> Self {
        let shared = ControlPlane::shared().await;
        // The same seed leads to the same IDs.
        let flags = ["--heartbeat-period=0s", "--seed=7"];
        let first = World::between(shared, shared, "fleet-a", &flags).await;
        let second = World::between(shared, ControlPlane::second().await, "fleet-b", &flags).await;
        let cloud_of = |world: &World| (world.namespace.clone(), world.cloud.url.clone());
        let clouds = clouds::behind_one_address([cloud_of(&first), cloud_of(&second)]).await;
        let file = first.folder().join("cells.yaml");
        Self { worlds: [first, second], file, clouds }
    }

    /// Writes the cells to run.
    fn write(&self, which: &[usize]) {
        self.write_with(which, |_, _| ());
    }

    fn write_with(&self, which: &[usize], change: impl Fn(&str, &mut Value)) {
        let cell = |&at: &usize| -> Value {
            let world = &self.worlds[at];
            let identity = world.identity();
            let name = ["a", "b"][at];
            let mut cell = json!({
                "name": name,
                "namespace": world.namespace,
                "kubeconfig": identity.control,
                "targetKubeconfig": identity.target,
            });
            change(name, &mut cell);
            cell
        };
        let cells = json!({"cells": which.iter().map(cell).collect::<Vec<_>>()});
        self.replace(&serde_yaml_ng::to_string(&cells).unwrap());
    }

    fn replace(&self, text: &str) {
        let new = self.file.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    fn launch(&self) -> Manager {
        let [first, _] = &self.worlds;
        let cells = format!("--cells={}", self.file.display());
        let clouds = format!("--simulated-cloud={}", self.clouds);
        first.launch_bare("run", &[&ELECTION[..], &[&cells, &clouds]].concat())
    }

    /// Each cell has separate VMs, and each cluster only the Nodes of its cell.
    async fn assert_apart(&self) {
        for world in &self.worlds {
            world.assert_vms_match().await;
        }
        let [first, second] = &self.worlds;
        let names = |world: &World| world.scene.now().names();
        let common: BTreeSet<String> = TWINS.map(str::to_owned).into();
        assert_eq!(&names(first) & &names(second), common, "machines of the same name");
        let nodes: BTreeSet<String> = second.scene.now().nodes.keys().cloned().collect();
        assert!(nodes.is_disjoint(&(&names(first) - &common)), "nodes of the first cell in the second cluster");
        let nodes: BTreeSet<String> = first.scene.now().nodes.keys().cloned().collect();
        assert!(nodes.is_disjoint(&(&names(second) - &common)), "nodes of the second cell in the first cluster");
    }
}

/// The Leases of a cell are free, and stay free: another replica may take them before it reads the file again.
async fn released(world: &World) {
    let mut free_since: Option<Instant> = None;
    wait::until("the leases of the cell to be and stay free", async || {
        let is_free = holders(world).await.is_empty();
        free_since = is_free.then(|| free_since.unwrap_or_else(Instant::now));
        free_since.filter(|since| since.elapsed() > REREAD * 2)
    })
    .await;
}

/// The pool and the twins serve.
async fn serve(world: &World, count: usize, class: &str) {
    world.pool_serves(count, class).await;
    world
        .until("the twins to serve", |scene| {
            TWINS.iter().all(|twin| scene.phase(twin) == Some(MachinePhase::Running) && scene.nodes.contains_key(*twin))
        })
        .await;
}

/// Each line about Leases and machines has its cell, and there are lines of both cells.
fn assert_cells_are_named(log: &str) {
    for text in ["became leader", "successfully joined"] {
        for cell in ["a", "b"] {
            let field = format!(" cell=\"{cell}\"");
            assert!(log.lines().any(|line| line.contains(text) && line.contains(&field)), "no {text:?} of {field}");
        }
    }
    let texts = ["became leader", "leader changed", "released the lease", "stopped leading", "successfully joined"];
    let is_of_cell = |line: &&str| texts.iter().any(|text| line.contains(text));
    let wrong: Vec<&str> = log.lines().filter(is_of_cell).filter(|line| line.matches(" cell=").count() != 1).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Holders of the leases of a cell. An expired lease has no holder: a process that aborted a reconcile leaves its name there.
async fn holders(world: &World) -> Vec<String> {
    let now = Timestamp::now();
    let is_held = |lease: &LeaseSpec| {
        let duration = Duration::from_secs(lease.lease_duration_seconds.unwrap_or_default().unsigned_abs().into());
        lease.renew_time.as_ref().is_some_and(|MicroTime(renewal)| *renewal + duration > now)
    };
    leases(world)
        .await
        .into_iter()
        .filter(is_held)
        .filter_map(|lease| lease.holder_identity)
        .filter(|holder| !holder.is_empty())
        .collect()
}

/// When each lease of a cell was renewed last.
async fn renewals(world: &World) -> Vec<Timestamp> {
    leases(world).await.into_iter().filter_map(|lease| lease.renew_time).map(|MicroTime(time)| time).collect()
}

async fn leases(world: &World) -> Vec<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let leases = leases.list(&ListParams::default()).await.unwrap().items;
    leases.into_iter().filter_map(|lease| lease.spec).collect()
}
