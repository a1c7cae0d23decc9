//! Reads objects over one connection. Tests ask many times a second, and a kubectl for each answer takes both cores.

use std::sync::{Arc, Mutex};

use kube::{
    Client, Error,
    api::{ApiResource, DynamicObject, GetParams, ListParams, Request},
    core::Resource as _,
    discovery::{Discovery, Scope},
};
use serde_json::Value;
use tokio::{runtime::Handle, task::block_in_place};

pub struct Reader {
    client: Client,
    /// The discovery of the API server, as far as it was read.
    served: Mutex<Option<Arc<Discovery>>>,
}

impl Reader {
    pub fn new(client: Client) -> Self {
        Self { client, served: Mutex::default() }
    }

    /// An object, if there is one and its kind is served.
    pub fn find(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        block_in_place(|| Handle::current().block_on(self.read(namespace, kind, name)))
    }

    /// All objects of a kind with these labels, in a namespace or, if that is empty, anywhere.
    pub fn all(&self, namespace: &str, kind: &str, selector: &str) -> Vec<Value> {
        block_in_place(|| Handle::current().block_on(self.list(namespace, kind, selector)))
    }

    async fn read(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        let (resource, scope) = self.resource(kind).await?;
        let request = Request::new(path(&resource, &scope, namespace)).get(name, &GetParams::default()).unwrap();
        match self.client.request(request).await {
            Ok(object) => Some(object),
            Err(Error::Api(status)) if status.is_not_found() => None,
            Err(error) => panic!("{kind} {name} cannot be read: {error}"),
        }
    }

    async fn list(&self, namespace: &str, kind: &str, selector: &str) -> Vec<Value> {
        let (resource, scope) = self.resource(kind).await.unwrap_or_else(|| panic!("{kind} is not served"));
        let request = Request::new(path(&resource, &scope, namespace)).list(&ListParams::default().labels(selector));
        let list = self.client.request::<Value>(request.unwrap()).await;
        let mut list = list.unwrap_or_else(|error| panic!("{kind} cannot be listed: {error}"));
        let Value::Array(mut items) = list["items"].take() else { return Vec::new() };
        for item in &mut items {
            item["kind"] = resource.kind.clone().into();
            item["apiVersion"] = resource.api_version.clone().into();
        }
        items
    }

    /// A kind by its name in singular or plural, with its group after a dot where several have it. A kind that is new is
    /// asked for again.
    async fn resource(&self, kind: &str) -> Option<(ApiResource, Scope)> {
        let known = self.served.lock().unwrap().clone();
        if let Some(found) = known.and_then(|served| resource_in(&served, kind)) {
            return Some(found);
        }
        let served = Arc::new(Discovery::new(self.client.clone()).run_aggregated().await.unwrap());
        let found = resource_in(&served, kind);
        *self.served.lock().unwrap() = Some(served);
        found
    }
}

fn resource_in(served: &Discovery, kind: &str) -> Option<(ApiResource, Scope)> {
    let (name, of_group) = kind.split_once('.').unwrap_or((kind, ""));
    let groups = served.groups_alphabetical().into_iter();
    let mut groups = groups.filter(|group| of_group.is_empty() || group.name() == of_group);
    groups.find_map(|group| {
        // Of a group with several providers, the preferred version lacks the kinds of some.
        let all = group.recommended_resources().into_iter().chain(group.resources_by_stability());
        let mut all = all.filter(|(resource, _)| resource.plural == name || resource.kind.to_lowercase() == name);
        all.next().map(|(resource, capabilities)| (resource, capabilities.scope))
    })
}

fn path(resource: &ApiResource, scope: &Scope, namespace: &str) -> String {
    let namespace = Some(namespace).filter(|namespace| *scope == Scope::Namespaced && !namespace.is_empty());
    DynamicObject::url_path(resource, namespace)
}
