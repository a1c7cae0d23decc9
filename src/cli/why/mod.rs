//! `mcm why`: says why an object does not progress.

pub(super) mod report;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::{
    exit::{Answer, Exit},
    format::Format,
    reading::{
        self, ReadingOptions,
        story::{self, Facts, Verdict},
    },
    terminal::LookOptions,
};

/// Options of the command.
#[derive(Args, Debug)]
pub struct WhyOptions {
    /// The object: NAME or KIND/NAME of a MachineDeployment, MachineSet, Machine, MachineClass or Node. Without it, everything
    /// in the namespace that waits is listed
    #[arg(value_name = "OBJECT")]
    object: Option<String>,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Format of the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    look: LookOptions,
}

/// Says why an object does not progress.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: WhyOptions) -> Result<Answer> {
    let cell = options.reading.open().await?;
    let facts = reading::facts(&cell).await?;
    let notes = reading::notes(&cell, &facts);
    let look = options.look.stdout();
    let Some(wanted) = &options.object else {
        let answers = facts.all();
        let worst = answers.iter().map(|answer| answer.verdict).max().unwrap_or(Verdict::Settled);
        let text = match options.output {
            Format::Text => report::all(look, &answers, &facts.managers, &cell.namespace, &notes, facts.now),
            Format::Json => as_json(&answers, &facts, &notes)?,
        };
        return Ok(Answer { text, exit: exit(worst) });
    };
    let answer = facts.answer(&reading::find(&facts, wanted)?);
    let text = match options.output {
        Format::Text => report::one(look, &answer, facts.manager_of(&answer.object.kind), &notes, facts.now),
        Format::Json => as_json(std::slice::from_ref(&answer), &facts, &notes)?,
    };
    Ok(Answer { text, exit: exit(answer.verdict) })
}

/// The answers as one document.
///
/// # Errors
/// They cannot be serialized, which does not happen.
pub(super) fn as_json(answers: &[story::Answer], facts: &Facts, notes: &[String]) -> Result<String> {
    let document = json!({
        "apiVersion": "cli.mcm/v1",
        "kind": "Explanation",
        "at": facts.now,
        "objects": answers,
        "managers": facts.managers,
        "notes": notes,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

const fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Settled | Verdict::Progressing => Exit::Good,
        Verdict::Waiting => Exit::Waits,
        Verdict::Unknown | Verdict::Blocked => Exit::No,
    }
}
