//! The sub-commands, and which of them a program name invokes.

use std::{
    ffi::{OsStr, OsString},
    iter,
    path::Path,
};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "remote")]
use super::driver::DriverCommand;
use super::{
    adopt::AdoptCommand,
    class::ClassCommand,
    convert::ConvertOptions,
    demo::DemoOptions,
    error::{Rejection, Spoken},
    flags::{CapiManagerOptions, Conflicts, ControllerManagerOptions, MachineControllerOptions, RunOptions},
    normalize::underscores_to_dashes,
    simulated_cloud::SimulatedCloudOptions,
    why::WhyOptions,
};

const CONTROLLER_MANAGER: &str = "machine-controller-manager";
const MACHINE_CONTROLLER: &str = "machine-controller";
const HELP_WIDTH: usize = 110;
/// The heading of the examples in a help text.
const EXAMPLES: &str = "Examples:";

/// Machine controllers for Kubernetes, a drop-in for Gardener's Machine Controller Manager
///
/// Invoked as machine-controller-manager or machine-controller, it accepts all flags of that program.
#[derive(Parser)]
#[command(name = "mcm", version)]
struct Mcm {
    #[command(subcommand)]
    command: Command,
}

/// The sub-command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run all controllers in one process
    #[command(
        after_help = "Examples:\n  mcm run --namespace demo\n  mcm run --namespace demo --target-kubeconfig none --v=3"
    )]
    Run(Box<RunOptions>),
    /// Run the controllers of machine sets and deployments
    MachineControllerManager(Box<ControllerManagerOptions>),
    /// Run the controllers of machines and classes
    MachineController(Box<MachineControllerOptions>),
    /// Run the infrastructure provider for Cluster API, or a stand-in for Cluster API core
    ///
    /// The provider runs with Cluster API core and its bootstrap and control plane providers. The stand-in (--stand-in) runs
    /// without Cluster API core, beside the MCM controllers; see docs/cluster-api.md.
    CapiManager(Box<CapiManagerOptions>),
    /// Serve a simulated cloud for other processes to use
    SimulatedCloud(SimulatedCloudOptions),
    /// Demonstrate mcm with simulated machines
    #[command(
        after_help = "Examples:\n  mcm demo\n  mcm demo --control-plane-binaries /usr/local/kubebuilder/bin\n  mcm demo --kubeconfig ~/.kube/config"
    )]
    Demo(DemoOptions),
    /// Say why machines, sets and deployments do not progress
    ///
    /// Reads the objects, plans as the controllers do, and writes nothing. It needs no manager, and works where the Go programs
    /// run. Exit codes: 0 if all is settled or progresses, 3 if a user has to act, 4 if something waits and goes on without a
    /// user, 1 if it could not be found out.
    #[command(
        after_help = "Examples:\n  mcm why -n demo                 everything that waits\n  mcm why pool -n demo            a MachineDeployment\n  mcm why machine/pool-6d689-gmjqk -n demo -o json"
    )]
    Why(WhyOptions),
    /// Convert objects between Cluster API and MCM
    ///
    /// Reads files, never a cluster. Pass related objects together: deployment, template, class, Secret, health check.
    /// If a value cannot be converted, the command prints every such value with the path of its field, and no objects.
    #[command(
        after_help = "Examples:\n  mcm convert --to native -f cluster.yaml\n  kubectl get mcd,mcc -o yaml | mcm convert --to capi --cluster demo -f -"
    )]
    Convert(ConvertOptions),
    /// Migrate running machines between Cluster API and the MCM controllers, in both directions
    ///
    /// No VM is created or deleted, and no Node changes; see docs/cluster-api.md. Requires administrator permissions.
    Adopt {
        /// The sub-command.
        #[command(subcommand)]
        command: AdoptCommand,
    },
    /// Check MachineClasses before they are applied
    Class {
        /// The sub-command.
        #[command(subcommand)]
        command: ClassCommand,
    },
    /// Serve and test remote drivers
    #[cfg(feature = "remote")]
    Driver {
        /// The sub-command.
        #[command(subcommand)]
        command: DriverCommand,
    },
    /// Print the custom resource definitions, ready for kubectl apply
    #[command(
        after_help = "Examples:\n  mcm crd | kubectl apply --server-side --force-conflicts -f -\n  mcm crd MCMMachine"
    )]
    Crd {
        /// Print only the CRD of this kind
        kind: Option<String>,

        /// Print the CRDs of the provider for Cluster API
        #[arg(long, conflicts_with = "kind")]
        cluster_api: bool,

        /// Print the CRDs of the stand-in, which Cluster API core otherwise provides
        #[arg(long, conflicts_with_all = ["kind", "cluster_api"])]
        stand_in: bool,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  source <(mcm completion bash)")]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the version
    Version,
}

/// Parses the command line.
///
/// # Errors
/// Help was requested, or the arguments are invalid.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Rejection> {
    let mut args = args.into_iter();
    let called = Called::by(&args.next().unwrap_or_default());
    let args = underscores_to_dashes(args);
    let command = called.command();
    let spoken = spoken(called, &command, &args);
    let matches = command
        .try_get_matches_from(iter::once(&OsString::from(called.name())).chain(&args))
        .map_err(|error| Rejection::from_clap(error, &spoken))?;
    let parsed = match called {
        Called::ControllerManager => {
            ControllerManagerOptions::from_arg_matches(&matches).map(Box::new).map(Command::MachineControllerManager)
        }
        Called::MachineController => {
            MachineControllerOptions::from_arg_matches(&matches).map(Box::new).map(Command::MachineController)
        }
        Called::Mcm | Called::KubectlPlugin => Command::from_arg_matches(&matches),
    };
    let command = parsed.map_err(|error| Rejection::from_clap(error, &spoken))?;
    command.check().map_err(|conflicts| Rejection::from_conflicts(&conflicts, &spoken))?;
    Ok(command)
}

/// A script that completes the commands and flags of `mcm`.
pub fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Called::Mcm.command(), "mcm", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The whole tree of commands.
#[cfg(test)]
pub fn command() -> clap::Command {
    Called::Mcm.command()
}

impl Command {
    fn check(&self) -> Result<(), Conflicts> {
        match self {
            Self::Run(options) => options.check(),
            Self::MachineControllerManager(options) => options.check(),
            Self::MachineController(options) => options.check(),
            Self::CapiManager(options) => options.check(),
            #[cfg(feature = "remote")]
            Self::Driver { .. } => Ok(()),
            Self::SimulatedCloud(_)
            | Self::Demo(_)
            | Self::Convert(_)
            | Self::Adopt { .. }
            | Self::Class { .. }
            | Self::Why(_)
            | Self::Crd { .. }
            | Self::Completion { .. }
            | Self::Version => Ok(()),
        }
    }
}

/// The name under which the program was invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    Mcm,
    ControllerManager,
    MachineController,
    KubectlPlugin,
}

impl Called {
    fn by(program: &OsStr) -> Self {
        let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
        match name.strip_suffix(".exe").unwrap_or(name) {
            CONTROLLER_MANAGER => Self::ControllerManager,
            MACHINE_CONTROLLER => Self::MachineController,
            "kubectl-mcm" => Self::KubectlPlugin,
            _ => Self::Mcm,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mcm => "mcm",
            Self::ControllerManager => CONTROLLER_MANAGER,
            Self::MachineController => MACHINE_CONTROLLER,
            Self::KubectlPlugin => "kubectl mcm",
        }
    }

    fn command(self) -> clap::Command {
        let command = match self {
            Self::Mcm | Self::KubectlPlugin => Mcm::command().bin_name(self.name()),
            Self::ControllerManager => ControllerManagerOptions::augment_args(clap::Command::new(CONTROLLER_MANAGER))
                .about("Runs the controllers of machine sets and deployments"),
            Self::MachineController => MachineControllerOptions::augment_args(clap::Command::new(MACHINE_CONTROLLER))
                .about("Runs the controllers of machines and classes"),
        };
        like_pflag(command).mut_subcommands(|sub| {
            // The drop-in programs keep the defaults of the Go programs; these are the limits that Gardener sets for
            // them.
            let sub = match sub.get_name() {
                "run" => sub
                    .mut_arg("kube_api_qps", |arg| arg.default_value("150"))
                    .mut_arg("kube_api_burst", |arg| arg.default_value("200")),
                // The default of all managers of Cluster API.
                "capi-manager" => sub.mut_arg("enabled", |arg| arg.default_value("false")),
                _ => sub,
            };
            like_pflag(sub)
        })
    }
}

/// The last occurrence of a flag wins, and a value may begin with a dash.
fn like_pflag(command: clap::Command) -> clap::Command {
    command.args_override_self(true).max_term_width(HELP_WIDTH).mut_args(|arg| {
        let takes_next_word = arg.get_action().takes_values() && !arg.is_positional() && !arg.is_require_equals_set();
        if takes_next_word { arg.allow_hyphen_values(true) } else { arg }
    })
}

fn spoken<'a>(called: Called, command: &clap::Command, args: &'a [OsString]) -> Spoken<'a> {
    let (mut leaf, mut name) = (command, called.name().to_owned());
    for sub in args.iter().map_while(|arg| arg.to_str().filter(|word| !word.starts_with('-'))) {
        let Some(next) = leaf.find_subcommand(sub) else { break };
        (leaf, name) = (next, format!("{name} {}", next.get_name()));
    }
    let is_go_name = matches!(called, Called::ControllerManager | Called::MachineController)
        || matches!(leaf.get_name(), CONTROLLER_MANAGER | MACHINE_CONTROLLER);
    let flags = leaf.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect();
    let example = leaf.get_after_help().and_then(|help| first_example(&help.to_string()));
    Spoken { command: name, is_go_name, args, flags, program_with_flag, example }
}

/// The first command in the examples of a help text.
fn first_example(help: &str) -> Option<String> {
    help.lines().skip_while(|line| *line != EXAMPLES).nth(1).map(|line| line.trim().to_owned())
}

/// The Go program that has this long flag.
fn program_with_flag(flag: &str) -> Option<&'static str> {
    [Called::ControllerManager, Called::MachineController]
        .into_iter()
        .find(|called| called.command().get_arguments().any(|arg| arg.get_long() == Some(flag)))
        .map(Called::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("mcm", Called::Mcm)]
    #[case("", Called::Mcm)]
    #[case("machine-controller-manager", Called::ControllerManager)]
    #[case("./machine-controller-manager", Called::ControllerManager)]
    #[case("/usr/local/bin/machine-controller-manager", Called::ControllerManager)]
    #[case("machine-controller-manager.exe", Called::ControllerManager)]
    #[case("/machine-controller", Called::MachineController)]
    #[case("machine-controller-aws", Called::Mcm)]
    #[case("machine-controller-manager.old", Called::Mcm)]
    #[case("/opt/machine-controller/mcm", Called::Mcm)]
    #[case("/usr/bin/kubectl-mcm", Called::KubectlPlugin)]
    fn the_program_knows_its_name(#[case] program: &str, #[case] called: Called) {
        assert_eq!(Called::by(OsStr::new(program)), called);
    }

    #[test]
    fn the_commands_are_well_formed() {
        for called in [Called::Mcm, Called::ControllerManager, Called::MachineController, Called::KubectlPlugin] {
            called.command().debug_assert();
        }
    }
}
