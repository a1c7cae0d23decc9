//! What a class needs of AWS, and whether it is there. All calls are read-only; a creation is only tried.

use std::collections::BTreeSet;

use futures::join;
use roxmltree::Node;

use super::{
    Session,
    calls::{EC2_VERSION, Ec2},
    query::{Query, items, text_of},
    run::Order,
};
use crate::driver::{DriverError, code::Code, inspection::Finding};

const IAM_VERSION: &str = "2010-05-08";
/// EC2's answer to a dry run of what would succeed.
const WOULD_SUCCEED: &str = "DryRunOperation";
/// Appears in no VM, because none is created.
const NOBODY: &str = "class-check";

/// A subnet of the account.
struct Subnet {
    id: String,
    vpc: String,
    zone: String,
    free_addresses: u64,
}

/// A security group of the account.
struct Group {
    id: String,
    vpc: String,
}

impl Session {
    /// Looks for everything that the class needs.
    pub(super) async fn inspect(&self, user_data: Result<&[u8], DriverError>) -> Vec<Finding> {
        let identity = match self.ec2.identity().await {
            // Everything else would fail for the same reason.
            Err(error) if error.code == Code::Unauthenticated => return vec![Finding::of_failure("Secret", &error)],
            Err(error) => Finding::of_failure("Secret", &error),
            Ok(identity) => Finding::present("Secret", format!("the credentials are those of {identity}")),
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

    async fn image(&self) -> Finding {
        let (path, ami) = ("providerSpec.ami", &self.spec.ami);
        let read = |image: Node<'_, '_>| {
            let of = |name| text_of(image, name).unwrap_or("unknown").to_owned();
            Some((of("imageState"), of("architecture"), of("name")))
        };
        match self.ec2.described("DescribeImages", "imagesSet", ("image-id", [ami].into()), read).await {
            Err(error) => Finding::of_failure(path, &error),
            Ok(images) => match images.first() {
                None => Finding::missing(path, format!("there is no image {ami} in {}", self.spec.region)),
                Some((state, _, _)) if state != "available" && state != "unknown" => {
                    Finding::missing(path, format!("image {ami} is {state}"))
                }
                Some((_, architecture, name)) => Finding::present(path, format!("{name}, {architecture}")),
            },
        }
    }

    /// A VM needs a subnet in a zone that offers its type.
    async fn type_and_network(&self) -> Vec<Finding> {
        let interfaces = &self.spec.network_interfaces;
        let subnets: BTreeSet<&String> = interfaces.iter().map(|interface| &interface.subnet_id).collect();
        let groups: BTreeSet<&String> = interfaces.iter().flat_map(|interface| &interface.security_group_ids).collect();
        let (zones, subnets, groups) =
            join!(self.ec2.zones_of(&self.spec.machine_type), self.ec2.subnets(&subnets), self.ec2.groups(&groups));
        let mut findings = vec![self.machine_type(&zones)];
        let subnets = match subnets {
            Ok(subnets) => subnets,
            Err(error) => {
                findings.push(Finding::of_failure("providerSpec.networkInterfaces", &error));
                return findings;
            }
        };
        for (index, interface) in interfaces.iter().enumerate() {
            let path = format!("providerSpec.networkInterfaces[{index}]");
            let subnet = subnets.iter().find(|subnet| subnet.id == interface.subnet_id);
            findings.push(self.subnet(format!("{path}.subnetID"), &interface.subnet_id, subnet, zones.as_ref().ok()));
            let path = format!("{path}.securityGroupIDs");
            match &groups {
                Err(error) => findings.push(Finding::of_failure(path, error)),
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

    fn machine_type(&self, zones: &Result<BTreeSet<String>, DriverError>) -> Finding {
        let (path, name) = ("providerSpec.machineType", &self.spec.machine_type);
        match zones {
            Err(error) => Finding::of_failure(path, error),
            Ok(zones) if zones.is_empty() => {
                Finding::missing(path, format!("{} does not offer {name}", self.spec.region))
            }
            Ok(zones) => {
                let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
                Finding::present(path, format!("offered in {}", zones.join(", ")))
            }
        }
    }

    fn subnet(&self, path: String, id: &str, subnet: Option<&Subnet>, zones: Option<&BTreeSet<String>>) -> Finding {
        let Some(subnet) = subnet else { return Finding::missing(path, format!("there is no subnet {id}")) };
        let Subnet { zone, free_addresses, .. } = subnet;
        if *free_addresses == 0 {
            return Finding::missing(path, format!("subnet {id} has no free address"));
        }
        if zones.is_some_and(|zones| !zones.is_empty() && !zones.contains(zone)) {
            let name = &self.spec.machine_type;
            return Finding::missing(path, format!("subnet {id} is in {zone}, which does not offer {name}"));
        }
        Finding::present(path, format!("{zone}, {free_addresses} free addresses"))
    }

    async fn key_pair(&self) -> Option<Finding> {
        let (path, name) = ("providerSpec.keyName", self.spec.key_name.as_ref()?);
        let read = |pair: Node<'_, '_>| text_of(pair, "keyName").map(str::to_owned);
        let pairs = self.ec2.described("DescribeKeyPairs", "keySet", ("key-name", [name].into()), read).await;
        Some(match pairs {
            Err(error) => Finding::of_failure(path, &error),
            Ok(pairs) if pairs.is_empty() => Finding::missing(path, format!("there is no key pair {name}")),
            Ok(_) => Finding::present(path, "the key pair exists"),
        })
    }

    async fn instance_profile(&self) -> Option<Finding> {
        let arn = self.spec.profile_arn.as_deref();
        let name = self.spec.profile_name.as_deref().or_else(|| arn?.rsplit('/').next())?;
        let path = if arn.is_some() { "providerSpec.iam.arn" } else { "providerSpec.iam.name" };
        Some(match self.ec2.instance_profile(name).await {
            Ok(()) => Finding::present(path, "the instance profile exists"),
            Err(error) => Finding::of_failure(path, &error),
        })
    }

    /// Asks EC2 whether it would create a VM. It does not look at quotas and stock.
    async fn dry_run(&self, user_data: Result<&[u8], DriverError>) -> Finding {
        let path = "providerSpec";
        let user_data = match user_data {
            Ok(user_data) => user_data,
            Err(error) => return Finding::of_failure("Secret", &error),
        };
        let root_device = match self.ec2.root_device(&self.spec.ami).await {
            Ok(root_device) => root_device,
            Err(error) => return Finding::of_failure(path, &error),
        };
        let order = Order {
            spec: &self.spec,
            machine: NOBODY,
            uid: NOBODY,
            owner: NOBODY,
            token: NOBODY,
            user_data,
            root_device: &root_device,
            placement: None,
        };
        match self.ec2.try_run(&order).await {
            Ok(()) => Finding::present(path, "EC2 would create a VM"),
            Err(error) => Finding::of_failure(path, &error),
        }
    }
}

fn security_group(path: &str, id: &str, group: Option<&Group>, subnet: Option<&Subnet>) -> Finding {
    match (group, subnet) {
        (None, _) => Finding::missing(path, format!("there is no security group {id}")),
        (Some(group), Some(subnet)) if group.vpc != subnet.vpc => {
            let (theirs, other) = (&group.vpc, &subnet.vpc);
            Finding::missing(path, format!("security group {id} is of {theirs}, the subnet of {other}"))
        }
        _ => Finding::present(path, format!("security group {id} exists")),
    }
}

impl Ec2 {
    /// Whose credentials these are.
    async fn identity(&self) -> Result<String, DriverError> {
        let query = Query::new("GetCallerIdentity", "2011-06-15", "get_caller_identity");
        let read = |answer: Node<'_, '_>| {
            let arn = answer.descendants().find(|node| node.tag_name().name() == "Arn")?;
            Some(arn.text()?.to_owned())
        };
        self.call_at(&self.account.sts, "GetCallerIdentity", &query, read).await
    }

    /// [`Code::InvalidArgument`] if there is none with this name.
    async fn instance_profile(&self, name: &str) -> Result<(), DriverError> {
        let mut query = Query::new("GetInstanceProfile", IAM_VERSION, "instance_profile_get");
        query.set("InstanceProfileName", name);
        let what = format!("GetInstanceProfile of {name}");
        self.call_at(&self.account.iam, &what, &query, |_| Some(())).await
    }

    /// The zones of the region that offer a type.
    async fn zones_of(&self, machine_type: &str) -> Result<BTreeSet<String>, DriverError> {
        const ACTION: &str = "DescribeInstanceTypeOfferings";
        let mut query = Query::new(ACTION, EC2_VERSION, "instance_type_offerings_get");
        query.set("LocationType", "availability-zone");
        query.set("Filter.1.Name", "instance-type");
        query.set("Filter.1.Value.1", machine_type);
        let read = |answer: Node<'_, '_>| {
            let offerings = items(answer, "instanceTypeOfferingSet");
            Some(offerings.filter_map(|offering| text_of(offering, "location").map(str::to_owned)).collect())
        };
        self.call(ACTION, &query, read).await
    }

    async fn subnets(&self, ids: &BTreeSet<&String>) -> Result<Vec<Subnet>, DriverError> {
        let read = |subnet: Node<'_, '_>| {
            let of = |name| text_of(subnet, name).map(str::to_owned);
            let free_addresses = text_of(subnet, "availableIpAddressCount")?.parse().ok()?;
            Some(Subnet { id: of("subnetId")?, vpc: of("vpcId")?, zone: of("availabilityZone")?, free_addresses })
        };
        self.described("DescribeSubnets", "subnetSet", ("subnet-id", ids.clone()), read).await
    }

    async fn groups(&self, ids: &BTreeSet<&String>) -> Result<Vec<Group>, DriverError> {
        let read = |group: Node<'_, '_>| {
            let of = |name| text_of(group, name).map(str::to_owned);
            Some(Group { id: of("groupId")?, vpc: of("vpcId")? })
        };
        self.described("DescribeSecurityGroups", "securityGroupInfo", ("group-id", ids.clone()), read).await
    }

    /// What exists of some objects. Unlike parameters, filters do not fail for what does not exist.
    async fn described<T>(
        &self,
        action: &'static str,
        list: &str,
        (filter, values): (&str, BTreeSet<&String>),
        read: impl Fn(Node<'_, '_>) -> Option<T>,
    ) -> Result<Vec<T>, DriverError> {
        let mut query = Query::new(action, EC2_VERSION, "describe");
        query.set("Filter.1.Name", filter);
        for (index, value) in (1_usize..).zip(values) {
            query.set(format!("Filter.1.Value.{index}"), value);
        }
        let all = |answer: Node<'_, '_>| items(answer, list).map(&read).collect::<Option<Vec<T>>>();
        self.call(action, &query, all).await
    }

    async fn try_run(&self, order: &Order<'_>) -> Result<(), DriverError> {
        let mut query = Query::new("RunInstances", EC2_VERSION, "instance_create");
        order.write(&mut query);
        query.set("DryRun", true);
        match self.send(&self.account.service, &query, |_| Some(())).await {
            Err(failure) if failure.is(WOULD_SUCCEED) => Ok(()),
            Err(failure) => Err(failure.error("a dry run of RunInstances", &self.secret)),
            Ok(()) => Err(DriverError::new(Code::Internal, "EC2 ignored that RunInstances was a dry run")),
        }
    }
}
