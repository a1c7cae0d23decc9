//! The calls of the Compute API: nothing is decided here.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::try_join_all;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    accounts::Account,
    errors::{OperationError, is_absent},
    instance::{FIELDS, Instance},
    rest::{Method, Request, once},
};
use crate::driver::{
    DriverError, SecretData,
    cloud::{Failure, Http, Pages, form},
    code::Code,
};

/// VMs per page, as many as there may be.
const PAGE: &str = "500";
/// So many names fit into a URL.
const MOST_NAMES: usize = 50;
/// Kinds of lists. The page of a proxy must not pass for an empty one.
const INSTANCES: &str = "compute#instanceList";
const OPERATIONS: &str = "compute#operationList";
/// The fields of an operation that are looked at.
const OPERATION_FIELDS: &str = "name,status,clientOperationId,httpErrorStatusCode,error/errors(code,message)";
/// The beginning of all kinds.
const KIND: &str = "compute#";
/// Warnings with which a list is not complete.
const PARTIAL: [&str; 2] = ["UNREACHABLE", "PARTIAL_SUCCESS"];

/// The Compute API in one project with one account.
#[derive(Clone)]
pub(super) struct Compute {
    pub http: Arc<Http>,
    pub account: Arc<Account>,
    pub project: String,
    /// What no text may contain.
    pub secret: SecretData,
}

/// Work that Google does after its answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation {
    pub name: String,
    status: String,
    /// The ID of the request that began it.
    #[serde(default)]
    pub client_operation_id: String,
    #[serde(default)]
    error: Option<Errors>,
    #[serde(default)]
    http_error_status_code: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Errors {
    errors: Vec<OperationError>,
}

impl Operation {
    pub(super) fn is_done(&self) -> bool {
        self.status == "DONE"
    }

    /// Why it failed, with the HTTP status that stands for it. `None` if it did not.
    pub(super) fn failure(&self) -> Option<(&[OperationError], u16)> {
        self.error.as_ref().map(|error| (error.errors.as_slice(), self.http_error_status_code))
    }
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de>"))]
struct Page<T> {
    kind: String,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
    next_page_token: Option<String>,
    warning: Option<Warning>,
}

#[derive(Deserialize)]
struct Warning {
    #[serde(default)]
    code: String,
}

/// Whether a call may be repeated although its outcome is not known.
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
        let path = self.path(zone, "instances");
        let list = self.list("instance_list", &path, (INSTANCES, FIELDS), filter, Repeat::Yes).await;
        list.map_err(|failure| self.error(&failure, &format!("instances.list of zone {zone}")))
    }

    /// The operations of a zone with one of these values in a field, and maybe others. It is not repeated: they are looked at
    /// again soon.
    pub(super) async fn operations(
        &self,
        zone: &str,
        field: &str,
        values: &BTreeSet<String>,
    ) -> Result<Vec<Operation>, Failure> {
        let path = self.path(zone, "operations");
        let all: Vec<&String> = values.iter().collect();
        let some = all.chunks(MOST_NAMES).map(|some| async {
            let filter = filter_of(field, some.iter().copied());
            self.list("operations_get", &path, (OPERATIONS, OPERATION_FIELDS), Some(&filter), Repeat::No).await
        });
        Ok(try_join_all(some).await?.into_iter().flatten().collect())
    }

    /// All pages of a list of things of a kind with their fields.
    async fn list<T: DeserializeOwned>(
        &self,
        service: &'static str,
        path: &str,
        (kind, fields): (&str, &str),
        filter: Option<&str>,
        repeat: Repeat,
    ) -> Result<Vec<T>, Failure> {
        let fields = format!("kind,nextPageToken,warning/code,items({fields})");
        let incomplete = |name: &str, message: &str| Failure::Named {
            code: Code::Unavailable,
            name: name.to_owned(),
            message: message.to_owned(),
        };
        let mut pages = Pages::new(service);
        loop {
            let mut query = vec![("fields", fields.as_str()), ("maxResults", PAGE)];
            query.extend(filter.map(|filter| ("filter", filter)));
            query.extend(pages.token().map(|page| ("pageToken", page)));
            let list = self.call::<Page<T>>(service, Method::Get, path, &query, None, repeat).await?;
            if list.kind != kind {
                return Err(Failure::Unreadable(200));
            }
            let warning = list.warning.map(|warning| warning.code).unwrap_or_default();
            if PARTIAL.contains(&warning.as_str()) {
                // A part of the list must not pass for all of it.
                return Err(incomplete(&warning, "the list is partial"));
            }
            let added = pages.add(list.items, list.next_page_token);
            if added.map_err(|error| incomplete("nextPageToken", &error.message))? {
                return Ok(pages.into_items());
            }
        }
    }

    /// Begins to create a VM, or returns the operation of an earlier request with the same ID.
    pub(super) async fn insert(&self, zone: &str, request_id: &str, body: &Value) -> Result<Operation, Failure> {
        let path = self.path(zone, "instances");
        self.call("instance_create", Method::Post, &path, &[("requestId", request_id)], Some(body), Repeat::Yes).await
    }

    /// Begins to delete a VM. `None` if there is none. It is not repeated: meanwhile another VM may have the name.
    pub(super) async fn delete(&self, zone: &str, name: &str) -> Result<Option<Operation>, DriverError> {
        let path = self.path(zone, &format!("instances/{name}"));
        match self.call("instance_delete", Method::Delete, &path, &[], None, Repeat::No).await {
            Ok(operation) => Ok(Some(operation)),
            Err(failure) if is_absent(&failure) => Ok(None),
            Err(failure) => Err(self.error(&failure, &format!("instances.delete of {name}"))),
        }
    }

    /// An operation as it is now.
    pub(super) async fn operation(&self, zone: &str, name: &str) -> Result<Operation, Failure> {
        let path = self.path(zone, &format!("operations/{name}"));
        self.call("operations_get", Method::Get, &path, &[], None, Repeat::No).await
    }

    /// What is at a path below a project. `None` if Google says that there is nothing.
    pub(super) async fn get<T: DeserializeOwned>(&self, project: &str, path: &str) -> Result<Option<T>, DriverError> {
        let path = if path.is_empty() { format!("projects/{project}") } else { format!("projects/{project}/{path}") };
        self.look(&self.account.url, &path, |kind| kind["kind"].as_str().is_some_and(|it| it.starts_with(KIND))).await
    }

    /// Whether a service account exists, of whatever project.
    pub(super) async fn service_account(&self, email: &str) -> Result<Option<()>, DriverError> {
        let Some(url) = &self.account.iam else {
            let message = "service accounts of a private cloud are not looked for";
            return Err(DriverError::new(Code::Unimplemented, message));
        };
        let path = format!("v1/projects/-/serviceAccounts/{email}");
        let found = self.look::<Value>(url, &path, |account| account["email"] == email).await?;
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
        let found = self.call("resource_get", Method::Get, &format!("{url}/{path}"), &[], None, Repeat::Yes).await;
        let read = match found {
            Ok(found) if is_it(&found) => serde_json::from_value(found).map_err(|_| Failure::Unreadable(200)),
            Ok(_) => Err(Failure::Unreadable(200)),
            Err(failure) if is_absent(&failure) => return Ok(None),
            Err(failure) => Err(failure),
        };
        read.map(Some).map_err(|failure| self.error(&failure, &format!("a look at {path}")))
    }

    pub(super) fn error(&self, failure: &Failure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }

    fn path(&self, zone: &str, rest: &str) -> String {
        format!("{}/projects/{}/zones/{zone}/{rest}", self.account.url, self.project)
    }

    /// `service` is what the metrics call it.
    async fn call<T: DeserializeOwned>(
        &self,
        service: &'static str,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<T, Failure> {
        let query = form(query.iter().copied().chain([("prettyPrint", "false")]));
        let token = self.account.token(&self.http).await?;
        let request = Request {
            method,
            url: format!("{path}?{query}"),
            token: Some(&token),
            body: body.map(Value::to_string),
            is_form: false,
        };
        let may_pass = |failure: &Failure| repeat == Repeat::Yes && failure.code().is_transient();
        let limiters = &self.account.limiters;
        let limiter = if method == Method::Get { &limiters.reads } else { &limiters.writes };
        let answer = self.http.repeat(limiter, service, || once(&self.http, limiter, &request), may_pass).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            self.account.forget(&token).await;
        }
        answer
    }
}

/// Whether a path consists of names only.
fn is_path(path: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:@/".contains(&byte);
    path.bytes().all(is_part) && !path.contains("..") && !path.contains("//")
}

/// Values of a field in Google's language of filters.
fn filter_of<'a>(field: &str, values: impl Iterator<Item = &'a String>) -> String {
    let terms: Vec<String> = values.map(|value| format!("({field} = \"{value}\")")).collect();
    terms.join(" OR ")
}
