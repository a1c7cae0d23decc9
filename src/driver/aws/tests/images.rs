//! How often images are read.

use futures::future::join_all;

use super::{
    code,
    fake::{Fault, Shared},
    request, start,
};
use crate::driver::{Code, MachineRequest, interface::Driver};

fn vms_and_reads(cloud: &Shared) -> (usize, usize) {
    let cloud = cloud.lock();
    (cloud.alive().len(), cloud.sent("DescribeImages").len())
}

fn requests() -> Vec<MachineRequest> {
    (0..20).map(|number| request(&format!("m-{number}"))).collect()
}

#[tokio::test]
async fn machines_that_are_created_together_read_their_image_once() {
    let (cloud, driver) = start().await;
    let requests = requests();
    let created = join_all(requests.iter().map(|request| driver.create(request))).await;
    assert!(created.iter().all(Result::is_ok));
    assert_eq!(vms_and_reads(&cloud), (20, 1));
    driver.create(&request("later")).await.unwrap();
    assert_eq!(vms_and_reads(&cloud).1, 1, "the root device of an image never changes");
}

#[tokio::test]
async fn an_image_that_cannot_be_read_fails_those_who_wait_and_is_read_again_by_the_next() {
    let (cloud, driver) = start().await;
    cloud.lock().faults.push(("DescribeImages", Fault::Error("AuthFailure", 401), 1));
    let requests = requests();
    for result in join_all(requests.iter().map(|request| driver.create(request))).await {
        assert_eq!(code(result), Code::Unauthenticated);
    }
    assert_eq!(vms_and_reads(&cloud), (0, 1));
    driver.create(&requests[0]).await.unwrap();
    assert_eq!(vms_and_reads(&cloud), (1, 2));
}
