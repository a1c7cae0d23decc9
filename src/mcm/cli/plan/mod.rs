//! `mcm plan`: shows what a change would do to machines, before it is made.

mod policy;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::Result;
use clap::{ArgAction, Args, ValueEnum};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    exit::{CommandAnswer, CommandExit},
    objects::{self, FolderDepth},
    reading::{ReadingOptions, namespaces},
    terminal::LookOptions,
};
use crate::api::labels;
pub(super) use mcm_insight::plan::answer::Plan;
use mcm_insight::{
    budget_reader,
    error::UsageError,
    family::DeploymentFamily,
    memory::{self, Memory},
    plan::{
        answer::{Action, ObjectPlan, PlanVerdict},
        assume::AssumedFault,
        change::{ChangeContent, PlannedChange, kind_of},
        everything::{changes as changes_of_everything, joined},
        fields::{assignment, join, to_value},
        markdown,
        planner::{PlanPremises, plan_of},
    },
    read_only::{ReadOnly, ReadOnlyClients},
    reader,
    story::{CLASS, DEPLOYMENT, NamespaceFacts},
    terminal::TerminalLook,
};
use mcm_rules::plan::{SubjectRef, counted, shell::word};

/// Options of the command.
#[derive(Args, Debug)]
pub struct PlanOptions {
    /// The MachineDeployment or MachineClass: NAME or KIND/NAME. Without a change, the plan is what is about to happen anyway.
    /// Without an object and files, it is for each MachineDeployment of the namespace and each MachineSet that has none
    #[arg(value_name = "OBJECT", conflicts_with = "files")]
    object: Option<String>,
    /// Files or folders with the objects as they would be applied; "-" is standard input. Without -n, each namespace that they
    /// name is planned
    #[arg(short = 'f', long = "filename", value_name = "FILE", action = ArgAction::Append)]
    files: Vec<PathBuf>,
    /// Read the folders within these folders as well
    #[arg(short = 'R', long, requires = "files")]
    recursive: bool,
    /// Plan what is about to happen in all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["object", "files", "namespace"])]
    all_namespaces: bool,
    /// A field and its new value, such as template.spec.class.name=small; a dot in a name is written "\."
    #[arg(long = "set", value_name = "FIELD=VALUE", action = ArgAction::Append, conflicts_with_all = ["files", "delete"], requires = "object")]
    set: Vec<String>,
    /// The new number of machines
    #[arg(long, value_name = "N", conflicts_with_all = ["files", "delete"], requires = "object")]
    replicas: Option<i32>,
    /// The revision whose template the deployment gets; 0 is the previous one
    #[arg(long, value_name = "N", conflicts_with_all = ["files", "delete"], requires = "object")]
    to_revision: Option<i64>,
    /// The object is deleted
    #[arg(long, conflicts_with = "files", requires = "object")]
    delete: bool,
    /// The rounds: equal ones as one, or all
    #[arg(long, value_enum, default_value_t = RoundDetail::Summary)]
    steps: RoundDetail,
    /// Ask the cloud, with the credentials in the Secrets of classes and calls that only read, whether it has what new VMs need
    #[arg(long)]
    live: bool,
    /// A fault that is assumed: stock-out=CLASS, of which the cloud creates no VM, or zone-down=ZONE, whose Nodes are silent
    #[arg(long, value_name = "FAULT", action = ArgAction::Append)]
    assume: Vec<AssumedFault>,
    /// Flags of the manager: a command line, a manifest or the answer of /configz; if absent, the manager is asked
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Exit with 3 if the plan has one of these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "EFFECT")]
    fail_on: Vec<FailOn>,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Format of the answer
    #[arg(short = 'o', long = "output", value_enum, value_name = "OUTPUT", default_value_t = PlanFormat::Text)]
    format: PlanFormat,
    #[command(flatten)]
    look: LookOptions,
}

impl PlanOptions {
    /// The premises of all plans of the call.
    fn premises(&self) -> PlanPremises {
        let faults = self.assume.iter().cloned().collect();
        PlanPremises { new_secrets: BTreeSet::new(), is_live: self.live, faults }
    }
}

/// The format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    /// For a terminal.
    Text,
    /// One JSON document.
    Json,
    /// For a comment of a pull request.
    Markdown,
}

/// The rounds that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RoundDetail {
    /// Equal rounds as one.
    Summary,
    /// The round of each machine beside it.
    All,
}

/// A plan that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Machines are replaced.
    Replace,
    /// Machines or objects are deleted without a replacement.
    Delete,
    /// Machines are updated in place.
    InPlace,
    /// Something is in the way that a user has to end.
    Blocked,
    /// An object could not be judged.
    Unknown,
    /// Anything changes.
    Change,
}

impl FailOn {
    fn is_met(self, plan: &Plan) -> bool {
        let any = |is_met: fn(&ObjectPlan) -> bool| plan.objects.iter().any(is_met);
        match self {
            // A rollout that was not played to its end has the verdict unknown.
            Self::Replace => any(|object| object.machines.iter().any(|machine| machine.action == Action::Replace)),
            Self::Delete => {
                any(|object| object.verdict == PlanVerdict::Deletes || object.summary.delete > object.summary.create)
            }
            Self::InPlace => plan.summary.in_place > 0,
            Self::Blocked => plan.blocked,
            Self::Unknown => !plan.complete,
            Self::Change => any(|object| object.verdict != PlanVerdict::NoChange),
        }
    }
}

/// Plans a change.
///
/// # Errors
/// The clusters or files cannot be read, or there is no such object.
pub async fn run(options: PlanOptions) -> Result<CommandAnswer> {
    let (plan, head) = match options.all_namespaces {
        true => in_all(&options).await?,
        false => in_some(&options).await?,
    };
    let is_refused = plan.objects.iter().any(|object| object.verdict == PlanVerdict::Refused);
    let is_no = is_refused || options.fail_on.iter().any(|one| one.is_met(&plan));
    let text = match options.format {
        PlanFormat::Text => format!("{head}\n\n{}", report(options.look.stdout(), &plan, options.steps)),
        PlanFormat::Json => format!("{}\n", serde_json::to_string_pretty(&plan)?),
        PlanFormat::Markdown => markdown::plan(&head, &plan),
    };
    Ok(CommandAnswer { text, exit: if is_no { CommandExit::No } else { CommandExit::Good } })
}

/// The plan for an object, for a namespace, or for files, with the cluster and the namespace.
async fn in_some(options: &PlanOptions) -> Result<(Plan, String)> {
    let depth = if options.recursive { FolderDepth::Folders } else { FolderDepth::Folder };
    let files: Vec<Value> = options
        .files
        .iter()
        .map(|path| objects::read_within(path, depth))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect();
    let reach = options.reading.reach().await?;
    reach.check().await?;
    // As for kubectl, a namespace that the files name needs no flag.
    let named =
        if options.reading.cluster.namespace.is_some() { Vec::new() } else { namespaces_of(&files, &reach.namespace) };
    if let [_, _, ..] = named.as_slice() {
        return in_several(options, reach, &files, named).await;
    }
    let namespace = named.into_iter().next().unwrap_or_else(|| reach.namespace.clone());
    let mut cell = options.reading.cell(reach.within(&namespace)).await?;
    let head = cell.place.title(&cell.namespace);
    if options.object.is_none() && options.files.is_empty() {
        return Ok((of_everything(options, cell).await?, head));
    }
    let Some(wanted) = &options.object else { return Ok((of_files(options, &mut cell, &files).await?, head)) };
    let changes = |facts: &NamespaceFacts| change_of(options, facts, wanted).map(|change| (vec![change], Vec::new()));
    Ok((of_changes(&mut cell, options.premises(), options.policy.as_deref(), changes).await?, head))
}

/// The plan for files with objects of several namespaces, with the cluster.
async fn in_several(
    options: &PlanOptions,
    reach: ReadOnlyClients,
    files: &[Value],
    namespaces: Vec<String>,
) -> Result<(Plan, String)> {
    let head = reach.place.title_of_many(&counted(namespaces.len(), "namespace"));
    let (now, default) = (Timestamp::now(), reach.namespace.clone());
    let plans = namespaces.into_iter().map(async |namespace| {
        let mut cell = options.reading.cell(reach.within(&namespace)).await?;
        let is_within = |object: &&Value| object["metadata"]["namespace"].as_str().unwrap_or(&default) == namespace;
        let files: Vec<Value> = files.iter().filter(is_within).cloned().collect();
        Ok::<_, anyhow::Error>((namespace, of_files(options, &mut cell, &files).await?))
    });
    let plans = stream::iter(plans).buffered(namespaces::AT_A_TIME).try_collect().await?;
    Ok((joined(now, plans, &BTreeMap::new()), head))
}

/// The plan for the objects of files, of one namespace.
async fn of_files(options: &PlanOptions, cell: &mut ReadOnly, files: &[Value]) -> Result<Plan> {
    let premises = PlanPremises { new_secrets: secrets_of_files(files, &cell.namespace), ..options.premises() };
    let changes = |facts: &NamespaceFacts| changes_of_files(files, &facts.namespace);
    of_changes(cell, premises, options.policy.as_deref(), changes).await
}

/// The plan for one change.
///
/// # Errors
/// The objects cannot be read.
pub(super) async fn of_change(cell: &mut ReadOnly, change: PlannedChange) -> Result<Plan> {
    of_changes(cell, PlanPremises::default(), None, |_| Ok((vec![change], Vec::new()))).await
}

/// The plan for everything in all namespaces, with the cluster.
async fn in_all(options: &PlanOptions) -> Result<(Plan, String)> {
    let now = Timestamp::now();
    let reach = options.reading.reach().await?;
    reach.check().await?;
    let namespaces::ClusterNamespaces { used, refused } = namespaces::namespaces(&reach).await?;
    let plans = used.into_iter().map(|namespace| of_namespace(options, reach.within(&namespace)));
    let plans = stream::iter(plans).buffered(namespaces::AT_A_TIME).try_collect().await?;
    Ok((joined(now, plans, &refused), reach.place.title_of_all()))
}

async fn of_namespace(options: &PlanOptions, reach: ReadOnlyClients) -> Result<(String, Plan)> {
    let namespace = reach.namespace.clone();
    Ok((namespace, of_everything(options, options.reading.cell(reach).await?).await?))
}

/// The plan for everything in a namespace. Settled objects are counted.
async fn of_everything(options: &PlanOptions, cell: ReadOnly) -> Result<Plan> {
    let (mut cell, mut is_partial) = (cell, false);
    let changes = |facts: &NamespaceFacts| {
        is_partial = !facts.is_whole();
        Ok(changes_of_everything(facts))
    };
    let plan = of_changes(&mut cell, options.premises(), options.policy.as_deref(), changes).await?;
    Ok(Plan { complete: plan.complete && !is_partial, ..plan.without_settled() })
}

/// The plan for changes that follow from the objects of a namespace, with notes about these.
pub(super) async fn of_changes(
    cell: &mut ReadOnly,
    premises: PlanPremises,
    policy: Option<&Path>,
    changes: impl FnOnce(&NamespaceFacts) -> Result<(Vec<PlannedChange>, Vec<String>)>,
) -> Result<Plan> {
    let mut facts = reader::unplanned(cell).await?;
    let flags = policy::apply(policy, cell, &facts.managers).await?;
    // The source of the flags names the manager that did not answer.
    facts.memory = Memory { problems: Vec::new(), ..memory::ask(cell, &facts.managers, None).await };
    facts.budgets = budget_reader::awaited(cell, &facts).await;
    let (changes, mut notes) = changes(&facts)?;
    let objects: Vec<SubjectRef> = changes.iter().map(|change| facts.subject(change.kind, &change.name)).collect();
    reader::plan_below(cell, &mut facts, &objects);
    notes.extend(reader::notes(cell, &facts));
    let mut plan = plan_of(cell, &facts, &changes, premises).await?;
    plan.notes.splice(0..0, notes);
    let remedies = plan.objects.iter_mut().flat_map(|one| &mut one.blockers).flat_map(|one| &mut one.remedies);
    for remedy in remedies {
        remedy.command = cell.place.addressed(&remedy.command);
    }
    plan.flags = Some(flags);
    Ok(plan)
}

/// The plan as text.
pub(super) fn report(look: TerminalLook, plan: &Plan, steps: RoundDetail) -> String {
    mcm_insight::plan::report::plan(look, plan, steps == RoundDetail::All)
}

fn change_of(options: &PlanOptions, facts: &NamespaceFacts, wanted: &str) -> Result<PlannedChange> {
    let object = reader::find(facts, wanted)?;
    let kind = match object.kind.as_str() {
        DEPLOYMENT => DEPLOYMENT,
        CLASS => CLASS,
        other => {
            let message =
                format!("a plan is for a MachineDeployment or a MachineClass, and {} is a {other}", object.name);
            return Err(UsageError { message, hint: "name the MachineDeployment that owns it".to_owned() }.into());
        }
    };
    if options.delete {
        return Ok(PlannedChange { kind, name: object.name, wish: ChangeContent::Delete });
    }
    let misuse = |message: String| UsageError { message, hint: "see mcm plan --help".to_owned() };
    let mut patches = Vec::new();
    if kind == CLASS && (options.replicas.is_some() || options.to_revision.is_some()) {
        return Err(misuse("a MachineClass has neither replicas nor revisions".to_owned()).into());
    }
    if let Some(revision) = options.to_revision {
        patches.push(to_revision(facts, &object.name, revision)?);
    }
    patches.extend(options.replicas.map(|replicas| json!({ "spec": { "replicas": replicas } })));
    for text in &options.set {
        let patch = assignment(text).map_err(misuse)?;
        let is_whole = kind == CLASS || patch.get("spec").is_some() || patch.get("metadata").is_some();
        patches.push(if is_whole { patch } else { json!({ "spec": patch }) });
    }
    let wish = if patches.is_empty() {
        ChangeContent::Nothing
    } else {
        // Merging keeps the nulls of a merge patch, which remove fields.
        ChangeContent::Patch(patches.into_iter().fold(json!({}), |mut all, one| {
            join(&mut all, one);
            all
        }))
    };
    Ok(PlannedChange { kind, name: object.name, wish })
}

/// A merge patch that gives a deployment the template of an earlier revision; 0 is the previous one.
///
/// # Errors
/// There is no such revision.
pub(super) fn to_revision(facts: &NamespaceFacts, name: &str, revision: i64) -> Result<Value, UsageError> {
    let family = facts.family(name);
    let found = family.as_ref().and_then(|family| family.of_revision(Some(revision).filter(|wanted| *wanted != 0)));
    let Some(set) = found else {
        let known: Vec<String> =
            family.iter().flat_map(DeploymentFamily::revisions).rev().map(|one| one.to_string()).collect();
        let message = format!("deployment {name} has no revision {revision} to return to");
        return Err(UsageError { message, hint: format!("its revisions are {}", known.join(", ")) });
    };
    let live = family.map(|family| to_value(&family.deployment.spec.template)).unwrap_or_default();
    let mut template = to_value(&set.spec.template);
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(labels::TEMPLATE_HASH);
    }
    let patch = crate::api::patch::diff(&live, &template).unwrap_or_else(|| json!({}));
    Ok(json!({ "spec": { "template": patch } }))
}

/// The namespaces of the objects of files that are planned. An object that names none is in the default one.
fn namespaces_of(files: &[Value], default: &str) -> Vec<String> {
    let planned = files.iter().filter(|object| kind_of(object).is_some());
    let names: BTreeSet<&str> =
        planned.map(|object| object["metadata"]["namespace"].as_str().unwrap_or(default)).collect();
    names.into_iter().map(str::to_owned).collect()
}

fn changes_of_files(files: &[Value], namespace: &str) -> Result<(Vec<PlannedChange>, Vec<String>)> {
    let (mut changes, mut notes) = (Vec::new(), Vec::new());
    for object in files {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let own = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
        match kind_of(object) {
            Some(kind) if own == namespace => {
                changes.push(PlannedChange { kind, name, wish: ChangeContent::File(object.clone()) })
            }
            Some(kind) => {
                let message =
                    format!("{kind} {name} is in namespace {own}, and the command reads namespace {namespace}");
                return Err(UsageError {
                    message,
                    hint: format!("mcm plan -f FILE -n {}, with the files of one namespace", word(own)),
                }
                .into());
            }
            None => notes.push(format!("{} {name} was not planned", object["kind"].as_str().unwrap_or("object"))),
        }
    }
    if changes.is_empty() {
        let message = "the files have no MachineDeployment and no MachineClass".to_owned();
        return Err(UsageError { message, hint: "mcm plan NAME plans an object that exists".to_owned() }.into());
    }
    // The classes come first: deployments are played with them.
    changes.sort_by_key(|change| change.kind != CLASS);
    Ok((changes, notes))
}

/// Names of the Secrets in files, which will exist.
fn secrets_of_files(files: &[Value], namespace: &str) -> BTreeSet<String> {
    let is_secret = |object: &&Value| {
        object["kind"] == "Secret" && object["metadata"]["namespace"].as_str().is_none_or(|own| own == namespace)
    };
    let names = files.iter().filter(is_secret).filter_map(|object| object["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
