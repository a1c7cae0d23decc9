//! The state of a namespace and of the Nodes as a watch delivers it, from the first event on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{self, Node};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use mcm::api::machine::{LastOperation, Machine, MachineDeployment, MachinePhase, MachineSet};
use serde::de::DeserializeOwned;
use tokio::{sync::Notify, task::JoinSet};

use super::secrets;

/// The first broken rules; further ones are dropped.
const KEPT: usize = 3;

/// The state of a namespace.
#[derive(Default)]
pub struct Scene {
    pub machines: BTreeMap<String, Machine>,
    pub sets: BTreeMap<String, MachineSet>,
    pub deployments: BTreeMap<String, MachineDeployment>,
    /// Nodes of the whole cluster, also those of other tests.
    pub nodes: BTreeMap<String, Node>,
    /// Events of the namespace.
    pub events: BTreeMap<String, v1::Event>,
    /// UIDs of all Machines that there ever were.
    pub ever: BTreeSet<String>,
    /// The statuses of Machines, in the order in which they were written.
    pub told: Vec<Told>,
    /// The last of it for each Machine.
    told_last: BTreeMap<String, Told>,
    rules: Vec<Rule>,
    broken: Vec<String>,
}

/// One status of a Machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub machine: String,
    pub phase: MachinePhase,
    pub operation: LastOperation,
}

struct Rule {
    text: String,
    holds: Box<dyn FnMut(&Scene) -> bool + Send>,
}

impl Scene {
    /// Machines without a deletion timestamp.
    pub fn live(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values().filter(|machine| machine.metadata.deletion_timestamp.is_none())
    }

    /// Machines in a phase.
    pub fn count(&self, phase: MachinePhase) -> usize {
        self.machines.values().filter(|machine| machine.phase() == phase).count()
    }

    /// Machines that serve.
    pub fn available(&self) -> usize {
        self.machines.values().filter(|machine| machine.is_available()).count()
    }

    /// Machines that serve and are of a class.
    pub fn available_of(&self, class: &str) -> usize {
        self.machines.values().filter(|machine| machine.is_available() && machine.spec.class.name == class).count()
    }

    /// Exactly this many Machines, all of a class, and all serve.
    pub fn settled(&self, count: usize, class: &str) -> bool {
        self.machines.len() == count && self.available_of(class) == count
    }

    /// The statuses of the deployment and its sets report so many available machines and nothing left to do.
    pub fn complete(&self, deployment: &str, count: i32) -> bool {
        let Some(deployment) = self.deployments.get(deployment) else { return false };
        let status = deployment.status.clone().unwrap_or_default();
        let available = self.sets.values().filter_map(|set| Some(set.status.as_ref()?.available_replicas)).sum::<i32>();
        deployment.metadata.generation == Some(status.observed_generation)
            && available == count
            && [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas]
                == [count; 4]
    }

    /// The status of a Machine contained this text at some time.
    pub fn was_told(&self, machine: &str, text: &str) -> bool {
        self.told.iter().any(|told| told.machine == machine && told.operation.description.contains(text))
    }

    /// The phases that a Machine went through.
    pub fn phases(&self, machine: &str) -> Vec<MachinePhase> {
        let mut phases: Vec<_> =
            self.told.iter().filter(|told| told.machine == machine).map(|told| told.phase.clone()).collect();
        phases.dedup();
        phases
    }

    /// The last phase of a Machine by name.
    pub fn phase(&self, machine: &str) -> Option<MachinePhase> {
        self.machines.get(machine).map(Machine::phase)
    }

    /// Names of the Machines.
    pub fn names(&self) -> BTreeSet<String> {
        self.machines.keys().cloned().collect()
    }

    /// UIDs of the Machines.
    pub fn uids(&self) -> BTreeSet<String> {
        self.machines.values().filter_map(Machine::uid).collect()
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (name, deployment) in &self.deployments {
            let status = serde_json::to_string(&deployment.status).unwrap();
            let _ = writeln!(text, "deployment {name}: replicas {}, {status}", deployment.spec.replicas);
        }
        for (name, set) in &self.sets {
            let status = serde_json::to_string(&set.status).unwrap();
            let _ = writeln!(text, "set {name}: replicas {}, {status}", set.spec.replicas);
        }
        for (name, machine) in &self.machines {
            let deleting = if machine.metadata.deletion_timestamp.is_some() { ", deleting" } else { "" };
            let operation = machine.status.clone().unwrap_or_default().last_operation;
            let _ = writeln!(
                text,
                "machine {name}: {:?}{deleting}, VM {:?}, class {}, {:?} {:?}: {}",
                machine.phase(),
                machine.spec.provider_id,
                machine.spec.class.name,
                operation.type_,
                operation.state,
                operation.description
            );
            let conditions = self.nodes.get(name).and_then(|node| node.status.as_ref()?.conditions.as_ref());
            let conditions =
                conditions.into_iter().flatten().map(|condition| format!("{}={}", condition.type_, condition.status));
            let _ = writeln!(text, "  node: {}", conditions.collect::<Vec<_>>().join(" "));
        }
        text
    }

    /// Records the statuses of the Machine with this name.
    fn record(&mut self, name: &str) {
        let Some(machine) = self.machines.get(name) else { return };
        self.ever.extend(machine.uid());
        let operation = machine.status.clone().unwrap_or_default().last_operation;
        let told = Told { machine: name.to_owned(), phase: machine.phase(), operation };
        if self.told_last.get(name) != Some(&told) {
            self.told.push(told.clone());
            self.told_last.insert(name.to_owned(), told);
        }
    }

    fn check(&mut self) {
        let mut rules = std::mem::take(&mut self.rules);
        let broken = rules.iter_mut().filter_map(|rule| (!(rule.holds)(self)).then(|| rule.text.clone()));
        let broken: Vec<String> = broken.map(|text| format!("{text}; but there was\n{}", self.describe())).collect();
        self.rules = rules;
        self.keep(broken);
    }

    /// The value planted in a Secret is in no other object.
    fn search(&mut self, object: &DynamicObject) {
        if secrets::are_in(&serde_json::to_string(object).unwrap()) {
            let kind = object.types.as_ref().map_or("object", |types| &types.kind);
            self.keep(vec![format!("a planted secret is in the {kind} {}", object.name_any())]);
        }
    }

    fn keep(&mut self, broken: Vec<String>) {
        if self.broken.len() < KEPT {
            self.broken.extend(broken);
        }
    }
}

/// The scene, kept up to date.
pub struct Watched {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    scene: Mutex<Scene>,
    changed: Notify,
}

impl Watched {
    /// Watches a namespace of the control cluster and the Nodes of the target cluster from now on.
    pub fn start(client: &Client, target: &Client, namespace: &str) -> Self {
        let shared = Arc::<Shared>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(Arc::clone(&shared), namespaced::<Machine>(client, namespace), |scene| &mut scene.machines));
        tasks.spawn(follow(Arc::clone(&shared), namespaced::<MachineSet>(client, namespace), |scene| &mut scene.sets));
        tasks.spawn(follow(Arc::clone(&shared), namespaced::<MachineDeployment>(client, namespace), |scene| {
            &mut scene.deployments
        }));
        tasks.spawn(follow(Arc::clone(&shared), namespaced::<v1::Event>(client, namespace), |scene| &mut scene.events));
        let nodes = Api::all_with(target.clone(), &ApiResource::erase::<Node>(&()));
        tasks.spawn(follow(Arc::clone(&shared), nodes, |scene| &mut scene.nodes));
        Self { shared, _tasks: tasks }
    }

    /// The scene as it is.
    pub fn now(&self) -> MutexGuard<'_, Scene> {
        self.shared.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the scene has a result of `answer`; panics with all of it after the limit, or when a rule was broken.
    pub async fn find<T>(&self, what: &str, limit: Duration, answer: impl Fn(&Scene) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let changed = self.shared.changed.notified();
            {
                let scene = self.now();
                assert!(scene.broken.is_empty(), "{}", scene.broken.join("\n"));
                if let Some(answer) = answer(&scene) {
                    return answer;
                }
                assert!(start.elapsed() < limit, "waited {limit:?} in vain for {what}; there is\n{}", scene.describe());
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), changed).await;
        }
    }

    /// From now on the rule holds whenever anything changes.
    pub fn always(&self, text: &str, holds: impl FnMut(&Scene) -> bool + Send + 'static) {
        let mut scene = self.now();
        scene.rules.push(Rule { text: text.to_owned(), holds: Box::new(holds) });
        scene.check();
    }

    /// The rules hold no longer.
    pub fn forget_rules(&self) {
        self.now().rules.clear();
    }

    /// The broken rules.
    pub fn broken(&self) -> Vec<String> {
        self.now().broken.clone()
    }

    /// The scene in words.
    pub fn describe(&self) -> String {
        self.now().describe()
    }
}

fn namespaced<K: Resource<DynamicType = ()>>(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<K>(&()))
}

/// Objects come as they are stored: one that cannot be read is left out and stalls nothing.
async fn follow<K: DeserializeOwned + Resource>(
    shared: Arc<Shared>,
    api: Api<DynamicObject>,
    place: fn(&mut Scene) -> &mut BTreeMap<String, K>,
) {
    let mut events = watcher(api, Config::default()).default_backoff().boxed();
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        {
            let mut scene = shared.scene.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => {
                    scene.search(&object);
                    listed.extend(read(object));
                }
                Event::InitDone => {
                    *place(&mut scene) = std::mem::take(&mut listed);
                    for name in scene.names() {
                        scene.record(&name);
                    }
                }
                Event::Apply(object) => {
                    let name = object.name_any();
                    scene.search(&object);
                    place(&mut scene).extend(read(object));
                    scene.record(&name);
                }
                Event::Delete(object) => {
                    place(&mut scene).remove(&object.name_any());
                }
            }
            scene.check();
        }
        shared.changed.notify_waiters();
    }
}

fn read<K: DeserializeOwned + Resource>(object: DynamicObject) -> Option<(String, K)> {
    let name = object.name_any();
    Some((name, serde_json::from_value(serde_json::to_value(object).unwrap()).ok()?))
}
