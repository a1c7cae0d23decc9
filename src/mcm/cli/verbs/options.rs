//! The command lines of verbs.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::verb::{ChangeVerb, PreserveTrigger, ScaleTarget};
use crate::{
    api::machine::MOST_REPLICAS,
    cli::{flags::value, reading::ClusterOptions},
};
use mcm_insight::story::{DEPLOYMENT, MACHINE};

/// The cluster, and whether to write.
#[derive(Args, Clone, Debug)]
pub struct WritingOptions {
    #[command(flatten)]
    pub(super) cluster: ClusterOptions,
    /// Let the API server check the change, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask for confirmation where machines are replaced or pods are deleted
    #[arg(short = 'y', long)]
    pub(super) yes: bool,
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

/// Options of the plan that is made before a change.
#[derive(Args, Clone, Debug)]
pub(super) struct RolloutLookOptions {
    /// Go on although the plan of the change is blocked
    #[arg(long)]
    pub(super) force: bool,
    /// Kubeconfig of the target cluster, for the plan: a file, "none" if the manager runs without one, or empty if the Nodes are in
    /// the control cluster
    #[arg(long, default_value = "", value_name = "FILE")]
    pub(super) target_kubeconfig: String,
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

/// Options of `mcm scale`.
#[derive(Args, Debug)]
pub struct ScaleOptions {
    /// The object: NAME or KIND/NAME of a MachineDeployment, or of a MachineSet without one
    #[arg(value_name = "OBJECT")]
    object: String,
    /// The new number of machines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=i64::from(MOST_REPLICAS)))]
    replicas: i32,
    /// Change nothing unless this is the present number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..=i64::from(MOST_REPLICAS)))]
    current_replicas: Option<i32>,
    #[command(flatten)]
    look: RolloutLookOptions,
    #[command(flatten)]
    writing: WritingOptions,
}

/// Options of `mcm machine replace`.
#[derive(Args, Debug)]
pub struct ReplaceOptions {
    /// Name of the Machine
    #[arg(value_name = "MACHINE")]
    machine: String,
    /// Give the replacement up, and keep the machine
    #[arg(long)]
    stop: bool,
    /// End after this time with exit code 124; called again, the command continues
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    timeout: Option<Duration>,
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
    /// Replace a machine: another one is created first
    ///
    /// Its deployment, or its set without one, gets one machine more. Once that is available, the machine is drained and deleted. Each
    /// step is one patch that is safe by itself; called again after an interruption, the command continues. The plan is made first.
    #[command(
        after_help = "Examples:\n  mcm machine replace pool-6d689-gmjqk -n demo\n  mcm machine replace pool-6d689-gmjqk -n demo --yes --timeout 30m\n  mcm machine replace pool-6d689-gmjqk -n demo --stop\n\nNext: mcm tree machine/pool-6d689-gmjqk -n demo shows how it leaves."
    )]
    Replace(Box<ReplaceOptions>),
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
    pub(super) verb: ChangeVerb,
    /// `NAME` or `KIND/NAME`.
    pub(super) object: String,
    /// The kind of the object where the user gives only a name; empty for any.
    pub(super) kind: &'static str,
    /// For verbs whose effect is planned first.
    pub(super) look: Option<RolloutLookOptions>,
    pub(super) writing: WritingOptions,
    /// The end of a verb that waits.
    pub(super) timeout: Option<Duration>,
}

impl DeploymentOptions {
    pub(in crate::cli) fn verb(self, verb: ChangeVerb) -> VerbRequest {
        VerbRequest {
            verb,
            object: self.deployment,
            kind: DEPLOYMENT,
            look: None,
            writing: self.writing,
            timeout: None,
        }
    }
}

impl RolloutVerbOptions {
    pub(in crate::cli) fn verb(self, verb: ChangeVerb) -> VerbRequest {
        let Self { deployment, look, writing } = self;
        VerbRequest { verb, object: deployment, kind: DEPLOYMENT, look: Some(look), writing, timeout: None }
    }
}

impl UndoOptions {
    pub(in crate::cli) fn verb(self) -> VerbRequest {
        let Self { deployment, to_revision, look, writing } = self;
        let verb = ChangeVerb::Undo(to_revision);
        VerbRequest { verb, object: deployment, kind: DEPLOYMENT, look: Some(look), writing, timeout: None }
    }
}

impl ScaleOptions {
    pub(in crate::cli) fn verb(self) -> VerbRequest {
        let Self { object, replicas, current_replicas, look, writing } = self;
        let verb = ChangeVerb::Scale(ScaleTarget { replicas, current: current_replicas });
        VerbRequest { verb, object, kind: "", look: Some(look), writing, timeout: None }
    }
}

impl FreezeOptions {
    pub(in crate::cli) fn verb(self, verb: ChangeVerb) -> VerbRequest {
        VerbRequest { verb, object: self.object, kind: "", look: None, writing: self.writing, timeout: None }
    }
}

impl DrainCommand {
    pub(in crate::cli) fn verb(self) -> VerbRequest {
        let Self::Force(options) = self;
        VerbRequest {
            verb: ChangeVerb::ForceDrain,
            object: options.machine,
            kind: MACHINE,
            look: None,
            writing: options.writing,
            timeout: None,
        }
    }
}

impl MachineCommand {
    pub(in crate::cli) fn verb(self) -> VerbRequest {
        let (verb, object, writing) = match self {
            Self::Preserve(options) => {
                let preserve = match (options.stop, options.when_failed) {
                    (true, _) => PreserveTrigger::Never,
                    (false, true) => PreserveTrigger::WhenFailed,
                    (false, false) => PreserveTrigger::Now,
                };
                (ChangeVerb::Preserve(preserve), options.machine, options.writing)
            }
            Self::Replace(options) => {
                let ReplaceOptions { machine, stop, timeout, look, writing } = *options;
                let verb = ChangeVerb::Replace { is_given_up: stop };
                return VerbRequest { verb, object: machine, kind: MACHINE, look: Some(look), writing, timeout };
            }
            Self::Forget(options) => {
                (ChangeVerb::Forget { leaves_vm: options.leave_vm }, options.machine, options.writing)
            }
        };
        VerbRequest { verb, object, kind: MACHINE, look: None, writing, timeout: None }
    }
}
