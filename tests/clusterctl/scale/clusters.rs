//! Many Clusters in one manager, each with a separate kubeconfig, and one whose API server is unreachable.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{LIMIT, count, print, seconds};
use crate::{
    scene::{Scene, condition},
    support::{
        identity, objects,
        program::{Program, free_port, mcm},
        secrets, wait,
    },
    world::{VERSION, World, play},
};

const NAMESPACE: &str = "capmcm-system";

/// A Cluster with a pool, and the way to its API server.
struct Member {
    scene: Scene,
    way: Way,
}

/// A connection to an API server that can be cut. Then no data passes, and later its connections end.
struct Way {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
}

impl Way {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_cut, cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, cut.clone()));
            }
        });
        Self { address, is_cut }
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut cut: watch::Receiver<bool>) {
    let mut end = cut.clone();
    let passing = async {
        let mut server = TcpStream::connect(server).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        biased;
        _ = end.wait_for(|is_cut| *is_cut) => {}
        _ = passing => return,
    }
    let _ = cut.wait_for(|is_cut| !*is_cut).await;
}

/// A separate manager, whose figures are those of these Clusters alone.
struct Manager {
    program: Program,
    metrics: String,
    /// Address of the API server of the management cluster.
    server: String,
}

/// C14: one unreachable API server does not delay the rollouts of other Clusters, and its own rollout continues once it
/// is reachable.
#[test]
fn many_clusters_roll_while_the_api_server_of_one_is_away() {
    play(async |shared: &'static World| {
        let (clusters, machines) = (count("clusters", 20, 3), count("machines", 10, 2));
        let beside = shared.bare_beside().await;
        let world = beside.0;
        world.install_core(&["--infrastructure", &format!("mcm:{VERSION}")]).await;
        let mut manager = Manager::start(world).await;
        let empty = manager.memory();
        let mut members = Vec::new();
        for index in 0..clusters {
            members.push(member(world, &format!("fleet{index:02}")).await);
        }
        let mut figures = Figures::start(&manager).await;

        let start = Instant::now();
        for member in &members {
            world.kubectl_with(&["apply", "-f", "-"], &member.scene.generate("fixed-pool", machines));
            member.scene.initialize();
        }
        for member in &members {
            within("all pools", async || member.scene.has_pool_of(machines)).await;
        }
        figures.row("created, all at once", start, &manager, &members).await;
        let full = manager.memory();

        let start = Instant::now();
        // Not a pause before a check: the calls of a time without work are the figure.
        tokio::time::sleep(Duration::from_secs(if clusters > 3 { 60 } else { 3 })).await;
        figures.row("idle", start, &manager, &members).await;

        let old = roll(&members, "large").await;
        let start = Instant::now();
        for (member, before) in members.iter().zip(&old) {
            within("all VMs to be new", async || is_rolled(member, before, machines).await).await;
        }
        figures.row("rolled, one machine at a time in each", start, &manager, &members).await;

        members[0].way.cut(true);
        let away = &members[0].scene;
        within("the pool to say so", async || {
            let pool = away.find("mcmmachinepool", &format!("{}-mp-0", away.name))?;
            condition(&pool, "WorkloadClusterConnected").starts_with("False").then_some(())
        })
        .await;
        figures.skip(&manager, &members).await;
        let of_away = away.vms().await;
        let old = roll(&members, "small").await;
        let start = Instant::now();
        for (member, before) in members.iter().zip(&old).skip(1) {
            within("all VMs of the others to be new", async || is_rolled(member, before, machines).await).await;
        }
        figures.row("rolled again, with one API server away", start, &manager, &members).await;
        let still: BTreeSet<String> = away.vms().await.into_values().flatten().collect();
        let lost: Vec<_> = of_away.values().flatten().filter(|id| !still.contains(*id)).collect();
        assert!(lost.is_empty(), "nothing is known of its Nodes, so no VM goes: {lost:?}");

        members[0].way.cut(false);
        let start = Instant::now();
        within("the one to be rolled, too", async || is_rolled(&members[0], &old[0], machines).await).await;
        figures.row("the one is back, until it is rolled, too", start, &manager, &members).await;

        let (peak, per_cluster) = (manager.peak(), full.saturating_sub(empty) / clusters);
        figures.print(&format!("{clusters} Clusters with a pool of {machines} each, in one manager"));
        let memory = |what: &str, kib: usize| vec![what.to_owned(), format!("{:.1} MiB", kib as f64 / 1024.0)];
        print(
            "Its memory",
            &["", "resident"],
            vec![
                memory("without Clusters", empty),
                memory("with all of them", full),
                memory("for each Cluster", per_cluster),
                memory("peak", peak),
            ],
        );
        for member in &members {
            member.scene.kubectl(&["delete", "cluster", &member.scene.name, "--wait=false"]);
        }
        for member in &members {
            within("all VMs to be gone", async || member.scene.vms().await.is_empty().then_some(())).await;
        }
        manager.program.assert_runs();
    });
}

async fn within<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    wait::until_within(LIMIT, what, ask).await
}

/// A namespace with a unique kubeconfig: its address and its token are of this Cluster alone.
async fn member(world: &'static World, name: &str) -> Member {
    let workload = world.workload.client();
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "default"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": role, "subjects": [subject],
        }),
    ] {
        objects::apply(&workload, &object).await;
    }
    let way = Way::to(identity::server(world.workload.kubeconfig())).await;
    let kubeconfig: PathBuf =
        identity::kubeconfig(&workload, world.workload.kubeconfig(), "default", name, world.folder()).await;
    identity::change(&kubeconfig, "/clusters/0/cluster/server", json!(format!("https://{}", way.address)));
    let scene = Scene::new(world, name).await;
    let value = json!({"data": {"value": k8s_openapi::ByteString(std::fs::read(&kubeconfig).unwrap())}});
    let secret = format!("{name}-kubeconfig");
    scene.kubectl(&["patch", "secret", &secret, "--type=merge", "-p", &value.to_string()]);
    Member { scene, way }
}

/// Replaces the VMs of all pools. Returns the names of the old VMs.
async fn roll(members: &[Member], size: &str) -> Vec<BTreeSet<String>> {
    let mut old = Vec::new();
    for Member { scene, .. } in members {
        old.push(scene.vms().await.into_keys().collect());
        let change = json!({"spec": {"machineClass": {"providerSpec": {"instanceType": size}}}}).to_string();
        let pool = format!("{}-mp-0", scene.name);
        scene.kubectl(&["patch", "mcmmachinepool", &pool, "--type=merge", "-p", &change]);
    }
    old
}

async fn is_rolled(member: &Member, before: &BTreeSet<String>, machines: usize) -> Option<()> {
    let now: BTreeSet<String> = member.scene.vms().await.into_keys().collect();
    (now.len() == machines && now.is_disjoint(before)).then_some(())?;
    member.scene.has_pool_of(machines)
}

impl Manager {
    async fn start(world: &'static World) -> Self {
        let folder = world.folder();
        let (client, admin) = (world.management.client(), world.management.kubeconfig().to_owned());
        let kubeconfig = identity::kubeconfig(&client, &admin, NAMESPACE, "capmcm-manager", folder).await;
        let (health, diagnostics) = (free_port(), free_port());
        let arguments = [
            "capi-manager".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--simulated-cloud={}", world.cloud.url),
            format!("--health-addr=127.0.0.1:{health}"),
            format!("--diagnostics-address=127.0.0.1:{diagnostics}"),
            "--insecure-diagnostics".to_owned(),
            // Calls are counted by API server.
            "--machine-series=always".to_owned(),
        ];
        let environment = vec![("POD_NAMESPACE".to_owned(), NAMESPACE.to_owned())];
        let log = folder.join("provider.log");
        let mut program = Program::start_in(environment, mcm(), arguments.to_vec(), log);
        let ready = format!("http://127.0.0.1:{health}/readyz");
        wait::until("the manager to be ready", async || {
            program.assert_runs();
            reqwest::get(&ready).await.ok()?.status().is_success().then_some(())
        })
        .await;
        let (metrics, server) =
            (format!("http://127.0.0.1:{diagnostics}/metrics"), identity::server(&kubeconfig).to_string());
        Self { program, metrics, server }
    }

    /// Resident, in KiB.
    fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    fn peak(&self) -> usize {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The number of its calls, by the address of the API server.
    async fn calls(&self) -> BTreeMap<String, f64> {
        let text = reqwest::get(&self.metrics).await.unwrap().text().await.unwrap();
        assert!(!secrets::are_in(&text), "a planted secret is in the metrics");
        let mut calls = BTreeMap::<String, f64>::new();
        for line in text.lines().filter(|line| line.starts_with("rest_client_requests_total{")) {
            let host = line.split("host=\"").nth(1).unwrap().split('"').next().unwrap();
            let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            *calls.entry(host.to_owned()).or_default() += count;
        }
        calls
    }
}

/// Duration of each part of the test.
struct Figures {
    rows: Vec<Vec<String>>,
    before: BTreeMap<String, f64>,
}

impl Figures {
    async fn start(manager: &Manager) -> Self {
        Self { rows: Vec::new(), before: manager.calls().await }
    }

    async fn row(&mut self, what: &str, start: Instant, manager: &Manager, members: &[Member]) {
        let took = seconds(start);
        let (to_workload, to_management) = self.new_calls(manager, members).await;
        let each = |calls: f64| format!("{:.1}", calls / members.len() as f64);
        self.rows.push(vec![what.to_owned(), took, each(to_management), each(to_workload)]);
    }

    /// The calls until now belong to no row.
    async fn skip(&mut self, manager: &Manager, members: &[Member]) {
        self.new_calls(manager, members).await;
    }

    async fn new_calls(&mut self, manager: &Manager, members: &[Member]) -> (f64, f64) {
        let now = manager.calls().await;
        let new = |host: &String| {
            let before = self.before.get(host).copied().unwrap_or_default();
            now.get(host).copied().unwrap_or_default() - before
        };
        let to_workload = members.iter().map(|member| new(&member.way.address.to_string())).sum();
        let to_management = new(&manager.server);
        self.before = now;
        (to_workload, to_management)
    }

    fn print(self, title: &str) {
        let head = ["", "time", "calls to the management cluster, per Cluster", "calls to its own, per Cluster"];
        print(title, &head, self.rows);
    }
}
