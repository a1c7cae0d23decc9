//! The conformance suite.

use mcm_driver::conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run};
use rstest::rstest;
use serde_json::{Value, json};

use super::{ROLE, World, class, fake, fake::REGION, server::Fault, spec, spec_with, spec_with_parts};

fn subject(world: &World, spec: Value) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "handle"}});
    let foreign = json!({"tags": {"kubernetes.io-cluster-other": "1", ROLE.0: "1"}});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec),
        invalid_class: Some(class(spec_with(&json!({"region": REGION, "flavorName": 7})))),
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

#[rstest]
#[case::plain(spec())]
#[case::with_a_port_and_a_volume(spec_with_parts())]
#[tokio::test]
async fn the_driver_conforms(#[case] spec: Value) {
    let world = World::new().await;
    assert_passed(&run(&subject(&world, spec)).await);
    assert_eq!(world.counts(), (0, 0, 0), "the suite leaves nothing behind");
    world.assert_valid_requests();
}

#[tokio::test]
async fn the_driver_conforms_where_servers_are_built_and_deleted_slowly() {
    let world = World::new().await;
    {
        let cloud = &mut world.openstack.lock().cloud;
        (cloud.builds, cloud.downloads, cloud.lingers) = (3, 3, 3);
    }
    assert_passed(&run(&subject(&world, spec_with_parts())).await);
    assert_eq!(world.counts(), (0, 0, 0));
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::new().await;
    let busy = fake::nova(429, "overLimit", "This request was rate-limited.");
    world.openstack.lock().storm = vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    assert_passed(&run(&subject(&world, spec())).await);
}
