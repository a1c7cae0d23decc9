//! Bootstrap data of Cluster API reach a VM byte for byte.

use aws_smithy_types::base64;

use super::{request, start};
use mcm_driver::{interface::Driver, testing::bootstrap};

#[tokio::test]
async fn bootstrap_data_of_cluster_api_are_the_user_data_of_the_vm() {
    for (what, data) in bootstrap::ALL {
        let (cloud, driver) = start().await;
        let mut request = request("m");
        request.secret.0.insert("userData".to_owned(), data.to_vec());
        driver.create(&request).await.unwrap();
        let sent = cloud.lock().sent("RunInstances").remove(0);
        let decoded = base64::decode(&sent["UserData"]).unwrap();
        assert!(decoded == data, "{what}");
    }
}
