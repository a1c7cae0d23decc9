//! The sub-commands, and which of them a program name invokes.

use std::{
    any::TypeId,
    ffi::{OsStr, OsString},
    io, iter,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

#[cfg(feature = "remote")]
use super::driver::DriverCommand;
use super::{
    adopt::AdoptCommand,
    check::CheckOptions,
    class::ClassCommand,
    convert::ConvertOptions,
    dashboard::DashboardOptions,
    demo::DemoOptions,
    error::{CommandInvocation, CommandRejection},
    events::EventsOptions,
    flags::{
        CapiExtensionOptions, CapiManagerOptions, ControllerManagerOptions, FlagConflicts, GoFlags,
        MachineControllerOptions, PresenceOptions, RunOptions,
    },
    fleet::FleetViewOptions,
    normalize::underscores_to_dashes,
    plan::PlanOptions,
    program,
    rollout::RolloutCommand,
    simulated_cloud::SimulatedCloudOptions,
    top::TopOptions,
    tree::TreeOptions,
    verbs::{DrainCommand, FreezeOptions, MachineCommand, ScaleOptions},
    vms::VmsOptions,
    why::WhyOptions,
};
use mcm_rules::plan::shell::{CallFlags, control_flags};

const CONTROLLER_MANAGER: &str = "machine-controller-manager";
const MACHINE_CONTROLLER: &str = "machine-controller";
const HELP_WIDTH: usize = 110;
/// The heading of the examples in a help text.
const EXAMPLES: &str = "Examples:";

/// Machine controllers for Kubernetes, a drop-in for Gardener's Machine Controller Manager
///
/// Invoked as machine-controller-manager or machine-controller, it accepts all flags of that program.
#[derive(Parser)]
#[command(
    name = "mcm",
    version,
    after_help = "Examples:\n  mcm demo                                    see it work, without a cluster\n  mcm run --namespace demo                    run the controllers\n  mcm why -n demo                             find out why nothing happens\n  mcm plan pool -n demo --replicas 10         see the effect of a change before it is made\n\nNext: mcm help COMMAND has examples of each."
)]
struct CommandLine {
    #[command(subcommand)]
    command: McmCommand,
}

/// The sub-command.
#[derive(Debug, Subcommand)]
pub enum McmCommand {
    /// Run all controllers in one process
    #[command(
        after_help = "Examples:\n  mcm run --namespace demo\n  mcm run --namespace demo --control-kubeconfig ~/.kube/config --target-kubeconfig none --v=3"
    )]
    Run(Box<RunOptions>),
    /// Run the controllers of machine sets and deployments
    #[command(
        after_help = "Examples:\n  mcm machine-controller-manager --namespace shoot--dev--one --control-kubeconfig inClusterConfig --target-kubeconfig FILE\n\nNext: mcm check -n NAMESPACE shows whether it leads."
    )]
    MachineControllerManager(Box<ControllerManagerOptions>),
    /// Run the controllers of machines and classes
    #[command(
        after_help = "Examples:\n  mcm machine-controller --namespace shoot--dev--one --control-kubeconfig inClusterConfig --target-kubeconfig FILE\n\nNext: mcm check -n NAMESPACE shows whether it leads."
    )]
    MachineController(Box<MachineControllerOptions>),
    /// Respond to probes in the place of a manager, where a fleet serves the namespace
    ///
    /// Runs in both containers of the Deployment machine-controller-manager of a shoot that mcm run --fleet gardener serves; see
    /// docs/fleet.md. It manages nothing, takes no Lease and needs no kubeconfig. Other flags of the managers are refused.
    #[command(
        after_help = "Examples:\n  mcm presence\n  mcm presence --port 10259\n\nNext: mcm fleet shows which process serves the namespace."
    )]
    Presence(PresenceOptions),
    /// Run the infrastructure provider for Cluster API, or a stand-in for Cluster API core
    ///
    /// The provider runs with Cluster API core and its bootstrap and control plane providers. The stand-in (--stand-in) runs
    /// without Cluster API core, beside the MCM controllers; see docs/cluster-api.md.
    #[command(
        after_help = "Examples:\n  mcm capi-manager --leader-elect\n  mcm capi-manager --stand-in --namespace demo"
    )]
    CapiManager(Box<CapiManagerOptions>),
    /// Answer the hooks with which Cluster API core updates machines in place
    ///
    /// Claims the changes of an MCMMachine for which its VM stays, and nothing else; see docs/cluster-api/in-place.md. It reads the
    /// management cluster and writes nothing: mcm capi-manager applies the changes.
    #[command(
        after_help = "Examples:\n  mcm capi-extension --tls-cert-file tls.crt --tls-private-key-file tls.key\n\nNext: kubectl get extensionconfigs shows whether core has found it."
    )]
    CapiExtension(CapiExtensionOptions),
    /// Serve a simulated cloud for other processes to use
    #[command(
        after_help = "Examples:\n  mcm simulated-cloud --kubeconfig ~/.kube/config\n\nNext: mcm run --simulated-cloud http://127.0.0.1:10270 uses it."
    )]
    SimulatedCloud(SimulatedCloudOptions),
    /// Demonstrate mcm with simulated machines
    #[command(
        after_help = "Examples:\n  mcm demo\n  mcm demo --control-plane real --control-plane-binaries /usr/local/kubebuilder/bin\n  mcm demo --kubeconfig ~/.kube/config"
    )]
    Demo(DemoOptions),
    /// Say why machines, sets and deployments do not progress
    ///
    /// Reads the objects, plans as the controllers do, and writes nothing. It needs no manager, and works where the Go programs
    /// run. Exit codes: 0 if all is settled or progresses, 3 if a user has to act, 4 if something waits and goes on without a
    /// user, 1 if it could not be found out.
    #[command(
        after_help = "Examples:\n  mcm why -n demo                 everything that waits\n  mcm why pool -n demo            a MachineDeployment\n  mcm why machine/pool-6d689-gmjqk -n demo -o json\n  mcm why cluster/demo -n demo    a Cluster of Cluster API\n  mcm why machine.cluster.x-k8s.io/demo-md-0-abcde-x7k2p -n demo"
    )]
    Why(WhyOptions),
    /// Show a deployment with its sets, machines and Nodes, and what is in the way
    ///
    /// Machines that are alike are counted; those that wait are always shown, with the pods and budgets that keep their Nodes. The
    /// tree of a Cluster of Cluster API leads to its MCM Machines and Nodes.
    #[command(
        after_help = "Examples:\n  mcm tree pool -n demo\n  mcm tree -n demo --all            the whole namespace, each machine\n  mcm tree machine/pool-6d689-gmjqk -n demo -o json\n  mcm tree cluster/demo -n demo     from a Cluster to its Nodes\n\nNext: mcm why OBJECT says what an object waits for, and what you can do."
    )]
    Tree(TreeOptions),
    /// Follow and steer the rollout of a deployment
    #[command(
        after_help = "Examples:\n  mcm rollout status pool -n demo\n  mcm rollout history pool -n demo\n  mcm rollout undo pool -n demo --dry-run"
    )]
    Rollout {
        /// The sub-command.
        #[command(subcommand)]
        command: RolloutCommand,
    },
    /// Show the events of a deployment with its sets, machines and Nodes
    ///
    /// With -o json each event is a JSON document in a line.
    #[command(
        after_help = "Examples:\n  mcm events --for pool -n demo --since 10m\n  mcm events --for machine/pool-6d689-gmjqk -n demo -w\n  mcm events -n demo -o json | jq .reason\n\nNext: mcm why pool -n demo says what it waits for now."
    )]
    Events(EventsOptions),
    /// Show the control planes of a cluster, and which process serves each
    ///
    /// Reads the Leases of the managers, their Deployments and the Machines of all namespaces, and needs no manager. Exit codes: 0
    /// if each control plane is led or parked, 3 if one has no manager or its Machines are frozen, 1 if it could not be found out.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  mcm fleet\n  mcm fleet -l gardener.cloud/role=shoot --all\n  mcm fleet -o json | jq '.planes[].namespace'\n\nNext: mcm check -n NAMESPACE says what one of them lacks."
    )]
    Fleet(FleetViewOptions),
    /// Watch deployments and machines on the whole screen
    ///
    /// In a pipe it prints one frame.
    #[command(after_help = "Examples:\n  mcm top -n demo\n\nNext: press ? for the keys.")]
    Top(TopOptions),
    /// List the VMs of a namespace with their machines and Nodes
    ///
    /// Asks the cloud of each class, with the credentials in its Secrets and calls that only read. VMs without a machine, second VMs
    /// of a machine, and machines whose VM the cloud does not have are marked. Exit codes: 0 if all lists were read, 3 if one is
    /// unknown, 1 if the control cluster could not be read.
    #[command(
        after_help = "Examples:\n  mcm vms -n demo\n  mcm vms -n demo -o json\n\nNext: mcm adopt plan --from orphans -n demo shows which of them a machine can be made for."
    )]
    Vms(Box<VmsOptions>),
    /// Change the number of machines of a deployment
    ///
    /// Also that of a MachineSet without one. The plan of the change is made first: it names the machines that are deleted, and a change
    /// that something blocks is refused. Programs that may change the number again are named.
    #[command(
        after_help = "Examples:\n  mcm scale pool -n demo --replicas 5\n  mcm scale pool -n demo --replicas 1 --current-replicas 3 --yes\n  mcm scale machineset/alone -n demo --replicas 2 --dry-run\n\nNext: mcm rollout status pool -n demo follows it."
    )]
    Scale(Box<ScaleOptions>),
    /// Forbid a MachineSet to create machines
    #[command(
        after_help = "Examples:\n  mcm freeze machineset/pool-6d689 -n demo\n\nNext: mcm unfreeze machineset/pool-6d689 -n demo ends it."
    )]
    Freeze(FreezeOptions),
    /// End the freeze of a MachineSet or MachineDeployment
    #[command(
        after_help = "Examples:\n  mcm unfreeze machineset/pool-6d689 -n demo\n\nNext: mcm why machineset/pool-6d689 -n demo says whether it creates machines."
    )]
    Unfreeze(FreezeOptions),
    /// Steer the drain of a machine
    #[command(after_help = "Examples:\n  mcm drain force pool-6d689-gmjqk -n demo --dry-run")]
    Drain {
        /// The sub-command.
        #[command(subcommand)]
        command: DrainCommand,
    },
    /// Replace machines, keep them, or give them up
    #[command(
        after_help = "Examples:\n  mcm machine replace pool-6d689-gmjqk -n demo\n  mcm machine preserve pool-6d689-gmjqk -n demo\n  mcm machine forget pool-6d689-gmjqk -n demo --dry-run"
    )]
    Machine {
        /// The sub-command.
        #[command(subcommand)]
        command: MachineCommand,
    },
    /// Check what an installation needs, or whether it can be taken over from the Go programs
    ///
    /// Asks the clusters about kinds, stored objects, permissions, Leases, drivers, classes, Secrets and clocks, and writes
    /// nothing. Exit codes: 0 if there is no problem, 3 if there is one or an object could not be read, 1 if the control cluster
    /// could not be asked.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  mcm check -n demo\n  mcm check -n demo --service-account machine-controller-manager -o json\n  mcm check takeover -n shoot--dev--one    before the image of a Go program is replaced"
    )]
    Check(CheckOptions),
    /// Serve a page that shows deployments, machines and why they do not progress
    ///
    /// The page is for a browser of this computer: it is served on 127.0.0.1 under a path that cannot be guessed. It writes
    /// nothing, and loads nothing from elsewhere. Its JSON at api/why is that of mcm why.
    #[command(
        after_help = "Examples:\n  mcm dashboard -n demo\n  mcm dashboard -n demo --port 8090\n\nNext: open the address that it prints."
    )]
    Dashboard(DashboardOptions),
    /// Say what a change does to machines, before it is made
    ///
    /// Plays the controllers on virtual time, against an API server in memory and a cloud without VMs, beginning with the objects as
    /// they are. Nothing is written: the API server is asked with dry runs what it would store. It needs no manager, and works where
    /// the Go programs run. Exit codes: 0 if the plan was made, 3 if --fail-on matches or the change would be refused, 1 if it could
    /// not be found out.
    #[command(
        after_help = "Examples:\n  mcm plan -f pool.yaml -n demo\n  mcm plan pool -n demo --set template.spec.class.name=small\n  mcm plan pool -n demo --replicas 10 -o json\n  mcm plan pool -n demo --to-revision 1 --fail-on replace,blocked\n  mcm plan pool -n demo                        what is about to happen anyway\n  mcm plan -A                                  the same in all namespaces"
    )]
    Plan(Box<PlanOptions>),
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
    #[command(
        after_help = "Examples:\n  mcm adopt plan --cluster demo --from capi --to native\n  mcm adopt apply --cluster demo --from capi --to native"
    )]
    Adopt {
        /// The sub-command.
        #[command(subcommand)]
        command: AdoptCommand,
    },
    /// Check and complete MachineClasses before they are applied
    #[command(
        after_help = "Examples:\n  mcm class check -f class.yaml -f secret.yaml\n  mcm class complete -f class.yaml -f secret.yaml"
    )]
    Class {
        /// The sub-command.
        #[command(subcommand)]
        command: ClassCommand,
    },
    /// Serve and test remote drivers
    #[command(
        after_help = "Examples:\n  mcm driver serve --provider AWS --listen unix:///run/mcm/aws.sock\n  mcm driver test unix:///run/mcm/aws.sock -f class.yaml --secret secret.yaml"
    )]
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
    ///
    /// It completes commands, flags and, in bash, zsh and fish, names of objects in the cluster.
    #[command(after_help = "Examples:\n  source <(mcm completion bash)\n  mcm completion fish | source")]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print candidates for the last of some words, for shells and for kubectl
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words behind the name of the program
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Write the manual pages of all commands into a folder
    #[command(hide = true)]
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print the version
    #[command(after_help = "Examples:\n  mcm version")]
    Version,
}

/// Parses the command line.
///
/// # Errors
/// Help was requested, or the arguments are invalid.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<McmCommand, CommandRejection> {
    parse_call(args).map(|(command, _)| command)
}

/// Parses the command line. The flags that lead to its clusters are for the commands that errors name.
///
/// # Errors
/// Help was requested, or the arguments are invalid.
pub fn parse_call(args: impl IntoIterator<Item = OsString>) -> Result<(McmCommand, CallFlags), CommandRejection> {
    let mut args = args.into_iter();
    let called = ProgramName::by(&args.next().unwrap_or_default());
    let args = underscores_to_dashes(args);
    let command = called.command();
    let spoken = spoken(called, &command, &args);
    let matches = command
        .try_get_matches_from(iter::once(&OsString::from(called.name())).chain(&args))
        .map_err(|error| CommandRejection::from_clap(error, &spoken))?;
    let parsed = match called {
        ProgramName::ControllerManager => {
            ControllerManagerOptions::from_arg_matches(&matches).map(Box::new).map(McmCommand::MachineControllerManager)
        }
        ProgramName::MachineController => {
            MachineControllerOptions::from_arg_matches(&matches).map(Box::new).map(McmCommand::MachineController)
        }
        ProgramName::Mcm | ProgramName::KubectlPlugin => McmCommand::from_arg_matches(&matches),
    };
    let command = parsed.map_err(|error| CommandRejection::from_clap(error, &spoken))?;
    command.check().map_err(|conflicts| CommandRejection::from_conflicts(&conflicts, &spoken))?;
    Ok((command, call_flags(called, &matches)))
}

/// The flags of the sub-command that lead to clusters.
fn call_flags(called: ProgramName, matches: &ArgMatches) -> CallFlags {
    let leaf = std::iter::successors(Some(matches), |one| one.subcommand().map(|(_, next)| next)).last();
    let leaf = leaf.unwrap_or(matches);
    let text = |id: &str| leaf.try_get_one::<String>(id).ok().flatten().cloned();
    let file = leaf.try_get_one::<PathBuf>("kubeconfig").ok().flatten().map(|path| path.display().to_string());
    let groups = leaf.try_get_many::<String>("as_group").ok().flatten().into_iter().flatten();
    CallFlags {
        program: called.plugin_name(),
        control: control_flags(file, text("context"), text("as_user"), groups.cloned()),
        target: text("target_kubeconfig").unwrap_or_default(),
    }
}

/// Writes the manual pages of all commands into a folder.
///
/// # Errors
/// A file cannot be written.
pub fn man(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(ProgramName::Mcm.command(), folder)
}

/// A script that completes the commands and flags of `mcm`.
pub fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut ProgramName::Mcm.command(), "mcm", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The whole tree of commands.
pub fn command() -> clap::Command {
    ProgramName::Mcm.command()
}

impl McmCommand {
    fn check(&self) -> Result<(), FlagConflicts> {
        match self {
            Self::Run(options) => options.check(),
            Self::MachineControllerManager(options) => options.check(),
            Self::MachineController(options) => options.check(),
            Self::CapiManager(options) => options.check(),
            #[cfg(feature = "remote")]
            Self::Driver { .. } => Ok(()),
            Self::CapiExtension(_)
            | Self::Presence(_)
            | Self::SimulatedCloud(_)
            | Self::Demo(_)
            | Self::Convert(_)
            | Self::Adopt { .. }
            | Self::Class { .. }
            | Self::Why(_)
            | Self::Check(_)
            | Self::Dashboard(_)
            | Self::Tree(_)
            | Self::Rollout { .. }
            | Self::Events(_)
            | Self::Fleet(_)
            | Self::Top(_)
            | Self::Vms(_)
            | Self::Scale(_)
            | Self::Freeze(_)
            | Self::Unfreeze(_)
            | Self::Drain { .. }
            | Self::Machine { .. }
            | Self::Plan(_)
            | Self::Crd { .. }
            | Self::Completion { .. }
            | Self::Complete { .. }
            | Self::Man { .. }
            | Self::Version => Ok(()),
        }
    }
}

/// Reads the arguments of a Go program; `None` if the program of this name is not one.
pub fn go_flags(program: &str, args: &[String]) -> Option<GoFlags> {
    let called = ProgramName::by(OsStr::new(program));
    if !matches!(called, ProgramName::ControllerManager | ProgramName::MachineController) {
        return None;
    }
    let command = called.command();
    let words = underscores_to_dashes(args.iter().map(OsString::from));
    let names = words.iter().filter_map(|word| word.to_str()).filter_map(|word| word.strip_prefix('-'));
    let names: Vec<&str> = names.map(|word| word.trim_start_matches('-').split('=').next().unwrap_or(word)).collect();
    let known = |name: &&str| {
        command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(*name) || name.len() == 1 && arg.get_short() == name.chars().next())
    };
    let dashed = |name: &&str| format!("--{name}");
    let ignored =
        |name: &&&str| known(name).and_then(clap::Arg::get_help).is_some_and(|help| is_ignored(&help.to_string()));
    let options = match parse([OsString::from(called.name())].into_iter().chain(words.iter().cloned())) {
        Ok(McmCommand::MachineControllerManager(options)) => Ok(Box::new(options.generic)),
        Ok(McmCommand::MachineController(options)) => Ok(Box::new(options.generic)),
        Ok(_) => Err("no flags of a manager".to_owned()),
        Err(CommandRejection::Usage { message, .. }) => Err(message),
        Err(CommandRejection::Answer(error)) => Err(error.to_string()),
    };
    Some(GoFlags {
        count: names.len(),
        unknown: names.iter().filter(|name| known(name).is_none()).map(dashed).collect(),
        without_effect: names.iter().filter(ignored).map(dashed).collect(),
        options,
    })
}

/// The help of a flag calls it ineffective.
fn is_ignored(help: &str) -> bool {
    ["Ignored", "Accepted and ignored"].iter().any(|word| help.starts_with(word))
}

/// The name under which the program was invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramName {
    Mcm,
    ControllerManager,
    MachineController,
    KubectlPlugin,
}

impl ProgramName {
    fn by(program: &OsStr) -> Self {
        match program::name_in(program) {
            CONTROLLER_MANAGER => Self::ControllerManager,
            MACHINE_CONTROLLER => Self::MachineController,
            name if program::is_plugin(name) => Self::KubectlPlugin,
            _ => Self::Mcm,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mcm => "mcm",
            Self::ControllerManager => CONTROLLER_MANAGER,
            Self::MachineController => MACHINE_CONTROLLER,
            Self::KubectlPlugin => program::PLUGIN_NAME,
        }
    }

    fn plugin_name(self) -> Option<&'static str> {
        (self == Self::KubectlPlugin).then(|| self.name())
    }

    fn command(self) -> clap::Command {
        let command = match self {
            Self::Mcm | Self::KubectlPlugin => CommandLine::command().bin_name(self.name()),
            Self::ControllerManager => ControllerManagerOptions::augment_args(clap::Command::new(CONTROLLER_MANAGER))
                .about("Runs the controllers of machine sets and deployments"),
            Self::MachineController => MachineControllerOptions::augment_args(clap::Command::new(MACHINE_CONTROLLER))
                .about("Runs the controllers of machines and classes"),
        };
        like_pflag(with_go_values(command)).mut_subcommands(|sub| {
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

/// A flag with a boolean takes its value after `=`, and may have none, which means true.
fn with_go_values(command: clap::Command) -> clap::Command {
    let styled = |arg: clap::Arg| {
        let takes_value = arg.get_action().takes_values() && !arg.is_positional();
        let kind = arg.get_value_parser().type_id();
        if takes_value && kind == TypeId::of::<bool>() {
            arg.value_name("BOOL").default_missing_value("true").num_args(0..=1).require_equals(true)
        } else if takes_value && kind == TypeId::of::<Duration>() {
            arg.value_name("DURATION")
        } else {
            arg
        }
    };
    command.mut_args(styled).mut_subcommands(with_go_values)
}

fn spoken<'a>(called: ProgramName, command: &clap::Command, args: &'a [OsString]) -> CommandInvocation<'a> {
    let (mut leaf, mut name) = (command, called.name().to_owned());
    for sub in args.iter().map_while(|arg| arg.to_str().filter(|word| !word.starts_with('-'))) {
        let Some(next) = leaf.find_subcommand(sub) else { break };
        (leaf, name) = (next, format!("{name} {}", next.get_name()));
    }
    let is_go_name = matches!(called, ProgramName::ControllerManager | ProgramName::MachineController)
        || matches!(leaf.get_name(), CONTROLLER_MANAGER | MACHINE_CONTROLLER);
    let flags = leaf.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect();
    let example = leaf.get_after_help().and_then(|help| first_example(&help.to_string()));
    CommandInvocation { command: name, is_go_name, args, flags, program_with_flag, example }
}

/// The first command in the examples of a help text.
fn first_example(help: &str) -> Option<String> {
    help.lines().skip_while(|line| *line != EXAMPLES).nth(1).map(|line| line.trim().to_owned())
}

/// The Go program that has this long flag.
fn program_with_flag(flag: &str) -> Option<&'static str> {
    [ProgramName::ControllerManager, ProgramName::MachineController]
        .into_iter()
        .find(|called| called.command().get_arguments().any(|arg| arg.get_long() == Some(flag)))
        .map(ProgramName::name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_rules::plan::shell::OF_TARGET;
    use rstest::rstest;

    #[rstest]
    #[case("mcm", ProgramName::Mcm)]
    #[case("", ProgramName::Mcm)]
    #[case("machine-controller-manager", ProgramName::ControllerManager)]
    #[case("./machine-controller-manager", ProgramName::ControllerManager)]
    #[case("/usr/local/bin/machine-controller-manager", ProgramName::ControllerManager)]
    #[case("machine-controller-manager.exe", ProgramName::ControllerManager)]
    #[case("/machine-controller", ProgramName::MachineController)]
    #[case("machine-controller-aws", ProgramName::Mcm)]
    #[case("machine-controller-manager.old", ProgramName::Mcm)]
    #[case("/opt/machine-controller/mcm", ProgramName::Mcm)]
    #[case("/usr/bin/kubectl-mcm", ProgramName::KubectlPlugin)]
    fn the_program_knows_its_name(#[case] program: &str, #[case] called: ProgramName) {
        assert_eq!(ProgramName::by(OsStr::new(program)), called);
    }

    /// Every command that users see, with the words that lead to it.
    fn every_command(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            let path = format!("{path} {}", sub.get_name());
            found.push((path.clone(), sub.clone()));
            every_command(sub, &path, found);
        }
    }

    /// The words of a line of a shell that begin with `mcm`, up to a pipe or a remark.
    fn words_of(line: &str) -> Vec<OsString> {
        let begin = ["mcm ", "<(mcm "].iter().filter_map(|word| line.find(word)).min().unwrap();
        let line = line[begin..].trim_start_matches("<(");
        let line = line.split(['|', ')']).next().unwrap();
        // A remark follows two spaces or more.
        let line = line.split("  ").next().unwrap().trim();
        line.split(' ').map(|word| OsString::from(word.trim_matches('\''))).collect()
    }

    #[test]
    fn the_help_of_each_command_has_examples_that_it_understands() {
        let mut all = Vec::new();
        every_command(&command(), "mcm", &mut all);
        assert!(all.len() > 10);
        for (path, command) in all {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines = help.lines().skip_while(|line| *line != EXAMPLES).skip(1);
            let examples: Vec<&str> = lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect();
            assert!(!examples.is_empty(), "{path} has no examples");
            for example in examples {
                assert!(example.contains(&path), "{path}: {example}");
                assert!(parse(words_of(example)).is_ok(), "{path}: {example}");
            }
        }
    }

    #[test]
    fn the_commands_of_the_builder_take_the_flags_that_it_adds() {
        let mut all = Vec::new();
        every_command(&command(), "mcm", &mut all);
        for (path, command) in all {
            let path = path.trim_start_matches("mcm ");
            let has = |flag: &str| command.get_arguments().any(|arg| arg.get_long() == Some(flag));
            if ["context", "as", "as-group"].into_iter().any(has) {
                assert!(["kubeconfig", "context", "as", "as-group"].into_iter().all(has), "{path}");
            }
            let is_printed = OF_TARGET.contains(&path);
            assert!(!is_printed || has("target-kubeconfig"), "{path}");
            assert!(is_printed || !has("context") || !has("target-kubeconfig") || is_never_printed(path), "{path}");
        }
    }

    /// No text names the command.
    fn is_never_printed(path: &str) -> bool {
        path.starts_with("adopt ") || matches!(path, "check takeover" | "rollout restart")
    }

    #[test]
    fn the_plugins_of_k9s_call_commands_that_exist() {
        let text = include_str!("../../../config/k9s/plugins.yaml");
        let file: serde_json::Value = serde_yaml_ng::from_str(text).unwrap();
        let plugins = file["plugins"].as_object().unwrap();
        let mut keys: Vec<&str> = plugins.values().map(|one| one["shortCut"].as_str().unwrap()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), plugins.len(), "two plugins have one key");
        for (name, plugin) in plugins {
            assert_eq!((&plugin["command"], &plugin["args"][0]), (&"sh".into(), &"-c".into()), "{name}");
            assert!(plugin["scopes"].is_array() && plugin["description"].is_string(), "{name}");
            let line = plugin["args"][1].as_str().unwrap();
            assert!(line.contains("--context $CONTEXT"), "{name} reads another cluster than k9s: {line}");
            let line = line.replace("$RESOURCE_NAME", "machines").replace("$NAMESPACE", "demo").replace("$NAME", "a");
            let line = line.replace("$CONTEXT", "blue");
            assert!(!line.contains('$'), "{name}: {line}");
            assert!(parse(words_of(&line)).is_ok(), "{name}: {line}");
        }
    }

    #[test]
    fn the_commands_are_well_formed() {
        for called in [
            ProgramName::Mcm,
            ProgramName::ControllerManager,
            ProgramName::MachineController,
            ProgramName::KubectlPlugin,
        ] {
            called.command().debug_assert();
        }
    }
}
