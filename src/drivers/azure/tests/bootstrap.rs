//! Bootstrap data of Cluster API reach a VM unchanged.

use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_driver::{Driver, testing::bootstrap};
use serde_json::Value;

use super::World;

#[tokio::test]
async fn bootstrap_data_of_cluster_api_are_the_custom_data_of_the_vm() {
    for (number, (what, data)) in bootstrap::ALL.into_iter().enumerate() {
        let world = World::new().await;
        let mut request = world.request(&format!("m-{number}"));
        request.secret.0.insert("userData".to_owned(), data.to_vec());
        world.driver.create(&request).await.unwrap();
        let sent: Value = serde_json::from_str(&world.arm.lock().sent("vm.put")[0].body).unwrap();
        let sent = sent["properties"]["osProfile"]["customData"].as_str().unwrap();
        assert!(STANDARD.decode(sent).unwrap() == data, "{what}: {sent}");
    }
}
