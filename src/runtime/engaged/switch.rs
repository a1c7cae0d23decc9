//! The Deployment `machine-controller-manager` of a namespace as its switch, in a seed of Gardener.
//!
//! Gardener and its dependency-watchdog scale the Deployment to 0 while machines must be left alone: in a hibernation, a migration,
//! a restore, or while Nodes cannot report. A Go program ends then. A process that serves many namespaces runs on, so it reads the
//! Deployment. Unknown is off: what may have been switched off is not touched.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use kube::Client;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::{Key, ObjectCache, ObjectChange},
    fence::LeaseFence,
    handlers::NamespaceHandlers,
    panics::{self, PanicPlace},
    scope::CellScope,
    trust::{CacheNeed, CacheRegistry, CacheTrust, WatchTiming},
};

/// The name of the Deployment.
pub const DEPLOYMENT: &str = "machine-controller-manager";

/// The label of the Namespaces of shoots, with its value. A fleet has this switch in shoots alone.
pub const ROLE_OF_SHOOT: (&str, &str) = ("gardener.cloud/role", "shoot");

/// The Deployments of a cell, watched until this is dropped.
pub struct DeploymentSwitch {
    cache: Arc<ObjectCache<Deployment>>,
    /// Of the namespaces that were admitted.
    fences: Mutex<BTreeMap<String, LeaseFence>>,
    pub(super) opened: NamespaceHandlers,
    watch: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl DeploymentSwitch {
    /// Watches the Deployments in the scope of a cell. `cluster` names the control cluster in `/readyz` and metrics.
    pub fn start(control: &Client, scope: &CellScope, cluster: &str, caches: &CacheRegistry) -> Arc<Self> {
        let cache = ObjectCache::<Deployment>::new(&[], |deployment| {
            deployment.metadata.managed_fields = None;
            deployment.metadata.annotations = None;
            deployment.metadata.labels = None;
            let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            deployment.spec = Some(DeploymentSpec { replicas, ..DeploymentSpec::default() });
            deployment.status = None;
        });
        let switch = Arc::new(Self {
            cache: Arc::clone(&cache),
            fences: Mutex::default(),
            opened: NamespaceHandlers::default(),
            watch: Mutex::default(),
        });
        let (of_changes, of_trust) = (Arc::downgrade(&switch), Arc::downgrade(&switch));
        cache.on_change(move |change| {
            if let Some(switch) = of_changes.upgrade() {
                switch.changed(change);
            }
        });
        cache.on_trust(move |trust| {
            if let Some(switch) = of_trust.upgrade() {
                switch.trust_changed(trust);
            }
        });
        caches.add(cluster, &cache, CacheNeed::Required);
        let (control, scope) = (control.clone(), scope.clone());
        *switch.watch.lock() = Some(panics::keep(PanicPlace::Watch, "deployments".to_owned(), move || {
            let scope = scope.clone();
            let fields = Some(format!("metadata.name={DEPLOYMENT}"));
            Arc::clone(&cache).watch_fields(
                control.clone(),
                move |client| scope.api(&client),
                fields,
                WatchTiming::TARGET,
            )
        }));
        switch
    }

    /// The fence of work in a namespace, which closes when its Deployment is switched off or is unknown.
    ///
    /// # Errors
    /// It is off or unknown; the text has the reason why the work waits.
    pub(super) fn admit(&self, namespace: &str) -> Result<LeaseFence, String> {
        // A change that is stored while this reads is followed by its handler, which waits for this lock.
        let mut fences = self.fences.lock();
        if let Some(problem) = self.cache.trust().problem() {
            return Err(format!("the Deployment {namespace}/{DEPLOYMENT} to become known: {problem}"));
        }
        let deployment = self.cache.get(&Key::new(namespace, DEPLOYMENT));
        match park_cause(deployment.as_deref()) {
            Some(cause) => Err(cause.obstacle(namespace)),
            None => Ok(fences.entry(namespace.to_owned()).or_default().clone()),
        }
    }

    /// The Deployment of a namespace has no replicas, or does not exist. False while that is unknown.
    pub(super) fn is_off(&self, namespace: &str) -> bool {
        let is_switched_on = || self.cache.get(&Key::new(namespace, DEPLOYMENT)).is_some_and(|one| is_on(&one));
        self.cache.trust().is_trusted() && !is_switched_on()
    }

    fn changed(&self, change: &ObjectChange<Deployment>) {
        let namespace = &change.key.namespace;
        if change.new.as_ref().is_some_and(|deployment| is_on(deployment)) {
            // A Deployment of the first list was not off before.
            let was_on = change.old.as_ref().map_or_else(|| !self.cache.trust().is_trusted(), |old| is_on(old));
            if !was_on {
                tracing::info!(namespace, "the Deployment is on: the namespace is no longer parked");
            }
            self.opened.each(|handler| handler(namespace));
        } else if let Some(fence) = self.fences.lock().remove(namespace) {
            fence.close();
            tracing::info!(namespace, "the Deployment is off: the namespace is parked");
        }
    }

    fn trust_changed(&self, trust: &CacheTrust) {
        if trust.is_trusted() {
            for deployment in self.cache.all() {
                let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
                self.opened.each(|handler| handler(namespace));
            }
        } else {
            std::mem::take(&mut *self.fences.lock()).into_values().for_each(|fence| fence.close());
        }
    }
}

impl Drop for DeploymentSwitch {
    fn drop(&mut self) {
        self.cache.forget_handlers();
        self.fences.lock().values().for_each(LeaseFence::close);
    }
}

/// The state of a Deployment that parks its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkCause {
    /// It does not exist.
    Missing,
    /// It is being deleted.
    Terminating,
    /// It has 0 replicas.
    NoReplicas,
}

impl ParkCause {
    /// Completes "waits for".
    pub fn obstacle(self, namespace: &str) -> String {
        match self {
            Self::Missing => format!("a Deployment {namespace}/{DEPLOYMENT}, without which the namespace is parked"),
            Self::Terminating => {
                format!(
                    "a new Deployment {namespace}/{DEPLOYMENT}: this one is being deleted, so the namespace is parked"
                )
            }
            Self::NoReplicas => {
                format!("the Deployment {namespace}/{DEPLOYMENT} to have replicas: with 0 the namespace is parked")
            }
        }
    }
}

/// The cause for which a namespace with this Deployment is parked; `None` if it is not.
pub fn park_cause(deployment: Option<&Deployment>) -> Option<ParkCause> {
    match deployment {
        None => Some(ParkCause::Missing),
        Some(deployment) if deployment.metadata.deletion_timestamp.is_some() => Some(ParkCause::Terminating),
        Some(deployment) if wanted_replicas(deployment) <= 0 => Some(ParkCause::NoReplicas),
        Some(_) => None,
    }
}

/// A Namespace with these labels is that of a shoot.
pub fn is_of_shoot(labels: &BTreeMap<String, String>) -> bool {
    let (label, value) = ROLE_OF_SHOOT;
    labels.get(label).is_some_and(|role| role == value)
}

/// The replicas that a Deployment will have: none once it is being deleted, and 1 if they are not set.
pub fn wanted_replicas(deployment: &Deployment) -> i32 {
    match deployment.metadata.deletion_timestamp {
        Some(_) => 0,
        None => deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
    }
}

fn is_on(deployment: &Deployment) -> bool {
    park_cause(Some(deployment)).is_none()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::missing(None, Some(ParkCause::Missing))]
    #[case::no_replicas(Some(json!({"spec": {"replicas": 0}})), Some(ParkCause::NoReplicas))]
    #[case::terminating(
        Some(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"replicas": 1}})),
        Some(ParkCause::Terminating)
    )]
    #[case::one_replica(Some(json!({"spec": {"replicas": 1}})), None)]
    #[case::the_default(Some(json!({"spec": {}})), None)]
    fn a_namespace_is_parked_without_a_deployment_that_has_replicas(
        #[case] deployment: Option<Value>,
        #[case] expected: Option<ParkCause>,
    ) {
        let deployment: Option<Deployment> = deployment.map(|value| serde_json::from_value(value).unwrap());
        assert_eq!(park_cause(deployment.as_ref()), expected);
        let text = expected.map(|cause| cause.obstacle("shoot--a"));
        assert!(text.is_none_or(|text| text.contains("Deployment shoot--a/machine-controller-manager")));
    }
}
