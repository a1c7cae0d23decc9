//! The conformance suite.

use mcm_driver::conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run};
use serde_json::json;

use super::{
    World, class,
    fake::{Ecs, REGION},
    server::Fault,
    spec, spec_with,
};

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": "d-1"}});
    let foreign = json!({"tags": {"kubernetes.io/cluster/other": "1", "kubernetes.io/role/node": "1"}});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(json!({"region": REGION, "imageID": 7}))),
        foreign_class: Some(class(spec_with(&foreign))),
        secret: world.secret(),
        volumes: vec![(volume(csi), Some("d-1".to_owned())), (volume(json!({"hostPath": {"path": "/tmp"}})), None)],
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
async fn the_driver_conforms_where_vms_start_slowly_and_are_shown_late() {
    let world = World::new().await;
    {
        let mut ecs = world.ecs.lock();
        (ecs.cloud.boots, ecs.cloud.hides, ecs.cloud.page) = (4, 3, 2);
    }
    assert_passed(&run(&subject(&world)).await);
    assert_eq!(world.count(), 0, "the suite leaves nothing behind");
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::new().await;
    let busy = Ecs::error(400, "Throttling.User", "the request was denied due to user flow control");
    world.ecs.lock().storm = vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    assert_passed(&run(&subject(&world)).await);
    world.assert_valid_requests();
}
