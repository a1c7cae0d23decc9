//! Token endpoints: they check what was signed, and remember what they issued.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Json, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::{Value, json};

use super::{Gce, Sent};

/// The service account that Secrets of tests name, and its key, which opens nothing.
pub const EMAIL: &str = "mcm@my-project.iam.gserviceaccount.com";
pub const PRIVATE_KEY: &str = include_str!("key.pem");
/// The audience in requests of Google's client, whatever their address.
const AUDIENCE: &str = "https://oauth2.googleapis.com/token";
/// The token of the process that may be exchanged.
pub const SUBJECT_TOKEN: &str = "token-of-the-workload";

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Carries a call of a token endpoint out.
pub fn carry_out(gce: &mut Gce, sent: &Sent) -> Response {
    let text = |name: &str| sent.body[name].as_str().unwrap_or_default().to_owned();
    match sent.call {
        "token" => {
            let is_asked = text("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer";
            match claims_of(&text("assertion")) {
                Some(claims) if is_asked && are_valid(&claims, &gce.url) => issue(gce),
                _ => refuse("invalid_grant", "Invalid JWT Signature."),
            }
        }
        "sts" => {
            let expected = [
                ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
                ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
                ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
                ("subject_token", SUBJECT_TOKEN),
                ("scope", SCOPE),
            ];
            let is_complete = expected.iter().all(|(name, value)| text(name) == *value) && !text("audience").is_empty();
            if is_complete { issue(gce) } else { refuse("invalid_grant", "The token is not what is expected.") }
        }
        "account" if gce.tokens.contains(&sent.token) => {
            let email = sent.path.rsplit('/').next().unwrap_or_default();
            match gce.things.get(email) {
                Some(account) => Json(account.clone()).into_response(),
                None => super::answers::error("NOT_FOUND", 404, "Unknown service account"),
            }
        }
        _ if gce.tokens.contains(&sent.token) && sent.body["scope"] == json!([SCOPE]) => {
            let token = new_token(gce);
            Json(json!({"accessToken": token, "expireTime": "2099-01-01T00:00:00Z"})).into_response()
        }
        _ => super::answers::error("UNAUTHENTICATED", 401, "Request had invalid authentication credentials."),
    }
}

fn issue(gce: &mut Gce) -> Response {
    let (token, lifetime) = (new_token(gce), gce.token_lifetime.unwrap_or(3600));
    Json(json!({"access_token": token, "expires_in": lifetime, "token_type": "Bearer"})).into_response()
}

pub(super) fn new_token(gce: &mut Gce) -> String {
    gce.issued += 1;
    let token = format!("ya29.token-{}", gce.issued);
    gce.tokens.insert(token.clone());
    token
}

fn refuse(name: &str, text: &str) -> Response {
    let body = json!({"error": name, "error_description": text});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// The claims of a token that the key of the service account signed.
fn claims_of(assertion: &str) -> Option<Value> {
    let (content, signature) = assertion.rsplit_once('.')?;
    let (header, claims) = content.split_once('.')?;
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let header: Value = serde_json::from_slice(&decoded(header)?).ok()?;
    let der = PrivatePkcs8KeyDer::from_pem_slice(PRIVATE_KEY.as_bytes()).ok()?;
    let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok()?;
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public().as_ref());
    public.verify(content.as_bytes(), &decoded(signature)?).ok()?;
    (header["alg"] == "RS256").then(|| serde_json::from_slice(&decoded(claims)?).ok()).flatten()
}

fn are_valid(claims: &Value, url: &str) -> bool {
    let now = jiff::Timestamp::now().as_second();
    let time = |name: &str| claims[name].as_i64().unwrap_or_default();
    let scopes = claims["scope"].as_str().unwrap_or_default();
    claims["iss"] == EMAIL
        && (claims["aud"] == format!("{url}/token") || claims["aud"] == AUDIENCE)
        && scopes.split(' ').any(|scope| scope == SCOPE)
        && time("iat") <= now + 60
        && time("exp") > now
        && time("exp") - time("iat") <= 3600
}
