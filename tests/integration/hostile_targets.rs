//! Target API servers that try to exhaust the memory and the time of a process, which serves other cells as well.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    clouds,
    control_plane::ControlPlane,
    hostile::{self, Attack},
    wait,
    world::{Manager, World},
};

/// Cells of one process.
const CELLS: usize = 20;
const ATTACKS: [(&str, Attack); 7] = [
    ("endless-pages", Attack::EndlessPages),
    ("page-of-250-mib", Attack::ManyNodes { mib: 250 }),
    ("page-of-60-mib", Attack::ManyNodes { mib: 60 }),
    ("many-values", Attack::ManyValues),
    ("endless-watch", Attack::EndlessWatch),
    ("long-error", Attack::LongError),
    ("slow-page", Attack::SlowPage),
];
/// Longest time for the response to a probe: that of a kubelet is a second, and a debug build shares two cores with other tests.
const PROBE: Duration = Duration::from_secs(3);
/// Probes in a row that fail before a kubelet restarts a process.
const FAILED_PROBES: u32 = 3;
const MEMORY_KIB: u64 = 300 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_targets_do_not_disturb_the_other_cells_of_the_process() {
    let _slot = World::slot().await;
    let shared = ControlPlane::shared().await;
    let flags = ["--heartbeat-period=0s"];
    let first = World::between(shared, shared, "undisturbed-a", &flags).await;
    let second = World::between(shared, ControlPlane::second().await, "undisturbed-b", &flags).await;
    let cloud_of = |world: &World| (world.namespace.clone(), world.cloud.url.clone());
    let clouds = clouds::behind_one_address([cloud_of(&first), cloud_of(&second)]).await;
    let cells = cells(&first, &second).await;
    assert_eq!(cells.len(), CELLS);
    let file = first.folder().join("cells.yaml");
    fs::write(&file, serde_yaml_ng::to_string(&json!({"cells": cells})).unwrap()).unwrap();
    for world in [&first, &second] {
        world.pool(3, json!({})).await;
    }

    let [cells, clouds] = [format!("--cells={}", file.display()), format!("--simulated-cloud={clouds}")];
    let manager = first.launch_bare("run", &[&cells, &clouds]).ready().await;
    let work = async {
        for world in [&first, &second] {
            world.settled(3, "small").await;
            world.roll("large").await;
        }
        for world in [&first, &second] {
            world.pool_serves(3, "large").await;
        }
        are_named(&manager).await;
    };
    let slow = tokio::select! {
        () = work => None,
        slow = until_slow(&manager) => Some(slow),
    };
    assert_eq!(slow, None, "probes were not answered in time");
    let peak = peak_memory(&manager);
    assert!(peak < MEMORY_KIB, "{peak} KiB");
    for world in [&first, &second] {
        world.assert_vms_match().await;
    }
}

/// The cells of two worlds, one for each attack, and others without machines.
async fn cells(first: &World, second: &World) -> Vec<Value> {
    let shared = ControlPlane::shared().await;
    let mut cells = Vec::new();
    for (name, world) in [("first", first), ("second", second)] {
        let identity = world.identity();
        cells.push(json!({
            "name": name, "namespace": world.namespace, "kubeconfig": identity.control, "targetKubeconfig": identity.target,
        }));
    }
    for (name, attack) in ATTACKS {
        let url = hostile::serve(attack);
        let path = first.folder().join(format!("{name}.kubeconfig"));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": url}}], "users": [{"name": "it", "user": {}}],
        });
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let namespace = shared.namespace(name).await;
        cells.push(json!({
            "name": name, "namespace": namespace, "kubeconfig": shared.kubeconfig(), "targetKubeconfig": path,
        }));
    }
    for at in cells.len()..CELLS {
        let namespace = shared.namespace("idle").await;
        let kubeconfig = shared.kubeconfig();
        cells.push(json!({
            "name": format!("idle-{at}"), "namespace": namespace, "kubeconfig": kubeconfig, "targetKubeconfig": kubeconfig,
        }));
    }
    cells
}

/// Waits until metrics name the cells of hostile targets, and no other cell.
async fn are_named(manager: &Manager) {
    wait::until("the metrics to name the hostile targets", async || {
        let (_, metrics) = manager.get("/metrics").await;
        let has = |line: String| metrics.lines().any(|found| found == line);
        let over_limit = |name: &str| has(format!(r#"mcm_cache_over_limit{{kind="nodes",cluster="{name}/target"}} 1"#));
        let is_ready = |name: &str| has(format!(r#"mcm_cell_ready{{cell="{name}"}} 1"#));
        let are_named = ATTACKS.iter().all(|(name, _)| over_limit(name) && !is_ready(name));
        let named = metrics.lines().filter(|line| line.starts_with("mcm_cache_over_limit{") && line.ends_with(" 1"));
        (are_named && named.count() == ATTACKS.len() && is_ready("first") && is_ready("second")).then_some(())
    })
    .await;
}

/// Probes the process again and again, until a kubelet would restart it; returns the time of the slow responses in a row.
async fn until_slow(manager: &Manager) -> Duration {
    let mut slow = Duration::ZERO;
    while slow <= PROBE * FAILED_PROBES {
        let began = Instant::now();
        assert_eq!(manager.get("/healthz").await.0, 200);
        let took = began.elapsed();
        slow = if took > PROBE { slow + took } else { Duration::ZERO };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    slow
}

/// The most memory that the process had at a time, in KiB.
fn peak_memory(manager: &Manager) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", manager.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}
