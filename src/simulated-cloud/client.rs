//! A client of the HTTP API.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;

use super::{
    api::CloudApi,
    messages::{CloudCallError, CreateVm, ListedVms, TagRequest, VmSelector, VmView},
};
use mcm_driver::{code::Code, tls::use_ring};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call may take; deadlines of callers are shorter.
const CALL_TIMEOUT: Duration = Duration::from_secs(900);

/// A simulated cloud in another process.
#[derive(Clone, Debug)]
pub struct SimulatedCloudClient {
    http: reqwest::Client,
    base: Url,
}

/// The address of a simulated cloud is not one.
#[derive(Debug, thiserror::Error)]
pub enum InvalidAddress {
    /// It cannot be understood.
    #[error("{address:?} is not the address of a simulated cloud: use one such as http://127.0.0.1:10270")]
    Form {
        /// The configured text.
        address: String,
    },
    /// No HTTP client can be had.
    #[error("cannot create an HTTP client for the simulated cloud")]
    Client(#[from] reqwest::Error),
}

impl SimulatedCloudClient {
    /// A client for `http://host:port`, or just `host:port`. Nothing need listen there yet.
    ///
    /// # Errors
    /// When that is not an address.
    pub fn new(address: &str) -> Result<Self, InvalidAddress> {
        let full = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let usable = |url: &Url| url.scheme() == "http" && url.has_host() && !url.cannot_be_a_base();
        let base = Url::parse(&full)
            .ok()
            .filter(usable)
            .ok_or_else(|| InvalidAddress::Form { address: address.to_owned() })?;
        use_ring();
        let builder = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT).timeout(CALL_TIMEOUT);
        // It uses no TLS. Otherwise it would read the certificates of the system, and fail if there are none.
        let builder = builder.tls_certs_only([]);
        let http = builder.build()?;
        Ok(Self { http, base })
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().push("v1").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.http.request(method, url)
    }
}

#[async_trait]
impl CloudApi for SimulatedCloudClient {
    async fn create(&self, request: &CreateVm) -> Result<VmView, CloudCallError> {
        json(send(self.request(Method::POST, &["vms"], &[]).json(request)).await?).await
    }

    async fn status(&self, selector: &VmSelector) -> Result<VmView, CloudCallError> {
        json(send(self.request(Method::GET, &["vms"], &pairs(selector))).await?).await
    }

    async fn list(&self, cluster: &str) -> Result<ListedVms, CloudCallError> {
        json(send(self.request(Method::GET, &["vms"], &[("cluster", cluster)])).await?).await
    }

    async fn initialize(&self, id: &str) -> Result<VmView, CloudCallError> {
        json(send(self.request(Method::POST, &["vms", id, "initialize"], &[])).await?).await
    }

    async fn tag(&self, id: &str, tags: &TagRequest) -> Result<VmView, CloudCallError> {
        json(send(self.request(Method::POST, &["vms", id, "cluster"], &[]).json(tags)).await?).await
    }

    async fn set_member(&self, balancer: &str, id: &str, is_member: bool) -> Result<(), CloudCallError> {
        let method = if is_member { Method::PUT } else { Method::DELETE };
        send(self.request(method, &["load-balancers", balancer, "members", id], &[])).await.map(drop)
    }

    async fn delete(&self, selector: &VmSelector) -> Result<(), CloudCallError> {
        send(self.request(Method::DELETE, &["vms"], &pairs(selector))).await.map(drop)
    }
}

fn pairs(selector: &VmSelector) -> Vec<(&'static str, &str)> {
    let VmSelector { cluster, machine, provider_id } = selector;
    let all = [("cluster", cluster), ("machine", machine), ("providerID", provider_id)];
    all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect()
}

/// The answer, if it is a success.
async fn send(request: RequestBuilder) -> Result<Response, CloudCallError> {
    let response = request.send().await.map_err(|error| lost(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.bytes().await.map_err(|error| lost(&error))?;
    // A response without such a body is not from the cloud, so it contains no information about VMs.
    Err(serde_json::from_slice(&body).unwrap_or_else(|_| {
        let message = format!("the response {status} is not from a simulated cloud: check its address");
        CloudCallError::new(Code::Unknown, message)
    }))
}

async fn json<T: DeserializeOwned>(response: Response) -> Result<T, CloudCallError> {
    let body = response.bytes().await.map_err(|error| lost(&error))?;
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("cannot decode the response of the simulated cloud, check its version: {error}");
        CloudCallError::new(Code::Unknown, message)
    })
}

/// A call without an answer. Only if no connection was made is it certain that nothing was done.
fn lost(error: &reqwest::Error) -> CloudCallError {
    let host = error.url().and_then(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?)));
    let host = host.unwrap_or_default();
    if error.is_connect() {
        let message = format!("cannot connect to the simulated cloud at {host}: check that it is running");
        CloudCallError::new(Code::Unavailable, message)
    } else if error.is_timeout() {
        let message = format!("no response from the simulated cloud at {host} in time; the outcome is unknown");
        CloudCallError::new(Code::DeadlineExceeded, message)
    } else {
        let message = format!("the response of the simulated cloud at {host} was lost; the outcome is unknown");
        CloudCallError::new(Code::Unknown, message)
    }
}
