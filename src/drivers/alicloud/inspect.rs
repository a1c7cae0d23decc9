//! The resources that a class needs of Alibaba Cloud, and whether they are there. All calls are read-only.

use futures::join;
use mcm_driver::{DriverError, code::Code, inspection::ResourceFinding};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{calls::Action, parameters::Parameters, session::Session};

const RESOURCE: &str = "resource_get";
const IMAGES: Action = Action::read("DescribeImages", RESOURCE);
const TYPES: Action = Action::read("DescribeInstanceTypes", RESOURCE);
const SWITCHES: Action = Action::read("DescribeVSwitches", RESOURCE);
const GROUPS: Action = Action::read("DescribeSecurityGroups", RESOURCE);
const KEYS: Action = Action::read("DescribeKeyPairs", RESOURCE);
const ZONES: Action = Action::read("DescribeZones", RESOURCE);

/// Resources that were looked for.
type Found<T> = Result<Vec<T>, DriverError>;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    image_id: String,
    #[serde(default, rename = "OSNameEn")]
    name: String,
    /// In GiB.
    size: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceType {
    instance_type_id: String,
    cpu_core_count: u32,
    /// In GiB.
    memory_size: f64,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Switch {
    v_switch_id: String,
    vpc_id: String,
    zone_id: String,
    available_ip_address_count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Group {
    security_group_id: String,
    #[serde(default)]
    vpc_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KeyPair {
    key_pair_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Zone {
    zone_id: String,
    available_instance_types: InstanceTypes,
    available_disk_categories: DiskCategories,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceTypes {
    instance_types: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DiskCategories {
    disk_categories: Vec<String>,
}

impl Session {
    /// Checks everything that the class needs.
    pub async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let access = match self.api.may_describe().await {
            // Everything else would fail for the same reason.
            Err(error) if error.code == Code::Unauthenticated => {
                return vec![ResourceFinding::of_failure("Secret", &error)];
            }
            Err(error) => ResourceFinding::of_failure("Secret", &error),
            Ok(()) => {
                ResourceFinding::present("Secret", format!("the access key may look VMs up in {}", self.scope.region))
            }
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let (image, instance_type, switches, groups, key, zones) =
            join!(self.image(), self.instance_type(), self.switches(), self.groups(), self.key(), self.zones());
        let switch = switches.as_ref().ok().and_then(|all| all.first()).cloned();
        let zone = self.spec.zone_id.clone().or_else(|| switch.as_ref().map(|switch| switch.zone_id.clone()));
        let mut findings: Vec<ResourceFinding> =
            [access].into_iter().chain(user_data).chain([image, instance_type]).collect();
        findings.extend(zone.map(|zone| self.offer(&zone, zones)).into_iter().flatten());
        findings.extend(self.spec.v_switch_id.as_ref().map(|id| self.switch(id, switches)));
        findings.extend(self.spec.security_group_id.as_ref().map(|id| group(id, groups, switch.as_ref())));
        findings.extend(key);
        findings
    }

    async fn image(&self) -> ResourceFinding {
        let id = &self.spec.image_id;
        let found: Found<Image> = self.list(IMAGES, "/Images/Image", self.api.here().with("ImageId", id)).await;
        judged(
            "imageID",
            found,
            id,
            |image| image.image_id == *id,
            |image| match self.spec.system_disk.as_ref().and_then(|disk| disk.size).filter(|size| *size < image.size) {
                Some(size) => Err(format!("image {id} has {} GiB, and the system disk only {size} GiB", image.size)),
                None => Ok(image.name),
            },
        )
    }

    async fn instance_type(&self) -> ResourceFinding {
        let name = &self.spec.instance_type;
        let parameters = Parameters::new().with("InstanceTypes.1", name);
        let found: Found<InstanceType> = self.list(TYPES, "/InstanceTypes/InstanceType", parameters).await;
        judged(
            "instanceType",
            found,
            name,
            |one| one.instance_type_id == *name,
            |one| Ok(format!("{} CPUs, {} GiB of memory", one.cpu_core_count, one.memory_size)),
        )
    }

    async fn switches(&self) -> Found<Switch> {
        let Some(id) = &self.spec.v_switch_id else { return Ok(Vec::new()) };
        let found: Found<Switch> =
            self.list(SWITCHES, "/VSwitches/VSwitch", self.api.here().with("VSwitchId", id)).await;
        found.map(|all| all.into_iter().filter(|one| one.v_switch_id == *id).collect())
    }

    fn switch(&self, id: &str, found: Found<Switch>) -> ResourceFinding {
        judged(
            "vSwitchID",
            found,
            id,
            |_| true,
            |switch| {
                let zone = self.spec.zone_id.as_ref().filter(|zone| **zone != switch.zone_id);
                match (zone, switch.available_ip_address_count) {
                    (Some(_), _) => Err(format!("vSwitch {id} is in zone {}", switch.zone_id)),
                    (None, 0) => Err(format!("vSwitch {id} has no address left")),
                    (None, left) => Ok(format!("{left} addresses are left in {}", switch.vpc_id)),
                }
            },
        )
    }

    async fn groups(&self) -> Found<Group> {
        let Some(id) = &self.spec.security_group_id else { return Ok(Vec::new()) };
        let parameters = self.api.here().with("SecurityGroupIds", json!([id]));
        self.list(GROUPS, "/SecurityGroups/SecurityGroup", parameters).await
    }

    async fn key(&self) -> Option<ResourceFinding> {
        let name = self.spec.key_pair_name.as_ref()?;
        let parameters = self.api.here().with("KeyPairName", name);
        let found: Found<KeyPair> = self.list(KEYS, "/KeyPairs/KeyPair", parameters).await;
        let finding = judged(
            "keyPairName",
            found,
            name,
            |key| key.key_pair_name == *name,
            |_| Ok(format!("key pair {name} exists")),
        );
        Some(finding)
    }

    async fn zones(&self) -> Found<Zone> {
        self.list(ZONES, "/Zones/Zone", self.api.here()).await
    }

    /// Checks that a zone offers the instance type and the categories of disks.
    fn offer(&self, name: &str, found: Found<Zone>) -> Vec<ResourceFinding> {
        let is_it = |zone: &Zone| zone.zone_id == name;
        let zone = match found {
            Ok(zones) => zones.into_iter().find(is_it),
            Err(error) => return vec![ResourceFinding::of_failure("providerSpec.zoneID", &error)],
        };
        let Some(zone) = zone else {
            return vec![ResourceFinding::missing("providerSpec.zoneID", format!("there is no zoneID {name}"))];
        };
        let offered = |path: &str, kind: &str, value: &str, all: &[String]| {
            let path = format!("providerSpec.{path}");
            if all.iter().any(|one| one == value) {
                ResourceFinding::present(path, format!("{kind} {value} is offered in zone {name}"))
            } else {
                ResourceFinding::missing(path, format!("{kind} {value} is not offered in zone {name}"))
            }
        };
        let (types, categories) =
            (&zone.available_instance_types.instance_types, &zone.available_disk_categories.disk_categories);
        let mut findings = vec![offered("instanceType", "instance type", &self.spec.instance_type, types)];
        let system = self.spec.system_disk.as_ref().and_then(|disk| disk.category.as_ref());
        findings.extend(system.map(|one| offered("systemDisk.category", "disk category", one, categories)));
        for (index, disk) in self.spec.data_disks.iter().enumerate() {
            let path = format!("dataDisks[{index}].category");
            findings.extend(disk.category.as_ref().map(|one| offered(&path, "disk category", one, categories)));
        }
        findings
    }

    /// The resources in the list at a place in an answer.
    async fn list<T: DeserializeOwned>(&self, action: Action, place: &str, parameters: Parameters) -> Found<T> {
        let answer: Value = self.api.read(action, &parameters).await?;
        let list = answer.pointer(place).cloned().unwrap_or_default();
        serde_json::from_value(list)
            .map_err(|_| DriverError::new(Code::Unknown, format!("{} failed: the answer cannot be read", action.name)))
    }
}

fn group(id: &str, found: Found<Group>, switch: Option<&Switch>) -> ResourceFinding {
    judged(
        "securityGroupID",
        found,
        id,
        |group| group.security_group_id == id,
        |group| match switch.filter(|switch| switch.vpc_id != group.vpc_id) {
            Some(switch) => {
                Err(format!("security group {id} is in {}, and the vSwitch in {}", group.vpc_id, switch.vpc_id))
            }
            None => Ok(format!("security group {id} exists")),
        },
    )
}

/// The finding about the one resource that `is_it`.
fn judged<T>(
    field: &str,
    found: Found<T>,
    name: &str,
    is_it: impl Fn(&T) -> bool,
    judge: impl FnOnce(T) -> Result<String, String>,
) -> ResourceFinding {
    let found = found.map(|all| all.into_iter().find(is_it));
    ResourceFinding::judged(format!("providerSpec.{field}"), found, format!("there is no {field} {name}"), judge)
}
