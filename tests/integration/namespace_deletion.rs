//! The control namespace is deleted with everything in it, Leases and Machines.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::support::{
    control_plane::ControlPlane,
    objects, wait,
    world::{Manager, World},
};

const ELECTION: [&str; 3] =
    ["--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=500ms"];

/// The namespace controller retries after growing pauses.
const LIMIT: Duration = Duration::from_secs(180);

/// VMs need longer than a leader can do without its Lease. The rights of a ServiceAccount would go with the namespace, so
/// the manager has those of an administrator.
#[rstest::rstest]
#[case::while_the_manager_runs(false)]
#[case::while_the_manager_is_killed_and_started_again(true)]
#[tokio::test]
async fn the_deletion_of_the_control_namespace_ends(#[case] is_killed: bool) {
    let control = ControlPlane::apart_with(&["--with", "kube-controller-manager"]).await.unwrap();
    let control = control.install().await.unwrap();
    let mut world = World::apart(&control, "deleted").await;
    world.may_be_refused = true;
    let mut manager = launch(&world).ready().await;
    let standby = launch(&world).ready().await;
    world.classes().await;
    let latency = json!({"metadata": {"name": "small"}, "providerSpec": {"deleteLatency": "15s"}});
    world.class_api().patch("small", &PatchParams::default(), &Patch::Merge(latency)).await.unwrap();
    world.apply(objects::deployment("pool", 3)).await;
    world.settled(3, "small").await;

    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces.delete(&world.namespace, &DeleteParams::default()).await.unwrap();
    if is_killed {
        drop(standby);
        world
            .until("the VMs to be deleted", |scene| {
                scene.machines.len() == 3
                    && scene.machines.values().all(|machine| machine.metadata.deletion_timestamp.is_some())
            })
            .await;
        manager.program.restart_after_kill();
    }
    wait::until_within(LIMIT, "the namespace to be gone", async || {
        namespaces.get_opt(&world.namespace).await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(world.cloud.count("/alive").await, 0, "VMs left");
}

fn launch(world: &World) -> Manager {
    let admin = world.admin().display();
    let flags = [
        format!("--control-kubeconfig={admin}"),
        format!("--target-kubeconfig={admin}"),
        format!("--namespace={}", world.namespace),
        world.cloud_flag(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(ELECTION).collect();
    world.launch_bare("run", &flags)
}
