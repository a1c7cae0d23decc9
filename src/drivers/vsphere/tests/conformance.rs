//! The conformance suite.

use mcm_driver::{
    conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run},
    testing::server::Fault,
};
use serde_json::json;

use super::{CLUSTER, ROLE, World, class, spec, spec_with, vcenter::fault};

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": "handle"}});
    let foreign = json!({"tags": {CLUSTER.0: "other", ROLE.0: ROLE.1}});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(json!({"tags": {CLUSTER.0: CLUSTER.1, ROLE.0: ROLE.1}, "numCpus": "7"}))),
        foreign_class: Some(class(spec_with(&foreign))),
        secret: world.secret(),
        volumes: vec![(volume(csi), Some("handle".to_owned())), (volume(json!({"hostPath": {"path": "/tmp"}})), None)],
        prefix: "conformance".to_owned(),
    }
}

/// Nothing failed, and nothing was skipped.
fn assert_passed(report: &ConformanceReport) {
    assert_eq!(report.failed(), [""; 0], "\n{report}");
    let skipped = report.results.iter().filter(|one| one.outcome == ConformanceOutcome::Skipped).count();
    assert_eq!(skipped, 0, "\n{report}");
}

#[tokio::test]
async fn the_driver_conforms() {
    let world = World::new().await;
    assert_passed(&run(&subject(&world)).await);
    assert_eq!(world.count(), 0, "the suite leaves nothing behind");
}

#[tokio::test]
async fn the_driver_conforms_where_clones_take_time() {
    let world = World::new().await;
    world.vcenter.change(&json!({"CloneTime": 60}));
    assert_passed(&run(&subject(&world)).await);
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::new().await;
    let busy = fault("TaskInProgress", "another task works on it");
    world.vcenter.settings.lock().storm =
        vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    assert_passed(&run(&subject(&world)).await);
}
