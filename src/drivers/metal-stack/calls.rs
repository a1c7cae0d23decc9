//! The calls of metal-api: nothing is decided here.

use std::{collections::BTreeSet, sync::Arc};

use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    server::{Freed, Server},
    spec::Scope,
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, RestCall, RestClient, VmQuery},
};

/// The answer of a look-up.
pub(super) struct FoundServers {
    pub servers: Vec<Server>,
    /// All machines of the cluster were asked for, so one with other tags is not among them.
    pub is_of_cluster: bool,
}

/// metal-api with the credentials of a Secret.
#[derive(Clone)]
pub(super) struct Api {
    pub rest: Arc<RestClient>,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Api {
    /// The machines that were asked for, and maybe others: one by its name or ID, several by their cluster.
    pub async fn look(&self, scope: &Scope, asked: &BTreeSet<VmQuery>) -> Result<FoundServers, DriverError> {
        let filter = match VmQuery::only(asked) {
            Some(VmQuery::Id(id)) => json!({"id": id, "allocation_project": scope.project}),
            Some(VmQuery::Name(name)) => {
                json!({"allocation_name": name, "allocation_project": scope.project, "tags": [scope.tag()]})
            }
            None => return Ok(FoundServers { servers: self.of_cluster(scope).await?, is_of_cluster: true }),
        };
        Ok(FoundServers { servers: self.find(filter).await?, is_of_cluster: false })
    }

    /// All machines and firewalls of a cluster.
    pub async fn of_cluster(&self, scope: &Scope) -> Result<Vec<Server>, DriverError> {
        self.find(json!({"allocation_project": scope.project, "tags": [scope.tag()]})).await
    }

    async fn find(&self, filter: Value) -> Result<Vec<Server>, DriverError> {
        let call = RestCall::read("machine_find", Method::POST, &["v1", "machine", "find"]).with(filter);
        self.rest.call(&call).await.map_err(|failure| self.error(&failure, "machine.find"))
    }

    /// Allocates a machine. The request has no idempotency token, so it is repeated only if it certainly had no effect.
    pub async fn allocate(&self, order: Value) -> Result<Server, CloudFailure> {
        let call = RestCall::write("machine_allocate", Method::POST, &["v1", "machine", "allocate"]).with(order);
        self.rest.call(&call).await
    }

    /// Frees a machine. True if it is free or does not exist; false if metal-api still works on it. It is not repeated without
    /// a new look-up, because another Machine may have the server meanwhile.
    pub async fn free(&self, id: &str) -> Result<bool, DriverError> {
        let path = ["v1", "machine", id, "free"];
        let freed = self.rest.find::<Freed>(&RestCall::write("machine_free", Method::DELETE, &path)).await;
        let freed = freed.map_err(|failure| self.error(&failure, &format!("machine.free of {id}")))?;
        Ok(freed.is_none_or(|freed| freed.allocation.is_none()))
    }

    /// Replaces the tags of an allocated machine.
    pub async fn set_tags(&self, server: &Server, tags: &[String]) -> Result<(), DriverError> {
        let body = json!({"id": server.id, "description": server.allocation.description, "tags": tags});
        let call = RestCall::write("machine_update", Method::POST, &["v1", "machine"]).with(body);
        let done: Result<Value, _> = self.rest.call(&call).await;
        done.map(drop).map_err(|failure| self.error(&failure, &format!("machine.update of {}", server.id)))
    }

    /// The resource at a path. `None` if metal-api reports it absent.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>, DriverError> {
        let found = self.rest.find(&RestCall::read("resource_get", Method::GET, path)).await;
        found.map_err(|failure| self.error(&failure, &format!("a look at {}", path.join("/"))))
    }

    /// How many machines of a size are free for a project; `None` if metal-api does not say.
    pub async fn free_machines(&self, partition: &str, size: &str, project: &str) -> Result<Option<u64>, DriverError> {
        #[derive(Deserialize)]
        struct Capacity {
            id: String,
            #[serde(default)]
            servers: Vec<OfSize>,
        }
        #[derive(Deserialize)]
        struct OfSize {
            size: String,
            // metal-api leaves a zero out.
            #[serde(default)]
            free: u64,
        }
        let body = json!({"id": partition, "sizeid": size, "projectid": project});
        let call = RestCall::read("resource_get", Method::POST, &["v1", "partition", "capacity"]).with(body);
        let all: Vec<Capacity> =
            self.rest.call(&call).await.map_err(|failure| self.error(&failure, "partition.capacity"))?;
        let sizes = all.into_iter().filter(|one| one.id == partition).flat_map(|one| one.servers);
        Ok(sizes.into_iter().find(|one| one.size == size).map(|one| one.free))
    }

    pub fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }
}
