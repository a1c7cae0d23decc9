//! A rollout in numbers. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use super::story::{ExplainedWait, NamespaceFacts, ObjectAnswer, ObjectVerdict, has_current_machines};
use mcm_api::{
    machine::{Machine, MachineDeployment},
    reasons::{ConditionReason, ConditionType},
};
use mcm_controllers::{
    machine_deployment::{bounds_of, revision_of},
    object::condition,
};
use mcm_rules::plan::{WaitKind, guide::WaitEnd};

/// The numbers of a rollout. Machines that are deleted count in `going` and `total` only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutProgress {
    /// Name of the deployment.
    pub name: String,
    /// The revision of the current template; 0 before its set exists.
    pub revision: i64,
    /// The class, and the former one if machines of it are left.
    pub classes: Vec<String>,
    /// `spec.replicas`.
    pub wanted: i32,
    /// Machines of the current template that are available.
    pub new: i32,
    /// Machines of the current template that are not available yet.
    pub starting: i32,
    /// Machines of former templates.
    pub old: i32,
    /// Machines that are deleted.
    pub going: i32,
    /// Machines that exist.
    pub total: i32,
    /// The most that may exist.
    pub most: i32,
    /// Available machines.
    pub up: i32,
    /// The fewest that may be available.
    pub least: i32,
}

/// The state of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum RolloutState {
    /// All machines have the current template and are available, and no other is left.
    Done,
    /// It is under way.
    Rolling,
    /// It makes no progress, for this reason, which ends without a user.
    Waiting(String),
    /// Its obstacle is unknown, for this reason.
    Unknown(String),
    /// It makes no progress, for this reason, until a user acts.
    Blocked(String),
    /// The deployment failed, for this reason.
    Failed(String),
}

/// Waits that every rollout has.
const UNDER_WAY: [WaitKind; 8] = [
    WaitKind::CloudOperation,
    WaitKind::InPlaceUpdate,
    WaitKind::MachineAvailability,
    WaitKind::MachineDeletion,
    WaitKind::NodeJoin,
    WaitKind::PodTermination,
    WaitKind::Rollout,
    WaitKind::VolumeTurn,
];

impl NamespaceFacts {
    /// The numbers of the rollout of a deployment.
    pub fn progress(&self, name: &str) -> Option<RolloutProgress> {
        let family = self.family(name)?;
        let deployment = family.deployment;
        let mut progress =
            RolloutProgress { name: name.to_owned(), wanted: deployment.spec.replicas, ..RolloutProgress::default() };
        let new_set = family.new_set().and_then(|set| set.metadata.name.as_deref());
        progress.revision = family.new_set().map(revision_of).unwrap_or_default();
        progress.classes.push(deployment.spec.template.spec.class.name.clone());
        for set in &family.sets {
            let is_new = set.metadata.name.as_deref() == new_set;
            for machine in self.machines_of_set(set.metadata.name.as_deref().unwrap_or_default()) {
                progress.count(machine, is_new);
                let class = &machine.spec.class.name;
                if !is_new && !progress.classes.contains(class) {
                    progress.classes.insert(0, class.clone());
                }
            }
        }
        let bounds = bounds_of(deployment).ok();
        progress.most = bounds.map_or(progress.wanted, |bounds| bounds.max_replicas());
        progress.least = bounds.map_or(progress.wanted, |bounds| bounds.min_available());
        Some(progress)
    }

    /// The state of a rollout. `answer` is that of its deployment, and decides between the words for a rollout without progress.
    pub fn state(&self, progress: &RolloutProgress, answer: &ObjectAnswer) -> RolloutState {
        let Some(deployment) = self.deployments.get(&progress.name) else {
            return RolloutState::Failed("the deployment was deleted".to_owned());
        };
        let is_held_up = matches!(answer.verdict, ObjectVerdict::Unknown | ObjectVerdict::Blocked);
        match (is_complete(deployment, progress), missed_deadline(deployment)) {
            (true, _) if !is_held_up => return RolloutState::Done,
            (false, Some(message)) => return RolloutState::Failed(message),
            _ => {}
        }
        if deployment.spec.paused && progress.old > 0 {
            return RolloutState::Blocked("it is paused".to_owned());
        }
        let reason = obstacle(answer);
        match answer.verdict {
            ObjectVerdict::Blocked => RolloutState::Blocked(reason.unwrap_or_else(|| answer.reason())),
            ObjectVerdict::Unknown if !answer.unread.is_empty() => {
                RolloutState::Unknown(format!("{} could not be read", answer.unread.join(", ")))
            }
            ObjectVerdict::Unknown => RolloutState::Unknown(reason.unwrap_or_else(|| answer.state.clone())),
            ObjectVerdict::Waiting | ObjectVerdict::Progressing | ObjectVerdict::Settled => match reason {
                Some(reason) => RolloutState::Waiting(reason),
                None => RolloutState::Rolling,
            },
        }
    }
}

impl RolloutState {
    /// Why it makes no progress, or failed.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Done | Self::Rolling => None,
            Self::Waiting(reason) | Self::Unknown(reason) | Self::Blocked(reason) | Self::Failed(reason) => {
                Some(reason)
            }
        }
    }

    /// It makes no progress.
    pub const fn is_held_up(&self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Unknown(_) | Self::Blocked(_))
    }
}

impl RolloutProgress {
    fn count(&mut self, machine: &Machine, is_new: bool) {
        self.total += 1;
        self.up += i32::from(machine.is_available());
        let number = match (machine.is_terminating(), is_new, machine.is_available()) {
            (true, ..) => &mut self.going,
            (_, true, true) => &mut self.new,
            (_, true, false) => &mut self.starting,
            (_, false, _) => &mut self.old,
        };
        *number += 1;
    }

    /// In words, such as `1 of 3 new, 2 available, 4 in total`.
    pub fn text(&self) -> String {
        format!("{} of {} new, {} available, {} in total", self.new, self.wanted, self.up, self.total)
    }
}

/// As the Go program and the autoscaler judge it.
fn is_complete(deployment: &MachineDeployment, progress: &RolloutProgress) -> bool {
    let wanted = deployment.spec.replicas;
    has_current_machines(deployment) && (progress.new, progress.total) == (wanted, wanted)
}

fn missed_deadline(deployment: &MachineDeployment) -> Option<String> {
    let progressing = condition::find(&deployment.status.as_ref()?.conditions, ConditionType::Progressing)?;
    (progressing.reason == ConditionReason::ProgressDeadlineExceeded.as_str()).then(|| progressing.message.clone())
}

/// The worst wait of the deployment or one of its sets and machines that a rollout does not have when all is well.
pub fn obstacle(answer: &ObjectAnswer) -> Option<String> {
    obstacle_of(answer, |wait| wait.end == WaitEnd::User).or_else(|| obstacle_of(answer, |_| true))
}

fn obstacle_of(answer: &ObjectAnswer, is_counted: impl Fn(&ExplainedWait) -> bool) -> Option<String> {
    let is_obstacle = |wait: &&ExplainedWait| is_counted(wait) && !UNDER_WAY.contains(&wait.kind);
    let own = answer.waits.iter().find(is_obstacle).map(|wait| wait.text.clone());
    let of_machine = |machine: &ObjectAnswer| {
        let wait = machine.waits.iter().find(is_obstacle)?;
        Some(format!("{} waits for {}", machine.object.name, wait.text))
    };
    own.or_else(|| answer.sets.iter().chain(&answer.machines).find_map(of_machine))
}
