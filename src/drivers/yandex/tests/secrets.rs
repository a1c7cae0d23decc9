//! The Secret of a class.

use std::time::Duration;

use mcm_driver::{Code, interface::Driver, testing::server::Fault};
use rstest::rstest;

use super::{World, code, driver, unmeasured};

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

/// A folder is a place.
#[tokio::test]
async fn a_text_shows_the_folder_of_the_secret() {
    let world = World::new().await;
    let reply = world.yandex.lock().cloud.error(3, "invalid request in folder b1gfolder");
    world.fail("instance.create", Fault::Error(reply), 1);
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert!(error.message.contains("folder b1gfolder"), "{error}");
}
