//! The process under test: the real caches, their real wiring, and passes that are under way. All of it is lost in a crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;

use super::{
    cluster::{Cluster, NAMESPACE},
    passes::{class, deployment, machine, node, set},
};
use crate::{
    api::machine::MachineSet,
    controllers::{
        context::{Caches, Memory, Queues},
        controller::Wake,
        owner, wiring,
    },
    runtime::{cache::Key, objects::WriteFailure, queue::Queue},
};

/// Which controller, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Controller {
    Deployment,
    Set,
    Machine,
    Class,
    Node,
}

/// One object, and who looks after it.
pub(super) type Job = (Controller, Key);

/// A pass that is under way, to be carried on by one action at a time.
pub(super) enum Pass {
    Deployment(deployment::Pass),
    Set(set::Pass),
    Machine(Box<machine::Pass>),
    Class(class::Pass),
    Node(node::Pass),
}

/// Whether a pass goes on.
pub(super) enum Next {
    GoesOn,
    Done(Wake),
    Failed(WriteFailure),
}

pub(super) struct Manager {
    pub caches: Caches,
    queues: Arc<Queues>,
    pub memory: Arc<Memory>,
    /// Holder of each permit of the meltdown guard.
    pub permits: BTreeMap<String, String>,
    pub passes: BTreeMap<Job, Pass>,
    /// Jobs to be looked at as soon as no pass is under way for them.
    pub pending: BTreeSet<Job>,
    /// Nodes that the watch has reported gone.
    pub gone_nodes: BTreeSet<Key>,
    pub wakes: BTreeMap<Job, Timestamp>,
    attempts: BTreeMap<Job, u32>,
}

impl Manager {
    /// Starts with caches that are filled.
    pub(super) fn start(cluster: &mut Cluster) -> Self {
        let (caches, memory) = (Caches::default(), Arc::<Memory>::default());
        let queue = |name| Queue::new(name, Duration::ZERO);
        let queues = Arc::new(Queues {
            deployments: queue("deployments"),
            sets: queue("sets"),
            machines: queue("machines"),
            classes: queue("classes"),
            secrets: queue("secrets"),
            nodes: queue("nodes"),
            gone_nodes: queue("gone nodes"),
        });
        wiring::connect_sets(&caches, &queues, &memory);
        wiring::connect_machines(&caches, &queues, &memory);
        cluster.deployments.list(&caches.deployments);
        cluster.sets.list(&caches.sets);
        cluster.machines.list(&caches.machines);
        cluster.classes.list(&caches.classes);
        cluster.nodes.list(&caches.nodes);
        let mut manager = Self {
            caches,
            queues,
            memory,
            permits: BTreeMap::new(),
            passes: BTreeMap::new(),
            pending: BTreeSet::new(),
            gone_nodes: BTreeSet::new(),
            wakes: BTreeMap::new(),
            attempts: BTreeMap::new(),
        };
        manager.take_wake_ups();
        manager
    }

    /// Takes in whom the caches have woken.
    pub(super) fn take_wake_ups(&mut self) {
        let queues = [
            (Controller::Deployment, &self.queues.deployments),
            (Controller::Set, &self.queues.sets),
            (Controller::Machine, &self.queues.machines),
            (Controller::Class, &self.queues.classes),
            (Controller::Node, &self.queues.nodes),
        ];
        for (controller, queue) in queues {
            self.pending.extend(drained(queue).map(|key| (controller, key)));
        }
        self.gone_nodes.extend(drained(&self.queues.gone_nodes));
    }

    /// Jobs for which a pass may start.
    pub(super) fn startable(&self, now: Timestamp) -> Vec<Job> {
        let due = self.wakes.iter().filter(|(_, at)| **at <= now).map(|(job, _)| job);
        let jobs: BTreeSet<&Job> = self.pending.iter().chain(due).collect();
        jobs.into_iter().filter(|job| !self.passes.contains_key(*job)).cloned().collect()
    }

    pub(super) fn begin(&mut self, job: &Job) {
        self.pending.remove(job);
        self.wakes.remove(job);
        let key = job.1.clone();
        let pass = match job.0 {
            Controller::Deployment => Pass::Deployment(deployment::Pass::of(key)),
            Controller::Set => Pass::Set(set::Pass::of(key)),
            Controller::Machine => match machine::Pass::begin(key, self) {
                Some(pass) => Pass::Machine(Box::new(pass)),
                None => return,
            },
            Controller::Class => Pass::Class(class::Pass::of(key)),
            Controller::Node => Pass::Node(node::Pass::of(key)),
        };
        self.passes.insert(job.clone(), pass);
    }

    /// A pass is over; sees to its next one, as the real controllers do.
    pub(super) fn end(&mut self, job: Job, outcome: &Next, now: Timestamp) {
        let delay = match outcome {
            Next::GoesOn => return,
            Next::Done(wake) => {
                self.attempts.remove(&job);
                match wake {
                    Wake::OnChange => return,
                    Wake::At(at) => {
                        self.wakes.insert(job, *at);
                        return;
                    }
                    Wake::After(delay) => *delay,
                }
            }
            Next::Failed(WriteFailure::Conflict | WriteFailure::Gone) => Duration::from_millis(50),
            Next::Failed(_) => {
                let attempt = self.attempts.entry(job.clone()).or_default();
                *attempt += 1;
                Duration::from_millis(200).saturating_mul(1 << (*attempt - 1).min(9)).min(Duration::from_mins(1))
            }
        };
        self.wakes.insert(job, now + delay);
    }

    pub(super) fn wake_deployment(&self, set: &MachineSet) {
        if let Some(deployment) = owner::controller_of(&set.metadata) {
            self.queues.deployments.add(Key::new(NAMESPACE, &deployment.name));
        }
    }

    /// Nothing is under way and nobody is to be woken before a time.
    pub(super) fn is_idle(&self) -> bool {
        self.passes.is_empty() && self.pending.is_empty() && self.gone_nodes.is_empty()
    }
}

fn drained(queue: &Arc<Queue<Key>>) -> impl Iterator<Item = Key> {
    let mut keys = Box::pin(queue.stream().map(|(key, _)| key));
    std::iter::from_fn(move || keys.next().now_or_never().flatten())
}
