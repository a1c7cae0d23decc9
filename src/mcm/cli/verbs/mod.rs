//! Commands that change one object: `mcm rollout undo|pause|resume|restart`, `mcm freeze|unfreeze`, `mcm drain force` and
//! `mcm machine preserve|forget`. Each is one patch, and prints the kubectl command that does the same.

mod decide;
mod look;
#[cfg(test)]
mod tests;
mod verb;

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use decide::ObjectPatch;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use look::PlannedPatch;
use serde_json::Value;

use super::{
    exit::{CommandAnswer, CommandExit, ExitError},
    plan::{self, Plan},
    reading::{ClusterOptions, ReadingOptions},
};
use crate::api::{GoDuration, kinds::mcm_kind};
use mcm_controllers::SETS;
use mcm_insight::{memory, read_only, reader, terminal::TerminalLook};
use mcm_rules::plan::SubjectRef;
use mcm_runtime::kubeconfig::{self, KubeconfigFallback, ProcessClusters, TargetKubeconfig, UserAgent};

pub use verb::{ChangeVerb, PreserveTrigger};

/// The field manager of these commands.
const MANAGER: &str = "mcm-cli";
/// The most attempts to write: the manager may write a status between reading and writing.
const MOST_ATTEMPTS: u32 = 5;
/// The most bytes of an answer.
const MOST_ANSWER: u64 = 64;

/// The cluster, and whether to write.
#[derive(Args, Clone, Debug)]
pub struct WritingOptions {
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Let the API server check the change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation where machines are replaced or pods are deleted
    #[arg(short = 'y', long)]
    yes: bool,
}

/// Options of a verb for a deployment.
#[derive(Args, Debug)]
pub struct DeploymentOptions {
    /// Name of the MachineDeployment
    #[arg(value_name = "DEPLOYMENT")]
    deployment: String,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Options of the plan that is made before a rollout begins.
#[derive(Args, Clone, Debug)]
struct RolloutLookOptions {
    /// Go on although the plan of the change is blocked
    #[arg(long)]
    force: bool,
    /// Kubeconfig of the target cluster, for the plan: a file, "none" if the manager runs without one, or empty if the Nodes are in
    /// the control cluster
    #[arg(long, default_value = "", value_name = "FILE")]
    target_kubeconfig: String,
}

/// Options of a verb that begins a rollout.
#[derive(Args, Debug)]
pub struct RolloutVerbOptions {
    /// Name of the MachineDeployment
    #[arg(value_name = "DEPLOYMENT")]
    deployment: String,
    #[command(flatten)]
    look: RolloutLookOptions,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Options of `mcm rollout undo`.
#[derive(Args, Debug)]
pub struct UndoOptions {
    /// Name of the MachineDeployment
    #[arg(value_name = "DEPLOYMENT")]
    deployment: String,
    /// The revision, as mcm rollout history shows it; the one before the current one if absent
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(1..))]
    to_revision: Option<i64>,
    #[command(flatten)]
    look: RolloutLookOptions,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Options of `mcm freeze` and `mcm unfreeze`.
#[derive(Args, Debug)]
pub struct FreezeOptions {
    /// The object: NAME or KIND/NAME of a MachineSet; for mcm unfreeze also of a MachineDeployment
    #[arg(value_name = "OBJECT")]
    object: String,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Options of a verb for a machine.
#[derive(Args, Debug)]
pub struct MachineVerbOptions {
    /// Name of the Machine
    #[arg(value_name = "MACHINE")]
    machine: String,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Options of `mcm machine preserve`.
#[derive(Args, Debug)]
pub struct PreserveOptions {
    /// Name of the Machine
    #[arg(value_name = "MACHINE")]
    machine: String,
    /// Keep the machine only once it fails
    #[arg(long, conflicts_with = "stop")]
    when_failed: bool,
    /// Keep it no longer
    #[arg(long)]
    stop: bool,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Options of `mcm machine forget`.
#[derive(Args, Debug)]
pub struct ForgetOptions {
    /// Name of the Machine
    #[arg(value_name = "MACHINE")]
    machine: String,
    /// Accept that its VM stays in the cloud, where you have to delete it
    #[arg(long)]
    leave_vm: bool,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Sub-commands of `mcm drain`.
#[derive(Debug, Subcommand)]
pub enum DrainCommand {
    /// Force the drain of a machine: its pods are deleted, and budgets are ignored
    #[command(
        after_help = "Examples:\n  mcm drain force pool-6d689-gmjqk -n demo\n  mcm drain force pool-6d689-gmjqk -n demo --dry-run\n\nNext: mcm why machine/pool-6d689-gmjqk -n demo says what is left to wait for."
    )]
    Force(Box<MachineVerbOptions>),
}

/// Sub-commands of `mcm machine`.
#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// Keep a machine, so that it can be inspected after it failed
    ///
    /// It is kept for the preserve timeout of the machine, 96h by default.
    #[command(
        after_help = "Examples:\n  mcm machine preserve pool-6d689-gmjqk -n demo\n  mcm machine preserve pool-6d689-gmjqk -n demo --when-failed\n  mcm machine preserve pool-6d689-gmjqk -n demo --stop\n\nNext: mcm tree machine/pool-6d689-gmjqk -n demo shows it."
    )]
    Preserve(Box<PreserveOptions>),
    /// Give up a machine that cannot be deleted, without its VM
    ///
    /// Removes the finalizer of a Machine that is being deleted, for example because its MachineClass no longer exists. Nothing
    /// is deleted in the cloud.
    #[command(
        after_help = "Examples:\n  mcm machine forget pool-6d689-gmjqk -n demo\n  mcm machine forget pool-6d689-gmjqk -n demo --leave-vm\n\nNext: look in the cloud for a VM of the name of the machine, and delete it."
    )]
    Forget(Box<ForgetOptions>),
}

/// A verb with its object.
#[derive(Debug)]
pub struct VerbRequest {
    verb: ChangeVerb,
    /// `NAME` or `KIND/NAME`.
    object: String,
    /// The kind of the object where the user gives only a name; empty for any.
    kind: &'static str,
    /// For verbs that begin a rollout.
    look: Option<RolloutLookOptions>,
    writing: WritingOptions,
}

impl DeploymentOptions {
    pub(super) fn verb(self, verb: ChangeVerb) -> VerbRequest {
        VerbRequest { verb, object: self.deployment, kind: "MachineDeployment", look: None, writing: self.writing }
    }
}

impl RolloutVerbOptions {
    pub(super) fn verb(self, verb: ChangeVerb) -> VerbRequest {
        let Self { deployment, look, writing } = self;
        VerbRequest { verb, object: deployment, kind: "MachineDeployment", look: Some(look), writing }
    }
}

impl UndoOptions {
    pub(super) fn verb(self) -> VerbRequest {
        let Self { deployment, to_revision, look, writing } = self;
        let verb = ChangeVerb::Undo(to_revision);
        VerbRequest { verb, object: deployment, kind: "MachineDeployment", look: Some(look), writing }
    }
}

impl FreezeOptions {
    pub(super) fn verb(self, verb: ChangeVerb) -> VerbRequest {
        VerbRequest { verb, object: self.object, kind: "", look: None, writing: self.writing }
    }
}

impl DrainCommand {
    pub(super) fn verb(self) -> VerbRequest {
        let Self::Force(options) = self;
        VerbRequest {
            verb: ChangeVerb::ForceDrain,
            object: options.machine,
            kind: "Machine",
            look: None,
            writing: options.writing,
        }
    }
}

impl MachineCommand {
    pub(super) fn verb(self) -> VerbRequest {
        let (verb, object, writing) = match self {
            Self::Preserve(options) => {
                let preserve = match (options.stop, options.when_failed) {
                    (true, _) => PreserveTrigger::Never,
                    (false, true) => PreserveTrigger::WhenFailed,
                    (false, false) => PreserveTrigger::Now,
                };
                (ChangeVerb::Preserve(preserve), options.machine, options.writing)
            }
            Self::Forget(options) => {
                (ChangeVerb::Forget { leaves_vm: options.leave_vm }, options.machine, options.writing)
            }
        };
        VerbRequest { verb, object, kind: "Machine", look: None, writing }
    }
}

/// Decides about the change, requests consent where machines would be replaced, and writes it.
///
/// # Errors
/// The control cluster cannot be used, the change makes no sense, or the user declines.
pub async fn run(request: VerbRequest) -> Result<CommandAnswer> {
    let VerbRequest { verb, object, kind, look, writing } = request;
    let (client, namespace, cluster) = connect(&writing).await?;
    let wanted = if kind.is_empty() || object.contains('/') { object } else { format!("{kind}/{object}") };
    // One time for all attempts: a change that contains it stays the same.
    let now = Timestamp::now();
    let overshoot_period = match verb {
        ChangeVerb::Freeze => overshoot_period(&client, &namespace, now).await,
        _ => None,
    };
    let decided = async || {
        let mut facts = reader::objects(&client, &namespace, now).await?;
        facts.memory.overshoot_period = overshoot_period;
        let patch = decide::decide(&facts, verb, &reader::find(&facts, &wanted)?)?;
        let plan = match look.as_ref().zip(patch.planned.clone()) {
            Some((look, planned)) => Some(planned_effect(&writing, look, &namespace, &patch, planned).await?),
            None => None,
        };
        anyhow::Ok(PlannedPatch { patch, plan })
    };
    let planned = decided().await?;
    planned.permit(verb, look.as_ref().is_some_and(|look| look.force))?;
    let change = &planned.patch;
    if change.needs_consent && !writing.dry_run && !writing.yes {
        consent(&planned, &cluster)?;
    }
    carry_out(&client, &planned, writing.dry_run, decided).await?;
    let headline = planned.headline().map(|line| format!("\n{line}")).unwrap_or_default();
    let call = writing.cluster.call(look.as_ref().map_or("", |look| &look.target_kubeconfig));
    let kubectl = call.addressed(&change.kubectl(), false);
    let mut text = format!("{}{headline}\nthe same with kubectl: {kubectl}\n", change.says);
    if writing.dry_run {
        text += "dry run: the API server accepts the change, and nothing was changed\n";
    } else if let Some(next) = &change.next {
        text += &format!("next: {}\n", call.addressed(next, false));
    }
    Ok(CommandAnswer { text, exit: CommandExit::Good })
}

/// How often the manager of sets ends freezes, if it answers.
async fn overshoot_period(client: &Client, namespace: &str, now: Timestamp) -> Option<GoDuration> {
    let leaderships = read_only::leaderships(client, namespace).await.ok()?;
    let of_sets = leaderships.iter().find(|leadership| leadership.role.name == SETS.name)?;
    memory::overshoot_period((client, namespace), reader::manager(of_sets), now).await
}

/// The plan of a patch of a deployment.
async fn planned_effect(
    writing: &WritingOptions,
    look: &RolloutLookOptions,
    namespace: &str,
    patch: &ObjectPatch,
    planned: Value,
) -> Result<Plan> {
    let reading = ReadingOptions::for_clusters(writing.cluster.clone(), look.target_kubeconfig.clone());
    let reading = reading.within(namespace.to_owned());
    let cell = reading.cell(reading.reach().await?);
    plan::of_patch(&mut cell.await?, &patch.object.name, planned).await
}

/// A client of the control cluster, the namespace, and the cluster in words.
async fn connect(writing: &WritingOptions) -> Result<(Client, String, String)> {
    let (control, choice) = (writing.cluster.control(), writing.cluster.context.choice());
    let fallback = KubeconfigFallback::LocalKubeconfig;
    let clusters = ProcessClusters::load_chosen(&control, &TargetKubeconfig::None, fallback, &choice).await?;
    let client = kubeconfig::client(&clusters.control, UserAgent::Mcm).await?;
    kubeconfig::check(&client, &clusters.control.config.cluster_url).await?;
    let default_namespace = &clusters.control.config.default_namespace;
    let namespace = writing.cluster.namespace.clone().unwrap_or_else(|| default_namespace.clone());
    let server = kubeconfig::address(&clusters.control.config.cluster_url);
    let cluster = clusters.control.context.map_or(server.clone(), |context| format!("{context} ({server})"));
    Ok((client, namespace, cluster))
}

/// Requests consent on a terminal. Without one, `--yes` is needed.
fn consent(planned: &PlannedPatch, cluster: &str) -> Result<()> {
    let SubjectRef { namespace, .. } = &planned.patch.object;
    let place = format!("namespace {namespace} of the cluster {cluster}");
    let says = format!("{} ({place})", planned.patch.says);
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let hint = "add --yes if you mean it, or --dry-run to try it";
        return Err(ExitError::no(format!("this needs a confirmation: {says}"), hint).into());
    }
    let mut screen = io::stderr().lock();
    if let Some(plan) = &planned.plan {
        let text = plan::report(TerminalLook::PLAIN, plan, plan::RoundDetail::Summary);
        writeln!(screen, "{text}").context("write to standard error")?;
    }
    write!(screen, "{says}\nContinue? [y/N] ").and_then(|()| screen.flush()).context("write to standard error")?;
    let mut answer = String::new();
    io::stdin().lock().take(MOST_ANSWER).read_line(&mut answer).context("read the answer")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(ExitError::no("nothing was changed", "answer y, or add --yes").into()),
    }
}

/// Writes a change. If the object was changed meanwhile, as by a status of the manager, decides again, and repeats this while
/// the change and its effect stay the same.
async fn carry_out(
    client: &Client,
    change: &PlannedPatch,
    dry_run: bool,
    decided: impl AsyncFn() -> Result<PlannedPatch>,
) -> Result<()> {
    let mut latest = change.clone();
    for _ in 0..MOST_ATTEMPTS {
        if write(client, &latest.patch, dry_run).await? == PatchOutcome::Yes {
            return Ok(());
        }
        latest = decided().await?;
        if !latest.is_same(change) {
            break;
        }
    }
    let SubjectRef { kind, name, .. } = &change.patch.object;
    let message = format!("{kind} {name} was changed meanwhile, so nothing was written");
    Err(ExitError { message, hint: "try again".to_owned(), exit: CommandExit::Failed }.into())
}

/// The answer of the API server to a patch.
#[derive(PartialEq)]
enum PatchOutcome {
    Yes,
    /// The object was written since it was read.
    Conflict,
}

/// Sends the patch, with the resource version of the object that was read as its precondition.
async fn write(client: &Client, change: &ObjectPatch, dry_run: bool) -> Result<PatchOutcome> {
    let SubjectRef { kind, namespace, name } = &change.object;
    let resource = mcm_kind(kind).with_context(|| format!("patch {kind} {namespace}/{name}: the kind is unknown"))?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource.api_resource());
    let parameters = PatchParams { dry_run, field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(name, &parameters, &Patch::Merge(change.patch_at_version())).await {
        Ok(_) => Ok(PatchOutcome::Yes),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(PatchOutcome::Conflict),
        Err(error) => Err(error).with_context(|| format!("patch {kind} {namespace}/{name}")),
    }
}
