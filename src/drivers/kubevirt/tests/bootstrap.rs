//! Bootstrap data of Cluster API reach a VM unchanged.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{World, kit::bootstrap};
use mcm_driver::interface::Driver;

#[tokio::test]
async fn bootstrap_data_of_cluster_api_are_the_user_data_of_the_vm() {
    for (number, (what, data)) in bootstrap::ALL.into_iter().enumerate() {
        let world = World::new().await;
        let mut request = world.request(&format!("m-{number}"));
        request.secret.0.insert("userData".to_owned(), data.to_vec());
        world.driver.create(&request).await.unwrap();
        let kubernetes = world.kubernetes.lock();
        let secret = &kubernetes.cloud.secrets[&format!("userdata-m-{number}-uid-m-{number}")];
        let stored = STANDARD.decode(secret["data"]["userdata"].as_str().unwrap()).unwrap();
        assert!(stored == data, "{what}");
    }
}
