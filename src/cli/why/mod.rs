//! `mcm why`: says why an object does not progress.

mod answer;
mod budget;
mod document;
pub(super) mod report;
mod watch;

use anyhow::Result;

use self::answer::{Answered, ask, exit};
use super::exit::Answer;
pub use answer::WhyOptions;
pub(super) use answer::as_json;

/// Says why an object does not progress.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: WhyOptions) -> Result<Answer> {
    let cell = options.reading.open().await?;
    let look = options.output.look();
    if options.watch {
        return watch::run(&cell, &options, look).await;
    }
    let Answered { text, verdict, .. } = ask(&cell, &options, look).await?;
    Ok(Answer { text, exit: exit(verdict) })
}
