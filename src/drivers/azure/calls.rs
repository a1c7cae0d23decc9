//! The calls of the Resource Manager: nothing is decided here.

use std::sync::Arc;

use mcm_driver::{
    Code, DriverError, SecretData,
    cloud::{CloudFailure, HttpAnswer, PageCollector, RestCall, RestClient},
};
use reqwest::{Method, Url};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    graph::Row,
    operation::{Operation, Progress},
    resource::{Kind, Resource, Stage, Target},
    spec::{Spec, Urn},
};

pub(crate) const RESOURCES: &str = "2021-04-01";
const NETWORK: &str = "2023-05-01";
const COMPUTE: &str = "2023-07-01";
const MARKETPLACE: &str = "2021-01-01";
const GRAPH: &str = "2021-06-01-preview";

/// Azure's answer to a request that creates a resource.
#[derive(Clone, Debug)]
pub(crate) enum Accepted {
    /// It is carried out.
    Done,
    /// It is being carried out; Azure may say where it reports on it.
    Begun(Option<Operation>),
}

/// The Resource Manager, which counts the calls of each resource provider for itself: one that throttles holds up no call of
/// another one.
pub(crate) struct Services {
    compute: RestClient,
    network: RestClient,
    graph: RestClient,
    others: RestClient,
}

impl Services {
    /// Each service with its pace.
    pub fn new(service: impl Fn() -> Result<RestClient, DriverError>) -> Result<Self, DriverError> {
        Ok(Self { compute: service()?, network: service()?, graph: service()?, others: service()? })
    }

    fn client_for(&self, call: &RestCall<'_>) -> &RestClient {
        let provider = call.path.iter().skip_while(|part| **part != "providers").nth(1);
        match provider {
            Some(&"Microsoft.Compute") => &self.compute,
            Some(&"Microsoft.Network") => &self.network,
            Some(&"Microsoft.ResourceGraph") => &self.graph,
            _ => &self.others,
        }
    }

    async fn call<T: DeserializeOwned>(&self, call: &RestCall<'_>) -> Result<T, CloudFailure> {
        self.client_for(call).call(call).await
    }

    async fn find<T: DeserializeOwned>(&self, call: &RestCall<'_>) -> Result<Option<T>, CloudFailure> {
        self.client_for(call).find(call).await
    }

    pub async fn answer(&self, call: &RestCall<'_>) -> Result<HttpAnswer, CloudFailure> {
        self.client_for(call).answer(call).await
    }
}

/// The Resource Manager with the credentials of a Secret.
#[derive(Clone)]
pub(crate) struct Api {
    pub services: Arc<Services>,
    pub url: Url,
    pub subscription: String,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Api {
    /// A resource of a class. `None` if Azure reports it absent.
    pub async fn resource(&self, group: &str, target: &Target) -> Result<Option<Resource>, DriverError> {
        let [provider, kind, version] = target.kind.place();
        let path =
            ["subscriptions", &self.subscription, "resourceGroups", group, "providers", provider, kind, &target.name];
        let service = match target.kind {
            Kind::Vm => "virtual_machine_get",
            Kind::Nic => "nic_get",
            Kind::Disk => "disk_get",
        };
        let mut query = vec![("api-version", version)];
        // Only this view has the failure of a VM and its power state.
        query.extend((target.kind == Kind::Vm).then_some(("$expand", "instanceView")));
        self.get(service, &path, &query, &format!("a look at {target}")).await
    }

    /// Creates a resource, or changes it.
    pub async fn put(&self, group: &str, target: &Target, body: Value) -> Result<Accepted, CloudFailure> {
        let service = match target.kind {
            Kind::Vm => "virtual_machine_create",
            Kind::Nic => "nic_create",
            Kind::Disk => "disk_create",
        };
        let answer = self.change(service, Method::PUT, group, target, Some(body)).await?;
        // The answer shows the resource. Anything else is not of Azure.
        let shown: Resource = answer.json()?;
        let operation = self.operation_of(&answer);
        Ok(if shown.stage() == Stage::Ready { Accepted::Done } else { Accepted::Begun(operation) })
    }

    /// Deletes a resource. The answer alone does not prove the deletion.
    pub async fn delete(&self, group: &str, target: &Target) -> Result<Option<Operation>, DriverError> {
        let service = match target.kind {
            Kind::Vm => "virtual_machine_delete",
            Kind::Nic => "nic_delete",
            Kind::Disk => "disk_delete",
        };
        let answer = CloudFailure::found(self.change(service, Method::DELETE, group, target, None).await);
        let answer = answer.map_err(|failure| self.error(&failure, &format!("deletion of {target}")))?;
        Ok(answer.and_then(|answer| self.operation_of(&answer)))
    }

    /// Replaces the tags of a VM.
    pub async fn set_tags(&self, group: &str, target: &Target, tags: Value) -> Result<(), DriverError> {
        let body = Some(json!({"tags": tags}));
        let answer = self.change("virtual_machine_update", Method::PATCH, group, target, body).await;
        let shown = answer.and_then(|answer| answer.json::<Resource>());
        shown.map(drop).map_err(|failure| self.error(&failure, &format!("a change of the tags of {target}")))
    }

    async fn change(
        &self,
        service: &'static str,
        method: Method,
        group: &str,
        target: &Target,
        body: Option<Value>,
    ) -> Result<HttpAnswer, CloudFailure> {
        let [provider, kind, version] = target.kind.place();
        let path =
            ["subscriptions", &self.subscription, "resourceGroups", group, "providers", provider, kind, &target.name];
        let query = [("api-version", version)];
        let call = RestCall::write(service, method, &path).query(&query);
        self.services.answer(&if let Some(body) = body { call.with(body) } else { call }).await
    }

    fn operation_of(&self, answer: &HttpAnswer) -> Option<Operation> {
        Operation::from_headers(&answer.headers, &self.url)
    }

    /// Reads the report on an operation. `None` if Azure has dropped it.
    pub async fn progress(&self, operation: &Operation) -> Result<Option<Progress>, CloudFailure> {
        let base = self.url.path().trim_end_matches('/');
        let path = operation.url.path().strip_prefix(base).unwrap_or_default();
        let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let pairs: Vec<_> = operation.url.query_pairs().collect();
        let query: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        match self.services.answer(&RestCall::read("operation_get", Method::GET, &path).query(&query)).await {
            Ok(answer) => operation.progress(&answer).map(Some).ok_or(CloudFailure::Unreadable(answer.status)),
            Err(failure) => Err(failure),
        }
    }

    /// The subnet of a class. `None` if it does not exist.
    pub async fn subnet(&self, spec: &Spec) -> Result<Option<Value>, DriverError> {
        let group = spec.network_group();
        let subnet = &spec.subnet;
        let path = [
            "subscriptions",
            &self.subscription,
            "resourceGroups",
            group,
            "providers",
            "Microsoft.Network",
            "virtualNetworks",
            &subnet.vnet,
            "subnets",
            &subnet.name,
        ];
        let what = format!("a look at subnet {} of {}", subnet.name, subnet.vnet);
        self.get("subnet_get", &path, &[("api-version", NETWORK)], &what).await
    }

    /// An image of the marketplace. `None` if it does not exist.
    pub async fn image(&self, location: &str, urn: Urn<'_>) -> Result<Option<MarketplaceImage>, DriverError> {
        let path = [
            "subscriptions",
            &self.subscription,
            "providers",
            "Microsoft.Compute",
            "locations",
            location,
            "publishers",
            urn.publisher,
            "artifacttypes",
            "vmimage",
            "offers",
            urn.offer,
            "skus",
            urn.sku,
            "versions",
            urn.version,
        ];
        let what = format!("a look at image {} of {}", urn.sku, urn.publisher);
        self.get("virtual_machine_image_get", &path, &[("api-version", COMPUTE)], &what).await
    }

    /// The terms of a plan of the marketplace. `None` if there are none.
    pub async fn agreement(&self, plan: &Plan) -> Result<Option<Value>, DriverError> {
        let what = format!("a look at the terms of plan {} of {}", plan.name, plan.publisher);
        let path = self.agreement_path(plan);
        self.get("market_place_agreement_get", &path, &[("api-version", MARKETPLACE)], &what).await
    }

    /// Accepts the terms of a plan.
    pub async fn accept(&self, plan: &Plan, mut terms: Value) -> Result<(), DriverError> {
        if let Some(properties) = terms["properties"].as_object_mut() {
            properties.insert("accepted".to_owned(), true.into());
        }
        let path = self.agreement_path(plan);
        let query = [("api-version", MARKETPLACE)];
        let call = RestCall::write("market_place_agreement_create", Method::PUT, &path).query(&query).with(terms);
        let what = format!("acceptance of the terms of plan {} of {}", plan.name, plan.publisher);
        let accepted: Result<Value, _> = self.services.call(&call).await;
        accepted.map(drop).map_err(|failure| failure.error_of_creation(&what, &self.secret))
    }

    fn agreement_path<'a>(&'a self, plan: &'a Plan) -> [&'a str; 14] {
        [
            "subscriptions",
            &self.subscription,
            "providers",
            "Microsoft.MarketplaceOrdering",
            "offerTypes",
            "virtualmachine",
            "publishers",
            &plan.publisher,
            "offers",
            &plan.product,
            "plans",
            &plan.name,
            "agreements",
            "current",
        ]
    }

    /// All rows that a query of the Resource Graph finds.
    pub async fn query(&self, query: &str) -> Result<Vec<Row>, DriverError> {
        const WHAT: &str = "a query of the Resource Graph";
        let mut pages = PageCollector::new(WHAT);
        loop {
            let options = pages.token().map(|token| json!({"$skipToken": token}));
            let mut body = json!({"query": query, "subscriptions": [self.subscription]});
            if let Some(options) = options {
                body["options"] = options;
            }
            let path = ["providers", "Microsoft.ResourceGraph", "resources"];
            let version = [("api-version", GRAPH)];
            let call = RestCall::read("resource_graph_query", Method::POST, &path).query(&version).with(body);
            let page: Page = self.services.call(&call).await.map_err(|failure| self.error(&failure, WHAT))?;
            if page.is_cut() {
                return Err(DriverError::new(Code::Unavailable, format!("{WHAT} failed: its answer is cut")));
            }
            if pages.add(page.data, page.next)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// Registers a resource provider in the subscription.
    pub async fn register(&self, provider: &str) -> Result<(), DriverError> {
        let path = ["subscriptions", &self.subscription, "providers", provider, "register"];
        let query = [("api-version", RESOURCES)];
        // Once is as good as twice. Azure refuses a POST without a body that has no Content-Length.
        let call = RestCall::read("provider_register", Method::POST, &path).query(&query).with(json!({}));
        let what = format!("registration of resource provider {provider}");
        self.services.answer(&call).await.map(drop).map_err(|failure| self.error(&failure, &what))
    }

    /// The registration of the provider of a kind of resources in the subscription; `None` while it is absent.
    pub async fn registration(self, kind: Kind) -> Result<Option<()>, DriverError> {
        let [provider, ..] = kind.place();
        let path = ["subscriptions", &self.subscription, "providers", provider];
        let what = format!("a look at resource provider {provider}");
        let found: Option<Value> = self.get("provider_get", &path, &[("api-version", RESOURCES)], &what).await?;
        Ok(found.filter(|found| found["registrationState"] == "Registered").map(drop))
    }

    /// The resource at a path. `None` if Azure reports it absent.
    pub async fn get<T: DeserializeOwned>(
        &self,
        service: &'static str,
        path: &[&str],
        query: &[(&str, &str)],
        what: &str,
    ) -> Result<Option<T>, DriverError> {
        let found = self.services.find(&RestCall::read(service, Method::GET, path).query(query)).await;
        found.map_err(|failure| self.error(&failure, what))
    }

    pub fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }
}

/// An image of the marketplace.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MarketplaceImage {
    pub id: String,
    pub properties: Option<ImageProperties>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ImageProperties {
    pub plan: Option<Plan>,
}

/// A plan by which an image of the marketplace is paid for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Plan {
    pub name: String,
    pub product: String,
    pub publisher: String,
}

impl MarketplaceImage {
    pub fn plan(&self) -> Option<&Plan> {
        self.properties.as_ref()?.plan.as_ref()
    }
}

/// A page of the Resource Graph.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    data: Vec<Row>,
    result_truncated: Option<String>,
    #[serde(rename = "$skipToken")]
    next: Option<String>,
}

impl Page {
    /// Rows are missing that no other page has.
    fn is_cut(&self) -> bool {
        let is_truncated = self.result_truncated.as_deref().is_some_and(|text| text.eq_ignore_ascii_case("true"));
        is_truncated && self.next.as_deref().unwrap_or_default().is_empty()
    }
}
