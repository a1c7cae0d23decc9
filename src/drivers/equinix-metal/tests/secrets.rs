//! The Secret of a class.

use mcm_driver::{Code, Driver};
use rstest::rstest;

use super::{World, code};

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
