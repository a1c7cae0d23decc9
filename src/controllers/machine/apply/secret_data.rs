//! The Secret data that the driver gets for a class, and for a Machine.

use crate::machine_class;
use mcm_api::{
    labels,
    machine::{Machine, MachineClass, SecretRef},
};
use mcm_driver::SecretData;
use mcm_runtime::{cache::Key, secrets::SecretCache};

/// The data of the Secrets of a class.
#[derive(Clone, Debug, Default)]
pub struct MergedSecretData {
    /// The login of one Secret, and the user data.
    pub data: SecretData,
    /// Secrets that the class names and that cannot be used, each with the reason.
    pub missing: Vec<String>,
    /// Why the Secret with the Machine's own user data cannot be used.
    pub missing_user_data: Option<String>,
}

impl MergedSecretData {
    /// The data, if all Secrets of the class exist. A driver must not get a part of them: without the credentials of
    /// the class it may use other credentials.
    ///
    /// # Errors
    /// The Secrets that cannot be used.
    pub fn complete(self) -> Result<SecretData, String> {
        if self.missing.is_empty() { Ok(self.data) } else { Err(self.missing.join(", ")) }
    }
}

/// Reads the data for calls about a class. Only Secrets in the namespace of the class are read.
///
/// # Errors
/// A Secret could not be read. One that does not exist is not an error but listed as missing.
pub async fn of_class(class: &MachineClass, secrets: &SecretCache) -> Result<MergedSecretData, kube::Error> {
    let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
    let mut missing = Vec::new();
    let other = read(class.secret_ref.as_ref(), namespace, secrets, &mut missing).await?;
    let credentials = read(class.credentials_secret_ref.as_ref(), namespace, secrets, &mut missing).await?;
    Ok(MergedSecretData { data: machine_class::login_data(other, credentials), missing, missing_user_data: None })
}

/// The data of a Secret that a class of this namespace names. One that cannot be used is added to `missing`.
async fn read(
    reference: Option<&SecretRef>,
    namespace: &str,
    secrets: &SecretCache,
    missing: &mut Vec<String>,
) -> Result<Option<SecretData>, kube::Error> {
    let Some(SecretRef { name, namespace: named }) = reference else { return Ok(None) };
    let key = Key::new(namespace, name);
    let reason = if name.is_empty() {
        "the name of a Secret, which a reference of the MachineClass lacks".to_owned()
    } else if !named.is_empty() && named != namespace {
        format!("the Secret {named}/{name}, which is in another namespace than the MachineClass")
    } else if let Some(data) = secrets.data(&key).await? {
        return Ok(Some(SecretData((*data).clone())));
    } else {
        absent(&key)
    };
    missing.push(reason);
    Ok(None)
}

/// Reads the data for calls about a Machine: that of its class, with the user data of the Machine, if it has any. The
/// latter is used once, so it is not kept.
///
/// # Errors
/// As for [`of_class`].
pub(super) async fn of_machine(
    machine: &Machine,
    class: &MachineClass,
    secrets: &SecretCache,
) -> Result<MergedSecretData, kube::Error> {
    const USER_DATA: &str = "userData";
    let mut merged = of_class(class, secrets).await?;
    let Some(name) = machine.user_data_secret() else { return Ok(merged) };
    let key = Key::beside(&machine.metadata, name);
    let data = secrets.data(&key).await?;
    secrets.forget(&key);
    merged.data.0.remove(USER_DATA);
    match data.as_ref().map(|data| data.get(labels::USER_DATA_KEY)) {
        Some(Some(user_data)) => drop(merged.data.0.insert(USER_DATA.to_owned(), user_data.clone())),
        Some(None) => merged.missing_user_data = Some(format!("the key {} in the Secret {key}", labels::USER_DATA_KEY)),
        None => merged.missing_user_data = Some(absent(&key)),
    }
    Ok(merged)
}

fn absent(key: &Key) -> String {
    format!("the Secret {key}, which does not exist")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Fate, Wire};

    /// Secrets `user-data` and `credentials`, and the data for a class that names them.
    async fn merged(wire: &Wire, mut class: Value) -> Result<MergedSecretData, kube::Error> {
        for (name, data) in
            [("user-data", json!({ "userData": "YQ==", "key": "YQ==" })), ("credentials", json!({ "key": "Yg==" }))]
        {
            let secret = json!({ "metadata": { "name": name, "namespace": "shoot" }, "data": data });
            wire.put::<Secret>(&format!("secrets/{name}"), &secret);
        }
        class["metadata"] = json!({ "name": "c", "namespace": "shoot" });
        let class: MachineClass = serde_json::from_value(class).unwrap();
        of_class(&class, &SecretCache::new(crate::secret::CACHE.empty(), &wire.client())).await
    }

    fn text(merged: &MergedSecretData) -> String {
        let data = merged.data.0.iter().map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(value)));
        data.collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn credentials_take_precedence() {
        let both = json!({ "secretRef": { "name": "user-data" }, "credentialsSecretRef": { "name": "credentials", "namespace": "shoot" } });
        let merged = merged(&Wire::new(), both).await.unwrap();
        assert_eq!((text(&merged).as_str(), merged.missing.len()), ("key=b userData=a", 0));
    }

    #[tokio::test]
    async fn credentials_and_hosts_come_from_one_secret() {
        let wire = Wire::new();
        let secrets = [
            ("victim", json!({ "userData": "YQ==", "password": "YQ==", "authURL": "YQ==" })),
            ("mine", json!({ "authURL": "Yg==" })),
        ];
        for (name, data) in secrets {
            let secret = json!({ "metadata": { "name": name, "namespace": "shoot" }, "data": data });
            wire.put::<Secret>(&format!("secrets/{name}"), &secret);
        }
        let class = json!({
            "metadata": { "namespace": "shoot" }, "secretRef": { "name": "victim" }, "credentialsSecretRef": { "name": "mine" }
        });
        let class: MachineClass = serde_json::from_value(class).unwrap();
        let merged = of_class(&class, &SecretCache::new(crate::secret::CACHE.empty(), &wire.client())).await.unwrap();
        assert_eq!(text(&merged), "authURL=b userData=a");
    }

    #[tokio::test]
    async fn a_secret_that_is_absent_elsewhere_or_unnamed_is_missing() {
        let wire = Wire::new();
        let gone = json!({ "secretRef": { "name": "user-data" }, "credentialsSecretRef": { "name": "gone", "namespace": "shoot" } });
        let without = merged(&wire, gone).await.unwrap();
        let absent = "the Secret shoot/gone, which does not exist".to_owned();
        assert_eq!((text(&without).as_str(), &without.missing), ("key=a userData=a", &vec![absent.clone()]));
        assert_eq!(without.complete().err(), Some(absent), "a driver does not get a part");
        let elsewhere = json!({ "secretRef": { "name": "credentials", "namespace": "garden" } });
        let without = merged(&wire, elsewhere).await.unwrap();
        let reason = "the Secret garden/credentials, which is in another namespace than the MachineClass";
        assert_eq!((text(&without).as_str(), without.missing), ("", vec![reason.to_owned()]));
        assert_eq!(wire.count("GET secrets/credentials"), 0, "another namespace's Secret is not even read");
        let unnamed = json!({ "secretRef": { "name": "user-data" }, "credentialsSecretRef": { "name": "" } });
        let without = merged(&wire, unnamed).await.unwrap();
        assert_eq!(without.missing, ["the name of a Secret, which a reference of the MachineClass lacks"]);
    }

    /// I9: byte-equal to `value`; no placeholders are substituted.
    #[tokio::test]
    async fn a_machine_with_user_data_of_its_own_boots_with_exactly_these() {
        let wire = Wire::new();
        let put = |name: &str, data: Value| {
            let secret = json!({ "metadata": { "name": name, "namespace": "shoot" }, "data": data });
            wire.put::<Secret>(&format!("secrets/{name}"), &secret);
        };
        put("of-class", json!({ "userData": "YQ==", "key": "YQ==" }));
        put("boot", json!({ "value": "PDxCT09UU1RSQVBfVE9LRU4+Pg==", "format": "aWduaXRpb24=" }));
        let class = json!({ "metadata": { "namespace": "shoot" }, "secretRef": { "name": "of-class" } });
        let class: MachineClass = serde_json::from_value(class).unwrap();
        let secrets = SecretCache::new(crate::secret::CACHE.empty(), &wire.client());
        let machine = |secret: &str| -> Machine {
            let annotations = json!({ "machine.mcm/user-data-secret": secret });
            let metadata = json!({ "name": "m", "namespace": "shoot", "annotations": annotations });
            serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap()
        };
        let own = of_machine(&machine("boot"), &class, &secrets).await.unwrap();
        assert_eq!(text(&own), "key=a userData=<<BOOTSTRAP_TOKEN>>");
        put("empty", json!({}));
        for (secret, reason) in [
            ("gone", "the Secret shoot/gone, which does not exist"),
            ("empty", "the key value in the Secret shoot/empty"),
        ] {
            let without = of_machine(&machine(secret), &class, &secrets).await.unwrap();
            assert_eq!((text(&without).as_str(), without.missing_user_data.as_deref()), ("key=a", Some(reason)));
            assert!(without.missing.is_empty(), "the credentials are there");
        }
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_read_is_not_missing() {
        let wire = Wire::new();
        wire.judge(|_| Fate::Refused);
        assert!(merged(&wire, json!({ "secretRef": { "name": "user-data" } })).await.is_err());
    }
}
