//! A pool in a simulated cloud, with a real manager and a real control plane.

use std::{env, sync::Arc, time::Duration};

use serde_json::json;

use crate::{
    nodes::Nodes,
    simulation::{ENDPOINTS, Simulation},
    support::{
        identity, objects,
        scene::Scene,
        world::{Manager, World},
    },
};

/// The cluster in the tags of the pool.
pub const CLUSTER: &str = "shoot";

pub struct Pool {
    pub world: World,
    pub manager: Manager,
    _nodes: Option<Nodes>,
}

/// A pool without a manager.
pub struct Prepared {
    pub world: World,
}

impl Prepared {
    /// Its managers may list the classes of all namespaces, which `config/standalone` does not allow.
    pub async fn may_list_all_classes(&self) {
        let name = format!("all-classes-{}", self.world.namespace);
        let (group, version) = ("rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1");
        let rule = json!({"apiGroups": ["machine.sapcloud.io"], "resources": ["machineclasses"], "verbs": ["list"]});
        let account = json!({"kind": "ServiceAccount", "name": identity::ACCOUNT, "namespace": self.world.namespace});
        let role = json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
        let binding = json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}, "subjects": [account],
        });
        for object in [role, binding] {
            objects::apply(&self.world.client, &object).await;
        }
    }

    /// Starts its manager.
    pub async fn run(self, flags: &[&str]) -> Pool {
        let manager = self.world.launch("run", &[&["--leader-elect=false", ENDPOINTS], flags].concat()).ready().await;
        Pool { world: self.world, manager, _nodes: None }
    }
}

impl Pool {
    /// A pool without machines yet: a class `small`, its Secret, and the deployment `pool`.
    pub async fn start(cloud: Arc<dyn Simulation>, flags: &[&str]) -> Self {
        Self::prepare(&*cloud, CLUSTER).await.run(flags).await.with_nodes(cloud)
    }

    /// Keeps the Nodes of all pools in a cloud.
    pub fn with_nodes(self, cloud: Arc<dyn Simulation>) -> Self {
        let nodes = Nodes::keep(self.world.target.clone(), cloud, CLUSTER);
        Self { _nodes: Some(nodes), ..self }
    }

    /// The same beside a pool in another namespace, which keeps the Nodes of both.
    pub async fn beside(cloud: Arc<dyn Simulation>, flags: &[&str]) -> Self {
        Self::prepare(&*cloud, CLUSTER).await.run(flags).await
    }

    /// The objects of a pool with the tag of a cluster, before a manager runs.
    pub async fn prepare(cloud: &dyn Simulation, cluster: &str) -> Prepared {
        let world = World::patient("clouds").await;
        let mut secret = objects::secret("pool");
        secret["stringData"] = cloud.secret();
        world.apply(secret).await;
        let mut class = objects::class("small");
        class["provider"] = json!(cloud.provider());
        class["providerSpec"] = cloud.spec(cluster);
        world.apply(class).await;
        world.apply(objects::deployment("pool", 0)).await;
        Prepared { world }
    }

    /// Waits until so many machines serve.
    pub async fn until_settled(&self, machines: usize) {
        let settled = |scene: &Scene| scene.settled(machines, "small").then_some(());
        self.world.scene.find("all machines to serve", patience(machines), settled).await;
    }

    /// Waits until no machine is left of so many.
    pub async fn until_empty(&self, machines: usize) {
        let is_empty = |scene: &Scene| scene.machines.is_empty().then_some(());
        self.world.scene.find("all machines to be gone", patience(machines), is_empty).await;
    }
}

/// The number of machines of a test, which `CLOUD_MACHINES` can change.
pub fn machines_or(usual: usize) -> usize {
    env::var("CLOUD_MACHINES").map_or(usual, |number| number.parse().unwrap())
}

/// Each look-up of moto takes as long as it has VMs.
fn patience(machines: usize) -> Duration {
    Duration::from_secs(120) + Duration::from_secs(3) * u32::try_from(machines).unwrap()
}
