//! Responses to probes and scrapers, and the end of the process.

use std::{
    fs,
    io::ErrorKind,
    net::{Ipv4Addr, TcpListener},
    time::{Duration, Instant},
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::support::{
    program::{Program, free_port, mcm},
    wait,
    world::{Manager, World},
};

/// `terminationGracePeriodSeconds` of the pod that gardenlet makes.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

#[tokio::test]
async fn probes_metrics_and_an_end_in_good_order() {
    let world = World::new("endpoints").await;
    let mut manager = world.launch_run(&[]).ready().await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;

    assert_eq!(manager.get("/healthz").await, (200, "OK".to_owned()));
    let (status, config) = manager.get("/configz").await;
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!((status, &config["mcm"]["flags"]["machine-drain-timeout"]), (200, &json!("2h0m0s")), "{config}");
    let waiters = wait::until("no object to wait", async || {
        let (status, waiters) = manager.get(&format!("/explain?namespace={}", world.namespace)).await;
        let waiters: serde_json::Value = serde_json::from_str(&waiters).unwrap();
        (status == 200 && waiters["total"] == 0).then_some(waiters)
    })
    .await;
    assert_eq!(waiters["leads"], json!(["machine-controller", "machine-controller-manager"]), "{waiters}");
    let machine = world.scene.now().machines.keys().next().unwrap().clone();
    let (status, one) = manager.get(&format!("/explain/machine/{}/{machine}", world.namespace)).await;
    let one: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!((status, &one["object"]["name"]), (200, &json!(machine)), "{one}");
    assert_eq!(manager.get("/readyz").await.0, 200);
    let (status, metrics) = manager.get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "mcm_machine_items_total 2".to_owned(),
        r#"mcm_leader{cell="",role="machine-controller"} 1"#.to_owned(),
        "mcm_machine_set_items_total 1".to_owned(),
        "mcm_machine_deployment_items_total 1".to_owned(),
        format!(r#"mcm_machine_deployment_info_spec_replicas{{name="pool",namespace="{}"}} 2"#, world.namespace),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    for family in ["mcm_cloud_api_driver_request_duration_seconds_count", "mcm_build_info{version="] {
        assert!(metrics.lines().any(|line| line.starts_with(family)), "{family} is not in\n{metrics}");
    }
    for secret in ["#cloud-config", "BOOTSTRAP_TOKEN"] {
        assert!(!metrics.contains(secret) && !manager.program.log().contains(secret), "{secret} was disclosed");
    }

    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let holders = async || -> Vec<(String, String)> {
        let leases = leases.list(&ListParams::default()).await.unwrap().items;
        let holder = |lease: Lease| Some((lease.metadata.name?, lease.spec?.holder_identity.unwrap_or_default()));
        leases.into_iter().filter_map(holder).collect()
    };
    let held = holders().await;
    assert!(!held.is_empty() && held.iter().all(|(_, holder)| !holder.is_empty()), "{held:?}");
    manager.program.terminate();
    assert_eq!(manager.program.ended().await.code(), Some(0));
    let released = holders().await;
    assert!(released.iter().all(|(_, holder)| holder.is_empty()), "{released:?}");
    world.assert_vms_match().await;
}

/// `tests/charts/gardener.rs` runs it with the credentials of a pod of Gardener.
#[rstest::rstest]
#[case::without_a_kubeconfig(false)]
#[case::with_a_kubeconfig(true)]
#[tokio::test]
async fn a_presence_responds_to_probes_and_scrapes_and_asks_no_api_server(#[case] has_kubeconfig: bool) {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    server.set_nonblocking(true).unwrap();
    let kubeconfig = folder.path().join("config");
    if has_kubeconfig {
        let url = format!("http://{}", server.local_addr().unwrap());
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": url}}],
            "users": [{"name": "it", "user": {"token": "of-a-test"}}],
        });
        fs::write(&kubeconfig, config.to_string()).unwrap();
    }
    let environment: Vec<(String, String)> = vec![
        ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
        ("HOME".to_owned(), "/nonexistent".to_owned()),
    ];
    let port = free_port();
    let arguments = vec!["presence".to_owned(), "--address=127.0.0.1".to_owned(), format!("--port={port}")];
    let program = Program::start_in(environment, mcm(), arguments, folder.path().join("presence.log"));
    let mut presence = Manager { program, url: format!("http://127.0.0.1:{port}") }.ready().await;

    for path in ["/healthz", "/readyz"] {
        assert_eq!(presence.get(path).await, (200, "OK".to_owned()), "{path}");
    }
    let (status, metrics) = presence.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.lines().any(|line| line.starts_with("mcm_build_info{version=")), "{metrics}");
    assert!(!metrics.contains("mcm_leader"), "{metrics}");

    presence.program.terminate();
    let told = Instant::now();
    assert_eq!(presence.program.ended().await.code(), Some(0));
    let took = told.elapsed();
    assert!(took < GRACE_PERIOD, "it ended after {took:?}");
    assert_eq!(server.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "it has connected to the API server");
}
