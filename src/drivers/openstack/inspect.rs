//! The resources that a class needs of OpenStack, and whether they are there. All calls are read-only.

use futures::{future::join_all, join};
use mcm_driver::{DriverError, code::Code, inspection::ResourceFinding};
use serde::Deserialize;
use serde_json::Value;

use super::{
    keystone::Service,
    session::{Kind, Session},
    spec::Reference,
};

#[derive(Deserialize)]
struct Zone {
    #[serde(rename = "zoneName")]
    name: String,
    #[serde(rename = "zoneState")]
    state: ZoneState,
}

#[derive(Deserialize)]
struct ZoneState {
    available: bool,
}

/// The quota of the project; -1 is unlimited.
#[derive(Deserialize)]
struct Limits {
    absolute: Absolute,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Absolute {
    max_total_instances: i64,
    total_instances_used: i64,
}

impl Session {
    /// Checks everything that the class needs.
    pub async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let login = match self.region.account.token().await {
            Ok(token) => ResourceFinding::present("Secret", format!("the credentials are those of {}", token.owner())),
            // Everything else would fail for the same reason.
            Err(failure) => {
                return vec![ResourceFinding::of_failure(
                    "Secret",
                    &self.region.error(&failure, "the request of a token"),
                )];
            }
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let (image, flavor, zone, key_pair, quota) =
            join!(self.image(), self.flavor(), self.zone(), self.key_pair(), self.quota());
        let (networks, subnets, groups, server_group, disk) =
            join!(self.networks(), self.subnets(), self.groups(), self.server_group(), self.disk());
        let one = [login].into_iter().chain(user_data).chain([image, flavor, zone, key_pair]);
        let parts = networks.into_iter().chain(subnets).chain(groups).chain(server_group).chain(disk);
        one.chain(parts).chain(quota).collect()
    }

    async fn image(&self) -> ResourceFinding {
        match &self.spec.image {
            Reference::Id(id) => self.one("imageID", Service::Compute, "images", "image", id).await,
            Reference::Name(_) => self.named("imageName", Kind::Image, &self.spec.image).await,
        }
    }

    async fn flavor(&self) -> ResourceFinding {
        self.named("flavorName", Kind::Flavor, &Reference::Name(self.spec.flavor.clone())).await
    }

    async fn zone(&self) -> ResourceFinding {
        let (name, field) = (&self.spec.zone, "availabilityZone");
        let zones: Result<Vec<Zone>, _> =
            self.region.list(Service::Compute, &["os-availability-zone"], &[], "availabilityZoneInfo").await;
        match zones.map(|zones| zones.into_iter().find(|zone| zone.name == *name)) {
            Err(error) => ResourceFinding::of_failure(path(field), &error),
            Ok(None) => ResourceFinding::missing(path(field), format!("there is no zone {name:?}")),
            Ok(Some(zone)) if !zone.state.available => {
                ResourceFinding::missing(path(field), format!("zone {name:?} is not available"))
            }
            Ok(Some(_)) => ResourceFinding::present(path(field), format!("zone {name:?} is available")),
        }
    }

    async fn key_pair(&self) -> ResourceFinding {
        self.one("keyName", Service::Compute, "os-keypairs", "keypair", &self.spec.key_pair).await
    }

    async fn networks(&self) -> Vec<ResourceFinding> {
        let networks = self.spec.networks.iter().map(async |network| match &network.network {
            Reference::Id(id) => self.one("networkID", Service::Network, "networks", "network", id).await,
            reference @ Reference::Name(_) => self.named("networks", Kind::Network, reference).await,
        });
        join_all(networks).await
    }

    async fn subnets(&self) -> Vec<ResourceFinding> {
        let subnets = self.spec.subnets.iter();
        join_all(subnets.map(|id| self.one("subnetIDs", Service::Network, "subnets", "subnet", id))).await
    }

    async fn groups(&self) -> Vec<ResourceFinding> {
        let groups = self.spec.security_groups.iter().map(async |name| {
            let reference = Reference::Name(name.clone());
            self.named("securityGroups", Kind::SecurityGroup, &reference).await
        });
        join_all(groups).await
    }

    async fn server_group(&self) -> Option<ResourceFinding> {
        let id = self.spec.server_group.as_ref()?;
        Some(self.one("serverGroupID", Service::Compute, "os-server-groups", "server_group", id).await)
    }

    /// Block storage is needed only by classes that ask for a volume.
    async fn disk(&self) -> Option<ResourceFinding> {
        let kind = self.spec.disk_type.as_ref().filter(|kind| !kind.is_empty() && self.spec.disk_size > 0)?;
        let field = path("rootDiskType");
        let kinds: Result<Vec<super::calls::Resource>, _> =
            self.region.list(Service::BlockStorage, &["types"], &[], "volume_types").await;
        Some(match kinds {
            Err(error) => ResourceFinding::of_failure(field, &error),
            Ok(kinds) if kinds.iter().any(|one| one.name.as_ref() == Some(kind) || one.id == *kind) => {
                ResourceFinding::present(field, format!("volume type {kind:?} exists"))
            }
            Ok(_) => ResourceFinding::missing(field, format!("there is no volume type {kind:?}")),
        })
    }

    /// Checks that the project may have one more server. The quota may be used up before the first use of the class.
    async fn quota(&self) -> Option<ResourceFinding> {
        let field = path("flavorName");
        let limits: Option<Limits> = match self.region.one(Service::Compute, &["limits"], "limits").await {
            Ok(limits) => limits,
            Err(error) => return Some(ResourceFinding::of_failure(field, &error)),
        };
        let Absolute { max_total_instances: most, total_instances_used: used } = limits?.absolute;
        let text = format!("the project has {used} of at most {most} servers");
        match most {
            ..0 => None,
            most if used >= most => Some(ResourceFinding::missing(field, text)),
            _ => Some(ResourceFinding::present(field, text)),
        }
    }

    async fn named(&self, field: &str, kind: Kind, reference: &Reference) -> ResourceFinding {
        let Reference::Name(name) = reference else { return ResourceFinding::present(path(field), "given by its ID") };
        match self.ids_of(kind, name).await.map(|ids| ids.len()) {
            Err(error) => ResourceFinding::of_failure(path(field), &error),
            Ok(0) => ResourceFinding::missing(path(field), format!("there is no {} {name:?}", kind.text())),
            Ok(1) => ResourceFinding::present(path(field), format!("{} {name:?} exists", kind.text())),
            Ok(several) => {
                let text = format!("{several} {}s are named {name:?}: use an ID", kind.text());
                ResourceFinding::missing(path(field), text)
            }
        }
    }

    async fn one(&self, field: &str, service: Service, list: &str, kind: &str, id: &str) -> ResourceFinding {
        let found: Result<Option<Value>, _> = self.region.one(service, &[list, id], kind).await;
        let name = kind.replace('_', " ");
        match found {
            Err(error) if error.code == Code::InvalidArgument => ResourceFinding::missing(path(field), error.message),
            Err(error) => ResourceFinding::of_failure(path(field), &error),
            Ok(None) => ResourceFinding::missing(path(field), format!("there is no {name} {id:?}")),
            Ok(Some(_)) => ResourceFinding::present(path(field), format!("{name} {id:?} exists")),
        }
    }
}

fn path(field: &str) -> String {
    format!("providerSpec.spec.{field}")
}
