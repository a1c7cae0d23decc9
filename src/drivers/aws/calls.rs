//! The calls of EC2: nothing is decided here.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aws_sdk_ec2::{
    error::{ProvideErrorMetadata, SdkError},
    operation::describe_instances::DescribeInstancesOutput,
    types::{self, AttributeBooleanValue, Tag},
};

use super::{
    accounts::Account,
    errors::{failure_of, may_pass},
    instance::Instance,
    kind::{Kind, reading, writing},
    names::GROUP_TAG,
    run::Order,
    spec::Scope,
};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{CloudFailure, PageCollector, pause_of},
    code::Code,
};

/// States of VMs that exist.
const ALIVE: [&str; 4] = ["pending", "running", "stopping", "stopped"];
/// A filter takes at most so many values.
const MOST_VALUES: usize = 200;
/// VMs per page.
const PAGE: i32 = 1000;

/// EC2 in one region with one account.
#[derive(Clone)]
pub(super) struct Ec2 {
    pub account: Arc<Account>,
    /// Values that no text may contain.
    pub secret: SecretData,
}

impl Ec2 {
    /// The existing VMs of a class.
    pub(super) async fn alive(&self, scope: &Scope) -> Result<Vec<Instance>, DriverError> {
        let [cluster, role] = markers(scope);
        let filters = vec![cluster, role, filter("instance-state-name", ALIVE)];
        self.instances("instance_get_by_tag_and_status", filters).await
    }

    /// The VMs of a class with one of these names, including terminated VMs.
    pub(super) async fn named(&self, scope: &Scope, names: &BTreeSet<String>) -> Result<Vec<Instance>, DriverError> {
        let [cluster, role] = markers(scope);
        // More names than fit: all VMs of the class.
        if names.len() > MOST_VALUES {
            return self.instances("instance_get_by_machine", vec![cluster, role]).await;
        }
        self.instances("instance_get_by_machine", vec![filter("tag:Name", names), cluster, role]).await
    }

    /// The existing VMs of an Auto Scaling group.
    pub(super) async fn members(&self, group: &str) -> Result<Vec<Instance>, DriverError> {
        let of_group = filter(&format!("tag:{GROUP_TAG}"), [group]);
        self.instances("instance_get_by_group", vec![of_group, filter("instance-state-name", ALIVE)]).await
    }

    /// The VMs with these IDs that EC2 shows. Unlike the parameter, the filter does not fail for an unknown one.
    pub(super) async fn with_ids(&self, ids: &BTreeSet<String>) -> Result<Vec<Instance>, DriverError> {
        let ids: Vec<&String> = ids.iter().collect();
        let mut found = Vec::new();
        for some in ids.chunks(MOST_VALUES) {
            found
                .extend(self.instances("instance_get_by_id", vec![filter("instance-id", some.iter().copied())]).await?);
        }
        Ok(found)
    }

    /// The VM that a request with this token created, if EC2 shows it.
    pub(super) async fn with_token(&self, token: &str) -> Result<Option<Instance>, DriverError> {
        let found = self.instances("instance_get_by_token", vec![filter("client-token", [token])]).await?;
        Ok(found.into_iter().find(|instance| instance.client_token == token))
    }

    async fn instances(
        &self,
        service: &'static str,
        filters: Vec<types::Filter>,
    ) -> Result<Vec<Instance>, DriverError> {
        const ACTION: &str = "DescribeInstances";
        let mut pages = PageCollector::new(ACTION);
        loop {
            let send = || {
                let request =
                    self.account.ec2.describe_instances().set_filters(Some(filters.clone())).max_results(PAGE);
                request.set_next_token(pages.token().map(str::to_owned)).send()
            };
            let found = self.send(reading(service), send, page).await;
            let (instances, next) = found.map_err(|failure| failure.error(ACTION, &self.secret))?;
            if pages.add(instances, next)? {
                return Ok(pages.into_items());
            }
        }
    }

    /// Name of the root device of an image.
    pub(super) async fn root_device(&self, ami: &str) -> Result<String, DriverError> {
        let what = format!("DescribeImages of {ami}");
        let send = || self.account.ec2.describe_images().image_ids(ami).send();
        let first = self.send(reading("image_get"), send, |answer| Some(answer.images?.into_iter().next())).await;
        let image = CloudFailure::found(first).map_err(|failure| failure.error(&what, &self.secret))?.flatten();
        match image.map(|image| image.root_device_name.unwrap_or_default()) {
            Some(name) if !name.is_empty() => Ok(name),
            Some(_) => Err(DriverError::new(Code::Internal, format!("{what} failed: it has no root device"))),
            None => Err(DriverError::new(Code::NotFound, format!("{what} failed: there is no such image"))),
        }
    }

    /// Creates a VM, or returns the VM of an earlier request with the same token.
    pub(super) async fn run(&self, order: &Order<'_>) -> Result<Instance, CloudFailure> {
        let send = || order.request().send_with(&self.account.ec2);
        self.send(writing("instance_create"), send, |answer| Instance::from_api(answer.instances?.first()?)).await
    }

    /// Terminates a VM. An absent VM is a success.
    pub(super) async fn terminate(&self, id: &str) -> Result<(), DriverError> {
        let send = || self.account.ec2.terminate_instances().instance_ids(id).send();
        let terminated = CloudFailure::found(self.send(writing("instance_terminate"), send, |_| Some(())).await);
        terminated.map(drop).map_err(|failure| failure.error(&format!("TerminateInstances of {id}"), &self.secret))
    }

    pub(super) async fn disable_source_dest_check(&self, interface: &str) -> Result<(), DriverError> {
        let off = AttributeBooleanValue::builder().value(false).build();
        let send = || {
            let request = self.account.ec2.modify_network_interface_attribute().network_interface_id(interface);
            request.source_dest_check(off.clone()).send()
        };
        let what = format!("ModifyNetworkInterfaceAttribute of {interface}");
        self.change(&what, "instance_disable_source_dest_check", send).await
    }

    pub(super) async fn assign_ipv6_prefixes(&self, interface: &str, count: i32) -> Result<(), DriverError> {
        let send =
            || self.account.ec2.assign_ipv6_addresses().network_interface_id(interface).ipv6_prefix_count(count).send();
        self.change(&format!("AssignIpv6Addresses of {interface}"), "instance_assign_ipv6_prefixes", send).await
    }

    /// Gives a VM tags, keys and values.
    pub(super) async fn create_tags(&self, id: &str, tags: &[(&str, &str)]) -> Result<(), DriverError> {
        let tags: Vec<Tag> = tags.iter().map(|(key, value)| Tag::builder().key(*key).value(*value).build()).collect();
        let send = || self.account.ec2.create_tags().resources(id).set_tags(Some(tags.clone())).send();
        self.change(&format!("CreateTags of {id}"), "instance_create_tags", send).await
    }

    /// Takes the tags with these keys from a VM.
    pub(super) async fn delete_tags(&self, id: &str, keys: &[&str]) -> Result<(), DriverError> {
        let tags: Vec<Tag> = keys.iter().map(|key| Tag::builder().key(*key).build()).collect();
        let send = || self.account.ec2.delete_tags().resources(id).set_tags(Some(tags.clone())).send();
        self.change(&format!("DeleteTags of {id}"), "instance_delete_tags", send).await
    }

    async fn change<T, E, F>(&self, what: &str, service: &'static str, send: impl Fn() -> F) -> Result<(), DriverError>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        self.call(what, writing(service), send, |_| Some(())).await
    }

    /// Sends a request until there is an answer that can be read. `what` describes the attempt.
    pub(super) async fn call<T, U, E, F>(
        &self,
        what: &str,
        kind: Kind,
        send: impl Fn() -> F,
        read: impl Fn(T) -> Option<U>,
    ) -> Result<U, DriverError>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        self.send(kind, send, read).await.map_err(|failure| failure.error(what, &self.secret))
    }

    /// Repeats a request without a certain outcome. Every action of this driver may be repeated, creations because of their
    /// token.
    pub(super) async fn send<T, U, E, F>(
        &self,
        kind: Kind,
        send: impl Fn() -> F,
        read: impl Fn(T) -> Option<U>,
    ) -> Result<U, CloudFailure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let account = &*self.account;
        // No attempt waits for credentials.
        let keys = account.login.keys().await?;
        let limiter = if kind.is_read { &account.limiters.reads } else { &account.limiters.writes };
        let once = || async {
            match send().await {
                Ok(answer) => read(answer).ok_or(CloudFailure::Unreadable(200)),
                Err(error) => {
                    if let Some(pause) = retry_after(&error) {
                        limiter.pause(pause);
                    }
                    Err(failure_of(&error))
                }
            }
        };
        let answer = account.http.repeat(limiter, kind.service, once, may_pass).await;
        if answer.as_ref().is_err_and(|failure| failure.code() == Code::Unauthenticated) {
            account.login.forget(&keys).await;
        }
        answer
    }
}

/// The VMs in an answer, and the token of the next page. `None` if there is no list, or a VM that cannot be read.
fn page(answer: DescribeInstancesOutput) -> Option<(Vec<Instance>, Option<String>)> {
    let reservations = answer.reservations?;
    let instances = reservations.iter().flat_map(types::Reservation::instances).map(Instance::from_api);
    Some((instances.collect::<Option<_>>()?, answer.next_token))
}

pub(super) fn filter<V: Into<String>>(name: &str, values: impl IntoIterator<Item = V>) -> types::Filter {
    let values = values.into_iter().map(Into::into).collect();
    types::Filter::builder().name(name).set_values(Some(values)).build()
}

/// Both markers, each as a filter of its own: a VM must have both.
fn markers(scope: &Scope) -> [types::Filter; 2] {
    [&scope.markers.cluster, &scope.markers.role].map(|key| filter("tag-key", [key]))
}

/// How long the next calls are to wait.
fn retry_after<E>(error: &SdkError<E>) -> Option<Duration> {
    let answer = error.raw_response()?;
    pause_of(answer.status().as_u16(), answer.headers().get("retry-after")?)
}
