//! The resources that a class needs of the cloud, and whether they are there. All calls are read-only.

use futures::{future::join_all, join};
use mcm_driver::{Code, DriverError, inspection::ResourceFinding};
use serde::Deserialize;
use serde_json::Value;

use crate::{session::Session, spec::Interface};

/// A resource, or `None` if it is certainly absent.
type Found<T> = Result<Option<T>, DriverError>;

#[derive(Deserialize)]
struct Folder {
    name: String,
    status: Option<String>,
}

#[derive(Deserialize)]
struct Zone {
    id: String,
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    id: String,
    #[serde(default)]
    name: String,
    status: Option<String>,
    /// In bytes, as a text.
    min_disk_size: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiskType {
    id: String,
    #[serde(default)]
    zone_ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subnet {
    zone_id: Option<String>,
    #[serde(default)]
    v4_cidr_blocks: Vec<String>,
}

impl Session {
    /// Checks everything that the class needs.
    pub(crate) async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let folder = match self.folder().await {
            // Everything else would fail for the same reason.
            Err(error) if error.code == Code::Unauthenticated => {
                return vec![ResourceFinding::of_failure("Secret", &error)];
            }
            folder => self.judged_folder(folder),
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let interfaces = join_all(self.spec.interfaces.iter().enumerate().map(|(index, one)| self.subnet(index, one)));
        let (zone, image, kind, subnets, addresses) =
            join!(self.zone(), self.image(), self.disk_type(), interfaces, self.addresses());
        let findings = [folder].into_iter().chain(user_data).chain([zone, image]).chain(kind);
        findings.chain(subnets).chain(addresses).collect()
    }

    async fn folder(&self) -> Found<Folder> {
        let path = ["resource-manager", "v1", "folders", &self.scope.folder];
        self.api.get(&self.api.services.resource_manager, "resource_get", &path).await
    }

    fn judged_folder(&self, found: Found<Folder>) -> ResourceFinding {
        let account = &self.login.key.account;
        judged("Secret", found, &format!("folder {}", self.scope.folder), |folder| match folder.status.as_deref() {
            None | Some("ACTIVE") => Ok(format!("service account {account} sees folder {}", folder.name)),
            Some(status) => Err(format!("folder {} is {status}", folder.name)),
        })
    }

    async fn zone(&self) -> ResourceFinding {
        let name = &self.spec.zone;
        let found: Found<Zone> = self.compute(&["zones", name]).await;
        judged("providerSpec.zoneID", found, &format!("zone {name}"), |zone| match zone.status.as_deref() {
            None | Some("UP") => Ok(format!("zone {} is up", zone.id)),
            Some(status) => Err(format!("zone {} is {status}", zone.id)),
        })
    }

    async fn image(&self) -> ResourceFinding {
        let (id, size) = (&self.spec.boot_disk.image, self.spec.boot_disk.size);
        let found: Found<Image> = self.compute(&["images", id]).await;
        judged("providerSpec.bootDiskSpec.imageID", found, &format!("image {id}"), |image| {
            let least = image.min_disk_size.as_ref().and_then(number_of);
            match (image.status.as_deref(), least) {
                (Some(status), _) if status != "READY" => Err(format!("image {} is {status}", image.id)),
                (_, Some(least)) if least > size => {
                    Err(format!("image {} needs a disk of {least} bytes, and that of the class has {size}", image.id))
                }
                _ => Ok(format!("image {} ({}) is ready", image.id, image.name)),
            }
        })
    }

    async fn disk_type(&self) -> Option<ResourceFinding> {
        let (id, zone) = (self.spec.boot_disk.kind.as_ref()?, &self.spec.zone);
        let found: Found<DiskType> = self.compute(&["diskTypes", id]).await;
        Some(judged("providerSpec.bootDiskSpec.typeID", found, &format!("disk type {id}"), |kind| {
            if kind.zone_ids.is_empty() || kind.zone_ids.contains(zone) {
                Ok(format!("disk type {} is in {zone}", kind.id))
            } else {
                Err(format!("disk type {} is only in {}", kind.id, kind.zone_ids.join(", ")))
            }
        }))
    }

    async fn subnet(&self, index: usize, interface: &Interface) -> ResourceFinding {
        let (id, zone) = (&interface.subnet, &self.spec.zone);
        let path = ["vpc", "v1", "subnets", id];
        let found: Found<Subnet> = self.api.get(&self.api.services.vpc, "resource_get", &path).await;
        let field = format!("providerSpec.networkInterfaceSpecs[{index}].subnetID");
        judged(&field, found, &format!("subnet {id}"), |subnet| match subnet.zone_id {
            Some(other) if !other.is_empty() && other != *zone => Err(format!("subnet {id} is in zone {other}")),
            _ => Ok(format!("subnet {id} has {}", subnet.v4_cidr_blocks.join(", "))),
        })
    }

    /// How many of the listed public addresses are free.
    async fn addresses(&self) -> Vec<ResourceFinding> {
        let with_list = |one: &&Interface| one.has_public_address && !one.public_addresses.is_empty();
        if !self.spec.interfaces.iter().any(|one| with_list(&one)) {
            return Vec::new();
        }
        let all = self.api.addresses().await;
        let finding = |(index, interface): (usize, &Interface)| {
            let field = format!("providerSpec.networkInterfaceSpecs[{index}].publicIPAddresses");
            let all = match &all {
                Ok(all) => all,
                Err(error) => return ResourceFinding::of_failure(field, error),
            };
            let listed = &interface.public_addresses;
            let of_class = |value: &str| listed.iter().any(|one| one == value);
            let known: Vec<_> = all.iter().filter(|one| one.value().is_some_and(of_class)).collect();
            let free = known.iter().filter(|one| !one.used).count();
            let text = format!("{free} of {} addresses are free, {} are in the folder", listed.len(), known.len());
            if free == 0 { ResourceFinding::missing(field, text) } else { ResourceFinding::present(field, text) }
        };
        self.spec.interfaces.iter().enumerate().filter(|(_, one)| with_list(one)).map(finding).collect()
    }

    async fn compute<T: serde::de::DeserializeOwned>(&self, path: &[&str; 2]) -> Found<T> {
        let [kind, id] = *path;
        self.api.get(&self.api.services.compute, "resource_get", &["compute", "v1", kind, id]).await
    }
}

/// A whole number, which this API writes as a text.
fn number_of(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

fn judged<T>(
    path: &str,
    found: Found<T>,
    what: &str,
    judge: impl FnOnce(T) -> Result<String, String>,
) -> ResourceFinding {
    ResourceFinding::judged(path, found, format!("there is no {what}"), judge)
}
