use jiff::SignedDuration;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use rand::Rng;

use super::{
    pods::{failed, target},
    ports::MachineContext,
};
use crate::machine::{BootstrapToken, Snapshot, policy::after};
use mcm_runtime::objects::chain;

const TOKEN_NAMESPACE: &str = "kube-system";
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
const TOKEN_SECRET_LENGTH: usize = 16;
/// The clock of the target cluster may turn out to differ by this much from the time that a token was made with.
const TOLERATED: SignedDuration = SignedDuration::from_secs(30);

/// The token as text. It expires by the clock of the target cluster, which deletes expired tokens. The response to a new
/// token may be the first that shows this clock, and then it is made again.
pub(super) async fn ensure_by_target_clock(
    context: &MachineContext,
    snapshot: &Snapshot,
    wanted: BootstrapToken,
) -> Result<String, String> {
    let expiring = |ahead| BootstrapToken { expiration: after(wanted.expiration, ahead), ..wanted.clone() };
    let (token, is_new) = ensure(context, snapshot, &expiring(snapshot.target_ahead)).await?;
    let ahead = target(context, snapshot)?.ahead_of(context.now());
    let has_moved = ahead.saturating_sub(snapshot.target_ahead).abs() > TOLERATED;
    // A VM may use one that existed before.
    if is_new && has_moved && delete(context, snapshot, &wanted.id).await {
        return ensure(context, snapshot, &expiring(ahead)).await.map(|(token, _)| token);
    }
    Ok(token)
}

/// The token as text, `<id>.<secret>`, and whether it is new.
async fn ensure(
    context: &MachineContext,
    snapshot: &Snapshot,
    wanted: &BootstrapToken,
) -> Result<(String, bool), String> {
    let client = target(context, snapshot)?.client.clone();
    let secrets: Api<Secret> = Api::namespaced(client, TOKEN_NAMESPACE);
    let name = secret_name(&wanted.id);
    // A second round only if another process created it in between.
    for _ in 0..2 {
        let there = secrets.get_opt(&name).await.map_err(|error| failed("read bootstrap token", &wanted.id, &error))?;
        if let Some(secret) = there {
            return text_of(&secret, &wanted.id).map(|token| (token, false)).ok_or_else(|| {
                format!(
                    "the Secret {TOKEN_NAMESPACE}/{name} is no bootstrap token (token-id must be {}, token-secret \
                     {TOKEN_SECRET_LENGTH} characters of a-z and 0-9): delete it, and a new one is created",
                    wanted.id
                )
            });
        }
        match secrets.create(&PostParams::default(), &new_token(wanted, &name)).await {
            Ok(secret) => {
                return text_of(&secret, &wanted.id)
                    .map(|token| (token, true))
                    .ok_or_else(|| format!("bootstrap token {} was stored without token-secret", wanted.id));
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed("create bootstrap token", &wanted.id, &error)),
        }
    }
    Err(format!("bootstrap token {} was created and deleted by others several times", wanted.id))
}

/// Deletes a token; true if it no longer exists. A failure is only logged, because tokens expire.
pub(super) async fn delete(context: &MachineContext, snapshot: &Snapshot, id: &str) -> bool {
    let Ok(client) = target(context, snapshot).map(|target| target.client.clone()) else { return false };
    let secrets: Api<Secret> = Api::namespaced(client, TOKEN_NAMESPACE);
    match secrets.delete(&secret_name(id), &DeleteParams::default()).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 404 => true,
        Err(error) => {
            tracing::info!(token = id, error = %chain(&error), "bootstrap token not deleted, it will expire");
            false
        }
    }
}

fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn new_token(wanted: &BootstrapToken, name: &str) -> Secret {
    let seconds = wanted.expiration.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let data = [
        ("token-id", wanted.id.clone()),
        ("token-secret", random_secret()),
        ("expiration", seconds),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("usage-bootstrap-signing", "true".to_owned()),
        ("auth-extra-groups", wanted.auth_extra_groups.clone()),
        ("description", wanted.description.clone()),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(TOKEN_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(TOKEN_TYPE.to_owned()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).collect()),
        ..Secret::default()
    }
}

fn random_secret() -> String {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut random = rand::rng();
    let mut letter = || ALPHABET.get(random.random_range(0..ALPHABET.len())).map_or('0', |byte| char::from(*byte));
    (0..TOKEN_SECRET_LENGTH).map(|_| letter()).collect()
}

/// `<id>.<secret>`. It becomes a part of user data, so it must be a token and nothing else: who may write Secrets in
/// `kube-system` must not write user data.
fn text_of(secret: &Secret, id: &str) -> Option<String> {
    let data = secret.data.as_ref()?;
    let part = |name: &str| std::str::from_utf8(&data.get(name)?.0).ok();
    let (found, secret) = (part("token-id")?, part("token-secret")?);
    let is_plain = |text: &str| text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_token = found == id && secret.len() == TOKEN_SECRET_LENGTH && is_plain(secret);
    is_token.then(|| format!("{found}.{secret}"))
}
