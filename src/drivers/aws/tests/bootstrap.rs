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

/// A control plane with a certificate bundle, for example. EC2 compares requests with one token.
#[tokio::test]
async fn bootstrap_data_that_ec2_does_not_take_are_compressed_in_the_same_way_each_time() {
    let mut sent = Vec::new();
    for _ in 0..2 {
        let (cloud, driver) = start().await;
        let mut request = request("a");
        let data = format!("## template: jinja\n#cloud-config\n{}", "# x\n".repeat(5000));
        request.secret.0.insert("userData".to_owned(), data.into_bytes());
        assert_eq!(driver.secret_problems(&request.class, &request.secret).errors, []);
        driver.create(&request).await.unwrap();
        sent.push(base64::decode(&cloud.lock().sent("RunInstances")[0]["UserData"]).unwrap());
    }
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0].starts_with(&[0x1f, 0x8b]) && sent[0].len() < 1000, "{} bytes", sent[0].len());
}
