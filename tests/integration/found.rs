//! One process for the control planes that it finds: in a folder, or as gardenlet lays them out in a seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, api::DeleteParams};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    clouds,
    control_plane::ControlPlane,
    gardenlet::{KUBECONFIG, ROLE, ShootLayout, TOKEN_FILE},
    identity, objects,
    program::mcm,
    wait,
    world::{Manager, World},
};

/// The account of the targets of `World`.
const ACCOUNT: &str = "target";
const SYSTEM: &str = "mcm-system";
const FLEET_ACCOUNT: &str = "mcm-fleet";

async fn start(worlds: &[&World], flags: &[String]) -> Manager {
    let cloud_of = |world: &&World| (world.namespace.clone(), world.cloud.url.clone());
    let clouds = clouds::behind_one_address(worlds.iter().map(cloud_of)).await;
    let cloud = format!("--simulated-cloud={clouds}");
    // Each test has a fleet for itself.
    let fleet = [format!("--fleet-name={}", worlds[0].namespace), "--fleet-namespace=mcm-system".to_owned()];
    let flags: Vec<&str> = flags.iter().chain(&fleet).chain([&cloud]).map(String::as_str).collect();
    worlds[0].launch_bare("run", &flags).ready().await
}

/// Waits for a line of the log with all of these texts.
async fn logged(manager: &Manager, texts: &[&str]) {
    wait::until(&format!("a line with {texts:?}"), async || {
        let is_it = |line: &str| texts.iter().all(|text| line.contains(text));
        manager.program.log().lines().any(is_it).then_some(())
    })
    .await;
}

/// How often the cell of a world was started.
fn starts(manager: &Manager, world: &World) -> usize {
    let is_start = |line: &&str| line.contains("cell started") && line.contains(&world.namespace);
    manager.program.log().lines().filter(is_start).count()
}

fn target_kubeconfig(world: &World) -> PathBuf {
    world.folder().join(format!("{ACCOUNT}.kubeconfig"))
}

#[tokio::test]
async fn control_planes_of_a_folder_come_and_go_while_others_go_on() {
    let shared = ControlPlane::shared().await;
    let first = World::between(shared, shared, "folder-a", &[]).await;
    let second = World::between(shared, shared, "folder-b", &[]).await;
    for world in [&first, &second] {
        world.pool(2, json!({})).await;
    }
    shared.ensure_namespace(SYSTEM).await;
    let folder = first.folder().join("planes");
    fs::create_dir(&folder).unwrap();
    let file = |world: &World| folder.join(&world.namespace);
    fs::copy(target_kubeconfig(&first), file(&first)).unwrap();
    fs::write(folder.join("broken"), "users: [").unwrap();
    let flags =
        [format!("--fleet=folder={}", folder.display()), format!("--control-kubeconfig={}", first.admin().display())];
    let manager = start(&[&first, &second], &flags).await;
    first.pool_serves(2, "small").await;
    logged(&manager, &["control plane cannot be used", "broken"]).await;
    assert!(second.scene.now().machines.is_empty(), "it is not in the folder");

    // A folder with a token beside the kubeconfig.
    let mut kubeconfig: Value =
        serde_yaml_ng::from_str(&fs::read_to_string(target_kubeconfig(&second)).unwrap()).unwrap();
    let user = std::mem::replace(&mut kubeconfig["users"][0]["user"], json!({ "tokenFile": TOKEN_FILE }));
    let writing = folder.join(".writing");
    fs::create_dir(&writing).unwrap();
    fs::write(writing.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    fs::write(writing.join("token"), user["token"].as_str().unwrap()).unwrap();
    fs::rename(&writing, file(&second)).unwrap();
    second.pool_serves(2, "small").await;

    // One that is broken later keeps its cell; one that is removed is let go of.
    fs::write(file(&first), "users: [").unwrap();
    logged(&manager, &["control plane cannot be used", &first.namespace]).await;
    first.roll("large").await;
    first.pool_serves(2, "large").await;
    fs::remove_dir_all(file(&second)).unwrap();
    logged(&manager, &["cell stopped", &second.namespace]).await;
    second.scale(4).await;
    first.scale(3).await;
    first.pool_serves(3, "large").await;
    assert_eq!(second.scene.now().machines.len(), 2);
    assert_eq!((starts(&manager, &first), starts(&manager, &second)), (1, 1));
}

#[tokio::test]
async fn shoots_of_a_seed_are_found_parked_woken_and_get_new_tokens() {
    let shared = ControlPlane::shared().await;
    let mut worlds = Vec::new();
    for name in ["awake", "asleep", "rotated", "broken", "excluded"] {
        worlds.push(World::between(shared, shared, &format!("shoot--{name}"), &[]).await);
    }
    let [awake, asleep, rotated, broken, excluded] = &worlds[..] else { panic!("five worlds") };
    shared.ensure_namespace(SYSTEM).await;
    let documents = serde_yaml_ng::Deserializer::from_str(include_str!("../../config/fleet/rbac.yaml"));
    for object in documents {
        objects::apply(&awake.client, &Value::deserialize(object).unwrap()).await;
    }
    for world in &worlds {
        let is_excluded = std::ptr::eq(world, excluded);
        label(world, &awake.namespace, is_excluded).await;
        admit(world).await;
        layout(world).write_access().await;
        layout(world).scale_manager(u32::from(!std::ptr::eq(world, asleep))).await;
        world.pool(2, json!({})).await;
    }
    let outside = layout(broken).generic_kubeconfig(Some("https://169.254.169.254"));
    layout(broken).write_secret(KUBECONFIG, json!({"kubeconfig": outside})).await;

    let fleet = identity::kubeconfig(&awake.client, awake.admin(), SYSTEM, FLEET_ACCOUNT, awake.folder()).await;
    let flags = [
        "--fleet=gardener".to_owned(),
        format!("--fleet-selector=example.com/fleet={},!example.com/excluded", awake.namespace),
        format!("--control-kubeconfig={}", fleet.display()),
    ];
    let all: Vec<&World> = worlds.iter().collect();
    let manager = start(&all, &flags).await;
    awake.pool_serves(2, "small").await;
    rotated.pool_serves(2, "small").await;
    logged(&manager, &["control plane cannot be used", &broken.namespace, "address of this process"]).await;
    for world in [asleep, broken, excluded] {
        assert!(world.scene.now().machines.is_empty(), "{}", world.namespace);
    }

    // Lists all namespaces of a server that tests share.
    let fleet_view = async || {
        let selector = format!("--selector=example.com/fleet={}", awake.namespace);
        let kubeconfig = format!("--kubeconfig={}", awake.admin().display());
        let output =
            Command::new(mcm()).args(["fleet", &selector, &kubeconfig, "--output=json"]).output().await.unwrap();
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        let planes = shown["planes"].as_array().unwrap().clone();
        let named = |plane: Value| (plane["namespace"].as_str().unwrap().to_owned(), plane);
        (output.status.code(), planes.into_iter().map(named).collect::<BTreeMap<String, Value>>())
    };
    let (code, planes) = fleet_view().await;
    assert_eq!(code, Some(3), "one has no manager");
    assert_eq!(planes[&awake.namespace]["state"], "Led", "{planes:?}");
    assert_eq!(planes[&awake.namespace]["machines"], json!({"total": 2, "running": 2}));
    assert_eq!(planes[&asleep.namespace]["state"], "Parked");
    assert_eq!(planes[&broken.namespace]["state"], "Unled");

    // It wakes up and goes to sleep again.
    layout(asleep).scale_manager(1).await;
    logged(&manager, &["the namespace is no longer parked", &asleep.namespace]).await;
    asleep.pool_serves(2, "small").await;
    layout(asleep).scale_manager(0).await;
    logged(&manager, &["the namespace is parked", &asleep.namespace]).await;
    let before = asleep.scene.now().uids();
    asleep.roll("large").await;
    awake.roll("large").await;
    awake.pool_serves(2, "large").await;
    assert_eq!(asleep.scene.now().uids(), before);

    // The token of a target ends with its account.
    let accounts: Api<ServiceAccount> = Api::namespaced(rotated.target.clone(), &rotated.namespace);
    accounts.delete(ACCOUNT, &DeleteParams::default()).await.unwrap();
    let metadata = json!({"name": ACCOUNT, "namespace": rotated.namespace});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    objects::apply(&rotated.target, &account).await;
    identity::kubeconfig(&rotated.target, rotated.admin(), &rotated.namespace, ACCOUNT, rotated.folder()).await;
    layout(rotated).write_access().await;
    logged(&manager, &["credentials of the target replaced", &rotated.namespace]).await;
    rotated.roll("large").await;
    rotated.pool_serves(2, "large").await;

    // One is mended, and one loses its Deployment.
    layout(broken).write_access().await;
    broken.pool_serves(2, "small").await;
    layout(awake).remove_manager().await;
    logged(&manager, &["cell stopped", &awake.namespace]).await;
    let restarted: BTreeSet<&str> =
        worlds.iter().filter(|world| starts(&manager, world) > 1).map(|world| world.namespace.as_str()).collect();
    assert_eq!(restarted, BTreeSet::new());
    assert!(excluded.scene.now().machines.is_empty());
    for world in &worlds {
        world.assert_vms_match().await;
    }

    // No Namespace has the labels of another fleet yet, which is no trouble.
    let flags = [
        "--fleet=gardener".to_owned(),
        format!("--fleet-selector=example.com/fleet=no-{}", awake.namespace),
        format!("--control-kubeconfig={}", fleet.display()),
    ];
    let empty = start(&[excluded], &flags).await;
    let labels = format!("gardener.cloud/role=shoot,example.com/fleet=no-{}", awake.namespace);
    logged(&empty, &["INFO", "no control planes yet", &labels]).await;
}

fn layout(world: &World) -> ShootLayout {
    ShootLayout::new(&world.client, &world.namespace, &target_kubeconfig(world))
}

async fn label(world: &World, fleet: &str, is_excluded: bool) {
    let (role, shoot) = ROLE;
    let mut labels = json!({role: shoot, "example.com/fleet": fleet});
    if is_excluded {
        labels["example.com/excluded"] = json!("true");
    }
    layout(world).label(labels).await;
}

/// Gives the account of the fleet the rights in a namespace.
async fn admit(world: &World) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": FLEET_ACCOUNT, "namespace": world.namespace},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": identity::ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": FLEET_ACCOUNT, "namespace": SYSTEM}],
    });
    objects::apply(&world.client, &binding).await;
}
