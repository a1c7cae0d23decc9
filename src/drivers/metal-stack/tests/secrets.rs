//! The Secret of a class.

use rstest::rstest;
use serde_json::json;

use super::{
    World, class, code, driver,
    fake::{HMAC, TOKEN},
    secret, spec, unmeasured,
};
use mcm_driver::{Code, MachineRequest, SecretData, interface::Driver};
use std::time::Duration;

#[tokio::test]
async fn new_credentials_apply_at_once() {
    let world = World::new().await;
    let wrong = secret(&[("metalAPIURL", &world.url), ("metalAPIKey", "not-the-token")]);
    let request = MachineRequest { secret: wrong, ..world.request("a") };
    assert_eq!(code(world.driver.create(&request).await), Code::Unauthenticated);
    let right = secret(&[("metalAPIURL", &world.url), ("metalAPIKey", TOKEN)]);
    world.driver.create(&MachineRequest { secret: right, ..request }).await.unwrap();
    let other = secret(&[("metalAPIURL", &world.url), ("metalAPIHMac", HMAC)]);
    world.driver.status(&MachineRequest { secret: other, ..world.request("a") }).await.unwrap();
}

#[tokio::test]
async fn a_url_without_tls_is_for_allowed_hosts() {
    let world = World::new().await;
    let other = secret(&[("metalAPIURL", "http://metal.example.com/metal"), ("metalAPIHMac", HMAC)]);
    let request = MachineRequest { secret: other, ..world.request("a") };
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("--allowed-cloud-endpoints"), "{error}");
}

#[rstest]
#[case::complete(&[("metalAPIURL", "https://api.example.com"), ("metalAPIKey", "t")], None, None)]
#[case::no_credentials(&[("metalAPIURL", "https://api.example.com")], Some("neither metalAPIKey nor metalAPIHMac"), None)]
#[case::no_user_data(&[("metalAPIURL", "https://api.example.com"), ("metalAPIKey", "t"), ("userData", " ")], None, Some("no userData"))]
fn the_problems_of_a_secret_are_found_without_a_call(
    #[case] data: &[(&str, &str)],
    #[case] error: Option<&str>,
    #[case] warning: Option<&str>,
) {
    let problems = driver(Duration::from_secs(1), unmeasured()).secret_problems(&class(spec()), &secret(data));
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect::<Vec<String>>().join("; ");
    for (found, expected) in [(texts(&problems.errors), error), (texts(&problems.warnings), warning)] {
        assert_eq!(found.is_empty(), expected.is_none(), "{found}");
        assert!(expected.is_none_or(|expected| found.contains(expected)), "{found}");
    }
}

#[tokio::test]
async fn user_data_that_are_no_text_are_refused() {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("userData".to_owned(), vec![0xff, 0xfe]);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(world.count(), 0);
}

/// The cloud may quote its requests.
#[tokio::test]
async fn no_text_contains_a_secret() {
    let world = World::new().await;
    let quote = format!("invalid request: key {HMAC} and user data #!/bin/sh\nhunter2-hunter2 [x");
    let reply = world.metal.lock().cloud.error(400, &quote);
    world.fail("machine.allocate", super::server::Fault::Error(reply), 1);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(!error.message.contains(HMAC) && !error.message.contains("hunter2"), "{error}");
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    let debug = format!("{:?}", SecretData(world.secret().0));
    assert!(!debug.contains(HMAC), "{}", json!(debug));
}
