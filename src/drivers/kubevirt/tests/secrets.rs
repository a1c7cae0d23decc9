//! The Secret of a class.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::{Kubernetes, TOKEN, World, class, code, driver, kubeconfig_of, secret, spec, spec_with, unmeasured};
use mcm_driver::{Code, MachineRequest, SecretData, interface::Driver};

#[tokio::test]
async fn new_credentials_apply_at_once() {
    let world = World::new().await;
    let wrong = MachineRequest { secret: world.secret_with(&json!({"token": "not-the-token"})), ..world.request("a") };
    assert_eq!(code(world.driver.create(&wrong).await), Code::Unauthenticated);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(code(world.driver.status(&wrong).await), Code::Unauthenticated);
}

#[rstest]
#[case::without_tls("http://api.example.com", json!({}), "--allowed-cloud-endpoints")]
#[case::unverified("https://api.example.com", json!({"insecure-skip-tls-verify": true}), "--allowed-cloud-endpoints")]
#[tokio::test]
async fn a_host_that_proves_nothing_has_to_be_allowed(
    #[case] server: &str,
    #[case] cluster: Value,
    #[case] expected: &str,
) {
    let world = World::new().await;
    let secret = secret(&[("kubeconfig", &kubeconfig_of(server, &cluster, &json!({"token": TOKEN})))]);
    let error = world.driver.create(&MachineRequest { secret, ..world.request("a") }).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains(expected), "{error}");
}

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

#[rstest]
#[case::complete(json!({"token": "t"}), "#cloud-config", None, None)]
#[case::no_user_data(json!({"token": "t"}), "", Some("no userData"), None)]
#[case::keys_already(json!({"token": "t"}), "#cloud-config\nssh_authorized_keys: []", Some("ssh_authorized_keys: already"), None)]
#[case::a_script(json!({"token": "t"}), "#!/bin/sh", None, Some("not a #cloud-config"))]
#[case::exec(json!({"exec": {}}), "#cloud-config", Some("has exec"), None)]
#[case::no_certificate(json!({"client-certificate-data": "eA==", "client-key-data": "eA=="}), "#cloud-config", Some("PEM"), None)]
fn the_problems_of_a_secret_are_found_without_a_call(
    #[case] user: Value,
    #[case] user_data: &str,
    #[case] error: Option<&str>,
    #[case] warning: Option<&str>,
) {
    let config = kubeconfig_of("https://api.example.com", &json!({}), &user);
    let data = secret(&[("kubeconfig", &config), ("userData", user_data)]);
    let class = class(spec_with(&json!({"sshKeys": ["ssh-rsa A"]})));
    let problems = driver(Duration::from_secs(1), unmeasured()).secret_problems(&class, &data);
    let texts = |all: &[_]| all.iter().map(ToString::to_string).collect::<Vec<String>>().join("; ");
    for (found, expected) in [(texts(&problems.errors), error), (texts(&problems.warnings), warning)] {
        assert_eq!(found.is_empty(), expected.is_none(), "{found}");
        assert!(expected.is_none_or(|expected| found.contains(expected)), "{found}");
    }
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

/// The API server may quote its requests, also in Base64.
#[tokio::test]
async fn no_text_contains_a_secret() {
    let world = World::new().await;
    let quote =
        format!("invalid request: {TOKEN} and #!/bin/sh\nhunter2-hunter2 or IyEvYmluL3NoCmh1bnRlcjItaHVudGVyMgo= [x");
    for call in ["vm.create", "secret.create"] {
        let reply = Kubernetes::error(400, "BadRequest", &quote, "", "");
        world.fail(call, super::server::Fault::Error(reply), 1);
        let error = world.driver.create(&world.request("a")).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        for secret in [TOKEN, "hunter2", "aHVudGVyMi1"] {
            assert!(!error.message.contains(secret), "{error}");
        }
        assert_eq!(error.message.matches('[').count(), error.message.matches(']').count(), "{error}");
    }
    let debug = format!("{:?}", SecretData(world.secret().0));
    assert!(!debug.contains(TOKEN), "{debug}");
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
