//! The resources that a class needs of Azure, and whether they are there. All calls are read-only.

use futures::join;
use mcm_driver::{Code, DriverError, inspection::ResourceFinding};
use serde::Deserialize;
use serde_json::Value;

use crate::{calls::RESOURCES, session::Session};

const SKUS: &str = "2021-07-01";
const USAGES: &str = "2023-07-01";
const STORAGE: &str = "providerSpec.properties.storageProfile";
const SIZE: &str = "providerSpec.properties.hardwareProfile.vmSize";

#[derive(Deserialize)]
struct List<T> {
    value: Vec<T>,
}

/// A size of VMs in a location.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sku {
    pub name: String,
    resource_type: String,
    family: Option<String>,
    #[serde(default)]
    location_info: Vec<LocationInfo>,
    #[serde(default)]
    restrictions: Vec<Restriction>,
    #[serde(default)]
    capabilities: Vec<Capability>,
}

#[derive(Clone, Debug, Deserialize)]
struct LocationInfo {
    #[serde(default)]
    zones: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Restriction {
    #[serde(rename = "type")]
    kind: Option<String>,
    reason_code: Option<String>,
    restriction_info: Option<LocationInfo>,
}

#[derive(Clone, Debug, Deserialize)]
struct Capability {
    name: String,
    value: String,
}

/// A quota in a location, and how much of it is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    name: UsageName,
    current_value: i64,
    limit: i64,
}

#[derive(Deserialize)]
struct UsageName {
    value: String,
}

impl Sku {
    /// The value of a capability.
    pub fn capability(&self, name: &str) -> Option<&str> {
        self.capabilities.iter().find(|one| one.name == name).map(|one| one.value.as_str())
    }
}

impl Session {
    /// Checks everything that the class needs.
    pub async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let group = self.group().await;
        let login = match &group {
            // Everything else would fail for the same reason.
            Err(error) if error.code == Code::Unauthenticated => {
                return vec![ResourceFinding::of_failure("Secret", error)];
            }
            Err(error) => ResourceFinding::of_failure("Secret", error),
            Ok(_) => ResourceFinding::present(
                "Secret",
                format!("the credentials are those of application {}", self.login.client),
            ),
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let (subnet, image, size) = join!(self.subnet(), self.image(), self.size());
        let group = group.ok().map(|group| self.judged_group(group.as_ref()));
        [login].into_iter().chain(user_data).chain(group).chain([subnet, image]).chain(size).collect()
    }

    async fn group(&self) -> Result<Option<Value>, DriverError> {
        let name = &self.scope.resource_group;
        let path = ["subscriptions", &self.api.subscription, "resourceGroups", name];
        self.api.get("resource_group_get", &path, &[("api-version", RESOURCES)], "a look at the resource group").await
    }

    fn judged_group(&self, group: Option<&Value>) -> ResourceFinding {
        const PATH: &str = "providerSpec.resourceGroup";
        let name = &self.scope.resource_group;
        match group {
            None => ResourceFinding::missing(PATH, format!("there is no resource group {name}")),
            Some(_) => ResourceFinding::present(PATH, format!("resource group {name} exists")),
        }
    }

    async fn subnet(&self) -> ResourceFinding {
        const PATH: &str = "providerSpec.subnetInfo";
        let (name, vnet) = (&self.spec.subnet.name, &self.spec.subnet.vnet);
        match self.api.subnet(&self.spec).await {
            Err(error) => ResourceFinding::of_failure(PATH, &error),
            Ok(None) => ResourceFinding::missing(PATH, format!("there is no subnet {name} in virtual network {vnet}")),
            Ok(Some(subnet)) => {
                let range = subnet["properties"]["addressPrefix"].as_str().unwrap_or("no single range");
                ResourceFinding::present(PATH, format!("subnet {name} of {vnet}: {range}"))
            }
        }
    }

    /// An image of the marketplace and the terms of its plan. Others have no common place to look at.
    async fn image(&self) -> ResourceFinding {
        let path = format!("{STORAGE}.imageReference");
        let Some(urn) = self.spec.image.urn() else {
            return ResourceFinding::present(path, "an image outside of the marketplace, which is not looked at");
        };
        let found = match self.api.image(&self.scope.location, urn).await {
            Err(error) => return ResourceFinding::of_failure(path, &error),
            Ok(found) => found,
        };
        let Some(image) = found else {
            return ResourceFinding::missing(path, format!("there is no such image in {}", self.scope.location));
        };
        let Some(plan) = image.plan().filter(|_| !self.spec.skips_agreement) else {
            return ResourceFinding::present(path, "the image exists");
        };
        match self.api.agreement(plan).await {
            Err(error) => ResourceFinding::of_failure(path, &error),
            Ok(None) => {
                ResourceFinding::missing(path, format!("there are no terms of plan {}: accept them once", plan.name))
            }
            Ok(Some(terms)) if terms["properties"]["accepted"] == true => ResourceFinding::present(
                path,
                format!("the image exists, and the terms of plan {} are accepted", plan.name),
            ),
            Ok(Some(_)) => ResourceFinding::present(
                path,
                format!("the image exists; the first VM accepts the terms of plan {}", plan.name),
            ),
        }
    }

    /// The size in the location and zone, and whether the quotas have room for one more VM.
    async fn size(&self) -> Vec<ResourceFinding> {
        let sku = match self.sku().await {
            Err(error) => return vec![ResourceFinding::of_failure(SIZE, &error)],
            Ok(sku) => sku,
        };
        let (name, location) = (&self.spec.vm_size, &self.scope.location);
        let Some(sku) = sku else {
            return vec![ResourceFinding::missing(SIZE, format!("there is no size {name} in {location}"))];
        };
        let judged = match self.obstacle(&sku) {
            Some(problem) => ResourceFinding::missing(SIZE, problem),
            None => ResourceFinding::present(SIZE, format!("size {name} is offered in {location}")),
        };
        [judged].into_iter().chain(self.quotas(&sku).await).collect()
    }

    /// The size of the class, if its location has it.
    pub async fn sku(&self) -> Result<Option<Sku>, DriverError> {
        let path = ["subscriptions", &self.api.subscription, "providers", "Microsoft.Compute", "skus"];
        let filter = format!("location eq '{}'", self.scope.location.replace('\'', "''"));
        let query = [("api-version", SKUS), ("$filter", filter.as_str())];
        let found = self.api.get::<List<Sku>>("skus_list", &path, &query, "a look at the sizes of VMs").await?;
        Ok(found.into_iter().flat_map(|list| list.value).find(|sku| self.is_size(sku)))
    }

    fn is_size(&self, sku: &Sku) -> bool {
        sku.resource_type == "virtualMachines" && sku.name.eq_ignore_ascii_case(&self.spec.vm_size)
    }

    /// Why the subscription cannot have a VM of this size.
    fn obstacle(&self, sku: &Sku) -> Option<String> {
        let (name, location) = (&sku.name, &self.scope.location);
        let zone = self.spec.zone.map(|zone| zone.to_string());
        let is_here = |restriction: &&Restriction| match (&restriction.kind, &zone) {
            (Some(kind), Some(zone)) if kind == "Zone" => {
                restriction.restriction_info.as_ref().is_some_and(|info| info.zones.contains(zone))
            }
            (Some(kind), None) if kind == "Zone" => false,
            _ => true,
        };
        if let Some(restriction) = sku.restrictions.iter().find(is_here) {
            let reason = restriction.reason_code.as_deref().unwrap_or("no reason is given");
            return Some(format!("the subscription cannot have size {name} there: {reason}"));
        }
        let zone = zone?;
        let is_offered = sku.location_info.iter().any(|info| info.zones.contains(&zone));
        (!is_offered).then(|| format!("size {name} is not offered in zone {zone} of {location}"))
    }

    async fn quotas(&self, sku: &Sku) -> Option<ResourceFinding> {
        let path = [
            "subscriptions",
            &self.api.subscription,
            "providers",
            "Microsoft.Compute",
            "locations",
            &self.scope.location,
            "usages",
        ];
        let cores: i64 = sku.capability("vCPUs")?.parse().ok()?;
        let found =
            self.api.get::<List<Usage>>("usage_list", &path, &[("api-version", USAGES)], "a look at quotas").await;
        let usages = match found {
            Err(error) => return Some(ResourceFinding::of_failure(SIZE, &error)),
            Ok(found) => found?.value,
        };
        let counts = |usage: &&Usage| {
            usage.name.value.eq_ignore_ascii_case("cores") || Some(&usage.name.value) == sku.family.as_ref()
        };
        let is_full = |usage: &&Usage| usage.limit.saturating_sub(usage.current_value) < cores;
        let full = usages.iter().filter(counts).find(is_full);
        Some(match full {
            None => ResourceFinding::present(SIZE, format!("the quotas have room for {cores} more cores")),
            Some(usage) => {
                let Usage { name, current_value, limit } = usage;
                let text = format!("quota {} is used up: {current_value} of {limit} cores", name.value);
                ResourceFinding::missing(SIZE, text)
            }
        })
    }
}
