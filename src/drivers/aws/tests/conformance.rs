//! The conformance suite.

use serde_json::{Value, json};

use super::{class, fake::Fault, secret, spec, spec_with, start};
use mcm_driver::{
    conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run},
    interface::Driver,
};

pub(super) fn subject(driver: &dyn Driver, spec: Value) -> ConformanceSubject<'_> {
    let volume = |spec: Value| serde_json::from_value(spec).unwrap();
    ConformanceSubject {
        driver,
        class: class(spec),
        invalid_class: Some(class(json!({"region": 7}))),
        foreign_class: Some(class(spec_with(
            &json!({"tags": {"kubernetes.io/cluster/other": "1", "kubernetes.io/role/node": "1"}}),
        ))),
        secret: secret(),
        volumes: vec![
            (volume(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-2"}})), Some("vol-2".to_owned())),
            (volume(json!({"hostPath": {"path": "/tmp"}})), None),
            (volume(json!({"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}})), Some("vol-1".to_owned())),
        ],
        prefix: "conformance".to_owned(),
    }
}

fn initializing() -> Value {
    spec_with(&json!({"srcAndDstChecksEnabled": false}))
}

fn assert_all_passed(report: &ConformanceReport) {
    assert!(report.results.iter().all(|one| one.outcome == ConformanceOutcome::Passed), "\n{report}");
}

#[tokio::test]
async fn the_driver_conforms() {
    let (cloud, driver) = start().await;
    assert_all_passed(&run(&subject(&driver, initializing())).await);
    assert_eq!(cloud.lock().alive().len(), 0, "the suite leaves nothing behind");
}

#[tokio::test]
async fn a_class_that_needs_no_initialization_conforms() {
    let (_cloud, driver) = start().await;
    let report = run(&subject(&driver, spec())).await;
    assert_eq!(report.failed(), [""; 0], "\n{report}");
}

#[tokio::test]
async fn the_driver_conforms_where_filters_do_nothing_and_pages_are_small() {
    let (cloud, driver) = start().await;
    {
        let mut cloud = cloud.lock();
        cloud.ignores_filters = true;
        cloud.page = Some(2);
    }
    assert_all_passed(&run(&subject(&driver, initializing())).await);
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let (cloud, driver) = start().await;
    let faults = [Fault::LostAnswer, Fault::Error("RequestLimitExceeded", 503), Fault::Status(502), Fault::Malformed];
    cloud.lock().storm = faults.to_vec();
    let report = run(&subject(&driver, spec())).await;
    assert_eq!(report.failed(), [""; 0], "\n{report}");
}
