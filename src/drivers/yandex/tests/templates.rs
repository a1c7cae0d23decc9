//! The templates for users.

use std::time::Duration;

use mcm_api::machine::{MachineClass, MachineDeployment};
use mcm_driver::{SecretData, interface::Driver, spec::ClassProblems};
use serde_json::Value;

use super::{driver, fake::PRIVATE_KEY, unmeasured};

fn template<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_yaml_ng::from_str(text).unwrap()
}

#[tokio::test]
async fn the_templates_are_valid_and_fit_each_other() {
    let class: MachineClass = template(include_str!("../../../../templates/yandex/machine-class.yaml"));
    let secret: Value = template(include_str!("../../../../templates/yandex/secret.yaml"));
    let deployment: MachineDeployment = template(include_str!("../../../../templates/yandex/machine-deployment.yaml"));
    let driver = driver(Duration::from_secs(1), unmeasured());
    assert_eq!(driver.validate(&class), ClassProblems::default());
    assert_eq!(Some(deployment.spec.template.spec.class.name.as_str()), class.metadata.name.as_deref());
    assert_eq!(class.secret_ref.as_ref().unwrap().name, secret["metadata"]["name"]);
    // A template cannot have a real key.
    let mut key: Value = serde_json::from_str(secret["stringData"]["serviceAccountJSON"].as_str().unwrap()).unwrap();
    key["private_key"] = PRIVATE_KEY.into();
    let data = secret["stringData"].as_object().unwrap();
    let data = data.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().as_bytes().to_vec()));
    let mut data = SecretData(data.collect());
    data.0.insert("serviceAccountJSON".to_owned(), key.to_string().into_bytes());
    assert_eq!(driver.secret_problems(&class, &data), ClassProblems::default());
}
