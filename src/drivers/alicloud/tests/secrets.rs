//! The Secret of a class.

use std::time::Duration;

use mcm_driver::{Code, Driver, MachineRequest, SecretData};
use rstest::rstest;
use serde_json::json;

use super::{
    World, class, code, driver,
    fake::{Ecs, KEY_ID, KEY_SECRET},
    secret,
    server::Fault,
    spec, spec_with, unmeasured,
};

#[tokio::test]
async fn new_credentials_apply_at_once() {
    let world = World::new().await;
    let key = |id, key| secret(&[("accessKeyID", id), ("accessKeySecret", key), ("endpointURL", &world.url)]);
    for wrong in [key("LTAI-other-id", KEY_SECRET), key(KEY_ID, "other-secret")] {
        let request = MachineRequest { secret: wrong, ..world.request("a1") };
        assert_eq!(code(world.driver.create(&request).await), Code::Unauthenticated);
    }
    let right = MachineRequest { secret: key(KEY_ID, KEY_SECRET), ..world.request("a1") };
    world.driver.create(&right).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_without_tls_is_for_allowed_hosts() {
    let world = World::new().await;
    let mut request = world.request("a1");
    request.secret.0.insert("endpointURL".to_owned(), b"http://ecs.cn-beijing.aliyuncs.com".to_vec());
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("--allowed-cloud-endpoints"), "{error}");
}

#[rstest]
#[case::complete(&[("accessKeyID", "k"), ("accessKeySecret", "s")], None, None)]
#[case::no_key(&[("accessKeySecret", "s")], Some("neither alicloudAccessKeyID nor accessKeyID"), None)]
#[case::no_user_data(&[("accessKeyID", "k"), ("accessKeySecret", "s"), ("userData", "")], None, Some("no userData"))]
fn the_problems_of_a_secret_are_found_without_a_call(
    #[case] data: &[(&str, &str)],
    #[case] error: Option<&str>,
    #[case] warning: Option<&str>,
) {
    let driver = driver(Duration::from_secs(1), unmeasured());
    for spec in [spec(), spec_with(&json!({"region": null}))] {
        let problems = driver.secret_problems(&class(spec), &secret(data));
        let texts = |all: &[_]| all.iter().map(ToString::to_string).collect::<Vec<String>>().join("; ");
        for (found, expected) in [(texts(&problems.errors), error), (texts(&problems.warnings), warning)] {
            assert_eq!(found.is_empty(), expected.is_none(), "{found}");
            assert!(expected.is_none_or(|expected| found.contains(expected)), "{found}");
        }
    }
}

#[tokio::test]
async fn user_data_that_ecs_would_refuse_are_refused_before() {
    let world = World::new().await;
    let mut request = world.request("a1");
    request.secret.0.insert("userData".to_owned(), vec![b'x'; 32 * 1024]);
    world.driver.create(&request).await.unwrap();
    let mut request = world.request("b1");
    request.secret.0.insert("userData".to_owned(), vec![b'x'; 32 * 1024 + 1]);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    let problems = world.driver.secret_problems(&request.class, &request.secret);
    assert!(problems.errors[0].to_string().contains("32769 bytes"), "{problems:?}");
    assert_eq!(world.calls("RunInstances"), 1);
    world.assert_valid_requests();
}

/// The cloud may quote its requests.
#[tokio::test]
async fn no_text_contains_a_secret() {
    let world = World::new().await;
    let quote = format!("server string to sign: {KEY_ID} {KEY_SECRET} and user data #!/bin/sh\nhunter2-hunter2 [x");
    world.fail("RunInstances", Fault::Error(Ecs::error(400, "InvalidParameter", &quote)), 1);
    let error = world.driver.create(&world.request("a1")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    let is_shown = |secret| error.message.contains(secret);
    assert!(!is_shown(KEY_ID) && !is_shown(KEY_SECRET) && !is_shown("hunter2"), "{error}");
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    let debug = format!("{:?}", SecretData(world.secret().0));
    assert!(!debug.contains(KEY_SECRET), "{debug}");
}
