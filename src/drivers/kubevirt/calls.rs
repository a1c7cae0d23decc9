//! The calls of an API server: nothing is decided here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, PageCollector, RestCall, RestClient},
    code::Code,
};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{markers::Scope, vm::VirtualMachine};

/// Objects of one page of a list. An object has some 10 kB.
const PAGE: &str = "250";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The answer of a look-up.
pub(crate) struct FoundVms {
    pub vms: Vec<VirtualMachine>,
    /// All VMs of the cluster were asked for, so one with other labels is not among them.
    pub is_of_cluster: bool,
}

/// A Secret with user data. The user data are not read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct UserDataSecret {
    pub metadata: SecretMetadata,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretMetadata {
    name: String,
    uid: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub owner_references: Vec<Value>,
}

/// An API server and a namespace, with the credentials of a Secret.
#[derive(Clone)]
pub(crate) struct Api {
    pub rest: Arc<RestClient>,
    pub namespace: String,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Api {
    /// The VMs with these names, and maybe others: one by its name, several by their cluster.
    pub async fn look(&self, scope: &Scope, names: &BTreeSet<String>) -> Result<FoundVms, DriverError> {
        match names.first().filter(|_| names.len() == 1) {
            Some(name) => Ok(FoundVms { vms: self.vm(name).await?.into_iter().collect(), is_of_cluster: false }),
            None => Ok(FoundVms { vms: self.of_cluster(scope).await?, is_of_cluster: true }),
        }
    }

    /// The VM with a name, whoever made it. `None` if the API server reports it absent.
    pub async fn vm(&self, name: &str) -> Result<Option<VirtualMachine>, DriverError> {
        let found = self.vm_or_failure(name).await;
        found.map_err(|failure| self.error(&failure, &format!("look-up of VirtualMachine {}/{name}", self.namespace)))
    }

    pub async fn vm_or_failure(&self, name: &str) -> Result<Option<VirtualMachine>, CloudFailure> {
        self.rest.find(&RestCall::read("virtual_machine_get", Method::GET, &self.path_of_vm(name))).await
    }

    /// All VMs of a cluster, of any role.
    pub async fn of_cluster(&self, scope: &Scope) -> Result<Vec<VirtualMachine>, DriverError> {
        #[derive(Deserialize)]
        struct List {
            metadata: ListMetadata,
            items: Vec<VirtualMachine>,
        }
        #[derive(Deserialize)]
        struct ListMetadata {
            #[serde(rename = "continue")]
            next: Option<String>,
        }
        let (path, selector) = (self.path_of_vms(), scope.cluster.to_string());
        let what = format!("list of VirtualMachines in namespace {}", self.namespace);
        let mut pages = PageCollector::new(what.as_str());
        loop {
            let token = pages.token().unwrap_or_default().to_owned();
            let mut query = vec![("labelSelector", selector.as_str()), ("limit", PAGE)];
            query.extend(Some(("continue", token.as_str())).filter(|_| !token.is_empty()));
            let call = RestCall::read("virtual_machine_list", Method::GET, &path).query(&query);
            let list = self.rest.call(&call).await;
            let List { metadata, items } = list.map_err(|failure| self.error(&failure, &what))?;
            if pages.add(items, metadata.next)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// Creates a VM. Its name makes a second one impossible, so the request may be repeated.
    pub async fn create_vm(&self, body: &Value) -> Result<VirtualMachine, CloudFailure> {
        let path = self.path_of_vms();
        self.rest.call(&RestCall::idempotent("virtual_machine_create", Method::POST, &path).with(body.clone())).await
    }

    /// Deletes the VM with a name and a UID, and what belongs to it. It disappears some time later.
    pub async fn delete_vm(&self, vm: &VirtualMachine) -> Result<(), DriverError> {
        let name = &vm.metadata.name;
        let path = self.path_of_vm(name);
        let call =
            RestCall::idempotent("virtual_machine_delete", Method::DELETE, &path).with(deletion(&vm.metadata.uid));
        let done = self.rest.find::<Value>(&call).await;
        done.map(drop)
            .map_err(|failure| self.error(&failure, &format!("deletion of VirtualMachine {}/{name}", self.namespace)))
    }

    /// Changes labels of a VM; `null` removes one.
    pub async fn label_vm(
        &self,
        vm: &VirtualMachine,
        labels: &BTreeMap<&str, Option<&str>>,
    ) -> Result<(), DriverError> {
        let name = &vm.metadata.name;
        let patch = json!({"metadata": {"uid": vm.metadata.uid, "labels": labels}});
        let path = self.path_of_vm(name);
        let call =
            RestCall::idempotent("virtual_machine_patch", Method::PATCH, &path).text(MERGE_PATCH, patch.to_string());
        let done: Result<Value, _> = self.rest.call(&call).await;
        done.map(drop).map_err(|failure| {
            self.error(&failure, &format!("change of labels of VirtualMachine {}/{name}", self.namespace))
        })
    }

    /// Creates the Secret of a Machine, or renews the user data in that of an earlier call.
    pub async fn put_secret(&self, body: &Value) -> Result<(), DriverError> {
        let name = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let path = self.path_of_secrets();
        let call = RestCall::idempotent("secret_create", Method::POST, &path).with(body.clone());
        let mut done: Result<UserDataSecret, _> = self.rest.call(&call).await;
        if done.as_ref().is_err_and(|failure| failure.code() == Code::AlreadyExists) {
            let patch = json!({"metadata": {"labels": body["metadata"]["labels"]}, "data": body["data"]});
            done = self.patch_secret(name, &patch).await;
        }
        let what = format!("creation of Secret {}/{name}", self.namespace);
        done.map(drop).map_err(|failure| failure.error_of_creation(&what, &self.secret))
    }

    pub async fn patch_secret(&self, name: &str, patch: &Value) -> Result<UserDataSecret, CloudFailure> {
        let path = self.path_of_secret(name);
        self.rest
            .call(&RestCall::idempotent("secret_patch", Method::PATCH, &path).text(MERGE_PATCH, patch.to_string()))
            .await
    }

    pub async fn secret(&self, name: &str) -> Result<Option<UserDataSecret>, DriverError> {
        let path = self.path_of_secret(name);
        let found = self.rest.find(&RestCall::read("secret_get", Method::GET, &path)).await;
        found.map_err(|failure| self.error(&failure, &format!("look-up of Secret {}/{name}", self.namespace)))
    }

    pub async fn delete_secret(&self, secret: &UserDataSecret) -> Result<(), DriverError> {
        let SecretMetadata { name, uid, .. } = &secret.metadata;
        let path = self.path_of_secret(name);
        let call = RestCall::idempotent("secret_delete", Method::DELETE, &path).with(deletion(uid));
        let done = self.rest.find::<Value>(&call).await;
        done.map(drop).map_err(|failure| self.error(&failure, &format!("deletion of Secret {}/{name}", self.namespace)))
    }

    /// The object at a path. `None` if the API server reports it absent.
    pub async fn object(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Option<Value>, DriverError> {
        let found = self.rest.find(&RestCall::read("object_get", Method::GET, path).query(query)).await;
        found.map_err(|failure| self.error(&failure, &format!("look-up of {}", path.join("/"))))
    }

    /// Sends an object that the API server checks and does not keep.
    pub async fn judged(&self, path: &[&str], query: &[(&str, &str)], body: Value) -> Result<Value, DriverError> {
        let call = RestCall::read("object_review", Method::POST, path).query(query).with(body);
        let answer = self.rest.call(&call).await;
        answer.map_err(|failure| failure.error_of_creation(&format!("review of {}", path.join("/")), &self.secret))
    }

    pub fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }

    pub fn path_of_vms(&self) -> [&str; 6] {
        ["apis", "kubevirt.io", "v1", "namespaces", &self.namespace, "virtualmachines"]
    }

    fn path_of_vm<'a>(&'a self, name: &'a str) -> [&'a str; 7] {
        ["apis", "kubevirt.io", "v1", "namespaces", &self.namespace, "virtualmachines", name]
    }

    fn path_of_secrets(&self) -> [&str; 5] {
        ["api", "v1", "namespaces", &self.namespace, "secrets"]
    }

    fn path_of_secret<'a>(&'a self, name: &'a str) -> [&'a str; 6] {
        ["api", "v1", "namespaces", &self.namespace, "secrets", name]
    }
}

/// Options of the deletion of the object with a UID, and of no later one with its name.
fn deletion(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}, "propagationPolicy": "Background"})
}
