//! The conformance suite.

use mcm_driver::conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run};
use serde_json::json;

use super::{ROLE, World, class, fake::PROJECT, server::Fault, spec, spec_with};

/// More than the suite needs.
const SERVERS: usize = 200;

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "csi.example.com", "volumeHandle": "handle"}});
    let foreign = json!({"tags": ["kubernetes.io/cluster/other: 1", ROLE]});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(json!({"projectID": PROJECT, "metro": 7}))),
        foreign_class: Some(class(spec_with(&foreign))),
        secret: world.secret(),
        volumes: vec![(volume(csi), None)],
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
    let world = World::with(SERVERS).await;
    assert_passed(&run(&subject(&world)).await);
    assert_eq!(world.count(), 0, "the suite leaves nothing behind");
    world.assert_valid_requests();
}

#[tokio::test]
async fn the_driver_conforms_where_devices_stay_visible_and_lists_have_several_pages() {
    let world = World::with(SERVERS).await;
    {
        let mut metal = world.metal.lock();
        (metal.cloud.lingers, metal.cloud.largest_page) = (9, 2);
    }
    assert_passed(&run(&subject(&world)).await);
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::with(SERVERS).await;
    {
        let mut metal = world.metal.lock();
        let busy = metal.cloud.error(429, "Too many requests");
        metal.storm = vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    }
    assert_passed(&run(&subject(&world)).await);
}
