//! What the demo shows: machines, nodes and pods, from watches, and the VMs of the cloud.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::{sync::Notify, time::Instant};

use super::cloud::{Cloud, Vms};
use crate::api::{
    machine::{Machine, MachineDeployment},
    node::Node,
};

/// Between two looks at the cloud.
const PERIOD: Duration = Duration::from_millis(500);

/// The watched objects, by name, and the VMs.
#[derive(Clone, Debug, Default)]
pub struct Props {
    /// Machines.
    pub machines: BTreeMap<String, Arc<Machine>>,
    /// Deployments.
    pub deployments: BTreeMap<String, Arc<MachineDeployment>>,
    /// Nodes.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Pods of the namespace.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// VMs of the cloud.
    pub vms: Vms,
}

/// The watched cluster.
pub struct Scene {
    props: Arc<Mutex<Props>>,
    changed: Arc<Notify>,
    watches: Vec<tokio::task::JoinHandle<()>>,
}

impl Scene {
    /// Starts watching.
    pub fn watch(client: &Client, cloud: &Arc<dyn Cloud>) -> Self {
        let props = Arc::<Mutex<Props>>::default();
        let changed = Arc::<Notify>::default();
        let own = |client: &Client| client.clone();
        let watches = vec![
            tokio::spawn(follow(
                Api::namespaced(own(client), "demo"),
                Arc::clone(&props),
                Arc::clone(&changed),
                |props| &mut props.machines,
            )),
            tokio::spawn(follow(
                Api::namespaced(own(client), "demo"),
                Arc::clone(&props),
                Arc::clone(&changed),
                |props| &mut props.deployments,
            )),
            tokio::spawn(follow(Api::all(own(client)), Arc::clone(&props), Arc::clone(&changed), |props| {
                &mut props.nodes
            })),
            tokio::spawn(follow(
                Api::namespaced(own(client), "demo"),
                Arc::clone(&props),
                Arc::clone(&changed),
                |props| &mut props.pods,
            )),
            tokio::spawn(look(Arc::clone(cloud), Arc::clone(&props), Arc::clone(&changed))),
        ];
        Self { props, changed, watches }
    }

    /// The current objects.
    pub fn props(&self) -> Props {
        self.props.lock().clone()
    }

    /// Waits until a condition holds and shows each change; false if it does not hold in time.
    pub async fn until(&self, limit: Duration, mut show: impl FnMut(&Props), reached: impl Fn(&Props) -> bool) -> bool {
        let start = Instant::now();
        loop {
            let changed = self.changed.notified();
            let props = self.props();
            show(&props);
            if reached(&props) {
                return true;
            }
            if start.elapsed() > limit {
                return false;
            }
            // Redraw periodically, too, because ages change.
            let _ = tokio::time::timeout(Duration::from_millis(200), changed).await;
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.watches.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

async fn follow<K>(
    api: Api<K>,
    props: Arc<Mutex<Props>>,
    changed: Arc<Notify>,
    of: fn(&mut Props) -> &mut BTreeMap<String, Arc<K>>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        {
            let mut props = props.lock();
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    of(&mut props).insert(object.name_any(), Arc::new(object));
                }
                Ok(watcher::Event::Delete(object)) => {
                    of(&mut props).remove(&object.name_any());
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
            }
        }
        changed.notify_waiters();
    }
}

async fn look(cloud: Arc<dyn Cloud>, props: Arc<Mutex<Props>>, changed: Arc<Notify>) {
    loop {
        if let Ok(vms) = cloud.vms().await {
            props.lock().vms = vms;
            changed.notify_waiters();
        }
        tokio::time::sleep(PERIOD).await;
    }
}
