//! One change of one object: the decision, the plan, the consent and the patch.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};

use super::{
    decide,
    look::PlannedPatch,
    options::{RolloutLookOptions, WritingOptions},
    patch::ObjectPatch,
    verb::ChangeVerb,
};
use crate::{
    api::{GoDuration, kinds::mcm_kind, machine::Machine},
    cli::{
        exit::{CommandAnswer, CommandExit, ExitError},
        plan,
        reading::{ClusterOptions, ReadingOptions},
    },
};
use mcm_controllers::SETS;
use mcm_insight::{memory, place::CallTarget, plan::drain, read_only, reader, terminal::TerminalLook};
use mcm_rules::plan::SubjectRef;
use mcm_runtime::kubeconfig::{self, KubeconfigFallback, ProcessClusters, TargetKubeconfig, UserAgent};

/// The field manager of these commands.
const MANAGER: &str = "mcm-cli";
/// The most attempts to write: the manager may write a status between reading and writing.
pub(super) const MOST_ATTEMPTS: u32 = 5;
/// The most bytes of an answer.
const MOST_ANSWER: u64 = 64;

/// A verb with its cluster.
pub(super) struct VerbRun {
    pub verb: ChangeVerb,
    /// For verbs whose effect is planned first.
    pub look: Option<RolloutLookOptions>,
    pub writing: WritingOptions,
    pub client: Client,
    pub namespace: String,
    /// The cluster in words, with the flags of the call.
    pub place: CallTarget,
}

impl VerbRun {
    /// Connects to the control cluster.
    ///
    /// # Errors
    /// A kubeconfig cannot be used, or the API server does not answer.
    pub async fn connect(verb: ChangeVerb, look: Option<RolloutLookOptions>, writing: WritingOptions) -> Result<Self> {
        let (client, namespace, cluster) = connect(&writing.cluster).await?;
        let call = writing.cluster.call(look.as_ref().map_or("", |look| &look.target_kubeconfig));
        Ok(Self {
            verb,
            look,
            writing,
            client,
            namespace,
            place: CallTarget { cluster, call, is_target_unknown: false },
        })
    }

    /// One change of one object.
    ///
    /// # Errors
    /// The change makes no sense or is blocked, the user declines, or it cannot be written.
    pub async fn change(&self, wanted: &str) -> Result<CommandAnswer> {
        // One time for all attempts: a change that contains it stays the same.
        let now = Timestamp::now();
        let overshoot_period = match self.verb {
            ChangeVerb::Freeze => overshoot_period(&self.client, &self.namespace, now).await,
            _ => None,
        };
        let decided = async || {
            let mut facts = match self.verb.needs_classes() {
                true => reader::objects(&self.client, &self.namespace, now).await?,
                false => reader::objects_without_classes(&self.client, &self.namespace, now).await?,
            };
            facts.memory.overshoot_period = overshoot_period;
            let patch = decide::decide(&facts, self.verb, &reader::find(&facts, wanted)?)?;
            self.planned(patch, None).await
        };
        let planned = decided().await?;
        planned.permit(self.verb, self.is_forced())?;
        if planned.patch.needs_consent {
            self.consent(&planned)?;
        }
        carry_out(&self.client, &planned, self.writing.dry_run, decided).await?;
        Ok(CommandAnswer { text: self.done(&planned), exit: CommandExit::Good })
    }

    pub fn is_forced(&self) -> bool {
        self.look.as_ref().is_some_and(|look| look.force)
    }

    /// A patch with its plan, if it has one. The plan has the obstacles of the drain of a machine that a later patch deletes.
    ///
    /// # Errors
    /// The objects cannot be read.
    pub async fn planned(&self, patch: ObjectPatch, drained: Option<&Machine>) -> Result<PlannedPatch> {
        let Some((look, planned)) = self.look.as_ref().zip(patch.planned.clone()) else {
            return Ok(PlannedPatch { patch, plan: None });
        };
        let reading = ReadingOptions::for_clusters(self.writing.cluster.clone(), look.target_kubeconfig.clone());
        let reading = reading.within(self.namespace.clone());
        let mut cell = reading.cell(reading.reach().await?).await?;
        let mut plan = plan::of_change(&mut cell, planned).await?;
        if let Some(machine) = drained {
            drain::add_obstacles(&cell, &mut plan, machine).await;
        }
        Ok(PlannedPatch { plan: Some(plan), patch })
    }

    /// Requests consent, unless it was given or nothing is changed.
    ///
    /// # Errors
    /// The user declines, or there is no terminal.
    pub fn consent(&self, planned: &PlannedPatch) -> Result<()> {
        if self.writing.dry_run || self.writing.yes { Ok(()) } else { consent(planned, &self.place.cluster) }
    }

    /// A change that was written, in words.
    fn done(&self, planned: &PlannedPatch) -> String {
        let (change, call) = (&planned.patch, &self.place.call);
        let effect: String = planned.lines().iter().map(|line| format!("\n{line}")).collect();
        let kubectl = call.addressed(&change.kubectl(), false);
        let head = if self.look.is_some() { self.place.head(&self.namespace) } else { String::new() };
        let mut text = format!("{head}{}{effect}\nthe same with kubectl: {kubectl}\n", change.says);
        if self.writing.dry_run {
            text += "dry run: the API server accepts the change, and nothing was changed\n";
        } else if let Some(next) = &change.next {
            text += &format!("next: {}\n", call.addressed(next, false));
        }
        text
    }
}

/// A client of the control cluster, the namespace, and the cluster in words.
///
/// # Errors
/// A kubeconfig cannot be used, or the API server does not answer.
pub(in crate::cli) async fn connect(cluster: &ClusterOptions) -> Result<(Client, String, String)> {
    let (control, choice) = (cluster.control(), cluster.context.choice());
    let fallback = KubeconfigFallback::LocalKubeconfig;
    let clusters = ProcessClusters::load_chosen(&control, &TargetKubeconfig::None, fallback, &choice).await?;
    let client = kubeconfig::client(&clusters.control, UserAgent::Mcm).await?;
    kubeconfig::check(&client, &clusters.control.config.cluster_url).await?;
    let default_namespace = &clusters.control.config.default_namespace;
    let namespace = cluster.namespace.clone().unwrap_or_else(|| default_namespace.clone());
    let server = kubeconfig::address(&clusters.control.config.cluster_url);
    let place = clusters.control.context.map_or(server.clone(), |context| format!("{context} ({server})"));
    Ok((client, namespace, place))
}

/// How often the manager of sets ends freezes, if it answers.
async fn overshoot_period(client: &Client, namespace: &str, now: Timestamp) -> Option<GoDuration> {
    let leaderships = read_only::leaderships(client, namespace).await.ok()?;
    let of_sets = leaderships.iter().find(|leadership| leadership.role.name == SETS.name)?;
    memory::overshoot_period((client, namespace), reader::manager(of_sets), now).await
}

/// Requests consent to a change, and shows its plan before.
fn consent(planned: &PlannedPatch, cluster: &str) -> Result<()> {
    let SubjectRef { namespace, .. } = &planned.patch.object;
    let place = format!("namespace {namespace} of the cluster {cluster}");
    let plan = |plan| plan::report(TerminalLook::PLAIN, plan, plan::RoundDetail::Summary) + "\n";
    let lines = planned.lines().into_iter().map(|line| line + "\n");
    let shown: String = planned.plan.as_ref().map(plan).into_iter().chain(lines).collect();
    confirmed(&format!("{} ({place})", planned.patch.says), &shown)
}

/// Checks that there is a terminal for a question, before a long wait for the facts.
///
/// # Errors
/// The input or the output is not a terminal.
pub(in crate::cli) fn can_be_confirmed(says: &str) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let hint = "add --yes if you mean it, or --dry-run to try it";
        return Err(ExitError::no(format!("this needs a confirmation: {says}"), hint).into());
    }
    Ok(())
}

/// Requests consent on a terminal, below a text. Without a terminal, `--yes` is needed.
///
/// # Errors
/// The user declines, or there is no terminal.
pub(in crate::cli) fn confirmed(says: &str, above: &str) -> Result<()> {
    can_be_confirmed(says)?;
    let mut screen = io::stderr().lock();
    write!(screen, "{above}{says}\nContinue? [y/N] ")
        .and_then(|()| screen.flush())
        .context("write to standard error")?;
    let mut answer = String::new();
    io::stdin().lock().take(MOST_ANSWER).read_line(&mut answer).context("read the answer")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(ExitError::no("nothing was changed", "answer y, or add --yes").into()),
    }
}

/// Writes a change. If the object was changed meanwhile, as by a status of the manager, decides again, and repeats this while
/// the change and its effect stay the same.
///
/// # Errors
/// The API server refuses the patch, or the change is another one meanwhile.
pub(super) async fn carry_out(
    client: &Client,
    change: &PlannedPatch,
    dry_run: bool,
    decided: impl AsyncFn() -> Result<PlannedPatch>,
) -> Result<()> {
    let mut latest = change.clone();
    for _ in 0..MOST_ATTEMPTS {
        if write(client, &latest.patch, dry_run).await? == PatchOutcome::Yes {
            return Ok(());
        }
        latest = decided().await?;
        if !latest.is_same(change) {
            break;
        }
    }
    let SubjectRef { kind, name, .. } = &change.patch.object;
    let message = format!("{kind} {name} was changed meanwhile, so nothing was written");
    Err(ExitError { message, hint: "try again".to_owned(), exit: CommandExit::Failed }.into())
}

/// The answer of the API server to a patch.
#[derive(PartialEq)]
enum PatchOutcome {
    Yes,
    /// The object was written since it was read.
    Conflict,
}

/// Sends the patch, with the resource version of the object that was read as its precondition.
async fn write(client: &Client, change: &ObjectPatch, dry_run: bool) -> Result<PatchOutcome> {
    let SubjectRef { kind, namespace, name } = &change.object;
    let resource = mcm_kind(kind).with_context(|| format!("patch {kind} {namespace}/{name}: the kind is unknown"))?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource.api_resource());
    let parameters = PatchParams { dry_run, field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(name, &parameters, &Patch::Merge(change.patch_at_version())).await {
        Ok(_) => Ok(PatchOutcome::Yes),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(PatchOutcome::Conflict),
        Err(error) => Err(error).with_context(|| format!("patch {kind} {namespace}/{name}")),
    }
}
