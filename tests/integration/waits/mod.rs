//! Each kind of wait on a real control plane: `mcm why` names the object, the start and the end of the wait, and remedies.
//! Remedies that are commands are run.

pub mod ask;
pub mod kinds;
mod provoke;

use std::{collections::BTreeSet, panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt, future::join_all, join};
use http::{Method, StatusCode};

use self::{
    ask::{Tools, check},
    kinds::{CLASS_UNKNOWN, IN_LOG, NODE_CLAIM, PRODUCED, Place, UNREADABLE, WITH_CORE, WITHOUT_MANAGER},
    provoke::{prepare, provoke},
};
use crate::support::{
    attach_detach::{AttachDetach, Latency},
    control_plane::ControlPlane,
    door::{Call, Door},
    wait,
    world::{Manager, World},
};

#[test]
fn each_kind_of_wait_is_produced() {
    let here = PRODUCED.iter().chain([&CLASS_UNKNOWN, &NODE_CLAIM, &UNREADABLE]).map(|case| case.kind);
    let listed: Vec<&str> = here.chain(WITH_CORE.map(|(kind, _)| kind)).chain([IN_LOG.0, WITHOUT_MANAGER.0]).collect();
    let names: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(names.len(), listed.len(), "a kind is listed twice");
    let page = include_str!("../../../docs/waits.md");
    let all: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(names, all);
    let (kind, test) = WITHOUT_MANAGER;
    let without = include_str!("../why.rs");
    assert!(without.contains(&format!("Some(\"{kind}\")")) && without.contains(&format!("fn {test}()")), "{test}");
    let with_core = include_str!("../../clusterctl/explained.rs");
    for (kind, test) in WITH_CORE {
        let is_compared = with_core.contains(&format!("json!(\"{kind}\")"));
        assert!(is_compared && with_core.contains(&format!("fn {test}()")), "{test} does not produce {kind}");
    }
}

#[tokio::test]
async fn each_kind_of_wait_is_named_and_its_commands_work() {
    let (usual, without_target, cut_off) = join!(Stage::usual(), Stage::without_target(), Stage::to_cut_off());
    prepare(&usual.world).await;
    let tools = Tools::find();
    let _volumes = AttachDetach::start(&usual.world, SLOW, &["w-volume-detachment".to_owned()], "w-elsewhere");

    let of_all = PRODUCED.iter().map(async |case| {
        let stage = match case.place {
            Place::Usual => &usual,
            Place::WithoutTarget => &without_target,
            Place::CutOff => &cut_off,
        };
        let tried = async {
            provoke(stage, case.kind).await;
            check(&stage.world, &stage.manager, &tools, case).await;
        };
        // Each of the others is tried also after a failure.
        AssertUnwindSafe(tried).catch_unwind().await.err().map(|_| case.kind)
    });
    let failed: Vec<&str> = join_all(of_all).await.into_iter().flatten().collect();
    assert_eq!(failed, [""; 0], "kinds whose panics are above");
    let log = || usual.manager.program.log();
    wait::until(IN_LOG.0, async || log().contains(IN_LOG.1).then_some(())).await;
}

/// A namespace with a manager, and the way to its target cluster. The manager ends first.
pub struct Stage {
    manager: Manager,
    door: Door,
    world: World,
}

impl Stage {
    /// A manager to which the API server of its target cluster refuses some calls.
    async fn usual() -> Self {
        let mut world = World::new("waits").await;
        world.may_be_refused = true;
        let door = world.door_to(ControlPlane::shared().await).await;
        door.refuse(refused);
        // A count of machines would unfreeze the set that a user froze.
        let manager = world.run(&["--machine-safety-overshooting-period=1h"]).await;
        Self { manager, door, world }
    }

    /// A manager without a target cluster.
    async fn without_target() -> Self {
        let world = World::patient("waits-no-target").await;
        let door = world.door_to(ControlPlane::shared().await).await;
        let control = format!("--control-kubeconfig={}", world.identity().control.display());
        let namespace = format!("--namespace={}", world.namespace);
        let flags = [&control, &namespace, "--target-kubeconfig=none", "--leader-elect=false", &world.cloud_flag()];
        let manager = world.launch_bare("run", &flags).ready().await;
        Self { manager, door, world }
    }

    /// A manager that soon notices when an API server fails.
    async fn to_cut_off() -> Self {
        let world = World::patient("waits-cut-off").await;
        let door = world.door_to(ControlPlane::shared().await).await;
        let probes = ["timeout", "period"].map(|what| format!("--machine-safety-apiserver-statuscheck-{what}=1s"));
        let manager = world.run(&probes.each_ref().map(String::as_str)).await;
        Self { manager, door, world }
    }

    /// From now on the API server of the target cluster fails, and the manager has noticed it.
    async fn cut_off(&self) {
        self.door.refuse(|_| Some(StatusCode::INTERNAL_SERVER_ERROR));
        wait::until("the manager to freeze machines", async || {
            let (_, metrics) = self.manager.get("/metrics").await;
            metrics.lines().any(|line| line == "mcm_machine_controller_frozen 1").then_some(())
        })
        .await;
    }
}

/// A volume is detached at once, and is not attached elsewhere while the test runs.
const SLOW: Latency =
    Latency { termination: Duration::ZERO, detach: Duration::ZERO, attach: Duration::from_secs(3600) };

/// The calls that the API server of the target cluster refuses.
fn refused(call: &Call) -> Option<StatusCode> {
    let Call { method, path, query, .. } = call;
    let is = |wanted: Method, start: &str| *method == wanted && path.starts_with(start);
    let names = |name: &str| query.contains(name);
    match path.as_str() {
        _ if is(Method::PATCH, "/api/v1/nodes/w-node-write") => Some(StatusCode::INTERNAL_SERVER_ERROR),
        _ if is(Method::PATCH, "/api/v1/nodes/w-node-refused") => Some(StatusCode::FORBIDDEN),
        _ if is(Method::GET, "/api/v1/nodes/w-nodes-unknown") => Some(StatusCode::FORBIDDEN),
        _ if is(Method::POST, "/api/v1/namespaces/kube-system/secrets") => Some(StatusCode::FORBIDDEN),
        "/api/v1/pods" if names("w-pod-list") => Some(StatusCode::FORBIDDEN),
        path if path.ends_with("/persistentvolumeclaims") && names("w-volumes-unknown") => Some(StatusCode::FORBIDDEN),
        _ => None,
    }
}
