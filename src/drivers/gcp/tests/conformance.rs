//! The conformance suite.

use serde_json::json;

use super::{World, class, fake::Fault, spec, spec_with};
use mcm_driver::conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run};

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let handle = "projects/p/zones/z/disks/d";
    let csi = json!({"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": handle}});
    let foreign = json!({"tags": ["kubernetes-io-cluster-other", "kubernetes-io-role-node"]});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(json!({"region": 7}))),
        foreign_class: Some(class(spec_with(&foreign))),
        secret: world.secret(),
        volumes: vec![
            (volume(csi), Some(handle.to_owned())),
            (volume(json!({"hostPath": {"path": "/tmp"}})), None),
            (volume(json!({"gcePersistentDisk": {"pdName": "d"}})), Some("d".to_owned())),
        ],
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
}

#[tokio::test]
async fn the_driver_conforms_where_filters_do_nothing_and_pages_are_small() {
    let world = World::new().await;
    {
        let mut gce = world.gce.lock();
        (gce.ignores_filters, gce.page) = (true, Some(2));
    }
    assert_passed(&run(&subject(&world)).await);
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::new().await;
    let faults = [Fault::LostAnswer, Fault::Error("rateLimitExceeded", 403), Fault::Status(502), Fault::Malformed];
    world.gce.lock().storm = faults.to_vec();
    assert_passed(&run(&subject(&world)).await);
}
