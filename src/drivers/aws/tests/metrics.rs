//! Metrics of the driver's requests.

use std::sync::Arc;

use serde_json::json;

use super::{
    fake::{Fault, Shared},
    flows::initializing,
    observed_driver, request, secret, start_cloud, with_id,
};
use crate::NAME;
use mcm_driver::{SecretData, interface::Driver, testing::Recorder};

async fn start() -> (Shared, Arc<Recorder>, impl Driver) {
    let (cloud, url) = start_cloud().await;
    let recorder = Arc::new(Recorder::default());
    let driver = observed_driver(&url, Arc::<Recorder>::clone(&recorder));
    (cloud, recorder, driver)
}

#[tokio::test]
async fn requests_have_the_names_of_the_reference_and_are_counted_once_each() {
    let (cloud, recorder, driver) = start().await;
    let request = initializing();
    driver.status(&request).await.unwrap_err();
    assert_eq!(recorder.take(NAME), [("instance_get_by_machine", 1, 0)]);
    let vm = driver.create(&request).await.unwrap();
    let creation = recorder.take(NAME);
    assert!(creation.contains(&("instance_create", 1, 0)) && creation.contains(&("image_get", 1, 0)), "{creation:?}");
    let known = with_id(request, &vm.provider_id);
    driver.initialize(&known).await.unwrap();
    let initialization = recorder.take(NAME);
    for service in ["instance_disable_source_dest_check", "instance_assign_ipv6_prefixes"] {
        assert!(initialization.contains(&(service, 1, 0)), "{initialization:?}");
    }
    driver.list(&known.class, &secret()).await.unwrap();
    assert_eq!(recorder.take(NAME), [("instance_get_by_tag_and_status", 1, 0)]);
    cloud.lock().instances.values_mut().for_each(|instance| instance.tags.clear());
    driver.status(&known).await.unwrap();
    assert_eq!(recorder.take(NAME), [("instance_get_by_id", 1, 0), ("instance_get_by_machine", 1, 0)]);
    driver.delete(&known).await.unwrap();
    let deletion = [("instance_get_by_id", 1, 0), ("instance_get_by_machine", 1, 0), ("instance_terminate", 1, 0)];
    assert_eq!(recorder.take(NAME), deletion);
    let counted: usize = [&creation, &initialization].iter().flat_map(|one| one.iter()).map(|one| one.1 + one.2).sum();
    assert_eq!(cloud.lock().requests.len(), counted + 7, "all that was sent");
}

#[tokio::test]
async fn each_attempt_of_a_request_counts() {
    let (cloud, recorder, driver) = start().await;
    for (fault, times, expected) in [
        (Fault::Error("RequestLimitExceeded", 503), 1, (1, 1)),
        (Fault::Error("RequestLimitExceeded", 503), 9, (0, 2)),
        (Fault::Malformed, 1, (1, 1)),
        (Fault::LostAnswer, 1, (1, 1)),
        (Fault::Error("AuthFailure", 401), 9, (0, 1)),
    ] {
        cloud.lock().faults = vec![("DescribeInstances", fault, times)];
        driver.status(&request("a")).await.unwrap_err();
        let seen = recorder.take(NAME);
        assert_eq!(seen, [("instance_get_by_machine", expected.0, expected.1)], "{fault:?}");
    }
}

#[tokio::test]
async fn what_is_sent_to_sts_is_counted_under_its_own_name() {
    let (_, recorder, driver) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "token").unwrap();
    let mut request = request("a");
    let identity = json!({"workloadIdentityTokenFile": token, "roleARN": "arn:aws:iam::1:role/r"});
    let data = identity.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().into()));
    request.secret = SecretData(data.collect());
    driver.status(&request).await.unwrap_err();
    assert!(recorder.take(NAME).contains(&("assume_role_with_web_identity", 1, 0)));
}
