//! The Secret of a class.

use std::time::Duration;

use mcm_driver::{Code, MachineRequest, SecretData, interface::Driver};
use rstest::rstest;

use super::{
    World, class, code, credentials, driver, fake,
    fake::{APPLICATION, APPLICATION_SECRET, PASSWORD, USER},
    secret,
    server::Fault,
    spec, unmeasured,
};

#[tokio::test]
async fn new_credentials_apply_at_once() {
    let world = World::new().await;
    let url = world.auth_url();
    let mut wrong = world.secret();
    wrong.0.insert("password".to_owned(), b"not-the-password".to_vec());
    let request = MachineRequest { secret: wrong, ..world.request("a") };
    assert_eq!(code(world.driver.create(&request).await), Code::Unauthenticated);
    assert_eq!(world.calls("token.create"), 1, "a cloud may lock users who try too often");
    world.driver.create(&world.request("a")).await.unwrap();
    let application = [
        ("authURL", url.as_str()),
        ("applicationCredentialID", APPLICATION),
        ("applicationCredentialSecret", APPLICATION_SECRET),
    ];
    let application = MachineRequest { secret: secret(&application), ..request };
    world.driver.status(&application).await.unwrap();
    world.assert_valid_requests();
}

#[tokio::test]
async fn a_token_is_shared_until_a_service_refuses_it() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.driver.create(&world.request_with_parts(name)).await.unwrap();
    }
    assert_eq!(world.calls("token.create"), 1);
    world.openstack.lock().cloud.revoke_tokens();
    world.driver.status(&world.request("a")).await.unwrap();
    assert_eq!(world.calls("token.create"), 2, "the call is made again with a new token");
}

#[tokio::test]
async fn a_url_without_tls_is_for_allowed_hosts() {
    let world = World::new().await;
    let request =
        MachineRequest { secret: secret(&credentials("http://keystone.example.com/v3")), ..world.request("a") };
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("--allowed-cloud-endpoints"), "{error}");
}

/// Whoever writes a Secret chooses the catalogue.
#[tokio::test]
async fn an_endpoint_in_a_catalogue_obeys_the_rules_of_urls() {
    let world = World::new().await;
    world.openstack.lock().cloud.url = "http://metadata.internal".to_owned();
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("nova endpoint in the catalogue"), "{error}");
}

#[tokio::test]
async fn a_class_without_volumes_needs_no_block_storage() {
    let world = World::new().await;
    world.openstack.lock().cloud.without.push("volumev3");
    world.driver.create(&world.request("a")).await.unwrap();
    world.driver.delete(&world.request("a")).await.unwrap();
    let error = world.driver.create(&world.request_with_parts("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("volumev3"), "{error}");
}

#[rstest]
#[case::complete(&[], None)]
#[case::no_user(&[("username", "")], Some("no username"))]
#[case::no_user_data(&[("userData", "")], Some("no userData"))]
#[case::insecure(&[("insecure", "maybe")], Some("neither \"true\" nor \"false\""))]
#[case::no_certificate(&[("caCert", "no certificate")], Some("is not a certificate in PEM form"))]
fn the_problems_of_a_secret_are_found_without_a_call(#[case] changes: &[(&str, &str)], #[case] expected: Option<&str>) {
    let data: Vec<_> = credentials("https://keystone.example.com").iter().chain(changes).copied().collect();
    let problems = driver(Duration::from_secs(1), unmeasured()).secret_problems(&class(spec()), &secret(&data));
    let text = problems.error_text();
    assert_eq!(text.is_empty(), expected.is_none(), "{text}");
    assert!(expected.is_none_or(|expected| text.contains(expected)), "{text}");
}

#[tokio::test]
async fn user_data_that_nova_does_not_take_are_refused() {
    let world = World::new().await;
    for (length, is_accepted) in [(49_149, true), (49_152, false)] {
        let mut request = world.request("a");
        request.secret.0.insert("userData".to_owned(), vec![b'x'; length]);
        let created = world.driver.create(&request).await;
        assert_eq!(created.is_ok(), is_accepted, "{created:?}");
    }
    assert_eq!(world.count(), 1);
}

/// The cloud may quote its requests.
#[tokio::test]
async fn no_text_contains_a_secret() {
    let world = World::new().await;
    let quote = format!("invalid request: password {PASSWORD} and user data #!/bin/sh\nhunter2-hunter2 [x");
    world.fail("server.create", Fault::Error(fake::nova(400, "badRequest", &quote)), 1);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(!error.message.contains(PASSWORD) && !error.message.contains("hunter2"), "{error}");
    assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    world.fail("token.create", Fault::Error(fake::keystone(401, &format!("{USER} with {PASSWORD}"))), 9);
    let other = driver(Duration::from_secs(20), unmeasured());
    let error = other.create(&world.request("a")).await.unwrap_err();
    assert!(!error.message.contains(PASSWORD), "{error}");
    assert!(!format!("{:?}", SecretData(world.secret().0)).contains(PASSWORD));
}
