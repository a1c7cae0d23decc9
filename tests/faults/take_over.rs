//! The Go programs and ours take over from each other at any moment, whole or in halves.

use std::{collections::BTreeSet, fmt, ops::Range, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use mcm::api::{labels, machine::Machine};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    miscounts::Miscounts,
    run::{Bound, Run, number},
    stage::{Stage, go_programs},
    support::{control_plane::ControlPlane, pods, scene::Scene, world::Manager},
};

const IN_PLACE: usize = 3;
const FEW: usize = 3;

/// The working program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Ours,
    OursInHalves,
    Go,
    GoSets,
    GoMachines,
}

const ALL: [Who; 5] = [Who::Ours, Who::OursInHalves, Who::Go, Who::GoSets, Who::GoMachines];

impl Who {
    /// The roles of the Go programs: that of sets, and that of machines.
    fn go_roles(self) -> [bool; 2] {
        [matches!(self, Self::Go | Self::GoSets), matches!(self, Self::Go | Self::GoMachines)]
    }

    /// A role passes from ours to the Go programs.
    fn hands_to_go(self, next: Self) -> bool {
        self.go_roles().into_iter().zip(next.go_roles()).any(|(before, after)| !before && after)
    }
}

/// The operation that continues when another program takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Create,
    Shrink,
    Drain,
    Roll,
    InPlace,
    Frozen,
    /// Nothing at all.
    Rest,
}

const WHATS: [What; 7] = [What::Create, What::Drain, What::Roll, What::InPlace, What::Frozen, What::Shrink, What::Rest];

struct Pool {
    machines: usize,
    class: &'static str,
    version: usize,
    made: usize,
}

/// Each swap kills or stops the running programs at a random moment of an operation and starts others. Every operation
/// creates as many VMs as it would without a swap. The Go program creates and deletes machines by mistake when its
/// cache is stale, even without a swap (docs/compatibility.md): those are counted, and so many VMs more are accepted.
#[tokio::test]
async fn no_vm_is_made_or_deleted_because_of_a_swap() {
    let run = Run::start("take_over");
    let machines = run.count("machines", 20, 6);
    // In each direction.
    let moments = run.count("moments", 30, 5);
    let mut dice = run.dice();
    let Some(reference) = go_programs() else {
        panic!("MCM_REFERENCE names no folder with the Go programs: use hack/faults")
    };
    let control = ControlPlane::shared().await;
    let mut stage = Stage::set(run, control, control, &[]).await;
    stage.world.environment = vec![("SIMULATED_CLOUD".to_owned(), stage.world.cloud.url.clone())];
    stage.limit = stage.run.seconds("limit", 600.0, 120.0);
    // Not all that the Go programs try is granted.
    stage.world.may_be_refused = true;
    let miscounts = Miscounts::of("pool", &stage.world);
    let mut tasks = JoinSet::new();
    tasks.spawn(end_pods(pods::api(&stage.world.target, &stage.world.namespace)));
    tasks.spawn(update_nodes(Api::all(stage.world.target.clone()), stage.world.machines()));

    let mut who = Who::Ours;
    let mut managers = start(&stage, who, &reference);
    stage.classes(json!({"providerSpec": {"createLatency": "1s", "bootLatency": "1s", "deleteLatency": "1s"}})).await;
    let rolling = json!({"rollingUpdate": {"maxSurge": "20%", "maxUnavailable": "20%"}});
    stage.deployment("pool", machines, json!({"spec": {"strategy": rolling}})).await;
    let amounts = json!({"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto"});
    let in_place = json!({"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": amounts});
    let change = json!({"spec": {"strategy": in_place, "template": version(0)}});
    stage.deployment("in-place", IN_PLACE, change).await;
    let mut pool = Pool { machines, class: "small", version: 0, made: machines + IN_PLACE };
    settled(&stage, &pool).await;

    let (mut swaps, mut to_go, mut to_ours, mut miscounted) = (0, 0, 0, 0);
    let mut broken = Vec::new();
    while to_go < moments || to_ours < moments {
        let what = WHATS[swaps % WHATS.len()];
        swaps += 1;
        let (before, counted_before) = (stage.recorder.made(), miscounts.count());
        begin(&stage, &mut pool, what, &mut dice).await;
        let wait = Duration::from_millis(dice.random_range(what.moments()));
        // Not a wait for a state: the moment shall be any.
        sleep(wait).await;
        let others: Vec<Who> = ALL.into_iter().filter(|other| *other != who).collect();
        let next = *others.choose(&mut dice).unwrap();
        let is_killed = dice.random_bool(0.5);
        let swap = format!("{swaps}: {what:?}, {who:?} -> {next:?} after {wait:?}, {}", how(is_killed));
        stage.run.say(&swap);
        for manager in &mut managers {
            stop(manager, is_killed).await;
        }
        managers = start(&stage, next, &reference);
        to_go += usize::from(who.hands_to_go(next));
        to_ours += usize::from(next.hands_to_go(who));
        let took = settled(&stage, &pool).await;
        let made = stage.recorder.made();
        stage.run.say(format!("{swaps} settled after {took:.1?}, {} VMs made", made - before));
        let has_go = [who, next].iter().any(|one| one.go_roles()[0]);
        let of_drain = if what == What::Drain { FEW } else { 0 };
        let by_go = if has_go { (miscounts.count() - counted_before).saturating_sub(of_drain) } else { 0 };
        // One that is deleted soon enough has no VM.
        if !(pool.made..=pool.made + by_go).contains(&made) {
            broken.push(format!("{swap}: {made} VMs made so far, expected {} and {by_go}", pool.made));
        }
        miscounted += by_go;
        pool.made = made;
        who = next;
    }
    stage.run.measured("creations and deletions by the Go programs that no set wanted", number(miscounted), "");
    stage.run.measured("swaps", number(swaps), "");
    stage.run.measured("swaps with a role handed to the Go programs", number(to_go), "");
    stage.run.measured("swaps with a role handed to ours", number(to_ours), "");
    stage.run.none("swaps with other VMs than expected", &broken);
    for manager in &mut managers {
        stop(manager, true).await;
    }
    let managers = start(&stage, Who::Ours, &reference);
    for deployment in ["pool", "in-place"] {
        stage.world.deployments().delete(deployment, &DeleteParams::background()).await.unwrap();
    }
    stage.until("all machines to be gone", |scene| scene.machines.is_empty()).await;
    let alive = stage.world.cloud.count("/alive").await;
    stage.run.check("VMs left", alive as f64, "", Bound::Exactly(0.0));
    let made = pool.made;
    stage.close(Some(made), &managers.iter().collect::<Vec<_>>()).await;
}

impl What {
    /// Milliseconds until others take over.
    fn moments(self) -> Range<u64> {
        match self {
            Self::Create | Self::Shrink | Self::Rest => 0..5_000,
            Self::Drain | Self::InPlace | Self::Frozen => 0..12_000,
            Self::Roll => 0..20_000,
        }
    }
}

/// Begins an operation, and records its expected result.
async fn begin(stage: &Stage, pool: &mut Pool, what: What, dice: &mut StdRng) {
    let world = &stage.world;
    match what {
        What::Rest => {}
        What::Create => {
            pool.machines += FEW;
            pool.made += FEW;
            stage.scale(pool.machines).await;
        }
        What::Shrink => {
            pool.machines -= 2 * FEW;
            stage.scale(pool.machines).await;
        }
        What::Drain => {
            let names: Vec<String> = of("pool", &world.scene.now()).map(ResourceExt::name_any).collect();
            let chosen: Vec<String> = names.choose_multiple(dice, FEW).cloned().collect();
            for name in &chosen {
                for at in 0..2 {
                    let pod = pods::pod(&format!("{name}-{at}"), name);
                    pods::run(&world.target, &world.namespace, pod).await;
                }
            }
            for name in chosen {
                world.machines().delete(&name, &DeleteParams::default()).await.unwrap();
            }
            pool.made += FEW;
        }
        What::Roll => {
            pool.class = if pool.class == "small" { "large" } else { "small" };
            pool.made += pool.machines;
            world.roll(pool.class).await;
        }
        What::InPlace => {
            pool.version += 1;
            let patch = Patch::Merge(json!({"spec": {"template": version(pool.version)}}));
            world.deployments().patch("in-place", &PatchParams::default(), &patch).await.unwrap();
        }
        What::Frozen => {
            let set = {
                let scene = world.scene.now();
                let is_current = |name: &&String| {
                    name.starts_with("pool") && scene.sets[*name].spec.template.spec.class.name == pool.class
                };
                scene.sets.keys().find(is_current).cloned().unwrap()
            };
            let freeze = json!({"metadata": {"labels": {"freeze": "True"}}});
            world.sets().patch(&set, &PatchParams::default(), &Patch::Merge(freeze)).await.unwrap();
            pool.machines += FEW;
            pool.made += FEW;
            stage.scale(pool.machines).await;
        }
    }
}

/// The change of an in-place update. Not a label: after the Go program moved machines to a set with another label, its
/// next update creates one machine too many (docs/compatibility.md).
fn version(number: usize) -> Value {
    json!({"metadata": {"annotations": {"version": format!("v{number}")}}})
}

/// Waits until both deployments have the desired machines.
async fn settled(stage: &Stage, pool: &Pool) -> Duration {
    let version = version(pool.version);
    stage
        .until("both pools to be settled", |scene| {
            let serves = |machine: &&Machine| machine.is_available() && machine.metadata.deletion_timestamp.is_none();
            let rolled = of("pool", scene).filter(serves).filter(|it| it.spec.class.name == pool.class).count();
            let is_new = |machine: &&Machine| {
                let owners = machine.metadata.owner_references.iter().flatten();
                let mut sets = owners.filter_map(|owner| scene.sets.get(&owner.name));
                sets.any(|set| {
                    json!(set)["spec"]["template"]["metadata"]["annotations"] == version["metadata"]["annotations"]
                })
            };
            let updated = of("in-place", scene).filter(serves).filter(is_new).count();
            rolled == pool.machines
                && updated == IN_PLACE
                && scene.machines.len() == pool.machines + IN_PLACE
                && is_complete(scene, "pool", pool.machines)
                && is_complete(scene, "in-place", IN_PLACE)
        })
        .await
}

fn of<'a>(deployment: &'a str, scene: &'a Scene) -> impl Iterator<Item = &'a Machine> {
    scene.machines.values().filter(move |machine| machine.labels().get("name").is_some_and(|name| name == deployment))
}

fn is_complete(scene: &Scene, name: &str, count: usize) -> bool {
    let Some(deployment) = scene.deployments.get(name) else { return false };
    let status = deployment.status.clone().unwrap_or_default();
    let count = i32::try_from(count).unwrap();
    deployment.metadata.generation == Some(status.observed_generation)
        && [status.replicas, status.updated_replicas, status.available_replicas] == [count; 3]
}

fn how(is_killed: bool) -> impl fmt::Display {
    if is_killed { "killed" } else { "stopped" }
}

/// Ends a program: at once, or as a kubelet does.
pub async fn stop(manager: &mut Manager, is_killed: bool) {
    if is_killed {
        manager.program.kill();
    } else {
        manager.program.terminate();
        manager.program.ended().await;
    }
}

/// Starts the programs; without leader election, because only one of each kind runs at a time.
fn start(stage: &Stage, who: Who, reference: &std::path::Path) -> Vec<Manager> {
    let world = &stage.world;
    let cloud = world.cloud_flag();
    let common = ["--leader-elect=false"];
    let sets = [&common[..], &["--machine-safety-overshooting-period=10s"]].concat();
    let go = |program: &str, flags: &[&str]| {
        world.launch_as(&reference.join(program), &[], &format!("go-{program}.log"), flags)
    };
    let our_machines = || world.launch("machine-controller", &[&common[..], &[cloud.as_str()]].concat());
    let our_sets = || world.launch("machine-controller-manager", &sets);
    let go_machines = || go("machine-controller", &common);
    let go_sets = || go("machine-controller-manager", &sets);
    match who {
        Who::Ours => vec![world.launch_run(&sets)],
        Who::OursInHalves => vec![our_sets(), our_machines()],
        Who::Go => vec![go_sets(), go_machines()],
        Who::GoSets => vec![go_sets(), our_machines()],
        Who::GoMachines => vec![our_sets(), go_machines()],
    }
}

/// A kubelet: terminating pods are deleted after a second.
async fn end_pods(pods: Api<Pod>) {
    let mut events = watcher(pods.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut seen = BTreeSet::new();
    let mut ends = JoinSet::new();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        if pod.metadata.deletion_timestamp.is_none() || !seen.insert(pod.uid()) {
            continue;
        }
        let pods = pods.clone();
        ends.spawn(async move {
            sleep(Duration::from_secs(1)).await;
            let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        });
    }
}

/// The agent on each Node: it begins when its Node is ready, takes a second, and reports success; and Gardener, which
/// removes the taint when its components run.
async fn update_nodes(nodes: Api<Node>, machines: Api<Machine>) {
    let mut events = watcher(nodes.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(node) = event else { continue };
        let name = node.name_any();
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let kept: Vec<_> =
            taints.clone().filter(|taint| !taint.key.contains("critical-components-not-ready")).collect();
        if kept.len() < taints.clone().count() && matches!(machines.get_opt(&name).await, Ok(Some(_))) {
            let patch = json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": kept}});
            // Another client may have changed the Node: then it is patched again.
            let _ = nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        }
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|condition| {
            condition.type_ == "InPlaceUpdate" && condition.reason.as_deref() == Some("ReadyForUpdate")
        });
        if !is_ready || node.labels().contains_key(labels::UPDATE_RESULT) {
            continue;
        }
        if matches!(machines.get_opt(&name).await, Ok(Some(_))) {
            let patch = json!({"metadata": {"labels": {labels::UPDATE_RESULT: labels::SUCCESSFUL}}});
            let _ = nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        }
    }
}
