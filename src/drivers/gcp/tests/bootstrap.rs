//! Bootstrap data of Cluster API reach a VM byte for byte, where cloud-init and Ignition look for them.

use serde_json::json;

use super::requests::metadata;
use mcm_driver::testing::bootstrap;

#[tokio::test]
async fn bootstrap_data_of_cluster_api_are_the_user_data_of_the_vm() {
    for (what, data) in bootstrap::ALL {
        let expected = json!([{"key": "user-data", "value": std::str::from_utf8(data).unwrap()}]);
        for is_of_cluster_api in [true, false] {
            let sent = metadata(data, is_of_cluster_api).await;
            assert!(sent == expected, "{what}: {sent}");
        }
    }
}
