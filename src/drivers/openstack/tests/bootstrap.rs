//! Bootstrap data of Cluster API reach a server unchanged.

use mcm_driver::{interface::Driver, testing::bootstrap};

use super::World;

#[tokio::test]
async fn bootstrap_data_that_nova_does_not_take_are_compressed() {
    let world = World::new().await;
    let mut request = world.request("a");
    let data = format!("#cloud-config\n{}", "# x\n".repeat(20_000));
    request.secret.0.insert("userData".to_owned(), data.into_bytes());
    world.driver.create(&request).await.unwrap();
    assert!(world.openstack.lock().cloud.existing()[0].user_data.starts_with(&[0x1f, 0x8b]));
}
