//! `mcm check takeover`: whether the image of the Go programs can be replaced.

mod judge;
mod workload;

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{Api, ResourceExt, api::ListParams};

use self::workload::GoDeployment;
use super::{
    finding::CheckFinding,
    install,
    output::answer,
    read,
    rights::{self, ReviewedIdentity, RuleCluster},
    stored::stored_findings,
};
use crate::cli::{
    exit::CommandAnswer,
    flags::ReadFlags,
    format::OutputOptions,
    reading::{self, ReadingOptions},
};
use mcm_insight::{
    error::{UsageError, error_line},
    read_only::ReadOnlyClients,
    reader,
};

/// Options of the command.
#[derive(Args, Debug)]
pub struct TakeoverOptions {
    #[command(flatten)]
    reading: ReadingOptions,
    /// The Deployment of the Go programs; without it, all of the namespace that run one
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,
    /// The image that will replace theirs, for the command that is printed
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Checks whether the Go programs of a namespace can be replaced.
pub(super) async fn run(options: TakeoverOptions, read_flags: ReadFlags) -> Result<CommandAnswer> {
    let reach = options.reading.reach().await?;
    let control = read::control(&reach).await?;
    let drivers = reading::drivers()?;
    let (mut workloads, unread) = match workloads(&reach, options.deployment.as_deref(), read_flags).await {
        Err(error) if reader::is_forbidden(&error) => (Vec::new(), Some(error)),
        found => (found?, None),
    };
    let namespace = reach.namespace.clone();
    if is_of_gardener(&reach).await {
        workloads.iter_mut().for_each(|workload| workload.is_of_gardener = true);
    }

    let (stored, mut findings) = stored_findings(&reach, &drivers).await?;
    for workload in &workloads {
        findings.extend(permissions(&reach, workload).await);
        findings.extend(judge::flags(workload));
        findings.extend(judge::entry_points(workload));
        findings.extend(judge::grace(workload, &namespace));
        findings.extend(judge::election(workload));
    }
    match unread {
        Some(error) => findings.push(judge::unread_workloads(&error)),
        None if workloads.is_empty() => findings.push(judge::no_workload(&namespace)),
        None => {}
    }
    let managers = reach.leaderships().await.map(|all| all.iter().map(reader::manager).collect());
    findings.extend(judge::leases(&managers.map_err(|error| error_line(&error)), &workloads, Timestamp::now()));
    if let Ok(deployments) = &stored.deployments {
        findings.push(judge::settled(&deployments.objects));
    }
    findings.extend(install::frozen(&stored.frozen(), &namespace));
    findings.push(install::clocks(&control, &install::TargetReachability::None));
    findings.extend(judge::image(options.image.as_deref(), &workloads, &namespace));
    answer("Takeover", &reach, findings, options.output)
}

/// Gardener made the namespace. False if it cannot be read: the labels of the Deployment also show it.
async fn is_of_gardener(reach: &ReadOnlyClients) -> bool {
    let namespaces: Api<Namespace> = Api::all(reach.control.clone());
    let found = namespaces.get_opt(&reach.namespace).await.ok().flatten();
    found.is_some_and(|namespace| workload::are_of_gardener(namespace.labels()))
}

/// Deployments that run a Go program.
async fn workloads(reach: &ReadOnlyClients, wanted: Option<&str>, read_flags: ReadFlags) -> Result<Vec<GoDeployment>> {
    let api: Api<Deployment> = Api::namespaced(reach.control.clone(), &reach.namespace);
    let Some(name) = wanted else {
        let all = api.list(&ListParams::default()).await.context("list deployments")?;
        return Ok(all
            .items
            .iter()
            .map(|one| GoDeployment::from_deployment(one, read_flags))
            .filter(|one| !one.containers.is_empty())
            .collect());
    };
    let found = api.get_opt(name).await.with_context(|| format!("read Deployment {name}"))?;
    let found = found.ok_or_else(|| UsageError {
        message: format!("there is no Deployment {name} in namespace {}", reach.namespace),
        hint: "leave out --deployment to look at all of them".to_owned(),
    })?;
    let workload = GoDeployment::from_deployment(&found, read_flags);
    if workload.containers.is_empty() {
        let hint = "mcm check takeover looks for machine-controller-manager and machine-controller".to_owned();
        return Err(UsageError { message: format!("Deployment {} runs no Go program", found.name_any()), hint }.into());
    }
    Ok(vec![workload])
}

/// The rights of the ServiceAccount of the pods.
async fn permissions(reach: &ReadOnlyClients, workload: &GoDeployment) -> Vec<CheckFinding> {
    let who = ReviewedIdentity::service_account(&reach.namespace, &workload.service_account);
    let same = workload.has_one_cluster().then_some(&reach.control);
    let answers = read::rights(Some(&who), &reach.control, same, &reach.namespace).await;
    let mut findings: Vec<CheckFinding> = [RuleCluster::Control, RuleCluster::Target]
        .into_iter()
        .flat_map(|of| rights::judge(&who, of, &answers))
        .collect();
    if same.is_none() {
        findings.push(judge::target_rights(workload));
    }
    findings
}

#[cfg(test)]
mod tests;
