//! Commands that change one object: `mcm rollout undo|abort|pause|resume|restart`, `mcm scale`, `mcm freeze|unfreeze`, `mcm drain force`
//! and `mcm machine preserve|forget`. Each is one patch, and prints the kubectl command that does the same. `mcm machine replace`
//! is several of them.

mod abort;
mod decide;
mod look;
mod options;
mod patch;
mod replace;
mod replacement;
mod run;
mod scale;
#[cfg(test)]
mod tests;
mod verb;

use anyhow::Result;
use run::VerbRun;

use super::exit::CommandAnswer;

pub use options::{
    DeploymentOptions, DrainCommand, FreezeOptions, MachineCommand, RolloutVerbOptions, ScaleOptions, UndoOptions,
    VerbRequest,
};
pub(super) use run::{can_be_confirmed, confirmed, connect};
pub use verb::ChangeVerb;

/// Decides about the change, requests consent where machines would be replaced, and writes it.
///
/// # Errors
/// The control cluster cannot be used, the change makes no sense, or the user declines.
pub async fn run(request: VerbRequest) -> Result<CommandAnswer> {
    let VerbRequest { verb, object, kind, look, writing, timeout } = request;
    let run = VerbRun::connect(verb, look, writing).await?;
    if let ChangeVerb::Replace { is_given_up } = verb {
        return replace::run(&run, &object, is_given_up, timeout).await;
    }
    let wanted = if kind.is_empty() || object.contains('/') { object } else { format!("{kind}/{object}") };
    run.change(&wanted).await
}
