//! The answer about an object: its verdict, its waits with their remedies, and the objects around it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::words::{CONTROLLERS, NODE, kind_of};
use crate::place::CallTarget;
use mcm_rules::plan::{
    PreviewStep, SubjectRef, WaitKind,
    guide::{RemedyDanger, WaitEnd, WaitRemedy},
    shell::{CallFlags, CommandCluster},
};

/// How an object is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
pub enum ObjectVerdict {
    /// As it should be.
    Settled,
    /// A controller acts.
    Progressing,
    /// It waits, and goes on without a user.
    Waiting,
    /// It could not be planned.
    Unknown,
    /// It waits until a user acts.
    Blocked,
}

/// A wait with its entry in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedWait {
    /// Kind of the wait.
    #[schemars(with = "String")]
    pub kind: WaitKind,
    /// Completes "waits for".
    pub text: String,
    /// The meaning of this kind of wait.
    pub meaning: &'static str,
    /// How it ends.
    pub end: WaitEnd,
    /// When the controllers try or look again, even if nothing changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub next_attempt: Option<Timestamp>,
    /// When the controllers end it by force: a drain deletes the pods that are left then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub forced_at: Option<Timestamp>,
    /// Since when, as the manager remembers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// Plans of the manager that ended with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plans: Option<u32>,
    /// Steps of a user that end it.
    pub remedies: Vec<ObjectRemedy>,
}

impl ExplainedWait {
    /// True if the provider for Cluster API manages the object, so that its plan is not known.
    pub fn is_of_provider(&self) -> bool {
        self.kind == WaitKind::Hold && self.end == WaitEnd::Controllers
    }
}

/// A possible cause that does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RuledOut {
    /// Name of the check, for programs.
    pub check: &'static str,
    /// Its result.
    pub text: String,
}

/// Why anything happens to an object at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OwnerChain {
    /// From the deployment down to the object.
    pub up: Vec<String>,
}

/// An object of the chain from a Cluster to the Node of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainLink {
    /// Kind.
    pub kind: String,
    /// API group, for kinds of Cluster API and of its provider mcm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<&'static str>,
    /// Name.
    pub name: String,
    /// How it is.
    pub verdict: ObjectVerdict,
    /// Its state in words.
    pub state: String,
    /// Completes "waits for".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

impl ChainLink {
    pub fn new(kind: &str, api_group: Option<&'static str>, name: &str, verdict: ObjectVerdict, state: &str) -> Self {
        let (kind, name, state) = (kind.to_owned(), name.to_owned(), state.to_owned());
        Self { kind, api_group, name, verdict, state, waits: None }
    }

    /// Kind and name, as users read them.
    pub fn title(&self) -> String {
        let is_node = self.kind == NODE;
        let mcm = if self.api_group.is_none() && !is_node && kind_of(&self.kind).is_some() { "MCM " } else { "" };
        format!("{mcm}{} {}", titled(self.api_group, &self.kind), self.name)
    }
}

/// A condition that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingCondition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// `v1beta2`, or `v1beta1` for a condition that only the former API has.
    pub version: &'static str,
}

/// A kind as users read it: kinds of Cluster API whose names `machine.sapcloud.io` also has are marked.
pub fn titled(api_group: Option<&str>, kind: &str) -> String {
    let is_shared = CONTROLLERS.iter().any(|(known, _)| *known == kind);
    if api_group.is_some() && is_shared { format!("CAPI {kind}") } else { kind.to_owned() }
}

/// A remedy for an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ObjectRemedy {
    /// A command, or an instruction.
    pub text: String,
    /// Its effect; empty if its text names it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
    /// Its effect.
    pub danger: RemedyDanger,
    /// The cluster of its command.
    #[serde(skip)]
    #[schemars(skip)]
    pub cluster: CommandCluster,
}

impl ObjectRemedy {
    /// An entry of the catalogue with its text for an object.
    pub fn from_catalogue(remedy: &WaitRemedy, text: String) -> Self {
        Self { text, note: remedy.note, danger: remedy.danger, cluster: remedy.cluster }
    }

    /// The remedy with the flags of a call. Those of a workload cluster of Cluster API are not known.
    pub fn addressed(self, call: &CallFlags) -> Self {
        Self { text: call.addressed_to(&self.text, self.cluster), ..self }
    }

    /// The remedy for a place. Of those for an unknown target is left that it has to be named.
    pub fn placed(self, place: &CallTarget) -> Self {
        match place.is_unknown(self.cluster) {
            true => Self {
                text: place.addressed_to(&self.text, self.cluster),
                note: "",
                danger: RemedyDanger::Safe,
                cluster: CommandCluster::Control,
            },
            false => self.addressed(&place.call),
        }
    }

    /// The text can be run as it is.
    pub fn is_command(&self) -> bool {
        ["clusterctl ", "kubectl ", "mcm "].iter().any(|program| self.text.starts_with(program))
    }
}

/// The answer for one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectAnswer {
    /// The object.
    pub object: SubjectRef,
    /// API group of its kind, for kinds of Cluster API and of its provider mcm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<&'static str>,
    /// How it is, with its machines.
    pub verdict: ObjectVerdict,
    /// Its state in words.
    pub state: String,
    /// Since when it has been in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// The next steps of the controller.
    pub next: Vec<PreviewStep>,
    /// Its waits, the worst first.
    pub waits: Vec<ExplainedWait>,
    /// The last step of the manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<String>,
    /// Why anything happens to it at all.
    pub chain: OwnerChain,
    /// Possible causes that do not apply.
    pub ruled_out: Vec<RuledOut>,
    /// The last operation, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The objects that own it, the nearest first.
    pub owners: Vec<SubjectRef>,
    /// Its machines that are not settled, the worst first.
    pub machines: Vec<ObjectAnswer>,
    /// Its sets that wait for a user, such as frozen ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<ObjectAnswer>,
    /// Kinds on which the answer depends, and which could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<&'static str>,
    /// For an object of Cluster API: the objects above and below it, from its Cluster down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<ChainLink>,
    /// For an object of Cluster API: its conditions that are not as they should be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<FailingCondition>,
}

impl ObjectAnswer {
    /// Only what is known of every object.
    pub fn new(object: SubjectRef, verdict: ObjectVerdict, state: String, waits: Vec<ExplainedWait>) -> Self {
        Self {
            object,
            api_group: None,
            verdict,
            state,
            since: None,
            next: Vec::new(),
            waits,
            tried: None,
            chain: OwnerChain::default(),
            ruled_out: Vec::new(),
            failed: None,
            owners: Vec::new(),
            machines: Vec::new(),
            sets: Vec::new(),
            unread: Vec::new(),
            links: Vec::new(),
            conditions: Vec::new(),
        }
    }

    /// Since when its owner, which has been as it is since `owner`, has its verdict: since its first wait began, if that is
    /// remembered, else not before either came into its state.
    pub fn since_below(&self, owner: Option<Timestamp>) -> Option<Timestamp> {
        let remembered = self.waits.first().and_then(|wait| wait.since);
        remembered.or_else(|| owner.max(self.since))
    }

    /// Takes the verdict of an object below it, if that is worse, with its start.
    pub fn take_worse(&mut self, verdict: ObjectVerdict, since: Option<Timestamp>) {
        if verdict > self.verdict {
            (self.verdict, self.since) = (verdict, since);
        }
    }

    /// Its kind, as users read it.
    pub fn title(&self) -> String {
        titled(self.api_group, &self.object.kind)
    }

    /// `KIND/NAME`, as `mcm why` takes it.
    pub fn argument(&self) -> String {
        let SubjectRef { kind, name, .. } = &self.object;
        let is_shared = CONTROLLERS.iter().any(|(known, _)| known == kind);
        let group = self.api_group.filter(|_| is_shared).map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}/{name}", kind.to_lowercase())
    }

    /// The object below it that keeps it most: its worst set or machine that waits or failed.
    pub fn culprit(&self) -> Option<&Self> {
        let below = self.sets.iter().chain(&self.machines);
        let keeps = |one: &&Self| !one.waits.is_empty() || one.failed.is_some();
        // The first of the worst.
        below.filter(keeps).reduce(|worst, one| if one.verdict > worst.verdict { one } else { worst })
    }

    /// Actions that a user can take: first against causes of its waits that only a user ends, then against those of its culprit.
    pub fn remedies(&self) -> Vec<&ObjectRemedy> {
        let (by_user, others): (Vec<&ExplainedWait>, Vec<&ExplainedWait>) =
            self.waits.iter().partition(|wait| wait.end == WaitEnd::User);
        let of_culprit = self.culprit().map(|culprit| culprit.waits.iter().collect::<Vec<_>>());
        // Controllers end the other waits as soon as the culprit is resolved.
        let others = if of_culprit.is_some() { Vec::new() } else { others };
        let mut remedies: Vec<&ObjectRemedy> = Vec::new();
        for remedy in
            by_user.into_iter().chain(of_culprit.unwrap_or_default()).chain(others).flat_map(|one| &one.remedies)
        {
            if !remedies.contains(&remedy) {
                remedies.push(remedy);
            }
        }
        remedies
    }
}
