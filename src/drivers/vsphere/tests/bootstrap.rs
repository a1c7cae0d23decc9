//! Bootstrap data of Cluster API reach a VM unchanged.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mcm_driver::{interface::Driver, testing::bootstrap};
use serde_json::json;

use super::{World, spec_with};

#[tokio::test]
async fn bootstrap_data_of_cluster_api_are_the_user_data_of_the_vm() {
    let world = World::new().await;
    for (number, (what, data)) in bootstrap::ALL.into_iter().enumerate() {
        let is_ignition = what.contains("Ignition");
        let template = if is_ignition { "template-ignition" } else { "template" };
        let name = format!("m-{number}");
        let mut request = world.request_for(&name, &name, spec_with(&json!({"templateVM": template})));
        request.secret.0.insert("userData".to_owned(), data.to_vec());
        world.driver.create(&request).await.unwrap();
        let properties = world.vm(&name).properties;
        if is_ignition && !data.is_empty() {
            assert_eq!(properties["guestinfo.ignition.config.data"].as_bytes(), data, "{what}");
        } else {
            assert_eq!(STANDARD.decode(&properties["user-data"]).unwrap(), data, "{what}");
        }
    }
}
