//! The calls of the API: nothing is decided here.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use mcm_driver::{
    Code, DriverError, SecretData,
    cloud::{CloudFailure, PageCollector, RestCall, RestClient, VmQuery},
};
use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::device::Device;

/// The most that the API allows. Pages are counted from the start of the list, so one page is the only list that cannot change while
/// it is read.
const PER_PAGE: &str = "1000";
const FIRST_PAGE: &str = "1";
const LIST: &str = "devices.list";
/// The HTTP status of a deletion. Something before the API may answer with another success.
const DELETED: u16 = 204;

/// The answer of a look-up.
#[derive(Default)]
pub(crate) struct FoundDevices {
    /// Devices that exist or are being deleted.
    pub devices: Vec<Device>,
    /// Another device may have been missed, because the list has several pages.
    pub is_paged: bool,
    /// It is a list of the project for several look-ups.
    pub is_shared: bool,
}

#[derive(Deserialize)]
struct Page {
    devices: Vec<Device>,
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    total: usize,
    current_page: usize,
    last_page: usize,
}

/// The API with the credentials of a Secret.
#[derive(Clone)]
pub(crate) struct Api {
    pub rest: Arc<RestClient>,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Api {
    /// The devices that were asked for, and maybe others: one by its name or ID, several by their project.
    pub async fn look(&self, project: &str, asked: &BTreeSet<VmQuery>) -> Result<FoundDevices, DriverError> {
        match VmQuery::only(asked) {
            Some(VmQuery::Id(id)) => self.device(project, id).await,
            // The filter also finds longer names.
            Some(VmQuery::Name(name)) => self.list(project, Some(("hostname", name))).await,
            None => Ok(FoundDevices { is_shared: true, ..self.list(project, None).await? }),
        }
    }

    /// All devices of a project that exist or are being deleted.
    pub async fn of_project(&self, project: &str) -> Result<Vec<Device>, DriverError> {
        Ok(self.list(project, None).await?.devices)
    }

    async fn device(&self, project: &str, id: &str) -> Result<FoundDevices, DriverError> {
        match self.rest.call::<Device>(&RestCall::read("device_get", Method::GET, &["devices", id])).await {
            Ok(device) => Ok(FoundDevices { devices: present(vec![device]), ..FoundDevices::default() }),
            Err(failure) if failure.is_absence() => Ok(FoundDevices::default()),
            // The API also refuses to show a device that failed or was deleted, so the list decides.
            Err(failure) if failure.code() == Code::PermissionDenied => self.list(project, None).await,
            Err(failure) => Err(self.error(&failure, &format!("devices.get of {id}"))),
        }
    }

    async fn list(&self, project: &str, filter: Option<(&str, &str)>) -> Result<FoundDevices, DriverError> {
        let path = ["projects", project, "devices"];
        let mut pages = PageCollector::new(LIST);
        let mut total = None;
        loop {
            let number = pages.token().unwrap_or(FIRST_PAGE).to_owned();
            let query: Vec<_> = [("per_page", PER_PAGE), ("page", &number)].into_iter().chain(filter).collect();
            let call = RestCall::read("device_list", Method::GET, &path).query(&query);
            let Page { devices, meta } = self.rest.call(&call).await.map_err(|failure| self.error(&failure, LIST))?;
            let next = meta.current_page.saturating_add(1);
            let next = (meta.current_page < meta.last_page).then(|| next.to_string());
            let has_changed = *total.get_or_insert(meta.total) != meta.total;
            if pages.add(devices, next)? {
                let devices = pages.into_items();
                let known: HashSet<&str> = devices.iter().map(|device| device.id.as_str()).collect();
                if has_changed || known.len() != meta.total {
                    let message = format!("{LIST} failed: the list changed while it was read");
                    return Err(DriverError::new(Code::Unavailable, message));
                }
                return Ok(FoundDevices { devices: present(devices), is_paged: meta.last_page > 1, is_shared: false });
            }
        }
    }

    /// Creates a device with the first order that is not refused. The request has no idempotency token, so no other is sent unless the
    /// last one certainly had no effect.
    pub async fn create(&self, project: &str, orders: Vec<Value>) -> Result<Device, CloudFailure> {
        let path = ["projects", project, "devices"];
        let mut refusal = None;
        for order in orders {
            match self.rest.call(&RestCall::write("device_create", Method::POST, &path).with(order)).await {
                Err(failure) if is_refusal(&failure) => refusal = Some(weightier(refusal, failure)),
                created => return created,
            }
        }
        Err(refusal.unwrap_or_else(|| CloudFailure::Unsent("the class allows no order".to_owned())))
    }

    /// Deletes a device. There may be none any more.
    pub async fn delete(&self, id: &str) -> Result<(), DriverError> {
        let path = ["devices", id];
        let failure = match self.rest.answer(&RestCall::write("device_delete", Method::DELETE, &path)).await {
            Ok(answer) if answer.status == DELETED => return Ok(()),
            Ok(answer) => CloudFailure::Unreadable(answer.status),
            Err(failure) if failure.is_absence() => return Ok(()),
            Err(failure) => failure,
        };
        Err(self.error(&failure, &format!("devices.delete of {id}")))
    }

    /// Replaces the tags of a device.
    pub async fn set_tags(&self, id: &str, tags: &[String]) -> Result<(), DriverError> {
        let path = ["devices", id];
        let call = RestCall::write("device_update", Method::PUT, &path).with(json!({"tags": tags}));
        let done: Result<Device, _> = self.rest.call(&call).await;
        done.map(drop).map_err(|failure| self.error(&failure, &format!("devices.update of {id}")))
    }

    /// The resource at a path. `None` if the API reports it absent.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>, DriverError> {
        let found = self.rest.find(&RestCall::read("resource_get", Method::GET, path)).await;
        found.map_err(|failure| self.error(&failure, &format!("a look at {}", path.join("/"))))
    }

    /// A metro has a free server of a plan; `None` if the API does not report it.
    pub async fn has_capacity(&self, metro: &str, plan: &str) -> Result<Option<bool>, DriverError> {
        #[derive(Deserialize)]
        struct Capacity {
            servers: Vec<Server>,
        }
        #[derive(Deserialize)]
        struct Server {
            available: Option<bool>,
        }
        let body = json!({"servers": [{"metro": metro, "plan": plan, "quantity": "1"}]});
        let call = RestCall::read("resource_get", Method::POST, &["capacity", "metros"]).with(body);
        let capacity: Capacity =
            self.rest.call(&call).await.map_err(|failure| self.error(&failure, "capacity.check"))?;
        Ok(capacity.servers.first().and_then(|server| server.available))
    }

    pub fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }
}

fn present(mut devices: Vec<Device>) -> Vec<Device> {
    devices.retain(|device| !device.is_gone());
    devices
}

/// Another order may succeed at once: the API read this one, and refused it.
fn is_refusal(failure: &CloudFailure) -> bool {
    let code = failure.code();
    !failure.may_have_had_effect() && !code.is_transient() && code != Code::Unauthenticated
}

/// The refusal to report: a used-up resource lets an autoscaler use another pool, whatever else is wrong.
fn weightier(first: Option<CloudFailure>, second: CloudFailure) -> CloudFailure {
    first.filter(|first| first.code() == Code::ResourceExhausted).unwrap_or(second)
}
