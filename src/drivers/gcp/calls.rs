//! The calls of the Compute API: nothing is decided here.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use futures::future::try_join_all;
use google_cloud_compute_v1::model;
use google_cloud_gax::{self as gax, options::RequestOptionsBuilder};
use http::{HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    accounts::Account,
    client::Clients,
    errors::{failure_of_call, is_absent, pause_of},
    instance::{FIELDS, Instance},
    operation::{self, Operation},
    rest,
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{AGENT, AdaptiveLimiter, CloudFailure, PageCollector},
    code::Code,
};

/// VMs per page, as many as there may be.
const PAGE: u32 = 500;
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

impl From<model::InstanceList> for Page<Instance> {
    fn from(list: model::InstanceList) -> Self {
        let warning = list.warning.and_then(|warning| warning.code);
        Self {
            is_of_kind: list.kind.as_deref() == Some("compute#instanceList"),
            items: list.items.into_iter().map(Instance::from_api).collect(),
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

/// Permits or forbids the repetition of a call whose outcome is not known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Yes,
    No,
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
        let service = "instance_list";
        let page = |token: Option<String>| async move {
            let send = |clients: &Clients, has_mask| {
                let list = clients.instances.list().set_project(&self.project).set_zone(zone).set_max_results(PAGE);
                let list = list.set_or_clear_filter(filter).set_or_clear_page_token(token.as_deref());
                masked(list.with_user_agent(AGENT), has_mask, FIELDS).send()
            };
            self.call_list(service, Repeat::Yes, send).await.map(Page::from)
        };
        let list = all_pages(service, page).await;
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
            let send = |clients: &Clients, has_mask| {
                let list = clients.operations.list().set_project(&self.project).set_zone(zone).set_max_results(PAGE);
                let list = list.set_filter(filter).set_or_clear_page_token(token.as_deref());
                masked(list.with_user_agent(AGENT), has_mask, operation::FIELDS).send()
            };
            self.call_list(service, Repeat::No, send).await.map(Page::from)
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
        let send = |clients: &Clients| {
            let insert = clients.instances.insert().set_project(&self.project).set_zone(zone);
            insert.set_request_id(request_id).set_body(body.clone()).with_user_agent(AGENT).send()
        };
        let begun = self.call("instance_create", &self.account.limiters.writes, Repeat::Yes, send).await?;
        Operation::from_model(begun).ok_or(CloudFailure::Unreadable(200))
    }

    /// Begins to delete a VM. `None` if the VM does not exist. It is not repeated: meanwhile another VM may have the name.
    pub(super) async fn delete(&self, zone: &str, name: &str) -> Result<Option<Operation>, DriverError> {
        let send = |clients: &Clients| {
            let delete = clients.instances.delete().set_project(&self.project).set_zone(zone);
            delete.set_instance(name).with_user_agent(AGENT).send()
        };
        let begun = self.call("instance_delete", &self.account.limiters.writes, Repeat::No, send).await;
        match begun.and_then(|begun| Operation::from_model(begun).ok_or(CloudFailure::Unreadable(200))) {
            Ok(operation) => Ok(Some(operation)),
            Err(failure) if is_absent(&failure) => Ok(None),
            Err(failure) => Err(self.error(&failure, &format!("instances.delete of {name}"))),
        }
    }

    /// An operation as it is now.
    pub(super) async fn operation(&self, zone: &str, name: &str) -> Result<Operation, CloudFailure> {
        let send = |clients: &Clients| {
            let get = clients.operations.get().set_project(&self.project).set_zone(zone);
            get.set_operation(name).with_user_agent(AGENT).send()
        };
        let found = self.call("operations_get", &self.account.limiters.reads, Repeat::No, send).await?;
        Operation::from_model(found).ok_or(CloudFailure::Unreadable(200))
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
        if !is_path(path) {
            // No name is like that, and it could lead elsewhere.
            return Ok(None);
        }
        let read = match self.read(&format!("{url}?prettyPrint=false")).await {
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

    /// Reads a resource without the crate of the Compute API.
    async fn read(&self, url: &str) -> Result<Value, CloudFailure> {
        let Account { http, limiters, .. } = &*self.account;
        let token = self.token().await?;
        let request = rest::get(url, &token)?;
        let once = || rest::once(http, &limiters.reads, &request);
        let answer = http
            .repeat(&limiters.reads, "resource_get", once, |failure: &CloudFailure| failure.code().is_transient())
            .await;
        self.judge_token(&token, answer).await
    }

    /// Posts JSON to a path without the crate of the Compute API: the service of instance groups would add to its compile time.
    pub(super) async fn post(
        &self,
        service: &'static str,
        path: &str,
        body: &Value,
        is_read: bool,
    ) -> Result<Value, CloudFailure> {
        let Account { http, limiters, .. } = &*self.account;
        let token = self.token().await?;
        let request = rest::post(&self.account.url(path), &token, body)?;
        let limiter = if is_read { &limiters.reads } else { &limiters.writes };
        let once = || rest::once(http, limiter, &request);
        let answer = http
            .repeat(limiter, service, once, |failure: &CloudFailure| is_read && failure.code().is_transient())
            .await;
        self.judge_token(&token, answer).await
    }

    /// Makes a call of a list, with a mask of fields. A host that refuses the mask gets the same call without it, and all later
    /// ones.
    async fn call_list<T, F>(
        &self,
        service: &'static str,
        repeat: Repeat,
        send: impl Fn(&Clients, bool) -> F,
    ) -> Result<T, CloudFailure>
    where
        F: Future<Output = gax::Result<T>>,
    {
        let (limiter, takes_masks) = (&self.account.limiters.reads, &self.account.takes_masks);
        let has_mask = takes_masks.load(Ordering::Relaxed);
        let answer = self.call(service, limiter, repeat, |clients| send(clients, has_mask)).await;
        match answer {
            Err(refused) if has_mask && refused.code() == Code::InvalidArgument => {
                let plain = self.call(service, limiter, repeat, |clients| send(clients, false)).await;
                if plain.is_ok() && takes_masks.swap(false, Ordering::Relaxed) {
                    let error = self.error(&refused, service);
                    tracing::warn!(project = self.project, %error, "lists with some fields are refused: mcm reads all fields");
                }
                plain.map_err(|_| refused)
            }
            answer => answer,
        }
    }

    /// Makes a call with the crate of the Compute API. `service` is what the metrics call it.
    async fn call<T, F>(
        &self,
        service: &'static str,
        limiter: &AdaptiveLimiter,
        repeat: Repeat,
        send: impl Fn(&Clients) -> F,
    ) -> Result<T, CloudFailure>
    where
        F: Future<Output = gax::Result<T>>,
    {
        // An attempt takes the same token. Fetching one has its own limits.
        let token = self.token().await?;
        let clients = self.account.clients().await?;
        let once = || async {
            send(clients).await.map_err(|error| {
                if let Some(pause) = pause_of(&error) {
                    limiter.pause(pause);
                }
                failure_of_call(&error)
            })
        };
        let may_pass = |failure: &CloudFailure| repeat == Repeat::Yes && failure.code().is_transient();
        let answer = self.account.http.repeat(limiter, service, once, may_pass).await;
        self.judge_token(&token, answer).await
    }

    async fn token(&self) -> Result<String, CloudFailure> {
        self.account.tokens.get().await
    }

    /// Drops a token that an answer refuses.
    async fn judge_token<T>(&self, token: &str, answer: Result<T, CloudFailure>) -> Result<T, CloudFailure> {
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            self.account.tokens.forget_if(|fetched| fetched == token).await;
        }
        answer
    }
}

/// A request of a list for some fields only.
fn masked<B: RequestOptionsBuilder>(request: B, has_mask: bool, fields: &'static str) -> B {
    if has_mask { request.with_custom_header(MASK, HeaderValue::from_static(fields)) } else { request }
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

/// The path consists of names only.
fn is_path(path: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:@/".contains(&byte);
    path.bytes().all(is_part) && !path.contains("..") && !path.contains("//")
}

/// Values of a field in Google's language of filters.
fn filter_of<'a>(field: &str, values: impl Iterator<Item = &'a String>) -> String {
    let terms: Vec<String> = values.map(|value| format!("({field} = \"{value}\")")).collect();
    terms.join(" OR ")
}
