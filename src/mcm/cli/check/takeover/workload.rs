//! The Deployment of the Go programs. Pure.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container as PodContainer, PodSpec},
};
use kube::ResourceExt;

use crate::cli::flags::{ControlKubeconfig, GoFlags, ReadFlags, TargetKubeconfig};

/// Grace period of a pod that names none, in seconds.
const GRACE: i64 = 30;
const MANAGER: &str = "machine-controller-manager";
/// The program with a driver.
pub(super) const MACHINE_CONTROLLER: &str = "machine-controller";
/// Images and containers of machine controllers are named after their cloud.
const PROVIDER: &str = "machine-controller-manager-provider-";

/// A Deployment.
pub(super) struct GoDeployment {
    pub name: String,
    /// Two pods may run at the same time while it is changed.
    pub overlaps: bool,
    /// Of its pods, in seconds.
    pub grace: i64,
    pub service_account: String,
    /// Its containers that run a Go program.
    pub containers: Vec<GoContainer>,
    /// Gardener writes it, and restores it after each change of others.
    pub is_of_gardener: bool,
}

/// A container that runs a Go program.
pub(super) struct GoContainer {
    pub name: String,
    /// The program that it replaces.
    pub program: &'static str,
    /// The program is named, so that it does not depend on the image.
    pub has_command: bool,
    /// `None` if they are in a script.
    pub flags: Option<GoFlags>,
}

impl GoDeployment {
    pub(super) fn from_deployment(deployment: &Deployment, read: ReadFlags) -> Self {
        let spec = deployment.spec.clone().unwrap_or_default();
        let of_pod = spec.template.metadata.and_then(|metadata| metadata.labels);
        let pod = spec.template.spec.unwrap_or_default();
        let strategy = spec.strategy.and_then(|strategy| strategy.type_);
        Self {
            name: deployment.name_any(),
            overlaps: strategy.as_deref() != Some("Recreate") || spec.replicas.unwrap_or(1) > 1,
            grace: pod.termination_grace_period_seconds.unwrap_or(GRACE),
            service_account: service_account(&pod),
            containers: pod
                .containers
                .iter()
                .filter_map(|container| GoContainer::from_container(container, read))
                .collect(),
            is_of_gardener: [&deployment.metadata.labels, &of_pod].into_iter().flatten().any(are_of_gardener),
        }
    }

    /// The pods use one cluster for everything.
    pub(super) fn has_one_cluster(&self) -> bool {
        self.options().all(|options| {
            matches!(
                (&options.control_kubeconfig, &options.target_kubeconfig),
                (ControlKubeconfig::SameAsTarget | ControlKubeconfig::InCluster, TargetKubeconfig::InCluster)
                    | (_, TargetKubeconfig::None)
            )
        })
    }

    /// Every container elects a leader.
    pub(super) fn elects(&self) -> bool {
        self.options().all(|options| options.leader_election.enabled)
    }

    /// Duration of a Lease that is not released.
    pub(super) fn lease(&self) -> Option<Duration> {
        self.options().map(|options| options.leader_election.lease_duration).max()
    }

    fn options(&self) -> impl Iterator<Item = &crate::cli::flags::GenericOptions> {
        let flags = self.containers.iter().filter_map(|container| container.flags.as_ref());
        flags.filter_map(|flags| flags.options.as_deref().ok())
    }
}

/// True for labels of an object that Gardener or one of its extensions made: `gardener.cloud/role`, and keys of its domains such as
/// `extensions.gardener.cloud/provider`.
pub(super) fn are_of_gardener(labels: &BTreeMap<String, String>) -> bool {
    let domains = labels.keys().filter_map(|key| key.split_once('/')).map(|(domain, _)| domain);
    domains.into_iter().any(|domain| domain == "gardener.cloud" || domain.ends_with(".gardener.cloud"))
}

fn service_account(pod: &PodSpec) -> String {
    let name = pod.service_account_name.as_ref().or(pod.service_account.as_ref());
    name.filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| "default".to_owned())
}

impl GoContainer {
    fn from_container(container: &PodContainer, read: ReadFlags) -> Option<Self> {
        let words: Vec<String> = [&container.command, &container.args]
            .into_iter()
            .flatten()
            .flatten()
            .map(|word| expanded(word, container))
            .collect();
        let command = container.command.as_ref().and_then(|command| command.first());
        let image = container.image.as_deref().unwrap_or_default();
        let named = command.and_then(|command| program_of(command));
        let program = named.or_else(|| program_of(image_name(image))).or_else(|| program_of(&container.name))?;
        let flags = match (command, named) {
            (None, _) => read(program, &words),
            (Some(_), Some(_)) => read(program, &words[1..]),
            (Some(_), None) => None,
        };
        Some(Self { name: container.name.clone(), program, has_command: command.is_some(), flags })
    }
}

/// The Go program with the name of a command, an image or a container.
fn program_of(name: &str) -> Option<&'static str> {
    let name = name.rsplit('/').next().unwrap_or(name);
    match name {
        MANAGER => Some(MANAGER),
        MACHINE_CONTROLLER => Some(MACHINE_CONTROLLER),
        _ => name.starts_with(PROVIDER).then_some(MACHINE_CONTROLLER),
    }
}

/// The name of an image without its registry, tag and digest.
fn image_name(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split(':').next().unwrap_or(name)
}

/// A word with the variables `$(NAME)` that the manifest itself defines.
fn expanded(word: &str, container: &PodContainer) -> String {
    let mut text = word.to_owned();
    for variable in container.env.iter().flatten() {
        if let Some(value) = &variable.value {
            text = text.replace(&format!("$({})", variable.name), value);
        }
    }
    text
}
