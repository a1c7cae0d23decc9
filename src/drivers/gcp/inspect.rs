//! Checks that all objects of Google Cloud that a class needs exist. All calls are read-only; Google has no dry run of a
//! creation.

use futures::{future::join_all, join};
use serde::Deserialize;

use super::{
    names::shared,
    quota::{Quota, quotas},
    session::Session,
    spec::{Disk, Gpu, NetworkInterface, SCRATCH},
};
use mcm_driver::{DriverError, code::Code, inspection::ResourceFinding};

/// Google's name for a local SSD.
const LOCAL_SSD: &str = "local-ssd";
/// The default service account of a project.
const DEFAULT_ACCOUNT: &str = "default";
/// States of what cannot be used any more.
const UNUSABLE: [&str; 2] = ["OBSOLETE", "DELETED"];

/// The result of a look-up: `None` if the object certainly does not exist.
pub(super) type Found<T> = Result<Option<T>, DriverError>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Project {
    default_service_account: Option<String>,
}

#[derive(Deserialize)]
struct Zone {
    status: String,
    region: String,
}

#[derive(Deserialize)]
struct Region {
    #[serde(default)]
    quotas: Vec<Quota>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineType {
    guest_cpus: u32,
    memory_mb: u64,
    deprecated: Option<Deprecated>,
}

#[derive(Deserialize)]
struct Image {
    name: String,
    status: String,
    deprecated: Option<Deprecated>,
}

#[derive(Deserialize)]
struct Deprecated {
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AcceleratorType {
    #[serde(default)]
    maximum_cards_per_instance: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subnetwork {
    network: String,
    #[serde(default)]
    ip_cidr_range: String,
    #[serde(default)]
    secondary_ip_ranges: Vec<SecondaryRange>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecondaryRange {
    range_name: String,
}

/// Something of which only the existence counts.
#[derive(Deserialize)]
struct Anything {}

impl Session {
    /// Checks everything that the class needs.
    pub(super) async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let (project, who) = (&self.compute.project, self.compute.account.tokens.source().identity());
        let found: Found<Project> = self.compute.get(project, "").await;
        let account = match &found {
            // Everything else would fail for the same reason.
            Err(error) if error.code == Code::Unauthenticated => {
                return vec![ResourceFinding::of_failure("Secret", error)];
            }
            Err(error) => ResourceFinding::of_failure("Secret", error),
            Ok(None) => return vec![ResourceFinding::missing("Secret", format!("there is no project {project}"))],
            Ok(Some(_)) => ResourceFinding::present("Secret", format!("{who} has access to project {project}")),
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let spec = &self.spec;
        let (zone, region, machine_type) = join!(
            self.get::<Zone>(format!("zones/{}", spec.zone)),
            self.get::<Region>(format!("regions/{}", spec.region)),
            self.get::<MachineType>(format!("zones/{}/machineTypes/{}", spec.zone, spec.machine_type)),
        );
        let default_account = found.ok().flatten().and_then(|project| project.default_service_account);
        let (disks, gpu, networks, accounts) = join!(
            join_all(spec.disks.iter().enumerate().map(|(index, disk)| self.disk(index, disk))),
            self.gpu(spec.gpu.as_ref()),
            join_all(spec.network_interfaces.iter().enumerate().map(|(index, one)| self.interface(index, one))),
            self.service_accounts(default_account.as_deref()),
        );
        let cpus = machine_type.as_ref().ok().and_then(Option::as_ref).map(|found| found.guest_cpus);
        let quotas = match &region {
            Ok(Some(region)) => quotas(spec, cpus, &region.quotas),
            _ => Vec::new(),
        };
        let place = [self.zone(zone), self.region(&region), self.machine_type(machine_type)];
        let findings = [account].into_iter().chain(user_data).chain(place).chain(disks.into_iter().flatten());
        findings.chain(gpu).chain(networks.into_iter().flatten()).chain(accounts).chain(quotas).collect()
    }

    pub(super) async fn get<T: for<'de> Deserialize<'de>>(&self, path: String) -> Found<T> {
        self.compute.get(&self.compute.project, &path).await
    }

    fn zone(&self, found: Found<Zone>) -> ResourceFinding {
        let (path, name, region) = ("providerSpec.zone", &self.spec.zone, &self.spec.region);
        ResourceFinding::judged(path, found, format!("there is no zone {name}"), |zone| match last_of(&zone.region) {
            other if other != region => Err(format!("zone {name} is in region {other}")),
            _ if zone.status != "UP" => Err(format!("zone {name} is {}", zone.status)),
            _ => Ok(format!("zone {name} is up")),
        })
    }

    fn region(&self, found: &Found<Region>) -> ResourceFinding {
        let (path, name) = ("providerSpec.region", &self.spec.region);
        match found {
            Err(error) => ResourceFinding::of_failure(path, error),
            Ok(None) => ResourceFinding::missing(path, format!("there is no region {name}")),
            Ok(Some(_)) => ResourceFinding::present(path, format!("region {name} exists")),
        }
    }

    fn machine_type(&self, found: Found<MachineType>) -> ResourceFinding {
        let (zone, name) = (&self.spec.zone, &self.spec.machine_type);
        let absent = format!("{zone} does not offer {name}");
        ResourceFinding::judged("providerSpec.machineType", found, absent, |found| match found.deprecated {
            Some(Deprecated { state }) if UNUSABLE.contains(&state.as_str()) => Err(format!("{name} is {state}")),
            _ => Ok(format!("{} CPUs, {} MiB", found.guest_cpus, found.memory_mb)),
        })
    }

    async fn disk(&self, index: usize, disk: &Disk) -> Vec<ResourceFinding> {
        let (zone, path) = (&self.spec.zone, format!("providerSpec.disks[{index}]"));
        let kind = if disk.kind == SCRATCH { LOCAL_SSD } else { &disk.kind };
        let (found, image) =
            join!(self.get::<Anything>(format!("zones/{zone}/diskTypes/{kind}")), self.image(&path, disk));
        let absent = format!("{zone} does not offer {kind}");
        let kind =
            ResourceFinding::judged(format!("{path}.type"), found, absent, |_| Ok(format!("{zone} offers {kind}")));
        [kind].into_iter().chain(image).collect()
    }

    async fn image(&self, path: &str, disk: &Disk) -> Option<ResourceFinding> {
        let (path, image) = (format!("{path}.image"), disk.image.as_ref()?);
        let Some((project, rest)) = place_of_image(image, &self.compute.project) else {
            let expected = "expected projects/<project>/global/images/<image>, or …/family/<family>";
            return Some(ResourceFinding::missing(path, expected));
        };
        let found: Found<Image> = self.compute.get(project, rest).await;
        Some(ResourceFinding::judged(path, found, format!("there is no image {image}"), |image| {
            match image.deprecated {
                Some(Deprecated { state }) if UNUSABLE.contains(&state.as_str()) => {
                    Err(format!("image {} is {state}", image.name))
                }
                _ if image.status != "READY" => Err(format!("image {} is {}", image.name, image.status)),
                _ => Ok(image.name),
            }
        }))
    }

    async fn gpu(&self, gpu: Option<&Gpu>) -> Option<ResourceFinding> {
        let Gpu { accelerator_type: name, count } = gpu?;
        let zone = &self.spec.zone;
        let found = self.get::<AcceleratorType>(format!("zones/{zone}/acceleratorTypes/{name}")).await;
        let absent = format!("{zone} does not offer {name}");
        Some(ResourceFinding::judged("providerSpec.gpu", found, absent, |found| {
            match found.maximum_cards_per_instance {
                most if most > 0 && *count > most => Err(format!("a VM has at most {most} of {name}")),
                _ => Ok(format!("{zone} offers {name}")),
            }
        }))
    }

    async fn interface(&self, index: usize, interface: &NetworkInterface) -> Vec<ResourceFinding> {
        let path = format!("providerSpec.networkInterfaces[{index}]");
        let (network, subnetwork) = join!(
            self.network(format!("{path}.network"), interface.network.as_deref()),
            self.subnetwork(format!("{path}.subnetwork"), interface)
        );
        network.into_iter().chain(subnetwork).collect()
    }

    async fn network(&self, path: String, name: Option<&str>) -> Option<ResourceFinding> {
        let name = name?;
        let found: Found<Anything> = match shared(name) {
            Some((project, path)) => self.compute.get(project, path).await,
            None => self.get(format!("global/networks/{name}")).await,
        };
        Some(ResourceFinding::judged(path, found, format!("there is no network {name}"), |_| {
            Ok(format!("network {name} exists"))
        }))
    }

    async fn subnetwork(&self, path: String, interface: &NetworkInterface) -> Option<ResourceFinding> {
        let (region, name) = (&self.spec.region, interface.subnetwork.as_deref()?);
        let found: Found<Subnetwork> = match shared(name) {
            Some((project, path)) => self.compute.get(project, path).await,
            None => self.get(format!("regions/{region}/subnetworks/{name}")).await,
        };
        let range = interface.range_name.as_deref().filter(|_| interface.has_ranges());
        let absent = format!("there is no subnetwork {name} in {region}");
        Some(ResourceFinding::judged(path, found, absent, |found| {
            let network = last_of(&found.network);
            let has = |range: &str| found.secondary_ip_ranges.iter().any(|one| one.range_name == range);
            match (interface.network.as_deref(), range) {
                (Some(other), _) if last_of(other) != network => {
                    Err(format!("subnetwork {name} is of network {network}"))
                }
                (_, Some(range)) if !has(range) => Err(format!("subnetwork {name} has no range {range}")),
                _ => Ok(format!("{} of network {network}", found.ip_cidr_range)),
            }
        }))
    }

    async fn service_accounts(&self, default_account: Option<&str>) -> Vec<ResourceFinding> {
        let emails = self.spec.service_accounts.iter().enumerate().filter_map(|(index, account)| {
            Some((format!("providerSpec.serviceAccounts[{index}].email"), account.email.as_deref()?))
        });
        let look = |(path, email): (String, &str)| {
            let email = email.to_owned();
            async move {
                if email == DEFAULT_ACCOUNT {
                    return match default_account {
                        Some(account) => ResourceFinding::present(path, account),
                        None => ResourceFinding::missing(path, "the project has no default service account"),
                    };
                }
                let absent = format!("there is no service account {email}");
                ResourceFinding::judged(path, self.compute.service_account(&email).await, absent, |()| {
                    Ok(format!("{email} exists"))
                })
            }
        };
        join_all(emails.map(look)).await
    }
}

/// The project of an image, and its path below that. Google takes URLs, and paths with or without a project.
fn place_of_image<'a>(image: &'a str, own: &'a str) -> Option<(&'a str, &'a str)> {
    let (project, path) = match image.split_once("projects/") {
        Some((before, rest)) if before.is_empty() || before.starts_with("https://") => rest.split_once('/')?,
        _ => (own, image),
    };
    path.starts_with("global/images/").then_some((project, path))
}

/// The name at the end of a URL.
fn last_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}
