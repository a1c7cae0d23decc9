//! The conformance suite.

use mcm_driver::conformance::{ConformanceOutcome, ConformanceReport, ConformanceSubject, run};
use serde_json::json;

use super::{World, class, fake::Arm, of_cluster, server::Fault, spec, spec_with};

fn subject(world: &World) -> ConformanceSubject<'_> {
    let volume = |spec| serde_json::from_value(spec).unwrap();
    let csi = json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": "/subscriptions/s/disks/d"}});
    ConformanceSubject {
        driver: &world.driver,
        class: class(spec()),
        invalid_class: Some(class(spec_with(&[("properties.hardwareProfile.vmSize", json!(7))]))),
        foreign_class: Some(class(spec_with(&[("tags", of_cluster("other"))]))),
        secret: world.secret(),
        volumes: vec![
            (volume(csi), Some("/subscriptions/s/disks/d".to_owned())),
            (volume(json!({"hostPath": {"path": "/tmp"}})), None),
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
    assert_eq!(world.counts(), (0, 0, 0), "the suite leaves nothing behind");
    assert_eq!(world.arm.lock().cloud.violations, [""; 0]);
}

#[tokio::test]
async fn the_driver_conforms_where_changes_take_long() {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        (arm.cloud.steps, arm.cloud.steps_of_parts) = (4, 2);
    }
    assert_passed(&run(&subject(&world)).await);
    assert_eq!(world.counts(), (0, 0, 0));
}

#[tokio::test]
async fn the_driver_conforms_at_a_bad_moment_of_the_cloud() {
    let world = World::new().await;
    {
        let busy = Arm::error(429, "SubscriptionRequestsThrottled", "too many requests");
        world.arm.lock().storm = vec![Fault::LostAnswer, Fault::Error(busy), Fault::Status(502), Fault::Malformed];
    }
    assert_passed(&run(&subject(&world)).await);
}
