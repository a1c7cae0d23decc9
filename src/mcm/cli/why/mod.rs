//! `mcm why`: explains why an object does not progress.

mod answer;
mod budget;
mod document;

use anyhow::Result;

use self::answer::{PrintedAnswer, ask, ask_all, exit};
use super::{exit::CommandAnswer, reading::watch};
use mcm_insight::story::{self, ObjectVerdict};

pub use answer::WhyOptions;
pub(super) use answer::as_json;

/// Explains why an object does not progress.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: WhyOptions) -> Result<CommandAnswer> {
    let look = options.output.look();
    if options.all_namespaces {
        let PrintedAnswer { text, verdict, .. } = ask_all(&options, look).await?;
        return Ok(CommandAnswer { text, exit: exit(verdict) });
    }
    let cell = options.reading.open().await?;
    if !options.watch {
        let PrintedAnswer { text, verdict, .. } = ask(&cell, &options, look).await?;
        return Ok(CommandAnswer { text, exit: exit(verdict) });
    }
    let parts = |PrintedAnswer { text, verdict, objects }| (text, (objects, verdict));
    let ask = async || ask(&cell, &options, look).await.map(parts);
    let is_last = |(_, verdict): &(Vec<story::ObjectAnswer>, ObjectVerdict)| {
        options.until_settled && *verdict == ObjectVerdict::Settled
    };
    let (_, verdict) = watch::follow(&cell, options.object.as_deref(), look, ask, is_last).await?;
    Ok(CommandAnswer { text: String::new(), exit: exit(verdict) })
}
