//! One loop for all VMs. It reads a VM when that has changed or when something is due, and has at most one call under way
//! for each.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use tokio::{sync::Semaphore, task::JoinSet, time::sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    plan::{self, Memory, MutableNodeStatus, NodeAction, NodeRules},
    target::{NodeClient, RegistrationOutcome},
};
use crate::{cloud::CloudSimulator, record::after};
use mcm_api::backoff::Backoff;
use mcm_driver::cloud::causes;

/// Calls to the API server at a time; each in flight is a connection.
const CONCURRENCY: usize = 32;
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// Keeps the Nodes of a cloud's VMs in a cluster, until it is stopped.
pub async fn keep_nodes(cloud: Arc<CloudSimulator>, client: Client, stop: CancellationToken) {
    let since = cloud.clock.now();
    let slots = Arc::new(Semaphore::new(CONCURRENCY));
    let mut keeper = NodeKeeper {
        target: NodeClient::new(client),
        slots,
        nodes: HashMap::new(),
        due: BTreeSet::new(),
        tasks: JoinSet::new(),
        cloud,
    };
    keeper.look_at_changed(since);
    loop {
        let next_due = keeper.due.first().map(|(at, _)| keeper.cloud.clock.instant(*at));
        tokio::select! {
            () = stop.cancelled() => return,
            () = keeper.cloud.changed() => keeper.look_at_changed(since),
            Some(done) = keeper.tasks.join_next() => match done {
                Ok((id, outcome)) => keeper.finish(id, outcome, since),
                Err(error) => tracing::error!(%error, "a task of a simulated kubelet failed; its Node is no longer \
                                                       updated"),
            },
            () = async { sleep_until(next_due.unwrap_or_else(tokio::time::Instant::now)).await }, if next_due.is_some() => {
                keeper.look_at_due(since);
            }
        }
    }
}

struct NodeKeeper {
    cloud: Arc<CloudSimulator>,
    target: NodeClient,
    slots: Arc<Semaphore>,
    nodes: HashMap<String, KeptNode>,
    due: BTreeSet<(Timestamp, String)>,
    tasks: JoinSet<(String, NodeCallOutcome)>,
}

#[derive(Default)]
struct KeptNode {
    memory: Memory,
    /// A call is in flight; the VM is handled again when it ends.
    busy: bool,
    due: Option<Timestamp>,
}

/// How a call went.
enum NodeCallOutcome {
    /// This was written to the Node.
    Written(MutableNodeStatus),
    /// The heartbeat of this time was written, with these conditions if there are any.
    Beaten(Timestamp, Option<MutableNodeStatus>),
    Marked,
    /// Nothing more to do now.
    Settled,
    /// The name is taken.
    Occupied,
    Failed(kube::Error),
}

impl NodeKeeper {
    fn look_at_changed(&mut self, since: Timestamp) {
        let rules = self.rules(since);
        for id in self.cloud.take_changed() {
            self.look_at(&id, &rules);
        }
    }

    fn look_at_due(&mut self, since: Timestamp) {
        let (rules, now) = (self.rules(since), self.cloud.clock.now());
        while let Some((at, id)) = self.due.first().cloned().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id.clone()));
            self.look_at(&id, &rules);
        }
    }

    fn finish(&mut self, id: String, outcome: NodeCallOutcome, since: Timestamp) {
        let now = self.cloud.clock.now();
        if let Some(kept) = self.nodes.get_mut(&id) {
            kept.busy = false;
            kept.memory.learn(&id, outcome, now);
        }
        let rules = self.rules(since);
        self.look_at(&id, &rules);
    }

    fn look_at(&mut self, id: &str, rules: &NodeRules) {
        let kept = self.nodes.entry(id.to_owned()).or_default();
        if kept.busy {
            return;
        }
        if let Some(at) = kept.due.take() {
            self.due.remove(&(at, id.to_owned()));
        }
        match plan::next(self.cloud.node_view(id), &kept.memory, rules, self.cloud.clock.now()) {
            NodeAction::Forget => {
                self.nodes.remove(id);
            }
            NodeAction::Wait(until) => {
                kept.due = until;
                self.due.extend(until.map(|at| (at, id.to_owned())));
            }
            next => {
                kept.busy = true;
                let call = apply(Arc::clone(&self.cloud), self.target.clone(), id.to_owned(), next);
                let (id, slots) = (id.to_owned(), Arc::clone(&self.slots));
                self.tasks.spawn(async move {
                    let _slot = slots.acquire().await;
                    (id, call.await.unwrap_or_else(NodeCallOutcome::Failed))
                });
            }
        }
    }

    fn rules(&self, since: Timestamp) -> NodeRules {
        let (nodes, never_join) = self.cloud.node_rules();
        NodeRules { nodes, never_join, since }
    }
}

async fn apply(
    cloud: Arc<CloudSimulator>,
    target: NodeClient,
    id: String,
    next: NodeAction,
) -> Result<NodeCallOutcome, kube::Error> {
    let now = cloud.clock.now();
    match next {
        NodeAction::Register(vm) => {
            if !cloud.node_asked(&id) {
                return Ok(NodeCallOutcome::Settled);
            }
            match target.register(&vm, now).await? {
                RegistrationOutcome::Occupied => Ok(NodeCallOutcome::Occupied),
                RegistrationOutcome::Done(uid) => {
                    cloud.node_registered(&id, &uid);
                    Ok(NodeCallOutcome::Written(MutableNodeStatus::from_vm(&vm)))
                }
            }
        }
        NodeAction::Update(vm) => {
            if !target.update(&vm, now).await? {
                cloud.node_lost(&id);
            }
            Ok(NodeCallOutcome::Written(MutableNodeStatus::from_vm(&vm)))
        }
        NodeAction::Beat(vm, with_status) => {
            target.renew(&vm, now).await?;
            if with_status && !target.update(&vm, now).await? {
                cloud.node_lost(&id);
            }
            Ok(NodeCallOutcome::Beaten(now, with_status.then(|| MutableNodeStatus::from_vm(&vm))))
        }
        NodeAction::MarkDead(name) => target.mark_dead(&name, now).await.map(|_| NodeCallOutcome::Marked),
        NodeAction::Remove(departed, with_lease) => {
            let removed = target.remove(&departed, with_lease).await?;
            cloud.node_removed(&id, removed);
            Ok(NodeCallOutcome::Settled)
        }
        NodeAction::Wait(_) | NodeAction::Forget => Ok(NodeCallOutcome::Settled),
    }
}

impl Memory {
    fn learn(&mut self, id: &str, outcome: NodeCallOutcome, now: Timestamp) {
        match outcome {
            NodeCallOutcome::Occupied => {
                self.retry_at = Some(after(now, RETRY.pause(0)));
                return;
            }
            NodeCallOutcome::Failed(error) => {
                let wait = RETRY.pause(self.failures);
                let error = text_of(&error);
                tracing::warn!(vm = id, error, "request for the Node of a simulated VM failed, retrying in {wait:?}");
                self.retry_at = Some(after(now, wait));
                self.failures = self.failures.saturating_add(1);
                return;
            }
            NodeCallOutcome::Written(written) => self.written = Some(written),
            NodeCallOutcome::Beaten(at, written) => {
                self.last_beat = Some(at);
                self.beats += 1;
                self.written = written.or_else(|| self.written.take());
            }
            NodeCallOutcome::Marked => self.marked = true,
            NodeCallOutcome::Settled => {}
        }
        (self.retry_at, self.failures) = (None, 0);
    }
}

/// Of an API server's error only the message, because the rest repeats it.
fn text_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => causes(error),
    }
}
