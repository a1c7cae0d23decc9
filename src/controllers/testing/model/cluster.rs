//! Both API servers: objects of each kind, and what a watch has still to report of them.

use std::{collections::VecDeque, sync::Arc};

use kube::{ResourceExt, runtime::watcher::Event};
use serde::Serialize;
use serde_json::Value;

use super::super::store::{Clock, Refused, Store};
use crate::{
    api::{
        machine::{Machine, MachineClass, MachineDeployment, MachineSet},
        node::Node,
    },
    runtime::{
        cache::{Cache, Cached},
        guard::Guard,
    },
};

pub(super) const NAMESPACE: &str = "shoot";

/// The control namespace, and the Nodes of the target cluster.
pub(super) struct Cluster {
    pub clock: Clock,
    pub deployments: Kind<MachineDeployment>,
    pub sets: Kind<MachineSet>,
    pub machines: Kind<Machine>,
    pub classes: Kind<MachineClass>,
    pub nodes: Kind<Node>,
    /// Writes that were carried out for the manager.
    pub writes: usize,
}

/// Objects of one kind and their watch.
pub(super) struct Kind<K: Cached> {
    pub store: Store<K>,
    feed: VecDeque<Event<Guard<K>>>,
}

/// Which kind a write is about.
pub(super) type Part<K> = fn(&mut Cluster) -> (&mut Clock, &mut Kind<K>);

impl Cluster {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::new(),
            deployments: Kind::default(),
            sets: Kind::default(),
            machines: Kind::default(),
            classes: Kind::default(),
            nodes: Kind::default(),
            writes: 0,
        }
    }

    pub(super) fn deployments(&mut self) -> (&mut Clock, &mut Kind<MachineDeployment>) {
        (&mut self.clock, &mut self.deployments)
    }

    pub(super) fn sets(&mut self) -> (&mut Clock, &mut Kind<MachineSet>) {
        (&mut self.clock, &mut self.sets)
    }

    pub(super) fn machines(&mut self) -> (&mut Clock, &mut Kind<Machine>) {
        (&mut self.clock, &mut self.machines)
    }

    pub(super) fn classes(&mut self) -> (&mut Clock, &mut Kind<MachineClass>) {
        (&mut self.clock, &mut self.classes)
    }

    pub(super) fn nodes(&mut self) -> (&mut Clock, &mut Kind<Node>) {
        (&mut self.clock, &mut self.nodes)
    }

    /// How many changes each watch has not reported yet.
    pub(super) fn unreported(&self) -> [usize; 5] {
        [
            self.deployments.feed.len(),
            self.sets.feed.len(),
            self.machines.feed.len(),
            self.classes.feed.len(),
            self.nodes.feed.len(),
        ]
    }
}

impl<K: Cached> Default for Kind<K> {
    fn default() -> Self {
        Self { store: Store::default(), feed: VecDeque::new() }
    }
}

impl<K: Cached + PartialEq + Serialize> Kind<K> {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<K>> {
        self.store.get(name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.store.all()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.all().map(|object| object.name_any()).collect()
    }

    pub(super) fn create(&mut self, clock: &mut Clock, object: K) -> Result<Arc<K>, Refused> {
        let name = object.name_any();
        self.watched(&name, |store| store.create(clock, object))
    }

    pub(super) fn patch(&mut self, clock: &mut Clock, seen: &K, patch: &Value) -> Result<Arc<K>, Refused> {
        self.watched(&seen.name_any(), |store| store.patch(clock, seen, patch))
    }

    pub(super) fn amend(&mut self, clock: &mut Clock, seen: &K, patch: &Value) -> Result<Arc<K>, Refused> {
        self.watched(&seen.name_any(), |store| store.amend(clock, seen, patch))
    }

    pub(super) fn patch_status(
        &mut self,
        clock: &mut Clock,
        seen: &K,
        status: impl Serialize,
    ) -> Result<Arc<K>, Refused> {
        self.watched(&seen.name_any(), |store| store.patch_status(clock, seen, status))
    }

    /// With the UID as precondition. Answers what is left.
    pub(super) fn delete(&mut self, clock: &mut Clock, seen: &K) -> Result<Option<Arc<K>>, Refused> {
        let name = seen.name_any();
        let held = self.get(&name).ok_or(Refused::NotFound)?;
        if held.uid() != seen.uid() {
            return Err(Refused::Conflict);
        }
        self.watched(&name, |store| store.delete(clock, &name))?;
        Ok(self.get(&name).cloned())
    }

    /// What others do.
    pub(super) fn edit(&mut self, clock: &mut Clock, name: &str, change: impl FnOnce(&mut K)) {
        self.watched(name, |store| store.edit(clock, name, change));
    }

    /// Somebody writes something that is of no interest here.
    pub(super) fn touch(&mut self, clock: &mut Clock, name: &str) {
        let text = clock.serial().to_string();
        if self.get(name).is_some() {
            self.edit(clock, name, |object| {
                object.annotations_mut().insert("example.org/touched".to_owned(), text);
            });
        }
    }

    /// The watch reports the next change.
    pub(super) fn report(&mut self, cache: &Cache<K>) {
        if let Some(event) = self.feed.pop_front() {
            cache.observe(event);
        }
    }

    /// A new watch begins with everything there is.
    pub(super) fn list(&mut self, cache: &Cache<K>) {
        self.feed.clear();
        cache.observe(Event::Init);
        for object in self.store.all() {
            cache.observe(Event::InitApply(guarded(object)));
        }
        cache.observe(Event::InitDone);
    }

    fn watched<T>(&mut self, name: &str, write: impl FnOnce(&mut Store<K>) -> T) -> T {
        let before = self.store.get(name).cloned();
        let answer = write(&mut self.store);
        match (before, self.store.get(name)) {
            (Some(before), Some(after)) if Arc::ptr_eq(&before, after) => {}
            (_, Some(after)) => self.feed.push_back(Event::Apply(guarded(after))),
            (Some(before), None) => self.feed.push_back(Event::Delete(guarded(&before))),
            (None, None) => {}
        }
        answer
    }
}

fn guarded<K: Cached>(object: &Arc<K>) -> Guard<K> {
    Guard::Readable(K::clone(object))
}
