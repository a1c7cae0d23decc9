//! Target API servers that try to exhaust the memory and the time of a process, which serves other cells as well.

use std::{
    fs,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{
    clouds,
    control_plane::ControlPlane,
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
/// Longest time for the response to a probe.
const PROBE: Duration = Duration::from_secs(1);
const MEMORY_KIB: u64 = 300 << 10;
const MIB: usize = 1 << 20;

/// The attack of a server on its client.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// Each page of Nodes names a next one.
    EndlessPages,
    /// A page has far more Nodes than were asked for.
    ManyNodes { mib: usize },
    /// A page has one Node with conditions without end.
    ManyValues,
    /// A watch adds Nodes without end.
    EndlessWatch,
    /// The error of a list is long.
    LongError,
    /// A large page begins and does not end.
    SlowPage,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_targets_do_not_disturb_the_other_cells_of_the_process() {
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
    let slowest = tokio::select! {
        () = work => None,
        slow = until_slow(&manager) => Some(slow),
    };
    assert_eq!(slowest, None, "a probe was not answered in time");
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
        let url = serve(attack);
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

/// Probes the process again and again; returns the time of a response that takes too long.
async fn until_slow(manager: &Manager) -> Duration {
    loop {
        let began = Instant::now();
        assert_eq!(manager.get("/healthz").await.0, 200);
        let took = began.elapsed();
        if took > PROBE {
            return took;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The most memory that the process had at a time, in KiB.
fn peak_memory(manager: &Manager) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", manager.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

/// Starts a hostile API server, for as long as the test runs. It has a thread, so that it delays no probe.
fn serve(attack: Attack) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let router = Router::new().fallback(answer).with_state(attack);
            axum::serve(TcpListener::from_std(listener).unwrap(), router).await
        })
    });
    url
}

async fn answer(State(attack): State<Attack>, request: Request) -> Response {
    let uri = request.uri();
    match uri.path() {
        "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}).to_string().into_response(),
        "/api/v1/nodes" if query(uri, "watch") == Some("true") => watch(attack),
        "/api/v1/nodes" => list(attack, uri),
        _ => "ok".into_response(),
    }
}

fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    uri.query()?
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value)
}

fn node(at: usize) -> String {
    let meta = json!({"name": format!("n{at}"), "uid": format!("u{at}"), "resourceVersion": (at + 10).to_string()});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": meta}).to_string()
}

fn list(attack: Attack, uri: &Uri) -> Response {
    const BEGIN: &str = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":["#;
    match attack {
        Attack::EndlessPages => {
            let from: usize = query(uri, "continue").and_then(|from| from.parse().ok()).unwrap_or_default();
            let size: usize = query(uri, "limit").and_then(|size| size.parse().ok()).unwrap();
            let items: Vec<String> = (from..from + size).map(node).collect();
            let next = from + size;
            let meta = format!(r#"{{"resourceVersion":"10","continue":"{next}"}}"#);
            format!(r#"{{"kind":"NodeList","metadata":{meta},"items":[{}]}}"#, items.join(",")).into_response()
        }
        Attack::ManyNodes { mib } => {
            let node = r#"{"metadata":{"name":"n1"}}"#;
            long(BEGIN, &format!("{node},"), &format!("{node}]}}"), mib)
        }
        Attack::ManyValues => {
            long(&format!(r#"{BEGIN}{{"metadata":{{"name":"n"}},"status":{{"conditions":["#), "{},", "{}]}}]}", 15)
        }
        Attack::EndlessWatch => format!("{BEGIN}]}}").into_response(),
        Attack::LongError => {
            let body = long(r#"{"kind":"Status","status":"Failure","code":500,"a":["#, "0,", "0]}", 63).into_body();
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
        Attack::SlowPage => {
            let begun = format!("{BEGIN}{}", " ".repeat(3 * MIB));
            streamed(stream::once(async { Bytes::from(begun) }).chain(stream::pending()))
        }
    }
}

fn watch(attack: Attack) -> Response {
    match attack {
        Attack::EndlessWatch => streamed(stream::iter(0..).map(|chunk: usize| {
            let event = |at| format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", node(at));
            Bytes::from((chunk * 100..(chunk + 1) * 100).map(event).collect::<String>())
        })),
        _ => streamed(stream::pending()),
    }
}

/// A text with so many MiB of repetitions.
fn long(begin: &str, repeated: &str, end: &str, mib: usize) -> Response {
    let block = Bytes::from(repeated.repeat(MIB / repeated.len()));
    let blocks = stream::repeat(block).take(mib);
    let [begin, end] = [begin, end].map(|text| stream::once(std::future::ready(Bytes::from(text.to_owned()))));
    streamed(begin.chain(blocks).chain(end))
}

fn streamed(blocks: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    Response::new(Body::from_stream(blocks.map(Ok::<_, std::io::Error>)))
}
