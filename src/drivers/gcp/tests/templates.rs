//! The templates for users.

use std::time::Duration;

use serde_json::Value;

use super::driver;
use crate::{
    credentials::{Credentials, Login},
    user_data,
};
use mcm_api::machine::{MachineClass, MachineDeployment};
use mcm_driver::{SecretData, SecretPolicy, interface::Driver, spec::ClassProblems};

fn template<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_yaml_ng::from_str(text).unwrap()
}

#[tokio::test]
async fn the_templates_are_valid_and_fit_each_other() {
    let class: MachineClass = template(include_str!("../../../../templates/gcp/machine-class.yaml"));
    let secret: Value = template(include_str!("../../../../templates/gcp/secret.yaml"));
    let deployment: MachineDeployment = template(include_str!("../../../../templates/gcp/machine-deployment.yaml"));
    assert_eq!(driver("http://127.0.0.1:9", Duration::from_secs(1)).validate(&class), ClassProblems::default());
    assert_eq!(Some(deployment.spec.template.spec.class.name.as_str()), class.metadata.name.as_deref());
    assert_eq!(class.secret_ref.unwrap().name, secret["metadata"]["name"]);
    let data = secret["stringData"].as_object().unwrap();
    let data = data.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().as_bytes().to_vec()));
    let data = SecretData(data.collect());
    let login = Login::from_secret(&data, &SecretPolicy::default()).unwrap();
    assert!(matches!(login.credentials, Credentials::ServiceAccount { .. }));
    user_data::items(&data, None).unwrap();
}
