//! Bootstrap data of Cluster API reach an instance unchanged.

use mcm_driver::{interface::Driver, testing::bootstrap};

use super::World;

#[tokio::test]
async fn bootstrap_data_of_cluster_api_are_the_user_data_of_the_instance() {
    for (number, (what, data)) in bootstrap::ALL.into_iter().enumerate() {
        let world = World::new().await;
        let mut request = world.request(&format!("m-{number}"));
        request.secret.0.insert("userData".to_owned(), data.to_vec());
        world.driver.create(&request).await.unwrap();
        let yandex = world.yandex.lock();
        let sent = &yandex.cloud.metadata.values().next().unwrap()["user-data"];
        assert!(sent == std::str::from_utf8(data).unwrap(), "{what}: {sent}");
    }
}
