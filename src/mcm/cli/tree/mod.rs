//! `mcm tree`: a deployment with its sets, machines and Nodes, and what is in the way.

pub(super) mod branch;
mod cluster_api;
pub(super) mod report;
mod surroundings;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    document::JsonDocument,
    exit::{CommandAnswer, CommandExit},
    format::{OutputFormat, OutputOptions},
    reading::{ReadingOptions, watch},
};
use mcm_insight::{
    budget_reader, cluster_api::named, memory, read_only::ReadOnly, reader, report::empty, story::NamespaceFacts,
};

pub(super) use branch::TreeBranch;

/// Options of the command.
#[derive(Args, Debug)]
pub struct TreeOptions {
    /// The object: NAME or KIND/NAME of a MachineDeployment, MachineSet, Machine or Node, or cluster/NAME and the other objects of
    /// Cluster API, as mcm why takes them. Without it, the whole namespace is shown, its Clusters first
    #[arg(value_name = "OBJECT")]
    object: Option<String>,
    /// Show every machine, also those that are alike
    #[arg(long)]
    all: bool,
    /// Show it again after each change, until Ctrl-C
    #[arg(short = 'w', long)]
    watch: bool,
    /// Show all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["object", "namespace", "watch"])]
    all_namespaces: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// The answer as JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Tree")]
struct TreeDocument<'a> {
    objects: &'a [TreeBranch],
    /// Facts that could not be read.
    notes: &'a [String],
}

/// Shows objects with everything that belongs to them.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: TreeOptions) -> Result<CommandAnswer> {
    if options.all_namespaces {
        return show_all(&options).await;
    }
    let cell = options.reading.open().await?;
    if !options.watch {
        let (text, (_, exit)) = ask(&cell, &options).await?;
        return Ok(CommandAnswer { text, exit });
    }
    let (object, look) = (options.object.as_deref(), options.output.look());
    let (_, exit) = watch::follow(&cell, object, look, async || ask(&cell, &options).await, |_| false).await?;
    Ok(CommandAnswer { text: String::new(), exit })
}

/// The trees, as text and as they are, with the exit code.
async fn ask(cell: &ReadOnly, options: &TreeOptions) -> Result<(String, (Vec<TreeBranch>, CommandExit))> {
    let GrownNamespace { facts, branches, notes } = grown(cell, options).await?;
    let exit = CommandExit::of_facts([&facts]);
    let text = match options.output.format {
        OutputFormat::Text => facts.place.head(&facts.namespace) + &text(options, &facts, &branches, &notes),
        OutputFormat::Json => {
            JsonDocument::new("Tree", facts.now, TreeDocument { objects: &branches, notes: &notes }).pretty()?
        }
    };
    Ok((text, (branches, exit)))
}

/// The trees of a namespace, and notes about what could not be read.
struct GrownNamespace {
    facts: NamespaceFacts,
    branches: Vec<TreeBranch>,
    notes: Vec<String>,
}

/// The trees of all namespaces.
async fn show_all(options: &TreeOptions) -> Result<CommandAnswer> {
    let found = options.reading.each_namespace(async |cell| grown(&cell, options).await).await?;
    let mut notes = found.notes();
    let exit = match notes.is_empty() {
        true => CommandExit::of_facts(found.readings.iter().map(|one| &one.facts)),
        false => CommandExit::No,
    };
    if options.output.format == OutputFormat::Json {
        let of_namespace = |one: &GrownNamespace| {
            one.notes.iter().map(|note| format!("namespace {}: {note}", one.facts.namespace)).collect::<Vec<_>>()
        };
        notes.extend(found.readings.iter().flat_map(of_namespace));
        let objects: Vec<TreeBranch> = found.readings.into_iter().flat_map(|one| one.branches).collect();
        let document = TreeDocument { objects: &objects, notes: &notes };
        return Ok(CommandAnswer { text: JsonDocument::new("Tree", Timestamp::now(), document).pretty()?, exit });
    }
    let look = options.output.look();
    let mut all = format!("{}\n", found.place.title_of_all());
    for GrownNamespace { facts, branches, notes } in &found.readings {
        let head = look.bold(&format!("namespace {}", facts.namespace));
        all += &format!("\n{head}\n{}", text(options, facts, branches, notes));
    }
    notes.iter().for_each(|note| all += &format!("note: {note}\n"));
    Ok(CommandAnswer { text: all, exit })
}

/// The trees below the note that the namespace is parked, and above the other notes.
fn text(options: &TreeOptions, facts: &NamespaceFacts, branches: &[TreeBranch], notes: &[String]) -> String {
    let mut text = report::text(options.output.look(), branches, options.all, facts.now);
    if branches.is_empty() && facts.is_whole() {
        text = empty(&facts.place, &facts.namespace);
    }
    let parked = facts.park_note();
    let (above, below): (Vec<&String>, Vec<&String>) = notes.iter().partition(|note| Some(*note) == parked.as_ref());
    let lines = |notes: Vec<&String>| notes.into_iter().map(|note| format!("note: {note}\n")).collect::<String>();
    lines(above) + &text + &lines(below)
}

async fn grown(cell: &ReadOnly, options: &TreeOptions) -> Result<GrownNamespace> {
    let mut facts = reader::facts(cell).await?;
    facts.memory = memory::ask(cell, &facts.managers, None).await;
    facts.budgets = budget_reader::awaited(cell, &facts).await;
    let (branches, mut notes) = match options.object.as_deref().map(|wanted| (wanted, named(wanted))) {
        Some((_, Some((kind, name)))) => cluster_api::grow(cell, &facts, kind, name).await?,
        Some((wanted, None)) => grow(cell, &facts, &[reader::find(&facts, wanted)?]).await,
        None => match cluster_api::grow_all(cell, &facts).await {
            Some(grown) => grown,
            None => grow(cell, &facts, &branch::roots(&facts)).await,
        },
    };
    notes.extend(reader::notes(cell, &facts));
    Ok(GrownNamespace { facts, branches, notes })
}

/// The trees of objects, and notes about what could not be read.
pub(super) async fn grow(
    cell: &ReadOnly,
    facts: &NamespaceFacts,
    roots: &[mcm_rules::plan::SubjectRef],
) -> (Vec<TreeBranch>, Vec<String>) {
    let surroundings = surroundings::read(cell, facts, roots).await;
    let branches = roots.iter().map(|root| branch::object_tree(facts, &surroundings, root)).collect();
    (branches, surroundings.unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::document::tests::{fits, published};
    use mcm_insight::testing::{NOW, at, blocked_pool};

    #[test]
    fn the_schema_is_published_and_a_tree_fits_it() {
        published::<JsonDocument<TreeDocument<'_>>>("tree");
        let facts = blocked_pool();
        let around = branch::NodeSurroundings::default();
        let objects: Vec<TreeBranch> =
            branch::roots(&facts).iter().map(|root| branch::object_tree(&facts, &around, root)).collect();
        let document = JsonDocument::new("Tree", at(NOW), TreeDocument { objects: &objects, notes: &[] });
        fits::<JsonDocument<TreeDocument<'_>>>(&serde_json::to_value(document).unwrap());
    }
}
