//! The keeper of Nodes, which simulates the controllers of a cloud.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    nodes::Nodes,
    simulation::{Demo, Simulation, Vm},
    support::{wait, world::World},
};

const CLUSTER: &str = "keeper";
const NODE: &str = "ip-10-0-0-7.keeper.internal";

/// A cloud with one VM.
struct Cloud(Mutex<Vm>);

#[async_trait]
impl Simulation for Cloud {
    fn provider(&self) -> &'static str {
        "none"
    }

    fn about(&self) -> String {
        String::new()
    }

    fn demo(&self, _: &str) -> Demo {
        Demo { spec: json!({}), field: "", values: [""; 2] }
    }

    fn spec(&self, _: &str) -> Value {
        json!({})
    }

    fn secret(&self) -> Value {
        json!({})
    }

    async fn vms(&self) -> Vec<Vm> {
        vec![self.0.lock().clone()]
    }

    async fn created(&self) -> u64 {
        1
    }

    async fn create_for(&self, _: &str, _: &str, _: &str) {}

    async fn end(&self, _: &str) {}
}

fn vm(provider_id: &str) -> Vm {
    let (node, cluster) = (NODE.to_owned(), CLUSTER.to_owned());
    Vm {
        provider_id: provider_id.to_owned(),
        machine: "m".to_owned(),
        node,
        is_running: true,
        cluster,
        has_uid: true,
        owner: String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_gets_the_name_of_one_that_ended_gets_a_node_of_its_own() {
    let world = World::patient("keeper").await;
    let cloud = Arc::new(Cloud(Mutex::new(vm("aws:///r/i-1"))));
    let _nodes = Nodes::keep(world.target.clone(), Arc::<Cloud>::clone(&cloud), CLUSTER);
    let nodes: Api<Node> = Api::all(world.target.clone());
    let id = async || nodes.get_opt(NODE).await.unwrap().and_then(|node| node.spec?.provider_id);
    wait::until("the first Node", async || id().await.filter(|id| id == "aws:///r/i-1")).await;
    *cloud.0.lock() = vm("aws:///r/i-2");
    wait::until("the second Node", async || id().await.filter(|id| id == "aws:///r/i-2")).await;
}
