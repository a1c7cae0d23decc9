//! The head of the plans for MCMClusters, MCMMachines and MCMMachinePools: decides whether the object may be reconciled. A
//! condition gives the reason if not.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::Value;

use super::{
    conditions::{self, ConditionVerdict},
    hold,
    view::{ObjectView, OwnerState},
};
use mcm_api::reasons::{ConditionType, ProviderCondition, ProviderReason};
use mcm_controllers::object::{condition, finalizer};
use mcm_conversion::types::Cluster;
use mcm_rules::plan::{Plan, Step, UndoneWrite, WaitKind};

/// Time for Cluster API core to set the owner of a new object. Nothing is written before: core creates the object with
/// server-side apply and cleans its managed fields afterwards.
const OWNER_FOLLOWS: SignedDuration = SignedDuration::from_secs(10);

/// A snapshot whose plan begins with [`gate`].
pub(crate) trait GatedSnapshot {
    /// The status of the object.
    type Status: PartialEq;
    /// The actions of its plans.
    type Action;

    /// The input of the gate.
    fn facts(&self) -> GateInput<'_>;
    /// The stored status.
    fn stored(&self) -> Self::Status;
    /// The conditions of a status.
    fn conditions(status: &mut Self::Status) -> &mut Vec<Condition>;
    /// Sets the conditions about the owner, which exists or certainly does not.
    fn complete(&self, _status: &mut Self::Status) {}
    /// A patch of the object.
    fn patch_self(patch: Value) -> Self::Action;
    /// A write of its status.
    fn write_status(status: Self::Status) -> Self::Action;
}

/// The input of [`gate`].
pub(crate) struct GateInput<'a> {
    /// Its metadata.
    pub meta: &'a ObjectMeta,
    /// Value of `--watch-filter`.
    pub watch_filter: Option<&'a str>,
    /// Kind of its owner.
    pub owner_kind: &'static str,
    /// The state of the owner.
    pub owner: OwnerState,
    /// Its Cluster.
    pub cluster: &'a ObjectView<Cluster>,
    /// The native objects are as they were after the last pause of the Cluster.
    pub are_natives_read: bool,
    /// A native manager beside the provider.
    pub obstacle: Option<&'a ManagerObstacle>,
    /// Its finalizer, and the reason for it.
    pub finalizer: (&'static str, &'static str),
    /// The time.
    pub now: Timestamp,
}

/// A native manager beside the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagerObstacle {
    /// Completes "waiting for".
    pub on: String,
    /// It was seen. Otherwise the Leases have not been read yet.
    pub is_certain: bool,
}

/// An object that is not reconciled.
struct GateRefusal {
    kind: WaitKind,
    /// Completes "waiting for".
    on: String,
    /// The condition `Ready`; `None` if none is written.
    ready: Option<ConditionVerdict>,
}

/// The plan for an object that is not reconciled, is being deleted, or lacks its finalizer. `None` if the object can be
/// provided with what it needs.
pub(crate) fn gate<S: GatedSnapshot>(
    subject: &S,
    tear_down: impl FnOnce(&mut Plan<S::Action>, &S),
) -> Option<Plan<S::Action>> {
    let mut plan = Plan::default();
    let facts = subject.facts();
    // Another manager writes the conditions of its objects.
    if let Some(on) = hold::not_ours(facts.meta, facts.watch_filter) {
        plan.wait(WaitKind::Hold, on, None);
        return Some(plan);
    }
    let is_deleting = facts.meta.deletion_timestamp.is_some();
    if let Some(until) = facts.owner_due().filter(|_| !is_deleting) {
        plan.wait(WaitKind::Owner, facts.on_owner(), Some(until));
        return Some(plan);
    }
    if let Some(on) = hold::paused(facts.meta, facts.cluster) {
        report(&mut plan, subject, paused(subject, &on), "it is paused");
        plan.wait(WaitKind::Hold, on, None);
        return Some(plan);
    }
    let closed = match is_deleting {
        true => facts.held(subject),
        false => facts.ownerless().or_else(|| facts.held(subject)).or_else(|| facts.unowned()),
    };
    if let Some(GateRefusal { kind, on, ready }) = closed {
        if let Some(ready) = ready {
            let next = with_conditions(subject, subject.stored(), [(ProviderCondition::Ready, ready)]);
            report(&mut plan, subject, next, "it is not reconciled");
        }
        plan.wait(kind, on, None);
        return Some(plan);
    }
    if is_deleting {
        tear_down(&mut plan, subject);
        return Some(plan);
    }
    let (name, reason) = facts.finalizer;
    let patch = finalizer::add(facts.meta, name)?;
    plan.then(S::patch_self(patch), reason);
    Some(plan)
}

impl GateInput<'_> {
    /// Until when an object without an owner waits without a condition.
    fn owner_due(&self) -> Option<Timestamp> {
        let created = self.meta.creation_timestamp.as_ref().filter(|_| self.owner == OwnerState::None)?;
        created.0.checked_add(OWNER_FOLLOWS).ok().filter(|due| *due > self.now)
    }

    fn on_owner(&self) -> String {
        format!("Cluster API core to set its {} as an owner", self.owner_kind)
    }

    /// No owner reference names an owner.
    fn ownerless(&self) -> Option<GateRefusal> {
        let closed = || GateRefusal::new(WaitKind::Owner, ProviderReason::WaitingForOwner, self.on_owner());
        (self.owner == OwnerState::None).then(closed)
    }

    /// The native objects must not be reconciled.
    fn held<S: GatedSnapshot>(&self, subject: &S) -> Option<GateRefusal> {
        if !self.are_natives_read && self.cluster.known().is_some() {
            let closed = GateRefusal::new(WaitKind::CacheUntrusted, ProviderReason::WaitingForMCMObjects, hold::UNREAD);
            // They are also read after each start. Meanwhile the last known condition is kept.
            let ready = closed.ready.clone().filter(|_| !is_ready(subject));
            return Some(GateRefusal { ready, ..closed });
        }
        let obstacle = self.obstacle?;
        let text = format!("Waiting for {}", obstacle.on);
        // The first read takes a moment. Its failure is certain.
        let ready = obstacle.is_certain.then(|| ConditionVerdict::no(ProviderReason::OtherManagerActive, text));
        Some(GateRefusal { kind: WaitKind::Hold, on: obstacle.on.clone(), ready })
    }

    /// The owner or the Cluster cannot be read or does not exist.
    fn unowned(&self) -> Option<GateRefusal> {
        let kind = self.owner_kind;
        let on_owner = |text: String| Some(GateRefusal::new(WaitKind::Owner, ProviderReason::WaitingForOwner, text));
        match self.owner {
            OwnerState::Unreadable => on_owner(format!("the {kind} that owns it to become readable")),
            OwnerState::Missing => on_owner(format!("the {kind} that owns it, which does not exist")),
            OwnerState::None | OwnerState::Known if self.cluster.known().is_some() => None,
            OwnerState::None | OwnerState::Known => {
                Some(GateRefusal::new(WaitKind::Owner, ProviderReason::WaitingForCluster, "its Cluster to exist"))
            }
        }
    }
}

impl GateRefusal {
    fn new(kind: WaitKind, reason: ProviderReason, on: impl Into<String>) -> Self {
        let on = on.into();
        let ready = Some(ConditionVerdict::unknown(reason, format!("Waiting for {on}")));
        Self { kind, on, ready }
    }
}

/// The status while the object is paused: only the condition `Paused` changes.
fn paused<S: GatedSnapshot>(subject: &S, on: &str) -> S::Status {
    let mut next = subject.stored();
    let facts = subject.facts();
    conditions::set_paused(S::conditions(&mut next), Some(on), facts.meta.generation, facts.now);
    next
}

fn is_ready<S: GatedSnapshot>(subject: &S) -> bool {
    let mut stored = subject.stored();
    S::conditions(&mut stored)
        .iter()
        .any(|condition| condition.type_ == ProviderCondition::Ready.as_str() && condition.status == "True")
}

/// A status with conditions. The object is not paused.
pub(crate) fn with_conditions<S: GatedSnapshot>(
    subject: &S,
    mut status: S::Status,
    all: impl IntoIterator<Item = (ProviderCondition, ConditionVerdict)>,
) -> S::Status {
    let facts = subject.facts();
    let conditions = S::conditions(&mut status);
    for (type_, desired) in all {
        conditions::set(conditions, type_, desired, facts.meta.generation, facts.now);
    }
    conditions::set_paused(conditions, None, facts.meta.generation, facts.now);
    if matches!(facts.owner, OwnerState::Known | OwnerState::Missing) {
        subject.complete(&mut status);
    }
    status
}

/// Adds a write of the status, if it changes.
pub(crate) fn report<S: GatedSnapshot>(
    plan: &mut Plan<S::Action>,
    subject: &S,
    mut next: S::Status,
    reason: &str,
) -> bool {
    let mut stored = subject.stored();
    let is_news = next != stored;
    if is_news {
        let event = conditions::event(S::conditions(&mut stored), S::conditions(&mut next));
        plan.steps.push(Step { action: S::write_status(next), reason: reason.to_owned(), event });
    }
    is_news
}

/// Shows in the condition `InSync` which writes are undone. It waits for the other steps, so that it costs no extra write.
pub(crate) fn show_undone<S: GatedSnapshot>(subject: &S, plan: &mut Plan<S::Action>, undone: &[UndoneWrite]) {
    let is_held = plan.waits.iter().any(|wait| wait.kind == WaitKind::Hold);
    if is_held || !plan.steps.is_empty() {
        return;
    }
    let (mut next, facts) = (subject.stored(), subject.facts());
    let conditions = S::conditions(&mut next);
    let Some(shown) = condition::show_undone(conditions, undone, facts.now) else { return };
    if let Some(set) = condition::find_mut(conditions, ConditionType::InSync) {
        set.observed_generation = facts.meta.generation;
    }
    plan.steps.push(Step { action: S::write_status(next), reason: shown.reason, event: shown.event });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use mcm_api::reasons::PauseReason;

    /// An object without needs.
    struct Subject {
        meta: ObjectMeta,
        watch_filter: Option<&'static str>,
        owner: OwnerState,
        cluster: ObjectView<Cluster>,
        are_natives_read: bool,
        obstacle: Option<ManagerObstacle>,
        stored: Vec<Condition>,
    }

    #[derive(Debug, PartialEq)]
    enum Action {
        PatchSelf(Value),
        WriteStatus(Vec<Condition>),
        TearDown,
    }

    impl GatedSnapshot for Subject {
        type Status = Vec<Condition>;
        type Action = Action;

        fn facts(&self) -> GateInput<'_> {
            GateInput {
                meta: &self.meta,
                watch_filter: self.watch_filter,
                owner_kind: "Machine",
                owner: self.owner,
                cluster: &self.cluster,
                are_natives_read: self.are_natives_read,
                obstacle: self.obstacle.as_ref(),
                finalizer: ("own", "it has a finalizer"),
                now: "2026-01-01T00:00:20Z".parse().unwrap(),
            }
        }
        fn stored(&self) -> Vec<Condition> {
            self.stored.clone()
        }
        fn conditions(status: &mut Vec<Condition>) -> &mut Vec<Condition> {
            status
        }
        fn patch_self(patch: Value) -> Action {
            Action::PatchSelf(patch)
        }
        fn write_status(status: Vec<Condition>) -> Action {
            Action::WriteStatus(status)
        }
    }

    /// An object that passes the gate.
    fn subject() -> Subject {
        let meta = json!({ "finalizers": ["own"], "creationTimestamp": "2026-01-01T00:00:00Z" });
        let cluster = json!({ "metadata": { "name": "c" }, "spec": {} });
        Subject {
            meta: serde_json::from_value(meta).unwrap(),
            watch_filter: None,
            owner: OwnerState::Known,
            cluster: ObjectView::Present(Arc::new(serde_json::from_value(cluster).unwrap())),
            are_natives_read: true,
            obstacle: None,
            stored: Vec::new(),
        }
    }

    fn planned(subject: &Subject) -> Option<Plan<Action>> {
        gate(subject, |plan, _| {
            plan.then(Action::TearDown, "it is being deleted");
        })
    }

    /// The conditions that a plan writes, without `NotPaused`.
    fn conditions(plan: &Plan<Action>) -> Vec<String> {
        let written = plan.steps.iter().flat_map(|step| match &step.action {
            Action::WriteStatus(conditions) => conditions.as_slice(),
            Action::PatchSelf(_) | Action::TearDown => &[],
        });
        let shown = written.filter(|one| one.reason != PauseReason::NotPaused.as_str());
        shown.map(|one| format!("{}={} {}: {}", one.type_, one.status, one.reason, one.message)).collect()
    }

    fn ready() -> Vec<Condition> {
        let mut all = Vec::new();
        conditions::set(
            &mut all,
            ProviderCondition::Ready,
            ConditionVerdict::yes("Provisioned"),
            None,
            Timestamp::UNIX_EPOCH,
        );
        all
    }

    #[rstest]
    #[case::of_another_manager(|one: &mut Subject| one.watch_filter = Some("other"), None)]
    #[case::ownerless(
        |one: &mut Subject| one.owner = OwnerState::None,
        Some("Ready=Unknown WaitingForOwner: Waiting for Cluster API core to set its Machine as an owner")
    )]
    #[case::owner_gone(
        |one: &mut Subject| one.owner = OwnerState::Missing,
        Some("Ready=Unknown WaitingForOwner: Waiting for the Machine that owns it, which does not exist")
    )]
    #[case::owner_unreadable(
        |one: &mut Subject| one.owner = OwnerState::Unreadable,
        Some("Ready=Unknown WaitingForOwner: Waiting for the Machine that owns it to become readable")
    )]
    #[case::cluster_gone(
        |one: &mut Subject| one.cluster = ObjectView::Missing,
        Some("Ready=Unknown WaitingForCluster: Waiting for its Cluster to exist")
    )]
    #[case::cluster_unreadable(
        |one: &mut Subject| one.cluster = ObjectView::Unknown,
        Some("Paused=True Paused: Waiting for its Cluster to become readable")
    )]
    #[case::natives_unread(
        |one: &mut Subject| one.are_natives_read = false,
        Some("Ready=Unknown WaitingForMCMObjects: Waiting for all MCM objects to be read live, because its Cluster is no longer paused")
    )]
    #[case::natives_unread_of_a_ready_object(
        |one: &mut Subject| (one.are_natives_read, one.stored) = (false, ready()), None
    )]
    #[case::native_manager(
        |one: &mut Subject| one.obstacle = Some(ManagerObstacle { on: "a Lease to expire".into(), is_certain: true }),
        Some("Ready=False MachineControllerManagerActive: Waiting for a Lease to expire")
    )]
    #[case::native_managers_not_known_yet(
        |one: &mut Subject| one.obstacle = Some(ManagerObstacle { on: "the Leases to be read".into(), is_certain: false }), None
    )]
    fn an_object_that_is_not_reconciled_says_why(#[case] edit: fn(&mut Subject), #[case] expected: Option<&str>) {
        let mut subject = subject();
        edit(&mut subject);
        let plan = planned(&subject).unwrap();
        assert_eq!(plan.waits.len(), 1);
        assert_eq!(conditions(&plan), expected.into_iter().collect::<Vec<_>>());
        if let Some(step) = plan.steps.into_iter().next() {
            let Action::WriteStatus(stored) = step.action else { panic!("{:?}", step.action) };
            subject.stored = stored;
        }
        assert_eq!(conditions(&planned(&subject).unwrap()), [""; 0], "it is written once");
    }

    /// Core creates an object before it sets the owner.
    #[rstest]
    fn a_new_object_waits_for_its_owner_without_a_condition(#[values(false, true)] is_paused: bool) {
        let mut subject = subject();
        subject.owner = OwnerState::None;
        if is_paused {
            subject.meta.annotations = Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into());
        }
        subject.meta.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time("2026-01-01T00:00:15Z".parse().unwrap()));
        let plan = planned(&subject).unwrap();
        assert_eq!((plan.steps.len(), plan.waits[0].until), (0, Some("2026-01-01T00:00:25Z".parse().unwrap())));
    }

    #[test]
    fn a_paused_object_without_an_owner_confirms_its_pause() {
        let mut subject = subject();
        subject.owner = OwnerState::None;
        subject.meta.annotations = Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into());
        let plan = planned(&subject).unwrap();
        assert_eq!(
            conditions(&plan),
            ["Paused=True Paused: Waiting for its annotation cluster.x-k8s.io/paused to be removed"]
        );
    }

    /// A deletion needs neither an owner nor a Cluster.
    #[test]
    fn an_object_without_anything_is_deleted() {
        let mut subject = subject();
        (subject.owner, subject.cluster) = (OwnerState::None, ObjectView::Missing);
        subject.meta.deletion_timestamp = subject.meta.creation_timestamp.clone();
        let plan = planned(&subject).unwrap();
        assert_eq!(plan.steps.into_iter().map(|step| step.action).collect::<Vec<_>>(), [Action::TearDown]);
    }

    #[test]
    fn the_finalizer_comes_before_what_the_object_needs() {
        let mut subject = subject();
        assert!(planned(&subject).is_none());
        subject.meta.finalizers = None;
        let plan = planned(&subject).unwrap();
        let finalizers = json!({ "metadata": { "finalizers": ["own"] } });
        assert_eq!(plan.steps.into_iter().map(|step| step.action).collect::<Vec<_>>(), [Action::PatchSelf(finalizers)]);
    }
}
