//! The Secret of a class.

use mcm_driver::{Code, interface::Driver};

use super::{
    World,
    fake::{self, PASSWORD, USER},
    server::Fault,
};

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

/// A cloud may lock users who try too often, and Keystone may quote its requests.
#[tokio::test]
async fn a_refused_login_is_tried_once_and_its_password_is_not_shown() {
    let world = World::new().await;
    world.fail("token.create", Fault::Error(fake::keystone(401, &format!("{USER} with {PASSWORD}"))), 9);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert!(error.code == Code::Unauthenticated && !error.message.contains(PASSWORD), "{error}");
    assert_eq!(world.calls("token.create"), 1);
}
