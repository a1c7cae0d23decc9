//! Steps of a migration. A step compares objects with the desired state. Missing changes become actions; changes that
//! other controllers still have to make become waits. A step with neither is done. So an interrupted migration
//! continues from the state of the objects.

use std::fmt;

use serde_json::{Value, json};

use super::{Kind, ObjectId, Snapshot, UnstructuredObject, object::lacking};
use mcm_api::{labels, patch};
use mcm_conversion::types::names;

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

impl Step {
    /// A step that cannot be undone, or need not be.
    pub const fn new(title: &'static str, todo: fn(&Snapshot) -> RemainingWork) -> Self {
        Self { title, todo, undo: None }
    }

    /// Adds the reversal.
    #[must_use]
    pub const fn undone_by(self, undo: fn(&Snapshot) -> RemainingWork) -> Self {
        Self { undo: Some(undo), ..self }
    }
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
pub struct Action {
    /// The object to write; of a tag the native Machine, which need not exist yet.
    pub id: ObjectId,
    /// The write.
    pub change: MigrationWrite,
}

/// A write of an object, or of its VM.
#[derive(Clone, Debug, PartialEq)]
pub enum MigrationWrite {
    /// Create the object with this content.
    Create(Value),
    /// A merge patch, with the resource version as precondition.
    Patch(Value),
    /// A merge patch of the status, with the same precondition.
    PatchStatus(Value),
    /// Delete an object without owners whose controller confirmed the pause. Its dependents were detached before. Or
    /// request the stand-in to remove the objects it shows.
    Delete {
        /// The precondition.
        uid: String,
    },
    /// Add the tags by which the orphan collector finds VMs of the class, or remove them.
    Tag {
        /// True to add the tags.
        is_listed: bool,
    },
}

/// Patches are shown by their fields, without values.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, change } = self;
        match change {
            MigrationWrite::Create(_) => write!(f, "create {id}"),
            MigrationWrite::Patch(patch) | MigrationWrite::PatchStatus(patch) => {
                write!(f, "patch {id}: {}", patch::fields(patch))
            }
            MigrationWrite::Delete { .. } => write!(f, "delete {id}"),
            MigrationWrite::Tag { is_listed: true } => write!(f, "tag the VM of {id}"),
            MigrationWrite::Tag { is_listed: false } => write!(f, "remove the tags from the VM of {id}"),
        }
    }
}

impl RemainingWork {
    /// The step is done.
    pub fn is_done(&self) -> bool {
        self.actions.is_empty() && self.waits.is_empty()
    }

    /// Adds work that need not wait for this.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.actions.extend(other.actions);
        self.waits.extend(other.waits);
        self.asks_cloud |= other.asks_cloud;
        self
    }

    /// Adds the next actions once none is left here, so that they are not executed too early.
    #[must_use]
    pub fn then(self, next: impl FnOnce() -> Self) -> Self {
        if self.is_done() { next() } else { self }
    }
}

/// One write.
pub fn write(id: ObjectId, change: MigrationWrite) -> RemainingWork {
    RemainingWork { actions: vec![Action { id, change }], ..RemainingWork::default() }
}

/// Deletes an object as it was read.
pub fn delete(object: &UnstructuredObject) -> RemainingWork {
    write(object.id(), MigrationWrite::Delete { uid: object.uid().to_owned() })
}

/// Waits for an event; the text completes "waiting for".
pub fn wait(text: impl Into<String>) -> RemainingWork {
    RemainingWork { waits: vec![text.into()], ..RemainingWork::default() }
}

/// Waits unless the condition holds.
pub fn expect(is_so: bool, text: impl Into<String>) -> RemainingWork {
    if is_so { RemainingWork::default() } else { wait(text) }
}

/// The work for each item.
pub fn each<T>(items: impl IntoIterator<Item = T>, work: impl FnMut(T) -> RemainingWork) -> RemainingWork {
    items.into_iter().map(work).fold(RemainingWork::default(), RemainingWork::and)
}

/// Adds missing fields to an object.
pub fn want(object: &UnstructuredObject, wanted: &Value) -> RemainingWork {
    let patch = lacking(&object.value, wanted);
    each(patch, |patch| write(object.id(), MigrationWrite::Patch(patch)))
}

/// Adds missing fields to the status of an object.
pub fn want_status(object: &UnstructuredObject, status: &Value) -> RemainingWork {
    let patch = lacking(&object.value, &json!({ "status": status }));
    each(patch, |patch| write(object.id(), MigrationWrite::PatchStatus(patch)))
}

/// Creates an object, paused, or adds missing fields to an object that this migration created.
pub fn make(s: &Snapshot, kind: Kind, object: &Value) -> RemainingWork {
    let id = ObjectId::new(kind, object["metadata"]["name"].as_str().unwrap_or_default());
    // Without nulls: open fields are filled in by admission.
    let mut whole = json!({ "apiVersion": kind.api_version(), "kind": kind.resource().name });
    patch::apply(&mut whole, object);
    patch::apply(&mut whole, &pause_patch(kind, Some(s.name())));
    whole["metadata"]["namespace"] = json!(s.namespace);
    match s.objects.get(&id) {
        Some(object) if object.is_of_migration(s.name()) => want(object, &whole),
        Some(_) => wait(format!("the name of {id}, which another object has")),
        None => write(id, MigrationWrite::Create(whole)),
    }
}

/// Creates the objects of a conversion that have these kinds. An object that another client created stays as it is.
pub fn make_each(s: &Snapshot, kinds: &[Kind], objects: &[Value]) -> RemainingWork {
    each(objects, |object| match Kind::from_value(object) {
        Some(kind) if kinds.contains(&kind) && s.is_to_be_made(kind, object) => make(s, kind, object),
        _ => RemainingWork::default(),
    })
}

/// The patch that pauses the controllers of an object for a migration, or resumes them.
fn pause_patch(kind: Kind, migration: Option<&str>) -> Value {
    let mut annotations = json!({ (labels::MIGRATION): migration });
    if kind.has_pause_annotation() {
        annotations[names::PAUSED] = json!(migration.map(|_| ""));
    }
    if kind == Kind::Machine && migration.is_none() {
        annotations[labels::BEFORE_MIGRATION] = Value::Null;
    }
    json!({ "metadata": { "annotations": annotations } })
}

/// Pauses the controllers of an object.
pub fn pause(s: &Snapshot, object: &UnstructuredObject) -> RemainingWork {
    want(object, &pause_patch(object.kind, Some(s.name())))
}

/// Resumes the controllers of an object.
pub fn resume(object: &UnstructuredObject) -> RemainingWork {
    want(object, &pause_patch(object.kind, None))
}

/// Waits until the controller of each object confirms the pause.
pub fn expect_paused<'a>(objects: impl IntoIterator<Item = &'a UnstructuredObject>) -> RemainingWork {
    each(objects.into_iter().filter(|object| object.tells_pause()), |object| {
        expect(object.is_paused(), format!("the condition Paused of {}", object.id()))
    })
}

/// Waits until the controller of each object has resumed.
pub fn expect_resumed<'a>(objects: impl IntoIterator<Item = &'a UnstructuredObject>) -> RemainingWork {
    each(objects, |object| expect(!object.is_paused(), format!("the condition Paused of {} to end", object.id())))
}

/// Pauses objects, and waits until their controllers confirm it.
pub fn pause_each(s: &Snapshot, objects: &[&UnstructuredObject]) -> RemainingWork {
    each(objects, |object| pause(s, object)).and(expect_paused(objects.iter().copied()))
}

/// Undoes [`pause_each`].
pub fn resume_each(objects: &[&UnstructuredObject]) -> RemainingWork {
    each(objects, |object| resume(object)).and(expect_resumed(objects.iter().copied()))
}

/// Removes objects without side effects. None is deleted before the controllers of all confirmed the pause; then its
/// deletion starts neither a drain nor the deletion of a VM. Finalizers are removed last: core adds its own again to
/// objects that are not being deleted, paused or not.
pub fn detach<'a>(objects: impl IntoIterator<Item = &'a UnstructuredObject>) -> RemainingWork {
    let objects: Vec<&UnstructuredObject> = objects.into_iter().collect();
    let release = |object: &&UnstructuredObject| {
        let mut wanted = json!({ "metadata": { "ownerReferences": null } });
        if object.kind == Kind::InfraMachine {
            // An admission policy refuses to delete objects that may have a VM, except for objects that were moved to
            // another cluster.
            wanted["metadata"]["annotations"] = json!({ (names::DELETE_FOR_MOVE): "" });
        }
        want(object, &wanted)
    };
    let is_left_alone = |object: &UnstructuredObject| {
        !object.kind.is_paused_by_annotation()
            || object.is_paused()
            || object.at("/status").is_null()
            || object.number("/spec/replicas") == Some(0)
    };
    let watched = objects.iter().copied().filter(|object| !is_left_alone(object));
    each(&objects, release).and(expect_paused(watched)).then(|| {
        each(objects, |object| match object.is_deleting() {
            true => want(object, &json!({ "metadata": { "finalizers": finalizer_of_orphans(object) } }))
                .and(wait(format!("{} to be deleted", object.id()))),
            false => delete(object),
        })
    })
}

/// The finalizer of the garbage collector stays; the collector first removes the owner from the dependents.
fn finalizer_of_orphans(object: &UnstructuredObject) -> Value {
    let all = object.at("/metadata/finalizers");
    let is_there = all.as_array().is_some_and(|all| all.contains(&json!(ORPHANS)));
    if is_there { json!([ORPHANS]) } else { Value::Null }
}
