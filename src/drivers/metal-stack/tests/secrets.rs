//! The Secret of a class.

use super::{World, code};
use mcm_driver::{Code, interface::Driver};

#[tokio::test]
async fn user_data_that_are_no_text_are_refused() {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("userData".to_owned(), vec![0xff, 0xfe]);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(world.count(), 0);
}
