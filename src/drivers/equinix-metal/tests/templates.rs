//! The templates for users.

use std::time::Duration;

use mcm_api::machine::{MachineClass, MachineDeployment};
use mcm_driver::{Driver, SecretData, SecretPolicy, spec::ClassProblems, testing::secret};
use serde_json::Value;

use super::{driver, unmeasured};
use crate::login::Login;

fn template<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_yaml_ng::from_str(text).unwrap()
}

#[tokio::test]
async fn the_templates_are_valid_and_fit_each_other() {
    let class: MachineClass = template(include_str!("../../../../templates/equinix-metal/machine-class.yaml"));
    let secret: Value = template(include_str!("../../../../templates/equinix-metal/secret.yaml"));
    let deployment: MachineDeployment =
        template(include_str!("../../../../templates/equinix-metal/machine-deployment.yaml"));
    let driver = driver(Duration::from_secs(1), unmeasured());
    let problems = driver.validate(&class);
    assert_eq!(problems.errors, []);
    let warnings: Vec<String> = problems.warnings.iter().map(ToString::to_string).collect();
    assert!(matches!(warnings.as_slice(), [only] if only.contains("ended on 2026-06-30")), "{warnings:?}");
    assert_eq!(Some(deployment.spec.template.spec.class.name.as_str()), class.metadata.name.as_deref());
    assert_eq!(class.secret_ref.as_ref().unwrap().name, secret["metadata"]["name"]);
    let data = secret["stringData"].as_object().unwrap();
    let data = data.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().as_bytes().to_vec()));
    let data = SecretData(data.collect());
    assert_eq!(driver.secret_problems(&class, &data), ClassProblems::default());
    Login::from_secret(&data, &SecretPolicy::default()).map(drop).expect("no flag is needed");
}

#[tokio::test]
async fn a_class_of_gardeners_extension_is_valid_as_it_is() {
    let class: MachineClass = template(include_str!("gardener.yaml"));
    let driver = driver(Duration::from_secs(1), unmeasured());
    let problems = driver.validate(&class);
    assert_eq!(problems.errors, []);
    // Fields that the reference ignores as well, and the end of the cloud.
    let warnings: Vec<&str> = problems.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(warnings, ["provider", "providerSpec.metadata", "providerSpec.facilities"]);
    let data = secret(&[("apiToken", "t"), ("projectID", "48277712-7f36-4c8b-9a55-6fb0b2f3b0c1")]);
    assert_eq!(driver.secret_problems(&class, &data), ClassProblems::default());
}
