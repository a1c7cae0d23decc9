//! A pool in a simulated cloud, with a real manager and a real control plane.

use std::{env, sync::Arc, time::Duration};

use serde_json::json;

use crate::{
    nodes::Nodes,
    simulation::Simulation,
    support::{
        objects,
        scene::Scene,
        world::{Manager, World},
    },
};

/// The cluster in the tags of the pool.
pub const CLUSTER: &str = "shoot";

pub struct Pool {
    pub world: World,
    _manager: Manager,
    _nodes: Nodes,
}

impl Pool {
    /// A pool without machines yet: a class `small`, its Secret, and the deployment `pool`.
    pub async fn start(cloud: Arc<dyn Simulation>, flags: &[&str]) -> Self {
        let world = World::patient("clouds").await;
        let mut secret = objects::secret("pool");
        secret["stringData"] = cloud.secret();
        world.apply(secret).await;
        let mut class = objects::class("small");
        class["provider"] = json!(cloud.provider());
        class["providerSpec"] = cloud.spec(CLUSTER);
        world.apply(class).await;
        world.apply(objects::deployment("pool", 0)).await;
        let nodes = Nodes::keep(world.target.clone(), cloud, CLUSTER);
        let manager = world.launch("run", &[&["--leader-elect=false"], flags].concat()).ready().await;
        Self { world, _manager: manager, _nodes: nodes }
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
