//! A process for many control planes, some of which are sick.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use axum::{Router, body::Body};
use futures::{StreamExt, stream};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use mcm::api::machine::{Machine, MachineDeployment, MachinePhase};
use serde_json::{Value, json};

use crate::{
    meter,
    run::{Bound, Run},
    support::{
        control_plane::ControlPlane,
        identity::{self, Identity, Rights},
        objects, wait,
        world::{Manager, World},
    },
};

const POOL: &str = "pool";
/// The creation of the machine of this name panics in the simulated driver.
const POISON: &str = "poisoned";
/// Longer than all pools need on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);
/// Memory for a response that is too large, and for all cells.
const MOST_MIB: f64 = 700.0;

/// A namespace with a pool.
struct Cell {
    name: String,
    namespace: String,
    identity: Identity,
}

/// One cell has a machine whose reconciles panic, one a target that sends without end, one an API server that is away, and
/// one a token file of 10 GB.
#[tokio::test]
async fn sick_cells_of_a_process_disturb_no_other() {
    let run = Run::start("many_cells");
    let healthy = run.count("cells", 16, 6);
    let machines = run.count("machines", 10, 4);
    let control = ControlPlane::shared().await;
    let mut world = World::between(control, control, "many-cells", &["--heartbeat-period=0s"]).await;
    world.may_panic = true;
    world.environment = vec![("MCM_SIMULATED_PANIC".to_owned(), POISON.to_owned())];
    run.say(format!("logs are in {}", world.folder().display()));

    let mut cells = Vec::new();
    for at in 0..healthy {
        cells.push(Cell::new(control, &world, format!("healthy-{at:02}")).await);
    }
    let poisoned = Cell::new(control, &world, POISON.to_owned()).await;
    poisoned.apply(&world, objects::machine(POISON)).await;
    cells.push(poisoned);
    for cell in &cells {
        cell.pool(&world, machines).await;
    }
    let sick = sick_cells(control, &world).await;

    let file = world.folder().join("cells.yaml");
    let listed: Vec<Value> = cells.iter().map(Cell::entry).chain(sick.values().cloned()).collect();
    fs::write(&file, serde_yaml_ng::to_string(&json!({"cells": listed})).unwrap()).unwrap();
    let (cells_flag, cloud_flag) = (format!("--cells={}", file.display()), world.cloud_flag());
    let began = Instant::now();
    let mut manager = world.launch_bare("run", &[cells_flag.as_str(), cloud_flag.as_str()]).ready().await;
    run.check("until the process was ready", began.elapsed().as_secs_f64(), "s", Bound::AtMost(10.0));

    for class in ["small", "large"] {
        let began = Instant::now();
        for cell in cells.iter().filter(|_| class == "large") {
            cell.roll(&world, class).await;
        }
        wait::until_within(LIMIT, "every pool to serve", async || {
            manager.program.assert_runs();
            assert_eq!(manager.get("/readyz").await.0, 200);
            let mut serving = 0;
            for cell in &cells {
                serving += usize::from(cell.serves(&world, machines, class).await);
            }
            (serving == cells.len()).then_some(())
        })
        .await;
        run.measured(format!("until all machines were {class}"), began.elapsed().as_secs_f64(), "s");
    }

    told(&run, &manager, &cells, &sick).await;
    run.exactly("ends of the process", usize::from(manager.program.has_ended()), 0);
    run.check("most memory", meter::memory(manager.program.id(), "VmHWM"), "MiB", Bound::AtMost(MOST_MIB));
    run.measured("open files", meter::metric(&manager, "process_open_fds", "").await, "");
    manager.program.terminate();
    let began = Instant::now();
    let status = manager.program.ended().await;
    run.check("until it ended", began.elapsed().as_secs_f64(), "s", Bound::AtMost(20.0));
    run.check("its exit code", f64::from(status.code().unwrap_or(-1)), "", Bound::Exactly(0.0));
    run.finish();
}

/// Metrics and `/readyz?verbose` name the sick cells, and only them.
async fn told(run: &Run, manager: &Manager, cells: &[Cell], sick: &BTreeMap<&str, Value>) {
    let of = |cell: &str| format!("cell=\"{cell}\"");
    let (code, text) = manager.get("/readyz?verbose").await;
    run.exactly("status of /readyz?verbose", usize::from(code), 200);
    for name in sick.keys() {
        run.check(
            format!("mcm_cell_ready of {name}"),
            meter::metric(manager, "mcm_cell_ready", &of(name)).await,
            "",
            Bound::Exactly(0.0),
        );
        run.exactly(format!("{name} in /readyz?verbose"), usize::from(text.contains(name)), 1);
    }
    let mut others = Vec::new();
    for cell in cells {
        let ready = meter::metric(manager, "mcm_cell_ready", &of(&cell.name)).await;
        let restarts = meter::metric(manager, "mcm_cell_restarts_total", &of(&cell.name)).await;
        if ready < 1.0 || restarts > 0.0 {
            others.push(&cell.name);
        }
    }
    run.none("other cells that were not ready or restarted", &others);
    let panics = meter::metric(manager, "mcm_panics_total", &of(POISON)).await;
    run.check("panics of the poisoned cell", panics, "", Bound::AtLeast(2.0));
    let all = meter::metric(manager, "mcm_panics_total", "").await;
    run.check("panics of other cells", all - panics, "", Bound::Exactly(0.0));
}

/// Entries of the file of cells.
async fn sick_cells(control: &ControlPlane, world: &World) -> BTreeMap<&'static str, Value> {
    let folder = world.folder();
    let endless = format!("http://{}", serve_without_end().await);
    let token = folder.join("token-of-10-gb");
    File::create(&token).unwrap().set_len(10 << 30).unwrap();
    let changed = async |name: &'static str, pointer: &str, value: Value| {
        let cell = Cell::new(control, world, name.to_owned()).await;
        identity::change(&cell.identity.target, pointer, value.clone());
        if name != "endless" {
            identity::change(&cell.identity.control, pointer, value);
        }
        (name, cell.entry())
    };
    [
        changed("endless", "/clusters/0/cluster", json!({"server": endless})).await,
        changed("away", "/clusters/0/cluster/server", "https://127.0.0.1:1".into()).await,
        changed("sparse", "/users/0/user", json!({"tokenFile": token})).await,
    ]
    .into()
}

/// An API server whose responses begin as lists and do not end.
async fn serve_without_end() -> std::net::SocketAddr {
    let answer = || async {
        let begin = stream::once(async { Ok::<_, std::io::Error>(r#"{"kind":"NodeList","items":["#.to_owned()) });
        Body::from_stream(begin.chain(stream::repeat_with(|| Ok(" ".repeat(1 << 16)))))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    address
}

impl Cell {
    async fn new(control: &ControlPlane, world: &World, name: String) -> Self {
        let namespace = control.namespace("cell").await;
        let folder: PathBuf = world.folder().join(&name);
        fs::create_dir_all(&folder).unwrap();
        let identity = identity::create((control, control), Rights::usual(), &namespace, Path::new(&folder)).await;
        Self { name, namespace, identity }
    }

    fn entry(&self) -> Value {
        json!({
            "name": self.name,
            "namespace": self.namespace,
            "kubeconfig": self.identity.control,
            "targetKubeconfig": self.identity.target,
        })
    }

    async fn apply(&self, world: &World, mut object: Value) {
        object["metadata"]["namespace"] = self.namespace.as_str().into();
        if let Some(reference) = object.pointer_mut("/secretRef") {
            reference["namespace"] = self.namespace.as_str().into();
        }
        objects::apply(&world.client, &object).await;
    }

    async fn pool(&self, world: &World, machines: usize) {
        self.apply(world, objects::secret(POOL)).await;
        for class in ["small", "large"] {
            self.apply(world, objects::class(class)).await;
        }
        self.apply(world, objects::deployment(POOL, machines.try_into().unwrap())).await;
    }

    async fn roll(&self, world: &World, class: &str) {
        let deployments: Api<MachineDeployment> = Api::namespaced(world.client.clone(), &self.namespace);
        let patch = json!({"spec": {"template": {"spec": {"class": {"name": class}}}}});
        deployments.patch(POOL, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// So many machines of a class run, and no other.
    async fn serves(&self, world: &World, machines: usize, class: &str) -> bool {
        let api: Api<Machine> = Api::namespaced(world.client.clone(), &self.namespace);
        let mut all = api.list(&ListParams::default()).await.unwrap().items;
        all.retain(|machine| machine.metadata.name.as_deref() != Some(POISON));
        let serves = |machine: &Machine| machine.phase() == MachinePhase::Running && machine.spec.class.name == class;
        all.len() == machines && all.iter().all(serves)
    }
}
