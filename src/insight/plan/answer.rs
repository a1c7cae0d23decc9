//! The answer of `mcm plan`, as its JSON contains it.

use jiff::Timestamp;
use serde::Serialize;

use crate::story::DEPLOYMENT;
use mcm_rules::plan::guide::RemedyDanger;

/// The version of all documents.
pub const DOCUMENT_VERSION: &str = "cli.mcm/v1";

/// A plan: what changes do to machines. Nothing is written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// `cli.mcm/v1`. Fields are only added.
    pub api_version: String,
    /// `Plan`.
    pub kind: String,
    /// When the objects were read.
    pub at: String,
    /// Source of the flags with which the controllers were played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<String>,
    /// Every object could be judged, and every namespace, and what the objects depend on, could be read.
    pub complete: bool,
    /// Something in the way never ends without a user.
    pub blocked: bool,
    /// The sums over all objects.
    pub summary: PlanSummary,
    /// One entry for each object. Without a named object, those to which nothing is about to happen have none.
    pub objects: Vec<ObjectPlan>,
    /// The number of objects that have no entry; absent if objects were named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledCounts>,
    /// Namespaces that the user may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Facts that could not be taken into account.
    pub notes: Vec<String>,
}

/// Numbers of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// Machines that are created.
    pub create: usize,
    /// Machines that are deleted.
    pub delete: usize,
    /// Machines that are updated in place.
    pub in_place: usize,
    /// Machines that changed fields reach while they run.
    pub propagate: usize,
    /// Machines that the object adopts, because they or their set have no controller; it keeps, replaces or deletes them.
    pub adopt: usize,
    /// Objects that could not be judged.
    pub unknown: usize,
}

/// Objects that are as desired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledCounts {
    /// MachineDeployments.
    pub deployments: usize,
    /// MachineSets without a MachineDeployment.
    pub sets: usize,
}

/// The result for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum PlanVerdict {
    /// It is new.
    Creates,
    /// Machines are replaced by new ones.
    Replaces,
    /// Machines are updated in place.
    UpdatesInPlace,
    /// Something changes, and every machine is kept.
    ChangesWithoutARollout,
    /// Only the number of machines changes.
    Scales,
    /// A class changes, which replaces no machine.
    ReplacesNothing,
    /// Nothing changes.
    NoChange,
    /// It is deleted.
    Deletes,
    /// The API server or the controllers refuse it.
    Refused,
    /// It could not be judged.
    Unknown,
}

/// The effect of a changed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum FieldEffect {
    /// Each machine is replaced.
    Replace,
    /// Each machine is updated in place.
    InPlace,
    /// The number of machines changes.
    Scale,
    /// Machines that exist get the value.
    Machines,
    /// Nodes that exist get the value.
    Nodes,
    /// Only VMs that are created from now on have the value.
    NewMachines,
    /// No machine changes.
    Nothing,
    /// The value is the same, written differently.
    Same,
    /// It was not found out.
    Unknown,
}

/// A changed field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct ChangedField {
    /// Such as `spec.template.spec.class.name`.
    pub path: String,
    /// The value before; `null` if there was none.
    pub old: serde_json::Value,
    /// The value after; `null` if there is none.
    pub new: serde_json::Value,
    /// Its effect.
    pub effect: FieldEffect,
}

/// The bounds that the controllers keep during a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RolloutBounds {
    /// The most machines at any time.
    pub max_total: i32,
    /// The fewest machines that are available at any time.
    pub min_available: i32,
    /// The desired number.
    pub replicas: i32,
    /// Machines beyond the desired number.
    pub max_surge: i32,
    /// Machines of the desired number that may be unavailable.
    pub max_unavailable: i32,
}

/// The fate of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum Action {
    /// It is deleted, and another machine takes its place.
    Replace,
    /// It is deleted.
    Delete,
    /// It is updated in place.
    Update,
    /// It stays.
    Keep,
}

/// A machine that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct MachinePlan {
    /// Its name.
    pub name: String,
    /// Its fate.
    pub action: Action,
    /// The round in which it happens, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
}

/// A round of a rollout. The numbers are those after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct RolloutRound {
    /// The number of the first of these rounds, from 1.
    pub first: usize,
    /// How many equal rounds follow each other.
    pub times: usize,
    /// Machines that are created.
    pub create: usize,
    /// Machines that are drained and deleted.
    pub drain: usize,
    /// Machines that are updated in place.
    pub update: usize,
    /// Machines of old sets.
    pub old: usize,
    /// Machines of the new set.
    pub new: usize,
    /// Machines that are being deleted.
    pub going: usize,
    /// All machines.
    pub total: usize,
    /// Machines that run.
    pub available: usize,
}

/// How long it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RolloutDuration {
    /// The expected time; absent if no machine of the deployment tells how long a join takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_seconds: Option<u64>,
    /// The time if each step needs its whole timeout once, with what is left of the steps that have begun. It is no bound: a
    /// failed creation is repeated.
    pub at_most_seconds: u64,
    /// Where these come from.
    pub basis: String,
    /// The timeouts of that time.
    #[serde(rename = "bound")]
    pub timeouts: String,
}

/// Whether something in the way ends without a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub enum BlockerSeverity {
    /// It needs a look.
    Delays,
    /// A user has to end it, or a timeout forces it.
    Blocks,
}

/// A command or an instruction that helps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct BlockerRemedy {
    /// The command, or the instruction.
    pub command: String,
    /// Its effect on what runs: `Safe`, `KillsPods`, `ReplacesMachines` or `LosesData`.
    #[cfg_attr(any(test, feature = "testing"), schemars(with = "String"))]
    pub danger: RemedyDanger,
}

/// Something in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanBlocker {
    /// The kind of the wait, as in `mcm why`; empty if it is a fact that no controller waits for.
    pub wait_kind: String,
    /// Whether it ends without a user.
    pub severity: BlockerSeverity,
    /// The object, as `KIND/NAME`.
    pub subject: String,
    /// The text.
    pub text: String,
    /// Steps of a user that end it.
    pub remedies: Vec<BlockerRemedy>,
    /// It holds the object up already, without the change.
    #[serde(skip)]
    pub is_now: bool,
}

/// The plan for an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlan {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The result.
    pub verdict: PlanVerdict,
    /// The result in words.
    pub headline: String,
    /// Why it is refused or unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The changed fields.
    pub fields: Vec<ChangedField>,
    /// The bounds of the rollout; absent if they do not hold at its beginning, or a machine is unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<RolloutBounds>,
    /// The machines that exist.
    pub machines: Vec<MachinePlan>,
    /// The rounds.
    pub rounds: Vec<RolloutRound>,
    /// The numbers of its machines.
    pub summary: PlanSummary,
    /// The desired state is reached at the end.
    pub settles: bool,
    /// Nothing is about to happen, because it is as desired.
    #[serde(skip)]
    pub is_settled: bool,
    /// The rounds, the steps of machines and the time are an estimate, or are missing: too many machines differ.
    #[serde(rename = "estimate")]
    pub is_estimate: bool,
    /// How long it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<RolloutDuration>,
    /// Obstacles of the change.
    pub blockers: Vec<PlanBlocker>,
    /// Sentences beside these.
    pub remarks: Vec<String>,
}

impl ObjectPlan {
    /// An object without any effect.
    pub fn without_effect(kind: &str, namespace: &str, name: &str, verdict: PlanVerdict) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            verdict,
            headline: verdict.words().to_owned(),
            reason: None,
            fields: Vec::new(),
            bounds: None,
            machines: Vec::new(),
            rounds: Vec::new(),
            summary: PlanSummary::default(),
            settles: true,
            is_settled: false,
            is_estimate: false,
            duration: None,
            blockers: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Something in its way never ends without a user.
    fn is_blocked(&self) -> bool {
        self.blockers.iter().any(|one| one.severity == BlockerSeverity::Blocks)
    }
}

impl PlanVerdict {
    /// In capitals, without numbers.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Creates => "CREATES",
            Self::Replaces => "REPLACES",
            Self::UpdatesInPlace => "UPDATES IN PLACE",
            Self::ChangesWithoutARollout => "CHANGES WITHOUT A ROLLOUT",
            Self::Scales => "SCALES",
            Self::ReplacesNothing => "REPLACES NOTHING",
            Self::NoChange => "NO CHANGE",
            Self::Deletes => "DELETES",
            Self::Refused => "REFUSED",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl Plan {
    /// The plan of some objects.
    pub fn from_objects(now: Timestamp, objects: Vec<ObjectPlan>, notes: Vec<String>) -> Self {
        let mut summary = PlanSummary::default();
        for object in &objects {
            summary.create += object.summary.create;
            summary.delete += object.summary.delete;
            summary.in_place += object.summary.in_place;
            summary.propagate += object.summary.propagate;
            summary.adopt += object.summary.adopt;
            summary.unknown += usize::from(object.verdict == PlanVerdict::Unknown);
        }
        Self {
            api_version: DOCUMENT_VERSION.to_owned(),
            kind: "Plan".to_owned(),
            at: format!("{now:.0}"),
            flags: None,
            complete: summary.unknown == 0,
            blocked: objects.iter().any(ObjectPlan::is_blocked),
            summary,
            objects,
            settled: None,
            unread: Vec::new(),
            notes,
        }
    }

    /// The same with settled objects counted.
    pub fn without_settled(mut self) -> Self {
        let settled = self.objects.iter().filter(|object| object.is_settled);
        let (deployments, sets): (Vec<_>, Vec<_>) = settled.partition(|object| object.kind == DEPLOYMENT);
        self.settled = Some(SettledCounts { deployments: deployments.len(), sets: sets.len() });
        self.objects.retain(|object| !object.is_settled);
        self.blocked = self.objects.iter().any(ObjectPlan::is_blocked);
        self
    }
}
