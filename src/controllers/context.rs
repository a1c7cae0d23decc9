//! What the shells of all controllers share: caches, ways to write, queues, and what one pass remembers for the next.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, Resource, core::PartialObjectMeta};
use parking_lot::Mutex;

use super::{machine, machine_deployment, machine_set, node, owner, plan::Note};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineClass, MachineDeployment, MachineSet},
        node::Node,
    },
    driver::Registry,
    runtime::{
        cache::{Cache, Cached, Key},
        clock::Clock,
        events::Events,
        metrics::Metrics,
        objects::Objects,
        queue::Queue,
        secrets::Secrets,
    },
};

/// Indexes of the Machine cache.
pub mod machines_by {
    /// UID of the controller; empty for Machines without one.
    pub const CONTROLLER: usize = 0;
    /// Name of the Node.
    pub const NODE: usize = 1;
    /// Name of the class.
    pub const CLASS: usize = 2;
    /// Value of the label `name`.
    pub const DEPLOYMENT: usize = 3;
}

/// Indexes of the MachineSet cache.
pub mod sets_by {
    /// UID of the controller; empty for sets without one.
    pub const CONTROLLER: usize = 0;
    /// UID of the set itself.
    pub const UID: usize = 1;
}

/// Indexes of the MachineClass cache.
pub mod classes_by {
    /// Name of a Secret it refers to.
    pub const SECRET: usize = 0;
}

/// Indexes of the Node cache.
pub mod nodes_by {
    /// Name of the Machine that the Node says it belongs to.
    pub const MACHINE: usize = 0;
}

/// How many writes of one kind one plan has in flight.
pub const WRITES_IN_FLIGHT: usize = 32;
/// Bursts of changes below one set or deployment are gathered for this long.
const GATHER: Duration = Duration::from_millis(50);

/// Objects of the control cluster, and of the target cluster if there is one.
pub struct Context {
    /// The control namespace.
    pub namespace: String,
    /// Machines.
    pub machines: Objects<Machine>,
    /// MachineSets.
    pub sets: Objects<MachineSet>,
    /// MachineDeployments.
    pub deployments: Objects<MachineDeployment>,
    /// MachineClasses.
    pub classes: Objects<MachineClass>,
    /// Nodes of the target cluster; `None` without one.
    pub nodes: Option<Objects<Node>>,
    /// Secrets of the control namespace: metadata, and the data of those in use.
    pub secrets: Secrets,
    /// The target cluster; `None` without one.
    pub target: Option<Client>,
    /// Clouds.
    pub drivers: Registry,
    /// Where events go.
    pub events: Events,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Choices of the operator for Machines.
    pub machine_policy: machine::Policy,
    /// Choices of the operator for deployments.
    pub deployment_policy: machine_deployment::Policy,
    /// Which keys wait for which controller.
    pub queues: Arc<Queues>,
    /// What is remembered between passes; losing it costs time, never correctness.
    pub memory: Arc<Memory>,
    /// Choices of the operator for Nodes.
    pub node_policy: node::Policy,
    /// Slots for calls that take long, apart for each lane.
    pub lanes: Arc<machine::Lanes>,
    /// Who may give up an unhealthy Machine.
    pub permits: machine::Permits,
    /// What is measured.
    pub metrics: Metrics,
}

/// One queue for each controller.
pub struct Queues {
    /// MachineDeployments.
    pub deployments: Arc<Queue<Key>>,
    /// MachineSets.
    pub sets: Arc<Queue<Key>>,
    /// Machines.
    pub machines: Arc<Queue<Key>>,
    /// MachineClasses.
    pub classes: Arc<Queue<Key>>,
    /// Secrets.
    pub secrets: Arc<Queue<Key>>,
    /// Nodes.
    pub nodes: Arc<Queue<Key>>,
    /// Nodes that were deleted.
    pub gone_nodes: Arc<Queue<Key>>,
}

impl Default for Queues {
    fn default() -> Self {
        let none = Duration::ZERO;
        Self {
            deployments: Queue::new("machinedeployment", GATHER),
            sets: Queue::new("machineset", GATHER),
            machines: Queue::new("machine", none),
            classes: Queue::new("machineclass", GATHER),
            secrets: Queue::new("secret", GATHER),
            nodes: Queue::new("node", none),
            gone_nodes: Queue::new("node-gone", Duration::from_secs(1)),
        }
    }
}

/// Facts of earlier passes.
#[derive(Default)]
pub struct Memory {
    /// By set.
    pub sets: Remembered<machine_set::Memory>,
    /// By deployment.
    pub deployments: Remembered<machine_deployment::Memory>,
    /// By Machine.
    pub machines: Remembered<machine::Memory>,
}

/// Something remembered for each object.
#[derive(Debug)]
pub struct Remembered<T>(Mutex<HashMap<Key, T>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default + Clone> Remembered<T> {
    /// What is remembered of an object.
    pub fn get(&self, key: &Key) -> T {
        self.0.lock().get(key).cloned().unwrap_or_default()
    }

    /// Remembers.
    pub fn set(&self, key: &Key, value: T) {
        self.0.lock().insert(key.clone(), value);
    }

    /// Changes what is remembered.
    pub fn update(&self, key: &Key, change: impl FnOnce(&mut T)) {
        change(self.0.lock().entry(key.clone()).or_default());
    }

    /// Changes what is remembered, if anything is.
    pub fn update_if_known(&self, key: &Key, change: impl FnOnce(&mut T)) {
        if let Some(value) = self.0.lock().get_mut(key) {
            change(value);
        }
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

impl Context {
    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Emits an event on an object.
    pub fn note<K: Resource<DynamicType = ()>>(&self, object: &K, component: &'static str, note: &Note) {
        self.events.speaking_as(component).note(object, note);
    }
}

/// The caches of a control namespace and its target.
pub struct Caches {
    /// Machines.
    pub machines: Arc<Cache<Machine>>,
    /// MachineSets.
    pub sets: Arc<Cache<MachineSet>>,
    /// MachineDeployments.
    pub deployments: Arc<Cache<MachineDeployment>>,
    /// MachineClasses.
    pub classes: Arc<Cache<MachineClass>>,
    /// Nodes.
    pub nodes: Arc<Cache<Node>>,
    /// Metadata of Secrets.
    pub secrets: Arc<Cache<PartialObjectMeta<Secret>>>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            machines: Cache::new(
                &[
                    |machine: &Machine| vec![controller_uid(machine)],
                    |machine: &Machine| machine.node_name().map(str::to_owned).into_iter().collect(),
                    |machine: &Machine| vec![machine.spec.class.name.clone()],
                    |machine: &Machine| {
                        machine
                            .metadata
                            .labels
                            .iter()
                            .filter_map(|all| all.get(labels::DEPLOYMENT_NAME).cloned())
                            .collect()
                    },
                ],
                prune,
            ),
            sets: Cache::new(
                &[
                    |set: &MachineSet| vec![controller_uid(set)],
                    |set: &MachineSet| set.metadata.uid.clone().into_iter().collect(),
                ],
                prune,
            ),
            deployments: Cache::new(&[], prune),
            classes: Cache::new(
                &[|class: &MachineClass| {
                    let references = [&class.secret_ref, &class.credentials_secret_ref];
                    references.into_iter().flatten().map(|reference| reference.name.clone()).collect()
                }],
                prune,
            ),
            nodes: Cache::new(
                &[|node: &Node| {
                    node.metadata.labels.iter().filter_map(|all| all.get(labels::MACHINE_NAME).cloned()).collect()
                }],
                prune,
            ),
            secrets: Cache::new(&[], |secret| {
                secret.metadata.managed_fields = None;
                secret.metadata.annotations = None;
            }),
        }
    }
}

fn controller_uid<K: Resource>(object: &K) -> String {
    owner::controller_of(object.meta()).map(|reference| reference.uid.clone()).unwrap_or_default()
}

fn prune<K: Cached>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}
