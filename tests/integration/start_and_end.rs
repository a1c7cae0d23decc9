//! Clusters that do not answer when a process starts, an end at any moment, and changes of its environment meanwhile.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, api::DeleteParams};
use serde_json::json;

use crate::support::{
    control_plane::ControlPlane,
    door::{self, Call, Door, Which},
    identity,
    line::Line,
    objects,
    program::free_port,
    wait,
    world::World,
};

/// A pod has 30 s to end.
const END: Duration = Duration::from_secs(25);
const EARLY: Duration = Duration::from_secs(2);
/// Longer than any wait that is abandoned.
const AWAY: Duration = Duration::from_secs(15);
/// How long new credentials may take to be used.
const RELOAD: Duration = Duration::from_secs(150);

fn nodes(call: &Call) -> bool {
    call.path == "/api/v1/nodes"
}

#[rstest::rstest]
#[case::while_its_caches_fill(nodes, &[])]
#[case::while_its_caches_fill_without_election(nodes, &["--leader-elect=false"])]
#[case::while_the_target_does_not_answer(door::anything, &[])]
#[tokio::test]
async fn a_process_that_waits_for_the_target_ends_when_it_is_told_to(
    #[case] unanswered: Which,
    #[case] flags: &[&str],
) {
    let world = World::new("sigterm").await;
    let door = world.door_to(ControlPlane::shared().await).await;
    door.ignore(unanswered, usize::MAX);
    let mut manager = world.launch_run(flags);
    wait::until("the target to be asked", async || (door.ignored() > 0).then_some(())).await;
    // Not a wait for a state: a process that takes a lease too early has it by then.
    tokio::time::sleep(EARLY).await;

    manager.program.terminate();
    let told = Instant::now();
    let status = manager.program.ended().await;
    let took = told.elapsed();
    assert!(took < END, "it ended after {took:?}");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_target_that_is_away_at_the_start_is_waited_for() {
    let world = World::patient("late-target").await;
    let address = (Ipv4Addr::LOCALHOST, free_port());
    let url = format!("http://{}:{}", address.0, address.1);
    identity::change(&world.identity().target, "/clusters/0/cluster/server", url.into());
    let mut manager = world.launch_run(&[]);
    // Not a wait for a state: it shall be patient.
    tokio::time::sleep(AWAY).await;
    manager.program.assert_runs();

    let _door = Door::at(address.into(), ControlPlane::shared().await).await;
    manager.until_ready().await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
}

#[tokio::test]
async fn a_new_client_certificate_is_used_without_a_restart() {
    let target = ControlPlane::second().await;
    let mut world = World::between(ControlPlane::shared().await, target, "certificate", &[]).await;
    world.may_be_refused = true;
    let users = ["first", "second"].map(|name| format!("{name}-{}", world.namespace));
    for user in &users {
        may_do_anything(&world, user).await;
    }
    let [first, second] = users.each_ref().map(|user| target.certificate(user, world.folder()));
    let used = world.folder().join("used.crt");
    std::fs::copy(&first.certificate, &used).unwrap();
    std::fs::copy(&first.key, used.with_extension("key")).unwrap();
    let credentials = json!({"client-certificate": used, "client-key": used.with_extension("key")});
    identity::change(&world.identity().target, "/users/0/user", credentials);
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;

    std::fs::rename(&second.key, used.with_extension("key")).unwrap();
    std::fs::rename(&second.certificate, &used).unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(world.target.clone());
    bindings.delete(&users[0], &DeleteParams::default()).await.unwrap();
    world.scale(2).await;
    world.scene.find("two machines that serve", RELOAD, |scene| scene.settled(2, "small").then_some(())).await;
}

async fn may_do_anything(world: &World, user: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    objects::apply(&world.target, &binding).await;
}

#[tokio::test]
async fn a_proxy_is_not_used_for_servers_that_the_environment_excepts() {
    let Some(own) = own_address() else {
        println!("this host has no address but loopback, for which a proxy is never used");
        return;
    };
    let mut world = World::new("no-proxy").await;
    let asked = Arc::<AtomicUsize>::default();
    let proxy = useless_proxy(Arc::clone(&asked));
    world.environment = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"]
        .map(|name| (name.to_owned(), proxy.clone()))
        .into_iter()
        .chain(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), format!("example.com,{own}"))))
        .collect();
    let line = Line::at(own, identity::server(&world.identity().control)).await;
    for kubeconfig in [&world.identity().control, &world.identity().target] {
        identity::change(kubeconfig, "/clusters/0/cluster/server", format!("https://{}", line.address).into());
        identity::change(kubeconfig, "/clusters/0/cluster/tls-server-name", "localhost".into());
    }
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "calls that went to the proxy");
}

/// The address under which others reach this host. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

/// Counts connections and closes them.
fn useless_proxy(asked: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            asked.fetch_add(1, Ordering::SeqCst);
        }
    });
    url
}
