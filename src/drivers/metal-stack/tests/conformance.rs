//! The conformance suite.

use serde_json::json;

use super::{World, class, fake::PROJECT, server::Fault, spec, spec_with};
use mcm_driver::conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run};

/// More than the suite needs at a time, and enough that a machine that was freed is not allocated again at once: metal-stack wipes it
/// first.
const MACHINES: usize = 200;

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "csi.example.com", "volumeHandle": "handle"}});
    let foreign = json!({"tags": ["cluster.metal-stack.io/id=other"]});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(json!({"project": PROJECT, "partition": 7}))),
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
    let world = World::with(MACHINES).await;
    assert_passed(&run(&subject(&world)).await);
    assert_eq!(world.count(), 0, "the suite leaves nothing behind");
    world.assert_valid_requests();
}

#[tokio::test]
async fn the_driver_conforms_where_machines_are_freed_slowly() {
    let world = World::with(MACHINES).await;
    world.metal.lock().cloud.lingers = 3;
    assert_passed(&run(&subject(&world)).await);
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::with(MACHINES).await;
    {
        let mut metal = world.metal.lock();
        let busy = metal.cloud.error(422, "too many parallel machine allocations taking place, try again later");
        metal.storm = vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    }
    assert_passed(&run(&subject(&world)).await);
}
