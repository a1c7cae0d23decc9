//! Objects in the demo of the MCM controllers: machines, nodes and pods, from watches, and the VMs of the cloud.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::{
    cloud::{DemoCloud, DemoVms},
    scene::{LiveObjects, PERIOD},
};
use crate::api::{
    machine::{Machine, MachineDeployment},
    node::Node,
};

/// The watched objects, by name, and the VMs.
#[derive(Clone, Debug, Default)]
pub struct DemoObjects {
    /// Machines.
    pub machines: BTreeMap<String, Arc<Machine>>,
    /// Deployments.
    pub deployments: BTreeMap<String, Arc<MachineDeployment>>,
    /// Nodes.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Pods of the namespace.
    pub pods: BTreeMap<String, Arc<Pod>>,
    /// VMs of the cloud.
    pub vms: DemoVms,
}

/// Starts watching.
pub fn watch(client: &Client, cloud: &Arc<dyn DemoCloud>) -> LiveObjects<DemoObjects> {
    let own = |client: &Client| client.clone();
    LiveObjects::with(|props, changed| {
        vec![
            tokio::spawn(follow(
                Api::namespaced(own(client), "demo"),
                Arc::clone(props),
                Arc::clone(changed),
                |props| &mut props.machines,
            )),
            tokio::spawn(follow(
                Api::namespaced(own(client), "demo"),
                Arc::clone(props),
                Arc::clone(changed),
                |props| &mut props.deployments,
            )),
            tokio::spawn(follow(Api::all(own(client)), Arc::clone(props), Arc::clone(changed), |props| {
                &mut props.nodes
            })),
            tokio::spawn(follow(
                Api::namespaced(own(client), "demo"),
                Arc::clone(props),
                Arc::clone(changed),
                |props| &mut props.pods,
            )),
            tokio::spawn(look(Arc::clone(cloud), Arc::clone(props), Arc::clone(changed))),
        ]
    })
}

async fn follow<K>(
    api: Api<K>,
    props: Arc<Mutex<DemoObjects>>,
    changed: Arc<Notify>,
    of: fn(&mut DemoObjects) -> &mut BTreeMap<String, Arc<K>>,
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

async fn look(cloud: Arc<dyn DemoCloud>, props: Arc<Mutex<DemoObjects>>, changed: Arc<Notify>) {
    loop {
        if let Ok(vms) = cloud.vms().await {
            props.lock().vms = vms;
            changed.notify_waiters();
        }
        tokio::time::sleep(PERIOD).await;
    }
}
