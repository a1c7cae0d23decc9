//! The conformance suite.

use serde_json::json;

use super::{CLUSTER, Kubernetes, ROLE, World, class, fake::Start, server::Fault, spec, spec_with};
use mcm_driver::conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run};

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "csi.kubevirt.io", "volumeHandle": "handle"}});
    let foreign = json!({"tags": {CLUSTER: "other", ROLE: "node"}});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(spec_with(&json!({"zone": 7})))),
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
    assert_eq!((world.count(), world.secrets()), (0, 0), "the suite leaves nothing behind");
    world.assert_valid_requests();
}

#[tokio::test]
async fn the_driver_conforms_where_vms_start_and_stop_slowly() {
    let world = World::new().await;
    {
        let mut kubernetes = world.kubernetes.lock();
        (kubernetes.cloud.lingers, kubernetes.cloud.start) = (3, Start::AfterLooks(3));
    }
    assert_passed(&run(&subject(&world)).await);
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::new().await;
    let busy = Kubernetes::error(429, "TooManyRequests", "too many requests, please try again later", "", "");
    world.kubernetes.lock().storm = vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    assert_passed(&run(&subject(&world)).await);
}
