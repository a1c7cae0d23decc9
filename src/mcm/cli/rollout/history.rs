//! `mcm rollout history`: the revisions of a deployment.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use super::lookup::find;
use crate::api::{
    kinds::{self, MACHINE_SETS},
    labels,
    machine::MachineSet,
};
use crate::cli::{
    document::JsonDocument,
    exit::{CommandAnswer, CommandExit},
    format::{OutputFormat, OutputOptions},
    reading::ReadingOptions,
};
use mcm_controllers::machine_deployment::revision_of;
use mcm_insight::{
    family::{DeploymentFamily, TemplateChange, changes},
    reader,
    story::NamespaceFacts,
    table::table_for,
    terminal::{TerminalLook, ago, wrapped},
};
use mcm_rules::plan::SubjectRef;

/// A set is created at most so long after the change that needs it, if its manager runs.
const SOON: SignedDuration = SignedDuration::from_secs(30);
/// Width from which changes have a column. Below, each is in a line under its revision.
const WIDE: usize = 140;
/// Kinds without which the revisions, or the Machines of each, are not known.
const NEEDED: [&str; 2] = [MACHINE_SETS.plural, kinds::MACHINES.plural];
/// Column in which these lines begin.
const INDENT: usize = 10;

/// Options of the command.
#[derive(Args, Debug)]
pub struct HistoryOptions {
    /// Name of the MachineDeployment
    #[arg(value_name = "DEPLOYMENT")]
    deployment: String,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// Shows the revisions of a deployment.
///
/// # Errors
/// The control cluster cannot be read, or has no such deployment.
pub(super) async fn run(options: HistoryOptions) -> Result<CommandAnswer> {
    let cell = options.reading.open().await?;
    let facts = reader::facts(&cell).await?;
    let object = find(&cell, &facts, &options.deployment).await?;
    let revisions = facts.family(&object.name).map(|family| revisions(&facts, &family)).unwrap_or_default();
    let unread: Vec<&String> = facts.unread.iter().filter(|kind| NEEDED.contains(&kind.as_str())).collect();
    let text = match options.output.format {
        OutputFormat::Text if unread.is_empty() => {
            facts.place.head(&facts.namespace) + &text(options.output.look(), &revisions, facts.now)
        }
        OutputFormat::Text => {
            let shown =
                if revisions.is_empty() { String::new() } else { text(options.output.look(), &revisions, facts.now) };
            let notes = reader::notes(&cell, &facts).into_iter().map(|note| format!("note: {note}\n"));
            facts.place.head(&facts.namespace) + &shown + &notes.collect::<String>()
        }
        OutputFormat::Json => {
            let history = RolloutHistory { deployment: &object, revisions: &revisions };
            JsonDocument::new("RolloutHistory", facts.now, history).pretty()?
        }
    };
    let exit = if unread.is_empty() { CommandExit::Good } else { CommandExit::No };
    Ok(CommandAnswer { text, exit })
}

/// The answer as JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "RolloutHistory")]
struct RolloutHistory<'a> {
    deployment: &'a SubjectRef,
    /// The latest first.
    revisions: &'a [DeploymentRevision],
}

/// A revision of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct DeploymentRevision {
    pub revision: i64,
    /// Whether it is that of the current template.
    pub is_current: bool,
    pub set: String,
    pub class: String,
    /// Machines, without those that are deleted.
    pub machines: usize,
    /// Machines that are deleted.
    pub going: usize,
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub created: Option<Timestamp>,
    /// Fields that differ from the revision before; empty for the oldest.
    pub changes: Vec<TemplateChange>,
    /// The program that wrote the template before the set was created; empty if it is not known.
    pub by: String,
}

/// The revisions of a deployment, the latest first.
pub(in crate::cli) fn revisions(facts: &NamespaceFacts, family: &DeploymentFamily<'_>) -> Vec<DeploymentRevision> {
    let current = family.new_set().map(|set| set.name_any());
    let entries = family.deployment.metadata.managed_fields.as_deref().unwrap_or_default();
    let revision = |set: &&MachineSet| {
        let name = set.name_any();
        let machines = facts.machines_of_set(&name);
        let going = machines.iter().filter(|machine| machine.is_terminating()).count();
        let created = set.creation_timestamp().map(|time| time.0);
        let is_current = current.as_ref() == Some(&name);
        DeploymentRevision {
            revision: revision_of(set),
            is_current,
            class: set.spec.template.spec.class.name.clone(),
            machines: machines.len() - going,
            going,
            created,
            changes: family
                .before(set)
                .map(|before| changes(&before.spec.template, &set.spec.template))
                .unwrap_or_default(),
            by: match is_reused(set) {
                false => writer(entries, created),
                // The last writer of the template made the revision, and not its first author.
                true => last_writer(entries).filter(|_| is_current),
            }
            .unwrap_or_default(),
            set: name,
        }
    };
    family.sets.iter().map(revision).collect()
}

/// The set had another revision before: it is older than its present one.
fn is_reused(set: &MachineSet) -> bool {
    set.annotations().get(labels::REVISION_HISTORY).is_some_and(|history| !history.is_empty())
}

fn writes_template(entry: &&ManagedFieldsEntry) -> bool {
    entry.subresource.is_none()
        && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:template").is_some())
}

/// The manager that was the last to write the template.
fn last_writer(entries: &[ManagedFieldsEntry]) -> Option<String> {
    let dated = entries.iter().filter(writes_template).filter(|entry| entry.time.is_some());
    dated.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.clone()
}

/// The manager that wrote the template shortly before a set was created.
fn writer(entries: &[ManagedFieldsEntry], created: Option<Timestamp>) -> Option<String> {
    let created = created?;
    let age = |entry: &ManagedFieldsEntry| Some(created.duration_since(entry.time.as_ref()?.0));
    let is_soon = |entry: &&ManagedFieldsEntry| {
        // Both times have whole seconds.
        age(entry).is_some_and(|age| age >= SignedDuration::from_secs(-1) && age <= SOON)
    };
    let entry = entries.iter().filter(writes_template).filter(is_soon).min_by_key(|entry| age(entry))?;
    entry.manager.clone()
}

fn text(look: TerminalLook, revisions: &[DeploymentRevision], now: Timestamp) -> String {
    if revisions.is_empty() {
        return "there is no revision yet\n".to_owned();
    }
    let is_narrow = look.is_terminal && look.width < WIDE;
    let row = |revision: &DeploymentRevision| {
        let current = if revision.is_current { " now" } else { "" };
        let going = if revision.going > 0 { format!(" (+{})", revision.going) } else { String::new() };
        let change = look.written(&texts(revision).join(", "));
        let row = [
            format!("{}{current}", revision.revision),
            revision.set.clone(),
            revision.class.clone(),
            format!("{}{going}", revision.machines),
            revision.created.map(|created| ago(now, created)).unwrap_or_default(),
        ];
        let more = if is_narrow { Vec::new() } else { vec![change, revision.by.clone()] };
        row.into_iter().chain(more).collect::<Vec<String>>()
    };
    let header = ["revision", "set", "class", "machines", "age", "change", "by"];
    if !is_narrow {
        return table_for(look.is_terminal && look.unicode, &header, revisions.iter().map(row));
    }
    let table = table_for(false, &header[..5], revisions.iter().map(row));
    let mut lines = table.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, revision) in lines.zip(revisions) {
        let _ = writeln!(text, "{line}");
        let by = if revision.by.is_empty() { Vec::new() } else { vec![format!("by {}", revision.by)] };
        for more in texts(revision).iter().chain(&by).flat_map(|one| wrapped(one, look.width - INDENT)) {
            let _ = writeln!(text, "{:INDENT$}{}", "", look.written(&more));
        }
    }
    text
}

/// The changes of a revision, as users read them.
fn texts(revision: &DeploymentRevision) -> Vec<String> {
    revision.changes.iter().map(TemplateChange::to_string).collect()
}

#[cfg(test)]
mod tests;
