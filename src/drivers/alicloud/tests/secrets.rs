//! The Secret of a class.

use mcm_driver::{Code, Driver};

use super::{World, code};

#[tokio::test]
async fn user_data_that_ecs_would_refuse_are_refused_before() {
    let world = World::new().await;
    let mut request = world.request("a1");
    request.secret.0.insert("userData".to_owned(), vec![b'x'; 32 * 1024]);
    world.driver.create(&request).await.unwrap();
    let mut request = world.request("b1");
    request.secret.0.insert("userData".to_owned(), vec![b'x'; 32 * 1024 + 1]);
    assert_eq!(code(world.driver.create(&request).await), Code::InvalidArgument);
    let problems = world.driver.secret_problems(&request.class, &request.secret);
    assert!(problems.errors[0].to_string().contains("32769 bytes"), "{problems:?}");
    assert_eq!(world.calls("RunInstances"), 1);
    world.assert_valid_requests();
}
