//! The calls of the cloud: nothing is decided here.

use std::{collections::BTreeSet, sync::Arc};

use mcm_driver::{
    Code, DriverError, SecretData,
    cloud::{CloudFailure, PageCollector, RestCall, RestClient},
};
use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{instance::Instance, operation::Operation};

/// The most entries that a page can have.
const PAGE: &str = "1000";
const INSTANCES: [&str; 3] = ["compute", "v1", "instances"];

/// A VM that a look-up asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    Name(String),
    Id(String),
}

impl Asked {
    /// As a text, by which look-ups are joined.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Name(name) => format!("name/{name}"),
            Self::Id(id) => format!("id/{id}"),
        }
    }

    fn of_key(key: &str) -> Option<Self> {
        let (kind, text) = key.split_once('/')?;
        let text = text.to_owned();
        Some(if kind == "id" { Self::Id(text) } else { Self::Name(text) })
    }
}

/// The answer of a look-up.
pub(crate) struct Seen {
    pub instances: Vec<Instance>,
    /// All instances of the folder were asked for, so one of another folder is not among them.
    pub is_of_folder: bool,
}

/// The services of the cloud, with the credentials of an account.
pub(crate) struct Services {
    pub compute: RestClient,
    pub operation: RestClient,
    pub resource_manager: RestClient,
    pub vpc: RestClient,
}

/// A static public address.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Address {
    #[serde(default)]
    pub used: bool,
    external_ipv4_address: Option<External>,
}

#[derive(Clone, Debug, Deserialize)]
struct External {
    #[serde(default)]
    address: String,
}

impl Address {
    /// `None` if it is not a public one.
    pub(crate) fn value(&self) -> Option<&str> {
        self.external_ipv4_address.as_ref().map(|external| external.address.as_str()).filter(|text| !text.is_empty())
    }
}

/// A page of a list. The cloud leaves an empty list out, so an answer with anything else must not pass for one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Page<T> {
    #[serde(alias = "instances", alias = "addresses", default = "Vec::new")]
    items: Vec<T>,
    next_page_token: Option<String>,
}

/// The cloud with the credentials of a Secret.
#[derive(Clone)]
pub(crate) struct Api {
    pub services: Arc<Services>,
    pub folder: String,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Api {
    /// The instances that were asked for, and maybe others: one by its name or ID, several by their folder.
    pub(crate) async fn look(&self, asked: &BTreeSet<String>) -> Result<Seen, DriverError> {
        let only = asked.first().filter(|_| asked.len() == 1).and_then(|key| Asked::of_key(key));
        Ok(match only {
            Some(Asked::Id(id)) => {
                Seen { instances: self.instance(&id).await?.into_iter().collect(), is_of_folder: false }
            }
            Some(Asked::Name(name)) => {
                let filter = format!("name=\"{name}\"");
                Seen { instances: self.list_instances(Some(&filter)).await?, is_of_folder: false }
            }
            None => Seen { instances: self.instances().await?, is_of_folder: true },
        })
    }

    /// All instances of the folder.
    pub(crate) async fn instances(&self) -> Result<Vec<Instance>, DriverError> {
        self.list_instances(None).await
    }

    async fn list_instances(&self, filter: Option<&str>) -> Result<Vec<Instance>, DriverError> {
        self.list(&self.services.compute, "instance_list", &INSTANCES, filter).await
    }

    /// All static public addresses of the folder.
    pub(crate) async fn addresses(&self) -> Result<Vec<Address>, DriverError> {
        self.list(&self.services.vpc, "address_list", &["vpc", "v1", "addresses"], None).await
    }

    async fn list<T: DeserializeOwned>(
        &self,
        rest: &RestClient,
        service: &'static str,
        path: &[&str],
        filter: Option<&str>,
    ) -> Result<Vec<T>, DriverError> {
        let what = format!("list of {}", path.last().copied().unwrap_or_default());
        let mut pages = PageCollector::new(&what);
        loop {
            let mut query = vec![("folderId", self.folder.as_str()), ("pageSize", PAGE)];
            query.extend(filter.map(|filter| ("filter", filter)));
            query.extend(pages.token().map(|token| ("pageToken", token)));
            let call = RestCall::read(service, Method::GET, path).query(&query);
            let page: Page<T> = rest.call(&call).await.map_err(|failure| self.not_absent(&failure, &what))?;
            if pages.add(page.items, page.next_page_token)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// The instance with an ID. `None` if the cloud has none.
    pub(crate) async fn instance(&self, id: &str) -> Result<Option<Instance>, DriverError> {
        let [compute, version, instances] = INSTANCES;
        self.get(&self.services.compute, "instance_get", &[compute, version, instances, id]).await
    }

    /// Requests an instance. A request with a key that the cloud remembers is the same request.
    pub(crate) async fn create(&self, order: &Value, key: &str) -> Result<Operation, CloudFailure> {
        let call = RestCall::write("instance_create", Method::POST, &INSTANCES).with(order.clone());
        self.services.compute.call(&call.header("idempotency-key", key)).await
    }

    /// Begins the deletion of an instance. `None` if the cloud has none.
    pub(crate) async fn delete(&self, id: &str) -> Result<Option<Operation>, DriverError> {
        let [compute, version, instances] = INSTANCES;
        let path = [compute, version, instances, id];
        let call = RestCall::write("instance_delete", Method::DELETE, &path);
        self.found(self.services.compute.call(&call).await, &format!("deletion of instance {id}"))
    }

    /// Begins to replace the labels of an instance.
    pub(crate) async fn set_labels(&self, instance: &Instance) -> Result<Operation, DriverError> {
        let [compute, version, instances] = INSTANCES;
        let path = [compute, version, instances, instance.id.as_str()];
        let body = json!({"updateMask": "labels", "labels": instance.labels});
        let call = RestCall::write("instance_update", Method::PATCH, &path).with(body);
        let begun = self.services.compute.call(&call).await;
        begun.map_err(|failure| self.error(&failure, &format!("update of instance {}", instance.id)))
    }

    /// An operation as it is now. `None` if the cloud has none.
    pub(crate) async fn operation(&self, id: &str) -> Result<Option<Operation>, DriverError> {
        self.get(&self.services.operation, "operation_get", &["operations", id]).await
    }

    /// The resource at a path. `None` if the cloud has none.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        rest: &RestClient,
        service: &'static str,
        path: &[&str],
    ) -> Result<Option<T>, DriverError> {
        let found = rest.call(&RestCall::read(service, Method::GET, path)).await;
        self.found(found, &format!("a look at {}", path.join("/")))
    }

    fn found<T>(&self, found: Result<T, CloudFailure>, what: &str) -> Result<Option<T>, DriverError> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.code() == Code::NotFound => Ok(None),
            Err(failure) => Err(self.error(&failure, what)),
        }
    }

    pub(crate) fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }

    /// The failure of a list. One that is not found is not an empty one.
    fn not_absent(&self, failure: &CloudFailure, what: &str) -> DriverError {
        let error = self.error(failure, what);
        let code = if error.code == Code::NotFound { Code::Unknown } else { error.code };
        DriverError { code, ..error }
    }
}
