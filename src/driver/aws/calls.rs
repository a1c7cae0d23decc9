//! The calls of EC2: nothing is decided here.

use std::{collections::BTreeSet, sync::Arc};

use roxmltree::Node;

use super::{
    accounts::Account,
    instance::Instance,
    query::{Query, child, items, text_of},
    run::Order,
    spec::Scope,
    transport::{Service, Transport},
};
use crate::driver::{
    DriverError, SecretData,
    cloud::{Failure, Pages},
    code::Code,
};

pub(super) const EC2_VERSION: &str = "2016-11-15";
/// States of VMs that exist.
const ALIVE: [&str; 4] = ["pending", "running", "stopping", "stopped"];
/// A filter takes at most so many values.
const MOST_VALUES: usize = 200;
/// VMs per page.
const PAGE: u32 = 1000;

/// EC2 in one region with one account.
#[derive(Clone)]
pub(super) struct Ec2 {
    pub transport: Arc<Transport>,
    pub account: Arc<Account>,
    /// What no text may contain.
    pub secret: SecretData,
}

/// A name and the values of which a VM must have one.
type Filter<'a> = (&'a str, Vec<&'a str>);

impl Ec2 {
    /// The existing VMs of a class.
    pub(super) async fn alive(&self, scope: &Scope) -> Result<Vec<Instance>, DriverError> {
        let [cluster, role] = markers(scope);
        let filters = [cluster, role, ("instance-state-name", ALIVE.to_vec())];
        self.instances("instance_get_by_tag_and_status", &filters).await
    }

    /// The VMs of a class with one of these names, also those that are gone.
    pub(super) async fn named(&self, scope: &Scope, names: &BTreeSet<String>) -> Result<Vec<Instance>, DriverError> {
        let [cluster, role] = markers(scope);
        // More names than fit: all VMs of the class.
        if names.len() > MOST_VALUES {
            return self.instances("instance_get_by_machine", &[cluster, role]).await;
        }
        let filters = [("tag:Name", names.iter().map(String::as_str).collect()), cluster, role];
        self.instances("instance_get_by_machine", &filters).await
    }

    /// The VM with an ID, if EC2 knows it. Unlike the parameter, the filter does not fail for an unknown one.
    pub(super) async fn with_id(&self, id: &str) -> Result<Option<Instance>, DriverError> {
        let found = self.instances("instance_get_by_id", &[("instance-id", vec![id])]).await?;
        Ok(found.into_iter().find(|instance| instance.id == id))
    }

    /// The VM that a request with this token created, if EC2 knows it.
    pub(super) async fn with_token(&self, token: &str) -> Result<Option<Instance>, DriverError> {
        let found = self.instances("instance_get_by_token", &[("client-token", vec![token])]).await?;
        Ok(found.into_iter().find(|instance| instance.client_token == token))
    }

    async fn instances(&self, service: &'static str, filters: &[Filter<'_>]) -> Result<Vec<Instance>, DriverError> {
        const ACTION: &str = "DescribeInstances";
        let mut pages = Pages::new(ACTION);
        loop {
            let mut query = Query::new(ACTION, EC2_VERSION, service);
            for (number, (name, values)) in (1_usize..).zip(filters) {
                query.set(format!("Filter.{number}.Name"), name);
                for (index, value) in (1_usize..).zip(values) {
                    query.set(format!("Filter.{number}.Value.{index}"), value);
                }
            }
            query.set("MaxResults", PAGE);
            query.maybe("NextToken", pages.token());
            let read = |answer: Node<'_, '_>| {
                child(answer, "reservationSet")?;
                let all: Option<Vec<Instance>> = items(answer, "reservationSet").flat_map(instances_of).collect();
                Some((all?, text_of(answer, "nextToken").map(str::to_owned)))
            };
            let (instances, next) = self.call(ACTION, &query, read).await.map_err(never_absent)?;
            if pages.add(instances, next)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// What an image calls its root device.
    pub(super) async fn root_device(&self, ami: &str) -> Result<String, DriverError> {
        let mut query = Query::new("DescribeImages", EC2_VERSION, "image_get");
        query.set("ImageId.1", ami);
        let what = format!("DescribeImages of {ami}");
        let read = |answer: Node<'_, '_>| {
            child(answer, "imagesSet")?;
            let image = items(answer, "imagesSet").next();
            Some(image.map(|image| text_of(image, "rootDeviceName").map(str::to_owned)))
        };
        match self.call(&what, &query, read).await? {
            Some(Some(name)) => Ok(name),
            Some(None) => Err(DriverError::new(Code::Internal, format!("{what} failed: it has no root device"))),
            None => Err(DriverError::new(Code::NotFound, format!("{what} failed: there is no such image"))),
        }
    }

    /// Creates a VM, or returns the one of an earlier request with the same token.
    pub(super) async fn run(&self, order: &Order<'_>) -> Result<Instance, Failure> {
        let mut query = Query::new("RunInstances", EC2_VERSION, "instance_create");
        order.write(&mut query);
        self.send(&self.account.service, &query, |answer: Node<'_, '_>| instances_of(answer).into_iter().next()?).await
    }

    /// Terminates a VM. One that is gone is a success.
    pub(super) async fn terminate(&self, id: &str) -> Result<(), DriverError> {
        let mut query = Query::new("TerminateInstances", EC2_VERSION, "instance_terminate");
        query.set("InstanceId.1", id);
        match self.call(&format!("TerminateInstances of {id}"), &query, |_| Some(())).await {
            Err(error) if error.code != Code::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) async fn disable_source_dest_check(&self, interface: &str) -> Result<(), DriverError> {
        const ACTION: &str = "ModifyNetworkInterfaceAttribute";
        let mut query = Query::new(ACTION, EC2_VERSION, "instance_disable_source_dest_check");
        query.set("NetworkInterfaceId", interface);
        query.set("SourceDestCheck.Value", false);
        self.call(&format!("{ACTION} of {interface}"), &query, |_| Some(())).await
    }

    pub(super) async fn assign_ipv6_prefixes(&self, interface: &str, count: i32) -> Result<(), DriverError> {
        const ACTION: &str = "AssignIpv6Addresses";
        let mut query = Query::new(ACTION, EC2_VERSION, "instance_assign_ipv6_prefixes");
        query.set("NetworkInterfaceId", interface);
        query.set("Ipv6PrefixCount", count);
        self.call(&format!("{ACTION} of {interface}"), &query, |_| Some(())).await
    }

    /// Gives a VM tags, keys and values.
    pub(super) async fn create_tags(&self, id: &str, tags: &[(&str, &str)]) -> Result<(), DriverError> {
        let mut query = Query::new("CreateTags", EC2_VERSION, "instance_create_tags");
        query.set("ResourceId.1", id);
        for (number, (key, value)) in (1_usize..).zip(tags) {
            query.set(format!("Tag.{number}.Key"), key);
            query.set(format!("Tag.{number}.Value"), value);
        }
        self.call(&format!("CreateTags of {id}"), &query, |_| Some(())).await
    }

    /// Takes the tags with these keys from a VM.
    pub(super) async fn delete_tags(&self, id: &str, keys: &[&str]) -> Result<(), DriverError> {
        let mut query = Query::new("DeleteTags", EC2_VERSION, "instance_delete_tags");
        query.set("ResourceId.1", id);
        for (number, key) in (1..).zip(keys) {
            query.set(format!("Tag.{number}.Key"), key);
        }
        self.call(&format!("DeleteTags of {id}"), &query, |_| Some(())).await
    }

    pub(super) async fn call<T>(
        &self,
        what: &str,
        query: &Query,
        read: impl Fn(Node<'_, '_>) -> Option<T>,
    ) -> Result<T, DriverError> {
        self.call_at(&self.account.service, what, query, read).await
    }

    /// Calls another service than EC2 with the same credentials.
    pub(super) async fn call_at<T>(
        &self,
        service: &Service,
        what: &str,
        query: &Query,
        read: impl Fn(Node<'_, '_>) -> Option<T>,
    ) -> Result<T, DriverError> {
        self.send(service, query, read).await.map_err(|failure| failure.error(what, &self.secret))
    }

    pub(super) async fn send<T>(
        &self,
        service: &Service,
        query: &Query,
        read: impl Fn(Node<'_, '_>) -> Option<T>,
    ) -> Result<T, Failure> {
        let account = &self.account;
        let keys = account.keys(&self.transport).await?;
        let limiter = if query.is_read() { &account.limiters.reads } else { &account.limiters.writes };
        let answer = self.transport.call(limiter, service, Some(&keys), query, read).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            account.forget(&keys).await;
        }
        answer
    }
}

/// Both markers, each as a filter of its own: a VM must have both.
fn markers(scope: &Scope) -> [Filter<'_>; 2] {
    [&scope.markers.cluster, &scope.markers.role].map(|key| ("tag-key", vec![key.as_str()]))
}

/// Filters do not fail for what does not exist: such an error says nothing about a VM.
fn never_absent(error: DriverError) -> DriverError {
    let code = if error.code == Code::NotFound { Code::Unknown } else { error.code };
    DriverError { code, ..error }
}

/// The instances of a reservation; `None` for one that cannot be read.
fn instances_of(reservation: Node<'_, '_>) -> Vec<Option<Instance>> {
    items(reservation, "instancesSet").map(Instance::of).collect()
}
