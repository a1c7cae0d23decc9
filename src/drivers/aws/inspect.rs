//! Checks that all objects of AWS that a class needs exist. All calls are read-only; the creation is a dry run.

use std::collections::BTreeSet;

use aws_sdk_ec2::types::{self, ArchitectureValues, Image, ImageState, KeyPairInfo, LocationType};
use futures::join;

use super::{
    calls::{Ec2, filter},
    kind::{reading, writing},
    run::Order,
    session::Session,
    user_data::UserData,
};
use mcm_driver::{DriverError, code::Code, inspection::ResourceFinding};

/// EC2's answer to a dry run of what would succeed.
const WOULD_SUCCEED: &str = "DryRunOperation";
/// Name in the metrics of look-ups of objects that a class names.
const DESCRIBE: &str = "describe";
/// Appears in no VM, because none is created.
const NOBODY: &str = "class-check";

/// A subnet of the account.
pub(super) struct Subnet {
    id: String,
    vpc: String,
    pub zone: String,
    free_addresses: i32,
}

/// A security group of the account.
struct Group {
    id: String,
    vpc: String,
}

impl Subnet {
    fn from_api(subnet: &types::Subnet) -> Option<Self> {
        Some(Self {
            id: subnet.subnet_id.clone()?,
            vpc: subnet.vpc_id.clone()?,
            zone: subnet.availability_zone.clone()?,
            free_addresses: subnet.available_ip_address_count?,
        })
    }
}

impl Group {
    fn from_api(group: &types::SecurityGroup) -> Option<Self> {
        Some(Self { id: group.group_id.clone()?, vpc: group.vpc_id.clone()? })
    }
}

impl Session {
    /// Checks everything that the class needs.
    pub(super) async fn inspect(&self, user_data: Result<UserData<'_>, DriverError>) -> Vec<ResourceFinding> {
        let identity = match self.ec2.identity().await {
            // Everything else would fail for the same reason.
            Err(error) if error.code == Code::Unauthenticated => {
                return vec![ResourceFinding::of_failure("Secret", &error)];
            }
            Err(error) => ResourceFinding::of_failure("Secret", &error),
            Ok(identity) => ResourceFinding::present("Secret", format!("the credentials are those of {identity}")),
        };
        let (image, network, key_pair, profile, creation) = join!(
            self.image(),
            self.type_and_network(),
            self.key_pair(),
            self.instance_profile(),
            self.dry_run(user_data)
        );
        let findings = [identity, image].into_iter().chain(network).chain(key_pair).chain(profile);
        findings.chain([creation]).collect()
    }

    async fn image(&self) -> ResourceFinding {
        let (path, ami) = ("providerSpec.ami", &self.spec.ami);
        match self.ec2.images(ami).await {
            Err(error) => ResourceFinding::of_failure(path, &error),
            Ok(images) => match images.first() {
                None => ResourceFinding::missing(path, format!("there is no image {ami} in {}", self.spec.region)),
                Some(image) => match image.state().filter(|state| **state != ImageState::Available) {
                    Some(state) => ResourceFinding::missing(path, format!("image {ami} is {state}")),
                    None => {
                        let architecture = image.architecture().map_or("unknown", ArchitectureValues::as_str);
                        ResourceFinding::present(path, format!("{}, {architecture}", image.name().unwrap_or("unknown")))
                    }
                },
            },
        }
    }

    /// A VM needs a subnet in a zone that offers its type.
    async fn type_and_network(&self) -> Vec<ResourceFinding> {
        let interfaces = &self.spec.network_interfaces;
        let subnets: BTreeSet<&String> = interfaces.iter().map(|interface| &interface.subnet_id).collect();
        let groups: BTreeSet<&String> = interfaces.iter().flat_map(|interface| &interface.security_group_ids).collect();
        let (zones, subnets, groups) =
            join!(self.ec2.zones_of(&self.spec.machine_type), self.ec2.subnets(&subnets), self.ec2.groups(&groups));
        let mut findings = vec![self.machine_type(&zones)];
        let subnets = match subnets {
            Ok(subnets) => subnets,
            Err(error) => {
                findings.push(ResourceFinding::of_failure("providerSpec.networkInterfaces", &error));
                return findings;
            }
        };
        for (index, interface) in interfaces.iter().enumerate() {
            let path = format!("providerSpec.networkInterfaces[{index}]");
            let subnet = subnets.iter().find(|subnet| subnet.id == interface.subnet_id);
            findings.push(self.subnet(format!("{path}.subnetID"), &interface.subnet_id, subnet, zones.as_ref().ok()));
            let path = format!("{path}.securityGroupIDs");
            match &groups {
                Err(error) => findings.push(ResourceFinding::of_failure(path, error)),
                Ok(groups) => findings.extend(
                    interface
                        .security_group_ids
                        .iter()
                        .map(|id| security_group(&path, id, groups.iter().find(|group| group.id == *id), subnet)),
                ),
            }
        }
        findings
    }

    fn machine_type(&self, zones: &Result<BTreeSet<String>, DriverError>) -> ResourceFinding {
        let (path, name) = ("providerSpec.machineType", &self.spec.machine_type);
        match zones {
            Err(error) => ResourceFinding::of_failure(path, error),
            Ok(zones) if zones.is_empty() => {
                ResourceFinding::missing(path, format!("{} does not offer {name}", self.spec.region))
            }
            Ok(zones) => {
                let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
                ResourceFinding::present(path, format!("offered in {}", zones.join(", ")))
            }
        }
    }

    fn subnet(
        &self,
        path: String,
        id: &str,
        subnet: Option<&Subnet>,
        zones: Option<&BTreeSet<String>>,
    ) -> ResourceFinding {
        let Some(subnet) = subnet else { return ResourceFinding::missing(path, format!("there is no subnet {id}")) };
        let Subnet { zone, free_addresses, .. } = subnet;
        if *free_addresses == 0 {
            return ResourceFinding::missing(path, format!("subnet {id} has no free address"));
        }
        if zones.is_some_and(|zones| !zones.is_empty() && !zones.contains(zone)) {
            let name = &self.spec.machine_type;
            return ResourceFinding::missing(path, format!("subnet {id} is in {zone}, which does not offer {name}"));
        }
        ResourceFinding::present(path, format!("{zone}, {free_addresses} free addresses"))
    }

    async fn key_pair(&self) -> Option<ResourceFinding> {
        let (path, name) = ("providerSpec.keyName", self.spec.key_name.as_ref()?);
        let pairs = self.ec2.key_pairs(name).await;
        Some(match pairs {
            Err(error) => ResourceFinding::of_failure(path, &error),
            Ok(pairs) if pairs.is_empty() => ResourceFinding::missing(path, format!("there is no key pair {name}")),
            Ok(_) => ResourceFinding::present(path, "the key pair exists"),
        })
    }

    async fn instance_profile(&self) -> Option<ResourceFinding> {
        let arn = self.spec.profile_arn.as_deref();
        let name = self.spec.profile_name.as_deref().or_else(|| arn?.rsplit('/').next())?;
        let path = if arn.is_some() { "providerSpec.iam.arn" } else { "providerSpec.iam.name" };
        Some(match self.ec2.instance_profile(name).await {
            Ok(()) => ResourceFinding::present(path, "the instance profile exists"),
            Err(error) => ResourceFinding::of_failure(path, &error),
        })
    }

    /// Requests a dry run of a creation, which does not check quotas and stock.
    async fn dry_run(&self, user_data: Result<UserData<'_>, DriverError>) -> ResourceFinding {
        let path = "providerSpec";
        let user_data = match user_data {
            Ok(user_data) => user_data,
            Err(error) => return ResourceFinding::of_failure("Secret", &error),
        };
        let root_device = match self.ec2.root_device(&self.spec.ami).await {
            Ok(root_device) => root_device,
            Err(error) => return ResourceFinding::of_failure(path, &error),
        };
        let order = Order {
            spec: &self.spec,
            machine: NOBODY,
            uid: NOBODY,
            owner: NOBODY,
            token: NOBODY,
            user_data: &user_data.sent,
            root_device: &root_device,
            placement: None,
        };
        match self.ec2.try_run(&order).await {
            Ok(()) => ResourceFinding::present(path, "EC2 would create a VM"),
            Err(error) => ResourceFinding::of_failure(path, &error),
        }
    }
}

fn security_group(path: &str, id: &str, group: Option<&Group>, subnet: Option<&Subnet>) -> ResourceFinding {
    match (group, subnet) {
        (None, _) => ResourceFinding::missing(path, format!("there is no security group {id}")),
        (Some(group), Some(subnet)) if group.vpc != subnet.vpc => {
            let (theirs, other) = (&group.vpc, &subnet.vpc);
            ResourceFinding::missing(path, format!("security group {id} is of {theirs}, the subnet of {other}"))
        }
        _ => ResourceFinding::present(path, format!("security group {id} exists")),
    }
}

impl Ec2 {
    /// The ARN of the user or role that the credentials belong to.
    async fn identity(&self) -> Result<String, DriverError> {
        let send = || self.account.sts.get_caller_identity().send();
        self.call("GetCallerIdentity", reading("get_caller_identity"), send, |answer| answer.arn).await
    }

    /// [`Code::InvalidArgument`] if no instance profile has this name.
    async fn instance_profile(&self, name: &str) -> Result<(), DriverError> {
        let what = format!("GetInstanceProfile of {name}");
        self.account.iam.instance_profile(name).await.map_err(|failure| failure.error_of_creation(&what, &self.secret))
    }

    /// The zones of the region that offer a type.
    async fn zones_of(&self, machine_type: &str) -> Result<BTreeSet<String>, DriverError> {
        let send = || {
            let request = self.account.ec2.describe_instance_type_offerings();
            request
                .location_type(LocationType::AvailabilityZone)
                .filters(filter("instance-type", [machine_type]))
                .send()
        };
        self.call("DescribeInstanceTypeOfferings", reading("instance_type_offerings_get"), send, |answer| {
            Some(answer.instance_type_offerings?.into_iter().filter_map(|offering| offering.location).collect())
        })
        .await
    }

    // Unlike parameters, filters do not fail for what does not exist.

    async fn images(&self, ami: &str) -> Result<Vec<Image>, DriverError> {
        let send = || self.account.ec2.describe_images().filters(filter("image-id", [ami])).send();
        self.call("DescribeImages", reading(DESCRIBE), send, |answer| answer.images).await
    }

    async fn key_pairs(&self, name: &str) -> Result<Vec<KeyPairInfo>, DriverError> {
        let send = || self.account.ec2.describe_key_pairs().filters(filter("key-name", [name])).send();
        self.call("DescribeKeyPairs", reading(DESCRIBE), send, |answer| answer.key_pairs).await
    }

    pub(super) async fn subnets(&self, ids: &BTreeSet<&String>) -> Result<Vec<Subnet>, DriverError> {
        let send = || self.account.ec2.describe_subnets().filters(filter("subnet-id", ids.iter().copied())).send();
        self.call("DescribeSubnets", reading(DESCRIBE), send, |answer| {
            answer.subnets?.iter().map(Subnet::from_api).collect()
        })
        .await
    }

    async fn groups(&self, ids: &BTreeSet<&String>) -> Result<Vec<Group>, DriverError> {
        let send =
            || self.account.ec2.describe_security_groups().filters(filter("group-id", ids.iter().copied())).send();
        self.call("DescribeSecurityGroups", reading(DESCRIBE), send, |answer| {
            answer.security_groups?.iter().map(Group::from_api).collect()
        })
        .await
    }

    async fn try_run(&self, order: &Order<'_>) -> Result<(), DriverError> {
        let send = || order.request().dry_run(true).send_with(&self.account.ec2);
        match self.send(writing("instance_create"), send, |_| Some(())).await {
            Err(failure) if failure.is(WOULD_SUCCEED) => Ok(()),
            Err(failure) => Err(failure.error_of_creation("a dry run of RunInstances", &self.secret)),
            Ok(()) => Err(DriverError::new(Code::Internal, "EC2 ignored that RunInstances was a dry run")),
        }
    }
}
