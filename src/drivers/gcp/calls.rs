//! The calls of the Compute API, with the types of Google's crate: nothing is decided here.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use futures::future::try_join_all;
use google_cloud_compute_v1::model;
use http::{HeaderName, HeaderValue, Method};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    accounts::Account,
    errors::{failure_of_call, is_absent, pause_of},
    instance::{FIELDS, Instance},
    operation::{self, Operation},
    rest,
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, HttpAnswer, PageCollector},
    code::Code,
};

/// VMs per page, as many as there may be.
const PAGE: &str = "500";
/// The version of the API that the types of Google's crate describe.
const API_VERSION: &str = "2026-09-01";
/// So many names fit into a URL.
const MOST_NAMES: usize = 50;
/// Header with the fields that an answer has.
const MASK: HeaderName = HeaderName::from_static("x-goog-fieldmask");
/// The beginning of all kinds.
const KIND: &str = "compute#";
/// Warnings with which a list is not complete.
const PARTIAL: [&str; 2] = ["UNREACHABLE", "PARTIAL_SUCCESS"];

/// The Compute API in one project with one account.
#[derive(Clone)]
pub(super) struct Compute {
    pub account: Arc<Account>,
    pub project: String,
    /// Values that no text may contain.
    pub secret: SecretData,
}

/// A page of a list.
struct Page<T> {
    /// Its kind is right: the page of a proxy must not pass for an empty list.
    is_of_kind: bool,
    /// `None` if one of them has no name.
    items: Option<Vec<T>>,
    next: Option<String>,
    warning: Option<String>,
}

impl Page<Instance> {
    fn of_zone(zone: &str, list: model::InstanceList) -> Self {
        let warning = list.warning.and_then(|warning| warning.code);
        Self {
            is_of_kind: list.kind.as_deref() == Some("compute#instanceList"),
            items: list.items.into_iter().map(|found| Instance::from_api(found, zone)).collect(),
            next: list.next_page_token,
            warning: warning.and_then(|code| code.name().map(str::to_owned)),
        }
    }
}

impl From<model::OperationList> for Page<Operation> {
    fn from(list: model::OperationList) -> Self {
        let warning = list.warning.and_then(|warning| warning.code);
        Self {
            is_of_kind: list.kind.as_deref() == Some("compute#operationList"),
            items: list.items.into_iter().map(Operation::from_model).collect(),
            next: list.next_page_token,
            warning: warning.and_then(|code| code.name().map(str::to_owned)),
        }
    }
}

/// The quotas of Compute for requests per minute, which Google counts apart for each project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateQuota {
    Reads,
    Lists,
    Operations,
    Writes,
}

/// A request to an API of Google, before it has a token.
#[derive(Clone, Debug)]
struct ApiRequest {
    /// Its name in the metrics.
    service: &'static str,
    method: Method,
    url: String,
    /// JSON, or empty.
    body: String,
    /// The fields that the answer has; all without a mask.
    mask: Option<&'static str>,
    quota: RateQuota,
    /// It is repeated although its outcome is not known.
    is_repeated: bool,
}

impl ApiRequest {
    fn get(service: &'static str, url: String) -> Self {
        let (method, quota) = (Method::GET, RateQuota::Reads);
        Self { service, method, url, body: String::new(), mask: None, quota, is_repeated: true }
    }

    fn change(service: &'static str, method: Method, url: String, body: String) -> Self {
        Self { method, body, quota: RateQuota::Writes, is_repeated: false, ..Self::get(service, url) }
    }
}

impl Compute {
    /// The VMs of a zone with one of these names, whoever made them, and maybe others.
    pub(super) async fn named(&self, zone: &str, names: &BTreeSet<String>) -> Result<Vec<Instance>, DriverError> {
        let filter = match names.len() {
            1..=MOST_NAMES => Some(filter_of("name", names.iter())),
            _ => None,
        };
        self.instances(zone, filter.as_deref()).await
    }

    /// All VMs of a zone, whoever made them, or those that a filter lets pass.
    pub(super) async fn instances(&self, zone: &str, filter: Option<&str>) -> Result<Vec<Instance>, DriverError> {
        let page = |token: Option<String>| async move {
            let url = self.page_url(zone, "instances", filter, token.as_deref());
            let list =
                ApiRequest { mask: Some(FIELDS), quota: RateQuota::Lists, ..ApiRequest::get("instance_list", url) };
            self.call_list(list).await.map(|list| Page::of_zone(zone, list))
        };
        let list = all_pages("instance_list", page).await;
        list.map_err(|failure| self.error(&failure, &format!("instances.list of zone {zone}")))
    }

    /// The operations of a zone with one of these values in a field, and maybe others. It is not repeated: they are looked at
    /// again soon.
    pub(super) async fn operations(
        &self,
        zone: &str,
        field: &str,
        values: &BTreeSet<String>,
    ) -> Result<Vec<Operation>, CloudFailure> {
        let all: Vec<&String> = values.iter().collect();
        let some =
            all.chunks(MOST_NAMES).map(|some| self.some_operations(zone, filter_of(field, some.iter().copied())));
        Ok(try_join_all(some).await?.into_iter().flatten().collect())
    }

    async fn some_operations(&self, zone: &str, filter: String) -> Result<Vec<Operation>, CloudFailure> {
        let (service, filter) = ("operations_get", filter.as_str());
        let page = |token: Option<String>| async move {
            let url = self.page_url(zone, "operations", Some(filter), token.as_deref());
            let (mask, quota) = (Some(operation::FIELDS), RateQuota::Lists);
            let list = ApiRequest { mask, quota, is_repeated: false, ..ApiRequest::get(service, url) };
            self.call_list::<model::OperationList>(list).await.map(Page::from)
        };
        all_pages(service, page).await
    }

    /// Begins to create a VM, or returns the operation of an earlier request with the same ID.
    pub(super) async fn insert(
        &self,
        zone: &str,
        request_id: &str,
        body: &model::Instance,
    ) -> Result<Operation, CloudFailure> {
        let body = serde_json::to_string(body).map_err(|error| CloudFailure::Unsent(error.to_string()))?;
        let url = self.zone_url(zone, "instances", &[("requestId", Some(request_id))]);
        let insert = ApiRequest::change("instance_create", Method::POST, url, body);
        self.operation_of(&ApiRequest { is_repeated: true, ..insert }).await
    }

    /// Begins to delete a VM. `None` if the VM does not exist. It is not repeated: meanwhile another VM may have the name.
    pub(super) async fn delete(&self, zone: &str, name: &str) -> Result<Option<Operation>, DriverError> {
        let url = self.zone_url(zone, &format!("instances/{name}"), &[]);
        let delete = ApiRequest::change("instance_delete", Method::DELETE, url, String::new());
        match self.operation_of(&delete).await {
            Ok(operation) => Ok(Some(operation)),
            Err(failure) if is_absent(&failure) => Ok(None),
            Err(failure) => Err(self.error(&failure, &format!("instances.delete of {name}"))),
        }
    }

    /// An operation as it is now.
    pub(super) async fn operation(&self, zone: &str, name: &str) -> Result<Operation, CloudFailure> {
        let url = self.zone_url(zone, &format!("operations/{name}"), &[]);
        let get = ApiRequest::get("operations_get", url);
        self.operation_of(&ApiRequest { quota: RateQuota::Operations, is_repeated: false, ..get }).await
    }

    async fn operation_of(&self, request: &ApiRequest) -> Result<Operation, CloudFailure> {
        Operation::from_model(self.call(request).await?).ok_or(CloudFailure::Unreadable(200))
    }

    /// The URL of a page of a list.
    fn page_url(&self, zone: &str, list: &str, filter: Option<&str>, token: Option<&str>) -> String {
        self.zone_url(zone, list, &[("filter", filter), ("maxResults", Some(PAGE)), ("pageToken", token)])
    }

    /// The URL of a path in a zone, with the parameters that have a value.
    fn zone_url(&self, zone: &str, path: &str, parameters: &[(&str, Option<&str>)]) -> String {
        let url = self.account.url(&format!("projects/{}/zones/{zone}/{path}", self.project));
        let mut query = form_urlencoded::Serializer::new(format!("{url}?$apiVersion={API_VERSION}"));
        query.extend_pairs(parameters.iter().filter_map(|(name, value)| Some((name, (*value)?)))).finish()
    }

    /// Reads the resource at a path below a project. `None` if Google responds that it does not exist.
    pub(super) async fn get<T: DeserializeOwned>(&self, project: &str, path: &str) -> Result<Option<T>, DriverError> {
        let path = if path.is_empty() { format!("projects/{project}") } else { format!("projects/{project}/{path}") };
        let is_it = |found: &Value| found["kind"].as_str().is_some_and(|kind| kind.starts_with(KIND));
        self.look(&self.account.url(&path), &path, is_it).await
    }

    /// Checks that a service account exists, of whatever project.
    pub(super) async fn service_account(&self, email: &str) -> Result<Option<()>, DriverError> {
        let Some(url) = &self.account.iam else {
            let message = "service accounts of a private cloud are not looked for";
            return Err(DriverError::new(Code::Unimplemented, message));
        };
        let path = format!("v1/projects/-/serviceAccounts/{email}");
        let found = self.look::<Value>(&format!("{url}/{path}"), &path, |account| account["email"] == email).await?;
        Ok(found.map(drop))
    }

    /// The page of a proxy must not pass for what was looked for.
    async fn look<T: DeserializeOwned>(
        &self,
        url: &str,
        path: &str,
        is_it: impl Fn(&Value) -> bool,
    ) -> Result<Option<T>, DriverError> {
        if !rest::is_path(path) {
            // No name is like that, and it could lead elsewhere.
            return Ok(None);
        }
        let read = match self.call(&ApiRequest::get("resource_get", format!("{url}?prettyPrint=false"))).await {
            Ok(found) if is_it(&found) => serde_json::from_value(found).map_err(|_| CloudFailure::Unreadable(200)),
            Ok(_) => Err(CloudFailure::Unreadable(200)),
            Err(failure) if is_absent(&failure) => return Ok(None),
            Err(failure) => Err(failure),
        };
        read.map(Some).map_err(|failure| self.error(&failure, &format!("a look at {path}")))
    }

    pub(super) fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }

    /// Posts JSON to a path. The crate of the Compute API has no types for instance groups, whose service would add to its compile
    /// time.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        service: &'static str,
        path: &str,
        body: &Value,
        is_read: bool,
    ) -> Result<T, CloudFailure> {
        let post = ApiRequest::change(service, Method::POST, self.account.url(path), body.to_string());
        let quota = if is_read { RateQuota::Lists } else { RateQuota::Writes };
        self.call(&ApiRequest { quota, is_repeated: is_read, ..post }).await
    }

    /// Makes a call of a list, with a mask of fields. A host that refuses the mask gets the same call without it, and all later
    /// ones.
    async fn call_list<T: DeserializeOwned>(&self, list: ApiRequest) -> Result<T, CloudFailure> {
        let takes_masks = &self.account.takes_masks;
        let has_mask = takes_masks.load(Ordering::Relaxed);
        let answer = self.call(&ApiRequest { mask: list.mask.filter(|_| has_mask), ..list.clone() }).await;
        match answer {
            Err(refused) if has_mask && refused.code() == Code::InvalidArgument => {
                let plain = self.call(&ApiRequest { mask: None, ..list.clone() }).await;
                if plain.is_ok() && takes_masks.swap(false, Ordering::Relaxed) {
                    let error = self.error(&refused, list.service);
                    tracing::warn!(project = self.project, %error, "lists with some fields are refused: mcm reads all fields");
                }
                plain.map_err(|_| refused)
            }
            answer => answer,
        }
    }

    /// Makes a call. A token that an answer refuses is dropped.
    async fn call<T: DeserializeOwned>(&self, request: &ApiRequest) -> Result<T, CloudFailure> {
        let Account { http, limiters, lists, operations, tokens, .. } = &*self.account;
        let ApiRequest { service, method, url, body, mask, quota, is_repeated } = request;
        let limiter = match quota {
            RateQuota::Reads => &limiters.reads,
            RateQuota::Lists => lists,
            RateQuota::Operations => operations,
            RateQuota::Writes => &limiters.writes,
        };
        // An attempt takes the same token. Fetching one has its own limits.
        let token = tokens.get().await?;
        let failed = |answer: &HttpAnswer| {
            if let Some(pause) = pause_of(answer) {
                limiter.pause(pause);
            }
            failure_of_call(answer)
        };
        let once = || async {
            let token = tokens.get_unexpired().await?;
            let mut request = rest::request(method.clone(), url, &token, body.clone())?;
            request.headers_mut().extend(mask.map(|fields| (MASK, HeaderValue::from_static(fields))));
            rest::once(http, limiter, request, failed).await
        };
        let may_pass = |failure: &CloudFailure| *is_repeated && failure.code().is_transient();
        let answer = http.repeat(limiter, service, once, may_pass).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            tokens.forget_if(|fetched| *fetched == token).await;
        }
        answer
    }
}

/// The items of all pages of a list. A part of it must not pass for all of it.
async fn all_pages<T, F>(what: &'static str, page: impl Fn(Option<String>) -> F) -> Result<Vec<T>, CloudFailure>
where
    F: Future<Output = Result<Page<T>, CloudFailure>>,
{
    let incomplete = |name: &str, message: &str| CloudFailure::Named {
        code: Code::Unavailable,
        name: name.to_owned(),
        message: message.to_owned(),
    };
    let mut pages = PageCollector::new(what);
    loop {
        let Page { is_of_kind, items, next, warning } = page(pages.token().map(str::to_owned)).await?;
        let items = items.filter(|_| is_of_kind).ok_or(CloudFailure::Unreadable(200))?;
        if let Some(warning) = warning.filter(|warning| PARTIAL.contains(&warning.as_str())) {
            return Err(incomplete(&warning, "the list is partial"));
        }
        let added = pages.add(items, next);
        if added.map_err(|error| incomplete("nextPageToken", &error.message))? {
            return Ok(pages.into_items());
        }
    }
}

/// Values of a field in Google's language of filters.
fn filter_of<'a>(field: &str, values: impl Iterator<Item = &'a String>) -> String {
    let terms: Vec<String> = values.map(|value| format!("({field} = \"{value}\")")).collect();
    terms.join(" OR ")
}
