//! Three processes that share the control planes of a cluster: one is killed, one is stopped for half a minute, one is cut off from the
//! control cluster, one ends. None writes where another has the claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    process::Stdio,
    time::{Duration, Instant},
};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::{process::Command, time::timeout};

use crate::support::{
    fleet::{
        FleetPlanes, FleetServer, SYSTEM,
        ownership::{ActPlace, CLAIMS},
    },
    program::mcm,
    wait,
    world::{Manager, World},
};

/// So many that the random names of three replicas leave none of them without a share.
const NAMESPACES: usize = 27;
const MACHINES: u32 = 2;
/// Rollouts in all namespaces, beside other tests.
const ROLLOUTS: Duration = Duration::from_secs(400);
/// Longer than another replica takes to lead all namespaces of one that died, which is 13 s on a quiet machine. The claims of the
/// dead one, which it renewed at most 300 s before, last 900 s: only its expulsion frees them earlier.
const SUCCESSION: Duration = Duration::from_secs(300);
/// The time without a change of holders after which no claim is handed over any more.
const UNCHANGED: Duration = Duration::from_secs(15);
/// The time in which writes of Leases are counted.
const COUNTED: Duration = Duration::from_secs(20);
/// Claims are taken at about the same time, and all of them are renewed 300 s later.
const WRITES_OF_A_CLAIM: usize = 1;
/// A member renews its Lease every 5 s. Two more writes may be at the ends of the time.
const WRITES_OF_A_MEMBER: usize = COUNTED.as_secs() as usize / 5 + 2;
const EXPELLED: &str = "have expelled this process";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_control_planes_and_succeed_each_other_without_losing_or_doubling_a_vm() {
    let _slot = World::slot().await;
    let server = FleetServer::start().await;
    let mut planes = FleetPlanes::new(&server, "replicas", NAMESPACES, MACHINES).await;
    let mut killed = planes.launch(&server).await;
    let mut stopped = planes.launch(&server).await;
    let mut ending = planes.launch(&server).await;
    serve(&planes, 2, "small").await;
    shared_by(&planes, 3).await;
    wait::until("the metrics of the replicas to show that they share all namespaces", async || {
        let replicas = [&killed, &stopped, &ending].map(|replica| &replica.manager);
        let members = sum_of(&replicas, &format!(r#"mcm_fleet_members{{fleet="{}"}} "#, planes.name)).await;
        let led = sum_of(&replicas, r#"mcm_fleet_namespaces{state="led"} "#).await;
        (members == 9.0 && led == NAMESPACES as f64).then_some(())
    })
    .await;
    until_unchanged(&planes).await;
    let writes = lease_writes(&planes).await;
    let each_second = writes.values().sum::<usize>() as f64 / COUNTED.as_secs_f64();
    println!("{each_second} writes of Leases a second");
    let is_of_member = |namespace: &str| namespace == SYSTEM;
    for ((namespace, lease), count) in &writes {
        let most = if is_of_member(namespace) { WRITES_OF_A_MEMBER } else { WRITES_OF_A_CLAIM };
        assert!(*count <= most, "{count} writes of the Lease {lease} in namespace {namespace} in {COUNTED:?}");
    }
    assert_eq!(writes.keys().filter(|(namespace, _)| is_of_member(namespace)).count(), 3, "{writes:?}");

    // One is killed in a rollout.
    let of_killed = identity_in(&killed.manager).await;
    planes.change_pools(|_| json!({"spec": {"template": {"spec": {"class": {"name": "large"}}}}})).await;
    killed.manager.program.kill();
    println!("led again after {:?}", succeeded(&planes, &of_killed).await);
    serve(&planes, 2, "large").await;
    planes.assert_vms_match().await;
    killed.start_again().await;
    shared_by(&planes, 3).await;

    // One is stopped while machines are created, and continues half a minute later.
    let of_stopped = identity_in(&stopped.manager).await;
    planes.change_pools(|_| json!({"spec": {"replicas": 4}})).await;
    stopped.manager.program.signal("STOP");
    let begun = Instant::now();
    println!("led again after {:?}", succeeded(&planes, &of_stopped).await);
    serve(&planes, 4, "large").await;
    // Not a wait for a state: the stop has to last.
    tokio::time::sleep(Duration::from_secs(30).saturating_sub(begun.elapsed())).await;
    planes.change_pools(|_| json!({"spec": {"replicas": 3}})).await;
    stopped.resume();
    assert_eq!(stopped.manager.program.ended().await.code(), Some(1), "it was expelled");
    assert!(stopped.manager.program.log().contains(EXPELLED));
    serve(&planes, 3, "large").await;
    planes.assert_vms_match().await;
    stopped.start_again().await;
    shared_by(&planes, 3).await;

    // One is cut off from the control cluster in a rollout. It still reaches the targets and the cloud.
    let of_stopped = identity_in(&stopped.manager).await;
    planes.change_pools(|_| json!({"spec": {"template": {"spec": {"class": {"name": "small"}}}}})).await;
    stopped.ways.cut_control();
    println!("led again after {:?}", succeeded(&planes, &of_stopped).await);
    serve(&planes, 3, "small").await;
    stopped.ways.control.open();
    assert_eq!(stopped.manager.program.ended().await.code(), Some(1), "it was expelled");
    planes.assert_vms_match().await;
    stopped.start_again().await;
    shared_by(&planes, 3).await;

    // One ends in good order.
    let of_ending = identity_in(&ending.manager).await;
    planes.change_pools(|_| json!({"spec": {"replicas": 4}})).await;
    ending.manager.program.terminate();
    assert!(ending.manager.program.ended().await.success());
    println!("led again after {:?}", succeeded(&planes, &of_ending).await);
    shared_by(&planes, 2).await;
    serve(&planes, 4, "small").await;
    planes.assert_vms_match().await;

    // The others end: one by force. Only then its claims can be released, by an operator who knows that it is dead.
    let (code, text) = release(&planes, &["--dead"]).await;
    assert!(code == Some(3) && text.contains("lives: it takes the control plane over by itself"), "{text}");
    let (code, text) = release_unconfirmed(&planes, &["--dead"]).await;
    assert!(code == Some(3) && text.contains("this needs a confirmation"), "before it looks for replicas: {text}");
    stopped.manager.program.terminate();
    assert!(stopped.manager.program.ended().await.success());
    shared_by(&planes, 1).await;
    killed.manager.program.kill();
    let (code, text) = release(&planes, &[]).await;
    assert!(code == Some(3) && text.contains("add --dead"), "{text}");
    let (code, text) = release(&planes, &["--dead", "--dry-run"]).await;
    assert!(code == Some(0) && text.contains("nothing was changed"), "{text}");
    assert_eq!(planes.holders().await.len(), NAMESPACES * CLAIMS.len());
    let (code, text) = release(&planes, &["--dead"]).await;
    assert!(code == Some(0) && text.contains(" have no holder"), "{text}");
    assert_eq!(planes.holders().await.len(), (NAMESPACES - 1) * CLAIMS.len());
    let (code, text) = release(&planes, &[]).await;
    assert!(code == Some(0) && text.contains("there is nothing to release"), "{text}");
    planes.assert_vms_match().await;

    let verdict = planes.judge_before(Timestamp::now(), &[&killed, &stopped, &ending]);
    assert!(verdict.strangers.is_empty(), "acts of a replica without the claim: {:?}", verdict.strangers);
    for place in [ActPlace::Control, ActPlace::Target, ActPlace::Cloud] {
        assert!(verdict.judged.contains_key(&place), "no act was recorded: {:?}", verdict.judged);
    }
}

/// Waits until each pool has so many machines of a class, which all serve.
async fn serve(planes: &FleetPlanes, count: usize, class: &str) {
    wait::until_within(ROLLOUTS, &format!("{count} machines of class {class} in each namespace"), async || {
        let machines = planes.machines().await;
        let serving = machines.iter().filter(|one| one.is_available() && one.spec.class.name == class).count();
        (machines.len() == count * NAMESPACES && serving == machines.len()).then_some(())
    })
    .await;
}

/// Waits until each namespace has one owner, and so many replicas are owners; returns these.
async fn shared_by(planes: &FleetPlanes, replicas: usize) -> BTreeSet<String> {
    wait::until(&format!("{replicas} replicas to share the namespaces"), async || {
        planes.owners().await.filter(|owners| owners.len() == replicas)
    })
    .await
}

/// Waits until others have all claims of a replica; how long it took.
async fn succeeded(planes: &FleetPlanes, holder: &str) -> Duration {
    let begun = Instant::now();
    wait::until_within(SUCCESSION, &format!("the claims of {holder} to be those of others"), async || {
        let holders = planes.holders().await;
        let is_full = holders.len() == NAMESPACES * CLAIMS.len();
        (is_full && !holders.values().any(|other| other == holder)).then_some(())
    })
    .await;
    begun.elapsed()
}

/// Waits until the holders of the claims have been the same for a while.
async fn until_unchanged(planes: &FleetPlanes) {
    let (mut last, mut since) = (planes.holders().await, Instant::now());
    wait::until("no change of the holders of the claims", async || {
        let now = planes.holders().await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() >= UNCHANGED).then_some(())
    })
    .await;
}

/// Counts the writes of each Lease of the fleet for a while, by namespace and name.
async fn lease_writes(planes: &FleetPlanes) -> BTreeMap<(String, String), usize> {
    let leases: Api<Lease> = Api::all(planes.world.client.clone());
    let version = leases.list(&ListParams::default().limit(1)).await.unwrap().metadata.resource_version.unwrap();
    let mut events = pin!(leases.watch(&WatchParams::default(), &version).await.unwrap());
    let mut writes = BTreeMap::<(String, String), usize>::new();
    // Not a wait for a state: events in a time are counted.
    let counting = async {
        while let Some(event) = events.next().await {
            let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event.unwrap() else { continue };
            if planes.has_lease(&lease) {
                *writes.entry((lease.namespace().unwrap_or_default(), lease.name_any())).or_default() += 1;
            }
        }
    };
    timeout(COUNTED, counting).await.unwrap_err();
    writes
}

async fn release(planes: &FleetPlanes, flags: &[&str]) -> (Option<i32>, String) {
    release_unconfirmed(planes, &[&["--yes"], flags].concat()).await
}

async fn release_unconfirmed(planes: &FleetPlanes, flags: &[&str]) -> (Option<i32>, String) {
    let kubeconfig = format!("--kubeconfig={}", planes.world.admin().display());
    let words = ["fleet", "release", &planes.namespaces[0], &kubeconfig];
    let mut command = Command::new(mcm());
    let output = command.args([&words[..], flags].concat()).stdin(Stdio::null()).output().await.unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.code(), text)
}

/// The sum of a series of some processes.
async fn sum_of(managers: &[&Manager], series: &str) -> f64 {
    let mut sum = 0.0;
    for manager in managers {
        let (_, text) = manager.get("/metrics").await;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok());
        sum += value.unwrap_or_default();
    }
    sum
}

/// The replica of a process, by its name in the log.
async fn identity_in(manager: &Manager) -> String {
    wait::until("the process to join", async || {
        let log = manager.program.log();
        let line = log.lines().rev().find(|line| line.contains("joined the fleet"))?.to_owned();
        let text = line.split("identity=").nth(1)?.split_whitespace().next()?.trim_matches('"').to_owned();
        Some(text)
    })
    .await
}
