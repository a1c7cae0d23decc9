//! `mcm rollout`: follows and steers the rollout of a MachineDeployment.

pub(super) mod history;
mod lookup;
mod report;
mod seen;
mod status;

use anyhow::Result;
use clap::Subcommand;

use super::{
    exit::{CommandAnswer, CommandExit},
    verbs::{self, ChangeVerb, DeploymentOptions, RolloutVerbOptions, UndoOptions},
};
pub use history::HistoryOptions;
pub(super) use report::bar;
pub use status::RolloutStatusOptions;

/// Sub-commands of `mcm rollout`.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Follow a rollout until it ends
    ///
    /// Ends when all machines have the current template and are available. Prints a bar on a terminal, and a line for each change
    /// elsewhere; with -o json a JSON document in a line. Exit codes: 0 done, 3 failed, or blocked for longer than --fail-when-blocked, 124 after --timeout.
    #[command(
        after_help = "Examples:\n  mcm rollout status pool -n demo\n  mcm rollout status pool -n demo --timeout 30m --fail-when-blocked 5m\n  mcm rollout status pool -n demo -o json | jq .state\n\nNext: mcm why pool -n demo says what a blocked rollout waits for."
    )]
    Status(Box<RolloutStatusOptions>),
    /// Show the revisions of a deployment, and what changed between them
    #[command(
        after_help = "Examples:\n  mcm rollout history pool -n demo\n  mcm rollout history pool -n demo -o json\n\nNext: mcm rollout undo pool -n demo --to-revision 1 returns to a revision."
    )]
    History(Box<HistoryOptions>),
    /// Return to the template of an earlier revision
    ///
    /// The controller copies the template of the revision into the deployment, which replaces its machines again. The plan of the
    /// change is made first, and a change that something blocks is refused. A paused deployment gets the template, and stays paused.
    #[command(
        after_help = "Examples:\n  mcm rollout undo pool -n demo\n  mcm rollout undo pool -n demo --to-revision 1 --dry-run\n\nNext: mcm rollout status pool -n demo follows it."
    )]
    Undo(Box<UndoOptions>),
    /// End a rollout that is under way, also if it is paused
    ///
    /// Returns to the template of the set that has the available machines, and ends a pause: the machines of the new template are
    /// replaced. The plan of the change is made first, and a change that something blocks is refused.
    #[command(
        after_help = "Examples:\n  mcm rollout abort pool -n demo\n  mcm rollout abort pool -n demo --dry-run\n\nNext: mcm rollout status pool -n demo follows it."
    )]
    Abort(Box<RolloutVerbOptions>),
    /// Pause a rollout; scaling continues
    #[command(
        after_help = "Examples:\n  mcm rollout pause pool -n demo\n\nNext: mcm rollout resume pool -n demo continues it."
    )]
    Pause(Box<DeploymentOptions>),
    /// Resume a paused rollout
    ///
    /// The plan of the change is made first, and a change that something blocks is refused.
    #[command(
        after_help = "Examples:\n  mcm rollout resume pool -n demo\n\nNext: mcm rollout status pool -n demo follows it."
    )]
    Resume(Box<RolloutVerbOptions>),
    /// Replace all machines of a deployment, within its bounds
    ///
    /// Writes the annotation machine.mcm/restarted-at into the template, which makes a new MachineSet. The plan of the change is made
    /// first, and a change that something blocks is refused.
    #[command(
        after_help = "Examples:\n  mcm rollout restart pool -n demo\n  mcm rollout restart pool -n demo --yes\n\nNext: mcm rollout status pool -n demo follows it."
    )]
    Restart(Box<RolloutVerbOptions>),
}

/// Executes a sub-command.
///
/// # Errors
/// The control cluster cannot be used, the rollout is blocked or failed, or the change makes no sense.
pub async fn run(command: RolloutCommand) -> Result<CommandAnswer> {
    match command {
        RolloutCommand::Status(options) => {
            status::run(*options).await?;
            Ok(CommandAnswer { text: String::new(), exit: CommandExit::Good })
        }
        RolloutCommand::History(options) => history::run(*options).await,
        RolloutCommand::Undo(options) => verbs::run(options.verb()).await,
        RolloutCommand::Abort(options) => verbs::run(options.verb(ChangeVerb::Abort)).await,
        RolloutCommand::Pause(options) => verbs::run(options.verb(ChangeVerb::Pause)).await,
        RolloutCommand::Resume(options) => verbs::run(options.verb(ChangeVerb::Resume)).await,
        RolloutCommand::Restart(options) => verbs::run(options.verb(ChangeVerb::Restart)).await,
    }
}
