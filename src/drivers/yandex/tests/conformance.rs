//! The conformance suite.

use mcm_driver::{
    conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run},
    testing::server::Fault,
};
use serde_json::json;

use super::{ROLE, World, class, spec, spec_with};

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "yandex.csi.flant.com", "volumeHandle": "handle"}});
    let foreign = json!({"labels": {"kubernetes-io-cluster-other": "1", ROLE: "1"}});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(spec_with(&json!({"zoneID": 7})))),
        foreign_class: Some(class(spec_with(&foreign))),
        secret: world.secret(),
        volumes: vec![(volume(csi), Some("handle".to_owned())), (volume(json!({"hostPath": {"path": "/tmp"}})), None)],
        prefix: "conformance".to_owned(),
    }
}

/// No check failed, and only the initialization was skipped, which the driver lacks.
fn assert_passed(report: &ConformanceReport) {
    assert_eq!(report.failed(), [""; 0], "\n{report}");
    let skipped = report.results.iter().filter(|one| one.outcome == ConformanceOutcome::Skipped).count();
    assert_eq!(skipped, 1, "\n{report}");
}

#[tokio::test]
async fn the_driver_conforms() {
    let world = World::new().await;
    assert_passed(&run(&subject(&world)).await);
    assert_eq!(world.count(), 0, "the suite leaves nothing behind");
    world.assert_valid_requests();
}

#[tokio::test]
async fn the_driver_conforms_where_operations_take_long() {
    let world = World::new().await;
    world.yandex.lock().cloud.steps = 25;
    assert_passed(&run(&subject(&world)).await);
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::new().await;
    {
        let mut yandex = world.yandex.lock();
        let busy = yandex.cloud.error(8, "The limit on maximum number of active operations has exceeded.");
        yandex.storm = vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    }
    assert_passed(&run(&subject(&world)).await);
}
