//! The calls of ECS: nothing is decided here.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::try_join_all;
use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, PageCollector, RestCall, RestClient, is_word},
};
use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{errors::DRY_RUN, instance::Instance, order::Order, parameters::Parameters, spec::Scope};

const VERSION: &str = "2014-05-26";
/// Most VMs in a page, and most IDs in a request.
const PAGE: usize = 100;
/// More names are not looked up one by one, but in a list of the class.
const MOST_NAMES: usize = 5;
/// `DescribeInstances` shows at most so many VMs with the same tags.
const MOST_TAGGED: usize = 1000;
/// A VM that is still starting or stopping cannot be deleted.
const WRONG_STATUS: &str = "IncorrectInstanceStatus";

/// An action of the API.
#[derive(Clone, Copy)]
pub(crate) struct Action {
    pub name: &'static str,
    /// Its name in the metrics.
    service: &'static str,
    is_read: bool,
}

impl Action {
    /// An action that only reads.
    pub const fn read(name: &'static str, service: &'static str) -> Self {
        Self { name, service, is_read: true }
    }

    /// An action that changes something. Each may be repeated: a creation because of its token.
    const fn write(name: &'static str, service: &'static str) -> Self {
        Self { name, service, is_read: false }
    }
}

const RUN: Action = Action::write("RunInstances", "instance_create");
const DESCRIBE: Action = Action::read("DescribeInstances", "instance_get");
const DELETE: Action = Action::write("DeleteInstance", "instance_delete");
const TAG: Action = Action::write("TagResources", "instance_tag");
const UNTAG: Action = Action::write("UntagResources", "instance_untag");

/// ECS in one region with the access key of a Secret.
#[derive(Clone)]
pub(crate) struct Api {
    pub rest: Arc<RestClient>,
    pub region: String,
    /// Its values appear in no text.
    pub secret: SecretData,
}

impl Api {
    /// VMs with these IDs, of any class.
    pub async fn with_ids(&self, ids: &BTreeSet<String>) -> Result<Vec<Instance>, DriverError> {
        let all: Vec<&String> = ids.iter().collect();
        let pages = all.chunks(PAGE).map(|ids| self.instances(self.here().with("InstanceIds", json!(ids))));
        Ok(try_join_all(pages).await?.into_iter().flatten().collect())
    }

    /// VMs with these names, and maybe others. In a name `*` would match anything, so callers compare names.
    pub async fn named(&self, names: &BTreeSet<String>, scope: &Scope) -> Result<Vec<Instance>, DriverError> {
        if names.len() > MOST_NAMES {
            return self.of_class(scope).await;
        }
        let each = names.iter().map(|name| self.instances(self.here().with("InstanceName", name)));
        Ok(try_join_all(each).await?.into_iter().flatten().collect())
    }

    /// All VMs of a class.
    pub async fn of_class(&self, scope: &Scope) -> Result<Vec<Instance>, DriverError> {
        let mut tagged = self.here();
        for (number, (key, value)) in (1..).zip(scope.tags()) {
            tagged.add_tag(number, key, value);
        }
        let mut found = self.instances(tagged).await?;
        if found.len() >= MOST_TAGGED {
            // There may be more. A list of all VMs has no such limit.
            found = self.instances(self.here()).await?;
        }
        found.retain(|instance| instance.is_in(scope));
        Ok(found)
    }

    async fn instances(&self, filter: Parameters) -> Result<Vec<Instance>, DriverError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Page {
            instances: Instances,
            next_token: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Instances {
            instance: Vec<Instance>,
        }
        // Without a number of results a page has ten VMs and may have no token.
        let filter = filter.with("MaxResults", PAGE);
        let mut pages = PageCollector::new(DESCRIBE.name);
        loop {
            let mut page = filter.clone();
            page.add_some("NextToken", pages.token());
            let page: Page = self.call(DESCRIBE, &page).await.map_err(|failure| self.error(&failure, DESCRIBE.name))?;
            if pages.add(page.instances.instance, page.next_token)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// Creates a VM, or finds that of an earlier request with the same token; returns its ID.
    pub async fn run(&self, order: &Order<'_>) -> Result<String, CloudFailure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Created {
            instance_id_sets: Ids,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Ids {
            instance_id_set: Vec<String>,
        }
        let parameters = order.parameters().with("RegionId", &self.region);
        let created: Created = self.call(RUN, &parameters).await?;
        let id = created.instance_id_sets.instance_id_set.into_iter().next().filter(|id| is_word(id));
        id.ok_or(CloudFailure::Unreadable(200))
    }

    /// Deletes a VM, whether it runs or not. True if it does not exist any more; false if ECS does not delete it in its present
    /// status.
    pub async fn delete(&self, id: &str) -> Result<bool, DriverError> {
        let parameters = Parameters::new().with("InstanceId", id).with("Force", true);
        match self.call::<Value>(DELETE, &parameters).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_absence() => Ok(true),
            Err(CloudFailure::Named { name, .. }) if name.starts_with(WRONG_STATUS) => Ok(false),
            Err(failure) => Err(self.error(&failure, &format!("DeleteInstance of {id}"))),
        }
    }

    /// Gives a VM tags, keys and values.
    pub async fn tag(&self, id: &str, tags: &[(&str, &str)]) -> Result<(), DriverError> {
        let mut parameters = self.instance(id);
        for (number, (key, value)) in (1..).zip(tags) {
            parameters.add_tag(number, key, value);
        }
        self.change(TAG, id, &parameters).await
    }

    /// Takes the tags with these keys from a VM.
    pub async fn untag(&self, id: &str, keys: &[&str]) -> Result<(), DriverError> {
        let mut parameters = self.instance(id);
        for (number, key) in (1_u32..).zip(keys) {
            parameters.add(&format!("TagKey.{number}"), key);
        }
        self.change(UNTAG, id, &parameters).await
    }

    async fn change(&self, action: Action, id: &str, parameters: &Parameters) -> Result<(), DriverError> {
        let done = self.call::<Value>(action, parameters).await;
        done.map(drop).map_err(|failure| self.error(&failure, &format!("{} of {id}", action.name)))
    }

    /// Checks that the access key may list VMs, with a dry run of ECS.
    pub async fn may_describe(&self) -> Result<(), DriverError> {
        match self.call::<Value>(DESCRIBE, &self.here().with("DryRun", true)).await {
            Err(failure) if !failure.is(DRY_RUN) => Err(self.error(&failure, DESCRIBE.name)),
            _ => Ok(()),
        }
    }

    /// The answer of an action that only reads.
    pub async fn read<T: DeserializeOwned>(&self, action: Action, parameters: &Parameters) -> Result<T, DriverError> {
        self.call(action, parameters).await.map_err(|failure| self.error(&failure, action.name))
    }

    async fn call<T: DeserializeOwned>(&self, action: Action, parameters: &Parameters) -> Result<T, CloudFailure> {
        let Action { name, service, is_read } = action;
        let query = parameters.pairs();
        let call = if is_read { RestCall::read } else { RestCall::idempotent }(service, Method::POST, &[]);
        let call = call.query(&query).header("accept", "application/json");
        let call = call.header("x-acs-action", name).header("x-acs-version", VERSION);
        self.rest.call(&call).await
    }

    /// Parameters with the region.
    pub fn here(&self) -> Parameters {
        Parameters::new().with("RegionId", &self.region)
    }

    /// Parameters with a VM as the resource.
    fn instance(&self, id: &str) -> Parameters {
        self.here().with("ResourceType", "instance").with("ResourceId.1", id)
    }

    pub fn error(&self, failure: &CloudFailure, what: &str) -> DriverError {
        failure.error(what, &self.secret)
    }
}
