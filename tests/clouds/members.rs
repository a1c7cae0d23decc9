//! The members of a load balancer, compared with VMs and MCMMachines while the manager is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use mcm_conversion::types::MCMMachine;
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    load_balancer::{Balanced, Call, Change, last},
    support::wait,
};

/// Longer than a manager takes to follow another one that was killed, and than a VM takes to be created; only a failure waits this
/// long.
pub const LIMIT: Duration = Duration::from_secs(600);

/// The record of all events of MCMMachines.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub events: usize,
    /// Fewest members since the load balancer had so many as were asked for.
    pub fewest: Option<usize>,
    /// Members without a VM, provisioned machines that are no members, and VMs that ended as members.
    pub faults: BTreeSet<String>,
}

/// Compares members, VMs and machines at each event of an MCMMachine.
pub struct Recorder {
    cloud: Arc<dyn Balanced>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Records from now on.
    pub async fn start(client: Client, namespace: &str, cloud: Arc<dyn Balanced>, members: usize) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let machines = Api::namespaced(client, namespace);
        let (is_listed, listed) = oneshot::channel();
        let (at, of) = (Arc::clone(&seen), Arc::clone(&cloud));
        let task = tokio::spawn(async move { follow(&machines, &*of, members, &at, is_listed).await });
        listed.await.unwrap();
        Self { cloud, seen, task }
    }

    /// All that was seen.
    pub fn stop(self) -> Seen {
        self.task.abort();
        let mut seen = self.seen.lock().clone();
        seen.faults.extend(ended_as_members(&self.cloud.changes()));
        seen
    }
}

async fn follow(
    machines: &Api<MCMMachine>,
    cloud: &dyn Balanced,
    members: usize,
    seen: &Mutex<Seen>,
    is_listed: oneshot::Sender<()>,
) {
    let mut is_listed = Some(is_listed);
    let mut events = watcher::watcher(machines.clone(), watcher::Config::default()).default_backoff().boxed();
    let mut known = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Err(_) => continue,
            Ok(Event::Init) => known = BTreeMap::new(),
            Ok(Event::InitApply(machine) | Event::Apply(machine)) => {
                known.insert(machine.name_any(), machine);
            }
            Ok(Event::InitDone) => drop(is_listed.take().map(|sender| sender.send(()))),
            Ok(Event::Delete(machine)) => drop(known.remove(&machine.name_any())),
        }
        let (faults, count) = look(machines, &known, cloud).await;
        let mut seen = seen.lock();
        seen.events += 1;
        seen.faults.extend(faults);
        if count >= members || seen.fewest.is_some() {
            seen.fewest = Some(seen.fewest.map_or(count, |fewest| fewest.min(count)));
        }
    }
}

/// The present faults, and the number of members.
async fn look(
    machines: &Api<MCMMachine>,
    known: &BTreeMap<String, MCMMachine>,
    cloud: &dyn Balanced,
) -> (Vec<String>, usize) {
    // A VM is created before it is registered, and deregistered before it ends.
    let before = cloud.living().await;
    let members = cloud.members().await;
    let after = cloud.living().await;
    let is_living = |vm: &&String| before.contains(*vm) || after.contains(*vm);
    let gone = members.iter().filter(|vm| !is_living(vm)).map(|vm| format!("{vm} is a member and no VM"));
    let mut faults: Vec<String> = gone.collect();
    for (name, machine) in known.iter().filter(|(_, machine)| is_in_service(machine)) {
        let vm = last(&machine.spec.provider_id);
        // It may be deleted by now: a deletion is never undone.
        let is_still =
            async || machines.get_opt(name).await.is_ok_and(|now| now.is_some_and(|now| is_in_service(&now)));
        if !members.contains(vm) && is_still().await {
            faults.push(format!("{name} is provisioned, and its VM {vm} is no member"));
        }
    }
    (faults, members.len())
}

/// It is provisioned, and is not being deleted.
fn is_in_service(machine: &MCMMachine) -> bool {
    let status = machine.status.as_ref();
    let is_provisioned = status.is_some_and(|status| status.initialization.provisioned == Some(true));
    let is_control_plane = machine.labels().contains_key("cluster.x-k8s.io/control-plane");
    is_provisioned && is_control_plane && machine.metadata.deletion_timestamp.is_none()
}

/// VMs that ended while they were members.
fn ended_as_members(changes: &[Change]) -> Vec<String> {
    let mut members = BTreeSet::new();
    let mut ended = Vec::new();
    for change in changes {
        match change {
            Change::Registered(vm) => drop(members.insert(vm)),
            Change::Deregistered(vm) => drop(members.remove(vm)),
            Change::Ended(vm) if members.contains(vm) => ended.push(format!("{vm} ended as a member")),
            Change::Ended(_) => {}
        }
    }
    ended
}

/// Lets something happen, and waits until the next such call of the manager for it gets no answer. Then the manager is to be
/// killed.
pub async fn until_unanswered(cloud: &dyn Balanced, (call, is_carried_out): (Call, bool), happens: impl AsyncFnOnce()) {
    let before = cloud.unanswered();
    cloud.silence(call, is_carried_out);
    happens().await;
    let what = format!("a VM to {call:?}");
    wait::until_within(LIMIT, &what, async || (cloud.unanswered() > before).then_some(())).await;
}

#[test]
fn a_vm_that_ends_as_a_member_is_found() {
    let vm = || "i-1".to_owned();
    let (registered, deregistered, ended) = (Change::Registered(vm()), Change::Deregistered(vm()), Change::Ended(vm()));
    assert_eq!(ended_as_members(&[registered.clone(), ended.clone(), deregistered.clone()]), ["i-1 ended as a member"]);
    assert_eq!(ended_as_members(&[registered, deregistered, ended]), [""; 0]);
}
