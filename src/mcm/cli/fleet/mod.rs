//! `mcm fleet`: the control planes of a cluster, the process that serves each, and the trouble of each; `mcm fleet release`.

mod members;
mod release;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::Result;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Namespace};
use kube::{Api, Client, ResourceExt, api::ListParams, core::PartialObjectMeta};

use super::{
    document::JsonDocument,
    exit::{CommandAnswer, CommandExit},
    flags::value,
    format::{OutputFormat, OutputOptions},
    reading::{ClusterOptions, ContextOptions, ReadingOptions},
};
use crate::process::NamespaceSelector;
use mcm_api::machine::{Machine, MachinePhase};
use mcm_controllers::{MACHINES, SETS};
use mcm_insight::{
    error::error_line,
    fleet::{self, FleetAnswer, MachineCount, PlaneFacts, PlaneState},
    read_only::RoleLease,
    reader,
};
use mcm_runtime::{
    dated::DatedObject,
    engaged::switch::{DEPLOYMENT, wanted_replicas},
    guard::GuardedObject,
    leader::is_own_form,
};

/// Options of the command.
#[derive(Args, Debug)]
pub struct FleetViewOptions {
    #[command(subcommand)]
    command: Option<FleetCommand>,
    /// Show only Namespaces with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = value::selector)]
    selector: Option<NamespaceSelector>,
    /// Show each control plane in a terminal, also those without trouble
    #[arg(long)]
    all: bool,
    /// Kubeconfig of the control cluster; if absent, KUBECONFIG, the credentials of this pod, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    context: ContextOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Sub-commands of `mcm fleet`.
#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Free a control plane whose replicas have all ended, so that another manager need not wait for its Leases
    ///
    /// The Leases of a control plane that replicas of mcm run --fleet serve are valid for 15 minutes. While one of the replicas lives,
    /// it takes over by itself, and this command refuses. Exit codes: 0 if the Leases are free, 3 if not, 1 if it could not be found out.
    #[command(
        after_help = "Examples:\n  mcm fleet release shoot--a--one --dry-run\n  mcm fleet release shoot--a--one\n  mcm fleet release shoot--a--one --dead     after all replicas were killed\n\nNext: mcm fleet shows which process serves it then."
    )]
    Release(Box<release::ReleaseOptions>),
}

/// Shows the control planes of a cluster, or frees one.
///
/// # Errors
/// The Leases cannot be listed, nor the Namespaces if there is a selector. A control plane cannot be freed.
pub async fn run(options: FleetViewOptions) -> Result<CommandAnswer> {
    match options.command {
        Some(FleetCommand::Release(options)) => release::run(*options).await,
        None => view(options).await,
    }
}

async fn view(options: FleetViewOptions) -> Result<CommandAnswer> {
    let cluster = ClusterOptions { namespace: None, kubeconfig: options.kubeconfig, context: options.context };
    let reach = ReadingOptions::for_clusters(cluster, "none".to_owned()).reach().await?;
    reach.check().await?;
    let mut unread = Vec::new();
    let mut planes = planes(&reach.control, &mut unread).await?;
    match members::leases(&reach.control, None).await {
        Ok(members) => {
            let leases = planes.values_mut().flat_map(|plane| &mut plane.leases);
            leases.for_each(|lease| members::show_owner(lease, &members));
        }
        Err(error) => unread.push(error_line(&error)),
    }
    if let Some(selector) = &options.selector {
        let selected = selected(&reach.control, selector).await?;
        planes.retain(|namespace, _| selected.contains(namespace));
    }
    let now = Timestamp::now();
    let answer = FleetAnswer { planes: fleet::answers(&planes, is_own_form, now), unread };
    let exit = exit(&answer);
    let text = match options.output.format {
        OutputFormat::Text => report::text(options.output.look(), &reach.place.title_of_all(), &answer, options.all),
        OutputFormat::Json => JsonDocument::new("Fleet", now, answer).pretty()?,
    };
    Ok(CommandAnswer { text, exit })
}

/// No all-clear is given from what could not be read.
fn exit(answer: &FleetAnswer) -> CommandExit {
    let is = |state| answer.planes.iter().any(|plane| plane.state == state);
    if is(PlaneState::Unled) || is(PlaneState::Frozen) {
        CommandExit::No
    } else if is(PlaneState::Unknown) || !answer.unread.is_empty() {
        CommandExit::Failed
    } else {
        CommandExit::Good
    }
}

/// The control planes by namespace: where there is a Lease of a manager, its Deployment, or a Machine.
async fn planes(control: &Client, unread: &mut Vec<String>) -> Result<BTreeMap<String, PlaneFacts>> {
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let mut planes = BTreeMap::<String, PlaneFacts>::new();
    let leases: Api<DatedObject<Lease>> = Api::all(control.clone());
    for role in [MACHINES, SETS] {
        for DatedObject(lease) in reader::pages(&leases, named(role.lease)).await? {
            let plane = planes.entry(lease.namespace().unwrap_or_default()).or_default();
            plane.leases.push(reader::manager(&RoleLease::new(role, Some(lease))));
        }
    }
    let deployments: Api<Deployment> = Api::all(control.clone());
    let machines: Api<GuardedObject<Machine>> = Api::all(control.clone());
    let mut counts = BTreeMap::<String, MachineCount>::new();
    let (deployments, counted) = tokio::join!(
        reader::pages(&deployments, named(DEPLOYMENT)),
        reader::each(&machines, ListParams::default(), |machine| count(&mut counts, &machine)),
    );
    match deployments {
        Ok(deployments) => {
            planes.values_mut().for_each(|plane| plane.replicas = Some(None));
            for deployment in deployments {
                let plane = planes.entry(deployment.namespace().unwrap_or_default()).or_default();
                plane.replicas = Some(Some(wanted_replicas(&deployment)));
            }
        }
        Err(error) => unread.push(error_line(&error)),
    }
    match counted {
        Ok(()) => {
            planes.values_mut().for_each(|plane| plane.machines = Some(MachineCount::default()));
            for (namespace, count) in counts {
                planes.entry(namespace).or_default().machines = Some(count);
            }
        }
        Err(error) => unread.push(error_line(&error)),
    }
    Ok(planes)
}

fn count(counts: &mut BTreeMap<String, MachineCount>, machine: &GuardedObject<Machine>) {
    let count = counts.entry(machine.namespace().unwrap_or_default()).or_default();
    count.total += 1;
    if let GuardedObject::Readable(machine) = machine
        && machine.phase() == MachinePhase::Running
        && !machine.is_terminating()
    {
        count.running += 1;
    }
}

async fn selected(control: &Client, selector: &NamespaceSelector) -> Result<BTreeSet<String>> {
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(control.clone());
    let namespaces = reader::pages(&namespaces, ListParams::default()).await?;
    Ok(namespaces.iter().filter(|one| selector.matches(one.labels())).map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::document;
    use mcm_insight::fleet::PlaneAnswer;

    #[test]
    fn the_schema_of_the_documents_is_published() {
        document::tests::published::<JsonDocument<FleetAnswer>>("fleet");
    }

    #[test]
    fn unread_kinds_are_no_all_clear() {
        let plane = |state| PlaneAnswer {
            namespace: "n".to_owned(),
            state,
            owners: Vec::new(),
            machines: None,
            reason: None,
            managers: Vec::new(),
        };
        let of = |states: &[PlaneState], unread: &[&str]| {
            let planes = states.iter().copied().map(plane).collect();
            exit(&FleetAnswer { planes, unread: unread.iter().map(|&text| text.to_owned()).collect() })
        };
        assert_eq!(of(&[PlaneState::Led, PlaneState::Parked], &[]), CommandExit::Good);
        assert_eq!(of(&[PlaneState::Led], &["list machines: forbidden"]), CommandExit::Failed);
        assert_eq!(of(&[PlaneState::Led, PlaneState::Unknown], &[]), CommandExit::Failed);
        assert_eq!(of(&[PlaneState::Unled, PlaneState::Unknown], &["x"]), CommandExit::No);
        assert_eq!(of(&[PlaneState::Frozen], &[]), CommandExit::No);
    }
}
