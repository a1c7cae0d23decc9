//! One answer of `mcm why`.

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
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
    place::CallTarget,
    plan::answer::DOCUMENT_VERSION,
    read_only::ReadOnly,
    reader, replacement, report,
    story::{self, ManagerLease, NamespaceFacts, ObjectVerdict},
    terminal::TerminalLook,
};
use mcm_rules::plan::counted;

/// Options of the command.
#[derive(Args, Debug)]
pub struct WhyOptions {
    /// The object: NAME or KIND/NAME of a MachineDeployment, MachineSet, Machine, MachineClass, Node or PodDisruptionBudget. Of
    /// Cluster API: KIND/NAME of a Cluster, MachinePool, MCMCluster, MCMMachine or MCMMachinePool, and of a Machine, MachineSet
    /// or MachineDeployment with its group, such as machine.cluster.x-k8s.io/NAME, or with its short name: ma/NAME, ms/NAME,
    /// md/NAME. Without it, everything in the namespace that waits is listed
    #[arg(value_name = "OBJECT")]
    pub(super) object: Option<String>,
    /// List everything that waits in all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["object", "namespace", "watch", "manager"])]
    pub(super) all_namespaces: bool,
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
    let ExplainedNamespace { facts, objects, notes, text, verdict } = explained(cell, options, look).await?;
    let text = match options.output.format {
        OutputFormat::Text => facts.place.head(&facts.namespace) + &text,
        OutputFormat::Json => as_json(&objects, &facts, &notes)?,
    };
    Ok(PrintedAnswer { text, verdict, objects })
}

/// The answer for one object, or for everything that waits in a namespace.
struct ExplainedNamespace {
    facts: NamespaceFacts,
    objects: Vec<story::ObjectAnswer>,
    notes: Vec<String>,
    text: String,
    verdict: ObjectVerdict,
}

/// Everything that waits in all namespaces.
///
/// # Errors
/// The control cluster cannot be read.
pub(super) async fn ask_all(options: &WhyOptions, look: TerminalLook) -> Result<PrintedAnswer> {
    let found = options.reading.each_namespace(async |cell| explained(&cell, options, look).await).await?;
    let mut notes = found.notes();
    let refused = if found.refused.is_empty() { ObjectVerdict::Settled } else { ObjectVerdict::Unknown };
    let verdict = found.readings.iter().map(|one| one.verdict).fold(refused, ObjectVerdict::max);
    let text = match options.output.format {
        OutputFormat::Text => text_of_all(look, &found.place, &found.readings, &notes),
        OutputFormat::Json => {
            let of_namespace = |one: &ExplainedNamespace| {
                one.notes.iter().map(|note| format!("namespace {}: {note}", one.facts.namespace)).collect::<Vec<_>>()
            };
            notes.extend(found.readings.iter().flat_map(of_namespace));
            let managers: Vec<_> = found.readings.iter().flat_map(|one| one.facts.managers.clone()).collect();
            let asked: Vec<_> = found.readings.iter().flat_map(|one| one.facts.memory.asked.clone()).collect();
            let objects: Vec<_> = found.readings.iter().flat_map(|one| one.objects.clone()).collect();
            document(Timestamp::now(), &objects, &managers, &asked, &notes)?
        }
    };
    let objects = found.readings.into_iter().flat_map(|one| one.objects).collect();
    Ok(PrintedAnswer { text, verdict, objects })
}

/// Each namespace in which something waits, and the number of the others.
fn text_of_all(look: TerminalLook, place: &CallTarget, namespaces: &[ExplainedNamespace], notes: &[String]) -> String {
    let (quiet, waiting): (Vec<_>, Vec<_>) =
        namespaces.iter().partition(|one| one.objects.is_empty() && one.verdict == ObjectVerdict::Settled);
    let mut text = format!("{}\n", place.title_of_all());
    for one in &waiting {
        text += &format!("\n{}\n{}", look.bold(&format!("namespace {}", one.facts.namespace)), one.text);
    }
    let others = if waiting.is_empty() { "" } else { "other " };
    text += &format!("\nnothing waits in {}\n", counted(quiet.len(), &format!("{others}namespace")));
    notes.iter().for_each(|note| look.section(&mut text, "note", note));
    text
}

async fn explained(cell: &ReadOnly, options: &WhyOptions, look: TerminalLook) -> Result<ExplainedNamespace> {
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
            let manager = facts.manager_for(&answer.object).filter(|_| answer.api_group.is_none());
            let text = report::one(look, &answer, manager, &notes, &facts);
            (vec![answer], text)
        }
    };
    let verdict = objects.iter().map(|answer| answer.verdict).max().unwrap_or(ObjectVerdict::Settled);
    let is_partial = options.object.is_none() && !facts.unread_kinds().is_empty();
    let verdict = if is_partial { verdict.max(ObjectVerdict::Unknown) } else { verdict };
    Ok(ExplainedNamespace { facts, objects, notes, text, verdict })
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
        let object = reader::find(facts, wanted)?;
        notes.extend(replacement::note(facts, &object));
        return Ok(facts.answer(&object));
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
    document(facts.now, answers, &facts.managers, &facts.memory.asked, notes)
}

fn document(
    at: Timestamp,
    objects: &[story::ObjectAnswer],
    managers: &[ManagerLease],
    asked: &[String],
    notes: &[String],
) -> Result<String> {
    let (api_version, kind) = (DOCUMENT_VERSION, "Explanation");
    let document = ExplanationDocument { api_version, kind, at, objects, managers, asked, notes };
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
