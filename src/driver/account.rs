//! Cloud accounts.

use mcm_api::machine::MachineClass;

use crate::cloud::driver_of;

/// A cloud account: a provider and the Secret with its credentials. Quotas and rate limits apply per account, and so do
/// slots and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloudAccount {
    provider: String,
    namespace: String,
    secret: String,
}

impl CloudAccount {
    /// The account of a class. Its Secrets are looked up in its namespace, regardless of the namespace in the
    /// reference.
    pub fn from_class(class: &MachineClass) -> Self {
        let secret = class.credentials_secret_ref.as_ref().or(class.secret_ref.as_ref());
        Self {
            provider: driver_of(&class.provider),
            namespace: class.metadata.namespace.clone().unwrap_or_default(),
            secret: secret.map(|reference| reference.name.clone()).unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for CloudAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with secret {}/{}", self.provider, self.namespace, self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn account(class: &Value) -> CloudAccount {
        CloudAccount::from_class(&serde_json::from_value(class.clone()).unwrap())
    }

    #[rstest]
    #[case::same(json!({}), true)]
    #[case::spelling(json!({"provider": " aws "}), true)]
    #[case::address(json!({"provider": "aws//127.0.0.1:8080"}), true)]
    #[case::user_data_of_its_own(json!({"secretRef": {"name": "other"}}), true)]
    #[case::credentials(json!({"credentialsSecretRef": {"name": "other"}}), false)]
    #[case::provider(json!({"provider": "gcp"}), false)]
    #[case::namespace(json!({"metadata": {"name": "c", "namespace": "other"}}), false)]
    fn an_account_is_a_provider_with_its_credentials(#[case] change: Value, #[case] is_same: bool) {
        let class = json!({
            "metadata": {"name": "c", "namespace": "ns"}, "provider": "AWS", "providerSpec": {},
            "secretRef": {"name": "user-data"}, "credentialsSecretRef": {"name": "cloud"},
        });
        let mut changed = class.clone();
        changed.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(account(&class) == account(&changed), is_same);
    }

    #[test]
    fn without_credentials_of_their_own_classes_go_by_their_secret() {
        let class = |secret| json!({"metadata": {"name": "c"}, "providerSpec": {}, "secretRef": {"name": secret}});
        assert_ne!(account(&class("a")), account(&class("b")));
    }
}
