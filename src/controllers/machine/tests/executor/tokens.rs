//! Bootstrap tokens.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use rstest::rstest;
use serde_json::json;

use super::{
    super::world::{at, ready},
    Shop,
};
use crate::machine::token;

const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";

/// `<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>`
const PLACEHOLDERS: &str = "PDxNQUNISU5FX05BTUU+PiA8PEJPT1RTVFJBUF9UT0tFTj4+";

/// A Machine that is to be made with its own token; where the Secret of the token is.
fn wants_token(shop: &Shop) -> String {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "ns" }, "data": { "userData": PLACEHOLDERS } });
    shop.api.put("/api/v1/namespaces/ns/secrets/s", secret);
    shop.machine("m", json!({ "spec": { "creationTimeout": "5m" } }));
    format!("{TOKENS}/bootstrap-token-{}", token::id_of(&shop.stored()))
}

#[tokio::test]
async fn a_token_is_made_as_the_api_server_reads_it_and_filled_in_where_a_vm_is_made() {
    let shop = Shop::new();
    let path = wants_token(&shop);
    shop.reconcile().await.unwrap();
    let stored: Secret = serde_json::from_value(shop.api.get(&path).unwrap()).unwrap();
    assert_eq!(stored.type_.as_deref(), Some("bootstrap.kubernetes.io/token"));
    let data: BTreeMap<String, String> =
        stored.data.unwrap().into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect();
    let (id, secret) = (data["token-id"].clone(), data["token-secret"].clone());
    assert!(path.ends_with(&format!("-{id}")), "{path} {id}");
    assert!(secret.len() == 16 && secret.bytes().all(|it| it.is_ascii_digit() || it.is_ascii_lowercase()), "{secret}");
    assert_eq!(data["expiration"], at(100 + 300).to_string());
    assert_eq!(
        (data["usage-bootstrap-authentication"].as_str(), data["usage-bootstrap-signing"].as_str()),
        ("true", "true")
    );
    assert_eq!(data["auth-extra-groups"], "", "written even if empty");
    assert!(data["description"].contains(" m "), "{data:?}");

    let asked: Vec<_> = shop.cloud.calls.lock().iter().copied().zip(shop.cloud.user_data.lock().clone()).collect();
    let raw = "<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>".to_owned();
    assert_eq!(asked, [("status", raw.clone()), ("create", format!("m {id}.{secret}"))]);

    shop.known_node(&ready());
    shop.machine("m", json!({
        "metadata": { "labels": { "node": "n" }, "deletionTimestamp": at(101) }, "spec": { "providerID": "cloud:///1" },
    }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.cloud.user_data.lock().last(), Some(&raw), "a deletion gets the Secret as it is");
}

#[tokio::test]
async fn a_token_that_is_there_is_used_as_it_is() {
    let shop = Shop::new();
    let path = wants_token(&shop);
    let id = token::id_of(&shop.stored());
    let base64 = |text: &str| serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap();
    let data = json!({ "token-id": base64(&id), "token-secret": base64("0123456789abcdef"), "expiration": base64("2020-01-01T00:00:00Z") });
    let name = path.rsplit('/').next().unwrap();
    let before = shop.api.put(&path, json!({ "metadata": { "name": name, "namespace": "kube-system" }, "data": data }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.cloud.user_data.lock().last(), Some(&format!("m {id}.0123456789abcdef")));
    assert_eq!(shop.api.get(&path), Some(before));
}

/// A user who may write Secrets in kube-system must not write user data.
#[rstest]
#[case::secret_with_commands(None, "0123456789\n- evil", false)]
#[case::short_secret(None, "0123456789abcde", false)]
#[case::capitals(None, "0123456789ABCDEF", false)]
#[case::another_id(Some("abcdef"), "0123456789abcdef", false)]
#[case::id_with_commands(Some("abcdef\n- evil"), "0123456789abcdef", false)]
#[case::a_token(None, "0123456789abcdef", true)]
#[tokio::test]
async fn a_secret_that_is_no_token_does_not_reach_user_data(
    #[case] id: Option<&str>,
    #[case] secret: &str,
    #[case] is_used: bool,
) {
    let shop = Shop::new();
    let path = wants_token(&shop);
    let own = token::id_of(&shop.stored());
    let base64 = |text: &str| serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap();
    let data = json!({ "token-id": base64(id.unwrap_or(&own)), "token-secret": base64(secret) });
    let name = path.rsplit('/').next().unwrap();
    shop.api.put(&path, json!({ "metadata": { "name": name, "namespace": "kube-system" }, "data": data }));
    shop.reconcile().await.unwrap();
    assert_eq!(shop.cloud.calls.lock().contains(&"create"), is_used);
    let told = shop.stored().status.unwrap().last_operation.description;
    assert_eq!(told.contains(&format!("the Secret kube-system/{name} is no bootstrap token")), !is_used, "{told}");
    assert!(!told.contains("evil"), "{told}");
}

#[tokio::test]
async fn a_token_goes_with_its_machine() {
    let shop = Shop::new();
    let path = wants_token(&shop);
    shop.reconcile().await.unwrap();
    assert!(shop.api.get(&path).is_some());
    shop.machine("m", json!({ "metadata": { "deletionTimestamp": at(101) }, "spec": { "providerID": "cloud:///1" } }));
    shop.reconcile().await.unwrap();
    assert!(shop.api.get(&path).is_none() && shop.cloud.vm.lock().is_none());
}

/// The response to a token may be the first that shows the clock.
#[tokio::test]
async fn a_token_whose_creation_shows_another_time_is_made_again() {
    let shop = Shop::with_target_ahead(0);
    let clock = shop.target_clock.clone().unwrap();
    shop.api.rule(move |call| {
        if call.is("POST", "/secrets") {
            clock.creates_at(at(100 - 1500));
        }
        None
    });
    let path = wants_token(&shop);
    shop.reconcile().await.unwrap();
    let stored: Secret = serde_json::from_value(shop.api.get(&path).unwrap()).unwrap();
    let data = stored.data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    let difference = text("expiration").parse::<Timestamp>().unwrap().duration_since(at(100 + 300 - 1500));
    assert!(difference.as_secs().abs() <= 1, "{}", text("expiration"));
    assert_eq!(shop.api.calls().iter().filter(|call| call.is("POST", "/secrets")).count(), 2);
    let user_data = shop.cloud.user_data.lock().last().cloned().unwrap();
    assert!(user_data.ends_with(&format!("{}.{}", text("token-id"), text("token-secret"))), "{user_data}");
}

#[rstest]
#[case::ahead(1500)]
#[case::behind(-1500)]
#[case::right(0)]
#[tokio::test]
async fn a_token_expires_by_the_clock_of_the_target_cluster(#[case] ahead: i64) {
    let shop = Shop::with_target_ahead(ahead);
    let path = wants_token(&shop);
    shop.reconcile().await.unwrap();
    let stored: Secret = serde_json::from_value(shop.api.get(&path).unwrap()).unwrap();
    let expiration = String::from_utf8(stored.data.unwrap()["expiration"].0.clone()).unwrap();
    let expected = at(100 + 300 + ahead);
    let difference = expiration.parse::<Timestamp>().unwrap().duration_since(expected);
    assert!(difference.as_secs().abs() <= 1, "{expiration}, expected {expected}");
}
