//! `mcm plan`: says what a change would do to machines, before it is made.

mod answer;
pub(super) mod change;
mod everything;
mod fields;
mod fold;
mod live;
mod obstacles;
mod outcome;
mod policy;
mod rehearse;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::Result;
use clap::{ArgAction, Args, ValueEnum};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

pub(super) use self::answer::Plan;
use self::{
    answer::{Action, Effect, ObjectPlan, Summary, Verdict},
    change::{Change, Version, Wish, secret_exists},
    everything::Namespaces,
    fields::{Difference, differences, to_value},
    fold::{Fold, Whole},
    outcome::{Case, of},
    rehearse::Scene,
};
use super::{
    error::Misuse,
    exit::{Answer, Exit},
    format::{Format, OutputOptions},
    objects::{self, Depth},
    reading::{
        self, ReadingOptions,
        family::Family,
        story::{CLASS, DEPLOYMENT, Facts, MACHINE, SET, Unreadable},
    },
    terminal::Look,
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineClass, MachineDeployment, MachineSet},
    },
    controllers::{
        machine_class::secret_refs,
        machine_deployment::{bounds_of, was_pruned},
    },
    plan::shell::word,
    process::{Reach, ReadOnly, Unread},
    rehearsal::play::Cue,
};

/// The kinds without which it is not known what a deployment has.
const NEEDED: [&str; 3] = ["machinesets", "machines", "machineclasses"];
/// The most machines of a deployment that is planned.
const MOST_MACHINES: usize = 10_000;

/// Options of the command.
#[derive(Args, Debug)]
pub struct PlanOptions {
    /// The MachineDeployment or MachineClass: NAME or KIND/NAME. Without a change, the plan is what is about to happen anyway.
    /// Without an object and files, it is for each MachineDeployment of the namespace and each MachineSet that has none
    #[arg(value_name = "OBJECT", conflicts_with = "files")]
    object: Option<String>,
    /// Files or folders with the objects as they would be applied; "-" is standard input
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
    #[arg(long, value_enum, default_value_t = Steps::Summary)]
    steps: Steps,
    /// Ask the cloud, with the credentials in the Secrets of classes and calls that only read, whether it has what new VMs need
    #[arg(long)]
    live: bool,
    /// Flags of the manager: a command line, a manifest or the answer of /configz; if absent, the manager is asked
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Exit with 3 if the plan has one of these
    #[arg(long, value_enum, value_delimiter = ',', value_name = "EFFECT")]
    fail_on: Vec<FailOn>,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    output: OutputOptions,
}

/// The rounds that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Steps {
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
                any(|object| object.verdict == Verdict::Deletes || object.summary.delete > object.summary.create)
            }
            Self::InPlace => plan.summary.in_place > 0,
            Self::Blocked => plan.blocked,
            Self::Unknown => !plan.complete,
            Self::Change => any(|object| object.verdict != Verdict::NoChange),
        }
    }
}

/// Says what a change would do.
///
/// # Errors
/// The clusters or files cannot be read, or there is no such object.
pub async fn run(options: PlanOptions) -> Result<Answer> {
    let plan = if options.all_namespaces { in_all(&options).await? } else { in_one(&options).await? };
    let is_refused = plan.objects.iter().any(|object| object.verdict == Verdict::Refused);
    let is_no = is_refused || options.fail_on.iter().any(|one| one.is_met(&plan));
    let text = match options.output.format {
        Format::Text => report(options.output.look(), &plan, options.steps),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&plan)?),
    };
    Ok(Answer { text, exit: if is_no { Exit::No } else { Exit::Good } })
}

/// The plan for objects of one namespace.
async fn in_one(options: &PlanOptions) -> Result<Plan> {
    let depth = if options.recursive { Depth::Folders } else { Depth::Folder };
    let files: Vec<Value> = options
        .files
        .iter()
        .map(|path| objects::read_within(path, depth))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect();
    // As for kubectl, the namespace that the files name needs no flag.
    let mut reading = options.reading.clone();
    reading.namespace = reading.namespace.or_else(|| namespace_of(&files));
    let cell = reading.open().await?;
    if options.object.is_none() && options.files.is_empty() {
        return of_everything(options, cell).await;
    }
    let changes = |facts: &Facts| match &options.object {
        Some(wanted) => change_of(options, facts, wanted).map(|change| (vec![change], Vec::new())),
        None => changes_of_files(&files, &facts.namespace),
    };
    let new_secrets = secrets_of_files(&files, &cell.namespace);
    of_changes(options, cell, new_secrets, changes).await
}

/// The plan for everything in all namespaces.
async fn in_all(options: &PlanOptions) -> Result<Plan> {
    let now = Timestamp::now();
    let reach = options.reading.reach().await?;
    reach.check().await?;
    let Namespaces { used, refused } = everything::namespaces(&reach).await?;
    let plans = used.into_iter().map(|namespace| of_namespace(options, reach.within(&namespace)));
    let plans = stream::iter(plans).buffered(everything::AT_A_TIME).try_collect().await?;
    Ok(everything::joined(now, plans, &refused))
}

async fn of_namespace(options: &PlanOptions, reach: Reach) -> Result<(String, Plan)> {
    let namespace = reach.namespace.clone();
    Ok((namespace, of_everything(options, options.reading.cell(reach).await?).await?))
}

/// The plan for everything in a namespace. Settled objects are counted.
async fn of_everything(options: &PlanOptions, cell: ReadOnly) -> Result<Plan> {
    let plan = of_changes(options, cell, BTreeSet::new(), |facts| Ok(everything::changes(facts))).await?;
    Ok(plan.without_settled())
}

/// The plan for changes that follow from the objects of a namespace, with notes about these.
async fn of_changes(
    options: &PlanOptions,
    mut cell: ReadOnly,
    new_secrets: BTreeSet<String>,
    changes: impl FnOnce(&Facts) -> Result<(Vec<Change>, Vec<String>)>,
) -> Result<Plan> {
    let facts = reading::unplanned(&cell).await?;
    let flags = policy::apply(options.policy.as_deref(), &mut cell, &facts.managers).await?;
    let (changes, mut notes) = changes(&facts)?;
    notes.extend(reading::notes(&cell, &facts));
    let mut plan = plan_of(&cell, &facts, &changes, new_secrets, options.live).await?;
    plan.notes.splice(0..0, notes);
    plan.flags = Some(flags);
    Ok(plan)
}

/// The plan as text.
pub(super) fn report(look: Look, plan: &Plan, steps: Steps) -> String {
    report::plan(look, plan, steps == Steps::All)
}

fn change_of(options: &PlanOptions, facts: &Facts, wanted: &str) -> Result<Change> {
    let object = reading::find(facts, wanted)?;
    let kind = match object.kind.as_str() {
        DEPLOYMENT => DEPLOYMENT,
        CLASS => CLASS,
        other => {
            let message =
                format!("a plan is for a MachineDeployment or a MachineClass, and {} is a {other}", object.name);
            return Err(Misuse { message, hint: "name the MachineDeployment that owns it".to_owned() }.into());
        }
    };
    if options.delete {
        return Ok(Change { kind, name: object.name, wish: Wish::Delete });
    }
    let misuse = |message: String| Misuse { message, hint: "see mcm plan --help".to_owned() };
    let mut patches = Vec::new();
    if kind == CLASS && (options.replicas.is_some() || options.to_revision.is_some()) {
        return Err(misuse("a MachineClass has neither replicas nor revisions".to_owned()).into());
    }
    if let Some(revision) = options.to_revision {
        patches.push(to_revision(facts, &object.name, revision)?);
    }
    patches.extend(options.replicas.map(|replicas| json!({ "spec": { "replicas": replicas } })));
    for text in &options.set {
        let patch = fields::assignment(text).map_err(misuse)?;
        let is_whole = kind == CLASS || patch.get("spec").is_some() || patch.get("metadata").is_some();
        patches.push(if is_whole { patch } else { json!({ "spec": patch }) });
    }
    let wish = if patches.is_empty() {
        Wish::Nothing
    } else {
        // Merging keeps the nulls of a merge patch, which remove fields.
        Wish::Patch(patches.into_iter().fold(json!({}), |mut all, one| {
            fields::join(&mut all, one);
            all
        }))
    };
    Ok(Change { kind, name: object.name, wish })
}

/// A merge patch that gives a deployment the template of an earlier revision; 0 is the previous one.
///
/// # Errors
/// There is no such revision.
pub(super) fn to_revision(facts: &Facts, name: &str, revision: i64) -> Result<Value, Misuse> {
    let family = facts.family(name);
    let found = family.as_ref().and_then(|family| family.of_revision(Some(revision).filter(|wanted| *wanted != 0)));
    let Some(set) = found else {
        let known: Vec<String> = family.iter().flat_map(Family::revisions).rev().map(|one| one.to_string()).collect();
        let message = format!("deployment {name} has no revision {revision} to return to");
        return Err(Misuse { message, hint: format!("its revisions are {}", known.join(", ")) });
    };
    let live = family.map(|family| to_value(&family.deployment.spec.template)).unwrap_or_default();
    let mut template = to_value(&set.spec.template);
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(labels::TEMPLATE_HASH);
    }
    let patch = crate::api::patch::diff(&live, &template).unwrap_or_else(|| json!({}));
    Ok(json!({ "spec": { "template": patch } }))
}

/// The namespace that all objects of files which are planned name; `None` if one of them names another, or none.
fn namespace_of(files: &[Value]) -> Option<String> {
    let planned = files.iter().filter(|object| change::kind_of(object).is_some());
    let mut namespaces = planned.map(|object| object["metadata"]["namespace"].as_str());
    let first = namespaces.next()??;
    namespaces.all(|other| other == Some(first)).then(|| first.to_owned())
}

fn changes_of_files(files: &[Value], namespace: &str) -> Result<(Vec<Change>, Vec<String>)> {
    let (mut changes, mut notes) = (Vec::new(), Vec::new());
    for object in files {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let own = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
        match change::kind_of(object) {
            Some(kind) if own == namespace => changes.push(Change { kind, name, wish: Wish::File(object.clone()) }),
            Some(kind) => {
                let message =
                    format!("{kind} {name} is in namespace {own}, and the command reads namespace {namespace}");
                return Err(Misuse {
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
        return Err(Misuse { message, hint: "mcm plan NAME plans an object that exists".to_owned() }.into());
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

/// Plans changes of objects of one namespace, beside which there are new Secrets. Nothing is written. With `is_live`, the clouds of
/// classes are asked.
///
/// # Errors
/// An object cannot be read.
pub(super) async fn plan_of(
    cell: &ReadOnly,
    facts: &Facts,
    changes: &[Change],
    new_secrets: BTreeSet<String>,
    is_live: bool,
) -> Result<Plan> {
    let planner = Planner { is_live, ..Planner::of(cell, facts, new_secrets).await };
    planner.plan(changes).await
}

struct Planner<'a> {
    cell: &'a ReadOnly,
    facts: &'a Facts,
    /// Classes as they will be.
    classes: reading::story::ByName<MachineClass>,
    missing_secrets: BTreeSet<String>,
    /// Names of Secrets that the files bring.
    new_secrets: BTreeSet<String>,
    nodes: Option<Vec<Value>>,
    budgets: Vec<obstacles::Strict>,
    /// The clouds of classes are asked.
    is_live: bool,
    notes: Vec<String>,
}

impl<'a> Planner<'a> {
    async fn of(cell: &'a ReadOnly, facts: &'a Facts, new_secrets: BTreeSet<String>) -> Self {
        let mut notes = Vec::new();
        let nodes = cell.nodes().map(|nodes| nodes.iter().map(|node| to_value(node.as_ref())).collect());
        if cell.target.is_some() && nodes.is_none() {
            notes.push("Nodes could not be read: those of running machines are taken for ready".to_owned());
        }
        let budgets = match &cell.target {
            Some(target) => obstacles::strict_budgets(target).await.unwrap_or_else(|error| {
                notes.push(format!("pods and budgets could not be read, so blocked drains are unknown: {error}"));
                Vec::new()
            }),
            None => Vec::new(),
        };
        let mut planner = Self {
            cell,
            facts,
            classes: facts.classes.clone(),
            missing_secrets: BTreeSet::new(),
            new_secrets,
            nodes,
            budgets,
            is_live: false,
            notes,
        };
        planner.look_for_secrets(facts.classes.values().cloned().collect()).await;
        planner
    }

    async fn plan(mut self, changes: &[Change]) -> Result<Plan> {
        let mut plans = Vec::new();
        // Each class is looked at once, for all objects that use it.
        let mut in_clouds: BTreeMap<String, Vec<answer::Blocker>> = BTreeMap::new();
        for change in changes {
            let version = change::version(self.cell, self.facts, change).await?;
            self.notes.extend(version.note.clone());
            let class = version.wanted.clone().filter(|_| change.kind == CLASS);
            if let Some(Ok(class)) = class.map(serde_json::from_value::<MachineClass>) {
                self.look_for_secrets(vec![class]).await;
            }
            let mut plan = match change.kind {
                CLASS => self.class(change, &version),
                _ => self.deployment(change, &version).await,
            };
            if let Some((name, class)) = self.class_of_new_vms(&plan, &version).filter(|_| self.is_live) {
                if !in_clouds.contains_key(name) {
                    in_clouds.insert(name.to_owned(), live::obstacles(self.cell, name, class).await);
                }
                plan.blockers.extend(in_clouds.get(name).into_iter().flatten().cloned());
            }
            plans.push(plan);
        }
        Ok(Plan::of(self.facts.now, plans, self.notes))
    }

    /// The class from which an object creates VMs, or that is changed itself, with its name.
    fn class_of_new_vms<'b>(
        &'b self,
        plan: &'b ObjectPlan,
        version: &'b Version,
    ) -> Option<(&'b str, &'b MachineClass)> {
        let wanted = version.wanted.as_ref()?;
        let name = match plan.kind.as_str() {
            CLASS => plan.name.as_str(),
            _ if plan.summary.create > 0 => wanted["spec"]["template"]["spec"]["class"]["name"].as_str()?,
            _ => return None,
        };
        Some((name, self.classes.get(name)?))
    }

    async fn look_for_secrets(&mut self, classes: Vec<MachineClass>) {
        let names: BTreeSet<(String, String)> = classes
            .iter()
            .flat_map(secret_refs)
            .filter(|secret| !secret.name.is_empty())
            .map(|secret| (secret.namespace.clone(), secret.name.clone()))
            .collect();
        let mut is_unknown = false;
        for (namespace, name) in names {
            let namespace = if namespace.is_empty() { &self.cell.namespace } else { &namespace };
            match secret_exists(&self.cell.control, namespace, &name).await {
                Some(true) => {}
                Some(false) if self.new_secrets.contains(&name) => {}
                Some(false) => drop(self.missing_secrets.insert(name)),
                None => is_unknown = true,
            }
        }
        let note = "Secrets may not be read: those of classes are taken for existing".to_owned();
        if is_unknown && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// A class replaces no machine.
    fn class(&mut self, change: &Change, version: &Version) -> ObjectPlan {
        let mut plan = ObjectPlan::of(CLASS, &self.cell.namespace, &change.name, Verdict::ReplacesNothing);
        if let Some(reason) = &version.refused {
            return ObjectPlan { reason: Some(reason.clone()), ..refused(plan) };
        }
        let users: Vec<(&String, usize)> = (self.facts.deployments.iter())
            .filter(|(_, one)| one.spec.template.spec.class.name == change.name)
            .map(|(name, _)| (name, machines_of(&sets_of(self.facts, DEPLOYMENT, name), self.facts).len()))
            .collect();
        for (name, count) in &users {
            plan.remarks
                .push(format!("used by MachineDeployment {name}: {} keep the VMs they have", of(*count, "machine")));
        }
        let Some(wanted) = &version.wanted else {
            plan.verdict = Verdict::Deletes;
            "DELETES the class".clone_into(&mut plan.headline);
            if !users.is_empty() {
                plan.remarks.push("a finalizer keeps the class until no machine and no deployment uses it".to_owned());
            }
            return plan;
        };
        if let Some(live) = &version.live {
            let changed = differences::<MachineClass>(live, wanted);
            let effect = |one: &Difference| if one.is_same { Effect::Same } else { Effect::NewMachines };
            plan.fields = changed.iter().map(|one| one.field(effect(one))).collect();
            if plan.fields.iter().all(|one| one.effect == Effect::Same) {
                (plan.verdict, plan.headline) = (Verdict::NoChange, Verdict::NoChange.words().to_owned());
            } else {
                let restart = |(name, _): &(&String, usize)| {
                    format!("to replace them: mcm rollout restart {name} -n {}", self.cell.namespace)
                };
                plan.remarks.extend(users.iter().map(restart));
            }
        } else {
            (plan.verdict, plan.headline) = (Verdict::Creates, "CREATES the class".to_owned());
        }
        match serde_json::from_value::<MachineClass>(wanted.clone()) {
            Ok(class) => {
                let drivers = &self.cell.settings.drivers;
                plan.blockers = obstacles::of_class(&change.name, Some(&class), drivers, &self.missing_secrets);
                self.classes.insert(change.name.clone(), class);
            }
            Err(error) => {
                return ObjectPlan { reason: Some(format!("it cannot be decoded: {error}")), ..refused(plan) };
            }
        }
        plan
    }

    /// The plan for a deployment, or for a set that has none.
    async fn deployment(&self, change: &Change, version: &Version) -> ObjectPlan {
        let mut plan = ObjectPlan::of(change.kind, &self.cell.namespace, &change.name, Verdict::Unknown);
        let mut version = version.clone();
        if let Some(reason) = &version.refused {
            return ObjectPlan { reason: Some(reason.clone()), ..refused(plan) };
        }
        let typed = |value: &Option<Value>| value.as_ref().map(|value| typed(change.kind, value)).transpose();
        let (live, mut wanted): (Option<MachineDeployment>, Option<MachineDeployment>) =
            match (typed(&version.live), typed(&version.wanted)) {
                (Ok(live), Ok(wanted)) => (live, wanted),
                (Err(error), _) => {
                    return ObjectPlan { reason: Some(format!("it cannot be decoded: {error}")), ..plan };
                }
                (_, Err(error)) => {
                    return ObjectPlan { reason: Some(format!("it cannot be decoded: {error}")), ..refused(plan) };
                }
            };
        if let (Some(live), Some(wanted), Some(value)) = (&live, &mut wanted, &mut version.wanted)
            && loses_replicas(&change.wish, live, wanted)
        {
            wanted.spec.replicas = live.spec.replicas;
            value["spec"]["replicas"] = json!(live.spec.replicas);
            plan.remarks.push(format!("the file removes spec.replicas: the controllers keep {}", live.spec.replicas));
        }
        if let Some(Err(reason)) = wanted.as_ref().map(bounds_of) {
            return ObjectPlan { reason: Some(reason), ..refused(plan) };
        }
        let sets = sets_of(self.facts, change.kind, &change.name);
        if let Some(reason) = self.unknown_part(&change.name, &sets, wanted.as_ref()) {
            return ObjectPlan { reason: Some(reason), ..plan };
        }
        let machines = machines_of(&sets, self.facts);
        let wished = wanted.as_ref().map_or(0, |wanted| usize::try_from(wanted.spec.replicas).unwrap_or_default());
        if machines.len().max(wished) > MOST_MACHINES {
            let reason = format!("more than {MOST_MACHINES} machines are not planned");
            return ObjectPlan { reason: Some(reason), ..plan };
        }
        match self.play(change, &version, [live.as_ref(), wanted.as_ref()], sets, machines, plan.clone()).await {
            Ok(plan) => plan,
            Err(failure) => ObjectPlan { reason: Some(failure.to_string()), settles: false, ..plan },
        }
    }

    /// Why it is not known which machines a deployment has, or from which class it makes them.
    fn unknown_part(&self, name: &str, sets: &[&MachineSet], wanted: Option<&MachineDeployment>) -> Option<String> {
        let is_needed = |one: &&Unread| one.refusal.is_some() && NEEDED.contains(&one.kind.as_str());
        if let Some(unread) = self.cell.unread.iter().find(is_needed) {
            return Some(format!("you may not list {}", unread.kind));
        }
        let sets: BTreeSet<String> = sets.iter().map(|set| set.name_any()).collect();
        let is_part = |one: &&Unreadable| match (one.kind.as_str(), &one.owner) {
            (SET, Some(owner)) => owner == name,
            (MACHINE, Some(owner)) => sets.contains(owner),
            (CLASS, _) => {
                let is_used = wanted.is_some_and(|wanted| wanted.spec.template.spec.class.name == one.name);
                is_used && !self.classes.contains_key(&one.name)
            }
            _ => false,
        };
        self.facts.unreadable.iter().find(is_part).map(ToString::to_string)
    }

    async fn play(
        &self,
        change: &Change,
        version: &Version,
        [live, wanted]: [Option<&MachineDeployment>; 2],
        sets: Vec<&MachineSet>,
        machines: Vec<&Machine>,
        mut plan: ObjectPlan,
    ) -> Result<ObjectPlan, crate::rehearsal::play::Failure> {
        let is_deployment = change.kind == DEPLOYMENT;
        let class = wanted.map(|wanted| wanted.spec.template.spec.class.name.clone());
        let strategy = wanted.and_then(|wanted| wanted.spec.strategy.in_place_update.as_ref());
        let scene = Scene {
            now: self.facts.now,
            namespace: &self.cell.namespace,
            settings: &self.cell.settings,
            has_target: self.cell.target.is_some(),
            deployment: version.live.as_ref().filter(|_| is_deployment),
            sets,
            classes: self.classes_of(&machines, class.as_deref()),
            machines: machines.clone(),
            missing_secrets: &self.missing_secrets,
            nodes: self.nodes_of(&machines),
            selects: strategy.is_some_and(|strategy| strategy.orchestration_type == "Manual"),
            join: outcome::join_of(&machines),
        };
        let fields = match (&version.live, &version.wanted, live) {
            (Some(before), Some(after), Some(live)) => {
                scene.fields(live, differences::<MachineDeployment>(before, after)).await?
            }
            _ => Vec::new(),
        };
        let cue = match (&version.live, &version.wanted) {
            (_, None) => Some(Cue::Delete),
            (None, Some(wanted)) => Some(Cue::Create(wanted.clone())),
            (Some(_), Some(wanted)) => (change.wish != Wish::Nothing).then(|| Cue::Write(wanted.clone())),
        };
        let (sets, nodes) = (scene.sets.as_slice(), scene.nodes.as_deref());
        let whole = Whole { live, wanted, sets, machines: &machines, nodes, now: scene.now };
        let folds = if is_deployment { Fold::all_of(&whole) } else { Vec::new() };
        let (course, fold) = scene.play(&change.name, cue, &folds).await?;
        let policy = &self.cell.settings.machine;
        Case { live, wanted, machines: &machines, policy, fields }.fill(&mut plan, &course);
        if let Some((fold, trust)) = fold {
            plan.remarks.push(fold.remark(trust));
            fold::mark(&mut plan, trust);
        }
        let under_way = outcome::under_way(&machines);
        plan.is_settled = plan.verdict == Verdict::NoChange && plan.settles && under_way.is_none();
        plan.remarks.extend(under_way);

        let of_deployment = wanted.filter(|_| is_deployment);
        let mut blockers = obstacles::of_objects(&plan, of_deployment, &machines, self.facts.now);
        if let Some(class) = class.filter(|_| plan.summary.create > 0 || !plan.settles) {
            let drivers = &self.cell.settings.drivers;
            blockers.extend(obstacles::of_class(&class, self.classes.get(&class), drivers, &self.missing_secrets));
        }
        blockers.extend(obstacles::of_budgets(&plan, &self.budgets, &machines, policy.drain_timeout));
        if !plan.settles && blockers.is_empty() {
            blockers.extend(obstacles::of_waits(&course.waits, &self.cell.namespace));
            if fold.is_some() && !blockers.is_empty() {
                plan.remarks
                    .push("numbers of what is in the way are those of the machines that were played".to_owned());
            }
        }
        plan.blockers = blockers;
        Ok(plan)
    }

    fn classes_of(&self, machines: &[&Machine], class: Option<&str>) -> Vec<&MachineClass> {
        let names: BTreeSet<&str> =
            machines.iter().map(|machine| machine.spec.class.name.as_str()).chain(class).collect();
        names.into_iter().filter_map(|name| self.classes.get(name)).collect()
    }

    /// The Nodes of the machines.
    fn nodes_of(&self, machines: &[&Machine]) -> Option<Vec<Value>> {
        let names: BTreeSet<&str> = machines.iter().filter_map(|machine| machine.node_name()).collect();
        let is_of = |node: &&Value| node["metadata"]["name"].as_str().is_some_and(|name| names.contains(name));
        Some(self.nodes.as_ref()?.iter().filter(is_of).cloned().collect())
    }
}

/// Whether a file removes the replicas of a deployment that keeps them then. kubectl notes the file that it applies.
fn loses_replicas(wish: &Wish, live: &MachineDeployment, wanted: &MachineDeployment) -> bool {
    let Wish::File(file) = wish else { return false };
    let mut noted = wanted.clone();
    noted.annotations_mut().insert(labels::KUBECTL_LAST_APPLIED.to_owned(), file.to_string());
    live.spec.replicas > 0 && was_pruned(&noted)
}

fn refused(plan: ObjectPlan) -> ObjectPlan {
    ObjectPlan {
        verdict: Verdict::Refused,
        headline: Verdict::Refused.words().to_owned(),
        summary: Summary::default(),
        ..plan
    }
}

/// The deployment of a value. For a set without one it is a deployment that has only this set, so that no bounds apply.
fn typed(kind: &str, value: &Value) -> serde_json::Result<MachineDeployment> {
    let mut value = value.clone();
    if kind == SET {
        value["spec"]["strategy"] = json!({ "type": "Recreate" });
        value["status"] = json!({});
    }
    serde_json::from_value(value)
}

/// The sets of a deployment; a set without one is alone.
fn sets_of<'a>(facts: &'a Facts, kind: &str, name: &str) -> Vec<&'a MachineSet> {
    match kind {
        SET => facts.sets.get(name).into_iter().collect(),
        _ => facts.family(name).map(|family| family.sets).unwrap_or_default(),
    }
}

fn machines_of<'a>(sets: &[&MachineSet], facts: &'a Facts) -> Vec<&'a Machine> {
    let mut machines: Vec<_> = sets.iter().flat_map(|set| facts.machines_of_set(&set.name_any())).collect();
    machines.sort_by_key(|machine| machine.name_any());
    machines
}

#[cfg(test)]
mod tests;
