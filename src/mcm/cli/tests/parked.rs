//! The commands that read, in a shoot whose Deployment has 0 replicas, while the holder of its Leases renews them.

use jiff::Timestamp;
use rstest::rstest;
use serde_json::json;
use tempfile::TempDir;

use super::{
    super::exit::CommandExit,
    readers::ClusterState,
    rights::{run, serve},
    situations::joined,
    stage::{NAMESPACE, PoolStage, meta, play, pool},
};
use mcm_controllers::{MACHINES, SETS};
use mcm_driver::tls::use_ring;
use mcm_fake_api::{DEPLOYMENTS, Kind, LEASES, NAMESPACES, WORKLOADS};
use mcm_runtime::engaged::switch::{DEPLOYMENT, ROLE_OF_SHOOT};

/// A replica of a fleet, which is a member by the Lease that its name contains.
const MEMBER: &str = "mcm-fleet-0@kube-system/mcm-fleet-default-0000000a_0123456789abcdef0123456789abcdef";
const GO: &str = "machine-controller-manager-6d5f4_2f1c9e3a-7b1d-4c59-9a52-0d7e5f3c1b11";
/// The first words that name the state.
const OFF: &str =
    "waits for the Deployment demo/machine-controller-manager to have replicas: with 0 the namespace is parked";

/// A pool that was scaled up after its Deployment was scaled to 0. The commands read the clock of this computer, and the Leases are
/// valid for a day.
fn state(holder: &str) -> ClusterState {
    play(async || {
        let stage = PoolStage::new(false);
        stage.start_manager();
        stage.control.create(&DEPLOYMENTS, pool(2)).unwrap();
        stage.settle().await;
        stage.kill_manager();
        stage.patch(&DEPLOYMENTS, "pool", &json!({ "spec": { "replicas": 3 } }));
        let (label, value) = ROLE_OF_SHOOT;
        stage.patch(&NAMESPACES, NAMESPACE, &json!({ "metadata": { "labels": { (label): value } } }));
        let spec = json!({ "replicas": 0, "selector": {}, "template": {} });
        stage.control.create(&WORKLOADS, json!({ "metadata": meta(DEPLOYMENT), "spec": spec })).unwrap();
        let (valid, renewed) = (86_400, format!("{:.6}", Timestamp::now()));
        for role in [SETS, MACHINES] {
            let claim = json!({ "spec": { "holderIdentity": holder, "leaseDurationSeconds": valid } });
            stage.patch(&LEASES, role.lease, &claim);
        }
        let membership = json!({
            "metadata": { "name": "mcm-fleet-default-0000000a", "namespace": "kube-system" },
            "spec": { "holderIdentity": MEMBER, "leaseDurationSeconds": valid, "renewTime": renewed },
        });
        stage.control.create(&LEASES, membership).unwrap();
        stage.state()
    })
}

/// Exit codes and texts of commands, for a user without the right to read a kind.
fn answers<const N: usize>(holder: &str, unread: Option<&'static Kind>, lines: [&str; N]) -> [(u8, String); N] {
    use_ring();
    let (state, folder) = (state(holder), TempDir::new().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (_server, kubeconfig) = runtime.block_on(serve(folder.path(), &state, unread));
    lines.map(|line| runtime.block_on(run(line, &kubeconfig)))
}

#[test]
fn all_commands_name_the_deployment_that_parks_a_shoot_of_a_fleet() {
    let lines = ["mcm why pool", "mcm why", "mcm tree", "mcm plan pool", "mcm check"];
    let [why, all, tree, plan, check] = answers(MEMBER, None, lines);
    for (line, (_, text)) in lines.iter().zip([&why, &all, &tree, &plan, &check]) {
        assert!(joined(text).contains(OFF), "{line}:\n{text}");
        assert!(
            joined(text).contains("kubectl scale deployment machine-controller-manager -n demo"),
            "{line}:\n{text}"
        );
    }
    assert_eq!((why.0, all.0), (CommandExit::No as u8, CommandExit::No as u8), "{}\n{}", why.1, all.1);
    let manager = "holds both Leases, and renews them; the namespace is parked";
    assert!(joined(&all.1).contains(manager), "{}", all.1);
    let first = tree.1.lines().nth(1).unwrap();
    assert!(first.starts_with(&format!("note: the manager {OFF}: kubectl scale ")), "{}", tree.1);
    assert_eq!(tree.1.matches("note: the manager waits").count(), 1, "{}", tree.1);
}

/// A Go program ends with its Deployment. Without the right the switch is unknown, and no error.
#[rstest]
#[case::a_go_program(GO, None)]
#[case::the_deployment_may_not_be_read(MEMBER, Some(&WORKLOADS))]
#[case::the_namespace_may_not_be_read(MEMBER, Some(&NAMESPACES))]
fn otherwise_a_manager_that_renews_its_leases_acts(#[case] holder: &str, #[case] unread: Option<&'static Kind>) {
    let [why, tree] = answers(holder, unread, ["mcm why pool", "mcm tree"]);
    assert_ne!(why.0, CommandExit::No as u8, "{}", why.1);
    for (_, text) in [&why, &tree] {
        assert!(!text.contains("parked"), "{text}");
    }
    assert!(joined(&why.1).contains("holds the Lease machine-controller-manager"), "{}", why.1);
}
