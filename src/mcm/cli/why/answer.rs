//! One answer of `mcm why`.

use anyhow::Result;
use clap::Args;
use reqwest::Url;

use super::{budget, document::ExplanationDocument};
use crate::cli::{
    exit::CommandExit,
    flags::value,
    format::{OutputFormat, OutputOptions},
    reading::ReadingOptions,
};
use mcm_insight::{
    budget_reader,
    cluster_api::{self, CapiFacts},
    memory,
    plan::answer::DOCUMENT_VERSION,
    read_only::ReadOnly,
    reader, report,
    story::{self, NamespaceFacts, ObjectVerdict},
    terminal::TerminalLook,
};

/// Options of the command.
#[derive(Args, Debug)]
pub struct WhyOptions {
    /// The object: NAME or KIND/NAME of a MachineDeployment, MachineSet, Machine, MachineClass, Node or PodDisruptionBudget. Of
    /// Cluster API: KIND/NAME of a Cluster, MachinePool, MCMCluster, MCMMachine or MCMMachinePool, and of a Machine, MachineSet
    /// or MachineDeployment with its group, such as machine.cluster.x-k8s.io/NAME, or with its short name: ma/NAME, ms/NAME,
    /// md/NAME. Without it, everything in the namespace that waits is listed
    #[arg(value_name = "OBJECT")]
    pub(super) object: Option<String>,
    #[command(flatten)]
    pub(super) reading: ReadingOptions,
    /// URL of the manager, which remembers since when an object waits and when the next attempt is; without it, the pods that hold
    /// the Leases are asked through the API server
    #[arg(long, value_name = "URL", value_parser = value::http_url)]
    pub(super) manager: Option<Url>,
    /// Answer again after each change, until Ctrl-C
    #[arg(short = 'w', long)]
    pub(super) watch: bool,
    /// End a watch once the object is settled
    #[arg(long, requires = "watch")]
    pub(super) until_settled: bool,
    #[command(flatten)]
    pub(super) output: OutputOptions,
}

/// An answer that was printed, or is about to be.
pub(super) struct PrintedAnswer {
    pub text: String,
    pub verdict: ObjectVerdict,
    pub objects: Vec<story::ObjectAnswer>,
}

/// The answer to the question of the options.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub(super) async fn ask(cell: &ReadOnly, options: &WhyOptions, look: TerminalLook) -> Result<PrintedAnswer> {
    let mut facts = reader::facts(cell).await?;
    facts.memory = memory::ask(cell, &facts.managers, options.manager.as_ref()).await;
    if let Some(node) = options.object.as_deref().and_then(|wanted| facts.node_without_machine(wanted)) {
        let remembered = memory::of_node(cell, &facts.managers, options.manager.as_ref(), node).await;
        facts.memory.explained.extend(remembered);
    }
    facts.budgets = budget_reader::awaited(cell, &facts).await;
    let mut notes = reader::notes(cell, &facts);
    let (objects, text) = match &options.object {
        None => {
            let mut objects = facts.all();
            if facts.may_have_cluster_api() {
                let found = cluster_api::read(&cell.control, &cell.namespace).await;
                objects = CapiFacts { facts: &facts, objects: &found }.with_all(objects);
                notes.extend(found.notes.into_iter().filter(|_| !facts.is_empty()));
            }
            let text = report::all(look, &objects, &facts, &notes);
            (objects, text)
        }
        Some(wanted) => {
            let answer = one(cell, &facts, wanted, &mut notes).await?;
            let manager = facts.manager_of(&answer.object.kind).filter(|_| answer.api_group.is_none());
            let text = report::one(look, &answer, manager, &notes, facts.now);
            (vec![answer], text)
        }
    };
    let verdict = objects.iter().map(|answer| answer.verdict).max().unwrap_or(ObjectVerdict::Settled);
    let is_partial = options.object.is_none() && !facts.unread_kinds().is_empty();
    let verdict = if is_partial { verdict.max(ObjectVerdict::Unknown) } else { verdict };
    let text = match options.output.format {
        OutputFormat::Text => text,
        OutputFormat::Json => as_json(&objects, &facts, &notes)?,
    };
    Ok(PrintedAnswer { text, verdict, objects })
}

/// The answer for one object.
async fn one(
    cell: &ReadOnly,
    facts: &NamespaceFacts,
    wanted: &str,
    notes: &mut Vec<String>,
) -> Result<story::ObjectAnswer> {
    if let Some(name) = budget::name_of(wanted) {
        return budget::answer(cell, facts, name).await;
    }
    let Some((kind, name)) = cluster_api::named(wanted) else {
        return Ok(facts.answer(&reader::find(facts, wanted)?));
    };
    let objects = cluster_api::read(&cell.control, &cell.namespace).await;
    let answer = CapiFacts { facts, objects: &objects }.answer(kind, name)?;
    notes.extend(objects.notes);
    Ok(answer)
}

/// All objects as one document.
///
/// # Errors
/// They cannot be serialized, which does not happen.
pub(in crate::cli) fn as_json(
    answers: &[story::ObjectAnswer],
    facts: &NamespaceFacts,
    notes: &[String],
) -> Result<String> {
    let document = ExplanationDocument {
        api_version: DOCUMENT_VERSION,
        kind: "Explanation",
        at: facts.now,
        objects: answers,
        managers: &facts.managers,
        asked: &facts.memory.asked,
        notes,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

/// The exit code of a verdict.
pub(super) const fn exit(verdict: ObjectVerdict) -> CommandExit {
    match verdict {
        ObjectVerdict::Settled | ObjectVerdict::Progressing => CommandExit::Good,
        ObjectVerdict::Waiting => CommandExit::Waits,
        ObjectVerdict::Unknown | ObjectVerdict::Blocked => CommandExit::No,
    }
}
