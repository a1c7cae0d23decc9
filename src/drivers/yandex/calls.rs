//! The calls of the cloud: nothing is decided here.

use std::{collections::BTreeSet, sync::Arc};

use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, PageCollector, RestCall, RestClient, VmQuery},
};
use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{instance::Instance, operation::Operation};

/// The most entries that a page can have.
const PAGE: &str = "1000";
const INSTANCES: [&str; 3] = ["compute", "v1", "instances"];

/// The answer of a look-up.
pub(crate) struct FoundInstances {
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
    pub(crate) async fn look(&self, asked: &BTreeSet<VmQuery>) -> Result<FoundInstances, DriverError> {
        Ok(match VmQuery::only(asked) {
            Some(VmQuery::Id(id)) => {
                FoundInstances { instances: self.instance(id).await?.into_iter().collect(), is_of_folder: false }
            }
            Some(VmQuery::Name(name)) => {
                let filter = format!("name=\"{name}\"");
                FoundInstances { instances: self.list_instances(Some(&filter)).await?, is_of_folder: false }
            }
            None => FoundInstances { instances: self.instances().await?, is_of_folder: true },
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
            let page: Page<T> = rest.call(&call).await.map_err(|failure| self.error(&failure, &what))?;
            if pages.add(page.items, page.next_page_token)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// The instance with an ID. `None` if the cloud reports it absent.
    pub(crate) async fn instance(&self, id: &str) -> Result<Option<Instance>, DriverError> {
        let [compute, version, instances] = INSTANCES;
        self.get(&self.services.compute, "instance_get", &[compute, version, instances, id]).await
    }

    /// Requests an instance. A request with a key that the cloud remembers is the same request.
    pub(crate) async fn create(&self, order: &Value, key: &str) -> Result<Operation, CloudFailure> {
        let call = RestCall::write("instance_create", Method::POST, &INSTANCES).with(order.clone());
        self.services.compute.call(&call.header("idempotency-key", key)).await
    }

    /// Begins the deletion of an instance. `None` if the cloud reports it absent.
    pub(crate) async fn delete(&self, id: &str) -> Result<Option<Operation>, DriverError> {
        let [compute, version, instances] = INSTANCES;
        let path = [compute, version, instances, id];
        let call = RestCall::write("instance_delete", Method::DELETE, &path);
        let begun = self.services.compute.find(&call).await;
        begun.map_err(|failure| self.error(&failure, &format!("deletion of instance {id}")))
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

    /// An operation as it is now. `None` if the cloud reports it absent.
    pub(crate) async fn operation(&self, id: &str) -> Result<Option<Operation>, DriverError> {
        self.get(&self.services.operation, "operation_get", &["operations", id]).await
    }

    /// The resource at a path. `None` if the cloud reports it absent.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        rest: &RestClient,
        service: &'static str,
        path: &[&str],
    ) -> Result<Option<T>, DriverError> {
        let found = rest.find(&RestCall::read(service, Method::GET, path)).await;
        found.map_err(|failure| self.error(&failure, &format!("a look at {}", path.join("/"))))
    }

    pub(crate) fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }
}
