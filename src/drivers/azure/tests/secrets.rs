//! The Secret of a class, and the tokens that it gets.

use mcm_driver::{Code, Driver};

use super::{
    World, code,
    fake::{ASSERTION, CLIENT, SUBSCRIPTION, TENANT},
    secret, spec_with,
};
use crate::clouds::PUBLIC;

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
async fn a_class_of_an_unknown_cloud_sends_no_credentials() {
    let world = World::new().await;
    let spec = spec_with(&[("cloudConfiguration", serde_json::json!({"name": "AzureMoon"}))]);
    let request = world.request_for("a", "uid-a", spec);
    assert_eq!(code(world.driver.delete(&request).await), Code::InvalidArgument);
    assert_eq!(world.calls("token"), 0);
}

#[tokio::test]
async fn a_refused_login_names_its_reason_and_its_application() {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("clientSecret".to_owned(), b"not-the-secret".to_vec());
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::Unauthenticated);
    assert!(error.message.contains("AADSTS7000215") && error.message.contains(CLIENT), "{error}");
}
