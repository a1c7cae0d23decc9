//! The Secret of a class.

use std::time::Duration;

use mcm_driver::{Code, MachineRequest, SecretData, interface::Driver, testing::server::Fault};
use rstest::rstest;
use serde_json::json;

use super::{
    World, class, code, driver,
    fake::{ACCOUNT, KEY_ID, PRIVATE_KEY},
    secret, spec, unmeasured,
};

fn key(id: &str) -> String {
    json!({"id": id, "service_account_id": ACCOUNT, "private_key": PRIVATE_KEY}).to_string()
}

#[tokio::test]
async fn new_credentials_apply_at_once() {
    let world = World::new().await;
    let with_key = |id: &str| secret(&[("endpointURL", &world.url), ("serviceAccountJSON", &key(id))]);
    let request = MachineRequest { secret: with_key("ajeother"), ..world.request("a") };
    assert_eq!(code(world.driver.create(&request).await), Code::Unauthenticated);
    world.driver.create(&MachineRequest { secret: with_key(KEY_ID), ..request }).await.unwrap();
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_after_it_was_refused() {
    let world = World::new().await;
    let request = world.request("a");
    for _ in 0..3 {
        world.driver.list(&request.class, &request.secret).await.unwrap();
    }
    assert_eq!((world.calls("token.create"), world.calls("endpoint.list")), (1, 1));
    world.yandex.lock().cloud.revoke_tokens();
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unauthenticated);
    world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(world.calls("token.create"), 2);
}

#[tokio::test]
async fn an_endpoint_is_at_an_allowed_host() {
    let world = World::new().await;
    let other = secret(&[("endpointURL", "http://api.example.com")]);
    let error = world.driver.create(&MachineRequest { secret: other, ..world.request("a") }).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("--allowed-cloud-endpoints"), "{error}");
}

/// The list of endpoints must not send the credentials elsewhere.
#[tokio::test]
async fn a_listed_service_is_at_an_allowed_host() {
    let world = World::new().await;
    world.yandex.lock().cloud.host = Some("evil.example.com".to_owned());
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("service iam at endpointURL"), "{error}");
    assert_eq!(world.calls("token.create"), 0);
}

#[rstest]
#[case::complete(&[], None, None)]
#[case::no_key(&[("serviceAccountJSON", "")], Some("no serviceAccountJSON"), None)]
#[case::no_pem(&[("serviceAccountJSON", r#"{"id": "a", "service_account_id": "b", "private_key": "c"}"#)], Some("no RSA key"), None)]
#[case::no_folder(&[("folderID", "")], Some("no folderID"), None)]
#[case::empty_user_data(&[("userData", " ")], None, Some("userData are empty"))]
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

#[rstest]
#[case::absent(None)]
#[case::binary(Some(vec![0xff, 0xfe]))]
#[tokio::test]
async fn user_data_that_cannot_be_sent_are_refused(#[case] data: Option<Vec<u8>>) {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.remove("userData");
    request.secret.0.extend(data.map(|data| ("userData".to_owned(), data)));
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(world.count(), 0);
}

/// The cloud may quote its requests.
#[tokio::test]
async fn no_text_contains_a_secret() {
    let world = World::new().await;
    let line = PRIVATE_KEY.lines().nth(3).unwrap();
    let quote = format!("invalid request in folder b1gfolder: user data #!/bin/sh\nhunter2-hunter2 [x {}", key(KEY_ID));
    let reply = world.yandex.lock().cloud.error(3, &quote);
    world.fail("instance.create", Fault::Error(reply), 1);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(!error.message.contains(line) && !error.message.contains("hunter2"), "{error}");
    assert!(error.message.contains("folder b1gfolder"), "a folder is a place: {error}");
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    let debug = format!("{:?}", SecretData(world.secret().0));
    assert!(!debug.contains(line), "{debug}");
}

/// The server of tokens may quote its requests.
#[tokio::test]
async fn no_text_contains_the_request_of_a_token() {
    let world = World::new().await;
    world.driver.list(&world.request("a").class, &world.secret()).await.unwrap();
    let jwt: serde_json::Value = serde_json::from_str(&world.yandex.lock().sent("token.create")[0].body).unwrap();
    assert_eq!(jwt["jwt"].as_str().unwrap().split('.').count(), 3);
    let reply = world.yandex.lock().cloud.error(16, "the key was deleted");
    world.fail("token.create", Fault::Error(reply), 9);
    let error = driver(Duration::from_secs(20), unmeasured()).create(&world.request("a")).await.unwrap_err();
    let expected = "list of instances failed: IAM token of service account ajeaccount failed: Unauthenticated: the key was deleted";
    assert_eq!((error.code, error.message.as_str()), (Code::Unauthenticated, expected));
}
