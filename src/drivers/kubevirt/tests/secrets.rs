//! The Secret of a class.

use serde_json::json;

use super::{TOKEN, World, secret, spec};
use mcm_driver::{Code, MachineRequest, interface::Driver};

/// The reference follows all of a kubeconfig.
#[tokio::test]
async fn a_program_in_a_kubeconfig_is_not_run() {
    let world = World::new().await;
    let proof = tempfile::tempdir().unwrap();
    let file = proof.path().join("ran");
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [file]});
    let request = MachineRequest { secret: world.secret_with(&json!({"exec": exec})), ..world.request("a") };
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("has exec, which is refused"), "{error}");
    assert!(!file.exists());
}

#[tokio::test]
async fn a_secret_without_a_kubeconfig_is_refused() {
    let world = World::new().await;
    for data in [secret(&[]), secret(&[("kubeconfig", " ")])] {
        let request = MachineRequest { secret: data, ..world.request("a") };
        let error = world.driver.create(&request).await.unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (Code::InvalidArgument, "kubeconfig in the secret of the class is missing")
        );
    }
}

#[tokio::test]
async fn the_reason_why_a_vm_does_not_start_contains_no_secret() {
    let world = World::new().await;
    world.kubernetes.lock().cloud.start =
        super::fake::Start::Never("DataVolumeError", "DataVolumesReady", "bearer-top-secret [hunter2-hunter2");
    let error = world.driver.create(&world.request_for("a", "u", spec())).await.unwrap_err();
    assert!(!error.message.contains(TOKEN) && !error.message.contains("hunter2"), "{error}");
    assert!(!error.message.contains('['), "{error}");
}
