//! Tokens for calls, and the settings of them in the Secret.

use std::{io::Write, path::Path};

use rstest::rstest;
use serde_json::json;

use super::{
    PROJECT, World, code, driver,
    fake::{Fault, SUBJECT_TOKEN, serve},
    secret, unmeasured,
};
use crate::{GcpCloud, Patience, access::Access};
use mcm_driver::{Code, DriverError, SecretData, SecretPolicy, cloud::CloudDriver, interface::Driver};

async fn list(world: &World, driver: &dyn Driver, secret: &SecretData) -> Result<usize, DriverError> {
    driver.list(&world.request("a").class, secret).await.map(|found| found.len())
}

fn calls(world: &World) -> Vec<&'static str> {
    world.gce.lock().sent.iter().map(|sent| sent.call).collect()
}

#[tokio::test]
async fn a_token_is_kept_until_it_expires() {
    let world = World::new().await;
    for _ in 0..2 {
        list(&world, &world.driver, &world.secret()).await.unwrap();
    }
    assert_eq!(calls(&world), ["token", "instances.list", "instances.list"]);
    let other = World::new().await;
    other.gce.lock().token_lifetime = Some(200);
    for _ in 0..2 {
        list(&other, &other.driver, &other.secret()).await.unwrap();
    }
    assert_eq!(calls(&other), ["token", "instances.list", "instances.list"], "it is kept for half of its life");
}

#[tokio::test]
async fn a_token_that_google_takes_back_is_replaced() {
    let world = World::new().await;
    list(&world, &world.driver, &world.secret()).await.unwrap();
    world.gce.lock().revoke_tokens();
    assert_eq!(code(list(&world, &world.driver, &world.secret()).await), Code::Unauthenticated);
    list(&world, &world.driver, &world.secret()).await.unwrap();
}

#[tokio::test]
async fn a_secret_may_name_the_endpoint_of_its_cloud() {
    let world = World::new().await;
    let url = serve(&world.gce).await;
    let elsewhere = driver("http://127.0.0.1:9", std::time::Duration::from_secs(20));
    let mut secret = secret(&url);
    assert_eq!(code(list(&world, &elsewhere, &secret).await), Code::Unavailable);
    for path in ["", "/", "/compute/v1", "/compute/v1/\n"] {
        secret.0.insert("endpointURL".to_owned(), format!("{url}{path}").into_bytes());
        list(&world, &elsewhere, &secret).await.unwrap();
    }
    secret.0.insert("endpointURL".to_owned(), b"file:///etc/passwd".to_vec());
    assert_eq!(code(list(&world, &elsewhere, &secret).await), Code::InvalidArgument);
}

/// A workload identity whose token is in this file, with or without a service account.
fn external(file: &Path, impersonates: bool) -> SecretData {
    let iam = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts";
    let mut account = json!({
        "type": "external_account", "project_id": PROJECT, "audience": "//iam.googleapis.com/x",
        "token_url": "https://sts.googleapis.com/v1/token", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "credential_source": {"file": file},
    });
    if impersonates {
        account["service_account_impersonation_url"] = format!("{iam}/a@b.example.com:generateAccessToken").into();
    }
    SecretData([("credentialsConfig".to_owned(), account.to_string().into_bytes())].into())
}

fn file_with(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[rstest]
#[case::alone(false, &["sts", "instances.list", "instances.list"])]
#[case::as_a_service_account(true, &["sts", "iam", "instances.list", "instances.list"])]
#[tokio::test]
async fn a_workload_identity_is_exchanged_for_a_token(#[case] impersonates: bool, #[case] expected: &[&str]) {
    let world = World::new().await;
    let file = file_with(&format!("{SUBJECT_TOKEN}\n"));
    for _ in 0..2 {
        list(&world, &world.driver, &external(file.path(), impersonates)).await.unwrap();
    }
    assert_eq!(calls(&world), expected);
    let gce = world.gce.lock();
    assert_eq!(gce.bodies("sts")[0]["audience"], "//iam.googleapis.com/x");
    let paths: Vec<&str> = gce.of_call("iam").map(|sent| sent.path.as_str()).collect();
    let path = "/v1/projects/-/serviceAccounts/a@b.example.com:generateAccessToken";
    assert_eq!(paths, if impersonates { vec![path] } else { vec![] });
}

#[rstest]
#[case::refused("sts", Fault::Error("invalid_grant", 400), Code::Unauthenticated)]
#[case::down("sts", Fault::Status(503), Code::Unavailable)]
#[case::lost("sts", Fault::LostAnswer, Code::Unknown)]
#[case::malformed("sts", Fault::Malformed, Code::Unknown)]
#[case::denied("iam", Fault::Error("PERMISSION_DENIED", 403), Code::PermissionDenied)]
#[case::down("iam", Fault::Status(502), Code::Unavailable)]
#[tokio::test]
async fn a_workload_identity_that_fails_says_why(
    #[case] name: &'static str,
    #[case] fault: Fault,
    #[case] expected: Code,
) {
    let world = World::new().await;
    let file = file_with(SUBJECT_TOKEN);
    let secret = external(file.path(), true);
    world.gce.lock().faults.push((name, fault, 99));
    let error = list(&world, &world.driver, &secret).await.unwrap_err();
    assert_eq!(error.code, expected, "{error}");
    assert!(!error.message.contains(SUBJECT_TOKEN) && !error.message.contains("ya29"), "{error}");
    world.gce.lock().faults.clear();
    list(&world, &world.driver, &secret).await.unwrap();
}

#[tokio::test]
async fn a_token_file_that_is_not_there_or_not_valid_is_told() {
    let world = World::new().await;
    let absent = std::env::temp_dir().join("no-such-token");
    let error = list(&world, &world.driver, &external(&absent, false)).await.unwrap_err();
    assert_eq!((error.code, error.message.contains("no-such-token")), (Code::Unauthenticated, true), "{error}");
    let file = file_with("another-token");
    let secret = external(file.path(), false);
    let error = list(&world, &world.driver, &secret).await.unwrap_err();
    assert_eq!((error.code, error.message.contains("another-token")), (Code::Unauthenticated, false), "{error}");
    // The file is read again for the next token.
    std::fs::write(file.path(), SUBJECT_TOKEN).unwrap();
    list(&world, &world.driver, &secret).await.unwrap();
}

/// Neither the key of a Secret nor the token of the process is sent to a host that the operator did not allow.
#[tokio::test]
async fn nothing_is_sent_to_hosts_that_are_not_allowed() {
    let world = World::new().await;
    let driver = CloudDriver(GcpCloud::new(
        Access { secrets: SecretPolicy::default(), ..Access::default() },
        Patience::default(),
        unmeasured(),
    ));
    let file = file_with(SUBJECT_TOKEN);
    for secret in [world.secret(), external(file.path(), false)] {
        assert_eq!(code(list(&world, &driver, &secret).await), Code::InvalidArgument);
    }
    assert_eq!(calls(&world), [""; 0]);
}

/// Two namespaces of one process with a token each.
#[rstest]
#[case::own("team-b/token", true)]
#[case::of_another("team-a/token", false)]
#[case::of_the_process("token", false)]
#[tokio::test]
async fn the_token_of_another_namespace_is_not_read(#[case] file: &str, #[case] is_exchanged: bool) {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    for team in ["team-a", "team-b"] {
        std::fs::create_dir(folder.path().join(team)).unwrap();
        std::fs::write(folder.path().join(team).join("token"), SUBJECT_TOKEN).unwrap();
    }
    std::fs::write(folder.path().join("token"), SUBJECT_TOKEN).unwrap();
    let folders = vec![folder.path().to_owned()];
    let secrets = SecretPolicy { folders, confines_files: true, ..mcm_driver::testing::secret_policy() };
    let access = Access { secrets, ..super::access(&world.url, std::time::Duration::from_secs(5)) };
    let driver = CloudDriver(GcpCloud::new(access, Patience::default(), unmeasured()));
    let mut class = (*world.request("a").class).clone();
    class.metadata.namespace = Some("team-b".to_owned());
    let listed = driver.list(&class, &external(&folder.path().join(file), false)).await;
    match listed {
        Ok(_) => assert!(is_exchanged),
        Err(error) => assert_eq!((error.code, is_exchanged), (Code::InvalidArgument, false), "{error}"),
    }
    assert_eq!(calls(&world).contains(&"sts"), is_exchanged);
}
