//! Executes the steps of a migration. It makes no decisions: after every round the objects are read again and the next
//! plan contains the remaining work.

mod mirror;

use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use mirror::MigrationCache;

use super::{
    Kind, MigrationDirection, MigrationStage, MigrationUnit, ObjectId, Snapshot,
    observe::{MigrationEnvironment, NotRead},
    plan::{NoPlan, Plan, abort, plan},
    step::{Action, MigrationWrite},
};

/// Field manager of all writes.
const MANAGER: &str = "mcm-adopt";
/// Between two attempts to reach an API server.
const PERIOD: Duration = Duration::from_millis(250);
/// More rounds with writes than any step needs: another client writes the same fields.
const MOST_ROUNDS: usize = 100;
/// The longest outage of an API server that is waited out.
const PATIENCE: Duration = Duration::from_secs(30);

/// The progress of a migration.
pub enum Event<'a> {
    /// The plan before a round.
    Round(&'a Plan),
    /// A write is about to be done.
    Write(&'a Action),
}

/// A migration stopped. It can be continued or undone.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// Something cannot be read.
    #[error(transparent)]
    Read(#[from] NotRead),
    /// The unit is being migrated in another direction, or there is nothing to undo.
    #[error(transparent)]
    NoPlan(#[from] NoPlan),
    /// Checks failed, so nothing was begun.
    #[error("{}: nothing was changed, because checks failed: {}", .0.unit, reasons(.0))]
    Refused(Box<Plan>),
    /// Other controllers did not do their part in time.
    #[error("{unit}: waiting for {on}; run the command again to continue{undo}")]
    Waited {
        /// The migrated unit.
        unit: MigrationUnit,
        /// The awaited event.
        on: String,
        /// How to undo it, if that is possible.
        undo: &'static str,
    },
    /// Another client keeps undoing the writes.
    #[error("{unit}: another client keeps overwriting the same fields: stop it, then run the command again ({writes})")]
    Contested {
        /// The migrated unit.
        unit: MigrationUnit,
        /// The writes of the step.
        writes: String,
    },
    /// A VM cannot be tagged.
    #[error("{unit}: {action}: {problem}; then run the command again")]
    NotTagged {
        /// The migrated unit.
        unit: MigrationUnit,
        /// The action.
        action: Box<Action>,
        /// The error of the driver.
        problem: String,
    },
    /// An object cannot be written.
    #[error("{action}")]
    Write {
        /// The action.
        action: Box<Action>,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

fn reasons(plan: &Plan) -> String {
    plan.failed().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn listed(actions: &[Action]) -> String {
    actions.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl MigrationEnvironment {
    /// The plan for a unit, with the state of its VMs if it needs that.
    ///
    /// # Errors
    /// Something cannot be read, or the unit is being migrated in another direction.
    pub async fn plan(
        &self,
        cluster: &str,
        unit: &MigrationUnit,
        way: MigrationDirection,
    ) -> Result<Plan, MigrationError> {
        let mut snapshot = self.observe(cluster, unit, way).await?;
        let first = plan(&snapshot, way)?;
        if !first.asks_cloud {
            return Ok(first);
        }
        snapshot.cloud = Some(self.ask_cloud(&snapshot, way, first.side_of_machines(way)).await);
        Ok(plan(&snapshot, way)?)
    }

    /// Executes steps until the migration is complete. `limit` is the time that other controllers may take for one
    /// step.
    ///
    /// # Errors
    /// A check fails, other controllers do not do their part in time, or an API server cannot be used.
    pub async fn walk(
        &self,
        (cluster, unit): (&str, &MigrationUnit),
        way: MigrationDirection,
        limit: Duration,
        mut show: impl FnMut(Event<'_>),
    ) -> Result<(), MigrationError> {
        let mut mirror = MigrationCache::new(self, cluster, unit, way);
        let (mut since, mut answered) = (Instant::now(), Instant::now());
        let (mut step, mut rounds) = (None, 0);
        loop {
            let plan = match planned(&mut mirror, way).await {
                Err(MigrationError::Read(_)) if answered.elapsed() < PATIENCE => {
                    sleep(PERIOD).await;
                    continue;
                }
                planned => planned?,
            };
            answered = Instant::now();
            show(Event::Round(&plan));
            if plan.stage == MigrationStage::Done {
                return Ok(());
            }
            if plan.stage == MigrationStage::Fresh && plan.failed().next().is_some() {
                return Err(MigrationError::Refused(Box::new(plan)));
            }
            if plan.todo.actions.is_empty() {
                if since.elapsed() > limit {
                    let on = plan.todo.waits.join(", ");
                    let can_undo = plan.stage == MigrationStage::Forward && way != MigrationDirection::FromStandIn;
                    let undo = if can_undo { ", or mcm adopt abort to undo it" } else { "" };
                    return Err(MigrationError::Waited { unit: plan.unit, on, undo });
                }
                mirror.changed().await;
                continue;
            }
            let current = plan.current().map(|(number, _)| number);
            rounds = if current == step { rounds + 1 } else { 0 };
            step = current;
            if rounds > MOST_ROUNDS {
                return Err(MigrationError::Contested { unit: plan.unit, writes: listed(&plan.todo.actions) });
            }
            since = Instant::now();
            for action in &plan.todo.actions {
                show(Event::Write(action));
                let written = self.execute(mirror.seen(), way, action).await;
                mirror.wrote(action.id.kind);
                if written? == StepWriteResult::Changed {
                    break;
                }
            }
        }
    }

    /// Undoes a migration: the machines return to their former owner.
    ///
    /// # Errors
    /// As for [`Self::walk`], or there is nothing to undo.
    pub async fn undo(
        &self,
        (cluster, unit): (&str, &MigrationUnit),
        way: MigrationDirection,
        limit: Duration,
        show: impl FnMut(Event<'_>),
    ) -> Result<(), MigrationError> {
        let snapshot = self.observe(cluster, unit, way).await?;
        let (back, actions) = abort(&snapshot)?;
        for action in &actions {
            self.execute(&snapshot, back, action).await?;
        }
        self.walk((cluster, unit), back, limit, show).await
    }

    async fn execute(
        &self,
        s: &Snapshot,
        way: MigrationDirection,
        action: &Action,
    ) -> Result<StepWriteResult, MigrationError> {
        let Action { id, change } = action;
        let (api, name) = (self.api(id.kind), &id.name);
        let field_manager = Some(MANAGER.to_owned());
        let parameters = PatchParams { field_manager: field_manager.clone(), ..PatchParams::default() };
        let written = match change {
            MigrationWrite::Create(object) => match serde_json::from_value::<DynamicObject>(object.clone()) {
                Ok(object) => {
                    let parameters = PostParams { field_manager, ..PostParams::default() };
                    api.create(&parameters, &object).await.map(drop)
                }
                Err(error) => Err(kube::Error::SerdeError(error)),
            },
            MigrationWrite::Patch(patch) => {
                api.patch(name, &parameters, &Patch::Merge(guarded(s, id, patch))).await.map(drop)
            }
            MigrationWrite::PatchStatus(patch) => {
                api.patch_status(name, &parameters, &Patch::Merge(guarded(s, id, patch))).await.map(drop)
            }
            MigrationWrite::Tag { is_listed } => {
                let tagged = self.tag(s, way, name, *is_listed).await;
                return tagged.map(|()| StepWriteResult::Done).map_err(|problem| MigrationError::NotTagged {
                    unit: s.unit.clone(),
                    action: Box::new(action.clone()),
                    problem,
                });
            }
            MigrationWrite::Delete { uid } => {
                // An object of another provider may own unknown resources.
                let is_of_other = id.kind.is_of_other();
                let policy = if is_of_other { PropagationPolicy::Orphan } else { PropagationPolicy::Background };
                let parameters = DeleteParams {
                    propagation_policy: Some(policy),
                    preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
                    ..DeleteParams::default()
                };
                api.delete(name, &parameters).await.map(drop)
            }
        };
        match written {
            Ok(()) => Ok(StepWriteResult::Done),
            // Another client wrote it first. The next plan contains the remaining actions.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(StepWriteResult::Changed),
            Err(source) => Err(MigrationError::Write { action: Box::new(action.clone()), source: Box::new(source) }),
        }
    }
}

/// The next plan of a running migration.
async fn planned(mirror: &mut MigrationCache<'_>, way: MigrationDirection) -> Result<Plan, MigrationError> {
    let first = plan(mirror.look().await?, way)?;
    if !first.asks_cloud {
        return Ok(first);
    }
    Ok(plan(mirror.ask(first.side_of_machines(way)).await, way)?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepWriteResult {
    Done,
    Changed,
}

/// The patch for the object as the plan read it. Nodes change all the time, so only a list of theirs is a precondition.
fn guarded(s: &Snapshot, id: &ObjectId, patch: &Value) -> Value {
    let mut patch = patch.clone();
    let Some(object) = s.objects.get(id) else { return patch };
    patch["metadata"]["uid"] = json!(object.uid());
    if id.kind != Kind::Node || patch["metadata"].get("finalizers").is_some() {
        patch["metadata"]["resourceVersion"] = object.at("/metadata/resourceVersion");
    }
    patch
}
