//! Tokens for calls, and what the Secret says of them.

use std::io::Write;

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    PROJECT, World, code, driver,
    fake::{Fault, SUBJECT_TOKEN, serve},
    secret, unmeasured,
};
use crate::driver::{
    Code, DriverError, SecretData,
    cloud::Limits,
    gcp::{GcpDriver, Patience, accounts::Access},
    interface::Driver,
};

async fn list(world: &World, driver: &GcpDriver, secret: &SecretData) -> Result<usize, DriverError> {
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
    assert_eq!(calls(&other), ["token", "instances.list", "token", "instances.list"], "it expires soon");
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
async fn new_credentials_are_used_at_once() {
    let world = World::new().await;
    list(&world, &world.driver, &world.secret()).await.unwrap();
    let mut changed: Value = serde_json::from_slice(&world.secret().0["serviceAccountJSON"]).unwrap();
    changed["client_email"] = "other@my-project.iam.gserviceaccount.com".into();
    let mut secret = world.secret();
    secret.0.insert("serviceAccountJSON".to_owned(), changed.to_string().into_bytes());
    assert_eq!(code(list(&world, &world.driver, &secret).await), Code::Unauthenticated, "it is not known there");
    changed["private_key"] = "no key".into();
    secret.0.insert("serviceAccountJSON".to_owned(), changed.to_string().into_bytes());
    assert_eq!(code(list(&world, &world.driver, &secret).await), Code::Unauthenticated);
    assert_eq!(calls(&world), ["token", "instances.list", "token"]);
}

#[tokio::test]
async fn a_secret_may_name_the_endpoint_of_its_cloud() {
    let world = World::new().await;
    let url = serve(&world.gce).await;
    let elsewhere = driver("http://127.0.0.1:9", std::time::Duration::from_secs(20));
    let mut secret = secret(&url);
    assert_eq!(code(list(&world, &elsewhere, &secret).await), Code::Unavailable);
    secret.0.insert("endpointURL".to_owned(), format!("{url}/compute/v1\n").into_bytes());
    list(&world, &elsewhere, &secret).await.unwrap();
    secret.0.insert("endpointURL".to_owned(), b"file:///etc/passwd".to_vec());
    assert_eq!(code(list(&world, &elsewhere, &secret).await), Code::InvalidArgument);
}

/// A workload identity, with or without a service account.
fn external(impersonates: bool) -> SecretData {
    let iam = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts";
    let mut account = json!({
        "type": "external_account", "project_id": PROJECT, "audience": "//iam.googleapis.com/x",
        "token_url": "https://sts.googleapis.com/v1/token", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "credential_source": {"file": "/var/run/secrets/gardener.cloud/workload-identity/token"},
    });
    if impersonates {
        account["service_account_impersonation_url"] = format!("{iam}/a@b.example.com:generateAccessToken").into();
    }
    SecretData([("credentialsConfig".to_owned(), account.to_string().into_bytes())].into())
}

/// A driver whose process has a token in this file.
fn with_token_in(world: &World, file: &str) -> GcpDriver {
    let url = &world.url;
    let limits = Limits { attempts: 2, pause: std::time::Duration::from_millis(1), ..Limits::default() };
    let access = Access {
        compute: format!("{url}/compute/v1"),
        sts: format!("{url}/v1/token"),
        iam: url.clone(),
        accounts: url.clone(),
        token_file: file.into(),
        uses_proxy: false,
        limits,
    };
    GcpDriver::new(access, Patience::default(), unmeasured())
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
    let driver = with_token_in(&world, file.path().to_str().unwrap());
    for _ in 0..2 {
        list(&world, &driver, &external(impersonates)).await.unwrap();
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
    let driver = with_token_in(&world, file.path().to_str().unwrap());
    world.gce.lock().faults.push((name, fault, 99));
    let error = list(&world, &driver, &external(true)).await.unwrap_err();
    assert_eq!(error.code, expected, "{error}");
    assert!(!error.message.contains(SUBJECT_TOKEN) && !error.message.contains("ya29"), "{error}");
    world.gce.lock().faults.clear();
    list(&world, &driver, &external(true)).await.unwrap();
}

#[tokio::test]
async fn a_token_file_that_is_not_there_or_not_valid_is_told() {
    let world = World::new().await;
    let error = list(&world, &with_token_in(&world, "/nowhere/token"), &external(false)).await.unwrap_err();
    assert_eq!((error.code, error.message.contains("/nowhere/token")), (Code::Unauthenticated, true), "{error}");
    let file = file_with("another-token");
    let driver = with_token_in(&world, file.path().to_str().unwrap());
    let error = list(&world, &driver, &external(false)).await.unwrap_err();
    assert_eq!((error.code, error.message.contains("another-token")), (Code::Unauthenticated, false), "{error}");
    // The file is read again for the next token.
    std::fs::write(file.path(), SUBJECT_TOKEN).unwrap();
    list(&world, &driver, &external(false)).await.unwrap();
}
