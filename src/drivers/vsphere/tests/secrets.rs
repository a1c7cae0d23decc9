//! The Secret of a class, and the sessions of its login.

use std::time::Duration;

use futures::future::join_all;
use mcm_driver::{Code, MachineRequest, SecretData, interface::Driver};
use rstest::rstest;

use super::{World, class, code, driver, spec, unmeasured, vcenter::Options};

fn with(world: &World, key: &str, value: &str) -> SecretData {
    let mut secret = world.secret();
    secret.0.insert(key.to_owned(), value.as_bytes().to_vec());
    secret
}

#[tokio::test]
async fn a_refused_login_is_not_tried_again_at_once() {
    let world = World::new().await;
    let request = MachineRequest { secret: with(&world, "vspherePassword", "wrong"), ..world.request("a") };
    for _ in 0..3 {
        assert_eq!(code(world.driver.status(&request).await), Code::Unauthenticated);
    }
    assert_eq!(world.calls("Login"), 1, "vCenter locks accounts after a few");
}

#[tokio::test]
async fn calls_of_a_login_share_a_session() {
    let world = World::new().await;
    let requests: Vec<_> = (0..5).map(|number| world.request(&format!("m-{number}"))).collect();
    for created in join_all(requests.iter().map(|request| world.driver.create(request))).await {
        created.unwrap();
    }
    assert_eq!((world.calls("Login"), world.vcenter.settings.lock().logged_out), (1, 0));
}

#[tokio::test]
async fn a_session_that_has_ended_is_replaced_by_one_other() {
    let world = World::new().await;
    let requests: Vec<_> = (0..5).map(|number| world.request(&format!("m-{number}"))).collect();
    world.driver.create(&requests[0]).await.unwrap();
    assert_eq!(world.vcenter.expire(), 1);
    for listed in join_all(requests.iter().map(|one| world.driver.list(&one.class, &one.secret))).await {
        assert_eq!(listed.unwrap().len(), 1);
    }
    assert_eq!(world.calls("Login"), 2);
    world.vcenter.expire();
    world.driver.delete(&requests[0]).await.unwrap();
    assert_eq!((world.count(), world.calls("Login"), world.vcenter.settings.lock().logged_out), (0, 3, 0));
}

#[tokio::test]
async fn the_session_is_logged_out_with_the_driver() {
    let mut world = World::new().await;
    world.driver.list(&class(spec()), &world.secret()).await.unwrap();
    world.driver = driver(Duration::from_secs(1), unmeasured());
    while world.vcenter.settings.lock().logged_out == 0 {
        tokio::task::yield_now().await;
    }
    while world.vcenter.expire() > 0 {
        tokio::task::yield_now().await;
    }
}

#[rstest]
#[case::accepted("true", true)]
#[case::refused("false", false)]
#[tokio::test]
async fn the_certificate_of_a_host_is_verified_unless_the_secret_says_otherwise(
    #[case] insecure: &str,
    #[case] is_accepted: bool,
) {
    let world = World::with(Options { is_plain: false, ..Options::default() }).await;
    let secret = with(&world, "vsphereInsecureSSL", insecure);
    match world.driver.list(&class(spec()), &secret).await {
        Ok(listed) => assert!(is_accepted && listed.is_empty()),
        Err(error) => assert!(!is_accepted && error.code == Code::Unavailable, "{error}"),
    }
}
