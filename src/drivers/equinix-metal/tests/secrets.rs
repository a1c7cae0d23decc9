//! The Secret of a class.

use std::time::Duration;

use mcm_driver::{Code, Driver, MachineRequest, SecretData};
use rstest::rstest;

use super::{World, class, code, driver, fake::TOKEN, secret, server::Fault, spec, unmeasured};

#[tokio::test]
async fn new_credentials_apply_at_once() {
    let world = World::new().await;
    let wrong = secret(&[("endpointURL", &world.url), ("apiToken", "not-the-token")]);
    let request = MachineRequest { secret: wrong, ..world.request("a") };
    assert_eq!(code(world.driver.create(&request).await), Code::Unauthenticated);
    let right = secret(&[("endpointURL", &world.url), ("alternateApiToken", TOKEN)]);
    world.driver.create(&MachineRequest { secret: right, ..request }).await.unwrap();
    world.driver.status(&world.request("a")).await.unwrap();
}

#[rstest]
#[case::without_tls("http://metal.example.com/metal/v1")]
#[case::elsewhere("https://metal.example.com/metal/v1")]
#[tokio::test]
async fn a_token_is_sent_to_allowed_hosts_only(#[case] url: &str) {
    let world = World::new().await;
    let other = secret(&[("endpointURL", url), ("apiToken", TOKEN)]);
    let request = MachineRequest { secret: other, ..world.request("a") };
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("--allowed-cloud-endpoints"), "{error}");
}

#[rstest]
#[case::complete(&[("apiToken", "t")], &[])]
#[case::no_token(&[], &["neither apiToken nor alternateApiToken"])]
#[case::no_user_data(&[("apiToken", "t"), ("userData", "")], &["no userData"])]
#[case::nothing(&[("userData", "")], &["neither apiToken nor alternateApiToken", "no userData"])]
fn the_problems_of_a_secret_are_found_without_a_call(#[case] data: &[(&str, &str)], #[case] expected: &[&str]) {
    let problems = driver(Duration::from_secs(1), unmeasured()).secret_problems(&class(spec()), &secret(data));
    let errors: Vec<String> = problems.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    for (found, expected) in errors.iter().zip(expected) {
        assert!(found.contains(expected), "{found}");
    }
}

#[rstest]
#[case::no_text(&[0xff, 0xfe])]
#[case::none(b"")]
#[tokio::test]
async fn user_data_that_cannot_be_sent_are_refused(#[case] data: &[u8]) {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("userData".to_owned(), data.to_vec());
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_deletion_needs_only_the_token() {
    let world = World::new().await;
    let mut request = world.request("a");
    world.driver.create(&request).await.unwrap();
    request.secret.0.remove("userData");
    world.driver.status(&request).await.unwrap();
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

/// The cloud may quote its requests.
#[tokio::test]
async fn no_text_contains_a_secret() {
    let world = World::new().await;
    let quote = format!("invalid request: token {TOKEN} and user data #!/bin/sh\nhunter2-hunter2 [x");
    let reply = world.metal.lock().cloud.error(422, &quote);
    world.fail("device.create", Fault::Error(reply), 1);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(!error.message.contains(TOKEN) && !error.message.contains("hunter2"), "{error}");
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    let debug = format!("{:?}", SecretData(world.secret().0));
    assert!(!debug.contains(TOKEN), "{debug}");
}
