//! The Secret of a class, and the tokens that it gets.

use std::time::Duration;

use mcm_driver::{Code, Driver, MachineRequest, SecretData};
use rstest::rstest;

use super::{
    World, class, code, driver,
    fake::{ASSERTION, Arm, CLIENT, CLIENT_SECRET, SUBSCRIPTION, TENANT},
    secret,
    server::Fault,
    spec, spec_with, unmeasured,
};
use crate::clouds::PUBLIC;

#[tokio::test]
async fn new_credentials_apply_at_once() {
    let world = World::new().await;
    let mut wrong = world.secret();
    wrong.0.insert("clientSecret".to_owned(), b"not-the-secret".to_vec());
    let request = MachineRequest { secret: wrong, ..world.request("a") };
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::Unauthenticated);
    assert!(error.message.contains("AADSTS7000215") && error.message.contains(CLIENT), "{error}");
    world.driver.create(&world.request("a")).await.unwrap();
}

#[tokio::test]
async fn a_token_is_fetched_once_for_many_requests() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.driver.create(&world.request(name)).await.unwrap();
    }
    assert_eq!(world.calls("token"), 1);
}

#[tokio::test]
async fn a_token_that_azure_refuses_is_fetched_again() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.arm.lock().cloud.expire_tokens();
    assert_eq!(code(world.driver.status(&request).await), Code::Unauthenticated);
    world.driver.status(&request).await.unwrap();
    assert_eq!(world.calls("token"), 2);
}

#[tokio::test]
async fn the_token_file_is_read_for_each_login() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    // Only the environment of a test leads the token of the process to another host.
    let login = |text: &'static str| {
        std::fs::write(&file, text).unwrap();
        let policy = mcm_driver::testing::secret_policy();
        let ids = [("tenantID", TENANT), ("clientID", CLIENT), ("subscriptionID", SUBSCRIPTION)];
        let values = ids.into_iter().chain([("workloadIdentityTokenFile", file.to_str().unwrap())]);
        let data = secret(&values.collect::<Vec<_>>());
        let login = crate::login::Login::from_secret(&data, PUBLIC, &policy).ok().unwrap();
        let url: reqwest::Url = world.url.parse().unwrap();
        crate::login::Login { authority: url.clone(), api: url, ..login }
    };
    for (text, is_accepted) in [(" old-assertion\n", false), (concat!(" assertion-top-secret", "\n"), true)] {
        let services = world.driver.0.services(&login(text)).unwrap();
        let path = ["subscriptions", SUBSCRIPTION, "resourceGroups", "shoot--a--b"];
        let query = [("api-version", "2021-04-01")];
        let call = mcm_driver::cloud::RestCall::read("test", reqwest::Method::GET, &path).query(&query);
        let answer = services.answer(&call).await;
        assert_eq!(answer.is_ok(), is_accepted, "{answer:?}");
    }
    assert!(world.arm.lock().sent("token").iter().any(|request| request.body.contains(ASSERTION)));
}

#[tokio::test]
async fn a_host_without_tls_has_to_be_allowed() {
    let world = World::new().await;
    for key in ["endpointURL", "authorityURL"] {
        let mut request = world.request("a");
        request.secret.0.insert(key.to_owned(), b"http://azure.example.com".to_vec());
        let error = world.driver.create(&request).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("--allowed-cloud-endpoints"), "{error}");
    }
}

#[rstest]
#[case::complete(&[("clientSecret", "s")], None)]
#[case::no_credentials(&[], Some("neither clientSecret nor workloadIdentityTokenFile"))]
#[case::no_user_data(&[("clientSecret", "s"), ("userData", "")], Some("no userData"))]
fn the_problems_of_a_secret_are_found_without_a_call(#[case] more: &[(&str, &str)], #[case] expected: Option<&str>) {
    let ids = [("tenantID", TENANT), ("clientID", CLIENT), ("subscriptionID", SUBSCRIPTION)];
    let data = secret(&ids.iter().chain(more).copied().collect::<Vec<_>>());
    let problems = driver(Duration::from_secs(1), unmeasured()).secret_problems(&class(spec()), &data);
    let texts: Vec<String> = problems.errors.iter().map(ToString::to_string).collect();
    match expected {
        None => assert_eq!(texts, [""; 0]),
        Some(expected) => assert!(texts.len() == 1 && texts[0].contains(expected), "{texts:?}"),
    }
}

#[test]
fn user_data_that_azure_does_not_take_are_a_problem() {
    let ids = [("tenantID", TENANT), ("clientID", CLIENT), ("subscriptionID", SUBSCRIPTION), ("clientSecret", "s")];
    let large = "x".repeat(65_536);
    let data = secret(&ids.into_iter().chain([("userData", large.as_str())]).collect::<Vec<_>>());
    let problems = driver(Duration::from_secs(1), unmeasured()).secret_problems(&class(spec()), &data);
    assert!(problems.errors[0].to_string().contains("at most 65535"), "{:?}", problems.errors);
}

#[tokio::test]
async fn a_class_of_an_unknown_cloud_sends_no_credentials() {
    let world = World::new().await;
    let spec = spec_with(&[("cloudConfiguration", serde_json::json!({"name": "AzureMoon"}))]);
    let request = world.request_for("a", "uid-a", spec);
    assert_eq!(code(world.driver.delete(&request).await), Code::InvalidArgument);
    assert_eq!(world.calls("token"), 0);
}

/// Azure may quote its requests.
#[tokio::test]
async fn no_text_contains_a_secret() {
    let world = World::new().await;
    let quote = format!("invalid request: {CLIENT_SECRET} and #!/bin/sh\nhunter2-hunter2 [x");
    world.fail("vm.put", Fault::Error(Arm::error(400, "InvalidParameter", &quote)), 1);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(!error.message.contains(CLIENT_SECRET) && !error.message.contains("hunter2"), "{error}");
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    let debug = format!("{:?}", SecretData(world.secret().0));
    assert!(!debug.contains(CLIENT_SECRET), "{debug}");
}
