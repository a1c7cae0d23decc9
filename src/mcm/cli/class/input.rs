//! The classes and Secrets in some files.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::Secret;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::NotChecked;
use crate::{
    api::machine::{API_VERSION, MachineClass, SecretRef},
    cli::objects,
};
use mcm_controllers::machine_class;
use mcm_driver::SecretData;
use mcm_insight::class::{ClassFinding, ClassFindingVerdict, secret_data};

/// Objects without a namespace are taken to be in this one.
const NAMESPACE: &str = "default";

pub(super) struct ClassFiles {
    pub classes: Vec<MachineClass>,
    /// Data by namespace and name.
    secrets: BTreeMap<(String, String), SecretData>,
}

impl ClassFiles {
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, NotChecked> {
        let mut all = Vec::new();
        for file in files {
            all.extend(objects::read(file)?.into_iter().flat_map(items));
        }
        let mut input = Self { classes: Vec::new(), secrets: BTreeMap::new() };
        for object in all {
            match object["kind"].as_str() {
                Some("MachineClass") => input.classes.push(class(object)?),
                Some("Secret") => {
                    let secret: Secret = typed(object)?;
                    let name = secret.metadata.name.clone().unwrap_or_default();
                    let namespace = secret.metadata.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
                    input.secrets.insert((namespace, name), secret_data(secret));
                }
                _ => {}
            }
        }
        if input.classes.is_empty() {
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            return Err(NotChecked::Nothing(files.join(", ")));
        }
        Ok(input)
    }

    /// The data of a class, as its driver gets it, and the Secrets that are in no file.
    pub(super) fn secret_of(&self, class: &MachineClass) -> (SecretData, Vec<String>) {
        let references = [&class.secret_ref, &class.credentials_secret_ref].map(|one| one.as_ref());
        let found = references.map(|reference| reference.map(|reference| self.data(class, reference)));
        let missing = found.iter().filter_map(|found| found.as_ref()?.as_ref().err().cloned()).collect();
        let [other, credentials] = found.map(|found| found.and_then(Result::ok).cloned());
        (machine_class::login_data(other, credentials), missing)
    }

    /// A warning of keys that the driver does not get, because credentials come from another Secret.
    pub(super) fn unused(&self, class: &MachineClass) -> Option<ClassFinding> {
        let (reference, credentials) = (class.secret_ref.as_ref()?, class.credentials_secret_ref.as_ref()?);
        let data = |reference| self.data(class, reference).ok();
        let unused = machine_class::unused_keys(data(reference)?, data(credentials)?);
        let text = format!(
            "Secret {} has keys without effect: {}. Credentials and hosts come from Secret {} as a whole",
            reference.name,
            unused.join(", "),
            credentials.name
        );
        (!unused.is_empty()).then(|| ClassFinding::new(ClassFindingVerdict::Warning, "secretRef", text))
    }

    /// The data of a Secret, or the name of one that is in no file.
    fn data(&self, class: &MachineClass, reference: &SecretRef) -> Result<&SecretData, String> {
        let namespace = class.metadata.namespace.as_deref().unwrap_or(NAMESPACE);
        let namespace = if reference.namespace.is_empty() { namespace } else { &reference.namespace };
        let found = self.secrets.get(&(namespace.to_owned(), reference.name.clone()));
        found.ok_or_else(|| format!("{namespace}/{}", reference.name))
    }
}

/// A Secret that is in no file. Only a look into the cloud needs it.
pub(super) fn missing(secret: String, is_needed: bool) -> ClassFinding {
    let verdict = if is_needed { ClassFindingVerdict::Error } else { ClassFindingVerdict::Unknown };
    ClassFinding::new(verdict, "secretRef", format!("Secret {secret} is in none of the files"))
}

fn items(mut object: Value) -> Vec<Value> {
    match object["items"].take() {
        Value::Array(items) if object["kind"] == "List" => items,
        _ => vec![object],
    }
}

fn class(mut object: Value) -> Result<MachineClass, NotChecked> {
    let given = object["apiVersion"].as_str().unwrap_or_default();
    if given != API_VERSION {
        return Err(NotChecked::Version { object: name_of(&object), given: given.to_owned() });
    }
    if object["metadata"]["namespace"].is_null() && object["metadata"].is_object() {
        object["metadata"]["namespace"] = NAMESPACE.into();
    }
    typed(object)
}

/// An error of a Secret names no values.
fn typed<T: DeserializeOwned>(object: Value) -> Result<T, NotChecked> {
    let name = name_of(&object);
    let is_secret = object["kind"] == "Secret";
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        let problem = if is_secret { format!("{path} is invalid") } else { format!("{path}: {}", error.into_inner()) };
        NotChecked::Invalid { object: name, problem }
    })
}

/// Kind and name of an object.
fn name_of(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or("without a name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str) -> Result<ClassFiles, NotChecked> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.yaml");
        fs::write(&path, text).unwrap();
        ClassFiles::read(&[path])
    }

    const CLASS: &str = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: c}\n\
        provider: p\nproviderSpec: {}\nsecretRef: {name: s, namespace: default}\n\
        credentialsSecretRef: {name: t, namespace: default}\n";

    fn secret(name: &str, data: &str) -> String {
        format!("---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{{data}}}\n")
    }

    #[test]
    fn a_class_gets_the_data_of_both_its_secrets_as_in_a_cluster() {
        let text = format!("{CLASS}{}{}", secret("t", "key: credentials"), secret("s", "key: other, userData: x"));
        let input = read(&text).unwrap();
        let (data, missing) = input.secret_of(&input.classes[0]);
        let expected = [("key", "credentials"), ("userData", "x")];
        assert_eq!(data.0, expected.map(|(key, value)| (key.to_owned(), value.into())).into());
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn keys_without_effect_are_a_warning() {
        let text = |data: &str| format!("{CLASS}{}{}", secret("t", "password: p"), secret("s", data));
        let unused = |data: &str| {
            let input = read(&text(data)).unwrap();
            input.unused(&input.classes[0]).map(|line| (line.verdict, line.text))
        };
        assert_eq!(unused("password: other, userData: x"), None);
        let (verdict, text) = unused("authURL: u, userData: x").unwrap();
        assert_eq!(verdict, ClassFindingVerdict::Warning);
        assert!(text.starts_with("Secret s has keys without effect: authURL."), "{text}");
    }

    #[test]
    fn a_secret_that_is_in_no_file_is_named() {
        let input = read(&format!("{CLASS}{}", secret("s", "userData: x"))).unwrap();
        assert_eq!(input.secret_of(&input.classes[0]).1, ["default/t"]);
    }

    #[test]
    fn lists_are_read_too() {
        let class = CLASS.trim().replace('\n', "\n  ");
        let input = read(&format!("apiVersion: v1\nkind: List\nitems:\n- {class}\n")).unwrap();
        assert_eq!(input.classes.len(), 1);
    }

    #[rstest::rstest]
    #[case("machine.sapcloud.io/v1beta1")]
    #[case("v1")]
    fn a_class_of_another_version_is_refused(#[case] version: &str) {
        let error = read(&CLASS.replace("machine.sapcloud.io/v1alpha1", version)).err().unwrap().to_string();
        assert_eq!(error, format!("MachineClass c: apiVersion {version} is not served: write {API_VERSION}"));
    }

    #[test]
    fn what_is_wrong_is_named_but_no_secret() {
        let error =
            read(&format!("{CLASS}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ndata: {{a: [hunter2]}}\n"));
        assert_eq!(error.err().unwrap().to_string(), "Secret s: data.a is invalid");
        let error = read(&format!("{}\n", CLASS.replace("secretRef: {name: s, namespace: default}", "secretRef: 7")));
        assert!(error.err().unwrap().to_string().starts_with("MachineClass c: secretRef: invalid type"));
        let error = read("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n");
        assert!(error.err().unwrap().to_string().starts_with("there is no MachineClass in "));
    }
}
