//! Steps of a migration. A step compares objects with the desired state. Missing changes become actions; changes that
//! other controllers still have to make become waits. A step with neither is done. So an interrupted migration
//! continues from the state of the objects.

use std::fmt;

use serde_json::{Value, json};

use super::{
    object::{Kind, ObjectId, UnstructuredObject, lacking},
    snapshot::Snapshot,
};
use mcm_api::{labels, patch};
pub use mcm_conversion::{ProviderRole, types::names};

/// Finalizer of an object whose dependents are kept.
const ORPHANS: &str = "orphan";

/// One step of a migration, and its reversal.
pub struct Step {
    /// The purpose of the step, for users.
    pub title: &'static str,
    /// The remaining work.
    pub todo: fn(&Snapshot) -> RemainingWork,
    /// The remaining work of undoing the step; `None` if it cannot be undone.
    pub undo: Option<fn(&Snapshot) -> RemainingWork>,
}

/// The remaining work of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemainingWork {
    /// Writes, in order.
    pub actions: Vec<Action>,
    /// Events to wait for before the step is done; each completes "waiting for".
    pub waits: Vec<String>,
    /// The remaining work depends on the state of the VMs in the cloud.
    pub asks_cloud: bool,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create an object.
    Create {
        /// The object.
        id: ObjectId,
        /// Its content.
        object: Value,
    },
    /// A merge patch, with the resource version as precondition.
    Patch {
        /// The object.
        id: ObjectId,
        /// The patch.
        patch: Value,
    },
    /// A merge patch of the status, with the same precondition.
    PatchStatus {
        /// The object.
        id: ObjectId,
        /// The patch.
        patch: Value,
    },
    /// Delete an object without owners whose controller confirmed the pause. Its dependents were detached before. Or
    /// request the stand-in to remove the objects it shows.
    Delete {
        /// The object.
        id: ObjectId,
        /// The precondition.
        uid: String,
    },
    /// Add the tags by which the orphan collector finds VMs of the class, or remove them.
    Tag {
        /// The native Machine, which need not exist yet.
        id: ObjectId,
        /// True to add the tags.
        is_listed: bool,
    },
}

impl Action {
    /// The object to write.
    pub fn id(&self) -> &ObjectId {
        match self {
            Self::Create { id, .. }
            | Self::Patch { id, .. }
            | Self::PatchStatus { id, .. }
            | Self::Delete { id, .. }
            | Self::Tag { id, .. } => id,
        }
    }
}

/// Patches are shown by their fields, without values.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { id, .. } => write!(f, "create {id}"),
            Self::Patch { id, patch } => write!(f, "patch {id}: {}", patch::fields(patch)),
            Self::PatchStatus { id, patch } => write!(f, "patch {id}: {}", patch::fields(patch)),
            Self::Delete { id, .. } => write!(f, "delete {id}"),
            Self::Tag { id, is_listed: true } => write!(f, "tag the VM of {id}"),
            Self::Tag { id, is_listed: false } => write!(f, "remove the tags from the VM of {id}"),
        }
    }
}

impl RemainingWork {
    /// The step is done.
    pub fn is_done(&self) -> bool {
        self.actions.is_empty() && self.waits.is_empty()
    }

    /// Adds missing fields to an object.
    pub fn want(&mut self, object: &UnstructuredObject, wanted: &Value) {
        if let Some(patch) = lacking(&object.value, wanted) {
            self.actions.push(Action::Patch { id: object.id(), patch });
        }
    }

    /// Creates an object, or adds missing fields to an object that this migration created.
    pub fn make(&mut self, snapshot: &Snapshot, kind: Kind, wanted: &Value) {
        let id = ObjectId::new(kind, wanted["metadata"]["name"].as_str().unwrap_or_default());
        // Without nulls: open fields are filled in by admission.
        let mut whole = json!({});
        patch::apply(&mut whole, wanted);
        match snapshot.objects.get(&id) {
            Some(object) if object.is_of_migration(snapshot.name()) => self.want(object, &whole),
            Some(_) => self.expect(false, format!("the name of {id}, which another object has")),
            None => self.actions.push(Action::Create { id, object: whole }),
        }
    }

    /// Waits unless the condition holds.
    pub fn expect(&mut self, is_so: bool, text: impl Into<String>) {
        if !is_so {
            self.waits.push(text.into());
        }
    }

    /// Waits until the controller of each object confirms the pause.
    pub fn expect_paused<'a>(&mut self, objects: impl IntoIterator<Item = &'a UnstructuredObject>) {
        for object in objects.into_iter().filter(|object| object.tells_pause()) {
            self.expect(object.is_paused(), format!("the condition Paused of {}", object.id()));
        }
    }

    /// Waits until the controller of each object has resumed.
    pub fn expect_resumed<'a>(&mut self, objects: impl IntoIterator<Item = &'a UnstructuredObject>) {
        for object in objects {
            self.expect(!object.is_paused(), format!("the condition Paused of {} to end", object.id()));
        }
    }

    /// Adds the next actions once none is left here, so that they are not executed too early.
    #[must_use]
    pub fn then(self, next: impl FnOnce() -> Self) -> Self {
        if self.is_done() { next() } else { self }
    }
}

/// The patch that pauses the controllers of a kind.
fn pause_of(kind: Kind, migration: &Value) -> Value {
    let pause = match kind {
        Kind::CapiDeployment
        | Kind::CapiSet
        | Kind::CapiMachine
        | Kind::HealthCheck
        | Kind::InfraMachine
        | Kind::MachinePool
        | Kind::Other(_, ProviderRole::Machine | ProviderRole::Pool) => {
            json!({ (names::PAUSED): "", (labels::MIGRATION): migration })
        }
        _ => json!({ (labels::MIGRATION): migration }),
    };
    json!({ "metadata": { "annotations": pause } })
}

/// The patch that pauses the controllers of an object.
pub fn pause(object: &UnstructuredObject, snapshot: &Snapshot) -> Value {
    pause_of(object.kind, &json!(snapshot.name()))
}

/// The patch that resumes them.
pub fn resume(object: &UnstructuredObject) -> Value {
    let mut patch = pause_of(object.kind, &Value::Null);
    if !patch["metadata"]["annotations"][names::PAUSED].is_null() {
        patch["metadata"]["annotations"][names::PAUSED] = Value::Null;
    }
    patch
}

/// Pauses objects, and waits until their controllers confirm it.
pub fn pause_each(s: &Snapshot, objects: &[&UnstructuredObject]) -> RemainingWork {
    let mut todo = RemainingWork::default();
    objects.iter().for_each(|object| todo.want(object, &pause(object, s)));
    todo.expect_paused(objects.iter().copied());
    todo
}

/// Undoes [`pause_each`].
pub fn resume_each(objects: &[&UnstructuredObject]) -> RemainingWork {
    let mut todo = RemainingWork::default();
    objects.iter().for_each(|object| todo.want(object, &resume(object)));
    todo.expect_resumed(objects.iter().copied());
    todo
}

/// A deployment is healthy, and each of these numbers of its status counts the machines that survived.
pub fn is_whole(deployment: &UnstructuredObject, numbers: [&str; 3], surviving: Option<i64>) -> bool {
    let counts = |field: &&str| deployment.number(&format!("/status/{field}")) >= surviving;
    !deployment.is_paused() && deployment.is_observed() && numbers.iter().all(counts)
}

/// An object that is created paused.
pub fn paused(kind: Kind, mut object: Value, snapshot: &Snapshot) -> Value {
    patch::apply(&mut object, &pause_of(kind, &json!(snapshot.name())));
    object["metadata"]["namespace"] = json!(snapshot.namespace);
    object
}

/// Removes objects without side effects. None is deleted before the controllers of all confirmed the pause; then its
/// deletion starts neither a drain nor the deletion of a VM. Finalizers are removed last: core adds its own again to
/// objects that are not being deleted, paused or not.
pub fn detach<'a>(todo: &mut RemainingWork, objects: impl IntoIterator<Item = &'a UnstructuredObject>) {
    let objects: Vec<&UnstructuredObject> = objects.into_iter().collect();
    for object in &objects {
        let mut wanted = json!({ "metadata": { "ownerReferences": null } });
        if object.kind == Kind::InfraMachine {
            // An admission policy refuses to delete objects that may have a VM, except for objects that were moved to
            // another cluster.
            wanted["metadata"]["annotations"] = json!({ (names::DELETE_FOR_MOVE): "" });
        }
        todo.want(object, &wanted);
    }
    let is_left_alone = |object: &UnstructuredObject| {
        !object.kind.is_paused_by_annotation()
            || !object.tells_pause()
            || object.is_paused()
            || object.at("/status").is_null()
            || object.number("/spec/replicas") == Some(0)
    };
    todo.expect_paused(objects.iter().filter(|object| !is_left_alone(object)).copied());
    if !todo.is_done() {
        return;
    }
    for object in objects {
        if object.is_deleting() {
            todo.want(object, &json!({ "metadata": { "finalizers": finalizer_of_orphans(object) } }));
            todo.expect(false, format!("{} to be deleted", object.id()));
        } else {
            todo.actions.push(Action::Delete { id: object.id(), uid: object.uid().to_owned() });
        }
    }
}

/// The finalizer of the garbage collector stays; the collector first removes the owner from the dependents.
fn finalizer_of_orphans(object: &UnstructuredObject) -> Value {
    let all = object.at("/metadata/finalizers");
    let is_there = all.as_array().is_some_and(|all| all.contains(&json!(ORPHANS)));
    if is_there { json!([ORPHANS]) } else { Value::Null }
}
