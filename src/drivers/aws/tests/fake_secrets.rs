//! Secrets Manager of the fake cloud. It accepts only requests that AWS would accept.

use std::collections::BTreeMap;

use aws_smithy_types::base64;
use axum::{
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::fake::Params;

pub(super) const ACTIONS: [&str; 4] = ["CreateSecret", "DescribeSecret", "PutSecretValue", "DeleteSecret"];

#[derive(Clone, Debug, Default)]
pub(super) struct FakeSecret {
    pub tags: BTreeMap<String, String>,
    pub value: Vec<u8>,
    /// Values by the tokens of the requests that brought them.
    pub versions: BTreeMap<String, Vec<u8>>,
}

/// The action and the parameters of a request of this service. Tags are parameters such as `Tags.Name`.
pub(super) fn request(headers: &HeaderMap, body: &[u8]) -> Option<(String, Params)> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    let action = text("x-amz-target")?.strip_prefix("secretsmanager.").unwrap().to_owned();
    assert_eq!(text("content-type"), Some("application/x-amz-json-1.1"));
    assert!(text("authorization").unwrap().contains("/eu-west-1/secretsmanager/aws4_request"));
    let mut params = Params::new();
    for (key, value) in serde_json::from_slice::<Value>(body).unwrap().as_object().unwrap() {
        match value {
            Value::Array(tags) => params.extend(tags.iter().map(|tag| {
                (format!("{key}.{}", tag["Key"].as_str().unwrap()), tag["Value"].as_str().unwrap().to_owned())
            })),
            Value::String(text) => drop(params.insert(key.clone(), text.clone())),
            other => drop(params.insert(key.clone(), other.to_string())),
        }
    }
    Some((action, params))
}

/// The answer to an action of this service.
pub(super) fn answer(secrets: &mut BTreeMap<String, FakeSecret>, action: &str, params: &Params) -> Option<Response> {
    let name = |key: &str| params.get(key).cloned().unwrap();
    Some(match action {
        "CreateSecret" => create(secrets, &name("Name"), params),
        "DescribeSecret" => describe(secrets, &name("SecretId")),
        "PutSecretValue" => put(secrets, &name("SecretId"), params),
        "DeleteSecret" => {
            assert_eq!(params["ForceDeleteWithoutRecovery"], "true");
            secrets.remove(&name("SecretId"));
            named(&name("SecretId"), json!({"DeletionDate": 0}))
        }
        _ => return None,
    })
}

fn create(secrets: &mut BTreeMap<String, FakeSecret>, name: &str, params: &Params) -> Response {
    let (token, value) = content(params);
    assert!(name.len() <= 512 && name.chars().all(|c| c.is_ascii_alphanumeric() || "/_+=.@-".contains(c)), "{name}");
    if let Some(secret) = secrets.get(name) {
        return match secret.versions.get(&token).is_some_and(|known| *known == value) {
            true => named(name, json!({})),
            false => error("ResourceExistsException", 400),
        };
    }
    let tag = |(key, value): (&String, &String)| Some((key.strip_prefix("Tags.")?.to_owned(), value.clone()));
    let tags: BTreeMap<String, String> = params.iter().filter_map(tag).collect();
    assert!(tags.len() <= 50);
    secrets.insert(name.to_owned(), FakeSecret { tags, value: value.clone(), versions: [(token, value)].into() });
    named(name, json!({}))
}

fn describe(secrets: &BTreeMap<String, FakeSecret>, name: &str) -> Response {
    let Some(secret) = secrets.get(name) else { return error("ResourceNotFoundException", 400) };
    let tags: Vec<Value> = secret.tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect();
    named(name, json!({"Tags": tags}))
}

fn put(secrets: &mut BTreeMap<String, FakeSecret>, name: &str, params: &Params) -> Response {
    let Some(secret) = secrets.get_mut(name) else { return error("ResourceNotFoundException", 400) };
    let (token, value) = content(params);
    if secret.versions.get(&token).is_some_and(|known| *known != value) {
        return error("ResourceExistsException", 400);
    }
    secret.versions.insert(token, value.clone());
    secret.value = value;
    named(name, json!({}))
}

/// Token and value of a request.
fn content(params: &Params) -> (String, Vec<u8>) {
    let (token, value) = (params["ClientRequestToken"].clone(), base64::decode(&params["SecretBinary"]).unwrap());
    assert!((32..=64).contains(&token.len()), "{token}");
    assert!((1..=65_536).contains(&value.len()), "{} bytes", value.len());
    (token, value)
}

fn named(name: &str, mut answer: Value) -> Response {
    answer["Name"] = name.into();
    answer["ARN"] = format!("arn:aws:secretsmanager:eu-west-1:123456789012:secret:{name}-a1b2c3").into();
    answer.to_string().into_response()
}

pub(super) fn error(code: &str, status: u16) -> Response {
    let body = json!({"__type": code, "Message": "as told, with AKIDEXAMPLE [and brackets"});
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}
