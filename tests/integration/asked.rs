//! `mcm plan` and `mcm why` ask the manager through the proxy of the API server: for its flags, and for what it remembers.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    support::{
        plans::plan,
        pods::{self, pod},
        program::asked_port,
        wait,
        world::World,
    },
    why::why,
};

/// The port of a manager that holds both Leases.
const PORT: u16 = 10_258;

/// An address of this computer to which the API server connects: it refuses loopback addresses, so the computer needs another. No
/// packet is sent.
fn address() -> IpAddr {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).unwrap();
    socket.local_addr().unwrap().ip()
}

/// The pod of the manager that holds the Lease, at an address.
async fn run_pod(world: &World, address: IpAddr) -> String {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let lease = leases.get("machine-controller-manager").await.unwrap();
    let holder = lease.spec.unwrap().holder_identity.unwrap();
    let name = holder.rsplit_once('_').unwrap().0.to_owned();
    pods::run(&world.client, &world.namespace, pod(&name, "elsewhere")).await;
    let status = Patch::Merge(json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}}));
    pods::api(&world.client, &world.namespace).patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    name
}

#[tokio::test]
async fn the_pod_of_the_manager_is_asked_through_the_api_server() {
    let world = World::new("asked").await;
    let (_port, address) = (asked_port(PORT).await, address());
    let flags = [format!("--address={address}"), format!("--port={PORT}"), "--machine-drain-timeout=45m".to_owned()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--explain-to-all"]).collect();
    let mut manager = world.launch_run(&flags);
    manager.url = format!("http://{address}:{PORT}");
    let _manager = manager.ready().await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let change = ["pool", "--set", "template.spec.class.name=large"].map(str::to_owned);
    let (_, before) = plan(&world, &change).await;
    let source = before["flags"].as_str().unwrap();
    assert!(source.starts_with("the defaults, because no manager answered"), "there is no pod yet: {before}");

    let pod = run_pod(&world, address).await;
    let (code, answer) = plan(&world, &change).await;
    assert_eq!((code, &answer["flags"]), (0, &json!(format!("those of {pod}"))), "{answer}");
    let bound = |answer: &serde_json::Value| answer["objects"][0]["duration"]["bound"].as_str().unwrap().to_owned();
    assert!(bound(&answer).ends_with("drainTimeout 45m"), "{answer}");
    assert!(bound(&before).ends_with("drainTimeout 2h"), "{before}");

    let fault = json!({"operation": "create", "code": "Internal", "message": "no host has room", "count": 1000});
    world.cloud.control(json!({"faults": [fault]})).await;
    world.scale(2).await;
    let document = wait::until("the manager to say how often it planned a machine", async || {
        let (_, document) = why(&world, world.admin(), &["pool"]).await;
        let machine = &document["objects"][0]["machines"][0];
        (machine["waits"][0]["plans"].as_u64() >= Some(1)).then_some(document)
    })
    .await;
    assert_eq!((&document["asked"], &document["notes"]), (&json!([pod]), &json!([])), "{document}");
    let wait = &document["objects"][0]["machines"][0]["waits"][0];
    assert!(wait["since"].is_string() && wait["text"].as_str().unwrap().contains("no host has room"), "{document}");
    world.cloud.control(json!({"faults": []})).await;
    world.settled(2, "small").await;
}

/// Two managers on one computer: the one at the default port serves another namespace.
#[tokio::test]
async fn a_manager_at_the_default_port_is_asked_about_its_namespace_alone() {
    let (first, second) = (World::new("asked-first").await, World::new("asked-second").await);
    let _port = asked_port(PORT).await;
    let mut manager = first.launch_run(&[&format!("--port={PORT}"), "--machine-drain-timeout=45m"]);
    manager.url = format!("http://127.0.0.1:{PORT}");
    let _managers = [manager.ready().await, second.launch_run(&["--machine-drain-timeout=33m"]).ready().await];
    let change = ["pool", "--set", "template.spec.class.name=large"].map(str::to_owned);
    for (world, is_asked) in [(&first, true), (&second, false)] {
        world.pool(1, json!({})).await;
        world.settled(1, "small").await;
        let (code, answer) = plan(world, &change).await;
        let (source, bound) = (&answer["flags"], answer["objects"][0]["duration"]["bound"].as_str().unwrap());
        let source = source.as_str().unwrap();
        assert_eq!((code, source.starts_with("the defaults, because no manager answered")), (0, !is_asked), "{answer}");
        assert!(bound.ends_with(if is_asked { "drainTimeout 45m" } else { "drainTimeout 2h" }), "{answer}");
        let (_, document) = why(world, world.admin(), &["pool"]).await;
        assert_eq!(document["asked"].as_array().unwrap().len(), usize::from(is_asked), "{document}");
        let is_noted = !document["notes"].as_array().unwrap().is_empty();
        assert_eq!(is_noted, !is_asked, "a note says which manager was not asked: {document}");
    }
}
