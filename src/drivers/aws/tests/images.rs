//! How often images are read.

use std::time::Duration;

use futures::future::join_all;

use super::{
    code, driver_that_waits,
    fake::{Fault, Shared},
    request, start, start_cloud,
};
use mcm_driver::{Code, MachineRequest, interface::Driver};

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
async fn a_machine_that_comes_while_its_image_is_being_read_does_not_read_it_again() {
    let (cloud, url) = start_cloud().await;
    // The first read is not answered in time, and repeated.
    let driver = driver_that_waits(&url, Duration::from_millis(500));
    cloud.lock().faults.push(("DescribeImages", Fault::Timeout, 1));
    let (first, second) = (request("a"), request("b"));
    let late = async {
        while vms_and_reads(&cloud).1 == 0 {
            tokio::task::yield_now().await;
        }
        driver.create(&second).await
    };
    let (first, second) = tokio::join!(driver.create(&first), late);
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(vms_and_reads(&cloud), (2, 2));
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
