//! Reads clusters for the checks. Every request is a read or a review.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use futures::{StreamExt, stream};
use http::{Request, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use k8s_openapi::{
    api::{
        authentication::v1::SelfSubjectReview,
        authorization::v1::{
            LocalSubjectAccessReview, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
            SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
        },
        core::v1::Secret as StoredSecret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, PostParams},
    client::Body,
};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    install::{InstalledClass, SecretPresence, ServerFacts, TargetReachability},
    kinds::CrdLookup,
    rights::{
        MAKE_TOKENS, PermissionRule, RULES, ReviewAnswer, ReviewedIdentity, RuleCluster, RuleScope, SEE_OTHERS,
        SERVICE_ACCOUNT,
    },
};
use crate::api::{
    crd::crds,
    kinds::CAPI_MACHINES,
    machine::{MachineClass, SecretRef},
};
use mcm_controllers::machine_class;
use mcm_driver::SecretData;
use mcm_driver_host::DriverCatalogue;
use mcm_insight::{
    class::{findings, secret_data},
    read_only::ReadOnlyClients,
    story::ByName,
};
use mcm_runtime::{
    dated::DatedObject,
    kubeconfig::{API_VERSION, cause, wait_until_ready},
    objects::read as read_object,
};

/// Machines in one answer of an API server.
const PAGE: u32 = 500;
/// The most Machines of a namespace that are compared with their images.
const MOST_MACHINES: usize = 20_000;
/// Reviews in flight at once.
const AT_ONCE: usize = 8;
/// Time limit of one question.
const PATIENCE: Duration = Duration::from_secs(10);

/// The API server of the control cluster.
///
/// # Errors
/// It does not answer.
pub(super) async fn control(reach: &ReadOnlyClients) -> Result<ServerFacts> {
    let info = wait_until_ready(&reach.control, &reach.server).await?;
    Ok(ServerFacts { version: info.git_version, skew: skew(&reach.control).await })
}

/// The API server of the target cluster.
pub(super) async fn target(reach: &ReadOnlyClients) -> TargetReachability {
    let Some((client, server)) = &reach.target else { return TargetReachability::None };
    match wait_until_ready(client, server).await {
        Ok(info) => TargetReachability::Answers(ServerFacts { version: info.git_version, skew: skew(client).await }),
        Err(error) => TargetReachability::Fails(error.to_string()),
    }
}

/// The lead of the clock of an API server over that of this computer. A `Date` has whole seconds.
async fn skew(client: &Client) -> Option<SignedDuration> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let response = timeout(PATIENCE, client.send(request)).await.ok()?.ok()?;
    let date = response.headers().get(DATE)?.to_str().ok()?;
    let server = rfc2822::parse(date).ok()?.timestamp();
    Some(server.duration_since(Timestamp::now()))
}

/// Names of the resources that are served in our version; empty if it is not served.
///
/// # Errors
/// The API server refuses the question.
pub(super) async fn resources(client: &Client) -> Result<Vec<String>> {
    match client.list_api_group_resources(API_VERSION).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The definitions of our kinds.
pub(super) async fn definitions(client: &Client) -> Vec<CrdLookup> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut found = Vec::new();
    for crd in crds() {
        found.push(api.get_opt(&crd.name_any()).await.map_err(|error| cause(&error)));
    }
    found
}

/// The identity of our requests.
pub(super) async fn whoami(client: &Client) -> ReviewedIdentity {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = review.ok().and_then(|review| review.status).and_then(|status| status.user_info);
    ReviewedIdentity::me(&user.and_then(|user| user.username).unwrap_or_else(|| "this user".to_owned()))
}

/// Requests a review of every right in the clusters that have a client.
pub(super) async fn rights(
    who: Option<&ReviewedIdentity>,
    control: &Client,
    target: Option<&Client>,
    namespace: &str,
) -> Vec<(PermissionRule, &'static str, ReviewAnswer)> {
    let all = RULES.into_iter().chain([MAKE_TOKENS, SEE_OTHERS]);
    let all = all.flat_map(|rule| rule.verbs.iter().map(move |verb| (rule, *verb)));
    let asked = all.filter_map(|(rule, verb)| {
        let client = if rule.cluster == RuleCluster::Control { Some(control) } else { target };
        client.map(|client| async move { (rule, verb, ask(who, client, &rule, verb, namespace).await) })
    });
    stream::iter(asked.collect::<Vec<_>>()).buffered(AT_ONCE).collect().await
}

/// Requests a review of one right from the API server: ours if `who` is `None`.
async fn ask(
    who: Option<&ReviewedIdentity>,
    client: &Client,
    rule: &PermissionRule,
    verb: &str,
    namespace: &str,
) -> ReviewAnswer {
    let attributes = attributes(rule, verb, namespace);
    let answer = timeout(PATIENCE, async {
        match (who, &attributes.namespace) {
            (None, _) => mine(client, attributes).await,
            (Some(who), Some(namespace)) => within(client, who, &namespace.clone(), attributes).await,
            (Some(who), None) => everywhere(client, who, attributes).await,
        }
    });
    match answer.await {
        Ok(Ok(Some(status))) if status.allowed => ReviewAnswer::Allowed,
        Ok(Ok(Some(_))) => ReviewAnswer::Denied,
        Ok(Ok(None)) => ReviewAnswer::Unknown("the review has no answer".to_owned()),
        Ok(Err(error)) => ReviewAnswer::Unknown(cause(&error)),
        Err(_) => ReviewAnswer::Unknown(format!("no review within {} s", PATIENCE.as_secs())),
    }
}

fn attributes(rule: &PermissionRule, verb: &str, namespace: &str) -> ResourceAttributes {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    ResourceAttributes {
        group: Some(rule.kind.group.to_owned()),
        resource: some(rule.kind.plural),
        subresource: some(rule.subresource),
        name: some(rule.name),
        verb: some(verb),
        namespace: match rule.of {
            RuleScope::Control => some(namespace),
            RuleScope::Named(name) => some(name),
            RuleScope::Cluster => None,
        },
        ..ResourceAttributes::default()
    }
}

type ReviewResult = kube::Result<Option<SubjectAccessReviewStatus>>;

async fn mine(client: &Client, attributes: ResourceAttributes) -> ReviewResult {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    Ok(reviews.create(&PostParams::default(), &review).await?.status)
}

async fn within(
    client: &Client,
    who: &ReviewedIdentity,
    namespace: &str,
    attributes: ResourceAttributes,
) -> ReviewResult {
    let metadata = ObjectMeta { namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    let review = LocalSubjectAccessReview { metadata, spec: access_review_spec(who, attributes), status: None };
    let reviews: Api<LocalSubjectAccessReview> = Api::namespaced(client.clone(), namespace);
    Ok(reviews.create(&PostParams::default(), &review).await?.status)
}

async fn everywhere(client: &Client, who: &ReviewedIdentity, attributes: ResourceAttributes) -> ReviewResult {
    let review = SubjectAccessReview {
        metadata: ObjectMeta::default(),
        spec: access_review_spec(who, attributes),
        status: None,
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    Ok(reviews.create(&PostParams::default(), &review).await?.status)
}

/// A ServiceAccount is in the groups that its tokens have.
fn access_review_spec(who: &ReviewedIdentity, attributes: ResourceAttributes) -> SubjectAccessReviewSpec {
    let namespace = who.name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split(':').next()).unwrap_or_default();
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    SubjectAccessReviewSpec {
        user: Some(who.name.clone()),
        groups: Some(groups),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

/// The Machines of Cluster API in the namespace, whatever their version of the API; none without that kind.
///
/// # Errors
/// The API server refuses the list, or the list is longer than [`MOST_MACHINES`].
pub(super) async fn cluster_api_machines(client: &Client, namespace: &str) -> Result<Vec<Value>, String> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &CAPI_MACHINES.api_resource());
    let (mut all, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(all),
            Err(error) => return Err(cause(&error)),
        };
        all.extend(page.items.iter().filter_map(|machine| serde_json::to_value(machine).ok()));
        if all.len() > MOST_MACHINES {
            return Err(format!("there are more than {MOST_MACHINES}"));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Classes as their drivers judge them, and the Secrets that they name.
pub(super) async fn classes(
    reach: &ReadOnlyClients,
    drivers: &DriverCatalogue,
    stored: &ByName<MachineClass>,
) -> (Vec<InstalledClass>, Vec<SecretPresence>) {
    let api: Api<DatedObject<StoredSecret>> = Api::namespaced(reach.control.clone(), &reach.namespace);
    let mut read: BTreeMap<String, Result<Option<SecretData>, String>> = BTreeMap::new();
    let (mut classes, mut secrets) = (Vec::new(), Vec::new());
    for (name, class) in stored {
        let mut data = Some([None, None]);
        let references = [&class.secret_ref, &class.credentials_secret_ref];
        for (index, reference) in references.into_iter().enumerate() {
            let Some(SecretRef { name: secret, .. }) = reference else { continue };
            if !read.contains_key(secret) {
                let found = read_object(&api, secret).await.map_err(|error| cause(&error));
                read.insert(secret.clone(), found.map(|found| found.map(secret_data)));
            }
            match read.get(secret) {
                Some(Ok(Some(found))) => {
                    secrets.push(SecretPresence::There);
                    if let Some(data) = &mut data {
                        data[index] = Some(found.clone());
                    }
                }
                Some(Ok(None)) => {
                    secrets.push(SecretPresence::Missing(secret.clone(), name.clone()));
                    data = None;
                }
                Some(Err(cause)) => {
                    secrets.push(SecretPresence::Unread(cause.clone()));
                    data = None;
                }
                None => data = None,
            }
        }
        let data = data.map(|[other, credentials]| machine_class::login_data(other, credentials));
        let lines = findings(drivers, class, data.as_ref()).await;
        let driver = drivers.get(class).map(drop).map_err(|error| error.to_string());
        classes.push(InstalledClass { name: name.clone(), provider: class.provider.clone(), driver, lines });
    }
    (classes, secrets)
}
