//! Bootstrap data of Cluster API reach a machine unchanged but for surrounding white space.

use super::World;
use mcm_driver::{interface::Driver, testing::bootstrap};

#[tokio::test]
async fn bootstrap_data_of_cluster_api_are_the_user_data_of_the_machine() {
    for (number, (what, data)) in bootstrap::ALL.into_iter().enumerate() {
        let world = World::new().await;
        let mut request = world.request(&format!("m-{number}"));
        request.secret.0.insert("userData".to_owned(), data.to_vec());
        world.driver.create(&request).await.unwrap();
        let metal = world.metal.lock();
        let sent = metal.cloud.allocations()[0].allocation.as_ref().unwrap()["user_data"].clone();
        assert!(sent == std::str::from_utf8(data).unwrap().trim(), "{what}: {sent}");
    }
}
