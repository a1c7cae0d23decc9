//! `mcm why`: says why an object does not progress.

mod answer;
mod budget;
mod document;
pub(super) mod report;

use anyhow::Result;

use self::answer::{Answered, ask, exit};
use super::{
    exit::Answer,
    reading::{
        story::{self, Verdict},
        watch,
    },
};
pub use answer::WhyOptions;
pub(super) use answer::as_json;

/// Says why an object does not progress.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: WhyOptions) -> Result<Answer> {
    let cell = options.reading.open().await?;
    let look = options.output.look();
    if !options.watch {
        let Answered { text, verdict, .. } = ask(&cell, &options, look).await?;
        return Ok(Answer { text, exit: exit(verdict) });
    }
    let parts = |Answered { text, verdict, objects }| (text, (objects, verdict));
    let ask = async || ask(&cell, &options, look).await.map(parts);
    let is_last = |(_, verdict): &(Vec<story::Answer>, Verdict)| options.until_settled && *verdict == Verdict::Settled;
    let (_, verdict) = watch::follow(&cell, options.object.as_deref(), look, ask, is_last).await?;
    Ok(Answer { text: String::new(), exit: exit(verdict) })
}
